//! Carries out the result of a pass: own objects with own rights, content under the account of the namespace.

use jiff::Timestamp;
use olm_classic::cluster::{Cluster, text};
use olm_classic::csv::phases::CsvDecision;
use olm_classic::csv::{ClusterServiceVersion, set_phase};
use olm_classic::install::ownership;
use olm_classic::{hash, install, names};
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::{Value, json};

use super::super::context::{Context, written_time};
use super::NO_RETRY;
use crate::objects::kinds;
use crate::objects::write::Actor;

/// Result of the writes of a pass.
pub(super) struct AppliedDecision {
    /// The ClusterServiceVersion as it is in the cluster.
    pub(super) stored: Value,
    /// The same with the status of the pass.
    pub(super) current: Value,
    /// Whether anything was written that the next pass reads.
    pub(super) has_written: bool,
    /// Whether content could not be written. The status says why.
    pub(super) is_refused: bool,
    /// Whether it was deleted.
    pub(super) is_gone: bool,
}

/// Error that kept content from being written.
enum ContentWriteError {
    /// Nothing but other rights helps.
    Forbidden(String),
    /// It may help to try again.
    Other(String),
    /// A retry suffices, and nothing is reported.
    Transient(RequestFailure),
}

impl From<RequestFailure> for ContentWriteError {
    fn from(failure: RequestFailure) -> Self {
        match failure.kind {
            FailureKind::Forbidden => Self::Forbidden(failure.message),
            FailureKind::Conflict => Self::Transient(failure),
            // The API server did not answer, or is too busy to.
            FailureKind::Transient if matches!(failure.code, 0 | 429 | 503 | 504) => Self::Transient(failure),
            _ => Self::Other(failure.message),
        }
    }
}

/// Carries out the result of a pass over `current`.
///
/// # Errors
/// Something could not be written that is no content; or content could not be, for a reason that a retry clears.
pub(super) async fn act(
    context: &Context,
    cluster: &Cluster,
    csv: &ClusterServiceVersion,
    stored: &Value,
    current: &Value,
    decision: CsvDecision,
) -> Result<AppliedDecision, RequestFailure> {
    let mut acted = AppliedDecision {
        stored: stored.clone(),
        current: decision.csv,
        has_written: false,
        is_refused: false,
        is_gone: false,
    };
    if marks(&acted.current) != marks(stored) {
        let wanted = with_status_of(&acted.current, stored);
        acted.stored = context.writer().write(&Actor::Own, &wanted).await?;
        acted.current = with_status_of(&acted.stored, &acted.current);
        acted.has_written = true;
    }
    let (records, brought): (Vec<Value>, Vec<Value>) = decision.written.into_iter().partition(is_own);
    for object in records {
        context.writer().write(&Actor::Own, &object).await?;
        acted.has_written = true;
    }
    let (itself, withdrawn): (Vec<_>, Vec<_>) = decision
        .deleted
        .into_iter()
        .partition(|(kind, ..)| kind == names::CSV_KIND);
    let written = write_content(context, cluster, csv, brought, &withdrawn).await;
    match written {
        Ok(()) => {}
        Err(ContentWriteError::Transient(failure)) => return Err(failure),
        Err(error) => {
            let (reason, message) = match error {
                ContentWriteError::Forbidden(message) => (NO_RETRY, message),
                ContentWriteError::Other(message) => ("InstallComponentFailed", message),
                ContentWriteError::Transient(failure) => return Err(failure),
            };
            let message = format!("install strategy failed: {message}");
            let mut failed = with_status_of(&acted.stored, current);
            set_phase(
                &mut failed,
                "Failed",
                reason,
                &message,
                &written_time(Timestamp::now()),
            );
            acted.current = failed;
            acted.is_refused = true;
        }
    }
    for (kind, namespace, name) in itself {
        let found = context.snapshot().get(&kind, &namespace, &name).cloned();
        if let Some(found) = found {
            context.writer().delete(&Actor::Own, &found).await?;
            super::settle::publish_phases(context, stored, &acted.current);
        }
        acted.is_gone = true;
    }
    Ok(acted)
}

/// Whether an object is a record of OLM, which the program itself writes.
fn is_own(object: &Value) -> bool {
    matches!(text(object, "/kind"), names::OPERATOR_GROUP_KIND | "ClusterRole")
}

