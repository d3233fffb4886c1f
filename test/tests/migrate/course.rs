//! The move: nothing that runs is changed, and the result is a ClusterExtension like any other.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{self, INSTALLED};
use olm_test::extensions::{administrator, await_version, patch_source, revisions};
use olm_test::objects::api;
use olm_test::world::World;
use serde_json::{Value, json};

use super::{CLUSTER, MOVED, olm, versions};

/// The objects of the operator: API version, kind and name.
pub(crate) fn operator(package: &str) -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let (role, cluster_role) = (
        format!("{package}.v1.0.0-{package}-operator-5d8f7c"),
        format!("{package}.v1.0.0-7b6c9d"),
    );
    let operator = format!("{package}-operator");
    let definition = format!("greetings.{package}.olm.example");
    [
        ("v1", "ServiceAccount", operator.as_str(), true),
        (rbac, "Role", &role, true),
        (rbac, "RoleBinding", &role, true),
        (rbac, "ClusterRole", &role, false),
        (rbac, "ClusterRoleBinding", &role, false),
        (rbac, "ClusterRole", &cluster_role, false),
        (rbac, "ClusterRoleBinding", &cluster_role, false),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &definition,
            false,
        ),
        ("apps/v1", "Deployment", &operator, true),
    ]
    .map(|(api_version, kind, name, is_namespaced)| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        if is_namespaced {
            object["metadata"]["namespace"] = json!(package);
        }
        object
    })
    .to_vec()
}

/// Parts of each object that must not change: identity, generation and all but metadata and status. Kubernetes counts a
/// change of annotations as a generation of a Deployment: there the generation of its only ReplicaSet stands for it.
pub(crate) async fn seen(world: &World, package: &str) -> Result<BTreeMap<String, Value>> {
    seen_of(world, package, &operator(package)).await
}

/// The same of these objects.
pub(crate) async fn seen_of(
    world: &World,
    package: &str,
    objects: &[Value],
) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let live = api(&world.client, object).get(name).await;
        let mut live = serde_json::to_value(live.with_context(|| format!("{} {name}", object["kind"]))?)?;
        let metadata = &live["metadata"];
        let generation = match object["kind"] == "Deployment" {
            true => json!(replica_sets(world, package)?),
            false => metadata["generation"].clone(),
        };
        let identity = json!([metadata["uid"], generation, metadata["creationTimestamp"]]);
        live["metadata"] = identity;
        live["status"] = Value::Null;
        all.insert(format!("{} {name}", object["kind"]), live);
    }
    Ok(all)
}

