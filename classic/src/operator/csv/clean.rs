//! The deletion of a ClusterServiceVersion: what the garbage collector does not find is deleted before the finalizer
//! goes.
//!
//! That is done under the account of the namespace, and never holds the deletion up: where the account is gone or lacks
//! the rights, an event says what stays. A ClusterServiceVersion with the annotation `uninstall: orphan` leaves all of
//! it: the operator moves to OLM v1.

use olm_classic::cluster::{Cluster, items, label, text};
use olm_classic::csv::{ClusterServiceVersion, Metadata};
use olm_classic::install::{is_of, serving};
use olm_classic::names;
use olm_platform::events::Notice;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::work::Name;
use crate::objects::write::Actor;

/// Kinds at cluster scope that are found by their labels.
const KINDS: [&str; 5] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    names::API_SERVICE_KIND,
    "ClusterRoleBinding",
    "ClusterRole",
];
/// Kinds at cluster scope that bundles may hold and that are not followed.
const UNFOLLOWED: [(&str, &str); 6] = [
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("console.openshift.io/v1", "ConsoleCLIDownload"),
    ("console.openshift.io/v1", "ConsoleLink"),
    ("console.openshift.io/v1", "ConsolePlugin"),
    ("console.openshift.io/v1", "ConsoleQuickStart"),
    ("console.openshift.io/v1", "ConsoleYAMLSample"),
];
/// The longest value of a label.
const MAX_LABEL: usize = 63;
const SYSTEM: &str = "kube-system";

/// Deletes what belongs to a ClusterServiceVersion that is being deleted, then removes the finalizer.
///
/// # Errors
/// Something passing keeps it from being done.
pub async fn remove(
    context: &Context,
    object: &Value,
    csv: &ClusterServiceVersion,
) -> Result<Outcome, RequestFailure> {
    if !items(object, "/metadata/finalizers").any(|found| found == names::CLEANUP_FINALIZER) {
        return Ok(Outcome::Done);
    }
    let cluster = context.snapshot();
    let left = if is_orphaning(object) {
        release(context, &cluster, csv).await?
    } else {
        clean(context, &cluster, csv).await?
    };
    if !left.is_empty() {
        let note = format!("cannot delete or release its content: {}", left.join("; "));
        tracing::warn!(
            csv = csv.metadata.name,
            namespace = csv.metadata.namespace,
            "{note}"
        );
        let notice = Notice {
            is_fault: true,
            reason: "CleanupIncomplete".to_owned(),
            note,
        };
        context.publish(object, vec![notice]);
    }
    let mut wanted = object.clone();
    if let Some(list) = wanted
        .pointer_mut("/metadata/finalizers")
        .and_then(Value::as_array_mut)
    {
        list.retain(|found| found != names::CLEANUP_FINALIZER);
    }
    context.writer().write(&Actor::Own, &wanted).await?;
    Ok(Outcome::Done)
}

/// Removes the kind of the owner from the APIServices of a ClusterServiceVersion whose content stays: they would be
/// deleted as orphans. Returns those that still have it, and why.
async fn release(
    context: &Context,
    cluster: &Cluster,
    csv: &ClusterServiceVersion,
) -> Result<Vec<String>, RequestFailure> {
    let name = Name::new(&csv.metadata.namespace, &csv.metadata.name);
    let kept: Vec<&Value> = orphans(cluster, &name).collect();
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    let actors = match actors(context, cluster, &name.namespace) {
        Ok(actors) => actors,
        Err(error) => return Ok(vec![error]),
    };
    let mut left = Vec::new();
    for service in kept {
        left.extend(by_first(context, &actors, Step::Release(service)).await?);
    }
    Ok(left)
}

/// Deletes the APIServices of a ClusterServiceVersion that does not exist. They have no owner that the garbage
/// collector knows, and the next operator that brings the API could not adopt them.
///
/// # Errors
/// Something passing keeps it from being done.
pub async fn remove_orphans(
    context: &Context,
    cluster: &Cluster,
    name: &Name,
) -> Result<Outcome, RequestFailure> {
    let orphans: Vec<&Value> = orphans(cluster, name).collect();
    if orphans.is_empty() {
        return Ok(Outcome::Done);
    }
    let mut left = Vec::new();
    match actors(context, cluster, &name.namespace) {
        Ok(actors) => {
            for orphan in orphans {
                left.extend(by_first(context, &actors, Step::Delete(orphan)).await?);
            }
        }
        Err(error) => left.push(error),
    }
    if left.is_empty() {
        return Ok(Outcome::Done);
    }
    let left = left.join("; ");
    tracing::warn!(%name, "cannot delete APIServices of a ClusterServiceVersion that does not exist: {left}");
    Ok(Outcome::Refused)
}

