//! The main job on real parts: a ClusterExtension is installed under its account, upgraded, rolled back, repaired and
//! removed without leftovers, by the shipped binaries with the rights of the shipped manifests.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use olm_api::{ClusterObjectSet, conditions, names};
use olm_test::e2e::everything;
use olm_test::extensions::{
    SOON, await_gone, await_progressing, await_version, catalog, extensions, installed_version, patch_source,
    revisions,
};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

/// Both managers. Every test publishes a package of its own.
static CLUSTER: Shared<World> = Shared::new(|| Box::pin(World::start(Options::default())));

/// The sample operator with all its objects.
const SAMPLE: &str = "manifests/samples/greeter.yaml";

/// Publishes the sample operator in these versions as a package, in a ClusterCatalog of the same name.
async fn publish(world: &World, package: &str, versions: &[&str]) -> Result<()> {
    let reference = world.publish(package, versions, samples::OPERATOR_IMAGE).await?;
    world.apply(&[catalog(package, &reference)])
}

/// Applies the extension with its namespace, account and rights.
fn apply(world: &World, package: &str) -> Result<()> {
    let path = world.sample_file(SAMPLE, package, |text| text)?;
    world
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &path])
        .map(drop)
}

/// The objects of the cluster with the name of a package.
fn everything_of(world: &World, package: &str) -> Result<BTreeSet<String>> {
    let mut found = everything(world)?;
    found.retain(|name| name.contains(package));
    Ok(found)
}

async fn operator(world: &World, package: &str) -> Result<Option<Deployment>> {
    Ok(Api::<Deployment>::namespaced(world.client.clone(), package)
        .get_opt(&format!("{package}-operator"))
        .await?)
}

async fn delete_operator(world: &World, package: &str) -> Result<()> {
    Api::<Deployment>::namespaced(world.client.clone(), package)
        .delete(&format!("{package}-operator"), &DeleteParams::default())
        .await?;
    Ok(())
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
async fn drift_is_corrected(world: &World, package: &str) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), package);
    let drift = json!({ "spec": { "replicas": 3 } });
    deployments
        .patch(
            &format!("{package}-operator"),
            &PatchParams::default(),
            &Patch::Merge(&drift),
        )
        .await?;
    world
        .eventually("the changed Deployment is repaired", SOON, async || {
            let replicas = operator(world, package)
                .await?
                .and_then(|found| found.spec?.replicas);
            Ok((replicas == Some(1)).then_some(()))
        })
        .await?;
    delete_operator(world, package).await?;
    world
        .eventually("the deleted Deployment is back", SOON, async || {
            Ok(operator(world, package)
                .await?
                .filter(|found| found.metadata.deletion_timestamp.is_none())
                .map(drop))
        })
        .await?;
    Ok(())
}

#[test]
fn an_extension_is_installed_upgraded_rolled_back_repaired_and_removed_without_leftovers() -> Result<()> {
    CLUSTER.with(async |world| {
        publish(world, "lifecycle", samples::VERSIONS).await?;
        // The account and its rights stay when the extension is deleted.
        let rights = |text: String| text[..text.rfind("---").unwrap_or(text.len())].to_owned();
        let path = world.sample_file(SAMPLE, "lifecycle", rights)?;
        world.kubectl(&["apply", "--server-side", "-f", &path])?;
        let before = everything_of(world, "lifecycle")?;

        // Install: the newest in the range, under the account that the extension names.
        apply(world, "lifecycle")?;
        let extension = await_version(world, "lifecycle", "1.0.1").await?;
        assert_eq!(
            extension
                .status
                .context("status")?
                .install
                .context("install")?
                .bundle
                .name,
            "lifecycle.v1.0.1"
        );
        let deployment = operator(world, "lifecycle")
            .await?
            .context("the operator's Deployment")?;
        assert_eq!(operator_version(&deployment), Some("1.0.1"));
        let audit = std::fs::read_to_string(world.cluster.audit_log())?;
        let by_account = audit.lines().any(|line| {
            line.contains("\"system:serviceaccount:lifecycle:lifecycle-installer\"")
                && line.contains("/namespaces/lifecycle/deployments")
                && line.contains("\"verb\":\"patch\"") | line.contains("\"verb\":\"create\"")
        });
        assert!(
            by_account,
            "the Deployment was not written by the extension's account"
        );

        // A wider range: an edge leads to 1.1.0.
        patch_source(world, "lifecycle", json!({ "version": "1.x" })).await?;
        await_version(world, "lifecycle", "1.1.0").await?;

        // A major version has an edge in another channel.
        patch_source(
            world,
            "lifecycle",
            json!({ "channels": ["candidate"], "version": "2.0.0" }),
        )
        .await?;
        await_version(world, "lifecycle", "2.0.0").await?;

        // Back: refused without an edge, done when forced.
        patch_source(
            world,
            "lifecycle",
            json!({ "channels": ["stable"], "version": "1.1.0" }),
        )
        .await?;
        let refusal = await_progressing(world, "lifecycle", conditions::reason::RETRYING, "2.0.0").await?;
        assert!(
            refusal.contains("error upgrading from currently installed version \"2.0.0\""),
            "{refusal}"
        );
        assert_eq!(
            installed_version(&extensions(world).get("lifecycle").await?),
            Some("2.0.0")
        );
        patch_source(
            world,
            "lifecycle",
            json!({ "upgradeConstraintPolicy": "SelfCertified" }),
        )
        .await?;
        await_version(world, "lifecycle", "1.1.0").await?;
        assert_eq!(
            operator_version(&operator(world, "lifecycle").await?.context("Deployment")?),
            Some("1.1.0")
        );

        drift_is_corrected(world, "lifecycle").await?;
        await_version(world, "lifecycle", "1.1.0").await?;

        // Deleted, with all objects that it created and no others.
        extensions(world)
            .delete("lifecycle", &DeleteParams::default())
            .await?;
        await_gone(world, "lifecycle").await?;
        world
            .eventually("nothing is left", SOON, async || {
                let after = everything_of(world, "lifecycle")?;
                let left: Vec<_> = after.difference(&before).collect();
                let lost: Vec<_> = before.difference(&after).collect();
                if left.is_empty() && lost.is_empty() {
                    return Ok(Some(()));
                }
                anyhow::bail!("left {left:?}, lost {lost:?}")
            })
            .await?;
        Ok(())
    })
}

