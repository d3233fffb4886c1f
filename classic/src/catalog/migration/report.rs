//! Reports a move: a condition of the Subscription or an annotation of the ClusterExtension, and events.

use jiff::Timestamp;
use olm_api::ClusterExtension;
use olm_api::names::{CLUSTER_EXTENSION, migration as annotations};
use olm_classic::cluster::{annotation, items, text};
use olm_classic::names;
use olm_classic::subscription::{MIGRATED, MigrationState, migration};
use olm_migrate::check::{Finding, Severity};
use olm_migrate::hint::Hint;
use olm_platform::events::Notice;
use olm_rollout::failure::RequestFailure;
use serde_json::{Value, json};

use super::Mover;
use crate::base::reference;
use crate::catalog::write::update_status;
use crate::objects::write::Actor;

/// Why a ClusterExtension does not return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackState {
    /// A finding blocks it, or a step has failed and is tried again.
    Blocked,
    /// The request was withdrawn after the return had begun.
    Stopped,
    /// The annotation has a value that neither requests the return nor declines it.
    Invalid,
}

impl BackState {
    /// The reason of the event.
    fn reason(self) -> &'static str {
        match self {
            Self::Blocked => "MigrationBackBlocked",
            Self::Stopped => "MigrationBackStopped",
            Self::Invalid => "MigrationBackInvalid",
        }
    }
}

/// The most characters of a message.
const MAX_MESSAGE: usize = 16_000;

/// What blocks a move, and what to do.
pub(super) fn blockers(findings: &[Finding]) -> String {
    let due = findings
        .iter()
        .filter(|finding| finding.severity != Severity::Acknowledged);
    let texts: Vec<String> = due
        .map(|finding| format!("{}: {}: {}", finding.check, finding.message, finding.fix))
        .collect();
    bounded(&texts.join("; "))
}

/// An error with its causes and what to do about it.
pub(super) fn failure(error: &anyhow::Error) -> String {
    let hint = error.downcast_ref::<Hint>().map(|Hint(hint)| hint.as_str());
    let mut causes = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            causes.push(status.message.clone());
            break;
        }
        causes.push(cause.to_string());
    }
    causes.retain(|cause| Some(cause.as_str()) != hint);
    causes.dedup();
    let text = causes.join(": ");
    bounded(&hint.map_or_else(|| text.clone(), |hint| format!("{text}: {hint}")))
}

/// The reason of the condition about the move.
fn condition_reason(subscription: &Value) -> Option<&str> {
    let mut conditions = items(subscription, "/status/conditions");
    let found = conditions.find(|condition| text(condition, "/type") == MIGRATED)?;
    Some(text(found, "/reason"))
}

fn bounded(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}

impl Mover {
    /// Sets the condition of a Subscription, `NAMESPACE/NAME`, and records an event if it changes.
    pub(super) async fn report(
        &self,
        key: &str,
        state: MigrationState,
        message: &str,
    ) -> Result<(), RequestFailure> {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let cluster = self.base.store.snapshot();
        let Some(subscription) = cluster.get(names::SUBSCRIPTION_KIND, namespace, name) else {
            let mut extensions = cluster.of_kind(CLUSTER_EXTENSION);
            let made = extensions.find(|extension| annotation(extension, annotations::SUBSCRIPTION) == key);
            if let Some(extension) = made.filter(|_| state == MigrationState::Failed) {
                self.event(extension, true, &format!("Migration{}", state.reason()), message);
            }
            return Ok(());
        };
        let change = |live: &Value| {
            let has_failed = condition_reason(live) == Some(MigrationState::Failed.reason());
            if has_failed && state == MigrationState::Moving {
                // The condition stays `Failed` until the move ends; otherwise each attempt would write twice.
                return None;
            }
            migration(live, state, message, Timestamp::now())
        };
        let Some(written) = update_status(&self.base, subscription, change).await? else {
            return Ok(());
        };
        let is_fault = !matches!(state, MigrationState::Moving | MigrationState::Moved);
        tracing::info!(
            namespace,
            name,
            state = state.reason(),
            message,
            "the move of a Subscription"
        );
        self.event(
            &written,
            is_fault,
            &format!("Migration{}", state.reason()),
            message,
        );
        Ok(())
    }

    /// Marks a ClusterExtension whose move is under way, so that it continues without its Subscription.
    pub(super) async fn mark(&self, extension: &ClusterExtension) -> Result<(), RequestFailure> {
        if extension.annotation(annotations::MIGRATE) == Some("true") {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "uid": extension.metadata.uid, "annotations": {annotations::MIGRATE: "true"},
        }});
        let object = about(extension);
        let marked = self.base.writer.merge(&Actor::Own, &object, &patch).await;
        marked.map(drop)
    }

    /// Records an event.
    pub(super) fn event(&self, object: &Value, is_fault: bool, reason: &str, message: &str) {
        let notice = Notice {
            is_fault,
            reason: reason.to_owned(),
            note: message.to_owned(),
        };
        self.base.events.publish(reference(object), vec![notice]);
    }

    /// Sets why a ClusterExtension does not return, and records an event if that changes.
    pub(super) async fn report_return(
        &self,
        extension: &ClusterExtension,
        state: BackState,
        message: &str,
    ) -> Result<(), RequestFailure> {
        if extension.annotation(annotations::MIGRATE_BACK_STATUS) == Some(message) {
            return Ok(());
        }
        let object = about(extension);
        let patch = json!({"metadata": {
            "uid": extension.metadata.uid, "annotations": {annotations::MIGRATE_BACK_STATUS: message},
        }});
        self.base.writer.merge(&Actor::Own, &object, &patch).await?;
        tracing::info!(
            name = extension.name(),
            message,
            "the return of a ClusterExtension"
        );
        self.event(&object, true, state.reason(), message);
        Ok(())
    }
}

/// What names a ClusterExtension.
pub(super) fn about(extension: &ClusterExtension) -> Value {
    json!({
        "apiVersion": olm_api::names::API_VERSION, "kind": CLUSTER_EXTENSION,
        "metadata": {"name": extension.name(), "uid": extension.metadata.uid},
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_ends_with_what_to_do() {
        let error = anyhow!("forbidden").context("cannot create it");
        assert_eq!(failure(&error), "cannot create it: forbidden");
        let hinted = error.context(Hint("ask".to_owned()));
        assert_eq!(failure(&hinted), "cannot create it: forbidden: ask");
    }

    #[test]
    fn blockers_name_check_fault_and_remedy() {
        let finding = |check, severity| Finding {
            check,
            severity,
            message: "it fails".to_owned(),
            fix: "fix it".to_owned(),
        };
        let findings = [
            finding("state", Severity::Blocks),
            finding("webhooks", Severity::Acknowledged),
            finding("channel", Severity::Acknowledge),
        ];
        assert_eq!(
            blockers(&findings),
            "state: it fails: fix it; channel: it fails: fix it"
        );
    }
}
