//! The additional objects of a bundle and its custom resource definitions through the life of an extension, on real parts.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_api::conditions::reason;
use olm_api::names;
use olm_image::Digest;
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, installed_version, patch_source,
};
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// What the custom object of T-10-01 waits for before it goes.
const FINALIZER: &str = "finalizer.stable.example.com";

/// The content of a bundle by path.
type Files = BTreeMap<String, Vec<u8>>;

/// A bundle of these manifests beside its ClusterServiceVersion, whose `spec` and labels may have more.
fn files(package: &str, version: &str, more: &Value, manifests: &[Value]) -> Files {
    let file = |value: &Value| value.to_string().into_bytes();
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("{package}.v{version}"), "labels": more["labels"]},
        "spec": {
            "version": version,
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "install": {"strategy": "deployment", "spec": {"deployments": []}},
        },
    });
    for (field, value) in more["spec"].as_object().into_iter().flatten() {
        csv["spec"][field] = value.clone();
    }
    let annotation = |key: &str| format!("operators.operatorframework.io.bundle.{key}");
    let media_type = more["mediaType"].as_str().unwrap_or("registry+v1");
    let annotations = json!({"annotations": {
        annotation("mediatype.v1"): media_type, annotation("package.v1"): package,
        annotation("channels.v1"): "stable",
    }});
    let mut files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), file(&annotations)),
        ("manifests/csv.json".to_owned(), file(&csv)),
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
    files.insert("manifests/others.json".to_owned(), file(&list));
    files
}

/// A bundle without a workload: the definition and roles of T-10-01 and T-10-03, and these other objects.
fn larder(version: &str, definition: &str, others: &[Value]) -> Files {
    providing("larder", version, definition, &[&roles(), others].concat())
}

/// A bundle of the definition of T-10-01 and these other objects.
fn providing(package: &str, version: &str, definition: &str, others: &[Value]) -> Files {
    let owned = json!({"owned": [{"name": definition, "version": "v1", "kind": "CronTab"}]});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": definition},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "cronSpec": {"type": "string"}, "image": {"type": "string"},
                }}},
            }}}],
        },
    });
    let more = json!({"spec": {"customresourcedefinitions": owned}});
    files(package, version, &more, &[&[crd], others].concat())
}

/// The ClusterRoles of T-10-03.
fn roles() -> [Value; 2] {
    let role = |name: &str, roles: [&str; 2], verbs: &[&str]| {
        let labels: BTreeMap<String, &str> = roles
            .iter()
            .map(|role| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true"))
            .collect();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "rules": [{"apiGroups": ["stable.example.com"], "resources": ["crontabs"], "verbs": verbs}],
        })
    };
    let read = ["get", "list", "watch"];
    let all = [
        &read[..],
        &["create", "update", "patch", "delete", "deletecollection"],
    ]
    .concat();
    [
        role("aggregate-cron-tabs-admin-edit", ["admin", "edit"], &all),
        role("aggregate-cron-tabs-view", ["view", "cluster-reader"], &read),
    ]
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"version": value}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"k": "v"}})
}

/// What a bundle of more objects than a few holds.
fn crowd(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| config_map(&format!("one-of-many-{number}"), "1"))
        .collect()
}

/// An API and a processor that the cluster does not have.
fn foreign() -> Value {
    json!({
        "labels": {"operatorframework.io/arch.s390x": "supported"},
        "spec": {"nativeAPIs": [{"group": "platform.example.com", "version": "v1", "kind": "Native"}]},
    })
}

