//! The move itself. Every step requires the object that it has read, and can be repeated.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use olm_api::cluster_extension::controlling_extension;
use olm_api::names::{annotation, field_manager, label, migration, operator_condition, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_classic::names::CLEANUP_FINALIZER;
use olm_rollout::engine::desired::body;
use olm_rollout::engine::request::Write;
use olm_rollout::outline::Owner;
use olm_rollout::ownership::{Guard, fields_of};
use serde_json::{Value, json};

use crate::check::Finding;
use crate::context::MoveContext;
use crate::facts::{Case, annotation as annotation_of, list, name, text};
use crate::hint::Hint;
use crate::objects::backup::{Record, keep};
use crate::objects::content;
use crate::objects::inventory::{Inventory, api, api_of, get, inventory};
use crate::objects::record::{content_of, is_version, release, revision};

/// The number of times that objects are taken over again when OLM classic takes them back.
pub const TRIES: usize = 5;
/// The number of seconds for the end of a ClusterServiceVersion; it is polled once a second.
const ATTEMPTS: usize = 60;
/// The number of polls after which no controller seems to run that removes [`CLEANUP_FINALIZER`].
const PATIENCE: usize = 5;

/// Moves a Subscription without blockers, up to the removal of the remaining objects of OLM classic.
pub async fn begin(
    context: &MoveContext<'_>,
    case: Case<'_>,
    wanted: &ClusterExtension,
) -> anyhow::Result<(ClusterExtension, ClusterObjectSet)> {
    let system_namespace = context.system_namespace;
    let Inventory { objects, findings } = gather(context, case, wanted).await?;
    // Objects that cannot be taken over are found before any write.
    if let Some(Finding { message, fix, .. }) = findings.into_iter().next() {
        return Err(anyhow!(message).context(Hint(fix)));
    }
    let record = Record::of(case, &objects)?;
    let extension = match case.successor() {
        Some(extension) => extension.clone(),
        None => create_extension(context, wanted, &record).await?,
    };
    keep(context, &record, &extension).await?;
    freeze(context, case).await?;
    let (set, secrets) = revision(case, &extension, &objects, system_namespace)?;
    content::store(context, &set, &secrets).await?;
    let sets: Api<ClusterObjectSet> = Api::all(context.own.clone());
    let created = sets.create(&context.creating(), &set).await;
    let created = created.with_context(|| format!("cannot create ClusterObjectSet {:?}", set.name()))?;
    (context.on_step)(&format!(
        "clusterobjectset/{} created with {} objects",
        created.name(),
        objects.len()
    ));
    Ok((extension, created))
}

/// The findings of a move that has not begun which only the objects of the operator show: for these [`begin`] refuses
/// it. Only reads.
///
/// # Errors
/// An object cannot be read.
pub async fn findings(
    context: &MoveContext<'_>,
    case: Case<'_>,
    wanted: &ClusterExtension,
) -> anyhow::Result<Vec<Finding>> {
    if let Some(extension) = case.successor()
        && begun(&context.own, extension).await?.is_some()
    {
        return Ok(Vec::new());
    }
    Ok(gather(context, case, wanted).await?.findings)
}

/// The objects of an operator whose move has not begun, and what keeps it from that. Only reads.
async fn gather(
    context: &MoveContext<'_>,
    case: Case<'_>,
    wanted: &ClusterExtension,
) -> anyhow::Result<Inventory> {
    let mut found = inventory(context, case).await?;
    if let Err(error) = revision(case, wanted, &found.objects, context.system_namespace) {
        found.block(
            format!("{error:#}"),
            "only objects that OLM classic has written and nothing else controls can move",
        );
    }
    let name = revision_name(wanted);
    if revision_called(&context.own, &name).await?.is_some() {
        found.block(
            format!("cannot create ClusterObjectSet {name:?}: one with this name exists, which is not of this move"),
            &format!(
                "list its objects with `kubectl get clusterobjectset {name} -o yaml`; delete it if nothing needs it"
            ),
        );
    }
    Ok(found)
}

/// The name of the revision of a move.
fn revision_name(extension: &ClusterExtension) -> String {
    format!("{}-1", extension.name())
}

async fn revision_called(client: &Client, name: &str) -> anyhow::Result<Option<ClusterObjectSet>> {
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let found = sets.get_opt(name).await;
    found.with_context(|| format!("cannot read ClusterObjectSet {name:?}"))
}

async fn create_extension(
    context: &MoveContext<'_>,
    wanted: &ClusterExtension,
    record: &Record,
) -> anyhow::Result<ClusterExtension> {
    let mut extension = wanted.clone();
    let annotations = extension.metadata.annotations.get_or_insert_default();
    annotations.insert(user::PAUSED.to_owned(), "true".to_owned());
    annotations.insert(migration::RECORD_DIGEST.to_owned(), record.digest()?);
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let created = extensions.create(&context.creating(), &extension).await;
    let created =
        created.with_context(|| format!("cannot create ClusterExtension {:?}", extension.name()))?;
    (context.on_step)(&format!("clusterextension/{} created, paused", created.name()));
    Ok(created)
}

/// Prevents upgrades by OLM classic meanwhile.
async fn freeze(context: &MoveContext<'_>, case: Case<'_>) -> anyhow::Result<()> {
    let subscription = case.subscription;
    let subscriptions = classic_api(&context.own, "Subscription", case.namespace());
    let patch = json!({
        "metadata": {
            "uid": subscription.pointer("/metadata/uid"),
            "resourceVersion": subscription.pointer("/metadata/resourceVersion"),
            "annotations": {user::PAUSED: "true"},
        },
        "spec": {"installPlanApproval": "Manual"},
    });
    let frozen = subscriptions
        .patch(name(subscription), &context.changing(), &Patch::Merge(&patch))
        .await;
    frozen.with_context(|| format!("cannot pause Subscription {}", case.key()))?;
    (context.on_step)(&format!("subscription/{} paused", name(subscription)));
    let version = text(subscription, "/status/installedCSV");
    pause_version(context, case.namespace(), version).await
}

/// The API of a kind of OLM classic.
fn classic_api(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    api(client, operator_condition::GROUP, "v1alpha1", kind, namespace)
}

/// Keeps OLM classic from the objects of the ClusterServiceVersion, once its Subscription is gone, too.
async fn pause_version(context: &MoveContext<'_>, namespace: &str, version: &str) -> anyhow::Result<()> {
    let versions = classic_api(&context.own, "ClusterServiceVersion", namespace);
    let patch = json!({"metadata": {"annotations": {user::PAUSED: "true"}}});
    let paused = versions
        .patch(version, &context.changing(), &Patch::Merge(&patch))
        .await;
    paused.with_context(|| format!("cannot pause ClusterServiceVersion {namespace}/{version}"))?;
    (context.on_step)(&format!("clusterserviceversion/{version} paused"));
    Ok(())
}

/// The first revision of an extension, if it was created from a Subscription.
pub async fn begun(
    client: &Client,
    extension: &ClusterExtension,
) -> anyhow::Result<Option<ClusterObjectSet>> {
    let found = revision_called(client, &revision_name(extension)).await?;
    Ok(found.filter(|set| {
        set.annotation(migration::SUBSCRIPTION).is_some()
            && controlling_extension(&set.metadata) == extension.metadata.uid.as_deref()
    }))
}

/// MoveContext over the objects of the revision, removes the remaining objects of OLM classic and resumes the extension.
pub async fn finish(
    context: &MoveContext<'_>,
    extension: &ClusterExtension,
    set: &ClusterObjectSet,
) -> anyhow::Result<()> {
    content::own(context, set).await?;
    let objects = content::objects(&context.own, set, context.system_namespace).await?;
    let owner = Owner {
        name: set.name().to_owned(),
        uid: set.metadata.uid.clone().unwrap_or_default(),
        revision: set.spec.revision,
        owner_name: set.label(label::OWNER_NAME).unwrap_or_default().to_owned(),
        extension: extension.metadata.uid.clone().unwrap_or_default(),
        migrated: false,
    };
    hand_over(context, &objects, &owner).await?;
    (context.on_step)(&format!("{} objects handed over", objects.len()));
    remove_subscription(context, extension).await?;
    // A controller that still runs may have taken some back by now.
    hand_over(context, &objects, &owner).await?;
    let version = set.annotation(annotation::BUNDLE_NAME).unwrap_or_default();
    keep_condition(context, &extension.spec.namespace, version).await?;
    remove_version(context, extension, set, &objects).await?;
    // The Go implementation sets the owner again as long as the ClusterServiceVersion is there.
    keep_condition(context, &extension.spec.namespace, version).await?;
    let taken = hand_over(context, &objects, &owner).await;
    taken.map_err(|error| {
        error.context(Hint(format!(
            "{}; if it fails once more, `olm resume {}` applies the content that the move has recorded",
            context.again(),
            extension.name()
        )))
    })?;
    let patch = json!({"metadata": {
        "uid": extension.metadata.uid,
        // A stopped return may have left its record.
        "annotations": {user::PAUSED: null, migration::MIGRATE: null, migration::UNINSTALL_BACKUP: null},
    }});
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let resumed = extensions
        .patch(extension.name(), &context.changing(), &Patch::Merge(&patch))
        .await;
    resumed.with_context(|| format!("cannot resume ClusterExtension {:?}", extension.name()))?;
    (context.on_step)(&format!("clusterextension/{} resumed", extension.name()));
    Ok(())
}

/// MoveContext all objects over until none needs it.
async fn hand_over(context: &MoveContext<'_>, objects: &[Value], owner: &Owner) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let mut is_due = false;
        for object in objects {
            let taken = take(&context.content, object, owner).await;
            is_due |= match taken {
                Err(error) if is_conflict(&error) => true,
                taken => taken.with_context(|| {
                    format!("cannot hand over {} {:?}", text(object, "/kind"), name(object))
                })?,
            };
        }
        if !is_due {
            return Ok(());
        }
    }
    let error = anyhow!("OLM classic keeps taking the objects back");
    Err(error.context(Hint(format!(
        "stop the Deployments olm-operator and catalog-operator of the Go implementation; {}",
        context.again()
    ))))
}

