//! `olm-test cluster …`: a cluster that outlives the command that starts it.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::instance::temporary_folder;
use super::{
    Binaries, Cluster, Component, Info, Mode, Options, become_command, binaries, owner, process, running,
};

/// The sub-commands of `cluster`.
#[derive(Debug, Subcommand)]
#[expect(
    missing_docs,
    reason = "arguments that several share are described where they are defined"
)]
pub enum ClusterCommand {
    /// Start a cluster in the background and print how to reach it.
    Up {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        kind: Kind,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Stay in the foreground; Ctrl-C ends the cluster.
        #[arg(long)]
        foreground: bool,
    },
    /// End a cluster and remove all its files. Succeeds if there is none.
    Down {
        #[command(flatten)]
        place: Place,
    },
    /// Report the running parts; the exit status is 0 if all of them run.
    Status {
        #[command(flatten)]
        place: Place,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a command in the cluster's network, with KUBECONFIG and the cluster's programs in the search path.
    Exec {
        #[command(flatten)]
        place: Place,
        /// Among the real node's processes and mounts, too.
        #[arg(long)]
        inside: bool,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Import OCI image archives into the real node.
    Load {
        #[command(flatten)]
        place: Place,
        /// The archives.
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Kill a daemon and start it again.
    Restart {
        #[command(flatten)]
        place: Place,
        /// The component.
        component: Component,
    },
    /// Build the cluster's programs into the cache.
    Build {
        #[command(flatten)]
        kind: Kind,
    },
    /// The process that `up` leaves running.
    #[command(hide = true)]
    Supervise {
        /// The folder of the cluster.
        #[arg(long)]
        state: PathBuf,
        #[command(flatten)]
        kind: Kind,
    },
}

/// The selection of the cluster.
#[derive(Debug, Args)]
pub struct Place {
    /// The folder of the cluster; that of the last `up` without this when absent. Several clusters may run at once.
    #[arg(long, env = super::STATE_VARIABLE)]
    state: Option<PathBuf>,
}

/// The parts of the cluster.
#[derive(Debug, Args)]
pub struct Kind {
    /// A real node instead of a simulated one; needs root.
    #[arg(long)]
    node: bool,
}

impl Kind {
    fn mode(&self) -> Mode {
        if self.node { Mode::Node } else { Mode::Simulated }
    }
}

impl Place {
    fn folder(&self) -> Result<Option<PathBuf>> {
        if let Some(folder) = &self.state {
            return Ok(Some(std::path::absolute(folder)?));
        }
        Ok(fs::read_to_string(remembered()?)
            .ok()
            .map(|text| PathBuf::from(text.trim())))
    }

    fn attach(&self) -> Result<Cluster> {
        let folder = self
            .folder()?
            .context("no cluster is up; start one with: olm-test cluster up")?;
        Cluster::attach(&folder)
    }
}

/// The file in which `up` records its folder.
fn remembered() -> Result<PathBuf> {
    Ok(binaries::cache_home()?.join("current"))
}

/// Runs a sub-command.
///
/// # Errors
/// The failure of the sub-command.
pub async fn run(command: ClusterCommand) -> Result<ExitCode> {
    match command {
        ClusterCommand::Up {
            place,
            kind,
            json,
            foreground,
        } => {
            let output = if json { Output::Json } else { Output::Text };
            if foreground {
                up_foreground(&place, kind.mode(), output).await
            } else {
                up(&place, kind.mode(), output).await
            }
        }
        ClusterCommand::Down { place } => down(&place),
        ClusterCommand::Status { place, json } => {
            status(&place, if json { Output::Json } else { Output::Text })
        }
        ClusterCommand::Exec {
            place,
            inside,
            command,
        } => {
            let cluster = place.attach()?;
            let (program, arguments) = command.split_first().context("no command")?;
            let mut command = if inside {
                cluster.exec_inside(program)?
            } else {
                cluster.exec(program)
            };
            command.args(arguments);
            Err(become_command(command))
        }
        ClusterCommand::Load { place, archives } => {
            let cluster = place.attach()?;
            archives.iter().try_for_each(|archive| cluster.load(archive))?;
            Ok(ExitCode::SUCCESS)
        }
        ClusterCommand::Restart { place, component } => {
            place.attach()?.restart(component)?;
            Ok(ExitCode::SUCCESS)
        }
        ClusterCommand::Build { kind } => {
            let mode = kind.mode();
            tokio::task::spawn_blocking(move || {
                Binaries::ensure(mode)?;
                Binaries::ensure_token_registry()?;
                Binaries::ensure_health()?;
                Binaries::ensure_prometheus()?;
                Binaries::ensure_helm()
            })
            .await??;
            Ok(ExitCode::SUCCESS)
        }
        ClusterCommand::Supervise { state, kind } => supervise(&state, kind.mode()).await,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Text,
    Json,
}

/// The folder for a new cluster, and whether to note it.
fn new_folder(place: &Place) -> Result<Option<PathBuf>> {
    let folder = place.folder()?;
    if let Some(folder) = &folder
        && owner(folder).is_some()
    {
        bail!(
            "a cluster is up in {}; `olm-test cluster down` ends it, `--state DIR` starts another beside it",
            folder.display()
        );
    }
    Ok(if place.state.is_some() { folder } else { None })
}

async fn up_foreground(place: &Place, mode: Mode, output: Output) -> Result<ExitCode> {
    let state = new_folder(place)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let starting = Cluster::start(Options { mode, state });
    let cluster = tokio::select! {
        cluster = starting => cluster?,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    };
    print(cluster.info(), output, "Ctrl-C")?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    cluster.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// Starts a supervisor in a session of its own and waits until its cluster is ready.
async fn up(place: &Place, mode: Mode, output: Output) -> Result<ExitCode> {
    let named = new_folder(place)?;
    super::requirements::check(mode)?;
    tokio::task::spawn_blocking(move || Binaries::ensure(mode)).await??;
    let state = match &named {
        Some(folder) => folder.clone(),
        None => temporary_folder()?,
    };
    let mut command = Command::new("setsid");
    command
        .arg(std::env::current_exe()?)
        .args(["cluster", "supervise", "--state"])
        .arg(&state);
    if mode == Mode::Node {
        command.arg("--node");
    }
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut supervisor = command.spawn().context("cannot start the supervisor")?;
    let pid = process::pid_of(&supervisor);
    let said = supervisor.stderr.take().context("the supervisor has no output")?;
    // The supervisor closes its standard error as soon as the cluster is ready, or by dying.
    let reading = tokio::task::spawn_blocking(move || {
        for line in BufReader::new(said).lines().map_while(std::io::Result::ok) {
            if line == READY {
                return true;
            }
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        false
    });
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let ready = tokio::select! {
        ready = reading => ready?,
        _ = interrupt.recv() => false,
        _ = terminate.recv() => false,
    };
    if !ready {
        process::signal(pid, Signal::TERM);
        let _ = supervisor.wait();
        bail!("no cluster was started");
    }
    let info = running(&state)?.context("the cluster is gone again")?;
    if named.is_none() {
        fs::write(remembered()?, state.as_os_str().as_encoded_bytes())?;
    }
    let down = match &named {
        Some(folder) => format!("olm-test cluster down --state {}", folder.display()),
        None => "olm-test cluster down".to_owned(),
    };
    print(&info, output, &down)?;
    Ok(ExitCode::SUCCESS)
}

/// The line with which the supervisor reports that the cluster is ready.
const READY: &str = "olm-test: ready";

async fn supervise(state: &Path, mode: Mode) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let starting = Cluster::start(Options {
        mode,
        state: Some(state.to_owned()),
    });
    let cluster = tokio::select! {
        cluster = starting => cluster?,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    };
    // Output after this line is not read.
    let _ = writeln!(std::io::stderr(), "{READY}");
    let mut log = process::log_file(state, "supervisor")?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = hangup.recv() => {
                if let Err(e) = cluster.revive_all() {
                    writeln!(log, "{e:#}")?;
                }
            }
        }
    }
    cluster.stop()?;
    Ok(ExitCode::SUCCESS)
}

fn down(place: &Place) -> Result<ExitCode> {
    let Some(folder) = place.folder()? else {
        info!("no cluster is up");
        return Ok(ExitCode::SUCCESS);
    };
    let Some(owner) = owner(&folder) else {
        info!("no cluster is up");
        return Ok(ExitCode::SUCCESS);
    };
    process::signal(owner, Signal::TERM);
    let end = Instant::now() + Duration::from_mins(1);
    while process::birth(owner).is_some() {
        if Instant::now() > end {
            bail!("process {owner} would not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if folder.exists() {
        info!("down; {} is kept", folder.display());
    } else {
        info!("down");
    }
    if place.state.is_none() {
        let _ = fs::remove_file(remembered()?);
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "the report is the command's output")]
fn status(place: &Place, output: Output) -> Result<ExitCode> {
    let folder = place.folder()?;
    let Some(info) = folder.as_deref().map(running).transpose()?.flatten() else {
        match output {
            Output::Json => println!("null"),
            Output::Text => println!("no cluster is up"),
        }
        return Ok(ExitCode::FAILURE);
    };
    let cluster = Cluster::attach(&info.state)?;
    let daemons = cluster.daemons();
    match output {
        Output::Json => println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::json!({
                "cluster": info,
                "daemons": daemons.iter().map(|(name, pid, alive)| serde_json::json!({"name": name, "pid": pid, "alive": alive})).collect::<Vec<_>>(),
            }))?
        ),
        Output::Text => {
            println!("state       {}", info.state.display());
            println!("KUBECONFIG  {}", info.kubeconfig.display());
            for (name, pid, alive) in &daemons {
                println!(
                    "{name:<24} {}",
                    if *alive {
                        format!("runs, process {pid}")
                    } else {
                        "dead".to_owned()
                    }
                );
            }
        }
    }
    Ok(if daemons.iter().all(|(_, _, alive)| *alive) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stdout, reason = "the report is the command's output")]
fn print(info: &Info, output: Output, down: &str) -> Result<()> {
    if output == Output::Json {
        println!("{}", serde_json::to_string_pretty(info)?);
        return Ok(());
    }
    let seconds = Duration::from_millis(info.started_in_ms).as_secs_f64();
    println!("ready after {seconds:.1} s");
    println!("export KUBECONFIG={}", info.kubeconfig.display());
    println!("API server  {}", info.server);
    if let Some(registry) = &info.registry {
        println!("registry    {} (HTTP)", registry.address);
        println!(
            "            {} (HTTPS, authority {})",
            registry.tls,
            registry.ca.display()
        );
        println!(
            "            {} (HTTPS, user {}, password {})",
            registry.auth, registry.username, registry.password
        );
    }
    println!("logs        {}", info.logs.display());
    if info.holder.is_some() {
        println!("inside      olm-test cluster exec -- COMMAND   (the network has no door)");
    }
    println!("stop        {down}");
    Ok(())
}
