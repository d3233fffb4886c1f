//! Extensions that the reference implementation installed, and objects created by hand, are taken over in place: no
//! object is created again, no Pod restarts. All tests share one cluster.

#![expect(clippy::panic, reason = "a test that cannot go on fails")]

mod boxcutter;
mod helm;
mod reference;
mod rollback;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use boxcutter::{an_upgrade_that_the_reference_began_is_finished, revisions_of_the_reference_go_on};
use helm::releases_of_helm_become_revisions;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_api::names::user;
use olm_api::{ClusterExtension, ClusterObjectSet, conditions};
use olm_bundle::{Request, prepare};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, merge, patch_source, revisions,
};
use olm_test::objects::api;
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, repository};
use reference::{Installed, SYSTEM, name};
use rollback::a_rollback_names_the_losses_before_it_begins;
use serde_json::{Value, json};

const NAME: &str = "greeter";
const VERSIONS: [&str; 3] = ["1.0.0", "1.0.1", "1.1.0"];
/// An environment variable that later versions do not have.
const OLD: &str = "OLD";

/// The files of a version.
fn files(version: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = samples::bundle(version, "sample-operator:v1");
    if version == "1.0.0" {
        for content in files.values_mut() {
            let first = "- name: OPERATOR_VERSION";
            let more =
                format!("- name: {OLD}\n                        value: set\n                      {first}");
            *content = String::from_utf8_lossy(content)
                .replace(first, &more)
                .into_bytes();
        }
    }
    files
}

/// The objects of a version as everybody renders them.
fn rendered(version: &str) -> Result<Vec<Value>> {
    Ok(prepare(&files(version), &BTreeMap::new(), &Request::new(NAME))?
        .rendered
        .into_objects())
}

/// The fields that must not change while an object is taken over.
#[derive(Debug, Clone, PartialEq)]
struct UnchangedFields {
    uid: String,
    spec: Value,
    /// Unknown if others write the status.
    resource_version: Option<String>,
}

async fn live(world: &World, object: &Value) -> Result<Value> {
    let live = api(&world.client, object).get(name(object)).await;
    let live = live.with_context(|| format!("{} {}", object["kind"], name(object)))?;
    Ok(serde_json::to_value(live)?)
}

async fn seen(world: &World, objects: &[Value]) -> Result<BTreeMap<String, UnchangedFields>> {
    let mut all = BTreeMap::new();
    for object in objects {
        let live = live(world, object).await?;
        let text = |key: &str| live["metadata"][key].as_str().unwrap_or_default().to_owned();
        let seen = UnchangedFields {
            uid: text("uid"),
            spec: live["spec"].clone(),
            resource_version: Some(text("resourceVersion")).filter(|_| object["kind"] != "Deployment"),
        };
        all.insert(format!("{} {}", object["kind"], name(object)), seen);
    }
    Ok(all)
}

/// The same objects, but written.
fn written(seen: BTreeMap<String, UnchangedFields>) -> BTreeMap<String, UnchangedFields> {
    let plain = |seen: UnchangedFields| UnchangedFields {
        resource_version: None,
        ..seen
    };
    seen.into_iter().map(|(key, seen)| (key, plain(seen))).collect()
}

/// Checks that the seen fields are equal.
fn unchanged(
    before: &BTreeMap<String, UnchangedFields>,
    after: &BTreeMap<String, UnchangedFields>,
) -> Result<()> {
    let changed: Vec<String> = before
        .iter()
        .filter(|(key, seen)| after.get(*key) != Some(seen))
        .map(|(key, seen)| format!("{key} was {seen:?}, is {:?}", after.get(key)))
        .collect();
    ensure!(changed.is_empty(), "{}", changed.join("\n"));
    Ok(())
}

async fn pods(world: &World) -> Result<Vec<Option<String>>> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAME);
    let listed = pods.list(&ListParams::default()).await?;
    let mut uids: Vec<_> = listed.items.into_iter().map(|pod| pod.metadata.uid).collect();
    uids.sort();
    Ok(uids)
}