/// The right that an error says is missing, if any.
pub fn missing_right(error: &anyhow::Error) -> Option<&str> {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) if status.code == 403 => Some(&status.message),
        _ => None,
    }
}

/// Whether another client wrote the object first. A name that is taken is none of these: a retry does not help.
pub fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.is_conflict())
}

/// MoveContext over one object by changes of its metadata only. Returns whether it was changed.
async fn take(client: &Client, object: &Value, owner: &Owner) -> anyhow::Result<bool> {
    let api = api_of(client, object);
    let what = text(object, "/kind");
    let read = async || {
        get(&api, what, name(object))
            .await?
            .ok_or_else(|| anyhow!("it is gone"))
    };
    let live = read().await?;
    let is_other = |found: &&Value| {
        found.get("controller") == Some(&Value::Bool(true)) && text(found, "/uid") != owner.uid
    };
    if let Some(other) = list(&live, "/metadata/ownerReferences").iter().find(is_other) {
        bail!("{} {:?} controls it", text(other, "/kind"), text(other, "/name"));
    }
    let mut is_due = false;
    let write = Write {
        guard: Guard::Seen {
            uid: text(&live, "/metadata/uid").to_owned(),
            resource_version: text(&live, "/metadata/resourceVersion").to_owned(),
        },
        demoted: Vec::new(),
    };
    let body = body(object, owner, &write);
    let rehearsed = apply(&api, &body, true).await?;
    unchanged(&live, &rehearsed)?;
    if marks(&live) != marks(&rehearsed) {
        unchanged(&live, &apply(&api, &body, false).await?)?;
        is_due = true;
    }
    let taken = read().await?;
    if let Some(patch) = release(&taken) {
        let parameters = PatchParams {
            field_manager: Some(field_manager::OBJECTS.to_owned()),
            ..PatchParams::default()
        };
        let released = api
            .patch(name(object), &parameters, &Patch::Merge(&patch))
            .await?;
        unchanged(&live, &serde_json::to_value(released)?)?;
        is_due = true;
    }
    Ok(is_due)
}

