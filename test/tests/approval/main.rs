//! Changes wait for approvals and windows, and every applied change equals an approved one. The stored objects survive
//! an upgrade and a downgrade of OLM.

mod decisions;
mod own_upgrade;
mod race;
mod ui;
mod windows;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::ListParams;
use olm_api::conditions::{READY, find};
use olm_api::pending_change::APPLIED;
use olm_api::{ClusterExtension, PendingChange};
use olm_test::extensions::{SOON, await_version, catalog, extensions, own_name};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// Both managers. Each scenario has a package, a catalog and a policy of its own.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(World::start(Options::default())));

/// Publishes versions of the sample operator under another name in a catalog of their own.
async fn publish(world: &World, name: &str, versions: &[&str]) -> Result<()> {
    let blobs = world
        .push_bundles(name, versions, samples::OPERATOR_IMAGE)
        .await?;
    let tag = versions.join("-");
    let reference = world
        .push_catalog(&format!("{name}-catalog:{tag}"), &blobs)
        .await?;
    world.apply(&[catalog(name, &reference)])?;
    let image = reference.clone();
    world
        .eventually(&format!("{name} serves {tag}"), SOON, async || {
            let served = world.kubectl(&[
                "get",
                "ccat",
                name,
                "-o",
                "jsonpath={.status.observedGeneration} {.metadata.generation} {.status.conditions[?(@.type=='Ready')].status}",
            ])?;
            let words: Vec<&str> = served.split_whitespace().collect();
            ensure!(
                words.first() == words.get(1) && words.get(2) == Some(&"True"),
                "{image}: {served}"
            );
            Ok(Some(()))
        })
        .await
}

/// Applies the extension at a version or range, with its namespace, account and rights, and with the label of its
/// policy.
fn apply(world: &World, name: &str, version: &str) -> Result<()> {
    let path = world.sample_file("manifests/samples/greeter.yaml", name, |text| {
        let labels = format!("kind: ClusterExtension\nmetadata:\n  labels: {{example.com/policy: {name}}}\n");
        text.replace("1.0.x", version)
            .replace("kind: ClusterExtension\nmetadata:\n", &labels)
    })?;
    world
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &path])
        .map(drop)
}

/// Applies the policy of a scenario.
fn policy(world: &World, name: &str, rules: &Value) -> Result<()> {
    let mut spec = json!({ "selector": { "matchLabels": { "example.com/policy": name } } });
    if let (Some(spec), Some(rules)) = (spec.as_object_mut(), rules.as_object()) {
        spec.extend(rules.clone());
    }
    world.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ChangePolicy", "metadata": { "name": name }, "spec": spec,
    })])
}

fn changes(world: &World) -> Api<PendingChange> {
    Api::all(world.client.clone())
}

/// The PendingChange of an extension to a version whose condition `Applied` has this reason.
async fn change(world: &World, name: &str, to: &str, reason: &str) -> Result<PendingChange> {
    world
        .eventually(
            &format!("a change of {name} to {to} is {reason}"),
            SOON,
            async || {
                let all = changes(world).list(&ListParams::default()).await?;
                let mut ours = all
                    .items
                    .into_iter()
                    .filter(|change| change.spec.extension == name && change.spec.to == to);
                let is = |change: &PendingChange| {
                    find(change.conditions(), APPLIED).is_some_and(|applied| applied.reason == reason)
                };
                Ok(ours.find(is))
            },
        )
        .await
}

/// Waits until `Ready` of an extension has this status and reason, and a message with this part.
async fn ready(
    world: &World,
    name: &str,
    status: &str,
    reason: &str,
    part: &str,
) -> Result<ClusterExtension> {
    world
        .eventually(&format!("{name} is {status} {reason}"), SOON, async || {
            let extension = extensions(world).get(name).await?;
            let ready = find(extension.conditions(), READY).context("no condition Ready")?;
            ensure!(
                ready.status == status && ready.reason == reason && ready.message.contains(part),
                "{ready:?}"
            );
            Ok(Some(extension))
        })
        .await
}

/// The blocker of the next bundle.
fn held_back_by(extension: &ClusterExtension) -> Option<&str> {
    let updates = extension.status.as_ref()?.updates.as_ref()?;
    updates.held_back_by.as_deref()
}

/// Installs 1.0.0 under a policy, and publishes 1.0.1.
async fn install_and_update(world: &World, name: &str, rules: &Value) -> Result<()> {
    publish(world, name, &["1.0.0"]).await?;
    policy(world, name, rules)?;
    apply(world, name, "1.0.x")?;
    await_version(world, name, "1.0.0").await?;
    publish(world, name, &["1.0.0", "1.0.1"]).await
}