/// Package, version and files of every bundle.
fn bundles() -> Vec<(&'static str, &'static str, Files)> {
    let good = "crontabs.stable.example.com";
    let more = json!({});
    let large: Vec<Value> = ["a", "b", "c"]
        .iter()
        .map(|name| config_map(&format!("large-{name}"), &name.repeat(600_000)))
        .collect();
    let plain = json!({"mediaType": "plain+v0"});
    vec![
        (
            "larder",
            "1.0.0",
            larder("1.0.0", good, &[config_map("cfg", "1"), secret("s1")]),
        ),
        (
            "larder",
            "2.0.0",
            larder("2.0.0", good, &[config_map("cfg", "2"), secret("s2")]),
        ),
        ("larder", "3.0.0", larder("3.0.0", "tabs.stable.example.com", &[])),
        (
            "pantry",
            "1.0.0",
            providing("pantry", "1.0.0", good, &[config_map("pantry", "1")]),
        ),
        ("burden", "1.0.0", files("burden", "1.0.0", &more, &large)),
        ("crowd", "1.0.0", files("crowd", "1.0.0", &more, &crowd(1000))),
        ("crowd", "2.0.0", files("crowd", "2.0.0", &more, &crowd(1001))),
        (
            "plain",
            "1.0.0",
            files("plain", "1.0.0", &plain, &[config_map("p", "1")]),
        ),
        (
            "guest",
            "1.0.0",
            files("guest", "1.0.0", &more, &[config_map("guest", "1")]),
        ),
        (
            "guest",
            "2.0.0",
            files("guest", "2.0.0", &foreign(), &[config_map("guest", "2")]),
        ),
    ]
}

/// Pushes a chart as Helm does: an artifact without labels, whose one layer is the chart. Returns its reference.
async fn push_chart(world: &World) -> Result<String> {
    let registry = world.cluster.registry().context("a registry")?;
    let base = format!("http://{}/v2/charts/chart", registry.address);
    let client = reqwest::Client::new();
    let chart = b"apiVersion: v2\nname: chart\nversion: 1.0.0\n";
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(chart.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "chart/Chart.yaml", &chart[..])?;
    let layer = archive.into_inner()?.finish()?;
    let mut descriptors = Vec::new();
    for (kind, blob) in [
        (
            "config.v1+json",
            br#"{"name": "chart", "version": "1.0.0"}"#.to_vec(),
        ),
        ("chart.content.v1.tar+gzip", layer),
    ] {
        let digest = Digest::of(&blob).to_string();
        let place = client.post(format!("{base}/blobs/uploads/")).send().await?;
        let place = place.error_for_status()?;
        let place = place.headers().get("location").context("a place")?.to_str()?;
        let size = blob.len();
        let mark = if place.contains('?') { '&' } else { '?' };
        let put = client.put(format!("{place}{mark}digest={digest}")).body(blob);
        put.send().await?.error_for_status()?;
        let media_type = format!("application/vnd.cncf.helm.{kind}");
        descriptors.push(json!({"mediaType": media_type, "digest": digest, "size": size}));
    }
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": media_type, "config": descriptors[0], "layers": [descriptors[1]],
    });
    let put = client
        .put(format!("{base}/manifests/1.0.0"))
        .header("content-type", media_type)
        .body(manifest.to_string());
    put.send().await?.error_for_status()?;
    Ok(format!("{}/charts/chart:1.0.0", registry.tls))
}

/// The ClusterExtension of a package.
fn extension(package: &str, version: Option<&str>) -> Value {
    let mut catalog = json!({"packageName": package});
    if let Some(version) = version {
        catalog["version"] = json!(version);
    }
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": package},
        "spec": {
            "namespace": "larder", "serviceAccount": {"name": "installer"},
            "source": {"sourceType": "Catalog", "catalog": catalog},
        },
    })
}

