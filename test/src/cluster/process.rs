//! Processes that never outlive their owner, and facts about processes from `/proc`.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Variables that would send a request for the cluster's own addresses to a proxy.
const PROXY_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

struct Spawn {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

/// Starts a command from a thread that lives as long as this process. The kernel sends the parent-death signal, which
/// [`bound`] requests, when the *thread* that started a child ends, and test threads end early.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Spawn>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver): (_, Receiver<Spawn>) = channel();
        std::thread::spawn(move || {
            for mut request in receiver {
                // The reply has no receiver only when the asking thread is gone; the child dies with us then.
                let _ = request.reply.send(request.command.spawn());
            }
        });
        sender
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (reply, answer) = sync_channel(1);
    spawner.send(Spawn { command, reply }).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// A command that the kernel kills when this process dies for any reason. Pass it to [`spawn`].
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    without_proxies(&mut command);
    command
}

/// Removes the caller's proxy settings from a command.
pub(crate) fn without_proxies(command: &mut Command) {
    for name in PROXY_VARIABLES {
        command.env_remove(name);
    }
}

/// The configuration of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    /// The name of its log and of its entry in the folder of process ids.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(String, OsString)>,
}

impl Daemon {
    pub(crate) fn new(name: &str, program: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Appends `--NAME=VALUE`.
    pub(crate) fn flag(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(value);
        self.arguments.push(flag);
        self
    }

    /// Appends an argument.
    pub(crate) fn argument(mut self, value: impl Into<OsString>) -> Self {
        self.arguments.push(value.into());
        self
    }

    /// Sets a variable.
    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }
}

/// A running daemon, or one that has been killed and can be started again.
#[derive(Debug)]
pub(crate) struct Process {
    daemon: Daemon,
    /// Process 1 of the namespaces to run in.
    holder: Option<i32>,
    child: Child,
    /// The daemon itself; `child` is its `nsenter` when it runs in namespaces.
    pid: i32,
}

impl Process {
    /// Starts a daemon with its output appended to `state/log/NAME.log`, in the namespaces of process `holder`.
    pub(crate) fn start(daemon: Daemon, state: &Path, holder: Option<i32>) -> Result<Self> {
        let (child, pid) = launch(&daemon, state, holder)?;
        Ok(Self {
            daemon,
            holder,
            child,
            pid,
        })
    }

    /// The daemon's process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it still runs. A daemon with many threads becomes a zombie before it can be waited for, so both are
    /// checked.
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None)) && birth(self.pid).is_some()
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if self.alive() {
            signal(self.pid, Signal::KILL);
            if self.pid == pid_of(&self.child) || !self.ended_within(Duration::from_secs(5)) {
                // An error means that it is already dead.
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
    }

    fn ended_within(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.alive() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Starts it again with the same arguments unless it runs.
    pub(crate) fn revive(&mut self, state: &Path) -> Result<()> {
        if !self.alive() {
            let _ = self.child.wait();
            (self.child, self.pid) = launch(&self.daemon, state, self.holder)?;
        }
        Ok(())
    }
}

fn launch(daemon: &Daemon, state: &Path, holder: Option<i32>) -> Result<(Child, i32)> {
    let log = log_file(state, &daemon.name)?;
    let mut command = match holder {
        None => bound(&daemon.program),
        Some(holder) => {
            let mut command = bound("nsenter");
            command
                .arg("--target")
                .arg(holder.to_string())
                .args(["--net", "--mount", "--pid", "--ipc", "--uts", "--"])
                .arg(&daemon.program);
            command
        }
    };
    command
        .args(&daemon.arguments)
        .envs(daemon.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(state)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // A Ctrl-C at the terminal is for the owner, who stops the daemons in order.
        .process_group(0);
    let mut child = spawn(command).with_context(|| format!("cannot start {}", daemon.name))?;
    let pid = match holder {
        None => pid_of(&child),
        Some(_) => match only_child(&mut child) {
            Ok(pid) => pid,
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(e.context(format!(
                    "{} did not start: {}",
                    daemon.name,
                    log_tail(state, &daemon.name)
                )));
            }
        },
    };
    let birth = birth(pid).unwrap_or_default();
    std::fs::write(state.join("pids").join(&daemon.name), format!("{pid} {birth}\n"))?;
    Ok((child, pid))
}

/// The log of a daemon, opened to append.
pub(crate) fn log_file(state: &Path, name: &str) -> Result<File> {
    let path = state.join("log").join(format!("{name}.log"));
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The last lines of a daemon's log.
pub(crate) fn log_tail(state: &Path, name: &str) -> String {
    let bytes = std::fs::read(state.join("log").join(format!("{name}.log"))).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = text.lines().rev().take(8).collect();
    lines.reverse();
    lines.join("\n")
}

/// The process id of a child.
pub(crate) fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap_or(i32::MAX)
}

/// The only child of a wrapper such as `nsenter` or `unshare`.
pub(crate) fn only_child(wrapper: &mut Child) -> Result<i32> {
    let parent = pid_of(wrapper);
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(pid) = processes().find(|pid| stat(*pid).is_some_and(|s| s.parent == parent)) {
            return Ok(pid);
        }
        if let Some(status) = wrapper.try_wait()? {
            bail!("ended with {status}");
        }
        if Instant::now() > end {
            bail!("forked nothing");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal; a process that is gone is no error.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// The ids of all processes.
pub(crate) fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Stat {
    state: char,
    parent: i32,
    birth: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may itself hold brackets and blanks.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let birth = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, birth })
}

/// The start of a process, in clock ticks since boot. Together with its id, it is a unique name.
pub(crate) fn birth(pid: i32) -> Option<u64> {
    stat(pid).filter(|s| s.state != 'Z').map(|s| s.birth)
}

/// A process as the folder of process ids records it, when it still runs.
pub(crate) fn recorded(state: &Path, name: &str) -> Option<i32> {
    let text = std::fs::read_to_string(state.join("pids").join(name)).ok()?;
    let (pid, began) = text.trim().split_once(' ')?;
    let pid = pid.parse().ok()?;
    let began: u64 = began.parse().ok()?;
    (birth(pid)? == began).then_some(pid)
}

/// The network namespace of a process, as `/proc` names it.
pub(crate) fn network_of(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}
