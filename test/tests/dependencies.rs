//! Dependencies on real parts: a bundle that requires something says what to install and is installed by itself once that
//! is there; what it depends on is neither updated nor uninstalled from under it, unless the user says so.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::{ClusterExtension, conditions, names};
use olm_test::samples;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "kitchen";

/// The files of the sample operator as those of another package, whose kind has the package's name.
fn bundle(package: &str, kind: &str, version: &str) -> BTreeMap<String, Vec<u8>> {
    let rename = |text: &str| {
        text.replace("greetings", &format!("{package}s"))
            .replace("greeting", package)
            .replace("Greeting", kind)
            .replace("greeter", package)
            .replace("samples.olm.example", &format!("{package}.olm.example"))
    };
    samples::bundle(version, samples::OPERATOR_IMAGE)
        .into_iter()
        .map(|(path, content)| (path, rename(&String::from_utf8_lossy(&content)).into_bytes()))
        .collect()
}

fn api(package: &str, kind: &str) -> Value {
    json!({ "group": format!("{package}.olm.example"), "kind": kind, "version": "v1" })
}

/// Package `stove` in two versions, and package `kettle`, which requires the first of them.
async fn publish(world: &World) -> Result<String> {
    let mut blobs = Vec::new();
    let packages = [
        ("stove", "Stove", &["1.0.0", "2.0.0"][..], vec![]),
        (
            "kettle",
            "Kettle",
            &["1.0.0"][..],
            vec![
                json!({ "type": "olm.package.required", "value": { "packageName": "stove", "versionRange": ">=1.0.0 <2.0.0" } }),
                json!({ "type": "olm.gvk.required", "value": api("stove", "Stove") }),
            ],
        ),
    ];
    for (package, kind, versions, required) in packages {
        blobs.push(json!({ "schema": "olm.package", "name": package, "defaultChannel": "stable" }));
        let name = |version: &str| format!("{package}.v{version}");
        let mut entries = Vec::new();
        for (index, version) in versions.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| name(versions[before]));
            entries.push(json!({ "name": name(version), "replaces": before }));
            let image = world
                .push_bundle(
                    &format!("{package}-bundle:v{version}"),
                    &bundle(package, kind, version),
                )
                .await?;
            let mut properties = vec![
                json!({ "type": "olm.package", "value": { "packageName": package, "version": version } }),
                json!({ "type": "olm.gvk", "value": api(package, kind) }),
            ];
            properties.extend(required.iter().cloned());
            blobs.push(
                json!({ "schema": "olm.bundle", "package": package, "name": name(version), "image": image,
                "properties": properties }),
            );
        }
        blobs.push(
            json!({ "schema": "olm.channel", "package": package, "name": "stable", "entries": entries }),
        );
    }
    let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    world.push_catalog("kitchen-catalog:latest", &text).await
}

fn extensions(world: &World) -> Api<ClusterExtension> {
    Api::all(world.client.clone())
}

fn installed(extension: &ClusterExtension) -> Option<&str> {
    let install = extension.status.as_ref()?.install.as_ref()?;
    Some(&install.bundle.version)
}

async fn await_version(world: &World, name: &str, version: &str) -> Result<()> {
    world
        .eventually(&format!("{name} is at {version}"), SOON, async || {
            let extension = extensions(world).get(name).await?;
            let settled = conditions::find(extension.conditions(), conditions::PROGRESSING)
                .is_some_and(|progressing| progressing.reason == conditions::reason::SUCCEEDED);
            if settled && installed(&extension) == Some(version) {
                return Ok(Some(()));
            }
            anyhow::bail!("status is {}", serde_json::to_string(&extension.status)?)
        })
        .await
}

async fn await_progressing(world: &World, name: &str, reason: &str, part: &str) -> Result<String> {
    world
        .eventually(&format!("{name} is {reason} with {part:?}"), SOON, async || {
            let extension = extensions(world).get(name).await?;
            match conditions::find(extension.conditions(), conditions::PROGRESSING) {
                Some(found) if found.reason == reason && found.message.contains(part) => {
                    Ok(Some(found.message.clone()))
                }
                _ => anyhow::bail!("status is {}", serde_json::to_string(&extension.status)?),
            }
        })
        .await
}

