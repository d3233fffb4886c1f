//! The processes, ports, namespaces and the folder that a launcher has created and must remove.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use sha2::{Digest as _, Sha256};

use super::ports::{Port, ServiceRange};
use super::process::{self, Daemon, Process};

/// Room for the longest socket name below the folder; the kernel takes 107 bytes in all.
const LONGEST_FOLDER: usize = 80;

/// Removes the folder and the control groups when its input ends, that is when the owner is dead. By then the
/// kernel has killed the daemons.
const GUARD: &str = r#"
while read -r _; do :; done
n=0
while [ $n -lt 100 ]; do
    for group in "/sys/fs/cgroup/$2" /sys/fs/cgroup/*/"$2"; do
        [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    rm -rf "$1" 2>/dev/null
    set -- "$1" "$2" /sys/fs/cgroup/*/"$2"
    [ -e "$1" ] || [ -d "/sys/fs/cgroup/$2" ] || [ -d "$3" ] || exit 0
    n=$((n + 1))
    sleep 0.1
done
"#;

/// The variable that keeps the folder, with its logs, after the end.
const KEEP_VARIABLE: &str = "OLM_TEST_KEEP";

/// The owner of all resources of one launch. Dropping it ends and removes them. If this process dies, the kernel and
/// the guard do.
#[derive(Debug)]
pub(crate) struct Instance {
    folder: PathBuf,
    name: String,
    /// Locked as long as the owner lives.
    lock: File,
    guard: Option<Child>,
    ports: Vec<Port>,
    services: Option<ServiceRange>,
    namespaces: Option<Namespaces>,
    processes: Mutex<BTreeMap<String, Process>>,
}

/// Network, mount, process, IPC and host-name namespaces.
#[derive(Debug)]
struct Namespaces {
    /// The program that made them, which dies with this process and ends process 1.
    maker: Child,
    holder: i32,
    network: PathBuf,
}

impl Instance {
    /// Takes a new temporary folder, or `folder`, which must be empty or missing.
    pub(crate) fn create(folder: Option<&Path>) -> Result<Self> {
        let folder = match folder {
            Some(folder) => {
                fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
                folder.canonicalize()?
            }
            None => temporary_folder()?,
        };
        if folder.as_os_str().len() > LONGEST_FOLDER {
            bail!(
                "{} is too long a path for the sockets in it; {LONGEST_FOLDER} bytes fit",
                folder.display()
            );
        }
        if fs::read_dir(&folder)?.next().is_some() {
            bail!("{} is not empty", folder.display());
        }
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock()
            .with_context(|| format!("{} belongs to another launcher", folder.display()))?;
        fs::write(folder.join("owner"), std::process::id().to_string())?;
        for part in ["log", "pids", "conf", "pki"] {
            fs::create_dir(folder.join(part))?;
        }
        let mut digest = hex::encode(Sha256::digest(folder.as_os_str().as_encoded_bytes()));
        digest.truncate(8);
        let name = format!("olm-test-{digest}");
        let mut guard = Command::new("setsid");
        guard.args(["sh", "-c", GUARD, "sh"]).arg(&folder).arg(&name);
        guard
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let guard = if keeps() {
            None
        } else {
            Some(guard.spawn().context("cannot start the guard")?)
        };
        Ok(Self {
            folder,
            name,
            lock,
            guard,
            ports: Vec::new(),
            services: None,
            namespaces: None,
            processes: Mutex::new(BTreeMap::new()),
        })
    }

    /// The folder of this launch.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A name that no other launch on this machine has.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A free port of the loopback address.
    pub(crate) fn port(&mut self) -> Result<u16> {
        let port = Port::claim()?;
        let number = port.number();
        self.ports.push(port);
        Ok(number)
    }

    /// N of the range 127.N.0.0/16 for services.
    pub(super) fn service_range(&mut self) -> Result<u8> {
        let range = ServiceRange::claim()?;
        let number = range.number();
        self.services = Some(range);
        Ok(number)
    }