/// The APIServices that name this ClusterServiceVersion as their owner.
fn orphans<'a>(cluster: &'a Cluster, name: &'a Name) -> impl Iterator<Item = &'a Value> {
    let owner = [
        (names::OWNER_KIND_LABEL, names::CSV_KIND),
        (names::OWNER_LABEL, name.name.as_str()),
        (names::OWNER_NAMESPACE_LABEL, name.namespace.as_str()),
    ];
    cluster.of_kind(names::API_SERVICE_KIND).filter(move |found| {
        let is_owned = owner
            .iter()
            .all(|(key, value)| !value.is_empty() && label(found, key) == *value);
        is_owned && text(found, "/metadata/deletionTimestamp").is_empty()
    })
}

/// Whether the content stays. The annotation counts only on a paused ClusterServiceVersion: the author of a bundle can
/// set annotations too.
fn is_orphaning(object: &Value) -> bool {
    let annotation = |key: &str| object.pointer("/metadata/annotations")?.get(key)?.as_str();
    annotation(names::PAUSED_ANNOTATION) == Some("true")
        && annotation(names::UNINSTALL_ANNOTATION) == Some("orphan")
}

/// Deletes the objects that its labels name. Returns those that could not be deleted, and why.
async fn clean(
    context: &Context,
    cluster: &Cluster,
    csv: &ClusterServiceVersion,
) -> Result<Vec<String>, RequestFailure> {
    let found = remaining(cluster, csv);
    let conversions = conversions(cluster, csv);
    let actors = match actors(context, cluster, &csv.metadata.namespace) {
        Ok(actors) => actors,
        Err(_) if found.is_empty() && conversions.is_empty() => return Ok(Vec::new()),
        Err(error) => return Ok(vec![error]),
    };
    let mut left = Vec::new();
    let unfollowed = unfollowed(context, &actors, csv).await?;
    let steps = found.into_iter().chain(&unfollowed).map(Step::Delete);
    for step in steps.chain(conversions.into_iter().map(Step::EndConversion)) {
        left.extend(by_first(context, &actors, step).await?);
    }
    Ok(left)
}

