//! OLM classic on a test cluster: the shipped definitions, accounts and rights, without objects that only Pods need.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::{Value, json};

use super::{CLASSIC_NAMESPACE, Lab, Manager, eventually, repository};
use crate::cluster::objects;

/// The account that writes content if no OperatorGroup names one, as `NAMESPACE/NAME`.
pub const ACCOUNT: &str = "olm/classic-installer";

/// Kinds in the manifests that only Pods need; here the programs are processes.
const ONLY_FOR_PODS: &[&str] = &[
    "ClusterServiceVersion",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
];

/// Applies the shipped manifests.
///
/// # Errors
/// When the API server refuses an object.
pub fn prepare(lab: &Lab) -> Result<()> {
    let folder = |name: &str| repository().join(name).display().to_string();
    lab.kubectl(&["apply", "--server-side", "-k", &folder("manifests/classic/crds")])?;
    lab.await_definitions()?;
    let text = lab.kubectl(&["kustomize", &folder("manifests/classic")])?;
    let mut objects = Vec::new();
    for document in olm_yaml::documents(text.as_bytes(), &olm_yaml::Limits::default()) {
        let object = document?.into_value()?;
        let kind = object["kind"].as_str().unwrap_or_default();
        if !ONLY_FOR_PODS.contains(&kind) && kind != "CustomResourceDefinition" {
            objects.push(object);
        }
    }
    lab.apply(&objects)
}

/// Applies the rights with which catalog-operator moves Subscriptions to OLM v1.
///
/// # Errors
/// When the API server refuses an object.
pub fn prepare_migration(lab: &Lab) -> Result<()> {
    let folder = repository()
        .join("manifests/classic/migration")
        .display()
        .to_string();
    lab.kubectl(&["apply", "--server-side", "-k", &folder]).map(drop)
}

/// An address of this machine that is no loopback: the API server refuses endpoints with such.
///
/// # Errors
/// When the machine has none.
pub fn own_address() -> Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9")?;
    Ok(socket.local_addr()?.ip().to_string())
}

/// Starts olm-operator and catalog-operator, and waits until they are ready.
///
/// # Errors
/// When one of them does not start.
pub async fn start(lab: &Lab) -> Result<[Manager; 2]> {
    let account = format!("--classic-account={ACCOUNT}");
    let cache = format!("--cache-dir={}", lab.folder().join("catalogs").display());
    let mut programs = [
        Manager::classic(lab, "olm-operator", "olm-operator", vec![account.clone()]).await?,
        Manager::classic(lab, "catalog-operator", "catalog-operator", vec![account, cache]).await?,
    ];
    for program in &mut programs {
        program.start(&lab.cluster)?;
        program.ready().await?;
    }
    Ok(programs)
}

/// Waits until an object exists and is as wanted, and returns it.
///
/// # Errors
/// When `limit` passes first; the error contains `what` and the last status.
pub async fn becomes(
    client: &Client,
    what: &str,
    limit: Duration,
    object: &Value,
    is_meant: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let mut last = None;
    let found = eventually(what, limit, async || {
        last = objects::find(client, object).await?;
        Ok(last.clone().filter(|found| is_meant(found)))
    })
    .await;
    found.with_context(|| {
        last.map_or_else(
            || "it does not exist".to_owned(),
            |last| format!("its status is {:#}", last["status"]),
        )
    })
}

/// Waits until an object is gone.
///
/// # Errors
/// When `limit` passes first.
pub async fn goes(client: &Client, limit: Duration, object: &Value) -> Result<()> {
    let what = format!("{} {} is gone", object["kind"], object["metadata"]["name"]);
    eventually(&what, limit, async || {
        Ok(objects::find(client, object).await?.is_none().then_some(()))
    })
    .await
}

/// The account of packageserver: the rights that it needs and no more. On a cluster of Pods its ClusterServiceVersion
/// brings it.
pub fn packageserver_rights() -> Vec<Value> {
    let subjects =
        json!([{"kind": "ServiceAccount", "name": "packageserver", "namespace": CLASSIC_NAMESPACE}]);
    let binding = |kind: &str, name: &str, namespace: Option<&str>, role: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "roleRef": role, "subjects": subjects,
        })
    };
    let role =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let verbs = json!(["get", "list", "watch"]);
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "packageserver", "namespace": CLASSIC_NAMESPACE},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "packageserver"},
            "rules": [
                {"apiGroups": ["operators.coreos.com"], "resources": ["catalogsources", "olmconfigs"], "verbs": verbs},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
            ],
        }),
        binding(
            "ClusterRoleBinding",
            "packageserver",
            None,
            role("ClusterRole", "packageserver"),
        ),
        binding(
            "ClusterRoleBinding",
            "packageserver-auth-delegator",
            None,
            role("ClusterRole", "system:auth-delegator"),
        ),
        binding(
            "RoleBinding",
            "packageserver-auth-reader",
            Some("kube-system"),
            role("Role", "extension-apiserver-authentication-reader"),
        ),
    ]
}

/// The API of PackageManifests, which the API server forwards to a port of this machine.
pub fn aggregated(port: u16) -> [Value; 2] {
    let service = json!({"name": "packageserver-service", "namespace": CLASSIC_NAMESPACE});
    let mut reference = service.clone();
    reference["port"] = port.into();
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": service,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.packages.operators.coreos.com"},
            "spec": {
                "group": "packages.operators.coreos.com", "version": "v1", "service": reference,
                "groupPriorityMinimum": 2000, "versionPriority": 15, "insecureSkipTLSVerify": true,
            },
        }),
    ]
}