/// Waits until the objects of the reference no longer change.
async fn settled(world: &World, objects: &[Value]) -> Result<()> {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let crd = objects
        .iter()
        .find(|object| object["kind"] == "CustomResourceDefinition");
    for (object, condition) in [(deployment, "Available"), (crd, "Established")] {
        let object = object.context("the sample has both")?;
        world
            .eventually(&format!("{} is {condition}", name(object)), SOON, async || {
                let live = live(world, object).await?;
                let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
                let is_there = conditions
                    .into_iter()
                    .flatten()
                    .any(|found| found["type"] == condition && found["status"] == "True");
                Ok(is_there.then_some(()))
            })
            .await?;
    }
    Ok(())
}

/// The extension's namespace and account, and the extension itself as the reference keeps it.
async fn extension(world: &World, account: bool) -> Result<ClusterExtension> {
    let text = std::fs::read_to_string(repository().join("manifests/samples/greeter.yaml"))?;
    let (before, _) = text
        .rsplit_once("---")
        .context("the extension is the last object")?;
    let path = world.folder().join("account.yaml");
    std::fs::write(&path, before)?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    let mut extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": NAME, "finalizers": [
            "olm.operatorframework.io/cleanup-unpack-cache", "olm.operatorframework.io/cleanup-contentmanager-cache",
        ]},
        "spec": {"namespace": NAME, "source": {"sourceType": "Catalog", "catalog": {
            "packageName": NAME, "channels": ["stable"], "version": "1.0.0",
        }}},
    });
    if account {
        extension["spec"]["serviceAccount"] = json!({"name": "greeter-installer"});
    }
    world.apply(&[extension])?;
    Ok(extensions(world).get(NAME).await?)
}

/// The first version of the sample as the reference has installed it.
fn greeter<'a>(
    extension: &'a ClusterExtension,
    image: &'a str,
    objects: &'a [Value],
) -> Result<Installed<'a>> {
    Ok(Installed {
        name: NAME,
        uid: extension.metadata.uid.as_deref().context("a UID")?,
        package: NAME,
        version: "1.0.0",
        image,
        objects,
    })
}

async fn sets(world: &World) -> Result<Vec<ClusterObjectSet>> {
    let mut sets = revisions(world).list(&ListParams::default()).await?.items;
    sets.sort_by_key(|set| set.spec.revision);
    Ok(sets)
}

/// Changes to a version without an edge in the update graph.
async fn to_1_1_0(world: &World) -> Result<()> {
    patch_source(
        world,
        NAME,
        json!({"version": "1.1.0", "upgradeConstraintPolicy": "SelfCertified"}),
    )
    .await?;
    await_version(world, NAME, "1.1.0").await.map(drop)
}

/// An upgrade changes the same objects and removes those that the new version lacks.
async fn upgrade(world: &World, objects: &[Value]) -> Result<()> {
    let before = seen(world, objects).await?;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let deployment = deployment.context("the sample has a Deployment")?;
    ensure!(live(world, deployment).await?.to_string().contains(OLD));
    to_1_1_0(world).await?;
    let after = live(world, deployment).await?;
    let before = &before[&format!("{} {}", deployment["kind"], name(deployment))];
    ensure!(
        after["metadata"]["uid"].as_str() == Some(before.uid.as_str()),
        "the Deployment was made anew"
    );
    ensure!(
        !after["spec"].to_string().contains(OLD),
        "what the new version leaves out is still there: {after}"
    );
    let sets = sets(world).await?;
    let numbers: Vec<i64> = sets.iter().map(|set| set.spec.revision).collect();
    ensure!(numbers == [1, 2], "revisions {numbers:?}");
    Ok(())
}

