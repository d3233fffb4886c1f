//! Attacks on the running managers.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use olm_api::names::{self, annotation, label, user};
use olm_image::{Access, ImageBuilder, Images, LayerBuilder, Platform, Reference};
use olm_test::extensions::{administrator, await_progressing, await_version, catalog};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

use crate::SOON;
use crate::slow::TRICKLE;

fn openshift(world: &World, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::all_with(world.client.clone(), &resource)
}

async fn upgradeable(world: &World) -> Result<Value> {
    let operator = openshift(world, "ClusterOperator", "clusteroperators")
        .get("olm")
        .await?;
    let conditions = operator
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == "Upgradeable");
    found.cloned().context("there is no condition yet")
}

/// Both managers and one installed extension, whose bundle supports OpenShift up to 4.18.
pub(crate) static WORLD: Shared<World> = Shared::new(|| Box::pin(start()));

async fn start() -> Result<World> {
    TRICKLE.serve()?;
    let options = Options {
        operator_controller: vec![format!("--plain-http-registries={}", TRICKLE.address)],
        ..Options::default()
    };
    let world = World::start(options).await?;
    let mut files = samples::bundle("1.0.0", samples::OPERATOR_IMAGE);
    let properties = json!({ "properties": [{ "type": "olm.maxOpenShiftVersion", "value": "4.18" }] });
    files.insert(
        "metadata/properties.yaml".to_owned(),
        properties.to_string().into_bytes(),
    );
    let image = world.push_bundle("greeter-bundle:v1.0.0", &files).await?;
    let blobs = samples::catalog(&["1.0.0"], |_| image.clone());
    let reference = world.push_catalog("greeter-catalog:latest", &blobs).await?;
    world.apply(&[catalog("greeter", &reference)])?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(&world, "greeter", "1.0.0").await?;
    Ok(world)
}

#[test]
fn a_forged_revision_hides_no_blocker_of_an_openshift_update() -> Result<()> {
    WORLD.with(async |world| forge_a_revision(world).await)
}

