//! GitOps tools are never wrong about an extension, a revision or a catalog: at every write of a status, kstatus, Argo
//! CD and Flux say healthy exactly when the objects on the cluster are as the spec asks.

mod catalogs;
mod lifecycles;
mod oracle;
mod shipped;
mod watching;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use olm_api::names::{CLUSTER_OBJECT_SET, label};
use olm_test::extensions::{SOON, catalog};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};
use tokio::sync::watch;
use watching::Which;

/// Both managers, with the packages of all lifecycles in one catalog.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let mut blobs = String::new();
    for (package, change) in lifecycles::PACKAGES {
        blobs.push_str(&publish(&world, package, &["1.0.0", "1.0.1"], *change).await?);
    }
    let reference = world.push_catalog("gitops-catalog:latest", &blobs).await?;
    world.apply(&[catalog("gitops", &reference)])?;
    world.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "ccat/gitops"])?;
    Ok(world)
}

/// Changes a file of a version of a bundle.
type Change = fn(version: &str, path: &str, text: String) -> String;

/// Publishes versions of the sample operator under another name, each file changed; gives the catalog's blobs.
async fn publish(world: &World, package: &str, versions: &[&str], change: Change) -> Result<String> {
    let mut images = BTreeMap::new();
    for version in versions {
        let mut files = samples::renamed_bundle(package, version, samples::OPERATOR_IMAGE);
        files.insert(
            "metadata/dependencies.yaml".to_owned(),
            b"dependencies: []\n".to_vec(),
        );
        for (path, content) in &mut files {
            *content = change(version, path, String::from_utf8_lossy(content).into_owned()).into_bytes();
        }
        let name = format!("{package}-bundle:v{version}");
        images.insert(*version, world.push_bundle(&name, &files).await?);
    }
    let blobs = samples::catalog(versions, |version| {
        images.get(version).cloned().unwrap_or_default()
    });
    Ok(samples::renamed(package, &blobs))
}

/// Runs a lifecycle of an extension, and compares every write of its status, and of those of its revisions, with the
/// live objects.
fn lifecycle(name: &str, run: impl AsyncFnOnce(&World, &str) -> Result<()>) -> Result<()> {
    CLUSTER.with(async |world| {
        let truth = async |object: &Value| oracle::extension(world, object).await;
        let (stop, stopped) = watch::channel(false);
        let kind = "ClusterExtension";
        let following = watching::follow(&world.client, kind, Which::Name(name), truth, stopped.clone());
        let truth = async |object: &Value| oracle::object_set(world, object).await;
        let sets = Which::Label(label::OWNER_NAME, name);
        let following_sets = watching::follow(&world.client, CLUSTER_OBJECT_SET, sets, truth, stopped);
        let running = async {
            let done = run(world, name).await;
            stop.send_replace(true);
            done
        };
        let (extension, sets, done) = tokio::join!(following, following_sets, running);
        let judged = watching::judge(&extension?).and(watching::judge(&sets?));
        done?;
        judged
    })
}

/// Waits until all tools agree with the expected kstatus of an extension, and the live objects agree, too.
async fn rest(world: &World, name: &str, expected: &str) -> Result<Value> {
    let truth = async |object: &Value| oracle::extension(world, object).await;
    world
        .eventually(&format!("{name} is {expected}"), SOON, async || {
            let found = watching::settled(&world.client, "ClusterExtension", name, truth, expected).await;
            found.map(Some)
        })
        .await
}

/// The same, and the message of `Ready` has this part.
async fn says(world: &World, name: &str, expected: &str, part: &str) -> Result<()> {
    let truth = async |object: &Value| oracle::extension(world, object).await;
    world
        .eventually(
            &format!("{name} is {expected} and says {part:?}"),
            SOON,
            async || {
                let kind = "ClusterExtension";
                let object = watching::settled(&world.client, kind, name, truth, expected).await?;
                let conditions = object["status"]["conditions"].as_array();
                let ready =
                    conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Ready"));
                let message = ready
                    .and_then(|ready| ready["message"].as_str())
                    .unwrap_or_default();
                ensure!(message.contains(part), "{message}");
                Ok(Some(()))
            },
        )
        .await
}

/// Applies the extension at an exact version, with its namespace, account and rights.
fn apply(world: &World, name: &str, version: &str) -> Result<()> {
    apply_changed(world, name, version, |text| text)
}

fn apply_changed(
    world: &World,
    name: &str,
    version: &str,
    change: impl FnOnce(String) -> String,
) -> Result<()> {
    let path = world.sample_file("manifests/samples/greeter.yaml", name, |text| {
        change(text.replace("1.0.x", version))
    })?;
    world
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &path])
        .map(drop)
}

/// Sets or removes an annotation of an extension.
async fn annotate(world: &World, name: &str, key: &str, value: Option<&str>) -> Result<()> {
    olm_test::extensions::merge(
        world,
        name,
        json!({ "metadata": { "annotations": { key: value } } }),
    )
    .await
}
