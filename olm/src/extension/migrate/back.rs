//! The way back to OLM classic, until the first upgrade. Every step insists on the object that it has seen, and can be repeated.

mod findings;
mod patch;

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use olm_api::names::{label, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use serde_json::{Value, json};

use super::backup::{self, Record};
use super::course::{TRIES, is_conflict, unchanged};
use super::facts::{Facts, find, name, namespace, successor, text};
use super::inventory::{api_of, get};
use crate::extension::change::MANAGER;
use crate::hint::Hint;
use crate::output::note;

/// How often the controllers are given time to act, once a second.
const LOOKS: usize = 120;

/// A move back that nothing has begun or that was begun.
pub(crate) struct Return {
    /// What OLM classic had.
    pub(crate) record: Record,
    /// What stands in the way.
    pub(crate) findings: Vec<String>,
    map: ConfigMap,
    /// Nothing once it is deleted.
    extension: Option<ClusterExtension>,
    set: Option<ClusterObjectSet>,
}

/// Reads what there is to go back to; nothing where the operator is with OLM classic.
pub(crate) async fn prepare(
    client: &Client,
    facts: &Facts,
    place: &str,
    subscription: &str,
) -> anyhow::Result<Option<Return>> {
    let key = format!("{place}/{subscription}");
    let Some((record, map)) = backup::kept(client, place, subscription).await? else {
        if find(&facts.subscriptions, place, subscription).is_some() {
            return Ok(None);
        }
        let error = anyhow!("there is no record of a move of Subscription {key}");
        return Err(error.context(Hint(
            "`olm migrate` keeps it in a ConfigMap beside the operator; without it, apply the Subscription anew".to_owned(),
        )));
    };
    let extension = successor(facts, &key).cloned();
    let listed: Api<ClusterObjectSet> = Api::all(client.clone());
    let mut sets = Vec::new();
    if let Some(extension) = &extension {
        let selector = label::selector(label::OWNER_NAME, extension.name());
        let params = selector.map_or_else(ListParams::default, |selector| {
            ListParams::default().labels(&selector)
        });
        let found = listed.list(&params).await;
        sets = found.context("cannot list the ClusterObjectSets")?.items;
        sets.retain(|set| set.label(label::OWNER_NAME) == Some(extension.name()));
    }
    let findings = match &extension {
        Some(extension) => findings::findings(&record, facts, extension, &sets),
        None => Vec::new(),
    };
    Ok(Some(Return {
        record,
        findings,
        map,
        extension,
        set: sets.into_iter().next(),
    }))
}

/// Gives the operator back.
pub(crate) async fn go(client: &Client, back: Return) -> anyhow::Result<()> {
    let Return {
        record,
        map,
        extension,
        set,
        ..
    } = back;
    if let Some(extension) = &extension {
        pause(client, extension, set.as_ref()).await?;
    }
    let version = restore(client, &record.version, &record.version).await?;
    let revision = set.as_ref().and_then(|set| set.metadata.uid.clone());
    let revision = revision.unwrap_or_default();
    hand_back(client, &record, &version, &revision).await?;
    note(&format!("{} objects handed back", record.objects.len()));
    if let Some(extension) = &extension {
        backup::detach(client, &map).await?;
        remove(client, extension).await?;
    }
    let mut status = record.subscription.clone();
    if let Some(status) = status.get_mut("status").and_then(Value::as_object_mut) {
        // The InstallPlans are gone with the Subscription that they belonged to.
        status.retain(|key, _| !matches!(key.as_str(), "installplan" | "installPlanRef"));
    }
    restore(client, &record.subscription, &status).await?;
    // A controller that ran meanwhile sees the marks of OLM classic everywhere.
    hand_back(client, &record, &version, &revision).await?;
    backup::forget(client, &map).await
}

fn by_us() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Stops work on the extension, whose deletion is to leave all objects behind, and waits until its revision has seen it.
async fn pause(
    client: &Client,
    extension: &ClusterExtension,
    set: Option<&ClusterObjectSet>,
) -> anyhow::Result<()> {
    let wanted = [(user::PAUSED, "true"), (user::UNINSTALL, "orphan")];
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    if extension.metadata.deletion_timestamp.is_none()
        && wanted
            .iter()
            .any(|(key, value)| extension.annotation(key) != Some(value))
    {
        let annotations: serde_json::Map<String, Value> = wanted
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).into()))
            .collect();
        let patch = json!({"metadata": {"uid": extension.metadata.uid, "annotations": annotations}});
        let paused = extensions
            .patch(extension.name(), &by_us(), &Patch::Merge(&patch))
            .await;
        paused.with_context(|| format!("cannot pause ClusterExtension {:?}", extension.name()))?;
        note(&format!("clusterextension/{} paused", extension.name()));
    }
    let Some(set) = set else {
        return Ok(());
    };
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    for _ in 0..LOOKS {
        let found = sets.get_opt(set.name()).await;
        let found = found.with_context(|| format!("cannot read ClusterObjectSet {:?}", set.name()))?;
        let is_paused = found.is_none_or(|found| {
            wanted
                .iter()
                .all(|(key, value)| found.annotation(key) == Some(value))
        });
        if is_paused {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let error = anyhow!("ClusterObjectSet {:?} is not paused after {LOOKS} s", set.name());
    Err(error.context(Hint(
        "see whether operator-controller runs, and run the command again".to_owned(),
    )))
}

/// Makes an object of OLM classic anew where it is gone, with its status.
async fn restore(client: &Client, object: &Value, with: &Value) -> anyhow::Result<Value> {
    let api = api_of(client, object);
    let (kind, wanted) = (text(object, "/kind"), name(object));
    let named = || format!("{kind} {}/{wanted}", namespace(object));
    let found = get(&api, kind, wanted).await?;
    let live = if let Some(live) = found {
        ensure!(
            live.pointer("/metadata/deletionTimestamp").is_none(),
            "{} is being deleted: run the command again when it is gone",
            named()
        );
        live
    } else {
        let parameters = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        let made = api.create(&parameters, &typed).await;
        let made = made.with_context(|| format!("cannot create {}", named()))?;
        note(&format!("{}/{wanted} created", kind.to_lowercase()));
        serde_json::to_value(made)?
    };
    let status = with.get("status").filter(|status| status.is_object());
    let (Some(status), None) = (
        status,
        live.pointer("/status/lastUpdated")
            .or(live.pointer("/status/phase")),
    ) else {
        return Ok(live);
    };
    let patch = json!({"metadata": {"uid": live.pointer("/metadata/uid")}, "status": status});
    let written = api.patch_status(wanted, &by_us(), &Patch::Merge(&patch)).await;
    let written = written.with_context(|| format!("cannot write the status of {}", named()))?;
    Ok(serde_json::to_value(written)?)
}

/// Hands all objects back until none needs it.
async fn hand_back(client: &Client, record: &Record, version: &Value, revision: &str) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let mut is_due = false;
        for kept in &record.objects {
            let (kind, wanted) = (text(&kept.object, "/kind"), name(&kept.object));
            let api = api_of(client, &kept.object);
            let live = get(&api, kind, wanted).await?;
            let live = live.with_context(|| format!("{kind} {wanted:?} of the operator is gone"))?;
            let Some(patch) = patch::patch(&live, kept, version, revision) else {
                continue;
            };
            is_due = true;
            let parameters = PatchParams {
                field_manager: Some(match kept.manager.as_str() {
                    "" => MANAGER.to_owned(),
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
    bail!("objects are changed as fast as they are handed back: run the command again")
}

/// Deletes the extension, which leaves its objects behind, and waits for its end.
async fn remove(client: &Client, extension: &ClusterExtension) -> anyhow::Result<()> {
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    let wanted = extension.name();
    for look in 0..LOOKS {
        let found = extensions.get_opt(wanted).await;
        let found = found.with_context(|| format!("cannot read ClusterExtension {wanted:?}"))?;
        let Some(found) = found.filter(|found| found.metadata.uid == extension.metadata.uid) else {
            note(&format!("clusterextension/{wanted} deleted"));
            return Ok(());
        };
        if found.metadata.deletion_timestamp.is_none() {
            ensure!(
                found.annotation(user::UNINSTALL) == Some("orphan"),
                "annotation {} of ClusterExtension {wanted:?} was changed: run the command again",
                user::UNINSTALL
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
        if look + 1 < LOOKS {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    let error = anyhow!("ClusterExtension {wanted:?} is not gone after {LOOKS} s");
    Err(error.context(Hint(format!(
        "`kubectl describe clusterextension {wanted}` says why; then run the command again"
    ))))
}