/// A set that is no extension's, but looks like the newest revision of one, without a limit.
async fn forge_a_revision(world: &World) -> Result<()> {
    world.apply_file("test/samples/definitions/openshift.yaml")?;
    world.kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd/clusterversions.config.openshift.io",
        "crd/clusteroperators.config.openshift.io",
    ])?;
    world.apply(&[json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": { "name": "version" }, "spec": { "clusterID": "test" },
    })])?;
    let version = json!({ "status": { "desired": { "version": "4.18.0" } } });
    openshift(world, "ClusterVersion", "clusterversions")
        .patch_status("version", &PatchParams::default(), &Patch::Merge(&version))
        .await?;
    let blocked = async || {
        let condition = upgradeable(world).await?;
        ensure!(condition["status"] == "False", "{condition}");
        Ok(Some(()))
    };
    world
        .eventually("the installed bundle blocks", SOON, blocked)
        .await?;
    world.apply(&[json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterObjectSet",
        "metadata": {
            "name": "greeter-99",
            "labels": { label::OWNER_KIND: "ClusterExtension", label::OWNER_NAME: "greeter" },
            "annotations": { annotation::BUNDLE_NAME: "greeter.v9.0.0", annotation::PROPERTIES: "[]" },
        },
        "spec": { "revision": 99, "lifecycleState": "Active", "collisionProtection": "Prevent" },
    })])?;
    let complete = json!({ "status": { "conditions": [{
        "type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "forged",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    let patch = complete.to_string();
    world.kubectl(&[
        "patch",
        "clusterobjectset",
        "greeter-99",
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ])?;
    // A change of the cluster's version has the gate look at all revisions again.
    let version = json!({ "status": { "desired": { "version": "4.19.0" } } });
    openshift(world, "ClusterVersion", "clusterversions")
        .patch_status("version", &PatchParams::default(), &Patch::Merge(&version))
        .await?;
    world
        .eventually("the gate has looked again", SOON, async || {
            let condition = upgradeable(world).await?;
            let message = condition["message"].as_str().unwrap_or_default();
            ensure!(message.contains("4.20"), "{condition}");
            ensure!(
                condition["status"] == "False" && message.contains("greeter.v1.0.0"),
                "{condition}"
            );
            Ok(Some(()))
        })
        .await?;
    world
        .kubectl(&["delete", "clusterobjectset", "greeter-99", "--wait=false"])
        .map(drop)
}

#[test]
fn an_operator_writes_its_own_condition_and_no_other_of_its_namespace() -> Result<()> {
    WORLD.with(async |world| {
        let may = |name: &str| {
            let resource = format!("operatorconditions.operators.coreos.com/{name}");
            let user = "--as=system:serviceaccount:greeter:greeter-operator";
            world
                .kubectl(&["auth", "can-i", "patch", &resource, "-n", "greeter", user])
                .is_ok()
        };
        ensure!(may("greeter.v1.0.0"), "its own");
        ensure!(!may("other.v1.0.0"), "that of another operator");
        Ok(())
    })
}

#[test]
fn a_bomb_of_links_is_refused_and_another_catalog_is_served() -> Result<()> {
    WORLD.with(async |world| explode(world).await)
}

/// A catalog with 400,000 links of 40 hops is refused, while another is served.
async fn explode(world: &World) -> Result<()> {
    let mut layer = LayerBuilder::new();
    layer.bytes("configs/c38", b"{}".to_vec(), 0o644)?;
    for number in 0..38 {
        layer.link(&format!("configs/c{number}"), format!("c{}", number + 1))?;
    }
    for number in 0..400_000 {
        layer.link(&format!("configs/l{number}"), "c0")?;
    }
    let image = ImageBuilder::new(Platform::host())
        .label("operators.operatorframework.io.index.configs.v1", "/configs")
        .layer(layer.build()?);
    let images = Images::new(olm_image::Options {
        authorities: Some(world.authorities()),
        ..olm_image::Options::new("olm-test")
    });
    let name = format!("{}/bomb:latest", world.registry()?);
    images
        .push(&Reference::parse(&name)?, &image.build(), &Access::default())
        .await?;
    let blobs = samples::catalog(&["1.0.0"], |_| "registry.invalid/bundle:v1".to_owned());
    let good = world
        .push_catalog("good-catalog:latest", &samples::renamed("good", &blobs))
        .await?;
    let began = Instant::now();
    world.apply(&[catalog("bomb", &name)])?;
    world.apply(&[catalog("good", &good)])?;
    let condition = |name: &str, kind: &str| {
        let path = format!(
            "jsonpath={{.status.conditions[?(@.type==\"{kind}\")].status}} {{.status.conditions[*].message}}"
        );
        world.kubectl(&["get", "clustercatalog", name, "-o", &path])
    };
    world
        .eventually("the other catalog is served", SOON, async || {
            Ok(condition("good", "Serving")?.starts_with("True").then_some(()))
        })
        .await?;
    let served = began.elapsed();
    world
        .eventually("the bomb is refused", SOON, async || {
            let said = condition("bomb", "Progressing")?;
            Ok(said.contains("following the links of the image").then_some(()))
        })
        .await?;
    tracing::info!(?served, refused = ?began.elapsed(), "a bomb of links");
    world
        .kubectl(&["delete", "clustercatalog", "bomb", "good"])
        .map(drop)
}

/// A ClusterExtension of a package, in a namespace of that name.
pub(crate) fn extension(name: &str, package: &str, account: Option<&str>) -> Value {
    let mut extension = json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterExtension", "metadata": { "name": name },
        "spec": {
            "namespace": package,
            "source": { "sourceType": "Catalog", "catalog": { "packageName": package, "channels": ["stable"] } },
        },
    });
    if let Some(account) = account {
        extension["spec"]["serviceAccount"] = json!({ "name": account });
    }
    extension
}

/// Publishes version 1.0.0 of the sample operator under another name, as a catalog of its own.
pub(crate) async fn publish(world: &World, package: &str) -> Result<()> {
    let reference = world
        .publish(package, &["1.0.0"], samples::OPERATOR_IMAGE)
        .await?;
    world.apply(&[catalog(package, &reference)])
}

#[test]
fn a_workload_runs_as_the_installing_account_only_where_the_user_allows_it() -> Result<()> {
    WORLD.with(async |world| {
        publish(world, "usurper").await?;
        // The account of its Deployment.
        world.apply(&administrator("usurper", "usurper-operator"))?;
        world.apply(&[extension("usurper", "usurper", Some("usurper-operator"))])?;
        let part = "would act as service account usurper/usurper-operator";
        await_progressing(world, "usurper", "Blocked", part).await?;
        let sets = world.kubectl(&["get", "clusterobjectsets", "-o", "name"])?;
        ensure!(!sets.contains("usurper"), "a revision was made: {sets}");
        // The account is there already, and in the bundle.
        let allow = format!("{}=true", user::ALLOW_INSTALLER_WORKLOADS);
        let adopt = format!("{}=all", user::ADOPT);
        world.kubectl(&["annotate", "clusterextension", "usurper", &allow, &adopt])?;
        world
            .eventually("a revision is made", SOON, async || {
                let sets = world.kubectl(&["get", "clusterobjectsets", "-o", "name"])?;
                Ok(sets.contains("usurper-1").then_some(()))
            })
            .await
    })
}
