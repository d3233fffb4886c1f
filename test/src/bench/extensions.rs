//! One extension, many at once, and a large one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use olm_api::{ClusterCatalog, ClusterExtension, conditions};
use serde_json::{Value, json};

use super::{Figures, Plan, process, requests};
use crate::extensions::{administrator, catalog, is_settled};
use crate::world::{World, eventually};

const LIMIT: Duration = Duration::from_secs(240);
/// The account that each extension is installed by, in its own namespace.
pub(super) const ACCOUNT: &str = "bench-installer";
const CATALOG: &str = "bench-extensions";
/// The extension that is installed alone, without others.
const ALONE: &str = "bench-alone";
/// Installed alone, with many objects.
const BIG: &str = "bench-big";
/// The number of objects of `BIG` in addition to those of every bundle.
const OBJECTS: usize = 497;

fn name(at: usize) -> String {
    format!("bench-{at:03}")
}

/// Installs one extension, many at once and a big one, leaves them alone for a while, and removes them.
pub(super) async fn measure(world: &World, plan: &Plan, figures: &mut Figures) -> Result<()> {
    let count = plan.extensions;
    let many: Vec<String> = (0..count).map(name).collect();
    prepare(world, &many).await?;
    let beside = Api::<ClusterCatalog>::all(world.client.clone())
        .list(&ListParams::default())
        .await?
        .items
        .len()
        .saturating_sub(1);
    installed(
        &format!("one extension beside {beside} other catalogs"),
        &[ALONE.to_owned()],
        world,
        figures,
    )
    .await?;
    installed(&format!("{count} extensions at once"), &many, world, figures).await?;
    installed(
        &format!("one extension with {} objects", OBJECTS + 3),
        &[BIG.to_owned()],
        world,
        figures,
    )
    .await?;
    // Pending work ends.
    tokio::time::sleep(Duration::from_secs(5)).await;
    quiet(world, plan.quiet, figures).await?;
    scraped(world, count, figures).await?;
    let all: Vec<String> = [ALONE.to_owned(), BIG.to_owned()]
        .into_iter()
        .chain(many)
        .collect();
    removed(world, &all, figures).await
}

/// Reads the metrics of operator-controller as Prometheus does.
async fn scraped(world: &World, count: usize, figures: &mut Figures) -> Result<()> {
    world.kubectl(&["create", "serviceaccount", "scraper", "-n", "default"])?;
    let role = "--clusterrole=operator-controller-metrics-reader";
    let account = "--serviceaccount=default:scraper";
    world.kubectl(&["create", "clusterrolebinding", "scraper", role, account])?;
    let token = world.kubectl(&["create", "token", "scraper", "-n", "default"])?;
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .no_proxy()
        .build()?;
    let url = format!("https://{}/metrics", world.operator_controller.metrics);
    let mut line = String::new();
    // The first one asks the API server for the right of the token.
    for _ in 0..2 {
        let begin = Instant::now();
        let answer = client.get(&url).bearer_auth(token.trim()).send().await?;
        let text = answer.error_for_status()?.text().await?;
        let took = begin.elapsed();
        line = format!(
            "{:.1} ms, {} KiB, {} series",
            took.as_secs_f64() * 1e3,
            text.len() / 1024,
            text.lines().filter(|line| !line.starts_with('#')).count()
        );
    }
    figures.add(&format!("metrics with {count} extensions: a scrape"), &line);
    Ok(())
}

