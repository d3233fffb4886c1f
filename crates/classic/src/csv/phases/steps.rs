//! One step of a phase.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::health::{WaitingStatus, check};
use super::{CsvPass, api_services, certificates, chain, fails_forward, upgradeable, webhooks};
use crate::cluster::text;
use crate::install::Setting;
use crate::operator_group::OperatorGroup;
use crate::operator_group::roles::api_roles;
use crate::{install, names};

const DEPLOYMENT: &str = "deployment";
const BAD_INSTALL: &str = "calculated deployment install is bad";
const INVALID_STRATEGY: &str = "InvalidInstallStrategy";
const NOT_MET: &str = "RequirementsNotMet";
/// Time limit for an installation to become healthy.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// Takes the step of the phase. Unknown phases stay as they are.
pub(super) fn step(pass: &mut CsvPass<'_>, group: &OperatorGroup) {
    match pass.csv.status.phase.clone().as_str() {
        "" => pass.set("Pending", "RequirementsUnknown", "requirements not yet checked"),
        "Pending" => pending(pass),
        "InstallReady" => install_ready(pass),
        "Installing" => installing(pass),
        "Succeeded" => succeeded(pass),
        "Failed" => failed(pass, group),
        "Replacing" => replacing(pass, group),
        "Deleting" => {
            let key = (
                names::CSV_KIND.to_owned(),
                pass.namespace().to_owned(),
                pass.name().to_owned(),
            );
            pass.decision.deleted.push(key);
        }
        _ => {}
    }
}

/// Whether the install strategy is supported; else the phase says that it is not.
fn has_strategy(pass: &mut CsvPass<'_>) -> bool {
    let is_known = pass.csv.spec.install.strategy == DEPLOYMENT;
    if !is_known {
        invalid(pass, "unrecognized install strategy");
    }
    let replaced = pass
        .replaced()
        .map(|replaced| text(replaced, "/metadata/name").to_owned());
    pass.decision.csvs.extend(replaced);
    is_known
}

fn invalid(pass: &mut CsvPass<'_>, error: &str) {
    pass.set(
        "Failed",
        INVALID_STRATEGY,
        &format!("install strategy invalid: {error}"),
    );
}

fn pending(pass: &mut CsvPass<'_>) {
    let replaced = pass.replaced().map(|replaced| {
        let phase = text(replaced, "/status/phase").to_owned();
        (text(replaced, "/metadata/name").to_owned(), phase)
    });
    if let Some((name, _)) = &replaced
        && let Some(refusal) = upgradeable::refusal(pass.facts.cluster, pass.namespace(), name)
    {
        let message = format!("operator is not upgradeable: {refusal}");
        pass.set_changed("Pending", "OperatorConditionNotUpgradeable", &message);
        return;
    }
    if !has_strategy(pass) {
        return;
    }
    let met = match pass.requirements() {
        Ok(found) => {
            pass.record(&found);
            found.met
        }
        Err(error) => return invalid(pass, &error),
    };
    if !met {
        pass.set_changed("Pending", NOT_MET, "one or more requirements couldn't be found");
        return pass.retry("requirements were not met");
    }
    if let Some(refusal) = webhooks::refusal(&pass.csv.spec.webhook_definitions) {
        return pass.set_changed("Failed", "InvalidWebhookDescription", refusal);
    }
    if chain::has_other_owner(pass) {
        let message = "conflicting CRD owner in namespace";
        pass.set("Failed", "OwnerConflict", message);
        return pass.retry(message);
    }
    if api_services::are_foreign(pass) {
        let message = "unable to adopt APIService";
        pass.set("Failed", "OwnerConflict", message);
        return pass.retry(message);
    }
    if replaced.is_some_and(|(_, phase)| phase != "Replacing") {
        return;
    }
    pass.set(
        "InstallReady",
        "AllRequirementsMet",
        "all requirements found, attempting install",
    );
}

fn install_ready(pass: &mut CsvPass<'_>) {
    if !has_strategy(pass) {
        return;
    }
    let setting = Setting {
        cluster: pass.facts.cluster,
        issuer: pass.issuer,
        now: pass.now,
    };
    let installed = install::install(&pass.decision.csv, &pass.csv, setting);
    let place = pass.namespace().to_owned();
    let kind = names::DEPLOYMENT_KIND;
    let deleted = installed.deleted.into_iter();
    pass.decision
        .deleted
        .extend(deleted.map(|name| (kind.to_owned(), place.clone(), name)));
    pass.decision.written.extend(installed.written);
    if let Some(error) = installed.error {
        let message = format!("install strategy failed: {error}");
        pass.set("Failed", "InstallComponentFailed", &message);
        return pass.retry(error);
    }
    pass.certified(installed.due, installed.is_certified);
    pass.set(
        "Installing",
        "InstallSucceeded",
        "waiting for install components to report healthy",
    );
    let own = pass.name().to_owned();
    pass.decision.csvs.insert(own);
}

fn installing(pass: &mut CsvPass<'_>) {
    if !has_strategy(pass) {
        return;
    }
    let waiting = WaitingStatus {
        phase: "Installing",
        reason: "InstallWaiting",
    };
    let Some(is_healthy) = is_healthy(pass, &waiting) else {
        return;
    };
    let since = text(&pass.decision.csv, "/status/lastTransitionTime");
    let since = since.parse::<Timestamp>().ok();
    let is_late = since.is_some_and(|since| pass.now.duration_since(since) >= PATIENCE);
    if !is_healthy && text(&pass.decision.csv, "/status/phase") != "Failed" && is_late {
        pass.set("Failed", "InstallCheckFailed", "install timeout");
    }
}