    /// Creates namespaces for all daemons that are started from now on. `script` becomes their process 1.
    pub(super) fn enter_namespaces(&mut self, script: &str, environment: &[(&str, &str)]) -> Result<i32> {
        // Containers of any user reach their volumes through the folder.
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755))?;
        let log = process::log_file(&self.folder, "namespaces")?;
        let mut command = process::bound("unshare");
        command
            .args([
                "--net",
                "--mount",
                "--pid",
                "--ipc",
                "--uts",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["--propagation", "slave", "--", "sh", "-euc", script])
            .envs(environment.iter().copied())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let mut maker = process::spawn(command).context("cannot start unshare")?;
        let holder = process::only_child(&mut maker)
            .with_context(|| format!("no namespaces: {}", process::log_tail(&self.folder, "namespaces")))?;
        let network = process::network_of(holder).context("the namespaces are gone at once")?;
        self.namespaces = Some(Namespaces {
            maker,
            holder,
            network,
        });
        let end = Instant::now() + Duration::from_secs(10);
        while !self.folder.join("furnished").exists() {
            let dead = self
                .namespaces
                .as_mut()
                .is_none_or(|n| !matches!(n.maker.try_wait(), Ok(None)));
            if dead || Instant::now() > end {
                bail!(
                    "the namespaces could not be set up: {}",
                    process::log_tail(&self.folder, "namespaces")
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(holder)
    }

    /// Starts a daemon.
    pub(crate) fn start(&self, daemon: Daemon) -> Result<()> {
        let name = daemon.name.clone();
        let holder = self.namespaces.as_ref().map(|n| n.holder);
        let process = Process::start(daemon, &self.folder, holder)?;
        self.processes().insert(name, process);
        Ok(())
    }

    /// Waits until `probe` succeeds; gives up when the daemon dies or the time is over, and then shows its log's end.
    pub(crate) async fn wait_for<E: std::fmt::Display>(
        &self,
        daemon: &str,
        seconds: u64,
        mut probe: impl AsyncFnMut() -> Result<(), E>,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            let why = match tokio::time::timeout(Duration::from_secs(5), probe()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(e)) => e.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            let log = || process::log_tail(&self.folder, daemon);
            if !self.processes().get_mut(daemon).is_some_and(Process::alive) {
                bail!("{daemon} died; the end of its log:\n{}", log());
            }
            if Instant::now() > end {
                bail!(
                    "{daemon} is not ready after {seconds} s: {why}; the end of its log:\n{}",
                    log()
                );
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    /// Name, process id and whether it runs, of every daemon.
    pub(super) fn daemons(&self) -> Vec<(String, i32, bool)> {
        self.processes()
            .iter_mut()
            .map(|(name, p)| (name.clone(), p.pid(), p.alive()))
            .collect()
    }

    /// Kills one daemon.
    pub(super) fn kill(&self, name: &str) -> Result<()> {
        self.processes()
            .get_mut(name)
            .with_context(|| no_such(name))?
            .kill();
        Ok(())
    }

    /// Starts one daemon again unless it runs.
    pub(super) fn revive(&self, name: &str) -> Result<()> {
        self.processes()
            .get_mut(name)
            .with_context(|| no_such(name))?
            .revive(&self.folder)
    }

    /// Starts every daemon again that does not run.
    pub(super) fn revive_all(&self) -> Result<()> {
        self.processes()
            .values_mut()
            .try_for_each(|process| process.revive(&self.folder))
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all processes and removes the folder. A second call does nothing.
    pub(crate) fn shut_down(&mut self) -> Result<()> {
        if let Some(mut namespaces) = self.namespaces.take() {
            // The end of process 1 ends every process of its namespace, including containers.
            process::signal(namespaces.holder, Signal::KILL);
            let _ = namespaces.maker.kill();
            let _ = namespaces.maker.wait();
            evict(&namespaces.network)?;
        }
        for process in self.processes().values_mut() {
            process.kill();
        }
        self.processes().clear();
        self.ports.clear();
        self.services = None;
        if self.folder.exists() {
            let _ = self.lock.unlock();
            retry(Duration::from_secs(10), || remove_groups(&self.name))
                .context("control groups are left")?;
            if !keeps() {
                retry(Duration::from_secs(10), || {
                    match fs::remove_dir_all(&self.folder) {
                        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
                        _ => Ok(()),
                    }
                })
                .with_context(|| format!("{} is left", self.folder.display()))?;
            }
        }
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(e) = self.shut_down() {
            // The last resort of a destructor: standard error may be closed, and that must not abort.
            let _ = writeln!(
                std::io::stderr(),
                "olm-test: not everything could be removed: {e:#}"
            );
        }
    }
}

fn keeps() -> bool {
    std::env::var_os(KEEP_VARIABLE).is_some_and(|v| !v.is_empty())
}

fn no_such(name: &str) -> String {
    format!("nothing named {name} was started")
}

/// A new folder that is not removed automatically.
pub(super) fn temporary_folder() -> Result<PathBuf> {
    let make = |parent: &Path| tempfile::Builder::new().prefix("olm-test-").tempdir_in(parent);
    let mut folder = make(&std::env::temp_dir())?;
    if folder.path().as_os_str().len() > LONGEST_FOLDER {
        folder = make(Path::new("/tmp"))?;
    }
    Ok(folder.keep().canonicalize()?)
}

/// Ends remaining processes in a network that is being removed: commands that were started in it from outside.
fn evict(network: &Path) -> Result<()> {
    let own = process::network_of(i32::try_from(std::process::id())?);
    if own.as_deref() == Some(network) {
        return Ok(());
    }
    retry(Duration::from_secs(10), || {
        let members: Vec<i32> = process::processes()
            .filter(|pid| process::network_of(*pid).as_deref() == Some(network))
            .collect();
        for pid in &members {
            process::signal(*pid, Signal::KILL);
        }
        if members.is_empty() {
            Ok(())
        } else {
            Err(anyhow::anyhow!("processes {members:?} would not die"))
        }
    })
}

/// Removes the control groups of a node. The kernel keeps one busy for a moment after its last process.
pub(super) fn remove_groups(name: &str) -> Result<()> {
    let top = Path::new("/sys/fs/cgroup");
    let trees = fs::read_dir(top)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join(name));
    for tree in trees.chain([top.join(name)]) {
        if tree.is_dir() {
            remove_group(&tree)?;
        }
    }
    Ok(())
}

fn remove_group(tree: &Path) -> Result<()> {
    let mut folders = vec![tree.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        next += 1;
        let inner: Vec<PathBuf> = fs::read_dir(folder)?
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.is_dir())
            .collect();
        folders.extend(inner);
    }
    for folder in folders.iter().rev() {
        fs::remove_dir(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

fn retry<E>(limit: Duration, mut attempt: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let end = Instant::now() + limit;
    loop {
        match attempt() {
            Err(e) if Instant::now() > end => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
            Ok(()) => return Ok(()),
        }
    }
}