#[test]
fn an_account_without_rights_installs_nothing_until_it_has_them() -> Result<()> {
    CLUSTER.with(async |world| {
        publish(world, "limited-account", &["1.0.0"]).await?;
        // The same account without the rights to roles and CRDs.
        let path = world.sample_file(SAMPLE, "limited-account", |text| {
            let roles = "resources: [clusterroles, clusterrolebindings, roles, rolebindings]";
            let definitions = "resources: [customresourcedefinitions]";
            assert!(text.contains(roles) && text.contains(definitions), "{text}");
            text.replace(roles, "resources: [roles]")
                .replace(definitions, "resources: [nothing]")
        })?;
        world.kubectl(&["apply", "--server-side", "-f", &path])?;
        let message = await_progressing(
            world,
            "limited-account",
            conditions::reason::RETRYING,
            "clusterroles",
        )
        .await?;
        for missing in ["clusterrolebindings", "customresourcedefinitions"] {
            assert!(
                message.contains(missing),
                "all that is missing is said at once: {message}"
            );
        }
        assert!(
            message.contains("limited-account/limited-account-installer")
                || message.contains("limited-account:limited-account-installer"),
            "{message}"
        );
        assert!(
            operator(world, "limited-account").await?.is_none(),
            "nothing is applied before everything may be"
        );
        let accounts = world.kubectl(&["get", "serviceaccounts", "-n", "limited-account", "-o", "name"])?;
        assert!(
            !accounts.contains("limited-account-operator"),
            "nothing is applied before everything may be: {accounts}"
        );
        assert!(
            message.ends_with("`olm rbac limited-account` prints the roles to apply."),
            "the message names the remedy: {message}"
        );

        apply(world, "limited-account")?;
        await_version_within(world, "limited-account", "1.0.0", Duration::from_secs(90)).await
    })
}

async fn await_version_within(world: &World, name: &str, version: &str, limit: Duration) -> Result<()> {
    world
        .eventually(&format!("{name} is at {version}"), limit, async || {
            let extension = extensions(world).get(name).await?;
            Ok((installed_version(&extension) == Some(version)).then_some(()))
        })
        .await
}

