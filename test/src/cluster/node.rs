//! A real node in separate namespaces: containerd, runc, kubelet, kube-proxy, `CoreDNS`, without a route to the
//! outside.
//!
//! The node changes the machine itself in these ways: the limit of inotify instances is raised, kubelet sets
//! `vm.overcommit_memory`, `vm.panic_on_oom`, `kernel.panic*` and `kernel.keys.root_max*`, and empty
//! `/var/lib/{kubelet,cni}` remain.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tracing::info;

use super::control_plane::{NODE_NAME, Network, node_ready};
use super::instance::Instance;
use super::oci::{Entry, Image, write_archive};
use super::process::{self, Daemon};
use super::requirements;
use super::{Binaries, KUBECTL_CACHE};
use crate::registry::Registry;

/// The node's address, on which API server and registry listen too.
pub(super) const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 245, 0, 1);
const DNS_ADDRESS: &str = "10.96.0.10";
const NODE_POD_RANGE: &str = "10.244.0.0/22";

/// Makes the namespaces and moves the calling thread into their network.
pub(super) fn enter(instance: &mut Instance, binaries: &Binaries, network: &Network) -> Result<i32> {
    let folder = instance.folder().to_string_lossy().into_owned();
    let pause = binaries.path("pause").to_string_lossy().into_owned();
    let address = network.node_address.to_string();
    let path = binaries.search_path().to_string_lossy().into_owned();
    let holder = instance.enter_namespaces(
        include_str!("../../cluster/conf/namespace.sh"),
        &[
            ("PATH", &path),
            ("NODE_IP", &address),
            ("SERVICE_RANGE", &network.service_range),
            ("NODE_NAME", NODE_NAME),
            ("STATE", &folder),
            ("PAUSE", &pause),
        ],
    )?;
    join_network(holder)?;
    Ok(holder)
}

/// Moves the calling thread, and all processes that it starts later, into the network of a process.
pub(super) fn join_network(holder: i32) -> Result<()> {
    use std::os::fd::AsFd as _;
    let link = fs::File::open(format!("/proc/{holder}/ns/net")).context("the cluster is gone")?;
    rustix::thread::move_into_link_name_space(link.as_fd(), Some(rustix::thread::LinkNameSpaceType::Network))
        .context("cannot enter the cluster's network")
}

