//! olm-operator: one ClusterServiceVersion, many at once, and operators for all namespaces of a cluster with many.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};

use super::{Figures, process, requests};
use crate::classic;
use crate::objects::api;
use crate::world::{Lab, Manager, eventually};

const LIMIT: Duration = Duration::from_mins(15);
/// Number of ClusterServiceVersions that are made at once.
const AT_ONCE: usize = 200;
/// Number of operators that watch all namespaces, and number of namespaces at first and in the end.
const OPERATORS: usize = 15;
const FEW: usize = 10;
const MANY: usize = 400;
/// Number of concurrent requests of the load.
const LOAD: usize = 16;

/// Measures on a cluster of its own.
pub(super) async fn measure(quiet: Duration, figures: &mut Figures) -> Result<()> {
    let lab = Lab::empty().await?;
    classic::prepare(&lab)?;
    let arguments = vec![format!("--classic-account={}", classic::ACCOUNT)];
    let mut operator = Manager::classic(&lab, "olm-operator", "olm-operator", arguments).await?;
    operator.start(&lab.cluster)?;
    operator.ready().await?;
    let pid = operator.pid().context("olm-operator does not run")?;
    let memory = || Ok::<_, anyhow::Error>(process::mebibytes(process::resident(pid)?));
    figures.add("olm-operator, idle: memory", &memory()?);
    group(&lab, "alone").await?;
    installed(
        &lab,
        "alone",
        1,
        "one ClusterServiceVersion: applied to Succeeded",
        figures,
    )
    .await?;
    group(&lab, "many").await?;
    let what = format!("{AT_ONCE} ClusterServiceVersions at once: applied to Succeeded");
    installed(&lab, "many", AT_ONCE, &what, figures).await?;
    figures.add(
        &format!("olm-operator, {AT_ONCE} ClusterServiceVersions: memory"),
        &memory()?,
    );
    for namespace in ["alone", "many"] {
        versions(&lab, namespace)
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        settled(&lab, namespace, 0, 0).await?;
    }
    lab.kubectl(&["create", "namespace", "everywhere"])?;
    create(&lab, &operator_group("everywhere", &json!({}))).await?;
    namespaces(&lab, 0..FEW).await?;
    let what = format!("{OPERATORS} operators for all of some {FEW} namespaces: applied to Succeeded");
    installed(&lab, "everywhere", OPERATORS, &what, figures).await?;
    copied(&lab).await?;
    figures.add("olm-operator then: memory", &memory()?);
    namespaces(&lab, FEW..MANY).await?;
    let begin = Instant::now();
    copied(&lab).await?;
    let what = format!("{OPERATORS} operators, {MANY} namespaces: the last copy after the last namespace");
    figures.add(&what, &format!("{:.1} s", begin.elapsed().as_secs_f64()));
    figures.add("olm-operator then: memory", &memory()?);
    let log = lab.cluster.audit_log();
    // Whatever is still on its way comes to its end.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let start = requests::end(log)?;
    tokio::time::sleep(quiet).await;
    let made = requests::since(log, start)?;
    let made: Vec<String> = made
        .iter()
        .map(|(who, verbs)| format!("{who} {}", requests::describe(verbs)))
        .collect();
    let what = format!("requests of olm-operator in {} s then", quiet.as_secs());
    figures.add(
        &what,
        if made.is_empty() {
            "none".to_owned()
        } else {
            made.join("; ")
        }
        .as_str(),
    );
    operator.stop().await.map(drop)
}

fn versions(lab: &Lab, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("operators.coreos.com", "v1alpha1", "ClusterServiceVersion");
    Api::namespaced_with(lab.client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

async fn create(lab: &Lab, object: &Value) -> Result<()> {
    let new = serde_json::from_value(object.clone())?;
    api(&lab.client, object)
        .create(&PostParams::default(), &new)
        .await?;
    Ok(())
}

/// Creates a namespace with an OperatorGroup, and waits for its status: a replica that is not the leader yet installs
/// nothing.
async fn group(lab: &Lab, namespace: &str) -> Result<()> {
    lab.kubectl(&["create", "namespace", namespace])?;
    let group = operator_group(namespace, &json!({"targetNamespaces": [namespace]}));
    create(lab, &group).await?;
    eventually("the OperatorGroup has a status", LIMIT, async || {
        let found = api(&lab.client, &group).get("group").await?;
        Ok((!found.data["status"]["namespaces"].is_null()).then_some(()))
    })
    .await
}

fn operator_group(namespace: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": {"namespace": namespace, "name": "group"}, "spec": spec,
    })
}

/// A ClusterServiceVersion of a usual size: some tens of kilobytes, most of them a description.
fn version(namespace: &str, number: usize) -> Value {
    let name = format!("bench-{number:03}");
    let modes = ["OwnNamespace", "AllNamespaces"];
    let modes = modes.map(|mode| json!({"type": mode, "supported": true}));
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "displayName": name, "version": "1.0.0", "installModes": modes,
            "description": "What an operator does, at some length. ".repeat(800),
            "install": {"strategy": "deployment", "spec": {"deployments": [{"name": name, "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "operator", "image": "operator.example/operator:v1"}]},
                },
            }}]}},
        },
    })
}

async fn installed(
    lab: &Lab,
    namespace: &str,
    count: usize,
    what: &str,
    figures: &mut Figures,
) -> Result<()> {
    let begin = Instant::now();
    stream::iter(0..count)
        .map(|number| async move { create(lab, &version(namespace, number)).await })
        .buffer_unordered(LOAD)
        .try_collect::<Vec<()>>()
        .await?;
    settled(lab, namespace, count, count).await?;
    figures.add(what, &format!("{:.2} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

/// Waits until `count` ClusterServiceVersions exist and `succeeded` of them are Succeeded.
async fn settled(lab: &Lab, namespace: &str, count: usize, succeeded: usize) -> Result<()> {
    let versions = versions(lab, namespace);
    eventually("all are Succeeded", LIMIT, async || {
        let found = versions.list(&ListParams::default()).await?.items;
        let done = found
            .iter()
            .filter(|found| found.data["status"]["phase"] == "Succeeded")
            .count();
        if (found.len(), done) == (count, succeeded) {
            return Ok(Some(()));
        }
        bail!("{done} of {} are Succeeded", found.len())
    })
    .await
}

async fn namespaces(lab: &Lab, numbers: std::ops::Range<usize>) -> Result<()> {
    stream::iter(numbers)
        .map(|number| async move {
            let name = format!("tenant-{number:03}");
            create(
                lab,
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            )
            .await
        })
        .buffer_unordered(LOAD)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Waits until every namespace but that of the operators has a copy of each.
async fn copied(lab: &Lab) -> Result<()> {
    let kind = GroupVersionKind::gvk("operators.coreos.com", "v1alpha1", "ClusterServiceVersion");
    let all: Api<DynamicObject> = Api::all_with(lab.client.clone(), &ApiResource::from_gvk(&kind));
    let spaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(lab.client.clone());
    let copies = ListParams::default().labels("olm.copiedFrom=everywhere");
    eventually("every namespace has its copies", LIMIT, async || {
        let wanted = spaces.list_metadata(&ListParams::default()).await?.items.len();
        let wanted = wanted.saturating_sub(1) * OPERATORS;
        let found = all.list_metadata(&copies).await?.items.len();
        if found == wanted {
            return Ok(Some(()));
        }
        bail!("{found} of {wanted} copies are there")
    })
    .await
}