async fn patch(world: &World, name: &str, patch: Value) -> Result<()> {
    extensions(world)
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

async fn allow(world: &World, name: &str, value: Option<&str>) -> Result<()> {
    let annotations = json!({ names::user::ALLOW_BREAK_DEPENDENTS: value });
    patch(world, name, json!({ "metadata": { "annotations": annotations } })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_and_waited_for_and_what_others_need_is_kept() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let reference = publish(&world).await?;
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": { "name": "appliances" },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "cook", "namespace": NAMESPACE } });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "cook" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "cook", "namespace": NAMESPACE }] });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let kettle = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": { "name": "kettle" },
        "spec": { "namespace": NAMESPACE, "serviceAccount": { "name": "cook" },
            "source": { "sourceType": "Catalog", "catalog": { "packageName": "kettle" } } },
    });
    world.apply(&[namespace, account, binding, catalog, kettle])?;

    // What is missing, who has it, and the object to apply.
    let retrying = conditions::reason::RETRYING;
    let message = await_progressing(&world, "kettle", retrying, "kind: ClusterExtension").await?;
    for part in [
        "bundle \"kettle.v1.0.0\" cannot be installed",
        "package stove (>=1.0.0 <2.0.0) is not installed",
        "API stove.olm.example/v1 Stove is not provided",
        "install stove.v1.0.0 of package stove from channel stable of catalog appliances",
    ] {
        assert!(message.contains(part), "{part:?} in {message}");
    }
    assert!(
        extensions(&world).get_opt("stove").await?.is_none(),
        "nothing is installed unasked"
    );

    // Applied as it stands, it brings the dependency; the dependent follows by itself.
    let manifest = message.find("apiVersion:").and_then(|start| message.get(start..));
    let path = world.folder().join("proposed.yaml");
    std::fs::write(&path, manifest.context("the message holds an object")?)?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
    await_version(&world, "stove", "1.0.0").await?;
    await_version(&world, "kettle", "1.0.0").await?;

    // The next version is held, since it would break the dependent; the user may say otherwise.
    patch(
        &world,
        "stove",
        json!({ "spec": { "source": { "catalog": { "version": "2.0.0" } } } }),
    )
    .await?;
    let message = await_progressing(
        &world,
        "stove",
        retrying,
        "ClusterExtension kettle would be broken",
    )
    .await?;
    assert!(message.contains(names::user::ALLOW_BREAK_DEPENDENTS), "{message}");
    assert_eq!(installed(&extensions(&world).get("stove").await?), Some("1.0.0"));
    // A range that the installed version satisfies, too: all is well, and what is held back is told.
    patch(
        &world,
        "stove",
        json!({ "spec": { "source": { "catalog": { "version": ">=1.0.0" } } } }),
    )
    .await?;
    let succeeded = conditions::reason::SUCCEEDED;
    await_progressing(
        &world,
        "stove",
        succeeded,
        "stove.v2.0.0 is held back: ClusterExtension kettle",
    )
    .await?;
    allow(&world, "stove", Some("true")).await?;
    await_version(&world, "stove", "2.0.0").await?;
    allow(&world, "stove", None).await?;

    // The dependent still needs the API: what provides it is not uninstalled from under it.
    extensions(&world)
        .delete("stove", &DeleteParams::default())
        .await?;
    let blocked = conditions::reason::BLOCKED;
    let message = await_progressing(
        &world,
        "stove",
        blocked,
        "not uninstalled, since others depend on it",
    )
    .await?;
    assert!(
        message.contains("ClusterExtension kettle would be broken"),
        "{message}"
    );
    allow(&world, "stove", Some("true")).await?;
    world
        .eventually("the dependency is gone", SOON, async || {
            Ok(extensions(&world).get_opt("stove").await?.is_none().then_some(()))
        })
        .await
}
