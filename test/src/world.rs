//! The whole product on a simulated node: a cluster, a registry, both managers as processes with the rights that the
//! shipped manifests give them, and images made on the spot.

pub mod classic;
pub mod faults;
mod lab;
mod manager;
pub mod masks;
mod pausable_relay;
pub mod shared;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

pub use self::lab::Lab;
pub(crate) use self::lab::replace_kept_place;
pub use self::manager::{CLASSIC_NAMESPACE, Manager};
pub use self::pausable_relay::PausableRelay;
use crate::cluster::Cluster;
pub use crate::cluster::free_address;

/// Kinds in the manifests that only Pods need; here the managers are processes.
const ONLY_FOR_PODS: &[&str] = &[
    "ClusterServiceVersion",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
];

/// The additional time for one poll beyond the total time of all polls.
const LAST_LOOK: Duration = Duration::from_secs(30);
/// The time limit of kubectl.
const KUBECTL_TIME: Duration = Duration::from_mins(3);

/// The running product.
pub struct World {
    lab: Lab,
    /// catalogd.
    pub catalogd: Manager,
    /// operator-controller.
    pub operator_controller: Manager,
    /// The address at which catalogs are served: `https://HOST:PORT`.
    pub catalogs: String,
}

impl std::ops::Deref for World {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// The settings of the managers.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More arguments for catalogd.
    pub catalogd: Vec<String>,
    /// More arguments for operator-controller.
    pub operator_controller: Vec<String>,
    /// The address at which catalogs are served, as `HOST:PORT`; a free port of 127.0.0.1 if absent.
    pub catalogs: Option<String>,
    /// The manifests to apply, a folder of the repository; `manifests/base` when empty.
    pub manifests: &'static str,
    /// The address at which catalogd reaches the API server, as `http://HOST:PORT`; directly if absent.
    pub catalogd_server: Option<String>,
    /// The address at which operator-controller reaches the API server, as `http://HOST:PORT`; directly if absent.
    pub operator_controller_server: Option<String>,
    /// The folder with the programs of the managers; those that are built beside the tests if absent.
    pub programs: Option<PathBuf>,
}

impl World {
    /// Starts a cluster, applies the shipped CRDs and roles, and starts both managers.
    ///
    /// # Errors
    /// When a part is missing or does not start.
    pub async fn start(options: Options) -> Result<Self> {
        let manifests = Some(options.manifests).filter(|folder| !folder.is_empty());
        let lab = Lab::with_manifests(manifests.unwrap_or("manifests/base")).await?;
        Self::over(lab, options).await
    }

