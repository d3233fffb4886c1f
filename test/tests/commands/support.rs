//! The content of `olm support-bundle`, and the parts that it leaves out.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use http::Response;
use http_body_util::Full;
use olm_api::names::SYSTEM_NAMESPACE;
use olm_platform::listener::{Limits, Transport, serve};
use olm_test::world::{World, repository};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{CLUSTER, olm};

/// Texts that must not be in an archive.
const SECRETS: [&str; 5] = [
    "hunter2",
    "aHVudGVyMg==",
    "swordfish",
    "opensesame",
    "eyJhbGciOiJSUzI1NiJ9",
];
/// The namespace and the name of the Pod of a manager.
const MANAGER: [&str; 2] = [SYSTEM_NAMESPACE, "manager-1"];
/// The log of a manager.
const LOG: &str = "2026-11-24 ready\nGET https://me:swordfish@registry.example/v2/\ntoken=eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.c2ln\nlast line\n";

/// A kubelet that has one log for every container, with the identity of the node's.
async fn kubelet(world: &World) -> Result<(u16, DropGuard)> {
    let pki = world.cluster.info().state.join("pki");
    let chain = CertificateDer::pem_file_iter(pki.join("kubelet.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(pki.join("kubelet.key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let stop = CancellationToken::new();
    let answer = |_, _| async { Response::new(Full::new(Cursor::new(LOG.as_bytes()))) };
    let transport = Transport::Tls(Arc::new(config));
    tokio::spawn(serve(
        listener,
        transport,
        Limits::default(),
        stop.clone(),
        answer,
    ));
    Ok((port, stop.drop_guard()))
}

/// A running Pod on a node of its own, with credentials in all places.
fn pod(world: &World, node: &str, port: u16, [namespace, name]: [&str; 2]) -> Result<()> {
    let container = json!({
        "name": "manager", "image": "registry.example/catalogd:1", "args": ["--db-password=opensesame", "--v=2"],
        "env": [{"name": "REGISTRY_TOKEN", "value": "opensesame"}, {"name": "LEVEL", "value": "debug"}],
        "ports": [{"name": "metrics", "containerPort": 7443}],
        "securityContext": {
            "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"unschedulable": true}}),
        json!({
            "apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node, "containers": [container]},
            "metadata": {
                "name": name, "namespace": namespace, "labels": {"app": name},
                "annotations": {"example.com/api-key": "opensesame", "example.com/owner": "me"},
            },
        }),
    ])?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let state = json!({"running": {"startedAt": "2026-11-24T00:00:00Z"}});
    let running = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": "manager", "restartCount": 1, "ready": true, "image": "a", "imageID": "a", "state": state,
    }]}});
    let namespace = format!("--namespace={namespace}");
    let objects = [(format!("node/{node}"), status), (format!("pod/{name}"), running)];
    // The simulation writes both first.
    for (object, _) in &objects {
        world.kubectl(&[
            "wait",
            object,
            &namespace,
            "--for=condition=Ready",
            "--timeout=60s",
        ])?;
    }
    for (object, patch) in &objects {
        let patch = patch.to_string();
        world.kubectl(&[
            "patch",
            object,
            &namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ])?;
    }
    Ok(())
}

fn remove_pod(world: &World, node: &str, [namespace, name]: [&str; 2]) -> Result<()> {
    world.kubectl(&["delete", "node", node, "--wait=false"])?;
    world
        .kubectl(&["delete", "pod", name, "-n", namespace, "--force", "--wait=false"])
        .map(drop)
}

/// Objects with credentials in the namespace of OLM.
fn confidential(world: &World) -> Result<()> {
    let metadata = |name: &str| json!({"name": name, "namespace": SYSTEM_NAMESPACE});
    world.apply(&[
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata("pull"), "stringData": {"password": "hunter2"},
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata("leader"),
            "spec": {"holderIdentity": "manager-1", "leaseDurationSeconds": 15},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("settings"), "data": {"ini": "p: hunter2"},
        }),
    ])
}

/// The kinds of OLM classic, an object of each, and its program `olm-operator` in an unusual namespace.
fn classic(world: &World, port: u16) -> Result<()> {
    for plural in [
        "catalogsources",
        "clusterserviceversions",
        "installplans",
        "operatorgroups",
        "subscriptions",
    ] {
        let file = format!("manifests/classic/crds/operators.coreos.com_{plural}.yaml");
        let file = repository().join(file).display().to_string();
        world.kubectl(&["apply", "--server-side", "-f", &file])?;
    }
    world.await_definitions()?;
    let object = |kind: &str, version: &str, labels: Value, spec: Value| {
        let name = if labels == json!({}) { "own" } else { "copy" };
        json!({
            "apiVersion": format!("operators.coreos.com/{version}"), "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": "elsewhere", "labels": labels},
        })
    };
    let csv = |labels: Value| {
        let install = json!({"strategy": "deployment", "spec": {"deployments": []}});
        let spec = json!({"displayName": "Own", "install": install});
        object("ClusterServiceVersion", "v1alpha1", labels, spec)
    };
    let plan = json!({"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["own"]});
    let subscription = json!({
        "name": "own", "source": "own", "sourceNamespace": "elsewhere",
        "config": {"env": [{"name": "DB_PASSWORD", "value": "opensesame"}]},
    });
    let template = json!({
        "metadata": {"labels": {"app": "olm-operator"}}, "spec": {"containers": [{"name": "manager", "image": "a"}]},
    });
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}),
        object("CatalogSource", "v1alpha1", json!({}), json!({"sourceType": "grpc", "image": "r.example/c:1"})),
        object("Subscription", "v1alpha1", json!({}), subscription),
        object("InstallPlan", "v1alpha1", json!({}), plan),
        object("OperatorGroup", "v1", json!({}), json!({})),
        csv(json!({})),
        csv(json!({"olm.copiedFrom": "other"})),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "olm-operator", "namespace": "elsewhere"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "olm-operator"}}, "template": template},
        }),
    ])?;
    pod(world, "classic-node", port, ["elsewhere", "olm-operator"])
}

