//! Blocked deletions, and the objects that they keep.

mod all_at_once;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::DeleteParams;
use olm_api::conditions::{self, reason};
use olm_api::names::{self, label, user};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, extensions, rbac, rbac_subject, revisions,
};
use olm_test::world::World;
use serde_json::{Value, json};

use super::{CLUSTER, account_file, annotate, await_event, definition, file, greeting, install};

/// Removes the rights, the account, its namespace and the extension. Returns the message of the condition.
async fn remove_with_account(world: &World, name: &str) -> Result<String> {
    let installer = format!("{name}-installer");
    world.kubectl(&["delete", "clusterrolebinding,clusterrole", &installer])?;
    world.kubectl(&["delete", "serviceaccount", &installer, "-n", name])?;
    world.kubectl(&["delete", "namespace", name, "--wait=false"])?;
    // While the extension exists, the status reports only that the revision must be made again.
    world
        .eventually(&format!("the status says what {name} lacks"), SOON, async || {
            let message = await_progressing(world, name, reason::RETRYING, "does not exist: create ").await?;
            ensure!(!message.contains("cannot write"), "{message}");
            Ok(Some(()))
        })
        .await?;
    extensions(world).delete(name, &DeleteParams::default()).await?;
    let parts = [
        "does not exist: create ",
        "cannot remove the objects of this revision",
        " may be left: ",
        &format!("service account {name}/{installer}"),
        user::UNINSTALL,
        ALL_AT_ONCE,
    ];
    // The message from before the deletion may come first.
    let message = world
        .eventually(
            &format!("the deletion of {name} is explained"),
            SOON,
            async || {
                let message = await_progressing(world, name, reason::RETRYING, ALL_AT_ONCE).await?;
                let missing: Vec<_> = parts.iter().filter(|part| !message.contains(**part)).collect();
                ensure!(missing.is_empty(), "{missing:?} is not in {message}");
                Ok(Some(message))
            },
        )
        .await?;
    ensure!(definition(world, name)?.is_some(), "it cannot have been removed");
    Ok(message)
}

/// The text before the command for a missing account.
const ALL_AT_ONCE: &str = "If its roles are gone, too, `olm rbac clusterobjectset/";

#[test]
fn a_deletion_without_account_is_explained_and_orphaning_ends_it() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "lost-account", "1.0.0").await?;
        remove_with_account(world, "lost-account").await?;
        annotate(world, "lost-account", user::UNINSTALL, Some("leave")).await?;
        await_progressing(world, "lost-account", reason::BLOCKED, "unknown value \"leave\"").await?;
        annotate(world, "lost-account", user::UNINSTALL, Some("orphan")).await?;
        await_gone(world, "lost-account").await?;
        let left = definition(world, "lost-account")?.context("the definition is left")?;
        ensure!(left.pointer("/metadata/ownerReferences").is_none(), "{left}");
        ensure!(left.pointer("/metadata/deletionTimestamp").is_none(), "{left}");
        ensure!(revisions(world).get_opt("lost-account-1").await?.is_none());
        // The objects in the namespace were deleted with it, and the controller may have seen this.
        await_event(world, "lost-account", "Uninstalled", " on the cluster").await
    })
}

/// A user deletes a revision so that it is created again: custom resources stay, even while no other revision can be
/// created.
async fn a_revision_is_deleted_by_hand(world: &World) -> Result<()> {
    world.apply(&[greeting("held-deletion", "v1", "stored", json!({ "name": "x" }))])?;
    let uids = || -> Result<[String; 2]> {
        let definition = definition(world, "held-deletion")?.context("the definition is gone")?;
        let uid = definition.pointer("/metadata/uid").and_then(Value::as_str);
        let stored = [
            "get",
            "greetings.held-deletion.olm.example/stored",
            "-n",
            "held-deletion",
            "-o",
            "jsonpath={.metadata.uid}",
        ];
        Ok([uid.unwrap_or_default().to_owned(), world.kubectl(&stored)?])
    };
    let before = uids()?;
    annotate(world, "held-deletion", user::PAUSED, Some("yes")).await?;
    let message = await_progressing(
        world,
        "held-deletion",
        reason::BLOCKED,
        "it is not paused: drift is repaired",
    )
    .await?;
    ensure!(message.contains("unknown value \"yes\""), "{message}");
    revisions(world)
        .delete("held-deletion-1", &DeleteParams::default())
        .await?;
    let stays = "until the next revision of ClusterExtension held-deletion takes them over";
    let left =
        "Remaining: CustomResourceDefinition.apiextensions.k8s.io/v1 /greetings.held-deletion.olm.example";
    world
        .eventually("the revision says what stays", SOON, async || {
            let set = revisions(world).get("held-deletion-1").await?;
            let condition = conditions::find(set.conditions(), conditions::PROGRESSING);
            let message = condition
                .map(|condition| condition.message.as_str())
                .unwrap_or_default();
            ensure!(message.contains(stays) && message.contains(left), "{message}");
            Ok(Some(()))
        })
        .await?;
    ensure!(uids()? == before, "what users have stored is gone");
    let expected = "the ClusterObjectSet held-deletion-1 is being deleted";
    await_progressing(world, "held-deletion", reason::BLOCKED, expected).await?;
    await_event(world, "held-deletion", reason::BLOCKED, expected).await?;
    annotate(world, "held-deletion", user::PAUSED, None).await?;
    await_event(
        world,
        "held-deletion",
        "Changing",
        "held-deletion-1 is being deleted, held-deletion-2 replaces it",
    )
    .await?;
    await_version(world, "held-deletion", "1.0.0").await?;
    world
        .eventually("the deleted revision is gone", SOON, async || {
            Ok(revisions(world)
                .get_opt("held-deletion-1")
                .await?
                .is_none()
                .then_some(()))
        })
        .await?;
    ensure!(uids()? == before, "what users have stored is gone");
    let stored = [
        "delete",
        "greetings.held-deletion.olm.example/stored",
        "-n",
        "held-deletion",
    ];
    world.kubectl(&stored).map(drop)
}

