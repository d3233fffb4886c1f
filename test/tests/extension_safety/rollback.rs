//! Rollbacks, and refusals of the API server during them.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Result, ensure};
use olm_api::conditions::{self, reason};
use olm_api::names::{annotation, user};
use olm_test::extensions::{
    SOON, administrator, await_progressing, await_version, extensions, installed_version, patch_source,
    revisions, rollback, unpin,
};
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::{CLUSTER, annotate, install};

/// The settings of the operator.
pub(crate) fn settings() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "immutable-settings-settings" },
        "data": { "greeting": "hello" },
    })
}

/// The files with settings that are immutable from 1.0.1 on.
pub(crate) fn with_immutable_settings(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text.replace(
            r#""data":{"greeting":"hello"}"#,
            r#""data":{"greeting":"hi"},"immutable":true"#,
        ),
        _ => text,
    }
}

const MAP: [&str; 4] = [
    "configmap",
    "immutable-settings-settings",
    "-n",
    "immutable-settings",
];

fn greeting(world: &World) -> Result<String> {
    world.kubectl(&[&["get"], &MAP[..], &["-o", "jsonpath={.data.greeting}"]].concat())
}

/// Pins 1.0.0 in spite of the refusal, and waits until the condition explains why nothing is applied.
async fn pinned(world: &World) -> Result<()> {
    let (done, text) = rollback(world, "immutable-settings", &["--accept-refusal"])?;
    ensure!(done, "{text}");
    let refused = "refuses objects of this revision (dry run); nothing is applied";
    let message = await_progressing(world, "immutable-settings", reason::RETRYING, refused).await?;
    let anew = format!(
        "set the annotation {} to \"true\", delete the object",
        user::PAUSED
    );
    for part in [
        "Kind=ConfigMap immutable-settings/immutable-settings-settings: ",
        "field is immutable",
        &anew,
    ] {
        ensure!(message.contains(part), "{part:?} is not in {message}");
    }
    ensure!(text.contains("olm unpin immutable-settings"), "{text}");
    Ok(())
}

/// The impersonated users of dry runs of the object.
fn asked_as(world: &World) -> Result<BTreeSet<String>> {
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let entries = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_object = entries.filter(|entry| {
        let uri = entry["requestURI"].as_str().unwrap_or_default();
        entry["verb"] == "patch"
            && uri.contains("/configmaps/immutable-settings-settings?")
            && uri.contains("dryRun=All")
    });
    let user = |entry: Value| entry["impersonatedUser"]["username"].as_str().map(str::to_owned);
    Ok(of_object.filter_map(user).collect())
}

/// The errors for a user who may read all objects, change none and impersonate no account.
fn as_reader(world: &World) -> Result<String> {
    let rbac = "rbac.authorization.k8s.io";
    world.apply(&[
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "immutable-settings-reader"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "immutable-settings-reader"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "immutable-settings-reader"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "immutable-settings-reader"}],
        }),
    ])?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(world.cluster.kubeconfig())?)?;
    config["users"][0]["user"]["as"] = "immutable-settings-reader".into();
    let path = world.folder().join("immutable-settings-reader.kubeconfig");
    std::fs::write(&path, config.to_string())?;
    let output = Command::new(binary("olm")?)
        .args(["rollback", "immutable-settings", "--dry-run", "--kubeconfig"])
        .arg(path)
        .output()?;
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn an_immutable_field_stops_a_rollback_before_and_after_it_is_pinned() -> Result<()> {
    CLUSTER.with(async |world| {
    world.apply(&administrator("immutable-settings", "immutable-settings-installer"))?;
    install(world, "immutable-settings", "1.0.0").await?;
    patch_source(world, "immutable-settings", json!({ "version": "1.0.1" })).await?;
    let before = await_version(world, "immutable-settings", "1.0.1").await?;

    let (done, text) = rollback(world, "immutable-settings", &[])?;
    for part in [
        "the API server refuses ConfigMap immutable-settings/immutable-settings-settings: ",
        "field is immutable",
        "refused: the API server refuses objects of that version, so operator-controller would change nothing",
        "--accept-refusal",
    ] {
        ensure!(!done && text.contains(part), "{part:?} is not in {text}");
    }
    ensure!(extensions(world).get("immutable-settings").await?.spec == before.spec);
    // The rights of the user are irrelevant, because the account will write the objects.
    let account = "system:serviceaccount:immutable-settings:immutable-settings-installer";
    ensure!(asked_as(world)? == BTreeSet::from([account.to_owned()]));
    world
        .eventually("a user who may not act as the account is refused", SOON, async || {
            let text = as_reader(world)?;
            for part in [
                "(you may not impersonate immutable-settings/immutable-settings-installer): it does not detect rights that the service account lacks",
                "cannot check whether the API server accepts ",
            ] {
                ensure!(text.contains(part), "{part:?} is not in {text}");
            }
            Ok(Some(()))
        })
        .await?;

    pinned(world).await?;
    let held = extensions(world).get("immutable-settings").await?;
    ensure!(installed_version(&held) == Some("1.0.1"));
    ensure!(conditions::is_true(held.conditions(), conditions::INSTALLED));
    ensure!(
        revisions(world).get_opt("immutable-settings-3").await?.is_none(),
        "nothing is half done"
    );
    ensure!(greeting(world)? == "hi");
    let (done, text) = unpin(world, "immutable-settings")?;
    ensure!(done && text.contains("are those before the rollback"), "{text}");
    let after = await_version(world, "immutable-settings", "1.0.1").await?;
    ensure!(after.spec == before.spec);
    ensure!(after.annotation(annotation::BEFORE_ROLLBACK).is_none());

    // The other remedy in the condition.
    pinned(world).await?;
    annotate(world, "immutable-settings", user::PAUSED, Some("true")).await?;
    let paused = "paused by the annotation";
    await_progressing(world, "immutable-settings", reason::BLOCKED, paused).await?;
    world
        .eventually("the object is gone and stays gone", SOON, async || {
            world.kubectl(&[&["delete", "--ignore-not-found"], &MAP[..]].concat())?;
            let set = revisions(world).get("immutable-settings-2").await?;
            let condition = conditions::find(set.conditions(), conditions::PROGRESSING);
            let message = condition.map(|condition| condition.message.as_str()).unwrap_or_default();
            ensure!(
                message.contains(paused) && message.contains("immutable-settings-settings"),
                "{message}"
            );
            Ok(Some(()))
        })
        .await?;
    annotate(world, "immutable-settings", user::PAUSED, None).await?;
    await_version(world, "immutable-settings", "1.0.0").await?;
    ensure!(greeting(world)? == "hello");
    Ok(())
    })
}