/// The files of an archive by name, without the folder that all are in.
fn unpacked(archive: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(std::fs::File::open(archive)?)).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let (folder, name) = path.split_once('/').context("a folder")?;
        ensure!(folder.starts_with("olm-support-2"), "{path}");
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        found.insert(name.to_owned(), text);
    }
    Ok(found)
}

#[test]
fn a_support_bundle_has_what_helps_and_no_credentials() -> Result<()> {
    CLUSTER.with(async |world| {
        let (port, _kubelet) = kubelet(world).await?;
        confidential(world)?;
        pod(world, "support-node", port, MANAGER)?;
        let path = world.folder().join("case.tar.gz");
        let ran = olm(world, "support-bundle --output case.tar.gz")?.ended(0)?;
        // Nothing listens on the metrics port of that Pod.
        let ran = ran
            .prints(&["case.tar.gz\n"])?
            .says(&["warning: metrics/manager-1.txt: "])?;
        let files = unpacked(&path)?;
        for (file, part) in [
            ("summary.txt", "olm         version: \"0.1.0\""),
            ("summary.txt", "Kubernetes  v1."),
            ("summary.txt", "metrics/manager-1.txt: "),
            ("clustercatalogs.yaml", "name: lamps"),
            ("clustercatalogs.yaml", "kind: ClusterCatalog"),
            ("clustercatalogs.yaml", "type: Serving"),
            ("events.yaml", "kind: ClusterCatalog"),
            ("namespace/pods.yaml", "example.com/owner: me"),
            ("namespace/pods.yaml", "--db-password=REDACTED"),
            ("namespace/pods.yaml", "value: debug"),
            ("namespace/secrets.yaml", "- password"),
            ("namespace/configmaps.yaml", "- ini"),
            ("namespace/leases.yaml", "holderIdentity: manager-1"),
            ("namespace/services.yaml", "catalogd-service"),
            ("logs/manager-1.manager.log", "last line"),
            (
                "logs/manager-1.manager.previous.log",
                "https://REDACTED@registry.example",
            ),
        ] {
            let text = files
                .get(file)
                .with_context(|| format!("no {file} in {:?}: {ran}", files.keys()))?;
            ensure!(text.contains(part), "{file} lacks {part:?}:\n{text}");
        }
        for (file, text) in &files {
            for secret in SECRETS {
                ensure!(!text.contains(secret), "{file} has {secret:?}:\n{text}");
            }
            ensure!(!text.contains("managedFields"), "{file}");
        }
        let mode = path.metadata()?.permissions().mode();
        ensure!(mode.trailing_zeros() >= 6, "others may read it: {mode:o}");

        // It overwrites no file, and stays within its size.
        olm(world, "support-bundle --output case.tar.gz")?
            .ended(1)?
            .says(&["cannot write case.tar.gz: it exists"])?;
        olm(world, "support-bundle --output none.tar.gz --context nowhere")?.ended(1)?;
        ensure!(!world.folder().join("none.tar.gz").exists());
        let ran = olm(
            world,
            "support-bundle --namespace empty --output small.tar.gz --max-size 1",
        )?
        .ended(0)?;
        let size: usize = unpacked(&world.folder().join("small.tar.gz"))?
            .values()
            .map(String::len)
            .sum();
        ensure!(size < 2 << 20, "{size} bytes: {ran}");
        remove_pod(world, "support-node", MANAGER)
    })
}

#[test]
fn a_support_bundle_has_what_there_is_of_olm_classic() -> Result<()> {
    CLUSTER.with(async |world| {
        let ran = olm(world, "support-bundle --namespace empty --output without.tar.gz")?.ended(0)?;
        ensure!(!ran.said.contains("classic"), "{ran}");
        let (port, _kubelet) = kubelet(world).await?;
        classic(world, port)?;
        let ran = olm(world, "support-bundle --namespace empty --output with.tar.gz")?.ended(0)?;
        ensure!(!ran.said.contains("classic"), "{ran}");
        let files = unpacked(&world.folder().join("with.tar.gz"))?;
        for (file, part) in [
            ("catalogsources.yaml", "image: r.example/c:1"),
            ("subscriptions.yaml", "sourceNamespace: elsewhere"),
            ("installplans.yaml", "approval: Manual"),
            ("operatorgroups.yaml", "kind: OperatorGroup"),
            ("clusterserviceversions.yaml", "name: own"),
            ("deployments.yaml", "name: olm-operator"),
            ("pods.yaml", "--db-password=REDACTED"),
            ("logs/olm-operator.manager.log", "last line"),
        ] {
            let text = files
                .get(&format!("classic/{file}"))
                .with_context(|| format!("no {file} in {:?}: {ran}", files.keys()))?;
            ensure!(text.contains(part), "{file} lacks {part:?}:\n{text}");
            for secret in SECRETS {
                ensure!(!text.contains(secret), "{file} has {secret:?}:\n{text}");
            }
            ensure!(!text.contains("olm.copiedFrom"), "a copy:\n{text}");
        }
        remove_pod(world, "classic-node", ["elsewhere", "olm-operator"])
    })
}
