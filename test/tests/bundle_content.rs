//! The additional objects of a bundle and its custom resource definitions through the life of an extension, on real
//! parts.

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
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// The install namespace of all extensions.
const NAMESPACE: &str = "bundle-content";
/// The finalizer that delays the deletion of the custom object.
const FINALIZER: &str = "example.com/wait";

/// The content of a bundle by path.
type Files = BTreeMap<String, Vec<u8>>;

/// A bundle with these manifests and a ClusterServiceVersion, whose `spec` and labels may be extended.
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

/// The name of the definition that a package brings.
fn definition(package: &str) -> String {
    format!("{package}s.{package}.example.com")
}

/// The kind that a package brings.
fn kind(package: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    };
    package.split('-').map(word).collect()
}

/// A bundle without a workload: a definition of this name for the kind of package `of`, and other objects.
fn providing(package: &str, version: &str, of: &str, definition: &str, others: &[Value]) -> Files {
    let kind = kind(of);
    let owned = json!({"owned": [{"name": definition, "version": "v1", "kind": kind}]});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": definition},
        "spec": {
            "group": format!("{of}.example.com"), "scope": "Namespaced",
            "names": {"plural": format!("{of}s"), "singular": of, "kind": kind, "shortNames": [format!("{of}-short")]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "schedule": {"type": "string"}, "image": {"type": "string"},
                }}},
            }}}],
        },
    });
    let more = json!({"spec": {"customresourcedefinitions": owned}});
    files(package, version, &more, &[&[crd], others].concat())
}

/// ClusterRoles for the kind of a package that the default roles gather.
fn roles(package: &str) -> [Value; 2] {
    let role = |name: &str, roles: [&str; 2], verbs: &[&str]| {
        let labels: BTreeMap<String, &str> = roles
            .iter()
            .map(|role| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true"))
            .collect();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("{package}-{name}"), "labels": labels},
            "rules": [{
                "apiGroups": [format!("{package}.example.com")], "resources": [format!("{package}s")], "verbs": verbs,
            }],
        })
    };
    let read = ["get", "list", "watch"];
    let all = [
        &read[..],
        &["create", "update", "patch", "delete", "deletecollection"],
    ]
    .concat();
    [
        role("edit", ["admin", "edit"], &all),
        role("view", ["view", "cluster-reader"], &read),
    ]
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"version": value}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"k": "v"}})
}

/// The objects of a bundle with many objects.
fn config_maps(count: usize) -> Vec<Value> {
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
    let more = json!({});
    let large: Vec<Value> = ["a", "b", "c"]
        .iter()
        .map(|name| config_map(&format!("large-{name}"), &name.repeat(600_000)))
        .collect();
    let plain = json!({"mediaType": "plain+v0"});
    let kinds: [(&str, &str, &[Value]); 7] = [
        ("served", "1.0.0", &[config_map("served", "1")]),
        ("gathered-role", "1.0.0", &roles("gathered-role")),
        ("installed-once", "1.0.0", &[]),
        ("provided-once", "1.0.0", &[]),
        (
            "updated-objects",
            "1.0.0",
            &[config_map("cfg", "1"), secret("s1")],
        ),
        (
            "updated-objects",
            "2.0.0",
            &[config_map("cfg", "2"), secret("s2")],
        ),
        ("misnamed", "1.0.0", &[]),
    ];
    let with_kinds = kinds.map(|(package, version, others)| {
        let definition = definition(package);
        (
            package,
            version,
            providing(package, version, package, &definition, others),
        )
    });
    let taken = definition("provided-once");
    let rival = providing(
        "rival",
        "1.0.0",
        "provided-once",
        &taken,
        &[config_map("rival", "1")],
    );
    let misnamed = providing("misnamed", "2.0.0", "misnamed", "other.misnamed.example.com", &[]);
    let mut bundles = vec![
        ("rival", "1.0.0", rival),
        ("misnamed", "2.0.0", misnamed),
        ("large", "1.0.0", files("large", "1.0.0", &more, &large)),
        (
            "thousand",
            "1.0.0",
            files("thousand", "1.0.0", &more, &config_maps(1000)),
        ),
        (
            "thousand",
            "2.0.0",
            files("thousand", "2.0.0", &more, &config_maps(1001)),
        ),
        (
            "plain",
            "1.0.0",
            files("plain", "1.0.0", &plain, &[config_map("p", "1")]),
        ),
        (
            "second-choice",
            "1.0.0",
            files(
                "second-choice",
                "1.0.0",
                &more,
                &[config_map("second-choice", "1")],
            ),
        ),
        (
            "second-choice",
            "2.0.0",
            files(
                "second-choice",
                "2.0.0",
                &foreign(),
                &[config_map("second-choice", "2")],
            ),
        ),
    ];
    bundles.extend(with_kinds);
    bundles
}

/// Pushes a chart like Helm: an artifact without labels, whose single layer is the chart. Returns its reference.
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
            "namespace": NAMESPACE, "serviceAccount": {"name": "installer"},
            "source": {"sourceType": "Catalog", "catalog": catalog},
        },
    })
}