/// A revision that was deleted before its extension waits for the uninstall policy of the extension.
#[test]
fn a_revision_deleted_before_its_extension_keeps_what_the_extension_keeps() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "deleted-revision", "1.0.0").await?;
        world.apply(&[greeting(
            "deleted-revision",
            "v1",
            "stored",
            json!({ "name": "x" }),
        )])?;
        // No other revision can be created.
        annotate(world, "deleted-revision", user::PAUSED, Some("yes")).await?;
        await_progressing(world, "deleted-revision", reason::BLOCKED, "it is not paused").await?;
        revisions(world)
            .delete("deleted-revision-1", &DeleteParams::default())
            .await?;
        annotate(world, "deleted-revision", user::UNINSTALL, Some("keep-crd")).await?;
        extensions(world)
            .delete("deleted-revision", &DeleteParams::default())
            .await?;
        await_progressing(world, "deleted-revision", reason::BLOCKED, "unknown value").await?;
        world
            .eventually("the revision waits for its extension", SOON, async || {
                let set = revisions(world).get("deleted-revision-1").await?;
                let condition = conditions::find(set.conditions(), conditions::PROGRESSING);
                let message = condition
                    .map(|condition| condition.message.as_str())
                    .unwrap_or_default();
                ensure!(
                    message.contains("waiting for ClusterExtension deleted-revision, which is being deleted"),
                    "{message}"
                );
                Ok(Some(()))
            })
            .await?;
        annotate(world, "deleted-revision", user::PAUSED, None).await?;
        annotate(world, "deleted-revision", user::UNINSTALL, Some("keep-crds")).await?;
        await_gone(world, "deleted-revision").await?;
        world.kubectl(&[
            "get",
            "greetings.deleted-revision.olm.example/stored",
            "-n",
            "deleted-revision",
        ])?;
        world.kubectl(&[
            "delete",
            "greetings.deleted-revision.olm.example/stored",
            "-n",
            "deleted-revision",
        ])?;
        world
            .kubectl(&["delete", "crd", "greetings.deleted-revision.olm.example"])
            .map(drop)
    })
}

/// The message's own commands have it taken over.
async fn orphaned_objects_are_taken_over(world: &World) -> Result<()> {
    annotate(world, "held-deletion", user::UNINSTALL, Some("orphan")).await?;
    extensions(world)
        .delete("held-deletion", &DeleteParams::default())
        .await?;
    await_gone(world, "held-deletion").await?;
    world.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &file(world, "held-deletion", "1.0.0")?,
    ])?;
    let everything = "To take over all objects without a controller: ";
    let message = await_progressing(world, "held-deletion", reason::RETRYING, everything).await?;
    let (_, commands) = message.split_once(everything).context("the commands")?;
    for command in commands.lines().next().unwrap_or_default().split(" && ") {
        let words = command.strip_prefix("kubectl ").context("the command")?;
        world.kubectl(&words.split(' ').collect::<Vec<_>>())?;
    }
    await_version(world, "held-deletion", "1.0.0").await.map(drop)
}

/// The command in the message ends a deletion that a foreign finalizer blocks.
#[test]
fn orphaning_reports_objects_that_were_gone_before() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "held-deletion", "1.0.0").await?;
        a_revision_is_deleted_by_hand(world).await.context("by hand")?;
        orphaned_objects_are_taken_over(world)
            .await
            .context("taken over")?;
        let mut held = greeting("held-deletion", "v1", "held", json!({ "name": "x" }));
        held["metadata"]["finalizers"] = json!(["held-deletion.olm.example/wait"]);
        world.apply(&[held])?;
        extensions(world)
            .delete("held-deletion", &DeleteParams::default())
            .await?;
        let message = await_progressing(
            world,
            "held-deletion",
            reason::RETRYING,
            "have finalizers of an operator that is gone",
        )
        .await?;
        let (_, command) = message
            .split_once("To keep the remaining objects, run kubectl ")
            .with_context(|| format!("the way out in {message}"))?;
        let command = command.lines().next().unwrap_or_default();
        world.kubectl(&command.split(' ').collect::<Vec<_>>())?;
        await_gone(world, "held-deletion").await?;
        let going = "already being deleted: CustomResourceDefinition \
                 greetings.held-deletion.olm.example. Removed earlier: ";
        await_event(world, "held-deletion", "Uninstalled", going).await?;
        world.kubectl(&[
            "patch",
            "greetings.held-deletion.olm.example/held",
            "-n",
            "held-deletion",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ])?;
        world
            .eventually("the definition is gone", SOON, async || {
                Ok(definition(world, "held-deletion")?.is_none().then_some(()))
            })
            .await
    })
}

