//! A real Kubernetes for tests, built from Go modules: it starts in seconds and leaves nothing behind.
//!
//! [`Mode::ApiServer`] is etcd and the API server. [`Mode::Simulated`] adds controller-manager, scheduler, KWOK, which
//! makes one node and every pod on it ready, and an OCI registry. None of it needs root: everything listens on free
//! ports of the loopback address, and service addresses lie in 127.0.0.0/8. [`Mode::Node`] has a real node instead of
//! KWOK (containerd, runc, kubelet, kube-proxy, `CoreDNS`), needs root, and runs in separate namespaces without a route
//! to the outside: [`Cluster::enter`] and [`Cluster::exec`] give access.
//!
//! Programs are taken from `KUBEBUILDER_ASSETS` or built by Go, once, into the user's cache directory. On Debian the
//! packages `util-linux`, and for a node `iproute2 iptables mount runc containernetworking-plugins busybox-static`, are
//! required.
//!
//! A cluster ends with its [`Cluster`]. If the owning process dies first, the kernel kills the daemons and a guard
//! removes the folder. With the variable `OLM_TEST_KEEP` set, the folder with its logs stays.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::registry::{self, Registry};

mod binaries;
pub mod command;
mod control_plane;
mod definitions;
pub(crate) mod instance;
mod minors;
mod node;
pub mod objects;
pub mod oci;
pub(crate) mod pki;
mod ports;
pub(crate) mod process;
mod requirements;
mod store;
pub mod webhook;

pub use binaries::{Binaries, Tool};
pub use definitions::apply_definitions;
pub use ports::free_address;

/// The variable with the folder of a running cluster, for programs that [`Cluster::exec`] starts.
pub const STATE_VARIABLE: &str = "OLM_TEST_STATE";
/// The variable with the folder of kubectl's discovery cache.
const KUBECTL_CACHE: &str = "KUBECACHEDIR";

/// The parts of a cluster to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// etcd and the API server, for tests of validation and storage.
    ApiServer,
    /// A control plane whose node and pods KWOK simulates, and a registry.
    Simulated,
    /// A control plane with a real node, and a registry. Needs root.
    Node,
}

/// The options of a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// The parts to start.
    pub mode: Mode,
    /// The folder for all files of the cluster; a temporary one if `None`. At most 80 bytes long.
    pub state: Option<PathBuf>,
}

impl From<Mode> for Options {
    fn from(mode: Mode) -> Self {
        Self { mode, state: None }
    }
}

/// A daemon of a cluster, for tests of outages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Component {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kwok,
    Registry,
    RegistryTls,
    RegistryAuth,
    Containerd,
    Kubelet,
    KubeProxy,
}

impl Component {
    /// The program's name, which is also that of its log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Registry => "registry",
            Self::RegistryTls => "registry-tls",
            Self::RegistryAuth => "registry-auth",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
        }
    }
}

/// The facts about a running cluster; `cluster.json` in its folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Info {
    /// The started parts.
    pub mode: Mode,
    /// The folder of all files of the cluster.
    pub state: PathBuf,
    /// Credentials of an administrator.
    pub kubeconfig: PathBuf,
    /// The API server's URL.
    pub server: String,
    /// The registry, unless the mode is [`Mode::ApiServer`].
    pub registry: Option<Registry>,
    /// Logs of the daemons, `NAME.log`.
    pub logs: PathBuf,
    /// One JSON line for each answered request.
    pub audit_log: PathBuf,
    /// The range of service addresses.
    pub service_range: String,
    /// The search path with the cluster's programs in front.
    pub path: String,
    /// Process 1 of a node's namespaces.
    pub holder: Option<i32>,
    /// The time from the start to ready, in milliseconds, without building programs.
    pub started_in_ms: u64,
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    info: Info,
    /// Absent when another process is the owner.
    instance: Option<instance::Instance>,
    binaries: Binaries,
}