/// Whether the Deployments, webhooks and aggregated APIs are healthy. Nothing where the wanted Deployments cannot be
/// computed: they are installed again.
fn is_healthy(pass: &mut CsvPass<'_>, waiting: &WaitingStatus) -> Option<bool> {
    let Some(wanted) = install::deployments(&pass.decision.csv, &pass.csv, pass.facts.cluster) else {
        pass.set("Pending", "NeedsReinstall", BAD_INSTALL);
        return None;
    };
    Some(check(pass, &wanted, waiting))
}

/// Whether the operator keeps its replacement from starting: it works on meanwhile.
fn is_held(pass: &CsvPass<'_>, next: &Value) -> bool {
    matches!(text(next, "/status/phase"), "" | "Pending")
        && upgradeable::refusal(pass.facts.cluster, pass.namespace(), pass.name()).is_some()
}

fn succeeded(pass: &mut CsvPass<'_>) {
    if let Some(next) = chain::next(pass, pass.name())
        && !is_held(pass, next)
    {
        let message = format!("being replaced by csv: {}", text(next, "/metadata/name"));
        return pass.set("Replacing", "BeingReplaced", &message);
    }
    if !has_strategy(pass) {
        return;
    }
    if let Some(issues) = api_services::issues(pass) {
        return pass.set("Failed", "APIServiceResourceIssue", &issues.message);
    }
    if certificates::are_due(pass) {
        let message = "CSV owns resources that require a cert refresh";
        return pass.set("Pending", "NeedsCertRotation", message);
    }
    match pass.requirements() {
        Ok(found) if found.met => {}
        Ok(found) => {
            pass.record(&found);
            return pass.set("Failed", NOT_MET, "requirements no longer met");
        }
        Err(error) => return invalid(pass, &error),
    }
    let waiting = WaitingStatus {
        phase: "Failed",
        reason: "ComponentUnhealthy",
    };
    if is_healthy(pass, &waiting) == Some(true) {
        let roles = api_roles(&pass.csv, pass.facts.cluster);
        pass.decision.written.extend(roles.written);
        if let Some(error) = roles.error {
            pass.retry(error.to_string());
        }
    }
}

fn failed(pass: &mut CsvPass<'_>, group: &OperatorGroup) {
    if fails_forward(group)
        && let Some(next) = chain::next(pass, pass.name())
    {
        let message = format!(
            "Fail Forward is enabled, allowing Failed csv to be replaced by csv: {}",
            text(next, "/metadata/name")
        );
        return pass.set("Replacing", "BeingReplaced", &message);
    }
    if !has_strategy(pass) {
        return;
    }
    let reason = pass.csv.status.reason.clone();
    let again = match reason.as_str() {
        "NoTargetNamespaces" | "NoOperatorGroup" | "TooManyOperatorGroups" | "UnsupportedOperatorGroup" => {
            Some("InstallModes now support target namespaces")
        }
        "InterOperatorGroupOwnerConflict" => {
            Some("OperatorGroup no longer intersecting with conflicting owner")
        }
        "CannotModifyStaticOperatorGroupProvidedAPIs" => {
            Some("static OperatorGroup and intersecting groups now support providedAPIs")
        }
        _ => None,
    };
    if let Some(message) = again {
        return pass.set("Pending", "RequirementsUnknown", message);
    }
    match pass.requirements() {
        Ok(found) if found.met => {}
        Err(error) if reason != INVALID_STRATEGY => return invalid(pass, &error),
        found => {
            if let Ok(found) = found {
                pass.record(&found);
            }
            return pass.set("Pending", NOT_MET, "requirements not met");
        }
    }
    if let Some(issues) = api_services::issues(pass) {
        if issues.is_mendable {
            pass.set("Pending", "APIServiceResourcesNeedReinstall", &issues.message);
        }
        return;
    }
    if certificates::are_due(pass) {
        let message = "owned APIServices need cert refresh";
        return pass.set("Pending", "NeedsCertRotation", message);
    }
    let waiting = WaitingStatus {
        phase: "Pending",
        reason: "NeedsReinstall",
    };
    is_healthy(pass, &waiting);
}

fn replacing(pass: &mut CsvPass<'_>, group: &OperatorGroup) {
    if pass.replaced().is_some() {
        return;
    }
    let Some(next) = chain::next(pass, pass.name()) else {
        return pass.retry("marked as replacement, but no replacement CSV found in cluster");
    };
    let next = if fails_forward(group) {
        match chain::last(pass, next) {
            Ok(last) => last,
            Err(error) => return pass.retry(error),
        }
    } else {
        chain::running(pass, next)
    };
    if text(next, "/status/phase") == "Succeeded" {
        let message = "has been replaced by a newer ClusterServiceVersion that has successfully installed.";
        return pass.set("Deleting", "Replaced", message);
    }
    let both = [pass.name().to_owned(), text(next, "/metadata/name").to_owned()];
    pass.decision.csvs.extend(both);
}
