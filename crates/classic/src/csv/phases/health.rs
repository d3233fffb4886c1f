//! Whether what a ClusterServiceVersion has installed is healthy, and the phase that follows.

use serde_json::Value;

use super::deployments::{Trouble, trouble};
use super::{Pass, api_services, webhooks};

/// Phase and reason of a ClusterServiceVersion that waits.
pub(super) struct Waiting {
    pub(super) phase: &'static str,
    pub(super) reason: &'static str,
}

/// Sets the phase that the health of the Deployments, APIServices and webhooks calls for; whether all are healthy.
pub(super) fn check(pass: &mut Pass<'_>, wanted: &[Value], waiting: &Waiting) -> bool {
    let Waiting { phase, reason } = waiting;
    let found = trouble(pass, wanted);
    if let Some(Trouble::Ended(message)) = &found {
        pass.set_changed(
            "Failed",
            "InstallCheckFailed",
            &format!("install failed: {message}"),
        );
        return false;
    }
    if !api_services::are_available(pass) {
        pass.set(phase, reason, "apiServices not installed");
        requeue(pass);
        return false;
    }
    if !webhooks::are_installed(pass) {
        pass.set(phase, reason, "webhooks not installed");
        requeue(pass);
        return false;
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
        Some(Trouble::Changed(message)) => {
            pass.set_changed("InstallReady", reason, &format!("installing: {message}"));
            requeue(pass);
            false
        }
        Some(Trouble::Waiting(message) | Trouble::Ended(message)) => {
            pass.set_changed(phase, reason, &format!("installing: {message}"));
            requeue(pass);
            false
        }
    }
}

fn requeue(pass: &mut Pass<'_>) {
    let own = pass.name().to_owned();
    pass.outcome.csvs.insert(own);
}
