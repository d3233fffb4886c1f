//! The way back: what runs is not changed, and OLM classic has its objects as before.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::{await_version, patch_source};
use olm_test::objects::api;
use olm_test::world::World;
use serde_json::{Value, json};

use super::course::{is_ours, operator, pods, seen, settled, unchanged};
use super::{CLUSTER, UNDONE, olm, versions};

/// The bookkeeping of each object: labels, annotations, and names of owners.
pub(crate) async fn marks(world: &World, objects: &[Value]) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let live = serde_json::to_value(api(&world.client, object).get(name).await?)?;
        let metadata = &live["metadata"];
        let owners: Vec<Value> = metadata["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|owner| json!([owner["kind"], owner["name"], owner["controller"]]))
            .collect();
        all.insert(
            format!("{} {name}", object["kind"]),
            json!([metadata["labels"], metadata["annotations"], owners]),
        );
    }
    Ok(all)
}

/// An object of OLM classic without what the API server adds.
fn classic(world: &World, kind: &str, name: &str) -> Result<Value> {
    let printed = world.kubectl(&["get", kind, name, "-n", UNDONE, "-o", "json"])?;
    let mut live: Value = serde_json::from_str(&printed)?;
    let metadata = live["metadata"].as_object_mut().context("it has metadata")?;
    metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "finalizers" | "annotations"));
    Ok(live)
}

/// The owner of the objects has the UID of the ClusterServiceVersion that is there now.
async fn is_classic(world: &World) -> Result<()> {
    let uid = world.kubectl(&[
        "get",
        "csv",
        "undone.v1.0.0",
        "-n",
        UNDONE,
        "-o",
        "jsonpath={.metadata.uid}",
    ])?;
    let deployment = operator(UNDONE)
        .into_iter()
        .find(|object| object["kind"] == "Deployment");
    let deployment = deployment.context("there is one")?;
    let live = api(&world.client, &deployment).get("undone-operator").await?;
    let owners = live.metadata.owner_references.unwrap_or_default();
    ensure!(owners.len() == 1 && owners[0].uid == uid, "{owners:?}, not {uid}");
    let managers: Vec<String> = live
        .metadata
        .managed_fields
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.manager)
        .collect();
    ensure!(
        managers.contains(&"olm".to_owned())
            && !managers
                .iter()
                .any(|manager| manager.contains("operator-controller")),
        "{managers:?}"
    );
    Ok(())
}

/// Kubernetes deletes the record with the ClusterExtension that owns it.
pub(crate) fn record_is_gone(world: &World, package: &str) -> Result<()> {
    let record = format!("configmap/{package}-migration");
    world
        .kubectl(&["wait", "--for=delete", "--timeout=60s", "-n", package, &record])
        .map(drop)
}

/// Runs `change` on the record, sees that the way back is closed, and puts the record back.
fn refuses_a_changed_record(world: &World) -> Result<()> {
    let record = ["get", "configmap", "undone-migration", "-n", UNDONE, "-o", "json"];
    let before: Value = serde_json::from_str(&world.kubectl(&record)?)?;
    let patch = |data: &Value| {
        let patch = json!({"binaryData": {"record.json.gz": data}}).to_string();
        world.kubectl(&[
            "patch",
            "configmap",
            "undone-migration",
            "-n",
            UNDONE,
            "--type=merge",
            "-p",
            &patch,
        ])
    };
    // An empty stream of gzip.
    patch(&json!("H4sIAAAAAAAAAwMAAAAAAAAAAAA="))?;
    let there = versions(world)?;
    olm(world, "migrate undone -n undone --back --yes")?
        .ended(1)?
        .shows(&[
            "ConfigMap undone/undone-migration is not the record",
            "olm uninstall undone",
        ])?;
    ensure!(versions(world)? == there, "a refused way back has written");
    patch(&before["binaryData"]["record.json.gz"]).map(drop)
}

#[test]
fn an_operator_goes_back_without_a_change_of_what_runs_and_moves_again() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        settled(world, UNDONE)?;
        let (before, running, marked) = (
            seen(world, UNDONE).await?,
            pods(world, UNDONE)?,
            marks(world, &operator(UNDONE)).await?,
        );
        ensure!(!running.is_empty(), "no Pod runs");
        let (version, subscription) = (
            classic(world, "csv", "undone.v1.0.0")?,
            classic(world, "subscription", UNDONE)?,
        );
        olm(world, "migrate undone -n undone --back --yes")?
            .ended(0)?
            .shows(&["is with OLM classic: nothing to do"])?;
        let there = "migrate undone -n undone --service-account cook --yes --wait --timeout 2m";
        olm(world, there)?.ended(0)?;
        is_ours(world, UNDONE).await?;

        refuses_a_changed_record(world)?;
        let moved = versions(world)?;
        olm(world, "migrate undone -n undone --back --dry-run")?
            .ended(0)?
            .shows(&[
                "Subscription undone/undone: ClusterServiceVersion undone.v1.0.0 with 9 objects",
                "Deployment undone-operator",
            ])?;
        ensure!(versions(world)? == moved, "a dry run has written");
        olm(world, "migrate undone -n undone --back --yes")?.ended(0)?;
        unchanged(&before, &seen(world, UNDONE).await?)?;
        ensure!(pods(world, UNDONE)? == running, "Pods are made anew");
        unchanged(&marked, &marks(world, &operator(UNDONE)).await?)?;
        is_classic(world).await?;
        let left = world.kubectl(&["get", "cext,cos", "-o", "name"])?;
        ensure!(!left.contains("/undone"), "{left}");
        record_is_gone(world, UNDONE)?;
        olm(world, "migrate undone -n undone --back --yes")?
            .ended(0)?
            .shows(&["is with OLM classic: nothing to do"])?;
        let found = classic(world, "csv", "undone.v1.0.0")?;
        ensure!(found == version, "was {version}, is {found}");
        let found = classic(world, "subscription", UNDONE)?;
        ensure!(
            found["spec"] == subscription["spec"]
                && found["metadata"]["labels"] == subscription["metadata"]["labels"],
            "was {subscription}, is {found}"
        );
        for key in ["state", "installedCSV", "currentCSV", "installPlanGeneration"] {
            ensure!(found["status"][key] == subscription["status"][key], "{found}");
        }

        olm(world, there)?.ended(0)?;
        unchanged(&before, &seen(world, UNDONE).await?)?;
        ensure!(pods(world, UNDONE)? == running, "Pods are made anew");
        is_ours(world, UNDONE).await?;
        patch_source(world, UNDONE, json!({"version": "1.0.1"})).await?;
        await_version(world, UNDONE, "1.0.1").await?;
        olm(world, "migrate undone -n undone --back --yes")?
            .ended(1)?
            .shows(&["blocked: ClusterExtension \"undone\" has revision 2 since the move"])?;
        Ok(())
    })
}