/// Uninstalls the extension and checks that nothing of it remains.
async fn uninstall(world: &World, objects: &[Value]) -> Result<()> {
    extensions(world).delete(NAME, &DeleteParams::default()).await?;
    await_gone(world, NAME).await?;
    ensure!(sets(world).await?.is_empty(), "a revision is left");
    for object in objects {
        let left = api(&world.client, object).get_opt(name(object)).await?;
        ensure!(left.is_none(), "{} {} is left", object["kind"], name(object));
    }
    world
        .eventually("the records are gone", SOON, async || {
            let secrets: Api<Secret> = Api::namespaced(world.client.clone(), SYSTEM);
            let left = secrets.list_metadata(&ListParams::default()).await?.items;
            let ours = |name: &String| name.contains(NAME);
            let names: Vec<String> = left
                .into_iter()
                .filter_map(|s| s.metadata.name)
                .filter(ours)
                .collect();
            ensure!(names.is_empty(), "{names:?}");
            Ok(Some(()))
        })
        .await
}

/// Both managers, the catalog, and the image of the first version and of the last. Every test installs the same
/// extension and removes it again.
static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

struct Stage {
    world: World,
    first: String,
    last: String,
}

impl Stage {
    async fn start() -> Result<Self> {
        let world = World::start(Options::default()).await?;
        let mut images = BTreeMap::new();
        for version in VERSIONS {
            let image = world
                .push_bundle(&format!("greeter-bundle:v{version}"), &files(version))
                .await?;
            images.insert(version, image);
        }
        let blobs = samples::catalog(&VERSIONS, |version| {
            images.get(version).cloned().unwrap_or_default()
        });
        let reference = world.push_catalog("greeter-catalog:latest", &blobs).await?;
        world.apply(&[catalog("samples", &reference)])?;
        let mut image = |version: &str| images.remove(version).context("the version is published");
        Ok(Self {
            first: image("1.0.0")?,
            last: image("1.1.0")?,
            world,
        })
    }
}

#[test]
fn revisions_of_the_reference_go_on_where_they_are() -> Result<()> {
    CLUSTER.alone(async |stage| revisions_of_the_reference_go_on(&mut stage.world, &stage.first).await)
}

#[test]
fn an_upgrade_that_the_reference_began_is_completed() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let images = [stage.first.as_str(), stage.last.as_str()];
        an_upgrade_that_the_reference_began_is_finished(&mut stage.world, images).await
    })
}

#[test]
fn releases_of_helm_become_revisions_without_a_restart() -> Result<()> {
    CLUSTER.alone(async |stage| releases_of_helm_become_revisions(&mut stage.world, &stage.first).await)
}

#[test]
fn objects_made_by_hand_are_taken_over_and_a_rollback_names_the_losses() -> Result<()> {
    CLUSTER.alone(async |stage| objects_made_by_hand_are_taken_over_when_the_user_says_so(&stage.world).await)
}

async fn objects_made_by_hand_are_taken_over_when_the_user_says_so(world: &World) -> Result<()> {
    let mut objects = rendered("1.0.0")?;
    objects.retain(|object| object["kind"] == "ServiceAccount");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}});
    world.apply(&[namespace])?;
    world.apply(&objects)?;
    let before = seen(world, &objects).await?;
    extension(world, true).await?;
    let collision = "revision object collisions";
    let message = await_progressing(world, NAME, conditions::reason::RETRYING, collision).await?;
    let expected = "/greeter-operator exists already and has no controller; it is not changed: delete it if it is not needed, or set \
                the annotation olm.operatorframework.io/adopt=\"unowned\"";
    ensure!(message.contains(expected), "{message}");
    unchanged(&before, &seen(world, &objects).await?)?;
    merge(
        world,
        NAME,
        json!({"metadata": {"annotations": {user::ADOPT: "unowned"}}}),
    )
    .await?;
    await_version(world, NAME, "1.0.0").await?;
    unchanged(&written(before), &written(seen(world, &objects).await?))?;
    a_rollback_names_the_losses_before_it_begins(world)
        .await
        .context("rollback")?;
    uninstall(world, &objects).await
}
