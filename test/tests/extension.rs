//! The main job on real parts: a ClusterExtension is installed under its account, upgraded, rolled back, repaired and
//! removed without leftovers, by the shipped binaries with the rights of the shipped manifests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::{ClusterObjectSet, conditions, names};
use olm_test::e2e::{everything, everything_before};
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, installed_version, patch_source,
    revisions,
};
use olm_test::samples;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// Starts everything and publishes the sample catalog in these versions under ClusterCatalog `samples`.
async fn world_with(versions: &[&str]) -> Result<World> {
    let world = World::start(Options::default()).await?;
    let reference = world.publish_greeter(versions, samples::OPERATOR_IMAGE).await?;
    world.apply(&[catalog("samples", &reference)])?;
    Ok(world)
}

async fn operator(world: &World) -> Result<Option<Deployment>> {
    Ok(Api::<Deployment>::namespaced(world.client.clone(), "greeter")
        .get_opt("greeter-operator")
        .await?)
}

fn operator_version(deployment: &Deployment) -> Option<&str> {
    let container = deployment
        .spec
        .as_ref()?
        .template
        .spec
        .as_ref()?
        .containers
        .first()?;
    container
        .env
        .as_ref()?
        .iter()
        .find(|env| env.name == "OPERATOR_VERSION")?
        .value
        .as_deref()
}

