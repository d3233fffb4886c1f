//! etcd, the API server, the controllers, the scheduler, and KWOK instead of a node.

use std::net::Ipv4Addr;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Api, PostParams};
use serde_json::json;
use tracing::info;

use super::instance::Instance;
use super::pki::{Authority, Pair, Subject, bare_key};
use super::process::Daemon;
use super::{Binaries, Mode, store};

/// The name of the one node, simulated or real.
pub(super) const NODE_NAME: &str = "olm-test-node";

/// The folder of the front proxy's authority and certificate, below the others.
const FRONT_PROXY: &str = "front-proxy";
/// The name of the front proxy.
const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// Addresses of a control plane.
#[derive(Debug, Clone)]
pub(super) struct Network {
    /// The address of the API server besides the loopback address.
    pub(super) node_address: Ipv4Addr,
    pub(super) api_port: u16,
    pub(super) etcd_port: u16,
    pub(super) etcd_peer_port: u16,
    pub(super) service_range: String,
    /// The API server's own service address.
    pub(super) service_address: Ipv4Addr,
    pub(super) pod_range: &'static str,
    pub(super) pod_bits: u8,
}

impl Network {
    /// Free ports on the loopback address. Services get a range in 127.0.0.0/8, which never leaves the machine and in
    /// which a test can listen on a service's address. Simulated Pods get a range without a route.
    pub(super) fn loopback(instance: &mut Instance) -> Result<Self> {
        let second = instance.service_range()?;
        Ok(Self {
            node_address: Ipv4Addr::LOCALHOST,
            api_port: instance.port()?,
            etcd_port: instance.port()?,
            etcd_peer_port: instance.port()?,
            service_range: format!("127.{second}.0.0/16"),
            service_address: Ipv4Addr::new(127, second, 0, 1),
            pod_range: "198.18.0.0/16",
            pod_bits: 22,
        })
    }

    /// The usual ports, in a network of its own.
    pub(super) fn of_node(node_address: Ipv4Addr) -> Self {
        Self {
            node_address,
            api_port: 6443,
            etcd_port: 2379,
            etcd_peer_port: 2380,
            service_range: "10.96.0.0/16".to_owned(),
            service_address: Ipv4Addr::new(10, 96, 0, 1),
            pod_range: "10.244.0.0/16",
            pod_bits: 22,
        }
    }

    /// The API server's URL.
    pub(super) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    /// The URL of etcd.
    fn etcd(&self) -> String {
        format!("https://127.0.0.1:{}", self.etcd_port)
    }
}