/// The catalog of all packages, an account that may do everything, and the first extension.
async fn publish(world: &World) -> Result<()> {
    let mut images = Vec::new();
    for (package, version, files) in bundles() {
        let image = world
            .push_bundle(&format!("{package}-bundle:v{version}"), &files)
            .await?;
        images.push((package, version, image));
    }
    images.push(("chart", "1.0.0", push_chart(world).await?));
    let mut blobs = Vec::new();
    let mut entries: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (package, version, image) in &images {
        let name = format!("{package}.v{version}");
        let mut properties =
            vec![json!({"type": "olm.package", "value": {"packageName": package, "version": version}})];
        if name == "guest.v2.0.0" {
            let foreign = foreign();
            let value = json!({"labels": foreign["labels"], "nativeAPIs": foreign["spec"]["nativeAPIs"]});
            properties.push(json!({"type": "olm.csv.metadata", "value": value}));
        }
        blobs.push(json!({
            "schema": "olm.bundle", "package": package, "name": name, "image": image, "properties": properties,
        }));
        let entry = json!({"name": name, "skipRange": format!("<{version}")});
        entries.entry(package).or_default().push(entry);
    }
    for (package, entries) in entries {
        blobs.push(json!({"schema": "olm.package", "name": package, "defaultChannel": "stable"}));
        blobs
            .push(json!({"schema": "olm.channel", "package": package, "name": "stable", "entries": entries}));
    }
    let lines: Vec<String> = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    let reference = world
        .push_catalog("larder-catalog:latest", &lines.concat())
        .await?;
    world.apply(&[
        catalog("larder", &reference),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "larder"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": "larder"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "larder-installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": "larder"}],
        }),
        extension("larder", Some("1.0.0")),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_and_kinds_of_a_bundle_live_as_long_as_it_does() -> Result<()> {
    let world = World::start(Options::default()).await?;
    publish(&world).await?;
    await_version(&world, "larder", "1.0.0").await?;
    t_10_01_a_brought_kind_is_served_under_all_its_names(&world)?;
    t_10_03_brought_roles_are_gathered_by_the_default_roles(&world).await?;
    requirement_5_04_a_package_is_not_installed_twice(&world).await?;
    requirement_7_51_a_kind_is_not_provided_twice(&world).await?;
    t_3a_02_objects_are_updated_in_place_renamed_and_removed(&world).await?;
    t_10_02_a_definition_with_another_name_is_refused(&world).await?;

    large_bundles_lie_in_several_immutable_secrets(&world).await?;
    other_formats_are_refused_by_name(&world).await?;
    what_the_cluster_lacks_makes_a_second_choice_and_is_told(&world).await?;
    a_thousand_objects_are_installed_and_more_are_refused(&world).await?;

    extensions(&world)
        .delete("larder", &DeleteParams::default())
        .await?;
    requirement_10_07_what_holds_an_object_is_waited_for(&world).await?;
    await_gone(&world, "larder").await?;
    let left = world.kubectl(&[
        "get",
        "configmap/cfg",
        "secret/s2",
        "-n",
        "larder",
        "--ignore-not-found",
    ])?;
    ensure!(left.is_empty(), "left: {left}");
    Ok(())
}

fn t_10_01_a_brought_kind_is_served_under_all_its_names(world: &World) -> Result<()> {
    let spec = json!({"cronSpec": "* * * * /5", "image": "my-awesome-cron-image"});
    world.apply(&[json!({
        "apiVersion": "stable.example.com/v1", "kind": "CronTab",
        "metadata": {"name": "my-new-cron-object", "namespace": "larder", "finalizers": [FINALIZER]},
        "spec": spec,
    })])?;
    for name in [
        "crontabs",
        "crontab",
        "ct",
        "CronTab",
        "CronTab.v1.stable.example.com",
    ] {
        let found = world.kubectl(&["get", name, "-n", "larder", "-o", "name"])?;
        ensure!(
            found.trim() == "crontab.stable.example.com/my-new-cron-object",
            "{name}: {found}"
        );
    }
    let get = |path: &str| -> Result<Value> {
        let path = format!("/apis/stable.example.com/v1/{path}");
        Ok(serde_json::from_str(&world.kubectl(&["get", "--raw", &path])?)?)
    };
    let found = get("namespaces/larder/crontabs/my-new-cron-object")?;
    assert_eq!((&found["kind"], &found["spec"]), (&json!("CronTab"), &spec));
    assert_eq!(found["metadata"]["finalizers"], json!([FINALIZER]));
    for list in ["namespaces/larder/crontabs", "crontabs"] {
        let found = get(list)?;
        assert_eq!(found["items"][0]["spec"], spec, "{list}");
    }
    Ok(())
}

/// Requirement 10.07. The extension is being deleted.
async fn requirement_10_07_what_holds_an_object_is_waited_for(world: &World) -> Result<()> {
    let held = format!("larder/my-new-cron-object ({FINALIZER})");
    await_progressing(world, "larder", reason::RETRYING, &held).await?;
    let free = r#"{"metadata": {"finalizers": null}}"#;
    let object = "crontab/my-new-cron-object";
    world
        .kubectl(&["patch", object, "-n", "larder", "--type=merge", "-p", free])
        .map(drop)
}

async fn requirement_5_04_a_package_is_not_installed_twice(world: &World) -> Result<()> {
    let mut second = extension("larder", None);
    second["metadata"]["name"] = json!("larder-again");
    world.apply(&[second])?;
    let taken =
        "package \"larder\" belongs to ClusterExtension \"larder\": a package is installed once on a cluster";
    await_progressing(world, "larder-again", reason::BLOCKED, taken).await?;
    leaves_without_a_trace(world, "larder-again").await
}

async fn requirement_7_51_a_kind_is_not_provided_twice(world: &World) -> Result<()> {
    let definition = || {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.stable.example.com";
        let found: Value = serde_json::from_str(&world.kubectl(&["get", "--raw", path])?)?;
        anyhow::Ok((
            found["metadata"]["uid"].clone(),
            found["metadata"]["labels"].clone(),
        ))
    };
    let before = definition()?;
    world.apply(&[extension("pantry", None)])?;
    let taken =
        "CustomResourceDefinition \"crontabs.stable.example.com\" belongs to ClusterExtension \"larder\"";
    await_progressing(world, "pantry", reason::BLOCKED, taken).await?;
    // Nor is anything else of the bundle there, and what is there stays when the second one goes.
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), "larder");
    ensure!(maps.get_opt("pantry").await?.is_none(), "something was applied");
    leaves_without_a_trace(world, "pantry").await?;
    assert_eq!(definition()?, before);
    Ok(())
}

