//! Whether what a ClusterServiceVersion has installed is healthy, and the phase that follows.

use serde_json::Value;

use super::api_services::{ApiServiceState, Unanswered};
use super::deployments::{DeploymentProblem, first_problem, unready_deployments};
use super::{CsvPass, api_services, webhooks};

/// Phase and reason of a ClusterServiceVersion that waits.
pub(super) struct WaitingStatus {
    pub(super) phase: &'static str,
    pub(super) reason: &'static str,
}

/// Sets the phase that the health of the Deployments, APIServices and webhooks calls for; whether all are healthy.
pub(super) fn check(pass: &mut CsvPass<'_>, wanted: &[Value], waiting: &WaitingStatus) -> bool {
    let WaitingStatus { phase, reason } = waiting;
    let services = match api_services::state(pass) {
        Ok(services) => services,
        Err(Unanswered(error)) => {
            pass.decision.is_unanswered = true;
            pass.retry(error.as_str());
            return false;
        }
    };
    let found = first_problem(pass, wanted);
    let webhooks = webhooks::webhook_state(pass);
    let superfluous = webhooks.superfluous.into_iter();
    pass.decision
        .deleted
        .extend(superfluous.map(|(kind, name)| (kind.to_owned(), String::new(), name)));
    if let Some(DeploymentProblem::Ended(message)) = &found {
        pass.set_changed(
            "Failed",
            "InstallCheckFailed",
            &format!("install failed: {message}"),
        );
        return false;
    }
    match services {
        ApiServiceState::Available => {}
        ApiServiceState::Missing => {
            pass.set_changed(phase, reason, "apiServices not installed");
            requeue(pass);
            return false;
        }
        ApiServiceState::Unknown(error) => {
            let message = format!("APIService install failed: {error}");
            pass.set_changed("Failed", "APIServiceInstallFailed", &message);
            return false;
        }
    }
    match webhooks.are_installed {
        Ok(true) => {}
        Ok(false) => {
            pass.set_changed(phase, reason, "webhooks not installed");
            requeue(pass);
            return false;
        }
        Err(error) => {
            pass.set_changed(
                "InstallReady",
                reason,
                &format!("Webhook install failed: {error}"),
            );
            return false;
        }
    }
    match found {
        None => {
            pass.set_changed(
                "Succeeded",
                "InstallSucceeded",
                "install strategy completed with no errors",
            );
            true
        }
        Some(DeploymentProblem::Changed(message)) => {
            pass.set_changed("InstallReady", reason, &format!("installing: {message}"));
            requeue(pass);
            false
        }
        Some(DeploymentProblem::Waiting(message) | DeploymentProblem::Ended(message)) => {
            pass.decision.unready = unready_deployments(pass, wanted);
            pass.set_changed(phase, reason, &format!("installing: {message}"));
            requeue(pass);
            false
        }
    }
}

fn requeue(pass: &mut CsvPass<'_>) {
    let own = pass.name().to_owned();
    pass.decision.csvs.insert(own);
}