/// Writes every key pair and kubeconfig.
pub(super) fn write_identities(instance: &Instance, authority: &Authority, network: &Network) -> Result<()> {
    let pki = instance.folder().join("pki");
    let server = network.server();
    let (node, service) = (
        network.node_address.to_string(),
        network.service_address.to_string(),
    );
    let local = ["localhost", "127.0.0.1"];
    let kubelet = format!("system:node:{NODE_NAME}");
    let issue = |name: &str, subject: &str, group: Option<&str>, hosts: &[&str]| -> Result<Pair> {
        authority.issue(name, &Subject { name: subject, group }, &[&local, hosts].concat())
    };
    let inside = [
        node.as_str(),
        service.as_str(),
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    bare_key(&pki, "sa")?;
    issue("apiserver", "kube-apiserver", None, &inside)?;
    issue("etcd", "etcd", None, &[])?;
    // Towards servers of aggregated APIs, which must not take it for a user of the cluster.
    let proxy = Authority::create(&pki.join(FRONT_PROXY))?;
    let name = Subject {
        name: FRONT_PROXY_NAME,
        group: None,
    };
    proxy.issue("client", &name, &[])?;
    // Towards etcd and kubelet.
    let client = issue(
        "apiserver-client",
        "apiserver-client",
        Some("system:masters"),
        &[],
    )?;
    authority.kubeconfig(
        &pki.join(store::KUBECONFIG),
        &network.etcd(),
        "apiserver-client",
        &client,
    )?;
    let admin = issue("admin", "admin", Some("system:masters"), &[])?;
    authority.kubeconfig(&instance.folder().join("kubeconfig"), &server, "admin", &admin)?;
    for part in ["kube-controller-manager", "kube-scheduler", "kube-proxy"] {
        let pair = issue(part, &format!("system:{part}"), None, &[])?;
        authority.kubeconfig(&pki.join(format!("{part}.kubeconfig")), &server, part, &pair)?;
    }
    let pair = issue("kubelet", &kubelet, Some("system:nodes"), &[&node, NODE_NAME])?;
    authority.kubeconfig(&pki.join("kubelet.kubeconfig"), &server, "kubelet", &pair)
}

/// Starts etcd and the API server and waits until it is ready.
pub(super) async fn start_api_server(
    instance: &Instance,
    binaries: &Binaries,
    mode: Mode,
    network: &Network,
) -> Result<kube::Client> {
    let folder = instance.folder();
    let pki = folder.join("pki");
    let etcd = network.etcd();
    let peer = format!("http://127.0.0.1:{}", network.etcd_peer_port);
    instance.start(
        Daemon::new("etcd", binaries.path("etcd"))
            .flag("data-dir", folder.join("etcd"))
            .argument("--unsafe-no-fsync")
            .flag("quota-backend-bytes", "4294967296")
            .flag("listen-client-urls", &etcd)
            .flag("advertise-client-urls", &etcd)
            .flag("listen-peer-urls", &peer)
            .flag("initial-advertise-peer-urls", &peer)
            .flag("initial-cluster", format!("default={peer}"))
            .flag("cert-file", pki.join("etcd.crt"))
            .flag("key-file", pki.join("etcd.key"))
            .flag("trusted-ca-file", pki.join("ca.crt"))
            .argument("--client-cert-auth"),
    )?;

    let policy = folder.join("conf/audit-policy.yaml");
    std::fs::write(&policy, include_str!("../../cluster/conf/audit-policy.yaml"))?;
    let mut server = Daemon::new("kube-apiserver", binaries.path("kube-apiserver"))
        .flag("advertise-address", network.node_address.to_string())
        .flag("secure-port", network.api_port.to_string())
        .flag("service-cluster-ip-range", &network.service_range)
        .flag("tls-cert-file", pki.join("apiserver.crt"))
        .flag("tls-private-key-file", pki.join("apiserver.key"))
        .flag("client-ca-file", pki.join("ca.crt"))
        .flag("etcd-servers", &etcd)
        .flag("etcd-cafile", pki.join("ca.crt"))
        .flag("etcd-certfile", pki.join("apiserver-client.crt"))
        .flag("etcd-keyfile", pki.join("apiserver-client.key"))
        .flag("kubelet-certificate-authority", pki.join("ca.crt"))
        .flag("kubelet-preferred-address-types", "InternalIP")
        .flag("kubelet-client-certificate", pki.join("apiserver-client.crt"))
        .flag("kubelet-client-key", pki.join("apiserver-client.key"))
        .flag(
            "service-account-issuer",
            "https://kubernetes.default.svc.cluster.local",
        )
        .flag("service-account-key-file", pki.join("sa.pub"))
        .flag("service-account-signing-key-file", pki.join("sa.key"))
        .flag("proxy-client-cert-file", pki.join(FRONT_PROXY).join("client.crt"))
        .flag("proxy-client-key-file", pki.join(FRONT_PROXY).join("client.key"))
        .flag(
            "requestheader-client-ca-file",
            pki.join(FRONT_PROXY).join("ca.crt"),
        )
        .flag("requestheader-allowed-names", FRONT_PROXY_NAME)
        .flag("requestheader-username-headers", "X-Remote-User")
        .flag("requestheader-group-headers", "X-Remote-Group")
        .flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .flag("authorization-mode", "Node,RBAC")
        .argument("--allow-privileged")
        .flag(
            "enable-admission-plugins",
            "NodeRestriction,OwnerReferencesPermissionEnforcement",
        )
        .flag("audit-policy-file", policy)
        .flag("audit-log-path", folder.join("log/audit.log"))
        // Never rotated, because a benchmark counts its lines.
        .flag("audit-log-maxsize", "100000")
        .argument("--profiling=false");
    if mode != Mode::Node {
        // An endpoint may not be a loopback address, so the API server's own service has none.
        server = server
            .flag("bind-address", "127.0.0.1")
            .flag("endpoint-reconciler-type", "none");
    }
    instance.start(server)?;

    let client = super::client(&folder.join("kubeconfig")).await?;
    instance
        .wait_for("kube-apiserver", 90, async || ready(&client).await)
        .await?;
    info!("API server ready");
    Ok(client)
}

/// Whether the API server reports that it is ready.
pub(super) async fn ready(client: &kube::Client) -> Result<()> {
    client
        .request_text(http::Request::get("/readyz").body(Vec::new())?)
        .await?;
    Ok(())
}

/// Starts controller-manager and scheduler and waits until controllers work.
pub(super) async fn start_controllers(
    instance: &Instance,
    binaries: &Binaries,
    network: &Network,
    client: &kube::Client,
) -> Result<()> {
    let pki = instance.folder().join("pki");
    instance.start(
        Daemon::new(
            "kube-controller-manager",
            binaries.path("kube-controller-manager"),
        )
        .flag("kubeconfig", pki.join("kube-controller-manager.kubeconfig"))
        .flag("secure-port", "0")
        .argument("--leader-elect=false")
        .argument("--use-service-account-credentials")
        // At its default of 20 requests a second the first service account takes 5 s longer.
        .flag("kube-api-qps", "200")
        .flag("kube-api-burst", "400")
        .flag("service-account-private-key-file", pki.join("sa.key"))
        .flag("root-ca-file", pki.join("ca.crt"))
        .flag("cluster-signing-cert-file", pki.join("ca.crt"))
        .flag("cluster-signing-key-file", pki.join("ca.key"))
        .argument("--allocate-node-cidrs")
        .flag("cluster-cidr", network.pod_range)
        .flag("node-cidr-mask-size", network.pod_bits.to_string())
        .flag("service-cluster-ip-range", &network.service_range),
    )?;
    instance.start(
        Daemon::new("kube-scheduler", binaries.path("kube-scheduler"))
            .flag("kubeconfig", pki.join("kube-scheduler.kubeconfig"))
            .flag("secure-port", "0")
            .argument("--leader-elect=false"),
    )?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    instance
        .wait_for("kube-controller-manager", 60, async || {
            accounts.get("default").await.map(drop)
        })
        .await?;
    info!("controllers work");
    Ok(())
}

/// Starts KWOK, which makes its node and every pod on it ready.
pub(super) async fn start_simulated_node(
    instance: &Instance,
    binaries: &Binaries,
    client: &kube::Client,
) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": NODE_NAME,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": NODE_NAME,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": architecture(),
                "node-role.kubernetes.io/control-plane": "",
            },
        },
    }))?;
    nodes.create(&PostParams::default(), &node).await?;
    instance.start(
        Daemon::new("kwok", binaries.path("kwok"))
            .flag("kubeconfig", instance.folder().join("kubeconfig"))
            .flag("config", binaries.stages())
            .argument("--manage-all-nodes")
            .flag("node-ip", "127.0.0.1")
            .flag("node-lease-duration-seconds", "40"),
    )?;
    instance
        .wait_for("kwok", 30, async || node_ready(&nodes).await)
        .await?;
    info!("simulated node ready");
    Ok(())
}

/// Fails until the node is ready.
pub(super) async fn node_ready(nodes: &Api<Node>) -> Result<()> {
    let node = nodes.get(NODE_NAME).await?;
    let conditions = node
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    if conditions
        .iter()
        .any(|c| c.type_ == "Ready" && c.status == "True")
    {
        return Ok(());
    }
    anyhow::bail!("the node is not ready")
}

/// The machine's architecture as images and nodes name it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