async fn apply(api: &Api<DynamicObject>, body: &Value, is_rehearsal: bool) -> anyhow::Result<Value> {
    let parameters = PatchParams {
        dry_run: is_rehearsal,
        force: true,
        field_manager: Some(field_manager::OBJECTS.to_owned()),
        field_validation: None,
    };
    let applied = api.patch(name(body), &parameters, &Patch::Apply(body)).await?;
    Ok(serde_json::to_value(applied)?)
}

/// The parts of an object that an apply without changed content changes: labels, annotations, owners and our fields.
fn marks(object: &Value) -> [Option<&Value>; 4] {
    let part = |key: &str| object.pointer(&format!("/metadata/{key}"));
    let ours = fields_of(object, text(object, "/apiVersion"), field_manager::OBJECTS);
    [part("labels"), part("annotations"), part("ownerReferences"), ours]
}

/// Checks that an object is unchanged except for metadata and status. The generation is not sufficient: for a
/// Deployment it also counts changes of annotations.
pub fn unchanged(before: &Value, after: &Value) -> anyhow::Result<()> {
    ensure!(
        text(before, "/metadata/uid") == text(after, "/metadata/uid")
            && content_of(before) == content_of(after),
        "its content would change: something writes it at the same time"
    );
    Ok(())
}