/// The objects with its labels of kinds that are not followed, as the first account sees them that may list them. An
/// account that may not has brought none.
async fn unfollowed(
    context: &Context,
    actors: &[Actor],
    csv: &ClusterServiceVersion,
) -> Result<Vec<Value>, RequestFailure> {
    let mut all = Vec::new();
    let Some(selector) = owner_selector(csv) else {
        return Ok(all);
    };
    for kind in UNFOLLOWED {
        for actor in actors {
            match context.writer().labelled(actor, kind, &selector).await {
                Ok(found) => {
                    all.extend(found);
                    break;
                }
                Err(failure) if failure.kind == FailureKind::Forbidden => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(all)
}

/// The selector of the objects of a ClusterServiceVersion; nothing where its name is too long for a label.
fn owner_selector(csv: &ClusterServiceVersion) -> Option<String> {
    let Metadata { name, namespace, .. } = &csv.metadata;
    (name.len() <= MAX_LABEL).then(|| {
        format!(
            "{}={name},{}={namespace},{}={}",
            names::OWNER_LABEL,
            names::OWNER_NAMESPACE_LABEL,
            names::OWNER_KIND_LABEL,
            names::CSV_KIND
        )
    })
}

/// One thing that is cleaned.
#[derive(Clone, Copy)]
enum Step<'a> {
    /// This object is deleted.
    Delete(&'a Value),
    /// This CustomResourceDefinition loses its conversion.
    EndConversion(&'a Value),
    /// This object loses the label with the kind of its owner.
    Release(&'a Value),
}

/// The account of the namespace, then the one for all namespaces: the first may have gone with the namespace.
fn actors(context: &Context, cluster: &Cluster, namespace: &str) -> Result<Vec<Actor>, String> {
    let own = context.account(cluster, namespace)?;
    let default = context.base.account.clone().map(Actor::Account);
    let other = default.filter(|default| *default != own);
    Ok([Some(own), other].into_iter().flatten().collect())
}

/// Does it under the first account that may; why none may.
async fn by_first(
    context: &Context,
    actors: &[Actor],
    step: Step<'_>,
) -> Result<Option<String>, RequestFailure> {
    let (Step::Delete(object) | Step::EndConversion(object) | Step::Release(object)) = step;
    let mut refused = None;
    for actor in actors {
        let done = match step {
            Step::Delete(object) => context.writer().delete(actor, object).await,
            Step::EndConversion(definition) => {
                let (writer, patch) = (context.writer(), without_conversion(definition));
                let merged = writer.merge_as(names::CONVERSION_MANAGER, actor, definition, &patch);
                merged.await.map(drop)
            }
            Step::Release(object) => {
                let patch = json!({"metadata": {"labels": {names::OWNER_KIND_LABEL: null}}});
                context.writer().merge(actor, object, &patch).await.map(drop)
            }
        };
        match done {
            Ok(()) => return Ok(None),
            Err(failure) => match failure.kind {
                FailureKind::MissingNamespace => return Ok(None),
                FailureKind::Forbidden | FailureKind::Invalid => refused = Some(failure.message),
                _ => return Err(failure),
            },
        }
    }
    Ok(refused.map(|message| {
        format!(
            "{} {}: {message} (run `{}`)",
            text(object, "/kind"),
            text(object, "/metadata/name"),
            command(step)
        )
    }))
}

/// The command with which a user does it.
fn command(step: Step<'_>) -> String {
    let (Step::Delete(object) | Step::EndConversion(object) | Step::Release(object)) = step;
    let place = match text(object, "/metadata/namespace") {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    let target = format!(
        "{} {}{place}",
        text(object, "/kind").to_lowercase(),
        text(object, "/metadata/name")
    );
    match step {
        Step::Delete(_) => format!("kubectl delete {target}"),
        Step::EndConversion(_) => format!(
            r#"kubectl patch {target} --type=merge -p '{{"spec":{{"conversion":{{"strategy":"None","webhook":null}}}}}}'"#
        ),
        Step::Release(_) => format!("kubectl label {target} {}-", names::OWNER_KIND_LABEL),
    }
}

/// The objects that the garbage collector leaves.
fn remaining<'a>(cluster: &'a Cluster, csv: &ClusterServiceVersion) -> Vec<&'a Value> {
    let place = csv.metadata.namespace.as_str();
    let labelled = KINDS
        .iter()
        .flat_map(|kind| cluster.of_kind(kind))
        .filter(|found| is_of(found, csv) && text(found, "/metadata/deletionTimestamp").is_empty());
    // Its name has no namespace in it, and several versions of an operator share it.
    let readers = serving::called(csv).into_iter().filter_map(|deployment| {
        let name = format!("{}-auth-reader", serving::service_name(deployment));
        let found = cluster.get("RoleBinding", SYSTEM, &name)?;
        let is_of_namespace = items(found, "/subjects").any(|subject| text(subject, "/namespace") == place);
        let is_managed = label(found, names::MANAGED_LABEL) == "true";
        (is_of_namespace && is_managed && !is_used(cluster, csv, deployment)).then_some(found)
    });
    labelled.chain(readers).collect()
}

/// Whether another ClusterServiceVersion of the namespace brings a Deployment of this name that is called.
fn is_used(cluster: &Cluster, csv: &ClusterServiceVersion, deployment: &str) -> bool {
    living(cluster, csv).any(|other| serving::called(&other).contains(&deployment))
}

fn living<'a>(
    cluster: &'a Cluster,
    csv: &'a ClusterServiceVersion,
) -> impl Iterator<Item = ClusterServiceVersion> + 'a {
    cluster
        .in_namespace(names::CSV_KIND, &csv.metadata.namespace)
        .filter_map(|other| ClusterServiceVersion::read(other).ok())
        .filter(|other| {
            other.metadata.name != csv.metadata.name && other.metadata.deletion_timestamp.is_none()
        })
}

/// The CustomResourceDefinitions that are converted by its webhooks, unless another one replaces it.
fn conversions<'a>(cluster: &'a Cluster, csv: &ClusterServiceVersion) -> Vec<&'a Value> {
    if living(cluster, csv).any(|other| other.spec.replaces == csv.metadata.name) {
        return Vec::new();
    }
    let webhooks = csv.spec.webhook_definitions.iter();
    webhooks
        .filter(|webhook| text(webhook, "/type") == "ConversionWebhook")
        .flat_map(|webhook| items(webhook, "/conversionCRDs"))
        .filter_map(|name| cluster.get(names::CRD_KIND, "", name.as_str()?))
        .filter(|found| {
            text(found, "/spec/conversion/webhook/clientConfig/service/namespace") == csv.metadata.namespace
        })
        .collect()
}