/// Starts the node and waits until it is ready and names resolve.
pub(super) async fn start(
    instance: &Instance,
    binaries: &Binaries,
    network: &Network,
    registry: &Registry,
    client: &kube::Client,
) -> Result<()> {
    configure(instance, network, registry)?;
    let conf = instance.folder().join("conf");
    instance.start(
        Daemon::new("containerd", binaries.path("containerd"))
            .argument("--config")
            .argument(conf.join("containerd.toml"))
            // containerd finds its shim there.
            .variable("PATH", binaries.search_path()),
    )?;
    let ctr = |arguments: &[&str]| ctr(instance.folder(), binaries, arguments);
    instance
        .wait_for("containerd", 30, async || ctr(&["version"]))
        .await?;
    info!("containerd ready");

    for archive in images(binaries)? {
        load(instance.folder(), binaries, &archive)?;
    }
    ctr(&[
        "images",
        "label",
        "test.local/pause:1",
        "io.cri-containerd.pinned=pinned",
    ])?;
    info!("images imported");

    make_groups(instance.name())?;
    instance.start(
        Daemon::new("kubelet", binaries.path("kubelet"))
            .flag("config", conf.join("kubelet.yaml"))
            .flag("kubeconfig", instance.folder().join("pki/kubelet.kubeconfig"))
            .flag("hostname-override", NODE_NAME)
            .flag("node-ip", network.node_address.to_string())
            .flag("v", "2")
            .variable("PATH", binaries.search_path()),
    )?;
    instance.start(
        Daemon::new("kube-proxy", binaries.path("kube-proxy"))
            .flag("config", conf.join("kube-proxy.yaml"))
            .variable("PATH", binaries.search_path()),
    )?;
    let created = Command::new(binaries.path("kubectl"))
        .arg("--kubeconfig")
        .arg(instance.folder().join("kubeconfig"))
        .env(KUBECTL_CACHE, instance.folder().join("kubectl"))
        .args(["create", "-f"])
        .arg(conf.join("coredns.yaml"))
        .output()?;
    if !created.status.success() {
        bail!(
            "cannot create CoreDNS: {}",
            String::from_utf8_lossy(&created.stderr)
        );
    }
    let nodes: Api<Node> = Api::all(client.clone());
    instance
        .wait_for("kubelet", 60, async || node_ready(&nodes).await)
        .await?;
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    nodes
        .patch(NODE_NAME, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    info!("node ready");

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    instance
        .wait_for("kubelet", 90, async || available(&deployments, "coredns").await)
        .await?;
    info!("names resolve");
    Ok(())
}

async fn available(deployments: &Api<Deployment>, name: &str) -> Result<()> {
    let status = deployments.get(name).await?.status.unwrap_or_default();
    if status.available_replicas.unwrap_or_default() > 0 {
        return Ok(());
    }
    bail!("{name} is not available")
}

/// Writes the configuration of containerd, CNI, kubelet, kube-proxy and `CoreDNS`.
fn configure(instance: &Instance, network: &Network, registry: &Registry) -> Result<()> {
    let folder = instance.folder();
    let plugins = requirements::cni_plugins().context("no CNI plugins")?;
    let values = [
        ("${STATE}", folder.to_string_lossy().into_owned()),
        ("${NAME}", instance.name().to_owned()),
        ("${NODE_NAME}", NODE_NAME.to_owned()),
        ("${CNI_PLUGINS}", plugins.to_string_lossy().into_owned()),
        ("${DNS_IP}", DNS_ADDRESS.to_owned()),
        ("${POD_RANGE}", network.pod_range.to_owned()),
        ("${NODE_POD_RANGE}", NODE_POD_RANGE.to_owned()),
    ];
    fs::create_dir_all(folder.join("cni"))?;
    for (path, template) in [
        (
            "conf/containerd.toml",
            include_str!("../../cluster/conf/containerd.toml"),
        ),
        (
            "cni/10-pods.conflist",
            include_str!("../../cluster/conf/cni.conflist"),
        ),
        (
            "conf/kubelet.yaml",
            include_str!("../../cluster/conf/kubelet.yaml"),
        ),
        (
            "conf/kube-proxy.yaml",
            include_str!("../../cluster/conf/kube-proxy.yaml"),
        ),
        (
            "conf/coredns.yaml",
            include_str!("../../cluster/conf/coredns.yaml"),
        ),
        ("conf/resolv.conf", "nameserver 127.0.0.1\n"),
    ] {
        let text = values.iter().fold(template.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        });
        fs::write(folder.join(path), text)?;
    }

    // Ours are reached; any other registry is a closed port, so that a missing image fails at once.
    let mirror = |host: &str, url: &str, authority: Option<&Path>| -> Result<()> {
        let hosts = folder.join("hosts").join(host);
        fs::create_dir_all(&hosts)?;
        let ca = authority
            .map(|ca| format!("  ca = \"{}\"\n", ca.display()))
            .unwrap_or_default();
        let text = format!(
            "server = \"{url}\"\n[host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\", \"push\"]\n{ca}"
        );
        Ok(fs::write(hosts.join("hosts.toml"), text)?)
    };
    mirror(&registry.address, &format!("http://{}", registry.address), None)?;
    mirror(
        &registry.tls,
        &format!("https://{}", registry.tls),
        Some(&registry.ca),
    )?;
    mirror(
        &registry.auth,
        &format!("https://{}", registry.auth),
        Some(&registry.ca),
    )?;
    mirror("_default", "http://127.0.0.1:1", None)?;

    // The kernel's default of 128 does not last for a node.
    let limit = Path::new("/proc/sys/fs/inotify/max_user_instances");
    let current: u32 = fs::read_to_string(limit)?.trim().parse()?;
    if current < 1024 {
        fs::write(limit, "1024").context("cannot raise the limit of inotify instances")?;
    }
    Ok(())
}