#[test]
fn a_missing_namespace_account_or_package_is_reported_and_awaited() -> Result<()> {
    CLUSTER.with(async |world| {
        publish(world, "missing-parts", &["1.0.0"]).await?;
        let extension = |name: &str, package: &str| {
            json!({
                "apiVersion": "olm.operatorframework.io/v1",
                "kind": "ClusterExtension",
                "metadata": { "name": name },
                "spec": {
                    "namespace": "missing-parts",
                    "serviceAccount": { "name": "missing-parts-installer" },
                    "source": { "sourceType": "Catalog", "catalog": { "packageName": package } },
                },
            })
        };
        world.apply(&[extension("missing-parts", "missing-parts")])?;
        let message =
            await_progressing(world, "missing-parts", conditions::reason::RETRYING, "namespace").await?;
        assert!(
            !message.contains("permission"),
            "the first missing requirement is named first: {message}"
        );
        world.kubectl(&["create", "namespace", "missing-parts"])?;
        let message = await_progressing(
            world,
            "missing-parts",
            conditions::reason::RETRYING,
            "missing-parts-installer",
        )
        .await?;
        assert!(
            message.contains("not found") || message.contains("does not exist"),
            "{message}"
        );
        // Another manager owns the range of the sample by now; only the account matters here.
        apply(world, "missing-parts")?;
        await_version_within(world, "missing-parts", "1.0.0", Duration::from_secs(90)).await?;
        // A package that no catalog has.
        world.apply(&[extension("misspelled", "mising-parts")])?;
        let retrying = conditions::reason::RETRYING;
        let message = await_progressing(world, "misspelled", retrying, "did you mean").await?;
        assert!(
            message.starts_with("no bundles found for package \"mising-parts\"\n")
                && message.contains("did you mean \"missing-parts\" of catalog \"missing-parts\"?"),
            "{message}"
        );
        Ok(())
    })
}

#[test]
fn an_extension_without_an_account_is_blocked_and_a_default_account_installs_it() -> Result<()> {
    CLUSTER.alone(async |world| {
        publish(world, "default-account", &["1.0.0"]).await?;
        world.kubectl(&["create", "namespace", "default-account"])?;
        let extension = json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterExtension",
            "metadata": { "name": "default-account" },
            "spec": {
                "namespace": "default-account",
                "source": { "sourceType": "Catalog", "catalog": { "packageName": "default-account" } },
            },
        });
        world.apply(&[extension])?;
        let message = await_progressing(
            world,
            "default-account",
            conditions::reason::BLOCKED,
            "serviceAccount",
        )
        .await?;
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
        let default = format!(
            "--default-service-account={}/default-installer",
            names::SYSTEM_NAMESPACE
        );
        world.operator_controller.add_argument(default.clone());
        world.start_operator_controller()?;
        await_version(world, "default-account", "1.0.0").await?;
        world.operator_controller.stop().await?;
        world.operator_controller.remove_argument(&default);
        world.start_operator_controller()?;
        world.operator_controller.ready().await
    })
}

#[test]
fn the_installed_version_is_kept_and_repaired_while_no_catalog_answers_and_managers_restart() -> Result<()> {
    CLUSTER.alone(async |world| {
        publish(world, "no-catalog", &["1.0.0", "1.0.1"]).await?;
        apply(world, "no-catalog")?;
        await_version(world, "no-catalog", "1.0.1").await?;
        world.catalogd.kill();
        world.operator_controller.kill();
        world.start_operator_controller()?;
        world.operator_controller.ready().await?;
        // Without a catalog, and with a range in the spec, a deleted object is created again.
        delete_operator(world, "no-catalog").await?;
        world
            .eventually("the deleted Deployment is back", SOON, async || {
                Ok(operator(world, "no-catalog")
                    .await?
                    .filter(|found| found.metadata.deletion_timestamp.is_none())
                    .map(drop))
            })
            .await?;
        let extension = extensions(world).get("no-catalog").await?;
        assert!(conditions::is_true(extension.conditions(), conditions::INSTALLED));
        assert_eq!(installed_version(&extension), Some("1.0.1"));
        // catalogd serves from disk again, and the next edit is followed.
        world.start_catalogd()?;
        world.catalogd.ready().await?;
        patch_source(
            world,
            "no-catalog",
            json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" }),
        )
        .await?;
        await_version(world, "no-catalog", "1.0.0").await.map(drop)
    })
}

#[test]
fn a_pin_holds_and_a_channel_is_followed_when_the_catalog_changes() -> Result<()> {
    CLUSTER.with(async |world| {
        let reference = world
            .publish("polled", &["1.0.0"], samples::OPERATOR_IMAGE)
            .await?;
        let mut polled = catalog("polled", &reference);
        polled["spec"]["source"]["image"]["pollIntervalMinutes"] = json!(1);
        world.apply(&[polled])?;
        apply(world, "polled")?;
        await_version(world, "polled", "1.0.0").await?;
        patch_source(world, "polled", json!({ "version": "1.0.0" })).await?;

        world
            .publish("polled", samples::VERSIONS, samples::OPERATOR_IMAGE)
            .await?;
        let served = await_new_content(world).await?;
        assert_eq!(
            installed_version(&extensions(world).get("polled").await?),
            Some("1.0.0"),
            "although {served} is served"
        );
        // The pin is removed, so that only the channel decides.
        patch_source(world, "polled", json!({ "version": null })).await?;
        await_version(world, "polled", "1.1.0").await.map(drop)
    })
}

