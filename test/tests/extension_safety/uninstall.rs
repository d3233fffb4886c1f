//! Deletions that cannot go on, and what they leave.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::DeleteParams;
use olm_api::conditions::{self, reason};
use olm_api::names::{self, label, user};
use olm_test::extensions::{SOON, await_gone, await_progressing, await_version, extensions, revisions};
use olm_test::world::World;
use serde_json::{Value, json};

use super::{account_file, annotate, await_event, definition, file, greeting, install};

/// Takes the rights, the account, its namespace and the extension away. Gives what the condition says.
async fn remove_with_account(world: &World, name: &str) -> Result<String> {
    let installer = format!("{name}-installer");
    world.kubectl(&["delete", "clusterrolebinding,clusterrole", &installer])?;
    world.kubectl(&["delete", "serviceaccount", &installer, "-n", name])?;
    world.kubectl(&["delete", "namespace", name, "--wait=false"])?;
    // As long as it is to be there, nothing else is told than what has to be made again.
    world
        .eventually(&format!("what {name} lacks is told"), SOON, async || {
            let message = await_progressing(world, name, reason::RETRYING, "does not exist: create ").await?;
            ensure!(!message.contains("cannot write"), "{message}");
            Ok(Some(()))
        })
        .await?;
    extensions(world).delete(name, &DeleteParams::default()).await?;
    let parts = [
        "does not exist: create ",
        "cannot remove the objects of this revision",
        "object(s) may be left: ",
        &format!("service account {name}/{installer}"),
        user::UNINSTALL,
        ALL_AT_ONCE,
        "kind: ClusterRoleBinding\n",
    ];
    // What the revision said before it was deleted may be told first.
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

/// What stands before the roles that an account needs which is gone.
const ALL_AT_ONCE: &str = "If its roles and bindings are gone, too, apply with it:\n";

pub(crate) async fn a_deletion_without_account_is_explained_and_orphaning_ends_it(
    world: &World,
) -> Result<()> {
    install(world, "pot", "1.0.0").await?;
    remove_with_account(world, "pot").await?;
    annotate(world, "pot", user::UNINSTALL, Some("leave")).await?;
    await_progressing(world, "pot", reason::BLOCKED, "unknown value \"leave\"").await?;
    annotate(world, "pot", user::UNINSTALL, Some("orphan")).await?;
    await_gone(world, "pot").await?;
    let left = definition(world, "pot")?.context("the definition is left")?;
    ensure!(left.pointer("/metadata/ownerReferences").is_none(), "{left}");
    ensure!(left.pointer("/metadata/deletionTimestamp").is_none(), "{left}");
    ensure!(revisions(world).get_opt("pot-1").await?.is_none());
    // What was in the namespace went with it, which the controller may have seen.
    await_event(world, "pot", "Uninstalled", " on the cluster").await
}

/// As somebody does who wants a revision made anew: what users have stored stays, even while no other can be made.
async fn a_revision_is_deleted_by_hand(world: &World) -> Result<()> {
    world.apply(&[greeting("jar", "v1", "stored", json!({ "name": "x" }))])?;
    let uids = || -> Result<[String; 2]> {
        let definition = definition(world, "jar")?.context("the definition is gone")?;
        let uid = definition.pointer("/metadata/uid").and_then(Value::as_str);
        let stored = [
            "get",
            "greetings.jar.olm.example/stored",
            "-n",
            "jar",
            "-o",
            "jsonpath={.metadata.uid}",
        ];
        Ok([uid.unwrap_or_default().to_owned(), world.kubectl(&stored)?])
    };
    let before = uids()?;
    annotate(world, "jar", user::PAUSED, Some("yes")).await?;
    let message = await_progressing(
        world,
        "jar",
        reason::BLOCKED,
        "it is not paused: what is installed is kept",
    )
    .await?;
    ensure!(message.contains("unknown value \"yes\""), "{message}");
    revisions(world).delete("jar-1", &DeleteParams::default()).await?;
    let stays = "until the next revision of ClusterExtension jar has taken them over";
    let left = "left are CustomResourceDefinition.apiextensions.k8s.io/v1 /greetings.jar.olm.example";
    world
        .eventually("the revision says what stays", SOON, async || {
            let set = revisions(world).get("jar-1").await?;
            let told = conditions::find(set.conditions(), conditions::PROGRESSING);
            let message = told.map(|told| told.message.as_str()).unwrap_or_default();
            ensure!(message.contains(stays) && message.contains(left), "{message}");
            Ok(Some(()))
        })
        .await?;
    ensure!(uids()? == before, "what users have stored is gone");
    let told = "the ClusterObjectSet jar-1 is being deleted";
    await_progressing(world, "jar", reason::BLOCKED, told).await?;
    await_event(world, "jar", reason::BLOCKED, told).await?;
    annotate(world, "jar", user::PAUSED, None).await?;
    await_event(
        world,
        "jar",
        "Changing",
        "jar-1 is being deleted, jar-2 takes its place",
    )
    .await?;
    await_version(world, "jar", "1.0.0").await?;
    world
        .eventually("the deleted revision is gone", SOON, async || {
            Ok(revisions(world).get_opt("jar-1").await?.is_none().then_some(()))
        })
        .await?;
    ensure!(uids()? == before, "what users have stored is gone");
    let stored = ["delete", "greetings.jar.olm.example/stored", "-n", "jar"];
    world.kubectl(&stored).map(drop)
}

/// A revision that was deleted before its extension waits for what the extension says of the deletion.
pub(crate) async fn a_revision_deleted_by_hand_hears_what_is_to_stay(world: &World) -> Result<()> {
    install(world, "dish", "1.0.0").await?;
    world.apply(&[greeting("dish", "v1", "stored", json!({ "name": "x" }))])?;
    // No other revision can be made.
    annotate(world, "dish", user::PAUSED, Some("yes")).await?;
    await_progressing(world, "dish", reason::BLOCKED, "it is not paused").await?;
    revisions(world)
        .delete("dish-1", &DeleteParams::default())
        .await?;
    annotate(world, "dish", user::UNINSTALL, Some("keep-crd")).await?;
    extensions(world).delete("dish", &DeleteParams::default()).await?;
    await_progressing(world, "dish", reason::BLOCKED, "unknown value").await?;
    world
        .eventually("the revision waits for its extension", SOON, async || {
            let set = revisions(world).get("dish-1").await?;
            let told = conditions::find(set.conditions(), conditions::PROGRESSING);
            let message = told.map(|told| told.message.as_str()).unwrap_or_default();
            ensure!(message.contains("dish is being deleted, too"), "{message}");
            Ok(Some(()))
        })
        .await?;
    annotate(world, "dish", user::PAUSED, None).await?;
    annotate(world, "dish", user::UNINSTALL, Some("keep-crds")).await?;
    await_gone(world, "dish").await?;
    world.kubectl(&["get", "greetings.dish.olm.example/stored", "-n", "dish"])?;
    world.kubectl(&["delete", "greetings.dish.olm.example/stored", "-n", "dish"])?;
    world
        .kubectl(&["delete", "crd", "greetings.dish.olm.example"])
        .map(drop)
}

/// The message's own commands have it taken over.
async fn what_was_left_is_taken_over(world: &World) -> Result<()> {
    annotate(world, "jar", user::UNINSTALL, Some("orphan")).await?;
    extensions(world).delete("jar", &DeleteParams::default()).await?;
    await_gone(world, "jar").await?;
    world.kubectl(&["apply", "--server-side", "-f", &file(world, "jar", "1.0.0")?])?;
    let everything = "To have everything taken over that nobody controls: ";
    let message = await_progressing(world, "jar", reason::RETRYING, everything).await?;
    let (_, commands) = message.split_once(everything).context("the commands")?;
    for command in commands.lines().next().unwrap_or_default().split(" && ") {
        let words = command.strip_prefix("kubectl ").context("the command")?;
        world.kubectl(&words.split(' ').collect::<Vec<_>>())?;
    }
    await_version(world, "jar", "1.0.0").await.map(drop)
}

/// The message's own command ends a deletion that somebody's finalizer holds.
pub(crate) async fn what_was_gone_before_the_rest_was_left_is_told(world: &World) -> Result<()> {
    install(world, "jar", "1.0.0").await?;
    a_revision_is_deleted_by_hand(world).await.context("by hand")?;
    what_was_left_is_taken_over(world).await.context("taken over")?;
    let mut held = greeting("jar", "v1", "held", json!({ "name": "x" }));
    held["metadata"]["finalizers"] = json!(["jar.olm.example/wait"]);
    world.apply(&[held])?;
    extensions(world).delete("jar", &DeleteParams::default()).await?;
    let message = await_progressing(world, "jar", reason::RETRYING, "held by finalizers, which").await?;
    let (_, command) = message
        .split_once("To leave what remains on the cluster: kubectl ")
        .with_context(|| format!("the way out in {message}"))?;
    let command = command.lines().next().unwrap_or_default();
    world.kubectl(&command.split(' ').collect::<Vec<_>>())?;
    await_gone(world, "jar").await?;
    let going = "being deleted already and gone once nothing holds them, 1 object(s): CustomResourceDefinition \
                 greetings.jar.olm.example. Gone before that ";
    await_event(world, "jar", "Uninstalled", going).await?;
    world.kubectl(&[
        "patch",
        "greetings.jar.olm.example/held",
        "-n",
        "jar",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ])?;
    world
        .eventually("the definition is gone", SOON, async || {
            Ok(definition(world, "jar")?.is_none().then_some(()))
        })
        .await
}

pub(crate) async fn a_deletion_goes_on_when_the_account_is_back(world: &World) -> Result<()> {
    install(world, "pan", "1.0.0").await?;
    // Only a label says that it belongs to the extension: it is not in the way.
    world.apply(&[json!({
        "apiVersion": names::API_VERSION,
        "kind": "ClusterObjectSet",
        "metadata": { "name": "not-of-pan", "labels": { label::OWNER_NAME: "pan" } },
        "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })])?;
    let message = remove_with_account(world, "pan").await?;
    let (_, roles) = message.split_once(ALL_AT_ONCE).context("the roles")?;
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(world.client.clone());
    world
        .eventually("the namespace is gone", SOON, async || {
            Ok(namespaces.get_opt("pan").await?.is_none().then_some(()))
        })
        .await?;
    // What the first message says is enough, in one file.
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "pan-installer", "namespace": "pan" },
    });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "pan" } });
    let path = world.folder().join("pan-again.yaml");
    std::fs::write(&path, format!("{namespace}\n---\n{account}\n---\n{roles}"))?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    await_gone(world, "pan").await?;
    ensure!(definition(world, "pan")?.is_none(), "nothing is left");
    ensure!(revisions(world).get_opt("not-of-pan").await?.is_some());
    Ok(())
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

