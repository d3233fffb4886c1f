//! Going back, and what the API server refuses on the way.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{self, reason};
use olm_api::names::user;
use olm_test::extensions::{
    SOON, administrator, await_progressing, await_version, extensions, installed_version, merge,
    patch_source, revisions, rollback,
};
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::{annotate, install};

/// What the operator reads.
pub(crate) fn settings() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "tin-settings" },
        "data": { "greeting": "hello" },
    })
}

/// From 1.0.1 on nobody may change it any more.
pub(crate) fn tin(version: &str, text: String) -> String {
    match version {
        "1.0.1" => text.replace(
            r#""data":{"greeting":"hello"}"#,
            r#""data":{"greeting":"hi"},"immutable":true"#,
        ),
        _ => text,
    }
}

const MAP: [&str; 4] = ["configmap", "tin-settings", "-n", "tin"];

fn greeting(world: &World) -> Result<String> {
    world.kubectl(&[&["get"], &MAP[..], &["-o", "jsonpath={.data.greeting}"]].concat())
}

/// Pins 1.0.0 whatever the API server says, and waits until the condition explains why nothing happens. Gives the patch that
/// lifts the pin.
async fn pinned(world: &World) -> Result<Value> {
    let (done, text) = rollback(world, "tin", &["--accept-refusal"])?;
    ensure!(done, "{text}");
    let refused = "refuses objects of this revision (dry run); nothing is applied";
    let message = await_progressing(world, "tin", reason::RETRYING, refused).await?;
    let anew = format!(
        "set the annotation {} to \"true\", delete the object",
        user::PAUSED
    );
    for part in ["Kind=ConfigMap tin/tin-settings: ", "field is immutable", &anew] {
        ensure!(message.contains(part), "{part:?} is not in {message}");
    }
    let (_, lift) = text
        .split_once("--type merge -p '")
        .context("how the pin is lifted")?;
    Ok(serde_json::from_str(lift.split('\'').next().unwrap_or_default())?)
}

/// The users as whom the API server was asked for dry runs of the object, as far as they were impersonated.
fn asked_as(world: &World) -> Result<BTreeSet<String>> {
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let entries = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_object = entries.filter(|entry| {
        let uri = entry["requestURI"].as_str().unwrap_or_default();
        entry["verb"] == "patch" && uri.contains("/configmaps/tin-settings?") && uri.contains("dryRun=All")
    });
    let user = |entry: Value| entry["impersonatedUser"]["username"].as_str().map(str::to_owned);
    Ok(of_object.filter_map(user).collect())
}

/// What is said to somebody who may see everything and neither change anything nor act as anybody.
fn as_reader(world: &World) -> Result<String> {
    let rbac = "rbac.authorization.k8s.io";
    world.apply(&[
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "tin-reader"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "tin-reader"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "tin-reader"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "tin-reader"}],
        }),
    ])?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(world.cluster.kubeconfig())?)?;
    config["users"][0]["user"]["as"] = "tin-reader".into();
    let path = world.folder().join("tin-reader.kubeconfig");
    std::fs::write(&path, config.to_string())?;
    let output = Command::new(binary("olm")?)
        .args(["rollback", "tin", "--dry-run", "--kubeconfig"])
        .arg(path)
        .output()?;
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) async fn a_field_that_never_changes_stops_a_rollback_before_and_after_it_is_pinned(
    world: &World,
) -> Result<()> {
    world.apply(&administrator("tin", "tin-installer"))?;
    install(world, "tin", "1.0.0").await?;
    patch_source(world, "tin", json!({ "version": "1.0.1" })).await?;
    let before = await_version(world, "tin", "1.0.1").await?;

    let (done, text) = rollback(world, "tin", &[])?;
    for part in [
        "the API server refuses ConfigMap tin/tin-settings: ",
        "field is immutable",
        "refused: the API server does not take objects of that version",
        "--accept-refusal",
    ] {
        ensure!(!done && text.contains(part), "{part:?} is not in {text}");
    }
    ensure!(extensions(world).get("tin").await?.spec == before.spec);
    // What the user may do says nothing: the account will write the objects.
    let account = "system:serviceaccount:tin:tin-installer";
    ensure!(asked_as(world)? == BTreeSet::from([account.to_owned()]));
    world
        .eventually("who may not act as the account is told", SOON, async || {
            let text = as_reader(world)?;
            for part in [
                "(you may not impersonate tin/tin-installer): rights that the account lacks are not found out",
                "object(s) was not found out: ",
            ] {
                ensure!(text.contains(part), "{part:?} is not in {text}");
            }
            Ok(Some(()))
        })
        .await?;

    let lift = pinned(world).await?;
    let held = extensions(world).get("tin").await?;
    ensure!(installed_version(&held) == Some("1.0.1"));
    ensure!(conditions::is_true(held.conditions(), conditions::INSTALLED));
    ensure!(
        revisions(world).get_opt("tin-3").await?.is_none(),
        "nothing is half done"
    );
    ensure!(greeting(world)? == "hi");
    merge(world, "tin", lift).await?;
    let after = await_version(world, "tin", "1.0.1").await?;
    ensure!(after.spec == before.spec);

    // The other way out, as the condition says.
    pinned(world).await?;
    annotate(world, "tin", user::PAUSED, Some("true")).await?;
    let paused = "paused by the annotation";
    await_progressing(world, "tin", reason::BLOCKED, paused).await?;
    world
        .eventually("the object is gone and stays gone", SOON, async || {
            world.kubectl(&[&["delete", "--ignore-not-found"], &MAP[..]].concat())?;
            let set = revisions(world).get("tin-2").await?;
            let told = conditions::find(set.conditions(), conditions::PROGRESSING);
            let message = told.map(|told| told.message.as_str()).unwrap_or_default();
            ensure!(
                message.contains(paused) && message.contains("tin-settings"),
                "{message}"
            );
            Ok(Some(()))
        })
        .await?;
    annotate(world, "tin", user::PAUSED, None).await?;
    await_version(world, "tin", "1.0.0").await?;
    ensure!(greeting(world)? == "hello");
    Ok(())
}