async fn remove_subscription(context: &MoveContext<'_>, extension: &ClusterExtension) -> anyhow::Result<()> {
    let key = extension.annotation(migration::SUBSCRIPTION).unwrap_or_default();
    let (namespace, wanted) = key.split_once('/').unwrap_or_default();
    let subscriptions = classic_api(&context.own, "Subscription", namespace);
    let Some(found) = get(&subscriptions, "Subscription", wanted).await? else {
        return Ok(());
    };
    let parameters = DeleteParams {
        preconditions: Some(preconditions(&found)),
        ..DeleteParams::default()
    };
    let deleted = subscriptions.delete(wanted, &parameters).await;
    deleted.with_context(|| format!("cannot delete Subscription {key}"))?;
    (context.on_step)(&format!("subscription/{wanted} deleted"));
    Ok(())
}

/// Keeps the OperatorCondition when its ClusterServiceVersion is deleted: garbage collection orphans only objects that
/// it has seen, and it may be late.
async fn keep_condition(context: &MoveContext<'_>, namespace: &str, version: &str) -> anyhow::Result<()> {
    let (group, number, kind) = (
        operator_condition::GROUP,
        operator_condition::VERSION,
        operator_condition::KIND,
    );
    let conditions = api(&context.own, group, number, kind, namespace);
    for _ in 0..TRIES {
        let Some(found) = get(&conditions, kind, version).await? else {
            return Ok(());
        };
        let owners = list(&found, "/metadata/ownerReferences");
        let kept: Vec<&Value> = owners.iter().filter(|owner| !is_version(owner)).collect();
        if kept.len() == owners.len() {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "uid": found.pointer("/metadata/uid"), "resourceVersion": found.pointer("/metadata/resourceVersion"),
            "ownerReferences": kept,
        }});
        let patched = conditions
            .patch(version, &context.changing(), &Patch::Merge(&patch))
            .await;
        match patched {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                return Err(anyhow!(error).context(format!("cannot keep {kind} {namespace}/{version}")));
            }
        }
    }
    Ok(())
}