#[test]
fn a_deletion_continues_when_the_account_is_back() -> Result<()> {
    CLUSTER.with(async |world| {
    install(world, "restored-account", "1.0.0").await?;
    // Only a label marks the set as part of the extension, so it does not block the deletion.
    world.apply(&[json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterObjectSet",
        "metadata": { "name": "not-of-restored-account", "labels": { label::OWNER_NAME: "restored-account" } },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })])?;
    let message = remove_with_account(world, "restored-account").await?;
    let roles = rbac(world, &[rbac_subject(&message).context("a command in the message")?])?;
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(world.client.clone());
    world
        .eventually("the namespace is gone", SOON, async || {
            Ok(namespaces.get_opt("restored-account").await?.is_none().then_some(()))
        })
        .await?;
    // All required objects, in one file.
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "restored-account-installer", "namespace": "restored-account" },
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "restored-account" } });
    let path = world.folder().join("restored-account-again.yaml");
    std::fs::write(&path, format!("{namespace}\n---\n{account}\n---\n{roles}"))?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    await_gone(world, "restored-account").await?;
    world
        .eventually("nothing is left", SOON, async || {
            Ok(definition(world, "restored-account")?.is_none().then_some(()))
        })
        .await?;
    ensure!(revisions(world).get_opt("not-of-restored-account").await?.is_some());
    Ok(())
    })
}

/// Every object of the cluster that has the name in it, but for events.
fn mentioning(world: &World, name: &str) -> Result<BTreeSet<String>> {
    let kinds = world.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    let text = world.kubectl(&["get", &kinds.join(","), "-A", "-o", "json", "--ignore-not-found"])?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list
        .pointer("/items")
        .and_then(Value::as_array)
        .context("a list")?;
    let found = items.iter().filter(|item| item.to_string().contains(name));
    Ok(found
        .map(|item| {
            let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            format!(
                "{} {}/{}",
                text("/kind"),
                text("/metadata/namespace"),
                text("/metadata/name")
            )
        })
        .collect())
}

#[test]
fn uninstalling_counts_the_deleted_objects_and_leaves_nothing_behind() -> Result<()> {
    CLUSTER.with(async |world| {
        let accounts = account_file(world, "traceless")?;
        world.kubectl(&["apply", "--server-side", "-f", &accounts])?;
        let before = world
            .eventually("the namespace is complete", SOON, async || {
                let found = mentioning(world, "traceless")?;
                let complete = [
                    "ServiceAccount traceless/default",
                    "ConfigMap traceless/kube-root-ca.crt",
                ];
                Ok(complete
                    .iter()
                    .all(|object| found.contains(*object))
                    .then_some(found))
            })
            .await?;
        install(world, "traceless", "1.0.0").await?;
        world
            .eventually("there is something to remove", SOON, async || {
                Ok((mentioning(world, "traceless")?.len() > before.len() + 5).then_some(()))
            })
            .await?;
        let mut held = greeting("traceless", "v1", "held", json!({ "name": "x" }));
        held["metadata"]["finalizers"] = json!(["traceless.olm.example/wait"]);
        world.apply(&[held, greeting("traceless", "v1", "free", json!({ "name": "x" }))])?;
        extensions(world)
            .delete("traceless", &DeleteParams::default())
            .await?;
        let counted = "uninstalling deletes 1 custom resource definition with all custom resources: 2 \
                   greetings.traceless.olm.example";
        await_event(world, "traceless", "Uninstalling", counted).await?;
        let message = await_progressing(
            world,
            "traceless",
            reason::RETRYING,
            "have finalizers of an operator that is gone",
        )
        .await?;
        for part in [
            counted,
            "customresourcecleanup",
            "traceless/held (traceless.olm.example/wait)",
        ] {
            ensure!(message.contains(part), "{part:?} is not in {message}");
        }
        world.kubectl(&[
            "patch",
            "greetings.traceless.olm.example/held",
            "-n",
            "traceless",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ])?;
        await_gone(world, "traceless").await?;
        await_event(world, "traceless", "Uninstalled", "Removed all objects").await?;
        world
            .eventually("nothing of ours is left", SOON, async || {
                let left: Vec<String> = mentioning(world, "traceless")?
                    .difference(&before)
                    .cloned()
                    .collect();
                ensure!(left.is_empty(), "{left:?}");
                Ok(Some(()))
            })
            .await
    })
}