    /// Starts both managers on a cluster that has the shipped CRDs and roles.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn over(lab: Lab, options: Options) -> Result<Self> {
        let content = options.catalogs.map_or_else(free_address, Ok)?;
        let mut catalogd = Manager::catalogd(&lab, "catalogd", &content, options.catalogd).await?;
        let mut arguments = vec![format!("--catalogd-address={content}")];
        arguments.extend(options.operator_controller);
        let mut operator_controller =
            Manager::operator_controller(&lab, "operator-controller", arguments).await?;
        for (manager, server) in [
            (&mut catalogd, options.catalogd_server),
            (&mut operator_controller, options.operator_controller_server),
        ] {
            server.map_or(Ok(()), |server| manager.go_through(&server))?;
            if let Some(programs) = &options.programs {
                manager.take_from(Some(programs));
            }
        }
        let mut world = Self {
            lab,
            catalogd,
            operator_controller,
            catalogs: format!("https://{content}"),
        };
        world.start_managers().await?;
        Ok(world)
    }

    /// Starts both managers, and waits until they are ready.
    ///
    /// # Errors
    /// When one of them does not start.
    pub async fn start_managers(&mut self) -> Result<()> {
        self.start_catalogd()?;
        self.start_operator_controller()?;
        self.catalogd.ready().await?;
        self.operator_controller.ready().await
    }

    /// Starts catalogd when it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_catalogd(&mut self) -> Result<()> {
        self.catalogd.start(&self.lab.cluster)
    }

    /// Starts operator-controller when it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_operator_controller(&mut self) -> Result<()> {
        self.operator_controller.start(&self.lab.cluster)
    }

    /// Polls until `look` returns a value.
    ///
    /// # Errors
    /// When `limit` passes first; the error contains `what` and the ends of both managers' logs.
    pub async fn eventually<T, F>(&self, what: &str, limit: Duration, look: F) -> Result<T>
    where
        F: AsyncFnMut() -> Result<Option<T>>,
    {
        eventually(what, limit, look).await.map_err(|error| {
            error.context(format!(
                "--- catalogd\n{}\n--- operator-controller\n{}",
                self.catalogd.log_end(),
                self.operator_controller.log_end()
            ))
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Before the cluster is stopped.
        self.operator_controller.kill();
        self.catalogd.kill();
    }
}

/// Polls until `look` returns a value.
///
/// # Errors
/// When `limit` passes first; the error contains `what` and the last problem.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut look: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<Option<T>>,
{
    let end = Instant::now() + limit;
    loop {
        // One poll may wait for an answer that never comes.
        let problem = match tokio::time::timeout(limit + LAST_LOOK, look()).await {
            Ok(Ok(Some(found))) => return Ok(found),
            Ok(Ok(None)) => String::new(),
            Ok(Err(error)) => format!(" ({error:#})"),
            Err(_) => " (no answer)".to_owned(),
        };
        if Instant::now() > end {
            bail!("{what}: not within {} s{problem}", limit.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A program of this workspace, in the folder of this one.
///
/// # Errors
/// When it is not built.
pub fn binary(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    here.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not built: run `cargo build --release -p {name}` first"))
}

/// Definitions come first: other objects may be of their kinds.
fn apply_manifests(cluster: &Cluster, folder: &str) -> Result<()> {
    let folder = repository().join(folder).display().to_string();
    let text = kubectl(cluster, &["kustomize", &folder], None)?;
    let is_of = |object: &str, kind: &str| object.lines().any(|line| line == format!("kind: {kind}"));
    let objects = text
        .split("\n---\n")
        .filter(|object| !ONLY_FOR_PODS.iter().any(|kind| is_of(object, kind)));
    let (definitions, others): (Vec<&str>, Vec<&str>) =
        objects.partition(|object| is_of(object, "CustomResourceDefinition"));
    let apply = |objects: &[&str]| {
        let text = objects.join("\n---\n");
        kubectl(cluster, &["apply", "--server-side", "-f", "-"], Some(&text)).map(drop)
    };
    apply(&definitions)?;
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd",
        "--all",
    ];
    kubectl(cluster, &established, None)?;
    apply(&others)
}

/// Runs kubectl with an administrator's rights.
///
/// # Errors
/// When it fails; the error contains its output.
pub fn kubectl(cluster: &Cluster, arguments: &[&str], input: Option<&str>) -> Result<String> {
    use std::io::Write as _;
    let mut command = cluster.exec("kubectl");
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.stdin(if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    let mut child = command.spawn().context("cannot run kubectl")?;
    let limit = Limit::on(&child);
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    drop(limit);
    if !output.status.success() {
        // One that was stopped prints no reason; its output until then shows the last step.
        bail!(
            "kubectl {}: {}: {} {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
            String::from_utf8_lossy(&output.stdout).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Ends a process that takes longer than [`KUBECTL_TIME`], unless this is dropped before.
struct Limit {
    _done: std::sync::mpsc::Sender<()>,
}

impl Limit {
    fn on(child: &Child) -> Self {
        let (done, wait) = std::sync::mpsc::channel();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        std::thread::spawn(move || {
            if let (Some(pid), Err(RecvTimeoutError::Timeout)) = (pid, wait.recv_timeout(KUBECTL_TIME)) {
                // An error means that it has just ended.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self { _done: done }
    }
}
