//! OperatorGroups, and the labels of the namespaces that they select.

use std::time::Duration;

use jiff::Timestamp;
use olm_classic::cluster::{Cluster, label, text};
use olm_classic::names;
use olm_classic::operator_group::labels::labelled;
use olm_classic::operator_group::pass::{PassError, pass};
use olm_platform::events::Notice;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::Value;

use super::context::Context;
use super::work::{Name, Work};
use crate::objects::write::Actor;

/// The pause until the newer version of an object is here.
const STALE: Duration = Duration::from_millis(200);

/// Makes a pass over an OperatorGroup; removes the roles of one that is gone.
pub async fn reconcile(context: &Context, name: &Name) -> Outcome {
    let cluster = context.snapshot();
    let found = cluster.get(names::OPERATOR_GROUP_KIND, &name.namespace, &name.name);
    let is_living = found.is_some_and(|found| text(found, "/metadata/deletionTimestamp").is_empty());
    let result = if is_living {
        write(context, name, &cluster).await
    } else {
        remove_roles(context, name, &cluster).await
    };
    match result {
        Ok(()) => Outcome::Done,
        Err(failure) => after("OperatorGroup", &name.to_string(), &failure),
    }
}

/// Outcome of a failure to write an object of OLM.
pub fn after(kind: &str, name: &str, failure: &RequestFailure) -> Outcome {
    match failure.kind {
        FailureKind::Conflict => Outcome::After(STALE),
        // The namespace is gone, and its content goes with it.
        FailureKind::MissingNamespace => Outcome::Done,
        _ => {
            tracing::warn!(name, error = failure.message, "cannot reconcile {kind}; retrying");
            Outcome::Failed
        }
    }
}

async fn write(context: &Context, name: &Name, cluster: &Cluster) -> Result<(), RequestFailure> {
    let decision = pass(&name.namespace, &name.name, cluster, Timestamp::now());
    for object in decision.written.iter().filter(|object| is_ours(object)) {
        context.writer().write(&Actor::Own, object).await?;
    }
    for namespace in decision.namespaces {
        context.queue.add(Work::Namespace(namespace));
    }
    for (namespace, csv) in decision.csvs {
        context
            .queue
            .add_patiently(Work::Csv(Name::new(&namespace, &csv)));
    }
    match decision.error {
        // The status says so, and the account wakes it.
        Some(PassError::Account(_)) | None => {}
        Some(error) => {
            tracing::warn!(%name, %error, "cannot reconcile OperatorGroup");
            if let Some(group) = cluster.get(names::OPERATOR_GROUP_KIND, &name.namespace, &name.name) {
                let notice = Notice {
                    is_fault: true,
                    reason: "OperatorGroupInvalid".to_owned(),
                    note: format!("{error}; correct spec.selector or spec.targetNamespaces"),
                };
                context.publish(group, vec![notice]);
            }
        }
    }
    Ok(())
}

/// Whether the controller of OperatorGroups writes an object. No client reads the label on its service account, and the
/// program writes no accounts. A new ClusterServiceVersion annotates itself in its own first write, which this one would
/// only conflict with.
fn is_ours(object: &Value) -> bool {
    match text(object, "/kind") {
        "ServiceAccount" => false,
        names::CSV_KIND => !text(object, "/status/phase").is_empty(),
        _ => true,
    }
}

async fn remove_roles(context: &Context, name: &Name, cluster: &Cluster) -> Result<(), RequestFailure> {
    let owner = [
        (names::OWNER_KIND_LABEL, names::OPERATOR_GROUP_KIND),
        (names::OWNER_LABEL, name.name.as_str()),
        (names::OWNER_NAMESPACE_LABEL, name.namespace.as_str()),
        (names::MANAGED_LABEL, "true"),
    ];
    for role in cluster.of_kind("ClusterRole") {
        if owner.iter().all(|(key, value)| label(role, key) == *value) {
            context.writer().delete(&Actor::Own, role).await?;
        }
    }
    Ok(())
}

/// Writes the labels of a namespace.
pub async fn label_namespace(context: &Context, name: &str) -> Outcome {
    let cluster = context.snapshot();
    let Some(namespace) = cluster.get("Namespace", "", name) else {
        return Outcome::Done;
    };
    if !text(namespace, "/metadata/deletionTimestamp").is_empty() {
        return Outcome::Done;
    }
    let Some(wanted) = labelled(namespace, &cluster) else {
        return Outcome::Done;
    };
    match context.writer().write(&Actor::Own, &wanted).await {
        Ok(_) => Outcome::Done,
        Err(failure) => after("Namespace", name, &failure),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn neither_accounts_nor_new_versions_are_written() {
        let version = |phase: &str| json!({"kind": names::CSV_KIND, "status": {"phase": phase}});
        assert!(!is_ours(&json!({"kind": "ServiceAccount"})));
        assert!(!is_ours(&json!({"kind": names::CSV_KIND})));
        assert!(!is_ours(&version("")) && is_ours(&version("Pending")));
        assert!(is_ours(&json!({"kind": "ClusterRole"})));
    }
}