/// A merge patch that ends the conversion of a CustomResourceDefinition. It requires the object that was read. An apply
/// would leave the fields that the manager of the bundle's content owns too, and the API server refuses a webhook
/// beside the strategy `None`.
fn without_conversion(definition: &Value) -> Value {
    json!({
        "metadata": {
            "uid": definition.pointer("/metadata/uid"),
            "resourceVersion": definition.pointer("/metadata/resourceVersion"),
        },
        "spec": {"conversion": {"strategy": "None", "webhook": null}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv() -> ClusterServiceVersion {
        let csv = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {
            "install": {"strategy": "deployment", "spec": {"deployments": [{"name": "d", "spec": {}}]}},
            "webhookdefinitions": [
                {"type": "ConversionWebhook", "deploymentName": "d", "conversionCRDs": ["x"]},
            ],
        }});
        ClusterServiceVersion::read(&csv).unwrap()
    }

    fn binding(namespace: &str) -> Value {
        json!({
            "kind": "RoleBinding",
            "metadata": {"name": "d-service-auth-reader", "namespace": SYSTEM, "labels": {"olm.managed": "true"}},
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": namespace}],
        })
    }

    #[test]
    fn each_step_has_a_command_for_a_user() {
        let binding = binding("n");
        let role = json!({"kind": "ClusterRole", "metadata": {"name": "r"}});
        let definition = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "as.g"}});
        for (step, expected) in [
            (Step::Delete(&role), "kubectl delete clusterrole r"),
            (
                Step::Delete(&binding),
                "kubectl delete rolebinding d-service-auth-reader -n kube-system",
            ),
            (
                Step::Release(&role),
                "kubectl label clusterrole r olm.owner.kind-",
            ),
            (
                Step::EndConversion(&definition),
                r#"kubectl patch customresourcedefinition as.g --type=merge -p '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'"#,
            ),
        ] {
            assert_eq!(command(step), expected);
        }
    }

    #[test]
    fn content_stays_where_the_annotation_says_so() {
        let annotated = |paused: &str, value: &str| {
            let annotations = json!({names::PAUSED_ANNOTATION: paused, names::UNINSTALL_ANNOTATION: value});
            json!({"metadata": {"annotations": annotations}})
        };
        assert!(is_orphaning(&annotated("true", "orphan")));
        for object in [
            annotated("false", "orphan"),
            annotated("true", "delete"),
            json!({"metadata": {}}),
        ] {
            assert!(!is_orphaning(&object), "{object}");
        }
    }

    #[test]
    fn orphans_are_the_api_services_that_name_a_version_as_their_owner() {
        let service = |name: &str, owner: &str, kind: &str| {
            json!({"kind": names::API_SERVICE_KIND, "metadata": {"name": name, "labels": {
                "olm.owner": owner, "olm.owner.namespace": "n", "olm.owner.kind": kind,
            }}})
        };
        let cluster: Cluster = [
            service("v1.own", "c", names::CSV_KIND),
            service("v1.other", "d", names::CSV_KIND),
            service("v1.group", "c", names::OPERATOR_GROUP_KIND),
            json!({"kind": names::API_SERVICE_KIND, "metadata": {"name": "v1.local"}}),
        ]
        .into_iter()
        .collect();
        let found = |name: Name| -> Vec<String> {
            let found = orphans(&cluster, &name).map(|found| text(found, "/metadata/name").to_owned());
            found.collect()
        };
        assert_eq!(found(Name::new("n", "c")), ["v1.own"]);
        assert!(found(Name::new("n", "")).is_empty());
    }

    #[test]
    fn a_binding_that_others_use_stays() {
        let other = json!({
            "kind": names::CSV_KIND, "metadata": {"name": "e", "namespace": "n"},
            "spec": {
                "install": {"strategy": "deployment", "spec": {"deployments": [{"name": "d", "spec": {}}]}},
                "webhookdefinitions": [{"deploymentName": "d"}],
            },
        });
        let count = |objects: Vec<Value>| remaining(&objects.into_iter().collect(), &csv()).len();
        assert_eq!(count(vec![binding("n")]), 1);
        assert_eq!(count(vec![binding("m")]), 0);
        assert_eq!(count(vec![binding("n"), other]), 0);
    }

    #[test]
    fn a_conversion_ends_with_the_last_version() {
        let definition = json!({
            "kind": names::CRD_KIND, "metadata": {"name": "x", "uid": "u", "resourceVersion": "7"},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"namespace": "n"}}}}},
        });
        let successor = json!({
            "kind": names::CSV_KIND, "metadata": {"name": "e", "namespace": "n"}, "spec": {"replaces": "c"},
        });
        let of = |objects: Vec<Value>| -> Vec<Value> {
            let cluster = objects.into_iter().collect();
            let found = conversions(&cluster, &csv());
            found.into_iter().map(without_conversion).collect()
        };
        assert_eq!(
            of(vec![definition.clone()]),
            [json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {"conversion": {"strategy": "None", "webhook": null}},
            })]
        );
        assert!(of(vec![definition, successor]).is_empty());
    }
}