pub(crate) async fn what_goes_is_counted_before_and_nothing_of_ours_is_left(world: &World) -> Result<()> {
    let accounts = account_file(world, "ladle")?;
    world.kubectl(&["apply", "--server-side", "-f", &accounts])?;
    let before = world
        .eventually("the namespace is complete", SOON, async || {
            let found = mentioning(world, "ladle")?;
            let complete = ["ServiceAccount ladle/default", "ConfigMap ladle/kube-root-ca.crt"];
            Ok(complete
                .iter()
                .all(|object| found.contains(*object))
                .then_some(found))
        })
        .await?;
    install(world, "ladle", "1.0.0").await?;
    world
        .eventually("there is something to remove", SOON, async || {
            Ok((mentioning(world, "ladle")?.len() > before.len() + 5).then_some(()))
        })
        .await?;
    let mut held = greeting("ladle", "v1", "held", json!({ "name": "x" }));
    held["metadata"]["finalizers"] = json!(["ladle.olm.example/wait"]);
    world.apply(&[held, greeting("ladle", "v1", "free", json!({ "name": "x" }))])?;
    extensions(world)
        .delete("ladle", &DeleteParams::default())
        .await?;
    let counted = "uninstalling deletes 1 custom resource definition(s) with all objects of their kinds: 2 \
                   greetings.ladle.olm.example";
    await_event(world, "ladle", "Uninstalling", counted).await?;
    let message = await_progressing(world, "ladle", reason::RETRYING, "held by finalizers, which").await?;
    for part in [
        counted,
        "customresourcecleanup",
        "ladle/held (ladle.olm.example/wait)",
    ] {
        ensure!(message.contains(part), "{part:?} is not in {message}");
    }
    world.kubectl(&[
        "patch",
        "greetings.ladle.olm.example/held",
        "-n",
        "ladle",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ])?;
    await_gone(world, "ladle").await?;
    await_event(world, "ladle", "Uninstalled", "Removed all objects").await?;
    world
        .eventually("nothing of ours is left", SOON, async || {
            let left: Vec<String> = mentioning(world, "ladle")?.difference(&before).cloned().collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await
}
