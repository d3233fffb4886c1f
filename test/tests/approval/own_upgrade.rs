//! An upgrade and a downgrade of OLM itself: stored objects stay readable, and no object of a bundle is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{PROGRESSING, find};
use olm_test::extensions::{SOON, await_version, catalog, extensions, is_settled, patch_source};
use olm_test::samples;
use olm_test::world::{Lab, Options, World, repository};
use serde_json::{Value, json};

use super::decisions::olm;
use super::{apply, change, policy};

const NAME: &str = "kept";
/// The definitions of an earlier version, without the newer fields of status.
const EARLIER: &str = "test/samples/earlier-crds";
const PRESENT: &str = "manifests/crds";
/// The folder with the programs of an earlier version; without it, those of today stand for them.
const EARLIER_PROGRAMS: &str = "OLM_EARLIER";
/// The kinds of OLM.
const OWN: &str = "clusterextensions,clustercatalogs,clusterobjectsets,changepolicies,pendingchanges";
/// The kinds of the sample's objects.
const CONTENT: &str =
    "deployments,serviceaccounts,clusterroles,clusterrolebindings,customresourcedefinitions";
/// The time for which nothing must be written.
const QUIET: Duration = Duration::from_secs(5);

fn define(lab: &Lab, folder: &str) -> Result<()> {
    let folder = repository().join(folder).display().to_string();
    lab.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", &folder])?;
    let extensions = "crd/clusterextensions.olm.operatorframework.io";
    lab.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", extensions])
        .map(drop)
}

/// Publishes versions, and waits until they are served; the earlier definition has no `status.observedGeneration`.
async fn publish(world: &World, versions: &[&str]) -> Result<()> {
    let blobs = world
        .push_bundles(NAME, versions, samples::OPERATOR_IMAGE)
        .await?;
    let tag = format!("{NAME}-catalog:{}", versions.join("-"));
    let reference = world.push_catalog(&tag, &blobs).await?;
    world.apply(&[catalog(NAME, &reference)])?;
    world
        .eventually("the catalog is served", SOON, async || {
            let path = "jsonpath={.metadata.generation} {.status.conditions[?(@.type=='Serving')].observedGeneration} \
                        {.status.conditions[?(@.type=='Progressing')].observedGeneration} \
                        {.status.conditions[?(@.type=='Progressing')].reason}";
            let served = world.kubectl(&["get", "clustercatalog", NAME, "-o", path])?;
            let words: Vec<&str> = served.split_whitespace().collect();
            let [generation, serving, progressing, reason] = words.as_slice() else {
                anyhow::bail!("{served}");
            };
            let is_current = serving == generation && progressing == generation && *reason == "Succeeded";
            ensure!(is_current, "{served}");
            Ok(Some(()))
        })
        .await
}

/// Has both managers run the programs of a folder, or those that are built beside the tests.
fn install(world: &mut World, folder: Option<&Path>) {
    world.operator_controller.take_from(folder);
    world.catalogd.take_from(folder);
}

async fn stop(world: &mut World) -> Result<()> {
    world.operator_controller.stop().await?;
    world.catalogd.stop().await?;
    Ok(())
}

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn listed(world: &World, kinds: &str, more: &[&str]) -> Result<Objects> {
    let text = world.kubectl(&[&["get", kinds, "-A", "-o", "json"], more].concat())?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("a list")?;
    let named = items.iter().map(|item| {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        (
            format!("{} {name}", item["kind"].as_str().unwrap_or_default()),
            item.clone(),
        )
    });
    Ok(named.collect())
}

/// The parts of OLM's own objects that must not change: identity, spec, and with it the generation.
fn own(world: &World) -> Result<Objects> {
    let objects = listed(world, OWN, &[])?;
    let kinds = [
        "ClusterExtension",
        "ClusterCatalog",
        "ClusterObjectSet",
        "ChangePolicy",
        "PendingChange",
    ];
    for kind in kinds {
        ensure!(
            objects.keys().any(|key| key.starts_with(&format!("{kind} "))),
            "no {kind}"
        );
    }
    let kept = |object: Value| {
        let metadata = &object["metadata"];
        json!([metadata["uid"], metadata["generation"], object["spec"]])
    };
    Ok(objects
        .into_iter()
        .map(|(key, object)| (key, kept(object)))
        .collect())
}

