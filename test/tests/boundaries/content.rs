//! The Secrets with the content of revisions: no other object's name removes them.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::{self, annotation, label};
use olm_test::extensions::{
    administrator, await_gone, await_progressing, await_version, catalog, extensions, patch_source, revisions,
};
use olm_test::samples;
use olm_test::world::World;
use serde_json::{Value, json};

use crate::SOON;
use crate::running::{WORLD, extension, publish};

/// The UIDs of the Secrets of an extension's revisions by name.
async fn secrets(world: &World, extension: &str) -> Result<BTreeMap<String, String>> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), names::SYSTEM_NAMESPACE);
    let labelled = ListParams::default().labels(&format!("{}={extension}", label::OWNER_NAME));
    let found = secrets.list_metadata(&labelled).await?.items.into_iter();
    let found = found.filter(|secret| secret.metadata.deletion_timestamp.is_none());
    Ok(found
        .map(|secret| {
            (
                secret.metadata.name.unwrap_or_default(),
                secret.metadata.uid.unwrap_or_default(),
            )
        })
        .collect())
}

/// Waits until Kubernetes collects revisions without their owner, because it cannot orphan kinds that it has not
/// discovered yet. It looks for new kinds twice a minute.
async fn await_garbage_collection(world: &World) -> Result<()> {
    let owner = json!({
        "apiVersion": names::API_VERSION, "kind": names::CLUSTER_EXTENSION, "name": "nobody",
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true,
    });
    world.apply(&[json!({
        "apiVersion": names::API_VERSION, "kind": names::CLUSTER_OBJECT_SET,
        "metadata": { "name": "ownerless", "ownerReferences": [owner] },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })])?;
    world
        .eventually("Kubernetes collects what has no owner", SOON, async || {
            let left = revisions(world).get_opt("ownerless").await?;
            Ok(left.is_none().then_some(()))
        })
        .await
}

/// Kubernetes orphans the revision before the controller looks; then a namesake is created and deleted.
#[test]
fn a_namesake_of_an_orphaned_extension_deletes_nothing_of_it() -> Result<()> {
    WORLD.alone(async |world| {
        publish(world, "namesake").await?;
        world.apply(&administrator("namesake", "installer"))?;
        world.apply(&[extension("namesake", "namesake", Some("installer"))])?;
        await_version(world, "namesake", "1.0.0").await?;
        let content = secrets(world, "namesake").await?;
        ensure!(!content.is_empty(), "there is no content");
        await_garbage_collection(world).await?;
        let delete = ["delete", "clusterextension", "namesake", "--wait=false"];

        world.operator_controller.stop().await?;
        world.kubectl(&[&delete[..], &["--cascade=orphan"]].concat())?;
        world
            .eventually("Kubernetes has orphaned the revision", SOON, async || {
                let left = extensions(world).get("namesake").await?;
                let set = revisions(world).get("namesake-1").await?;
                let finalizers = left.metadata.finalizers.unwrap_or_default();
                let is_done = !finalizers.iter().any(|name| name == "orphan")
                    && set.metadata.owner_references.unwrap_or_default().is_empty();
                Ok(is_done.then_some(()))
            })
            .await?;
        world.start_operator_controller()?;
        world.operator_controller.ready().await?;
        await_gone(world, "namesake").await?;
        let left = secrets(world, "namesake").await?;
        ensure!(left == content, "of {content:?} the deletion left {left:?}");

        world.apply(&[extension("namesake", "namesake", None)])?;
        await_progressing(world, "namesake", "Blocked", "no service account").await?;
        world.kubectl(&delete)?;
        await_gone(world, "namesake").await?;
        let left = secrets(world, "namesake").await?;
        ensure!(left == content, "of {content:?} a namesake left {left:?}");

        // The orphaned revision continues to work, and its content is deleted with it.
        let deployment = ["deployment", "namesake-operator", "-n", "namesake"];
        world.kubectl(&[&["delete"], &deployment[..]].concat())?;
        world
            .eventually("the orphaned revision repairs", SOON, async || {
                world.kubectl(&[&["get"], &deployment[..]].concat()).map(Some)
            })
            .await?;
        world.kubectl(&["delete", "clusterobjectset", "namesake-1"])?;
        world
            .eventually("its content is gone", SOON, async || {
                let left = secrets(world, "namesake").await?;
                ensure!(left.is_empty(), "{left:?}");
                Ok(Some(()))
            })
            .await
    })
}

/// A Secret of a run that was interrupted before it created its revision is deleted with the extension. One that only
/// looks like it stays.
#[test]
fn a_deletion_removes_the_content_that_the_extension_made_and_no_other() -> Result<()> {
    WORLD.with(async |world| {
        world.apply(&[extension("maker", "maker", None)])?;
        await_progressing(world, "maker", "Blocked", "no service account").await?;
        let uid = extensions(world).get("maker").await?.metadata.uid;
        let secret = |name: &str, owner: Option<&str>| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": names::OBJECT_DATA_SECRET_TYPE, "immutable": true,
                "metadata": {
                    "name": name, "namespace": names::SYSTEM_NAMESPACE,
                    "labels": { label::OWNER_NAME: "maker", label::REVISION_NAME: "maker-1" },
                    "annotations": { names::annotation::OWNER_UID: owner.unwrap_or("another") },
                },
            })
        };
        world.apply(&[
            secret("maker-1-ours", uid.as_deref()),
            secret("maker-1-other", None),
        ])?;
        world.kubectl(&["delete", "clusterextension", "maker"])?;
        await_gone(world, "maker").await?;
        let left: Vec<String> = secrets(world, "maker").await?.into_keys().collect();
        ensure!(left == ["maker-1-other"], "{left:?}");
        Ok(())
    })
}