pub(crate) fn unchanged(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Result<()> {
    for (key, value) in before {
        ensure!(
            after.get(key) == Some(value),
            "{key} was {value}, is {:?}",
            after.get(key)
        );
    }
    Ok(())
}

fn replica_sets(world: &World, package: &str) -> Result<String> {
    let form = "jsonpath={range .items[*]}{.metadata.uid} {.metadata.generation} {.spec.replicas}{end}";
    world.kubectl(&["get", "replicasets", "-n", package, "-o", form])
}

pub(crate) fn pods(world: &World, package: &str) -> Result<String> {
    let form =
        "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}";
    world.kubectl(&["get", "pods", "-n", package, "-o", form])
}

/// An operator at rest, with an account for its extension.
pub(crate) fn settled(world: &World, package: &str) -> Result<()> {
    let deployment = format!("deployment/{package}-operator");
    world.kubectl(&[
        "wait",
        "--for=condition=Available",
        "--timeout=120s",
        "-n",
        package,
        &deployment,
    ])?;
    world.apply(&administrator(package, "cook"))?;
    let manual = json!({"spec": {"installPlanApproval": "Manual"}}).to_string();
    world
        .kubectl(&[
            "patch",
            "subscription",
            package,
            "-n",
            package,
            "--type=merge",
            "-p",
            &manual,
        ])
        .map(drop)
}

#[test]
fn an_operator_moves_without_a_change_of_what_runs_and_is_upgraded_afterwards() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        settled(world, MOVED)?;
        let (before, running) = (seen(world, MOVED).await?, pods(world, MOVED)?);
        ensure!(!running.is_empty(), "no Pod runs");
        olm(
            world,
            "migrate moved -n moved --service-account cook --yes --wait --timeout 2m",
        )?
        .ended(0)?;
        unchanged(&before, &seen(world, MOVED).await?)?;
        ensure!(pods(world, MOVED)? == running, "Pods are made anew");

        let left = world.kubectl(&["get", "subscriptions,csv", "-n", MOVED, "-o", "name"])?;
        ensure!(left.is_empty(), "{left}");
        is_ours(world, MOVED).await?;
        let extension = await_version(world, MOVED, "1.0.0").await?;
        ensure!(
            conditions::is_true(extension.conditions(), INSTALLED),
            "{extension:?}"
        );
        let made = versions(world)?;
        olm(world, "migrate moved -n moved --yes")?
            .ended(0)?
            .shows(&["nothing to do"])?;
        ensure!(versions(world)? == made, "the second run has written");
        ensure!(
            revisions(world).get_opt("moved-2").await?.is_none(),
            "there is a second revision"
        );

        patch_source(world, MOVED, json!({"version": "1.0.1"})).await?;
        await_version(world, MOVED, "1.0.1").await?;
        // Roles have other names in each version.
        for kind in ["Deployment", "ServiceAccount", "CustomResourceDefinition"] {
            let object = operator(MOVED).into_iter().find(|object| object["kind"] == kind);
            let object = object.context("the operator has one")?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let after = serde_json::to_value(api(&world.client, &object).get(name).await?)?;
            let uid = before
                .get(&format!("\"{kind}\" {name}"))
                .map(|live| &live["metadata"][0]);
            ensure!(
                uid == Some(&after["metadata"]["uid"]),
                "{kind} {name} is made anew"
            );
            ensure!(
                !after["spec"].to_string().contains("olm.operatorGroup"),
                "what classic added is still there: {after}"
            );
        }
        Ok(())
    })
}

/// Every object has the revision as its controller, and nothing of OLM classic.
pub(crate) async fn is_ours(world: &World, package: &str) -> Result<()> {
    are_ours(world, package, &operator(package)).await
}

/// The same of these objects.
pub(crate) async fn are_ours(world: &World, package: &str, objects: &[Value]) -> Result<()> {
    let revision = format!("{package}-1");
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let live = serde_json::to_value(api(&world.client, object).get(name).await?)?;
        let metadata = &live["metadata"];
        let owners = metadata["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ensure!(
            owners.len() == 1 && owners[0]["name"] == *revision && owners[0]["controller"] == true,
            "{name}: {owners:?}"
        );
        for part in [
            "olm.owner",
            "olm.managed",
            "operators.coreos.com",
            "installed-alongside",
            "webhook-description",
            "\"manager\":\"catalog\"",
            "\"manager\":\"olm\"",
        ] {
            ensure!(!metadata.to_string().contains(part), "{part} is left: {metadata}");
        }
    }
    Ok(())
}

#[test]
fn a_move_that_is_blocked_writes_nothing() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        let before = versions(world)?;
        olm(world, "migrate blocked -n blocked --service-account cook --yes")?
            .ended(1)?
            .shows(&["blocked (catalog): no ClusterCatalog has the image"])?;
        olm(world, "migrate movable -n movable --yes")?
            .ended(1)?
            .shows(&["to acknowledge (service-account)"])?;
        olm(world, "migrate movable -n movable --service-account cook")?
            .ended(1)?
            .shows(&["cannot ask for confirmation", "--yes"])?;
        ensure!(versions(world)? == before, "a blocked move has written");
        let other = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "00000000-0000-0000-0000-000000000001",
            "controller": true,
        }]);
        let patch = |owners: &Value| json!({"metadata": {"ownerReferences": owners}}).to_string();
        let crd = ["patch", "crd", "greetings.movable.olm.example", "--type=merge", "-p"];
        world.kubectl(&[crd.as_slice(), &[&patch(&other)]].concat())?;
        let owned = versions(world)?;
        olm(world, "migrate movable -n movable --service-account cook --yes")?
            .ended(1)?
            .shows(&["cannot take over CustomResourceDefinition", "controls it"])?;
        ensure!(versions(world)? == owned, "a refused move has written");
        world.kubectl(&[crd.as_slice(), &[&patch(&json!([]))]].concat())?;
        Ok(())
    })
}
