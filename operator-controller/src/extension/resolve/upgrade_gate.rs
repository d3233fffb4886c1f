//! The upgrade gate: an upgrade waits until the installed operator allows it.

use kube::Error;
use olm_api::ClusterExtension;
use olm_api::conditions::reason;
use olm_api::names::{annotation, user};
use olm_api::text::escape;
use olm_api::updates::held_back;
use olm_platform::write::unless;
use serde_json::Value;

use super::installed_target;
use super::target::{Resolution, Target};
use crate::conditions::gate::{UpgradeGate, upgrade_gate};
use crate::conditions::records::conditions;
use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError, StageFailure};
use crate::extension::revisions::{BundleIdentity, Revisions};

/// The reason why an upgrade waits.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeGateError {
    /// The operator blocks it.
    #[error(
        "the operator blocks the upgrade from {from} to {to}: OperatorCondition {namespace}/{from} has \
         Upgradeable=False{reason}{message}. The upgrade continues when the operator allows it. To override, set the \
         annotation {override_annotation}: \"true\"",
        override_annotation = user::UPGRADEABLE_OVERRIDE
    )]
    Held {
        /// The installed bundle.
        from: String,
        /// The bundle that would replace it.
        to: String,
        /// The namespace of the operator.
        namespace: String,
        /// The operator's reason in parentheses.
        reason: String,
        /// The operator's message after a colon.
        message: String,
    },
    /// The OperatorCondition cannot be read.
    #[error("cannot read OperatorCondition {namespace}/{name}, which could block the upgrade")]
    Read {
        namespace: String,
        name: String,
        source: Error,
    },
}

impl StageError for UpgradeGateError {
    fn severity(&self) -> Severity {
        match self {
            Self::Held { .. } => Severity::Waiting,
            Self::Read { .. } => Severity::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        reason::RETRYING
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Held { .. } => held_back::OPERATOR,
            Self::Read { .. } => held_back::OTHER,
        }
    }
}

/// If another bundle would replace the installed one and its operator blocks that, the present bundle stays the target,
/// and the status reports the reason.
pub(crate) async fn enforce(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    mut resolution: Resolution,
) -> Resolution {
    let Ok(target) = &resolution.target else {
        return resolution;
    };
    let Some(installed) = replaced(extension, revisions, target) else {
        return resolution;
    };
    if let Err(error) = ask(context, extension, &installed, target).await {
        // An upgrade that has begun was allowed and is not reverted.
        let newest = revisions.newest_active();
        let catalog = newest.and_then(|set| set.annotation(annotation::CATALOG));
        let catalog = catalog.unwrap_or_default().to_owned();
        let bundle = newest.map_or(installed, BundleIdentity::of);
        resolution.target = Ok(installed_target(revisions, bundle, catalog));
        resolution.problem = Some(StageFailure::from(error));
    }
    resolution
}

/// The installed bundle that the target would replace; `None` if it replaces none, is already rolling out, or ignores
/// the gate.
fn replaced(extension: &ClusterExtension, revisions: &Revisions, target: &Target) -> Option<BundleIdentity> {
    let of = |set| BundleIdentity::of(set);
    let installed = revisions.installed().map(of)?;
    let newest = revisions.newest_active().map(of)?;
    let is_there = [&installed, &newest]
        .iter()
        .any(|bundle| bundle.metadata == target.bundle.metadata);
    let wanted_anyway = extension.annotation(user::UPGRADEABLE_OVERRIDE) == Some("true");
    (!is_there && !wanted_anyway).then_some(installed)
}

async fn ask(
    context: &Context,
    extension: &ClusterExtension,
    installed: &BundleIdentity,
    target: &Target,
) -> Result<(), UpgradeGateError> {
    let (namespace, name) = (&extension.spec.namespace, &installed.metadata.name);
    let found = conditions(&context.client, namespace).get_opt(name).await;
    // Without the right to read, OLM never created one.
    let found = unless(&[403], found).map_err(|source| UpgradeGateError::Read {
        namespace: namespace.clone(),
        name: name.clone(),
        source,
    })?;
    let gate = found
        .flatten()
        .map(|object| upgrade_gate(&serde_json::to_value(&object).unwrap_or(Value::Null)));
    match gate {
        Some(UpgradeGate::Held { reason, message }) => {
            let shown = |text: String, before: &str, after: &str| match text.as_str() {
                "" => String::new(),
                text => format!("{before}{}{after}", escape(text)),
            };
            Err(UpgradeGateError::Held {
                from: escape(name).into_owned(),
                to: escape(&target.bundle.metadata.name).into_owned(),
                namespace: namespace.clone(),
                reason: shown(reason, " (", ")"),
                message: shown(message.trim_end_matches('.').to_owned(), ": ", ""),
            })
        }
        Some(UpgradeGate::Upgradeable) | None => Ok(()),
    }
}