/// Deletes an extension that has nothing installed.
async fn leaves_without_a_trace(world: &World, name: &str) -> Result<()> {
    let found = extensions(world).get(name).await?;
    assert_eq!(installed_version(&found), None);
    extensions(world).delete(name, &DeleteParams::default()).await?;
    await_gone(world, name).await
}

/// Those for our own kinds as well (requirement 10.09).
async fn t_10_03_brought_roles_are_gathered_by_the_default_roles(world: &World) -> Result<()> {
    let kinds = ["crontabs", "clusterextensions", "clustercatalogs"];
    world
        .eventually("the default roles hold the rules", SOON, async || {
            for (role, verb, expected) in [
                ("admin", "deletecollection", true),
                ("edit", "create", true),
                ("view", "get", true),
                ("view", "create", false),
            ] {
                let rules = world.kubectl(&["get", "clusterrole", role, "-o", "json"])?;
                let rules: Value = serde_json::from_str(&rules)?;
                let texts = |rule: &Value, field: &str, text: &str| {
                    rule.get(field)
                        .and_then(Value::as_array)
                        .is_some_and(|list| list.iter().any(|item| item == text))
                };
                let list = rules.get("rules").and_then(Value::as_array).cloned();
                let list = list.unwrap_or_default();
                for kind in kinds {
                    let held = list
                        .iter()
                        .any(|rule| texts(rule, "resources", kind) && texts(rule, "verbs", verb));
                    ensure!(held == expected, "{role} {verb} {kind}: {held}");
                }
            }
            Ok(Some(()))
        })
        .await
}

async fn t_3a_02_objects_are_updated_in_place_renamed_and_removed(world: &World) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), "larder");
    let secrets = Api::<Secret>::namespaced(world.client.clone(), "larder");
    let before = maps.get("cfg").await?;
    ensure!(secrets.get_opt("s1").await?.is_some(), "there is no s1");
    patch_source(world, "larder", json!({"version": "2.0.0"})).await?;
    await_version(world, "larder", "2.0.0").await?;
    let after = maps.get("cfg").await?;
    assert_eq!(before.metadata.uid, after.metadata.uid, "the same object");
    let version = after.data.and_then(|data| data.get("version").cloned());
    assert_eq!(version.as_deref(), Some("2"));
    ensure!(secrets.get_opt("s2").await?.is_some(), "there is no s2");
    world
        .eventually("s1 is gone", SOON, async || {
            Ok(secrets.get_opt("s1").await?.is_none().then_some(()))
        })
        .await
}

