//! The additional objects of a bundle and its custom resource definitions through the life of an extension, on real parts.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::DeleteParams;
use olm_api::conditions::reason;
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, patch_source,
};
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// A bundle without a workload: the definition and roles of T-10-01 and T-10-03, and these other objects.
fn bundle(version: &str, definition: &str, others: &[Value]) -> BTreeMap<String, Vec<u8>> {
    let file = |value: &Value| value.to_string().into_bytes();
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("larder.v{version}")},
        "spec": {
            "version": version,
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": [{"name": definition, "version": "v1", "kind": "CronTab"}]},
            "install": {"strategy": "deployment", "spec": {"deployments": []}},
        },
    });
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
    let annotation = |key: &str| format!("operators.operatorframework.io.bundle.{key}");
    let annotations = json!({"annotations": {
        annotation("mediatype.v1"): "registry+v1", annotation("package.v1"): "larder",
        annotation("channels.v1"): "stable",
    }});
    let mut files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), file(&annotations)),
        ("manifests/csv.json".to_owned(), file(&csv)),
        ("manifests/crd.json".to_owned(), file(&crd)),
    ]);
    for (index, object) in roles().iter().chain(others).enumerate() {
        files.insert(format!("manifests/other-{index}.json"), file(object));
    }
    files
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

fn config_map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cfg"}, "data": {"version": value}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"k": "v"}})
}

/// The ClusterExtension, its catalog and an account that may do everything.
async fn publish(world: &World) -> Result<()> {
    let good = "crontabs.stable.example.com";
    let bundles = [
        ("1.0.0", bundle("1.0.0", good, &[config_map("1"), secret("s1")])),
        ("2.0.0", bundle("2.0.0", good, &[config_map("2"), secret("s2")])),
        ("3.0.0", bundle("3.0.0", "tabs.stable.example.com", &[])),
    ];
    let mut blobs = vec![json!({"schema": "olm.package", "name": "larder", "defaultChannel": "stable"})];
    let mut entries = Vec::new();
    for (version, files) in &bundles {
        let name = format!("larder.v{version}");
        let image = world
            .push_bundle(&format!("larder-bundle:v{version}"), files)
            .await?;
        blobs.push(json!({
            "schema": "olm.bundle", "package": "larder", "name": name, "image": image,
            "properties": [{"type": "olm.package", "value": {"packageName": "larder", "version": version}}],
        }));
        entries.push(json!({"name": name, "skipRange": format!("<{version}")}));
    }
    blobs.push(json!({"schema": "olm.channel", "package": "larder", "name": "stable", "entries": entries}));
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
        json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "larder"},
            "spec": {
                "namespace": "larder", "serviceAccount": {"name": "installer"},
                "source": {"sourceType": "Catalog", "catalog": {"packageName": "larder", "version": "1.0.0"}},
            },
        }),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_and_kinds_of_a_bundle_live_as_long_as_it_does() -> Result<()> {
    let world = World::start(Options::default()).await?;
    publish(&world).await?;
    await_version(&world, "larder", "1.0.0").await?;
    t_10_01_a_brought_kind_is_served_under_all_its_names(&world)?;
    t_10_03_brought_roles_are_gathered_by_the_default_roles(&world).await?;
    t_3a_02_objects_are_updated_in_place_renamed_and_removed(&world).await?;
    t_10_02_a_definition_with_another_name_is_refused(&world).await?;

    extensions(&world)
        .delete("larder", &DeleteParams::default())
        .await?;
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
    world.apply(&[json!({
        "apiVersion": "stable.example.com/v1", "kind": "CronTab",
        "metadata": {"name": "my-new-cron-object", "namespace": "larder"},
        "spec": {"cronSpec": "* * * * /5", "image": "my-awesome-cron-image"},
    })])?;
    for name in ["crontabs", "crontab", "ct", "CronTab"] {
        let found = world.kubectl(&["get", name, "-n", "larder", "-o", "name"])?;
        ensure!(
            found.trim() == "crontab.stable.example.com/my-new-cron-object",
            "{name}: {found}"
        );
    }
    let path = "/apis/stable.example.com/v1/namespaces/larder/crontabs/my-new-cron-object";
    let raw = world.kubectl(&["get", "--raw", path])?;
    ensure!(raw.contains("my-awesome-cron-image"), "{raw}");
    Ok(())
}

async fn t_10_03_brought_roles_are_gathered_by_the_default_roles(world: &World) -> Result<()> {
    world
        .eventually("the default roles hold the rules", SOON, async || {
            for (role, verb, expected) in [
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
                let held = list
                    .unwrap_or_default()
                    .iter()
                    .any(|rule| texts(rule, "resources", "crontabs") && texts(rule, "verbs", verb));
                ensure!(held == expected, "{role} {verb}: {held}");
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