/// A changed field is set back and a deleted object is made again.
async fn drift_is_corrected(world: &World) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), "greeter");
    let drift = json!({ "spec": { "replicas": 3 } });
    deployments
        .patch("greeter-operator", &PatchParams::default(), &Patch::Merge(&drift))
        .await?;
    world
        .eventually("the changed Deployment is repaired", SOON, async || {
            let replicas = operator(world).await?.and_then(|found| found.spec?.replicas);
            Ok((replicas == Some(1)).then_some(()))
        })
        .await?;
    deployments
        .delete("greeter-operator", &DeleteParams::default())
        .await?;
    world
        .eventually("the deleted Deployment is back", SOON, async || {
            Ok(operator(world)
                .await?
                .filter(|found| found.metadata.deletion_timestamp.is_none())
                .map(drop))
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_is_installed_upgraded_rolled_back_repaired_and_removed_without_leftovers() -> Result<()>
{
    let world = world_with(samples::VERSIONS).await?;
    // What stays when the extension goes: the account and its rights.
    world.apply_without_extension("manifests/samples/greeter.yaml")?;
    let before = everything_before(&world).await?;

    // Install: the newest in the range, under the account that the extension names.
    world.apply_file("manifests/samples/greeter.yaml")?;
    let extension = await_version(&world, "greeter", "1.0.1").await?;
    assert_eq!(
        extension
            .status
            .context("status")?
            .install
            .context("install")?
            .bundle
            .name,
        "greeter.v1.0.1"
    );
    let deployment = operator(&world).await?.context("the operator's Deployment")?;
    assert_eq!(operator_version(&deployment), Some("1.0.1"));
    let audit = std::fs::read_to_string(world.cluster.audit_log())?;
    let by_account = audit.lines().any(|line| {
        line.contains("\"system:serviceaccount:greeter:greeter-installer\"")
            && line.contains("/namespaces/greeter/deployments")
            && line.contains("\"verb\":\"patch\"") | line.contains("\"verb\":\"create\"")
    });
    assert!(
        by_account,
        "the Deployment was not written by the extension's account"
    );

    // A wider range: an edge leads to 1.1.0.
    patch_source(&world, "greeter", json!({ "version": "1.x" })).await?;
    await_version(&world, "greeter", "1.1.0").await?;

    // A major version has an edge in another channel (requirement 12.01).
    patch_source(
        &world,
        "greeter",
        json!({ "channels": ["candidate"], "version": "2.0.0" }),
    )
    .await?;
    await_version(&world, "greeter", "2.0.0").await?;

    // Back: refused without an edge, done when forced (T-1C-07).
    patch_source(
        &world,
        "greeter",
        json!({ "channels": ["stable"], "version": "1.1.0" }),
    )
    .await?;
    let refusal = await_progressing(&world, "greeter", conditions::reason::RETRYING, "2.0.0").await?;
    assert!(
        refusal.contains("error upgrading from currently installed version \"2.0.0\""),
        "{refusal}"
    );
    assert_eq!(
        installed_version(&extensions(&world).get("greeter").await?),
        Some("2.0.0")
    );
    patch_source(
        &world,
        "greeter",
        json!({ "upgradeConstraintPolicy": "SelfCertified" }),
    )
    .await?;
    await_version(&world, "greeter", "1.1.0").await?;
    assert_eq!(
        operator_version(&operator(&world).await?.context("Deployment")?),
        Some("1.1.0")
    );

    drift_is_corrected(&world).await?;
    await_version(&world, "greeter", "1.1.0").await?;

    // Gone, with everything it made and nothing else.
    extensions(&world)
        .delete("greeter", &DeleteParams::default())
        .await?;
    await_gone(&world, "greeter").await?;
    world
        .eventually("nothing is left", SOON, async || {
            let after = everything(&world)?;
            let left: Vec<_> = after.difference(&before).collect();
            let lost: Vec<_> = before.difference(&after).collect();
            if left.is_empty() && lost.is_empty() {
                return Ok(Some(()));
            }
            anyhow::bail!("left {left:?}, lost {lost:?}")
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_cannot_get_what_its_account_may_not_do_and_heals_when_it_may() -> Result<()> {
    let world = world_with(&["1.0.0"]).await?;
    let text = std::fs::read_to_string(olm_test::world::repository().join("manifests/samples/greeter.yaml"))?;
    // The same account without the rights to roles and CRDs.
    let limited = text
        .replace(
            "resources: [clusterroles, clusterrolebindings, roles, rolebindings]",
            "resources: [roles]",
        )
        .replace("resources: [customresourcedefinitions]", "resources: [nothing]");
    assert_ne!(limited, text);
    let path = world.folder().join("limited.yaml");
    std::fs::write(&path, limited)?;
    world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;

    let message = await_progressing(&world, "greeter", conditions::reason::RETRYING, "clusterroles").await?;
    for missing in ["clusterrolebindings", "customresourcedefinitions"] {
        assert!(
            message.contains(missing),
            "all that is missing is said at once: {message}"
        );
    }
    assert!(
        message.contains("greeter/greeter-installer") || message.contains("greeter:greeter-installer"),
        "{message}"
    );
    assert!(
        operator(&world).await?.is_none(),
        "nothing is applied before everything may be"
    );
    let accounts = world.kubectl(&["get", "serviceaccounts", "-n", "greeter", "-o", "name"])?;
    assert!(
        !accounts.contains("greeter-operator"),
        "nothing is applied before everything may be: {accounts}"
    );
    assert!(
        message.contains("kind: ClusterRole") && message.contains("kind: ClusterRoleBinding"),
        "what would mend it is there to be applied: {message}"
    );

    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version_within(&world, "greeter", "1.0.0", Duration::from_secs(90)).await
}

async fn await_version_within(world: &World, name: &str, version: &str, limit: Duration) -> Result<()> {
    world
        .eventually(&format!("{name} is at {version}"), limit, async || {
            let extension = extensions(world).get(name).await?;
            Ok((installed_version(&extension) == Some(version)).then_some(()))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_said_and_waited_for() -> Result<()> {
    let world = world_with(&["1.0.0"]).await?;
    let extension = |name: &str, package: &str| {
        json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterExtension",
            "metadata": { "name": name },
            "spec": {
                "namespace": "greeter",
                "serviceAccount": { "name": "greeter-installer" },
                "source": { "sourceType": "Catalog", "catalog": { "packageName": package } },
            },
        })
    };
    world.apply(&[extension("greeter", "greeter")])?;
    let message = await_progressing(&world, "greeter", conditions::reason::RETRYING, "namespace").await?;
    assert!(
        !message.contains("permission"),
        "what is missing first is said first: {message}"
    );
    world.kubectl(&["create", "namespace", "greeter"])?;
    let message = await_progressing(
        &world,
        "greeter",
        conditions::reason::RETRYING,
        "greeter-installer",
    )
    .await?;
    assert!(
        message.contains("not found") || message.contains("does not exist"),
        "{message}"
    );
    world.apply_file("manifests/samples/greeter.yaml").or_else(|_| {
        // The range of the sample is another manager's field by now; the account is what matters here.
        world
            .kubectl(&[
                "apply",
                "--server-side",
                "--force-conflicts",
                "-f",
                &olm_test::world::repository()
                    .join("manifests/samples/greeter.yaml")
                    .display()
                    .to_string(),
            ])
            .map(drop)
    })?;
    await_version_within(&world, "greeter", "1.0.0", Duration::from_secs(90)).await?;
    // A package that no catalog has.
    world.apply(&[extension("misspelled", "greter")])?;
    let retrying = conditions::reason::RETRYING;
    let message = await_progressing(&world, "misspelled", retrying, "did you mean").await?;
    assert!(
        message.starts_with("no bundles found for package \"greter\"\n")
            && message.contains("did you mean \"greeter\" of catalog \"samples\"?"),
        "{message}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_without_an_account_is_blocked_and_a_default_account_installs_it() -> Result<()> {
    let mut world = world_with(&["1.0.0"]).await?;
    world.kubectl(&["create", "namespace", "greeter"])?;
    let extension = json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterExtension",
        "metadata": { "name": "greeter" },
        "spec": {
            "namespace": "greeter",
            "source": { "sourceType": "Catalog", "catalog": { "packageName": "greeter" } },
        },
    });
    world.apply(&[extension])?;
    let message = await_progressing(&world, "greeter", conditions::reason::BLOCKED, "serviceAccount").await?;
    assert!(
        message.contains("default-service-account"),
        "what to do is said: {message}"
    );

    world.kubectl(&[
        "create",
        "serviceaccount",
        "default-installer",
        "-n",
        names::SYSTEM_NAMESPACE,
    ])?;
    world.kubectl(&[
        "create",
        "clusterrolebinding",
        "default-installer",
        "--clusterrole=cluster-admin",
        &format!("--serviceaccount={}:default-installer", names::SYSTEM_NAMESPACE),
    ])?;
    world.operator_controller.stop().await?;
    world.operator_controller.add_argument(format!(
        "--default-service-account={}/default-installer",
        names::SYSTEM_NAMESPACE
    ));
    world.start_operator_controller()?;
    await_version(&world, "greeter", "1.0.0").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_installed_is_kept_and_repaired_while_no_catalog_answers_and_managers_restart() -> Result<()>
{
    let mut world = world_with(&["1.0.0", "1.0.1"]).await?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(&world, "greeter", "1.0.1").await?;
    world.catalogd.kill();
    world.operator_controller.kill();
    world.start_operator_controller()?;
    world.operator_controller.ready().await?;
    // Without any catalog, and with a range in the spec, a deleted object comes back.
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), "greeter");
    deployments
        .delete("greeter-operator", &DeleteParams::default())
        .await?;
    world
        .eventually("the deleted Deployment is back", SOON, async || {
            Ok(operator(&world)
                .await?
                .filter(|found| found.metadata.deletion_timestamp.is_none())
                .map(drop))
        })
        .await?;
    let extension = extensions(&world).get("greeter").await?;
    assert!(conditions::is_true(extension.conditions(), conditions::INSTALLED));
    assert_eq!(installed_version(&extension), Some("1.0.1"));
    // catalogd serves from disk again, and the next edit is followed.
    world.start_catalogd()?;
    world.catalogd.ready().await?;
    patch_source(
        &world,
        "greeter",
        json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" }),
    )
    .await?;
    await_version(&world, "greeter", "1.0.0").await.map(drop)
}

/// T-1C-05, T-1C-12 and T-2H-03: a pin holds, a channel is followed when the catalog changes.
#[tokio::test(flavor = "multi_thread")]
async fn t_1c_05_t_1c_12_a_pin_holds_and_a_channel_is_followed_when_the_catalog_changes() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let reference = world.publish_greeter(&["1.0.0"], samples::OPERATOR_IMAGE).await?;
    let mut polled = catalog("samples", &reference);
    polled["spec"]["source"]["image"]["pollIntervalMinutes"] = json!(1);
    world.apply(&[polled])?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(&world, "greeter", "1.0.0").await?;
    patch_source(&world, "greeter", json!({ "version": "1.0.0" })).await?;

    world
        .publish_greeter(samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    let served = await_new_content(&world).await?;
    assert_eq!(
        installed_version(&extensions(&world).get("greeter").await?),
        Some("1.0.0"),
        "although {served} is served"
    );
    // The pin is taken away: the channel alone decides now.
    patch_source(&world, "greeter", json!({ "version": null })).await?;
    await_version(&world, "greeter", "1.1.0").await.map(drop)
}

/// Waits until catalogd serves 1.1.0, at most two polls.
async fn await_new_content(world: &World) -> Result<String> {
    world
        .eventually(
            "the new catalog is served",
            Duration::from_secs(150),
            async || {
                let text = world.kubectl(&["get", "clustercatalog", "samples", "-o", "json"])?;
                let object: Value = serde_json::from_str(&text)?;
                let reference = object
                    .pointer("/status/resolvedSource/image/ref")
                    .and_then(Value::as_str);
                let body = get_insecure(&format!("{}/catalogs/samples/api/v1/all", world.catalogs)).await?;
                Ok(body
                    .contains("greeter.v1.1.0")
                    .then(|| reference.unwrap_or_default().to_owned()))
            },
        )
        .await
}

async fn get_insecure(url: &str) -> Result<String> {
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .build()?;
    Ok(client.get(url).send().await?.error_for_status()?.text().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crd_of_another_extension_is_not_taken_over() -> Result<()> {
    let world = world_with(&["1.0.0"]).await?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(&world, "greeter", "1.0.0").await?;
    // The same content as another package, for another extension.
    let files: BTreeMap<String, Vec<u8>> = samples::bundle("1.0.0", "sample-operator:v1")
        .into_iter()
        .map(|(path, content)| {
            let text = String::from_utf8_lossy(&content)
                .replace("package.v1: greeter", "package.v1: welcomer")
                .replace("name: greeter.v", "name: welcomer.v")
                .replace("greeter-operator", "welcomer-operator");
            (path, text.into_bytes())
        })
        .collect();
    let image = world.push_bundle("welcomer-bundle:v1.0.0", &files).await?;
    let blobs = samples::catalog(&["1.0.0"], |_| image.clone()).replace("greeter", "welcomer");
    let reference = world.push_catalog("welcomer-catalog:latest", &blobs).await?;
    world.apply(&[
        catalog("others", &reference),
        json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterExtension",
            "metadata": { "name": "welcomer" },
            "spec": {
                "namespace": "greeter",
                "serviceAccount": { "name": "greeter-installer" },
                "source": { "sourceType": "Catalog", "catalog": { "packageName": "welcomer" } },
            },
        }),
    ])?;
    let message = await_progressing(
        &world,
        "welcomer",
        conditions::reason::BLOCKED,
        "greetings.samples.olm.example",
    )
    .await?;
    assert!(message.contains("greeter"), "the owner is named: {message}");
    // The first extension did not lose anything.
    let crd = world.kubectl(&["get", "crd", "greetings.samples.olm.example", "-o", "json"])?;
    let crd: Value = serde_json::from_str(&crd)?;
    let owner = crd
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(names::label::OWNER_NAME));
    assert_eq!(owner.and_then(Value::as_str), Some("greeter"));
    let sets = revisions(&world).list(&kube::api::ListParams::default()).await?;
    assert!(
        sets.items.iter().any(|set| set.name() == "greeter-1"),
        "{:?}",
        sets.items.iter().map(ClusterObjectSet::name).collect::<Vec<_>>()
    );
    Ok(())
}

/// Requirement 2.70: bundles are immutable; what is installed is not installed again when its content changes.
#[tokio::test(flavor = "multi_thread")]
async fn t_2h_02_a_version_republished_with_other_content_is_not_installed_again() -> Result<()> {
    let world = world_with(&["1.0.0"]).await?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(&world, "greeter", "1.0.0").await?;
    let files: BTreeMap<String, Vec<u8>> = samples::bundle("1.0.0", samples::OPERATOR_IMAGE)
        .into_iter()
        .map(|(path, content)| {
            let text = String::from_utf8_lossy(&content).replace("replicas: 1", "replicas: 2");
            (path, text.into_bytes())
        })
        .collect();
    let image = world.push_bundle("greeter-bundle:v1.0.0-again", &files).await?;
    let blobs = samples::catalog(&["1.0.0"], |_| image.clone());
    let reference = world.push_catalog("greeter-catalog:again", &blobs).await?;
    world.apply(&[catalog("samples", &reference)])?;
    world
        .eventually("the republished catalog is served", SOON, async || {
            let body = get_insecure(&format!("{}/catalogs/samples/api/v1/all", world.catalogs)).await?;
            Ok(body.contains(&image).then_some(()))
        })
        .await?;
    // An edit has the catalog asked again, so that what follows is not merely early.
    patch_source(&world, "greeter", json!({ "version": "1.0.0" })).await?;
    world
        .eventually("the edit is seen", SOON, async || {
            let extension = extensions(&world).get("greeter").await?;
            let seen = conditions::find(extension.conditions(), conditions::INSTALLED)
                .is_some_and(|installed| installed.observed_generation == extension.metadata.generation);
            Ok(seen.then_some(()))
        })
        .await?;
    let sets = revisions(&world).list(&kube::api::ListParams::default()).await?;
    let names: Vec<&str> = sets.items.iter().map(ClusterObjectSet::name).collect();
    assert_eq!(names, ["greeter-1"]);
    let replicas = operator(&world).await?.and_then(|found| found.spec?.replicas);
    assert_eq!(replicas, Some(1));
    Ok(())
}