/// Waits until catalogd serves 1.1.0, at most two polls.
async fn await_new_content(world: &World) -> Result<String> {
    world
        .eventually(
            "the new catalog is served",
            Duration::from_secs(150),
            async || {
                let text = world.kubectl(&["get", "clustercatalog", "polled", "-o", "json"])?;
                let object: Value = serde_json::from_str(&text)?;
                let reference = object
                    .pointer("/status/resolvedSource/image/ref")
                    .and_then(Value::as_str);
                let body = get_insecure(&format!("{}/catalogs/polled/api/v1/all", world.catalogs)).await?;
                Ok(body
                    .contains("polled.v1.1.0")
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

/// The requests of operator-controller and the accounts of extensions to the API server from line `from` of its log on,
/// except watches, its Lease, and reviews of rights, which store nothing.
fn requests(world: &World, from: usize) -> Result<Vec<String>> {
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let entries = log.lines().skip(from);
    let entries = entries.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = entries.filter(|entry| {
        let agent = entry["userAgent"].as_str().unwrap_or_default();
        let resource = entry["objectRef"]["resource"].as_str().unwrap_or_default();
        agent.starts_with("operator-controller")
            && entry["verb"] != "watch"
            && resource != "leases"
            && !resource.ends_with("reviews")
            && entry["objectRef"]["subresource"] != "token"
    });
    Ok(ours
        .map(|entry| {
            format!(
                "{} {}",
                entry["verb"].as_str().unwrap_or_default(),
                entry["requestURI"]
            )
        })
        .collect())
}

#[test]
fn a_run_that_changes_nothing_lists_and_writes_nothing() -> Result<()> {
    CLUSTER.alone(async |world| {
        // Other waiting extensions would be reconciled repeatedly.
        world.kubectl(&["delete", "clusterextensions", "--all", "--timeout=120s"])?;
        publish(world, "unchanged", &["1.0.0"]).await?;
        apply(world, "unchanged")?;
        await_version(world, "unchanged", "1.0.0").await?;
        let lines = || -> Result<usize> {
            Ok(std::fs::read_to_string(world.cluster.audit_log())?
                .lines()
                .count())
        };
        world
            .eventually("nothing is asked for", SOON, async || {
                let from = lines()?;
                tokio::time::sleep(Duration::from_secs(8)).await;
                let asked = requests(world, from)?;
                ensure!(asked.is_empty(), "{asked:?}");
                Ok(Some(()))
            })
            .await?;
        // Both controllers reconcile their objects, and there is nothing to do.
        let from = lines()?;
        let runs = runs(world).await?;
        for object in ["clusterextension/unchanged", "clusterobjectset/unchanged-1"] {
            world.kubectl(&["annotate", object, "example.com/look=again"])?;
        }
        world
            .eventually("both have run", SOON, async || {
                let now = self::runs(world).await?;
                let more: Vec<bool> = now.iter().zip(&runs).map(|(now, before)| now > before).collect();
                ensure!(more == [true, true], "{runs:?} {now:?}");
                Ok(Some(()))
            })
            .await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mut asked = requests(world, from)?;
        asked.retain(|request| !request.starts_with("get "));
        ensure!(asked.is_empty(), "{asked:#?}");
        Ok(())
    })
}

/// The number of runs of each controller.
async fn runs(world: &World) -> Result<[u64; 2]> {
    let token = world.kubectl(&["create", "token", "metrics-reader", "-n", "default"]);
    if token.is_err() {
        world.kubectl(&["create", "serviceaccount", "metrics-reader", "-n", "default"])?;
        world.kubectl(&[
            "create",
            "clusterrolebinding",
            "metrics-reader",
            "--clusterrole=operator-controller-metrics-reader",
            "--serviceaccount=default:metrics-reader",
        ])?;
    }
    let token = world.kubectl(&["create", "token", "metrics-reader", "-n", "default"])?;
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .build()?;
    let url = format!("https://{}/metrics", world.operator_controller.metrics);
    let answer = client.get(url).bearer_auth(token.trim()).send().await?;
    let text = answer.error_for_status()?.text().await?;
    let of = |controller: &str| -> Result<u64> {
        let start = format!("controller_runtime_reconcile_total{{controller=\"{controller}\"");
        let lines = text.lines().filter(|line| line.starts_with(&start));
        let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        Ok(values.sum())
    };
    Ok([
        of("controller-operator-cluster-extension-controller")?,
        of("clusterobjectset")?,
    ])
}

#[test]
fn a_crd_of_another_extension_is_not_taken_over() -> Result<()> {
    CLUSTER.with(async |world| {
        publish(world, "crd-owner", &["1.0.0"]).await?;
        apply(world, "crd-owner")?;
        await_version(world, "crd-owner", "1.0.0").await?;
        // The same content as another package, for another extension.
        let mut files = samples::renamed_bundle("crd-owner", "1.0.0", samples::OPERATOR_IMAGE);
        for content in files.values_mut() {
            let text = String::from_utf8_lossy(content)
                .replace("package.v1: crd-owner", "package.v1: rival")
                .replace("name: crd-owner.v", "name: rival.v")
                .replace("crd-owner-operator", "rival-operator");
            *content = text.into_bytes();
        }
        let image = world.push_bundle("rival-bundle:v1.0.0", &files).await?;
        let blobs = samples::renamed("rival", &samples::catalog(&["1.0.0"], |_| image.clone()));
        let reference = world.push_catalog("rival-catalog:latest", &blobs).await?;
        world.apply(&[
            catalog("rival", &reference),
            json!({
                "apiVersion": "olm.operatorframework.io/v1",
                "kind": "ClusterExtension",
                "metadata": { "name": "rival" },
                "spec": {
                    "namespace": "crd-owner",
                    "serviceAccount": { "name": "crd-owner-installer" },
                    "source": { "sourceType": "Catalog", "catalog": { "packageName": "rival" } },
                },
            }),
        ])?;
        let message = await_progressing(
            world,
            "rival",
            conditions::reason::RETRYING,
            "greetings.crd-owner.olm.example",
        )
        .await?;
        assert!(
            message.contains("ClusterExtension \"crd-owner\""),
            "the owner is named: {message}"
        );
        // The first extension lost nothing.
        let crd = world.kubectl(&["get", "crd", "greetings.crd-owner.olm.example", "-o", "json"])?;
        let crd: Value = serde_json::from_str(&crd)?;
        let owner = crd
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(names::label::OWNER_NAME));
        assert_eq!(owner.and_then(Value::as_str), Some("crd-owner"));
        let sets = revisions(world).list(&ListParams::default()).await?;
        assert!(
            sets.items.iter().any(|set| set.name() == "crd-owner-1"),
            "{:?}",
            sets.items.iter().map(ClusterObjectSet::name).collect::<Vec<_>>()
        );
        Ok(())
    })
}

/// Bundles are immutable: an installed bundle is not installed again when its content changes.
#[test]
fn a_version_republished_with_other_content_is_not_installed_again() -> Result<()> {
    CLUSTER.with(async |world| {
        publish(world, "republished", &["1.0.0"]).await?;
        apply(world, "republished")?;
        await_version(world, "republished", "1.0.0").await?;
        let mut files = samples::renamed_bundle("republished", "1.0.0", samples::OPERATOR_IMAGE);
        for content in files.values_mut() {
            let text = String::from_utf8_lossy(content).replace("replicas: 1", "replicas: 2");
            *content = text.into_bytes();
        }
        let image = world
            .push_bundle("republished-bundle:v1.0.0-again", &files)
            .await?;
        let blobs = samples::renamed("republished", &samples::catalog(&["1.0.0"], |_| image.clone()));
        let reference = world.push_catalog("republished-catalog:again", &blobs).await?;
        world.apply(&[catalog("republished", &reference)])?;
        world
            .eventually("the republished catalog is served", SOON, async || {
                let body =
                    get_insecure(&format!("{}/catalogs/republished/api/v1/all", world.catalogs)).await?;
                Ok(body.contains(&image).then_some(()))
            })
            .await?;
        // An edit causes a request to the catalog, so that the next check is not merely early.
        patch_source(world, "republished", json!({ "version": "1.0.0" })).await?;
        world
            .eventually("the edit is seen", SOON, async || {
                let extension = extensions(world).get("republished").await?;
                let seen = conditions::find(extension.conditions(), conditions::INSTALLED)
                    .is_some_and(|installed| installed.observed_generation == extension.metadata.generation);
                Ok(seen.then_some(()))
            })
            .await?;
        let owned = ListParams::default().labels(&format!("{}=republished", names::label::OWNER_NAME));
        let sets = revisions(world).list(&owned).await?;
        let names: Vec<&str> = sets.items.iter().map(ClusterObjectSet::name).collect();
        assert_eq!(names, ["republished-1"]);
        let replicas = operator(world, "republished")
            .await?
            .and_then(|found| found.spec?.replicas);
        assert_eq!(replicas, Some(1));
        Ok(())
    })
}