/// The catalog of all packages, and an account with all rights.
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
        if name == "second-choice.v2.0.0" {
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
        .push_catalog("bundle-content:latest", &lines.concat())
        .await?;
    world.apply(&[
        catalog("bundle-content", &reference),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": NAMESPACE}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "bundle-content-installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": NAMESPACE}],
        }),
    ])
}

/// Both managers and the packages of all tests.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    publish(&world).await?;
    Ok(world)
}

async fn install(world: &World, package: &str, version: &str) -> Result<()> {
    world.apply(&[extension(package, Some(version))])?;
    await_version(world, package, version).await.map(drop)
}

#[test]
fn a_kind_of_a_bundle_is_served_under_all_its_names_and_removed_once_nothing_holds_its_objects() -> Result<()>
{
    CLUSTER.with(async |world| {
        install(world, "served", "1.0.0").await?;
        let spec = json!({"schedule": "* * * * /5", "image": "example"});
        world.apply(&[json!({
            "apiVersion": "served.example.com/v1", "kind": "Served",
            "metadata": {"name": "held", "namespace": NAMESPACE, "finalizers": [FINALIZER]},
            "spec": spec,
        })])?;
        for name in [
            "serveds",
            "served",
            "served-short",
            "Served",
            "Served.v1.served.example.com",
        ] {
            let found = world.kubectl(&["get", name, "-n", NAMESPACE, "-o", "name"])?;
            ensure!(
                found.trim() == "served.served.example.com/held",
                "{name}: {found}"
            );
        }
        let get = |path: &str| -> Result<Value> {
            let path = format!("/apis/served.example.com/v1/{path}");
            Ok(serde_json::from_str(&world.kubectl(&["get", "--raw", &path])?)?)
        };
        let found = get(&format!("namespaces/{NAMESPACE}/serveds/held"))?;
        assert_eq!((&found["kind"], &found["spec"]), (&json!("Served"), &spec));
        assert_eq!(found["metadata"]["finalizers"], json!([FINALIZER]));
        for list in [&format!("namespaces/{NAMESPACE}/serveds"), "serveds"] {
            let found = get(list)?;
            assert_eq!(found["items"][0]["spec"], spec, "{list}");
        }

        extensions(world)
            .delete("served", &DeleteParams::default())
            .await?;
        let held = format!("{NAMESPACE}/held ({FINALIZER})");
        await_progressing(world, "served", reason::RETRYING, &held).await?;
        let free = r#"{"metadata": {"finalizers": null}}"#;
        world.kubectl(&[
            "patch",
            "served/held",
            "-n",
            NAMESPACE,
            "--type=merge",
            "-p",
            free,
        ])?;
        await_gone(world, "served").await?;
        let left = world.kubectl(&["get", "configmap/served", "-n", NAMESPACE, "--ignore-not-found"])?;
        ensure!(left.is_empty(), "left: {left}");
        Ok(())
    })
}

#[test]
fn a_package_is_not_installed_twice() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "installed-once", "1.0.0").await?;
        let mut second = extension("installed-once", None);
        second["metadata"]["name"] = json!("second");
        world.apply(&[second])?;
        let taken = "package \"installed-once\" belongs to ClusterExtension \"installed-once\": a package is installed \
                     once on a cluster";
        await_progressing(world, "second", reason::RETRYING, taken).await?;
        leaves_without_a_trace(world, "second").await
    })
}

#[test]
fn a_kind_is_not_provided_twice() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "provided-once", "1.0.0").await?;
        let name = definition("provided-once");
        let live = || {
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            let found: Value = serde_json::from_str(&world.kubectl(&["get", "--raw", &path])?)?;
            anyhow::Ok((
                found["metadata"]["uid"].clone(),
                found["metadata"]["labels"].clone(),
            ))
        };
        let before = live()?;
        world.apply(&[extension("rival", None)])?;
        let taken =
            format!("CustomResourceDefinition \"{name}\" belongs to ClusterExtension \"provided-once\"");
        let message = await_progressing(world, "rival", reason::RETRYING, &taken).await?;
        ensure!(
            message.contains("revision object collisions in phase "),
            "{message}"
        );
        // No other object of the bundle exists, and the first one's objects stay when the second one is deleted.
        let maps = Api::<ConfigMap>::namespaced(world.client.clone(), NAMESPACE);
        ensure!(maps.get_opt("rival").await?.is_none(), "something was applied");
        leaves_without_a_trace(world, "rival").await?;
        assert_eq!(live()?, before);
        Ok(())
    })
}

/// Deletes an extension without an installed bundle.
async fn leaves_without_a_trace(world: &World, name: &str) -> Result<()> {
    let found = extensions(world).get(name).await?;
    assert_eq!(installed_version(&found), None);
    extensions(world).delete(name, &DeleteParams::default()).await?;
    await_gone(world, name).await
}