impl Cluster {
    /// Starts a cluster and waits until it is ready: the API server answers, controllers work, the node is ready, on a
    /// real node names resolve.
    ///
    /// # Errors
    /// When a program is missing on the machine or does not start; the error ends with the end of its log. No process
    /// or file remains.
    pub async fn start(options: impl Into<Options>) -> Result<Self> {
        let options = options.into();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // A thread of its own, because it moves into the network of a real node.
        std::thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || {
                // If no test waits any longer, the cluster ends here.
                drop(sender.send(assemble(&options)));
            })?;
        receiver.await.context("the starting thread died")?
    }

    /// Connects to a cluster that another process owns. The cluster continues after this value is dropped.
    ///
    /// # Errors
    /// When there is none in the folder.
    pub fn attach(state: &Path) -> Result<Self> {
        let info = running(state)?.with_context(|| format!("no cluster is up in {}", state.display()))?;
        let binaries = Binaries::ensure(info.mode)?;
        Ok(Self {
            info,
            instance: None,
            binaries,
        })
    }

    /// Connects to the cluster of this process, if [`Cluster::exec`] started it.
    ///
    /// # Errors
    /// When that cluster is gone.
    pub fn attach_surrounding() -> Result<Option<Self>> {
        std::env::var_os(STATE_VARIABLE)
            .map(|state| Self::attach(Path::new(&state)))
            .transpose()
    }

    /// The facts about the cluster.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Credentials of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.info.kubeconfig
    }

    /// The registry, unless the mode is [`Mode::ApiServer`].
    pub fn registry(&self) -> Option<&Registry> {
        self.info.registry.as_ref()
    }

    /// Logs of the daemons, `NAME.log`.
    pub fn logs_dir(&self) -> &Path {
        &self.info.logs
    }

    /// One JSON line for each answered request, with verb, URL, user and user agent.
    pub fn audit_log(&self) -> &Path {
        &self.info.audit_log
    }

    /// A client with an administrator's rights. With a real node, call [`Cluster::enter`] first.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        client(self.kubeconfig()).await
    }

    /// Moves the calling thread, and all threads and processes that it starts later, into the cluster's network. Does
    /// nothing if the cluster uses the machine's network.
    ///
    /// Call it before a runtime is built, because existing threads are not moved.
    ///
    /// # Errors
    /// Without root, or when the cluster is gone.
    pub fn enter(&self) -> Result<()> {
        self.info.holder.map_or(Ok(()), node::join_network)
    }

    /// A command in the cluster's network, with the machine's files and processes, `KUBECONFIG`, the cluster's programs
    /// in the search path, and no proxies. If the cluster has a real node, its end kills the command.
    pub fn exec(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.in_network(program.as_ref(), |program| Command::new(program))
    }

    /// Starts a program in the cluster's network that dies with this process: a manager under test, say. `with` adds
    /// arguments, variables and where its output goes. Ending it before the cluster is the caller's part.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        with: impl FnOnce(&mut Command),
    ) -> Result<std::process::Child> {
        let program = program.as_ref();
        let mut command = self.in_network(program, |program| process::bound(program));
        with(&mut command);
        process::spawn(command).with_context(|| format!("cannot start {}", program.display()))
    }

    /// A command in the cluster's network; `command` makes one of a program.
    fn in_network(
        &self,
        program: &std::ffi::OsStr,
        command: impl FnOnce(&std::ffi::OsStr) -> Command,
    ) -> Command {
        let mut command = match self.info.holder {
            None => command(program),
            Some(holder) => {
                let mut command = command("nsenter".as_ref());
                command
                    .arg(format!("--net=/proc/{holder}/ns/net"))
                    .arg("--")
                    .arg(program);
                command
            }
        };
        self.equip(&mut command);
        command
    }

    /// A command among a real node's processes and mounts, too.
    ///
    /// # Errors
    /// Without a real node.
    pub fn exec_inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let holder = self.info.holder.context("the cluster has no real node")?;
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &holder.to_string(),
            "--net",
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "--",
        ]);
        command.arg(program);
        self.equip(&mut command);
        Ok(command)
    }

    fn equip(&self, command: &mut Command) {
        process::without_proxies(command);
        command
            .env("KUBECONFIG", &self.info.kubeconfig)
            // kubectl caches for hours which kinds an address serves, and the next cluster at the address may serve
            // others.
            .env(KUBECTL_CACHE, self.info.state.join("kubectl"))
            .env(STATE_VARIABLE, &self.info.state)
            .env("CONTAINERD_ADDRESS", self.info.state.join("containerd.sock"))
            .env("CONTAINERD_NAMESPACE", "k8s.io")
            .env("PATH", &self.info.path);
    }

    /// Imports an OCI archive into a real node, so that pods run its images without a registry. They need
    /// `imagePullPolicy: IfNotPresent` and a tag other than `latest`.
    ///
    /// # Errors
    /// Without a real node, or when containerd refuses the archive.
    pub fn load(&self, archive: &Path) -> Result<()> {
        if self.info.mode != Mode::Node {
            bail!("only a real node keeps images");
        }
        node::load(&self.info.state, &self.binaries, archive)
    }

    /// Name, process id and whether it runs, of every daemon.
    pub fn daemons(&self) -> Vec<(String, i32, bool)> {
        if let Some(instance) = &self.instance {
            return instance.daemons();
        }
        let entries = fs::read_dir(self.info.state.join("pids"))
            .into_iter()
            .flatten()
            .flatten();
        let mut daemons: Vec<(String, i32, bool)> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| match process::recorded(&self.info.state, &name) {
                Some(pid) => (name, pid, true),
                None => (name, 0, false),
            })
            .collect();
        daemons.sort();
        daemons
    }

    /// Kills one daemon; it stays dead until [`Cluster::revive`].
    ///
    /// # Errors
    /// When the cluster has none of that name.
    pub fn kill(&self, component: Component) -> Result<()> {
        let name = component.name();
        let Some(instance) = &self.instance else {
            let pid =
                process::recorded(&self.info.state, name).with_context(|| format!("{name} does not run"))?;
            process::signal(pid, Signal::KILL);
            return poll("it would not die", || process::birth(pid).is_none());
        };
        instance.kill(name)
    }

    /// Starts a killed daemon again, with the same arguments and data.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn revive(&self, component: Component) -> Result<()> {
        let name = component.name();
        let Some(instance) = &self.instance else {
            // Its parent must be the owner, or it would die with us.
            let owner = owner(&self.info.state).context("the cluster has no owner")?;
            process::signal(owner, Signal::HUP);
            return poll("it was not started", || {
                process::recorded(&self.info.state, name).is_some()
            });
        };
        instance.revive(name)
    }

    /// Kills a daemon and starts it again.
    ///
    /// # Errors
    /// As [`Cluster::kill`] and [`Cluster::revive`].
    pub fn restart(&self, component: Component) -> Result<()> {
        self.kill(component)?;
        self.revive(component)
    }

    /// Waits until the API server is ready, for example after an outage.
    ///
    /// # Errors
    /// When it is not within a minute.
    pub async fn ready(&self) -> Result<()> {
        let client = self.client().await?;
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            match tokio::time::timeout(Duration::from_secs(5), control_plane::ready(&client)).await {
                Ok(Ok(())) => return Ok(()),
                _ if Instant::now() > end => bail!("the API server is not ready"),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Ends the cluster, removes its folder, and reports failures. Dropping does the same. A cluster that another
    /// process owns continues.
    ///
    /// # Errors
    /// When a process, a control group or the folder remains.
    pub fn stop(mut self) -> Result<()> {
        self.instance
            .as_mut()
            .map_or(Ok(()), instance::Instance::shut_down)
    }

    fn revive_all(&self) -> Result<()> {
        self.instance
            .as_ref()
            .map_or(Ok(()), instance::Instance::revive_all)
    }
}

/// Starts all parts, on a separate thread.
fn assemble(options: &Options) -> Result<Cluster> {
    requirements::check(options.mode)?;
    let binaries = Binaries::ensure(options.mode)?;
    let begin = Instant::now();
    let mut instance = instance::Instance::create(options.state.as_deref())?;
    let folder = instance.folder().to_owned();
    let (network, holder) = if options.mode == Mode::Node {
        let network = control_plane::Network::of_node(node::NODE_ADDRESS);
        let holder = node::enter(&mut instance, &binaries, &network)?;
        (network, Some(holder))
    } else {
        (control_plane::Network::loopback(&mut instance)?, None)
    };
    let authority = pki::Authority::create(&folder.join("pki"))?;
    control_plane::write_identities(&instance, &authority, &network)?;
    let ports = match options.mode {
        Mode::Node => registry::Ports::FIXED,
        _ => registry::Ports {
            plain: instance.port()?,
            tls: instance.port()?,
            auth: instance.port()?,
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let registry = runtime.block_on(async {
        let client = control_plane::start_api_server(&instance, &binaries, options.mode, &network).await?;
        if options.mode == Mode::ApiServer {
            return anyhow::Ok(None);
        }
        let registry =
            registry::start(&instance, &binaries, &authority, network.node_address, &ports).await?;
        control_plane::start_controllers(&instance, &binaries, &network, &client).await?;
        if options.mode == Mode::Node {
            node::start(&instance, &binaries, &network, &registry, &client).await?;
        } else {
            control_plane::start_simulated_node(&instance, &binaries, &client).await?;
        }
        Ok(Some(registry))
    })?;
    let info = Info {
        mode: options.mode,
        kubeconfig: folder.join("kubeconfig"),
        server: network.server(),
        registry,
        logs: folder.join("log"),
        audit_log: folder.join("log/audit.log"),
        service_range: network.service_range,
        path: binaries.search_path().to_string_lossy().into_owned(),
        holder,
        started_in_ms: u64::try_from(begin.elapsed().as_millis())?,
        state: folder,
    };
    let fresh = info.state.join("cluster.new");
    fs::write(&fresh, serde_json::to_vec_pretty(&info)?)?;
    fs::rename(fresh, info.state.join("cluster.json"))?;
    info!(
        "ready after {} ms; state in {}",
        info.started_in_ms,
        info.state.display()
    );
    Ok(Cluster {
        info,
        instance: Some(instance),
        binaries,
    })
}

/// The cluster in a folder, if its owner is alive and it is ready.
fn running(state: &Path) -> Result<Option<Info>> {
    if owner(state).is_none() {
        return Ok(None);
    }
    let file = state.join("cluster.json");
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Some(
        serde_json::from_slice(&text).with_context(|| format!("{} is not ours", file.display()))?,
    ))
}

/// The process that owns the cluster in a folder. A number alone could belong to a stranger by now, so the owner's
/// lock must be held, too.
fn owner(state: &Path) -> Option<i32> {
    let lock = fs::File::open(state.join("lock")).ok()?;
    match lock.try_lock() {
        Err(fs::TryLockError::WouldBlock) => {
            fs::read_to_string(state.join("owner")).ok()?.trim().parse().ok()
        }
        _ => None,
    }
}

fn poll(failure: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        if Instant::now() > end {
            bail!("{failure}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A client for a kubeconfig, past any proxy.
async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    // An error means that the provider is chosen already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(kube::Client::try_from(config)?)
}

/// Replaces this process by a command.
fn become_command(mut command: Command) -> anyhow::Error {
    let program = command.get_program().to_string_lossy().into_owned();
    anyhow::Error::from(command.exec()).context(format!("cannot run {program}"))
}