async fn t_10_02_a_definition_with_another_name_is_refused(world: &World) -> Result<()> {
    patch_source(world, "larder", json!({"version": "3.0.0"})).await?;
    await_progressing(world, "larder", reason::RETRYING, "spec.names.plural").await?;
    patch_source(
        world,
        "larder",
        json!({"version": "2.0.0", "upgradeConstraintPolicy": "SelfCertified"}),
    )
    .await?;
    await_version(world, "larder", "2.0.0").await.map(drop)
}

async fn large_bundles_lie_in_several_immutable_secrets(world: &World) -> Result<()> {
    world.apply(&[extension("burden", None)])?;
    await_version(world, "burden", "1.0.0").await?;
    let secrets = Api::<Secret>::namespaced(world.client.clone(), names::SYSTEM_NAMESPACE);
    let secrets = secrets.list(&ListParams::default()).await?.items;
    let content = |secret: &&Secret| {
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        name.starts_with("burden-1")
    };
    let secrets: Vec<&Secret> = secrets.iter().filter(content).collect();
    ensure!(secrets.len() > 1, "there are {} Secrets", secrets.len());
    ensure!(
        secrets.iter().all(|secret| secret.immutable == Some(true)),
        "a Secret can be changed"
    );
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), "larder");
    let data = maps.get("large-c").await?.data.unwrap_or_default();
    ensure!(
        data.get("version")
            .is_some_and(|text| *text == "c".repeat(600_000)),
        "the content is another"
    );
    Ok(())
}

async fn other_formats_are_refused_by_name(world: &World) -> Result<()> {
    world.apply(&[extension("chart", None), extension("plain", None)])?;
    for (package, format) in [("chart", "Helm charts"), ("plain", "bundles of plain manifests")] {
        let message = format!("{format} are not supported, only bundles of media type \"registry+v1\" are");
        await_progressing(world, package, reason::BLOCKED, &message).await?;
    }
    Ok(())
}

async fn what_the_cluster_lacks_makes_a_second_choice_and_is_told(world: &World) -> Result<()> {
    let lacks = "it runs on s390x only, and the cluster's nodes are of ";
    let api = "it needs the API \"platform.example.com/v1 Native\" of the cluster, which does not serve it";
    world.apply(&[extension("guest", None)])?;
    await_version(world, "guest", "1.0.0").await?;
    let held = await_progressing(world, "guest", reason::SUCCEEDED, "guest.v2.0.0 is held back: ").await?;
    ensure!(held.contains(lacks) && held.contains(api), "it says {held}");
    // Whoever asks for it gets it.
    patch_source(world, "guest", json!({"version": "2.0.0"})).await?;
    await_version(world, "guest", "2.0.0").await?;
    let doubt = "The bundle may not work on this cluster: ";
    let told = await_progressing(world, "guest", reason::SUCCEEDED, doubt).await?;
    ensure!(told.contains(lacks) && told.contains(api), "it says {told}");
    Ok(())
}

async fn a_thousand_objects_are_installed_and_more_are_refused(world: &World) -> Result<()> {
    world.apply(&[extension("crowd", Some("1.0.0"))])?;
    await_version(world, "crowd", "1.0.0").await?;
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), "larder");
    let maps = maps.list_metadata(&ListParams::default()).await?.items;
    let many = maps
        .iter()
        .filter_map(|map| map.metadata.name.as_deref())
        .filter(|name| name.starts_with("one-of-many-"));
    assert_eq!(many.count(), 1000);
    patch_source(world, "crowd", json!({"version": "2.0.0"})).await?;
    let message =
        "the bundle's 1001 objects need 21 phases, more than the 20 that a ClusterObjectSet can hold";
    await_progressing(world, "crowd", reason::BLOCKED, message)
        .await
        .map(drop)
}