/// Creates extensions and waits until all of them are installed and idle.
async fn installed(what: &str, names: &[String], world: &World, figures: &mut Figures) -> Result<()> {
    let pid = pid(world)?;
    process::forget_peak(pid)?;
    let used = process::used(pid)?;
    let log = world.cluster.audit_log();
    let start = requests::end(log)?;
    let extensions = Api::<ClusterExtension>::all(world.client.clone());
    let wanted: Vec<ClusterExtension> = names
        .iter()
        .map(|name| serde_json::from_value(extension(name)))
        .collect::<Result<_, _>>()?;
    let begin = Instant::now();
    let parameters = PostParams::default();
    let creations = wanted
        .iter()
        .map(|extension| extensions.create(&parameters, extension));
    futures::future::try_join_all(creations).await?;
    let created = begin.elapsed();
    let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
    world
        .eventually(&format!("{what}: installed"), LIMIT, async || {
            let found = extensions.list(&ListParams::default()).await?.items;
            let now = begin.elapsed();
            let mut last = None;
            for extension in &found {
                let name = extension.metadata.name.as_deref().unwrap_or_default();
                let Some(name) = names.iter().find(|wanted| *wanted == name) else {
                    continue;
                };
                if is_settled(extension) {
                    times.entry(name).or_insert(now);
                } else {
                    last = Some(serde_json::to_string(&extension.status)?);
                }
            }
            // The loop should not be a load of its own.
            tokio::time::sleep(Duration::from_millis(if names.len() == 1 { 10 } else { 150 })).await;
            if times.len() < names.len() {
                bail!("{} are; another one: {}", times.len(), last.unwrap_or_default());
            }
            Ok(Some(()))
        })
        .await?;
    let mut times: Vec<Duration> = times.into_values().collect();
    times.sort_unstable();
    let seconds = |at: usize| times.get(at).map_or(0.0, Duration::as_secs_f64);
    let last = seconds(times.len() - 1);
    let time = if times.len() == 1 {
        format!("{last:.2} s")
    } else {
        format!(
            "all {last:.1} s, half {:.1} s, first {:.1} s (created after {:.1} s)",
            seconds(times.len() / 2),
            seconds(0),
            created.as_secs_f64()
        )
    };
    figures.add(&format!("{what}: time to installed"), &time);
    figures.add(
        &format!("{what}: operator-controller"),
        &format!(
            "peak memory {}, {:.1} s of processor time",
            process::mebibytes(process::peak(pid)?),
            process::used(pid)?.saturating_sub(used).as_secs_f64()
        ),
    );
    for (who, verbs) in requests::since(log, start)? {
        figures.add(
            &format!("{what}: API requests of {who}"),
            &requests::describe(&verbs),
        );
    }
    Ok(())
}

/// Counts the requests to the API server while nothing changes.
async fn quiet(world: &World, time: Duration, figures: &mut Figures) -> Result<()> {
    let pid = pid(world)?;
    let used = process::used(pid)?;
    let log = world.cluster.audit_log();
    let start = requests::end(log)?;
    tokio::time::sleep(time).await;
    let asked: Vec<String> = requests::since(log, start)?
        .iter()
        .map(|(who, verbs)| format!("{who} {}", requests::describe(verbs)))
        .collect();
    let asked = if asked.is_empty() {
        "0".to_owned()
    } else {
        asked.join("; ")
    };
    let what = format!("{} s in which nothing changes", time.as_secs());
    figures.add(&format!("{what}: API requests"), &asked);
    figures.add(
        &format!("{what}: operator-controller"),
        &format!(
            "{:.1} s of processor time",
            process::used(pid)?.saturating_sub(used).as_secs_f64()
        ),
    );
    Ok(())
}

/// Deletes extensions and waits until they are gone.
async fn removed(world: &World, names: &[String], figures: &mut Figures) -> Result<()> {
    let extensions = Api::<ClusterExtension>::all(world.client.clone());
    let begin = Instant::now();
    let parameters = DeleteParams::default();
    let deletions = names.iter().map(|name| extensions.delete(name, &parameters));
    futures::future::try_join_all(deletions).await?;
    world
        .eventually("all extensions are gone", LIMIT, async || {
            let left = extensions.list(&ListParams::default()).await?.items;
            let left = left.iter().find(|left| names.contains(&left.name_any()));
            match left {
                None => Ok(Some(())),
                Some(left) => {
                    tokio::time::sleep(Duration::from_millis(150)).await;
                    bail!("{}", serde_json::to_string(&left.status)?)
                }
            }
        })
        .await?;
    figures.add(
        &format!("{} extensions removed at once: all gone", names.len()),
        &format!("{:.1} s", begin.elapsed().as_secs_f64()),
    );
    Ok(())
}

fn pid(world: &World) -> Result<u32> {
    world
        .operator_controller
        .pid()
        .context("operator-controller does not run")
}

