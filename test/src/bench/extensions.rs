//! Many extensions at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Api;
use kube::api::{ListParams, PostParams};
use olm_api::{ClusterCatalog, ClusterExtension, conditions};
use serde_json::{Value, json};

use super::{Figures, process, requests};
use crate::world::{World, eventually};

const COUNT: usize = 50;
const LIMIT: Duration = Duration::from_secs(90);
/// How long nothing is done after everything is installed.
const QUIET: Duration = Duration::from_secs(30);
/// The account that each extension is installed by, in its own namespace.
pub(super) const ACCOUNT: &str = "bench-installer";

fn name(at: usize) -> String {
    format!("bench-{at:02}")
}

/// Installs tiny bundles all at once; counts time, memory and requests.
pub(super) async fn measure(world: &World, figures: &mut Figures) -> Result<()> {
    prepare(world).await?;
    let pid = world
        .operator_controller
        .pid()
        .context("operator-controller does not run")?;
    process::forget_peak(pid)?;
    let log = world.cluster.audit_log();
    let start = requests::end(log)?;
    let extensions = Api::<ClusterExtension>::all(world.client.clone());
    let wanted: Vec<ClusterExtension> = (0..COUNT)
        .map(|at| serde_json::from_value(extension(at)))
        .collect::<Result<_, _>>()?;
    let begin = Instant::now();
    let parameters = PostParams::default();
    let creations = wanted
        .iter()
        .map(|extension| extensions.create(&parameters, extension));
    futures::future::try_join_all(creations).await?;
    let created = begin.elapsed();
    let times = installed(&extensions, world, begin).await?;
    let seconds = |at: usize| times.get(at).map_or(0.0, Duration::as_secs_f64);
    figures.add(
        &format!("{COUNT} extensions at once: time to installed"),
        &format!(
            "all {:.1} s, half {:.1} s, first {:.1} s (created after {:.1} s)",
            seconds(COUNT - 1),
            seconds(COUNT / 2),
            seconds(0),
            created.as_secs_f64()
        ),
    );
    figures.add(
        &format!("{COUNT} extensions: peak memory of operator-controller"),
        &process::mebibytes(process::peak(pid)?),
    );
    for (who, verbs) in requests::since(log, start)? {
        figures.add(
            &format!("{COUNT} extensions: API requests of {who}"),
            &requests::describe(&verbs),
        );
    }
    // Whatever is still on its way comes to its end.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let start = requests::end(log)?;
    tokio::time::sleep(QUIET).await;
    // Leases are renewed all the time; nothing else should be asked.
    let quiet: Vec<String> = requests::since(log, start)?
        .iter()
        .map(|(who, verbs)| format!("{who} {}", requests::describe(verbs)))
        .collect();
    let quiet = if quiet.is_empty() {
        "0".to_owned()
    } else {
        quiet.join("; ")
    };
    let what = format!(
        "{COUNT} installed extensions: API requests in {} s of quiet",
        QUIET.as_secs()
    );
    figures.add(&what, &quiet);
    Ok(())
}

/// Waits until all are installed and nothing is under way; returns when each was, sorted.
async fn installed(
    extensions: &Api<ClusterExtension>,
    world: &World,
    begin: Instant,
) -> Result<Vec<Duration>> {
    let mut times: BTreeMap<String, Duration> = BTreeMap::new();
    world
        .eventually("all extensions are installed", LIMIT, async || {
            let found = extensions.list(&ListParams::default()).await?.items;
            let now = begin.elapsed();
            let mut last = None;
            for extension in &found {
                let name = extension.metadata.name.clone().unwrap_or_default();
                let settled = conditions::is_true(extension.conditions(), conditions::INSTALLED)
                    && conditions::find(extension.conditions(), conditions::PROGRESSING)
                        .is_some_and(|found| found.reason == conditions::reason::SUCCEEDED);
                if settled {
                    times.entry(name).or_insert(now);
                } else {
                    last = Some(serde_json::to_string(&extension.status)?);
                }
            }
            // The loop should not be a load of its own.
            tokio::time::sleep(Duration::from_millis(150)).await;
            if times.len() < COUNT {
                bail!("{} are; another one: {}", times.len(), last.unwrap_or_default());
            }
            Ok(Some(()))
        })
        .await?;
    let mut times: Vec<Duration> = times.into_values().collect();
    times.sort_unstable();
    Ok(times)
}

/// Pushes bundles and their catalog; makes namespaces and accounts.
async fn prepare(world: &World) -> Result<()> {
    let mut blobs = String::new();
    for at in 0..COUNT {
        let name = name(at);
        let image = world
            .push_bundle(&format!("bench/{name}:v1"), &bundle(&name))
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
    let catalog = "bench-extensions";
    world.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": { "name": catalog },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    })])?;
    let accounts: Vec<Value> = (0..COUNT).flat_map(account).collect();
    world.apply(&accounts)?;
    let catalogs = Api::<ClusterCatalog>::all(world.client.clone());
    eventually("the catalog of the bundles is served", LIMIT, async || {
        let found = catalogs.get(catalog).await?;
        Ok(conditions::is_true(found.conditions(), conditions::SERVING).then_some(()))
    })
    .await
}

fn account(at: usize) -> [Value; 3] {
    let name = name(at);
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": ACCOUNT, "namespace": name },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("{name}-installer") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": name }],
        }),
    ]
}

fn extension(at: usize) -> Value {
    let name = name(at);
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

/// A bundle that renders to a ServiceAccount, a ConfigMap and a Deployment.
fn bundle(name: &str) -> BTreeMap<String, Vec<u8>> {
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
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name },
        "data": { "greeting": "hello" },
    });
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
    [
        ("manifests/clusterserviceversion.yaml", csv),
        ("manifests/serviceaccount.yaml", account),
        ("manifests/configmap.yaml", config),
        ("metadata/annotations.yaml", annotations),
    ]
    .into_iter()
    .map(|(path, content)| (path.to_owned(), content.to_string().into_bytes()))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_bundle_renders_to_three_kinds() {
        let files = bundle("bench-01");
        let prepared =
            olm_bundle::prepare(&files, &BTreeMap::new(), &olm_bundle::Request::new("bench-01")).unwrap();
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