/// The roles for our own kinds are gathered, too.
#[test]
fn roles_of_a_bundle_are_gathered_by_the_default_roles() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "gathered-role", "1.0.0").await?;
        let kinds = ["gathered-roles", "clusterextensions"];
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
                    // Catalogs are written by those who may publish them.
                    let catalogs = ("clustercatalogs", verb == "get");
                    for (kind, expected) in kinds.map(|kind| (kind, expected)).into_iter().chain([catalogs]) {
                        let held = list
                            .iter()
                            .any(|rule| texts(rule, "resources", kind) && texts(rule, "verbs", verb));
                        ensure!(held == expected, "{role} {verb} {kind}: {held}");
                    }
                }
                Ok(Some(()))
            })
            .await
    })
}

#[test]
fn objects_are_updated_in_place_and_removed() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "updated-objects", "1.0.0").await?;
        let maps = Api::<ConfigMap>::namespaced(world.client.clone(), NAMESPACE);
        let secrets = Api::<Secret>::namespaced(world.client.clone(), NAMESPACE);
        let before = maps.get("cfg").await?;
        ensure!(secrets.get_opt("s1").await?.is_some(), "there is no s1");
        patch_source(world, "updated-objects", json!({"version": "2.0.0"})).await?;
        await_version(world, "updated-objects", "2.0.0").await?;
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
    })
}

#[test]
fn a_definition_with_another_name_is_refused() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "misnamed", "1.0.0").await?;
        patch_source(world, "misnamed", json!({"version": "2.0.0"})).await?;
        await_progressing(world, "misnamed", reason::RETRYING, "spec.names.plural").await?;
        patch_source(
            world,
            "misnamed",
            json!({"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"}),
        )
        .await?;
        await_version(world, "misnamed", "1.0.0").await.map(drop)
    })
}

#[test]
fn large_bundles_lie_in_several_immutable_secrets() -> Result<()> {
    CLUSTER.with(async |world| {
        world.apply(&[extension("large", None)])?;
        await_version(world, "large", "1.0.0").await?;
        let secrets = Api::<Secret>::namespaced(world.client.clone(), names::SYSTEM_NAMESPACE);
        let secrets = secrets.list(&ListParams::default()).await?.items;
        let content = |secret: &&Secret| {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            name.starts_with("large-1")
        };
        let secrets: Vec<&Secret> = secrets.iter().filter(content).collect();
        ensure!(secrets.len() > 1, "there are {} Secrets", secrets.len());
        ensure!(
            secrets.iter().all(|secret| secret.immutable == Some(true)),
            "a Secret can be changed"
        );
        let maps = Api::<ConfigMap>::namespaced(world.client.clone(), NAMESPACE);
        let data = maps.get("large-c").await?.data.unwrap_or_default();
        ensure!(
            data.get("version")
                .is_some_and(|text| *text == "c".repeat(600_000)),
            "the content is another"
        );
        Ok(())
    })
}

#[test]
fn other_formats_are_refused_by_name() -> Result<()> {
    CLUSTER.with(async |world| {
        world.apply(&[extension("chart", None), extension("plain", None)])?;
        for (package, format) in [("chart", "Helm charts"), ("plain", "bundles of plain manifests")] {
            let message =
                format!("{format} are not supported, only bundles of media type \"registry+v1\" are");
            await_progressing(world, package, reason::RETRYING, &message).await?;
        }
        Ok(())
    })
}

#[test]
fn a_bundle_that_the_cluster_cannot_run_is_a_second_choice() -> Result<()> {
    CLUSTER.with(async |world| {
        let lacks = "it runs on s390x only, and the cluster's nodes are of ";
        let api = "the cluster does not serve the API \"platform.example.com/v1 Native\" that it needs";
        world.apply(&[extension("second-choice", None)])?;
        await_version(world, "second-choice", "1.0.0").await?;
        let held = await_progressing(
            world,
            "second-choice",
            reason::SUCCEEDED,
            "second-choice.v2.0.0 is held back: ",
        )
        .await?;
        ensure!(held.contains(lacks) && held.contains(api), "it says {held}");
        // A user who requests the version gets it.
        patch_source(world, "second-choice", json!({"version": "2.0.0"})).await?;
        await_version(world, "second-choice", "2.0.0").await?;
        let doubt = "The bundle may not work on this cluster: ";
        let message = await_progressing(world, "second-choice", reason::SUCCEEDED, doubt).await?;
        ensure!(
            message.contains(lacks) && message.contains(api),
            "it says {message}"
        );
        Ok(())
    })
}

#[test]
fn a_thousand_objects_are_installed_and_more_are_refused() -> Result<()> {
    CLUSTER.with(async |world| {
        world.apply(&[extension("thousand", Some("1.0.0"))])?;
        await_version(world, "thousand", "1.0.0").await?;
        let maps = Api::<ConfigMap>::namespaced(world.client.clone(), NAMESPACE);
        let maps = maps.list_metadata(&ListParams::default()).await?.items;
        let many = maps
            .iter()
            .filter_map(|map| map.metadata.name.as_deref())
            .filter(|name| name.starts_with("one-of-many-"));
        assert_eq!(many.count(), 1000);
        patch_source(world, "thousand", json!({"version": "2.0.0"})).await?;
        let message =
            "the bundle's 1001 objects need 21 phases, more than the 20 that a ClusterObjectSet can hold";
        await_progressing(world, "thousand", reason::RETRYING, message)
            .await
            .map(drop)
    })
}
