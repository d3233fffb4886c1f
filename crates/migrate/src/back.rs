//! The return to OLM classic, which is possible until the first upgrade. Every step requires the object that it has
//! read, and can be repeated.

mod findings;
mod patch;
mod withdraw;

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use olm_api::cluster_extension::controlling_extension;
use olm_api::names::{label, migration, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use serde_json::{Map, Value, json};

use self::patch::Owners;
pub use self::withdraw::{Withdrawal, withdraw};
use self::withdraw::{former_setting, still_requested};
use crate::check::Request;
use crate::context::MoveContext;
use crate::facts::{ClassicObjects, annotation, find, name, namespace, successor, text};
use crate::hint::Hint;
use crate::needs::in_order;
use crate::objects::backup::{self, Record, annotate};
use crate::objects::inventory::{api_of, get};
use crate::steps::{TRIES, is_conflict, unchanged};

/// The number of seconds that the controllers have to act; they are polled once a second.
const ATTEMPTS: usize = 120;

/// A return that has begun or not.
pub struct Return {
    /// The objects of OLM classic before the move.
    pub record: Record,
    /// The blockers of the return.
    pub findings: Vec<String>,
    extension: ClusterExtension,
    /// Acts on the objects of the operator.
    content: Client,
}

/// Reads the record of the move of a Subscription, `NAMESPACE/NAME`, and checks whether the operator can return
/// together with the others; `None` if OLM classic manages it.
pub async fn prepare(
    context: &MoveContext<'_>,
    facts: &ClassicObjects,
    key: &str,
    together: &[String],
) -> anyhow::Result<Option<Return>> {
    let (place, subscription) = key.split_once('/').unwrap_or_default();
    let live = find(&facts.subscriptions, place, subscription);
    let Some(extension) = successor(facts, key) else {
        if live.is_some() {
            return Ok(None);
        }
        let error = anyhow!("no ClusterExtension was made from Subscription {key}");
        return Err(error.context(Hint(
            "the way back needs the ClusterExtension of the move; without it, apply the Subscription anew"
                .to_owned(),
        )));
    };
    let Some(record) = backup::kept(&context.own, place, subscription, extension).await? else {
        let extension = extension.name();
        let error =
            anyhow!("there is no record of the move of Subscription {key} to ClusterExtension {extension:?}");
        let hint = match (live, context.request) {
            (Some(_), Request::Command) => {
                format!("the move has stopped early: finish it with `olm migrate {subscription} -n {place}`")
            }
            (Some(_), Request::Annotation) => format!(
                "the move has stopped early: to finish it, remove annotation {} of the ClusterExtension and set \
                 annotation {}=true of the Subscription",
                migration::MIGRATE_BACK,
                migration::MIGRATE
            ),
            (None, _) => {
                format!("to subscribe again, run `olm uninstall {extension}` and apply the Subscription")
            }
        };
        return Err(error.context(Hint(hint)));
    };
    let sets = revisions(&context.own, extension).await?;
    let mut findings = findings::findings(&record, facts, extension, &sets);
    let others = other_records(&context.own, facts, together).await;
    findings.extend(findings::without_needed(&record, &others, context.request));
    let due = if findings::has_gone_on(&record, live) {
        &[]
    } else {
        record.objects.as_slice()
    };
    for kept in due {
        let (kind, wanted) = (text(&kept.object, "/kind"), name(&kept.object));
        if get(&api_of(&context.content, &kept.object), kind, wanted)
            .await?
            .is_none()
        {
            findings.push(format!(
                "{kind} {wanted:?} of the operator is gone: operator-controller applies it again unless ClusterExtension {:?} \
                 is paused",
                extension.name()
            ));
        }
    }
    Ok(Some(Return {
        record,
        findings,
        extension: extension.clone(),
        content: context.content.clone(),
    }))
}

/// The records of operators that have moved and do not return. Unreadable ones are left out.
async fn other_records(client: &Client, facts: &ClassicObjects, together: &[String]) -> Vec<Record> {
    let mut records = Vec::new();
    for extension in &facts.extensions {
        let Some(key) = extension.annotation(migration::SUBSCRIPTION) else {
            continue;
        };
        if together.iter().any(|returning| returning == key) {
            continue;
        }
        let (place, subscription) = key.split_once('/').unwrap_or_default();
        let kept = backup::kept(client, place, subscription, extension).await;
        records.extend(kept.ok().flatten());
    }
    records
}

/// The revisions of an extension.
async fn revisions(client: &Client, extension: &ClusterExtension) -> anyhow::Result<Vec<ClusterObjectSet>> {
    let listed: Api<ClusterObjectSet> = Api::all(client.clone());
    let selector = label::selector(label::OWNER_NAME, extension.name());
    let params = selector.map_or_else(ListParams::default, |selector| {
        ListParams::default().labels(&selector)
    });
    let found = listed.list(&params).await;
    let mut sets = found.context("cannot list the ClusterObjectSets")?.items;
    sets.retain(|set| controlling_extension(&set.metadata) == extension.metadata.uid.as_deref());
    Ok(sets)
}

/// Returns by groups of operators that need each other, each in the order of its needs.
pub fn in_groups(returns: Vec<Return>) -> Vec<Vec<Return>> {
    let all = ClassicObjects {
        subscriptions: returns
            .iter()
            .map(|back| back.record.subscription.clone())
            .collect(),
        versions: returns.iter().map(|back| back.record.version.clone()).collect(),
        ..ClassicObjects::default()
    };
    let keys: Vec<String> = returns.iter().map(|back| back.record.key()).collect();
    let mut left = returns;
    let mut take = |key: &String| {
        let at = left.iter().position(|back| back.record.key() == *key)?;
        Some(left.swap_remove(at))
    };
    let groups = in_order(&all, &keys);
    groups
        .iter()
        .map(|group| group.iter().filter_map(&mut take).collect())
        .collect()
}

/// Returns operators to OLM classic. All of them are back before OLM classic works on one: they may need each other.
/// The ClusterExtensions are deleted last, and with them the records.
pub async fn go(context: &MoveContext<'_>, returns: Vec<Return>) -> anyhow::Result<()> {
    let returns: Vec<Return> = in_groups(returns).into_iter().flatten().collect();
    let mut restored = Vec::new();
    for back in &returns {
        let given = give(&context.with(&back.content), &back.record, &back.extension).await;
        restored.push(given.map_err(|error| hinted(context, error, &back.extension))?);
    }
    for (back, restored) in returns.iter().zip(&restored) {
        if let Some(restored) = restored {
            let context = context.with(&back.content);
            let resumed = resume(&context, &back.record, &back.extension, restored).await;
            resumed.map_err(|error| hinted(&context, error, &back.extension))?;
        }
    }
    for back in &returns {
        remove(context, &back.extension).await?;
    }
    Ok(())
}

/// An error of a stopped return with what to do.
fn hinted(context: &MoveContext<'_>, error: anyhow::Error, extension: &ClusterExtension) -> anyhow::Error {
    if error.downcast_ref::<Hint>().is_some() {
        return error;
    }
    let (former, extension) = (former_setting(extension), extension.name());
    let request = match context.request {
        Request::Command => String::new(),
        Request::Annotation => format!("{}- ", migration::MIGRATE_BACK),
    };
    error.context(Hint(format!(
        "{}; to stay with OLM v1 instead: `kubectl annotate --overwrite clusterextension {extension} {request}{former}` \
         and `olm resume {extension}`",
        context.again()
    )))
}

/// The objects of OLM classic that are back, and the revision that held the others.
struct Restored {
    subscription: Value,
    version: Value,
    set: Option<ClusterObjectSet>,
}

impl Restored {
    fn owners<'a>(&'a self, extension: &'a ClusterExtension) -> Owners<'a> {
        Owners {
            extension: extension.name(),
            revision: self.set.as_ref().and_then(|set| set.metadata.uid.as_deref()),
            version: &self.version,
        }
    }
}

/// Restores the missing objects of OLM classic, paused; `None` if it has installed another version since.
async fn give(
    context: &MoveContext<'_>,
    record: &Record,
    extension: &ClusterExtension,
) -> anyhow::Result<Option<Restored>> {
    let set = pause(context, extension).await?;
    still_requested(context, extension).await?;
    let api = api_of(&context.own, &record.subscription);
    let live = get(&api, "Subscription", name(&record.subscription)).await?;
    if findings::has_gone_on(record, live.as_ref()) {
        return Ok(None);
    }
    let paused = paused(&record.version);
    let version = restore(context, &paused, &record.version, "/status/phase").await?;
    let mut restored = Restored {
        subscription: Value::Null,
        version,
        set,
    };
    hand_back(context, record, restored.owners(extension)).await?;
    (context.on_step)(&format!("{} objects handed back", record.objects.len()));
    let mut status = record.subscription.clone();
    if let Some(status) = status.get_mut("status").and_then(Value::as_object_mut) {
        // The InstallPlans are gone with the Subscription that they belonged to.
        status.retain(|key, _| !matches!(key.as_str(), "installplan" | "installPlanRef"));
    }
    let paused = self::paused(&record.subscription);
    restored.subscription = restore(context, &paused, &status, findings::INSTALLED).await?;
    Ok(Some(restored))
}

/// Lets OLM classic work on the operator again.
async fn resume(
    context: &MoveContext<'_>,
    record: &Record,
    extension: &ClusterExtension,
    restored: &Restored,
) -> anyhow::Result<()> {
    resume_version(context, &restored.version, &[user::PAUSED, user::UNINSTALL]).await?;
    unfreeze(context, record, &restored.subscription).await?;
    // A controller that ran meanwhile sees the marks of OLM classic everywhere.
    hand_back(context, record, restored.owners(extension)).await
}

/// An object that OLM classic leaves alone for now.
fn paused(object: &Value) -> Value {
    let mut object = object.clone();
    annotate(&mut object, user::PAUSED, "true");
    object
}

/// Resumes the ClusterServiceVersion of a move that cannot continue: its Subscription, `NAMESPACE/NAME`, was deleted
/// before the objects were recorded.
///
/// # Errors
/// The record of the move cannot be read, or the ClusterServiceVersion not changed.
pub async fn release_version(
    context: &MoveContext<'_>,
    facts: &ClassicObjects,
    key: &str,
    extension: &ClusterExtension,
) -> anyhow::Result<()> {
    let (place, subscription) = key.split_once('/').unwrap_or_default();
    // The move pauses it after it has stored the record.
    let Some(record) = backup::kept(&context.own, place, subscription, extension).await? else {
        return Ok(());
    };
    let version = find(&facts.versions, place, name(&record.version));
    match version.filter(|version| annotation(version, user::PAUSED).is_some()) {
        Some(version) => resume_version(context, version, &[user::PAUSED]).await,
        None => Ok(()),
    }
}

/// Lets OLM classic work on the ClusterServiceVersion again, once its Subscription is resumed, too: removes these
/// annotations.
async fn resume_version(context: &MoveContext<'_>, version: &Value, marks: &[&str]) -> anyhow::Result<()> {
    let marks = marks.iter().map(|key| ((*key).to_owned(), Value::Null));
    let marks: Map<String, Value> = marks.collect();
    let patch = json!({"metadata": {"uid": version.pointer("/metadata/uid"), "annotations": marks}});
    let (place, wanted) = (namespace(version), name(version));
    let patched = api_of(&context.own, version)
        .patch(wanted, &context.changing(), &Patch::Merge(&patch))
        .await;
    patched.with_context(|| format!("cannot resume ClusterServiceVersion {place}/{wanted}"))?;
    (context.on_step)(&format!("clusterserviceversion/{wanted} resumed"));
    Ok(())
}

/// Reverts the changes of the move or the way back to the Subscription. Without its request it stays with OLM classic.
async fn unfreeze(context: &MoveContext<'_>, record: &Record, live: &Value) -> anyhow::Result<()> {
    if annotation(live, user::PAUSED).is_none() && annotation(live, migration::MIGRATE).is_none() {
        return Ok(());
    }
    let patch = json!({
        "metadata": {
            "uid": live.pointer("/metadata/uid"), "resourceVersion": live.pointer("/metadata/resourceVersion"),
            "annotations": {user::PAUSED: null, migration::MIGRATE: null},
        },
        "spec": {"installPlanApproval": record.subscription.pointer("/spec/installPlanApproval")},
    });
    let (place, wanted) = (namespace(live), name(live));
    let patched = api_of(&context.own, live)
        .patch(wanted, &context.changing(), &Patch::Merge(&patch))
        .await;
    patched.with_context(|| format!("cannot resume Subscription {place}/{wanted}"))?;
    (context.on_step)(&format!("subscription/{wanted} resumed"));
    Ok(())
}

/// Pauses the extension, ends its move, sets its deletion to orphan all objects, and waits until its revision shows that
/// operator-controller has processed this. Returns that revision; `None` if the move has not created it yet.
async fn pause(
    context: &MoveContext<'_>,
    extension: &ClusterExtension,
) -> anyhow::Result<Option<ClusterObjectSet>> {
    let wanted = [(user::PAUSED, "true"), (user::UNINSTALL, "orphan")];
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let is_paused = wanted
        .iter()
        .all(|(key, value)| extension.annotation(key) == Some(value))
        && extension.annotation(migration::MIGRATE).is_none();
    if extension.metadata.deletion_timestamp.is_none() && !is_paused {
        let wanted = wanted.iter().map(|(key, value)| (*key, Value::from(*value)));
        let mut annotations: Map<String, Value> = wanted
            .chain([(migration::MIGRATE, Value::Null)])
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        // A repetition finds the setting of the return itself, which is not to be recorded.
        let before = extension.annotation(user::UNINSTALL).unwrap_or_default();
        if before != "orphan" || extension.annotation(migration::UNINSTALL_BACKUP).is_none() {
            annotations.insert(migration::UNINSTALL_BACKUP.to_owned(), before.into());
        }
        let patch = json!({"metadata": {"uid": extension.metadata.uid, "annotations": annotations}});
        let paused = extensions
            .patch(extension.name(), &context.changing(), &Patch::Merge(&patch))
            .await;
        paused.with_context(|| format!("cannot pause ClusterExtension {:?}", extension.name()))?;
        (context.on_step)(&format!("clusterextension/{} paused", extension.name()));
    }
    for attempt in 0..ATTEMPTS {
        let sets = revisions(&context.own, extension).await?;
        // An upgrade may have begun since the check.
        if let Some(finding) = findings::upgraded(extension, &sets) {
            bail!(finding);
        }
        let is_paused = |set: &ClusterObjectSet| {
            wanted
                .iter()
                .all(|(key, value)| set.annotation(key) == Some(value))
        };
        if sets.iter().all(is_paused) {
            return Ok(sets.into_iter().next());
        }
        if attempt + 1 < ATTEMPTS {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    let error = anyhow!(
        "the revision of ClusterExtension {:?} is not paused after {ATTEMPTS} s",
        extension.name()
    );
    Err(error.context(Hint(format!(
        "see whether operator-controller runs; {}",
        context.again()
    ))))
}

/// Creates a missing object of OLM classic, and writes its status if the value at `decisive`, a JSON pointer into it,
/// differs.
async fn restore(
    context: &MoveContext<'_>,
    object: &Value,
    with: &Value,
    decisive: &str,
) -> anyhow::Result<Value> {
    let api = api_of(&context.own, object);
    let (kind, wanted) = (text(object, "/kind"), name(object));
    let named = || format!("{kind} {}/{wanted}", namespace(object));
    let found = get(&api, kind, wanted).await?;
    let live = if let Some(live) = found {
        if live.pointer("/metadata/deletionTimestamp").is_some() {
            let error = anyhow!("{} is being deleted", named());
            let hint = match context.request {
                Request::Command => {
                    "where the move has stopped, finish it: run `olm migrate` without --back; then run this command again"
                        .to_owned()
                }
                Request::Annotation => format!(
                    "where the move has stopped, finish it: remove annotations {} and {} of the ClusterExtension, set \
                     {}=true, and request the return after the move",
                    migration::MIGRATE_BACK,
                    user::UNINSTALL,
                    migration::MIGRATE
                ),
            };
            return Err(error.context(Hint(hint)));
        }
        live
    } else {
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        let made = api.create(&context.creating(), &typed).await;
        let made = made.with_context(|| format!("cannot create {}", named()))?;
        (context.on_step)(&format!("{}/{wanted} created", kind.to_lowercase()));
        serde_json::to_value(made)?
    };
    let status = with.get("status").filter(|status| status.is_object());
    let Some(status) = status.filter(|_| text(&live, decisive) != text(with, decisive)) else {
        return Ok(live);
    };
    let patch = json!({"metadata": {"uid": live.pointer("/metadata/uid")}, "status": status});
    let written = api
        .patch_status(wanted, &context.changing(), &Patch::Merge(&patch))
        .await;
    let written = written.with_context(|| format!("cannot write the status of {}", named()))?;
    Ok(serde_json::to_value(written)?)
}

/// MoveContext all objects back until none needs it.
async fn hand_back(context: &MoveContext<'_>, record: &Record, owners: Owners<'_>) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let mut is_due = false;
        for kept in &record.objects {
            let (kind, wanted) = (text(&kept.object, "/kind"), name(&kept.object));
            let api = api_of(&context.content, &kept.object);
            let live = get(&api, kind, wanted).await?;
            let live = live.with_context(|| format!("{kind} {wanted:?} of the operator is gone"))?;
            let Some(patch) = patch::patch(&live, kept, owners) else {
                continue;
            };
            ensure!(
                patch::is_of_operator(&live, owners),
                "{kind} {wanted:?} is no longer part of the operator: its labels and owners name neither ClusterExtension {:?} \
                 nor ClusterServiceVersion {:?}",
                owners.extension,
                name(owners.version)
            );
            is_due = true;
            let parameters = PatchParams {
                field_manager: Some(match kept.manager.as_str() {
                    "" => context.manager.to_owned(),
                    manager => manager.to_owned(),
                }),
                ..PatchParams::default()
            };
            let patched = api.patch(wanted, &parameters, &Patch::Merge(&patch)).await;
            let patched = match patched.map_err(anyhow::Error::from) {
                Err(error) if is_conflict(&error) => continue,
                patched => patched.with_context(|| format!("cannot hand back {kind} {wanted:?}"))?,
            };
            let after = serde_json::to_value(patched)?;
            unchanged(&live, &after).with_context(|| format!("{kind} {wanted:?}"))?;
        }
        if !is_due {
            return Ok(());
        }
    }
    bail!("objects keep changing during the hand-over: {}", context.again())
}

/// Deletes the extension, which leaves its objects behind, and waits for its end.
async fn remove(context: &MoveContext<'_>, extension: &ClusterExtension) -> anyhow::Result<()> {
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let wanted = extension.name();
    for attempt in 0..ATTEMPTS {
        let found = extensions.get_opt(wanted).await;
        let found = found.with_context(|| format!("cannot read ClusterExtension {wanted:?}"))?;
        let Some(found) = found.filter(|found| found.metadata.uid == extension.metadata.uid) else {
            (context.on_step)(&format!("clusterextension/{wanted} deleted"));
            return Ok(());
        };
        if found.metadata.deletion_timestamp.is_none() {
            ensure!(
                found.annotation(user::UNINSTALL) == Some("orphan"),
                "annotation {} of ClusterExtension {wanted:?} was changed: {}",
                user::UNINSTALL,
                context.again()
            );
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: found.metadata.uid.clone(),
                    resource_version: found.metadata.resource_version.clone(),
                }),
                ..DeleteParams::default()
            };
            match extensions.delete(wanted, &parameters).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                deleted => {
                    deleted.with_context(|| format!("cannot delete ClusterExtension {wanted:?}"))?;
                }
            }
        }
        if attempt + 1 < ATTEMPTS {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    let error = anyhow!("ClusterExtension {wanted:?} is not gone after {ATTEMPTS} s");
    Err(error.context(Hint(format!(
        "`kubectl describe clusterextension {wanted}` says why; then {}",
        context.again()
    ))))
}
