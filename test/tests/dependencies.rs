//! Dependencies on real parts: a bundle that requires something says what to install and is installed by itself once that
//! is there; what it depends on is neither updated nor uninstalled from under it, unless the user says so.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::api::DeleteParams;
use olm_api::{conditions, names};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, extensions, installed_version, merge, patch_source,
};
use olm_test::samples;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

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
    let mut files: BTreeMap<String, Vec<u8>> = samples::bundle(version, samples::OPERATOR_IMAGE)
        .into_iter()
        .map(|(path, content)| (path, rename(&String::from_utf8_lossy(&content)).into_bytes()))
        .collect();
    if package == "toaster" {
        let needs = json!({ "dependencies": [
            { "type": "olm.package", "value": { "packageName": "stove", "version": ">=1.0.0" } },
        ] });
        files.insert(
            "metadata/dependencies.yaml".to_owned(),
            needs.to_string().into_bytes(),
        );
    }
    files
}

fn api(package: &str, kind: &str) -> Value {
    json!({ "group": format!("{package}.olm.example"), "kind": kind, "version": "v1" })
}

/// Package `stove` in two versions, and package `kettle`, which requires the first of them. Packages `pot` and `lid` need
/// each other's version, and so do `knife`, `fork` and `spoon` in a circle (T-5D-02). That `toaster` requires package `stove`
/// is only written in its bundle; what `grill` requires of a `stove` is only written in the catalog.
async fn publish(world: &World) -> Result<String> {
    let mut blobs = Vec::new();
    let needs = |package: &str, range: &str| json!({ "type": "olm.package.required", "value": { "packageName": package, "versionRange": range } });
    let for_kettle = [
        needs("stove", ">=1.0.0 <2.0.0"),
        json!({ "type": "olm.gvk.required", "value": api("stove", "Stove") }),
    ];
    let for_grill = json!({ "type": "olm.constraint", "value": {
        "failureMessage": "something that burns gas",
        "cel": { "rule": "properties.exists(p, p.type == 'fuel' && p.value == 'gas')" },
    } });
    let none = || vec![vec![]; 2];
    let both = |other: &str| vec![vec![needs(other, "1.0.0")], vec![needs(other, "2.0.0")]];
    let packages = [
        (
            "stove",
            "Stove",
            &["1.0.0", "2.0.0"][..],
            vec![vec![json!({ "type": "fuel", "value": "gas" })]; 2],
        ),
        ("grill", "Grill", &["1.0.0"][..], vec![vec![for_grill]]),
        ("kettle", "Kettle", &["1.0.0"][..], vec![for_kettle.to_vec()]),
        ("toaster", "Toaster", &["1.0.0"][..], none()),
        ("pot", "Pot", &["1.0.0", "2.0.0"][..], both("lid")),
        ("lid", "Lid", &["1.0.0", "2.0.0"][..], both("pot")),
        ("knife", "Knife", &["1.0.0", "2.0.0"][..], both("fork")),
        ("fork", "Fork", &["1.0.0", "2.0.0"][..], both("spoon")),
        ("spoon", "Spoon", &["1.0.0", "2.0.0"][..], both("knife")),
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
            properties.extend(required.get(index).into_iter().flatten().cloned());
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

async fn allow(world: &World, name: &str, value: Option<&str>) -> Result<()> {
    let annotations = json!({ names::user::ALLOW_BREAK_DEPENDENTS: value });
    merge(world, name, json!({ "metadata": { "annotations": annotations } })).await
}

/// An account that may do everything.
fn account(name: &str) -> [Value; 2] {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": NAMESPACE } });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }] });
    [account, binding]
}

fn extension(package: &str, version: Option<&str>) -> Value {
    let mut catalog = json!({ "packageName": package });
    if let Some(version) = version {
        catalog["version"] = json!(version);
    }
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": { "name": package },
        "spec": { "namespace": NAMESPACE, "serviceAccount": { "name": "cook" },
            "source": { "sourceType": "Catalog", "catalog": catalog } },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_and_waited_for_and_what_others_need_is_kept() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let reference = publish(&world).await?;
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": { "name": "appliances" },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    });
    let [account, binding] = account("cook");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let [kettle, toaster] = ["kettle", "toaster"].map(|package| extension(package, None));
    world.apply(&[namespace, account, binding, catalog, kettle, toaster])?;

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
    let told = await_progressing(&world, "toaster", retrying, "kind: ClusterExtension").await?;
    let help = "install stove.v2.0.0 of package stove from channel stable of catalog appliances";
    assert!(told.contains(help), "{told}");
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
    for dependent in ["kettle", "toaster"] {
        await_version(&world, dependent, "1.0.0").await?;
    }

    // What only the catalog said of it is known of it, too.
    world.apply(&[extension("grill", None)])?;
    await_version(&world, "grill", "1.0.0").await?;
    extensions(&world)
        .delete("grill", &DeleteParams::default())
        .await?;
    await_gone(&world, "grill").await?;

    // The next version is held, since it would break the dependent; the user may say otherwise.
    patch_source(&world, "stove", json!({ "version": "2.0.0" })).await?;
    let message = await_progressing(
        &world,
        "stove",
        retrying,
        "ClusterExtension kettle would be broken",
    )
    .await?;
    assert!(message.contains(names::user::ALLOW_BREAK_DEPENDENTS), "{message}");
    assert_eq!(
        installed_version(&extensions(&world).get("stove").await?),
        Some("1.0.0")
    );
    // A range that the installed version satisfies, too: all is well, and what is held back is told.
    patch_source(&world, "stove", json!({ "version": ">=1.0.0" })).await?;
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
    await_gone(&world, "stove").await?;

    t_5d_02_what_needs_each_other_moves_together(&world).await?;
    t_5d_02_nobody_of_a_circle_moves_while_one_may_not(&world).await
}

async fn t_5d_02_what_needs_each_other_moves_together(world: &World) -> Result<()> {
    let succeeded = conditions::reason::SUCCEEDED;
    world.apply(&[extension("pot", Some("1.0.0"))])?;
    let missing = "package lid (1.0.0) is not installed";
    await_progressing(world, "pot", conditions::reason::RETRYING, missing).await?;
    world.apply(&[extension("lid", Some("1.0.0"))])?;
    for package in ["pot", "lid"] {
        await_version(world, package, "1.0.0").await?;
    }
    // One alone would break the other.
    patch_source(world, "pot", json!({ "version": ">=1.0.0" })).await?;
    let held = "pot.v2.0.0 is held back: ";
    await_progressing(world, "pot", succeeded, held).await?;
    patch_source(world, "lid", json!({ "version": ">=1.0.0" })).await?;
    for package in ["pot", "lid"] {
        await_version(world, package, "2.0.0").await?;
    }
    Ok(())
}

async fn t_5d_02_nobody_of_a_circle_moves_while_one_may_not(world: &World) -> Result<()> {
    let circle = ["knife", "fork", "spoon"];
    let [guest, binding] = account("guest");
    let mut spoon = extension("spoon", Some("1.0.0"));
    spoon["spec"]["serviceAccount"]["name"] = json!("guest");
    let [knife, fork] = ["knife", "fork"].map(|package| extension(package, Some("1.0.0")));
    world.apply(&[guest, binding.clone(), knife, fork, spoon])?;
    for package in circle {
        await_version(world, package, "1.0.0").await?;
    }
    world.kubectl(&["delete", "clusterrolebinding", "guest"])?;
    world
        .eventually("guest may nothing any more", SOON, async || {
            let who = format!("--as=system:serviceaccount:{NAMESPACE}:guest");
            let may = world.kubectl(&["auth", "can-i", "create", "configmaps", "-n", NAMESPACE, &who]);
            // It exits with 1 when the answer is no.
            Ok(may.is_err().then_some(()))
        })
        .await?;
    for package in circle {
        patch_source(world, package, json!({ "version": ">=1.0.0" })).await?;
    }
    await_progressing(
        world,
        "spoon",
        conditions::reason::RETRYING,
        "resolved bundle \"spoon.v2.0.0\"",
    )
    .await?;
    for package in ["knife", "fork"] {
        let who = "goes together with spoon.v2.0.0 of ClusterExtension spoon, which cannot go: ";
        await_progressing(world, package, conditions::reason::SUCCEEDED, who).await?;
    }
    for package in circle {
        let found = extensions(world).get(package).await?;
        assert_eq!(installed_version(&found), Some("1.0.0"), "{package}");
    }
    world.apply(&[binding])?;
    for package in circle {
        await_version(world, package, "2.0.0").await?;
    }
    Ok(())
}