/// Imports an archive of images into containerd.
pub(super) fn load(folder: &Path, binaries: &Binaries, archive: &Path) -> Result<()> {
    let archive = archive.to_str().context("the archive's path is not text")?;
    ctr(folder, binaries, &["images", "import", "--local", archive]).map(drop)
}

fn ctr(folder: &Path, binaries: &Binaries, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(binaries.path("ctr"));
    process::without_proxies(&mut command);
    let output = command
        .args(arguments)
        .env("CONTAINERD_ADDRESS", folder.join("containerd.sock"))
        .env("CONTAINERD_NAMESPACE", "k8s.io")
        .output()?;
    if !output.status.success() {
        bail!(
            "ctr {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The images that a node needs, made once and kept in the cache.
fn images(binaries: &Binaries) -> Result<Vec<PathBuf>> {
    let folder = binaries.derived();
    fs::create_dir_all(&folder)?;
    let program = |name: &str| -> Result<PathBuf> {
        let archive = folder.join(format!("{name}.tar"));
        if !archive.exists() {
            let bytes = fs::read(binaries.path(name))?;
            let image = Image {
                files: vec![(name.to_owned(), Entry::Program(bytes))],
                entrypoint: vec![format!("/{name}")],
                ..Image::default()
            };
            write_archive(&archive, &format!("test.local/{name}:1"), &image)?;
        }
        Ok(archive)
    };
    Ok(vec![program("pause")?, program("coredns")?, busybox(&folder)?])
}

/// The machine's static busybox as `test.local/busybox:1`, with a link for each of its commands.
fn busybox(folder: &Path) -> Result<PathBuf> {
    let program = requirements::find("busybox").context("no busybox")?;
    let bytes = fs::read(&program)?;
    let mut digest = hex::encode(Sha256::digest(&bytes));
    digest.truncate(12);
    let archive = folder.join(format!("busybox-{digest}.tar"));
    if !archive.exists() {
        let list = Command::new(&program).arg("--list").output()?;
        let commands = String::from_utf8_lossy(&list.stdout);
        let mut files = vec![("bin/busybox".to_owned(), Entry::Program(bytes))];
        let links = commands.lines().filter(|name| *name != "busybox");
        files.extend(links.map(|name| (format!("bin/{name}"), Entry::Link("busybox".to_owned()))));
        let image = Image {
            files,
            command: vec!["sh".to_owned()],
            ..Image::default()
        };
        write_archive(&archive, "test.local/busybox:1", &image)?;
    }
    Ok(archive)
}

/// Creates the parent control groups of kubelet, which kubelet does not create. Version 1 has a tree for each
/// controller, version 2 a single one.
fn make_groups(name: &str) -> Result<()> {
    let top = Path::new("/sys/fs/cgroup");
    let controllers = top.join("cgroup.controllers");
    if controllers.exists() {
        let all = fs::read_to_string(&controllers)?;
        let wanted: Vec<String> = all
            .split_whitespace()
            .map(|controller| format!("+{controller}"))
            .collect();
        fs::write(top.join("cgroup.subtree_control"), wanted.join(" "))
            .context("cannot delegate control groups")?;
        return Ok(fs::create_dir_all(top.join(name))?);
    }
    for tree in fs::read_dir(top)?.flatten().map(|entry| entry.path()) {
        if tree.join("cgroup.procs").exists() {
            fs::create_dir_all(tree.join(name))?;
        }
    }
    Ok(())
}