fn preconditions(found: &Value) -> Preconditions {
    Preconditions {
        uid: Some(text(found, "/metadata/uid").to_owned()),
        resource_version: Some(text(found, "/metadata/resourceVersion").to_owned()),
    }
}

/// Marks a ClusterServiceVersion so that the programs of this project delete nothing with it: conversions of custom
/// resources and bindings in other namespaces have no labels that could be removed.
async fn spare(
    context: &MoveContext<'_>,
    versions: &Api<DynamicObject>,
    found: &Value,
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {
        "uid": found.pointer("/metadata/uid"), "resourceVersion": found.pointer("/metadata/resourceVersion"),
        "annotations": {user::UNINSTALL: "orphan"},
    }});
    let marked = versions
        .patch(name(found), &context.changing(), &Patch::Merge(&patch))
        .await;
    marked
        .map(drop)
        .with_context(|| format!("cannot mark ClusterServiceVersion {:?}", name(found)))
}

/// Deletes the ClusterServiceVersion, and none of the objects that it owned. Its finalizer removes objects by the
/// labels of OLM classic, so none may have them.
async fn remove_version(
    context: &MoveContext<'_>,
    extension: &ClusterExtension,
    set: &ClusterObjectSet,
    objects: &[Value],
) -> anyhow::Result<()> {
    let wanted = set.annotation(annotation::BUNDLE_NAME).unwrap_or_default();
    let namespace = &extension.spec.namespace;
    let versions = classic_api(&context.own, "ClusterServiceVersion", namespace);
    for attempt in 0..ATTEMPTS {
        let Some(found) = get(&versions, "ClusterServiceVersion", wanted).await? else {
            (context.on_step)(&format!("clusterserviceversion/{wanted} deleted"));
            return Ok(());
        };
        let is_orphaning = annotation_of(&found, user::UNINSTALL) == Some("orphan");
        if found.pointer("/metadata/deletionTimestamp").is_none() && !is_orphaning {
            spare(context, &versions, &found).await?;
            continue;
        }
        if found.pointer("/metadata/deletionTimestamp").is_none() {
            for object in objects {
                let live = get(
                    &api_of(&context.content, object),
                    text(object, "/kind"),
                    name(object),
                )
                .await?;
                ensure!(
                    live.as_ref().is_some_and(|live| release(live).is_none()),
                    "{} {:?} belongs to OLM classic again: {}",
                    text(object, "/kind"),
                    name(object),
                    context.again()
                );
            }
            let parameters = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Orphan),
                preconditions: Some(preconditions(&found)),
                ..DeleteParams::default()
            };
            let deleted = versions.delete(wanted, &parameters).await;
            deleted.with_context(|| format!("cannot delete ClusterServiceVersion {namespace}/{wanted}"))?;
        } else if attempt >= PATIENCE && *list(&found, "/metadata/finalizers") == [json!(CLEANUP_FINALIZER)] {
            // The controllers of OLM classic are stopped, and there is nothing for them to clean up.
            let patch = json!({"metadata": {
                "uid": found.pointer("/metadata/uid"), "resourceVersion": found.pointer("/metadata/resourceVersion"),
                "finalizers": null,
            }});
            let freed = versions
                .patch(wanted, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            freed.with_context(|| {
                format!("cannot remove the finalizer of ClusterServiceVersion {wanted:?}")
            })?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!(
        "ClusterServiceVersion {namespace}/{wanted} is not gone after {ATTEMPTS} s: {}",
        context.again()
    )
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_taken_name_is_no_conflict() {
        let error = |reason: &str| {
            let status = Status {
                code: 409,
                reason: reason.to_owned(),
                ..Status::default()
            };
            anyhow::Error::from(kube::Error::Api(Box::new(status))).context("cannot write it")
        };
        assert!(is_conflict(&error("Conflict")));
        assert!(!is_conflict(&error("AlreadyExists")));
        assert!(!is_conflict(&anyhow!("the server is gone")));
    }
}