/// The parts of a bundle's objects that must not change. Other controllers write the status of a Deployment.
fn content(world: &World) -> Result<Objects> {
    let selector = format!("olm.operatorframework.io/owner-name={NAME}");
    let objects = listed(world, CONTENT, &["-l", &selector])?;
    ensure!(objects.len() > 4, "{:?}", objects.keys());
    let kept = |object: Value| {
        let metadata = &object["metadata"];
        let written = match object["kind"].as_str() {
            Some("Deployment") => &metadata["generation"],
            _ => &metadata["resourceVersion"],
        };
        json!([metadata["uid"], written])
    };
    Ok(objects
        .into_iter()
        .map(|(key, object)| (key, kept(object)))
        .collect())
}

fn unchanged(before: &Objects, after: &Objects) -> Result<()> {
    let differs = |(key, seen): &(&String, &Value)| after.get(*key) != Some(seen);
    let changed: Vec<_> = before.iter().filter(differs).collect();
    ensure!(changed.is_empty(), "{changed:?} in {after:?}");
    Ok(())
}

/// Waits until the running controller has reconciled another spec with the same version.
async fn reconciled(world: &World, range: &str) -> Result<()> {
    patch_source(world, NAME, json!({ "version": range })).await?;
    world
        .eventually("the new spec is reconciled", SOON, async || {
            let extension = extensions(world).get(NAME).await?;
            let progressing = find(extension.conditions(), PROGRESSING).context("no condition")?;
            ensure!(
                progressing.observed_generation == extension.metadata.generation && is_settled(&extension),
                "{:?}",
                extension.status
            );
            Ok(Some(()))
        })
        .await
}

/// Checks that none of our objects is written repeatedly, as could happen if a definition drops fields.
async fn at_rest(world: &World) -> Result<()> {
    let versions = || -> Result<Objects> {
        let objects = listed(world, OWN, &[])?.into_iter();
        Ok(objects
            .map(|(key, object)| (key, object["metadata"]["resourceVersion"].clone()))
            .collect())
    };
    world
        .eventually("nothing is written", SOON, async || {
            let before = versions()?;
            tokio::time::sleep(QUIET).await;
            unchanged(&before, &versions()?).map(Some)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_objects_survive_an_upgrade_and_a_downgrade_of_olm() -> Result<()> {
    let lab = Lab::with_manifests("manifests/base").await?;
    define(&lab, EARLIER)?;
    let earlier = std::env::var_os(EARLIER_PROGRAMS).map(PathBuf::from);
    let options = Options {
        programs: earlier.clone(),
        ..Options::default()
    };
    let mut world = World::over(lab, options).await?;
    publish(&world, &["1.0.0"]).await?;
    policy(&world, NAME, &json!({ "approval": { "patch": "Manual" } }))?;
    apply(&world, NAME, "1.0.x")?;
    await_version(&world, NAME, "1.0.0").await?;
    publish(&world, &["1.0.0", "1.0.1"]).await?;
    let pending = change(&world, NAME, "1.0.1", "AwaitingApproval").await?;
    let status = |world: &World| -> Result<Value> {
        let objects = listed(world, "clusterextensions", &[])?;
        Ok(objects.values().next().context("an extension")?["status"].clone())
    };
    ensure!(
        status(&world)?["updates"].is_null(),
        "the earlier definition has no such field"
    );
    at_rest(&world).await?;
    let (own_before, content_before) = (own(&world)?, content(&world)?);

    // The upgrade.
    stop(&mut world).await?;
    define(&world, PRESENT)?;
    unchanged(&own_before, &own(&world)?)?;
    install(&mut world, None);
    world.start_managers().await?;
    world
        .eventually("the status has the fields of today", SOON, async || {
            let status = status(&world)?;
            ensure!(status["updates"]["heldBackBy"] == "Approval", "{status}");
            Ok(Some(()))
        })
        .await?;
    at_rest(&world).await?;
    unchanged(&own_before, &own(&world)?)?;
    unchanged(&content_before, &content(&world)?)?;
    // The stored change still waits, and can be decided.
    let printed = olm(&world, &["approve", NAME, "--yes"])?;
    ensure!(printed.contains(&pending.spec.digest), "{printed}");
    await_version(&world, NAME, "1.0.1").await?;
    change(&world, NAME, "1.0.1", "Succeeded").await?;
    at_rest(&world).await?;

    // The downgrade.
    let (own_before, content_before) = (own(&world)?, content(&world)?);
    stop(&mut world).await?;
    define(&world, EARLIER)?;
    unchanged(&own_before, &own(&world)?)?;
    let extension = extensions(&world).get(NAME).await?;
    ensure!(is_settled(&extension), "{:?}", extension.status);
    install(&mut world, earlier.as_deref());
    world.start_managers().await?;
    reconciled(&world, ">=1.0.0 <1.0.2").await?;
    unchanged(&content_before, &content(&world)?)?;
    at_rest(&world).await
}