/// Pushes bundles and their catalog; makes namespaces and accounts.
async fn prepare(world: &World, many: &[String]) -> Result<()> {
    let mut blobs = String::new();
    let alone = [(ALONE, 0), (BIG, OBJECTS)];
    let bundles = alone
        .into_iter()
        .chain(many.iter().map(|name| (name.as_str(), 0)));
    let mut accounts: Vec<Value> = Vec::new();
    for (name, objects) in bundles {
        accounts.extend(administrator(name, ACCOUNT));
        let image = world
            .push_bundle(&format!("bench/{name}:v1"), &bundle(name, objects))
            .await?;
        for blob in [
            json!({ "schema": "olm.package", "name": name, "defaultChannel": "stable" }),
            json!({
                "schema": "olm.channel", "package": name, "name": "stable",
                "entries": [{ "name": format!("{name}.v1.0.0") }],
            }),
            json!({
                "schema": "olm.bundle", "package": name, "name": format!("{name}.v1.0.0"), "image": image,
                "properties": [{
                    "type": "olm.package", "value": { "packageName": name, "version": "1.0.0" },
                }],
            }),
        ] {
            blobs.push_str(&format!("{blob}\n"));
        }
    }
    let reference = world.push_catalog("bench-extensions:latest", &blobs).await?;
    world.apply(&[catalog(CATALOG, &reference)])?;
    world.apply(&accounts)?;
    let catalogs = Api::<ClusterCatalog>::all(world.client.clone());
    eventually("the catalog of the bundles is served", LIMIT, async || {
        let found = catalogs.get(CATALOG).await?;
        Ok(conditions::is_true(found.conditions(), conditions::SERVING).then_some(()))
    })
    .await
}

fn extension(name: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterExtension",
        "metadata": { "name": name },
        "spec": {
            "namespace": name,
            "serviceAccount": { "name": ACCOUNT },
            "source": { "sourceType": "Catalog", "catalog": { "packageName": name } },
        },
    })
}

/// A bundle that renders to a ServiceAccount, a ConfigMap and a Deployment, and to so many more ConfigMaps.
fn bundle(name: &str, more: usize) -> BTreeMap<String, Vec<u8>> {
    let selector = json!({ "app": name });
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": { "name": format!("{name}.v1.0.0") },
        "spec": {
            "displayName": name,
            "version": "1.0.0",
            "installModes": [{ "type": "AllNamespaces", "supported": true }],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [{
                        "name": name,
                        "spec": {
                            "replicas": 1,
                            "selector": { "matchLabels": selector },
                            "template": {
                                "metadata": { "labels": selector },
                                "spec": {
                                    "serviceAccountName": name,
                                    "containers": [{ "name": "main", "image": "registry.example.org/nothing:v1" }],
                                },
                            },
                        },
                    }],
                },
            },
        },
    });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    let config = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name },
            "data": { "greeting": "hello" },
        })
    };
    let annotations = json!({
        "annotations": {
            "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
            "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
            "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
            "operators.operatorframework.io.bundle.package.v1": name,
            "operators.operatorframework.io.bundle.channels.v1": "stable",
            "operators.operatorframework.io.bundle.channel.default.v1": "stable",
        },
    });
    let files = [
        ("manifests/clusterserviceversion.yaml".to_owned(), csv),
        ("manifests/serviceaccount.yaml".to_owned(), account),
        ("manifests/configmap.yaml".to_owned(), config(name)),
        ("metadata/annotations.yaml".to_owned(), annotations),
    ];
    let more = (0..more).map(|at| {
        (
            format!("manifests/configmap-{at:03}.yaml"),
            config(&format!("{name}-{at:03}")),
        )
    });
    files
        .into_iter()
        .chain(more)
        .map(|(path, content)| (path, content.to_string().into_bytes()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_bundle_renders_to_three_kinds() {
        let files = bundle("bench-001", 0);
        let prepared =
            olm_bundle::prepare(&files, &BTreeMap::new(), &olm_bundle::Request::new("bench-001")).unwrap();
        let mut kinds: Vec<_> = prepared
            .rendered
            .objects()
            .iter()
            .map(|object| object["kind"].clone())
            .collect();
        kinds.sort_by_key(Value::to_string);
        assert_eq!(kinds, ["ConfigMap", "Deployment", "ServiceAccount"]);
    }
}