/// The objects of an extension that a rollout has applied: kind, name, UID and generation.
fn applied(world: &World, extension: &str) -> Result<String> {
    let kinds =
        "deployment,serviceaccount,clusterrole,clusterrolebinding,role,rolebinding,customresourcedefinition";
    let selector = format!("{}={extension}", label::OWNER_NAME);
    let lines = "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.metadata.generation}{\"\\n\"}{end}";
    world.kubectl(&["get", kinds, "-A", "-l", &selector, "-o", lines])
}

/// An object as a backup brings it back: without status, owners, finalizers and UID.
fn backup(world: &World, arguments: &[&str]) -> Result<Vec<Value>> {
    let text = world.kubectl(&[&["get", "-o", "json"], arguments].concat())?;
    let found: Value = serde_json::from_str(&text)?;
    let items = match found.get("items").and_then(Value::as_array) {
        Some(items) => items.clone(),
        None => vec![found],
    };
    let clean = |mut object: Value| {
        let metadata = object["metadata"].clone();
        let kept = ["name", "namespace", "labels", "annotations"];
        let kept = kept
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), metadata.get(key)?.clone())));
        object["metadata"] = kept.collect::<serde_json::Map<_, _>>().into();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        object
    };
    Ok(items.into_iter().map(clean).collect())
}

/// Waits until the rollout has no work left for an earlier version.
async fn await_complete(world: &World, version: &str) -> Result<()> {
    world
        .eventually("the newest revision alone is active", SOON, async || {
            let found = revisions(world).list(&ListParams::default()).await?.items;
            let mut active = found.iter().filter(|set| {
                set.label(label::OWNER_NAME) == Some("restored")
                    && set.spec.lifecycle_state == LifecycleState::Active
            });
            let (first, second) = (active.next(), active.next());
            let is_newest =
                first.is_some_and(|set| set.annotation(annotation::BUNDLE_VERSION) == Some(version));
            ensure!(is_newest && second.is_none(), "{first:?} {second:?}");
            Ok(Some(()))
        })
        .await
}

/// Backups restore Secrets before custom resources. Of these, the revision may come first, or only the extension, which
/// then creates its revision again. After an upgrade, roles have the name of an earlier version, which the revision
/// records.
#[test]
fn restored_objects_are_taken_over_and_not_created_anew() -> Result<()> {
    WORLD.alone(async |world| {
        let versions = ["1.0.0", "1.0.1"];
        let reference = world
            .publish("restored", &versions, samples::OPERATOR_IMAGE)
            .await?;
        world.apply(&[catalog("restored", &reference)])?;
        world.apply(&administrator("restored", "installer"))?;
        let mut pinned = extension("restored", "restored", Some("installer"));
        pinned["spec"]["source"]["catalog"]["version"] = json!("1.0.0");
        world.apply(&[pinned])?;
        await_version(world, "restored", "1.0.0").await?;
        await_garbage_collection(world).await?;
        for (version, brings_revision) in [("1.0.0", true), ("1.0.0", false), ("1.0.1", true)] {
            patch_source(world, "restored", json!({ "version": version })).await?;
            await_version(world, "restored", version).await?;
            let selector = format!("{}=restored", label::OWNER_NAME);
            let list = ["get", "clusterobjectset", "-l", &selector, "-o", "name"];
            await_complete(world, version).await?;
            let before = (applied(world, "restored")?, world.kubectl(&list)?);
            ensure!(before.0.lines().count() >= 4, "{before:?}");
            world.operator_controller.stop().await?;
            let content = backup(world, &["secret", "-n", names::SYSTEM_NAMESPACE, "-l", &selector])?;
            let sets = backup(world, &["clusterobjectset", "-l", &selector])?;
            let wanted = backup(world, &["clusterextension", "restored"])?;
            // The cluster after the loss has neither, and its objects have no owner.
            let names = before.1.lines().chain(["clusterextension/restored"]);
            for object in names {
                let none = r#"{"metadata":{"finalizers":null}}"#;
                world.kubectl(&["patch", object, "--type=merge", "-p", none])?;
                world.kubectl(&["delete", object, "--cascade=orphan", "--timeout=60s"])?;
            }
            world.kubectl(&["delete", "secret", "-n", names::SYSTEM_NAMESPACE, "-l", &selector])?;
            world.apply(&content)?;
            if brings_revision {
                world.apply(&sets)?;
            }
            world.apply(&wanted)?;
            world.start_operator_controller()?;
            world.operator_controller.ready().await?;
            await_version(world, "restored", version).await?;
            await_complete(world, version).await?;
            let after = (applied(world, "restored")?, world.kubectl(&list)?);
            ensure!(after == before, "of {before:?} there is {after:?}");
        }
        Ok(())
    })
}