async fn write_content(
    context: &Context,
    cluster: &Cluster,
    csv: &ClusterServiceVersion,
    written: Vec<Value>,
    deleted: &[(String, String, String)],
) -> Result<(), ContentWriteError> {
    let deleted: Vec<&Value> = deleted
        .iter()
        .filter_map(|(kind, namespace, name)| cluster.get(kind, namespace, name))
        // One of the same name may have another owner.
        .filter(|found| install::is_of(found, csv))
        .collect();
    if written.is_empty() && deleted.is_empty() {
        return Ok(());
    }
    let actor = context.account(cluster, &csv.metadata.namespace);
    let actor = actor.map_err(ContentWriteError::Other)?;
    let writer = context.writer();
    let written: Vec<Value> = written
        .into_iter()
        .map(|object| with_stable_name(object, csv))
        .collect();
    for object in &written {
        if let Some(found) = live(context, cluster, &actor, object).await?
            && let Some(refusal) = ownership::refusal(&found, object, csv, cluster)
        {
            return Err(ContentWriteError::Other(refusal));
        }
    }
    for object in &written {
        if text(object, "/kind") == names::CRD_KIND {
            writer
                .apply_as(names::CONVERSION_MANAGER, &actor, &conversion(object))
                .await?;
        } else {
            writer.apply(&actor, object).await?;
        }
    }
    for object in deleted {
        writer.delete(&actor, object).await?;
    }
    Ok(())
}

/// The object in the cluster that a write would change. The API server is asked where only objects of OLM are followed.
async fn live(
    context: &Context,
    cluster: &Cluster,
    actor: &Actor,
    wanted: &Value,
) -> Result<Option<Value>, RequestFailure> {
    let (kind, namespace, name) = (
        text(wanted, "/kind"),
        text(wanted, "/metadata/namespace"),
        text(wanted, "/metadata/name"),
    );
    if let Some(found) = cluster.get(kind, namespace, name) {
        return Ok(Some(found.clone()));
    }
    if kinds::find(kind).is_some_and(|kind| kind.selector.is_empty()) {
        return Ok(None);
    }
    let api_version = text(wanted, "/apiVersion");
    context
        .writer()
        .read(actor, (api_version, kind), namespace, name)
        .await
}

/// An object whose name the API server would choose, with a name that follows from its owner: written twice it is one.
fn with_stable_name(mut object: Value, csv: &ClusterServiceVersion) -> Value {
    let generated = text(&object, "/metadata/generateName").to_owned();
    if generated.is_empty() || !text(&object, "/metadata/name").is_empty() {
        return object;
    }
    let owner = format!("{}/{}", csv.metadata.namespace, csv.metadata.name);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("generateName");
        let name = format!("{generated}{}", hash::fnv(&owner));
        metadata.insert("name".to_owned(), name.into());
    }
    object
}

/// The conversion of a CustomResourceDefinition alone: the rest of it is not ours.
fn conversion(definition: &Value) -> Value {
    json!({
        "apiVersion": definition.get("apiVersion"), "kind": names::CRD_KIND,
        "metadata": {"name": text(definition, "/metadata/name")},
        "spec": {"conversion": definition.pointer("/spec/conversion")},
    })
}

/// Metadata that passes change.
fn marks(csv: &Value) -> [Option<&Value>; 3] {
    [
        csv.pointer("/metadata/annotations"),
        csv.pointer("/metadata/labels"),
        csv.pointer("/metadata/finalizers"),
    ]
}

fn with_status_of(object: &Value, other: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        match other.get("status") {
            Some(status) => fields.insert("status".to_owned(), status.clone()),
            None => fields.remove("status"),
        };
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_follows_from_the_owner() {
        let csv = |name: &str| {
            let csv = json!({"metadata": {"name": name, "namespace": "n"}});
            ClusterServiceVersion::read(&csv).unwrap()
        };
        let object = json!({"metadata": {"generateName": "w-"}});
        let first = with_stable_name(object.clone(), &csv("a"));
        assert_eq!(first, with_stable_name(object.clone(), &csv("a")));
        assert_ne!(first, with_stable_name(object, &csv("b")));
        assert!(first["metadata"].get("generateName").is_none());
        let kept = json!({"metadata": {"generateName": "w-", "name": "w-x"}});
        assert_eq!(with_stable_name(kept.clone(), &csv("a")), kept);
    }

    #[test]
    fn only_the_conversion_of_a_definition_is_written() {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "metadata": {"name": "d", "uid": "u"},
            "spec": {"versions": [], "conversion": {"strategy": "None"}},
        });
        let written = conversion(&definition);
        assert_eq!(written["metadata"], json!({"name": "d"}));
        assert_eq!(written["spec"], json!({"conversion": {"strategy": "None"}}));
    }

    #[test]
    fn missing_rights_are_distinguished_from_transient_errors() {
        let error_of = |kind, code| {
            let failure = RequestFailure {
                code,
                ..RequestFailure::new(kind, "m".to_owned())
            };
            match ContentWriteError::from(failure) {
                ContentWriteError::Forbidden(_) => "forbidden",
                ContentWriteError::Other(_) => "other",
                ContentWriteError::Transient(_) => "transient",
            }
        };
        assert_eq!(error_of(FailureKind::Forbidden, 403), "forbidden");
        assert_eq!(error_of(FailureKind::Invalid, 422), "other");
        assert_eq!(error_of(FailureKind::Transient, 500), "other");
        assert_eq!(error_of(FailureKind::Transient, 0), "transient");
        assert_eq!(error_of(FailureKind::Conflict, 409), "transient");
    }
}
