//! A manager as a process, with the rights that the shipped manifests give its account.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use olm_api::names;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

use super::{Lab, binary, free_address};
use crate::cluster::Cluster;
use crate::images::HEAPS;

/// The namespace of OLM classic.
pub const CLASSIC_NAMESPACE: &str = "olm";

/// A manager as a process.
#[derive(Debug)]
pub struct Manager {
    program: &'static str,
    /// The file of the program; the one that is built beside the tests if absent.
    file: Option<PathBuf>,
    name: String,
    child: Option<Child>,
    arguments: Vec<String>,
    /// The kubeconfig for the API server.
    kubeconfig: PathBuf,
    /// The file with its log.
    pub log: PathBuf,
    /// The health port on this machine.
    pub health: String,
    /// The metrics port on this machine.
    pub metrics: String,
    /// The path of a small file system for it.
    disk: Option<PathBuf>,
    /// The maximum number of its descriptors.
    descriptors: Option<u32>,
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Manager {
    /// A catalogd that is to serve catalogs at `content`, not started yet; `name` is that of its log and cache.
    ///
    /// # Errors
    /// When the shipped manifests are not applied.
    pub async fn catalogd(lab: &Lab, name: &str, content: &str, more: Vec<String>) -> Result<Self> {
        let mut arguments = vec![
            format!("--catalogs-server-addr={content}"),
            format!("--external-address={content}"),
            format!("--cache-dir={}", lab.folder().join(name).display()),
        ];
        arguments.extend(more);
        Self::prepare("catalogd", name, lab, arguments).await
    }

    /// An operator-controller, not started yet; `name` is that of its log and cache.
    ///
    /// # Errors
    /// When the shipped manifests are not applied.
    pub async fn operator_controller(lab: &Lab, name: &str, more: Vec<String>) -> Result<Self> {
        let mut arguments = vec![format!("--cache-path={}", lab.folder().join(name).display())];
        arguments.extend(more);
        Self::prepare("operator-controller", name, lab, arguments).await
    }

    /// A program of OLM classic, not started yet: `olm-operator`, `catalog-operator` or `packageserver`; `name` is that
    /// of its log. It has the rights of its account in the namespace [`CLASSIC_NAMESPACE`], an administrator's if there
    /// is no such account.
    ///
    /// # Errors
    /// When the API server does not report it.
    pub async fn classic(lab: &Lab, part: &'static str, name: &str, more: Vec<String>) -> Result<Self> {
        let kubeconfig = lab.folder().join(format!("{name}.kubeconfig"));
        let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), CLASSIC_NAMESPACE);
        if accounts.get_opt(part).await?.is_some() {
            write_kubeconfig(lab, CLASSIC_NAMESPACE, part, &kubeconfig).await?;
        } else {
            std::fs::copy(lab.cluster.kubeconfig(), &kubeconfig)?;
        }
        let mut manager = Self::over("classic", name, lab, CLASSIC_NAMESPACE, &kubeconfig, more)?;
        manager.arguments.insert(0, part.to_owned());
        Ok(manager)
    }

    async fn prepare(program: &'static str, name: &str, lab: &Lab, more: Vec<String>) -> Result<Self> {
        let kubeconfig = lab.folder().join(format!("{name}.kubeconfig"));
        let account = format!("{program}-controller-manager");
        write_kubeconfig(lab, names::SYSTEM_NAMESPACE, &account, &kubeconfig).await?;
        Self::over(program, name, lab, names::SYSTEM_NAMESPACE, &kubeconfig, more)
    }

    fn over(
        program: &'static str,
        name: &str,
        lab: &Lab,
        namespace: &str,
        kubeconfig: &Path,
        more: Vec<String>,
    ) -> Result<Self> {
        let (health, metrics) = (free_address()?, free_address()?);
        let mut arguments = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--system-namespace={namespace}"),
            format!("--health-probe-bind-address={health}"),
            format!("--metrics-bind-address={metrics}"),
            format!("--pull-cas-dir={}", lab.authorities().display()),
            "--log-format=text".to_owned(),
        ];
        arguments.extend(more);
        Ok(Self {
            program,
            file: None,
            name: name.to_owned(),
            child: None,
            arguments,
            kubeconfig: kubeconfig.to_path_buf(),
            log: lab.folder().join(format!("{name}.log")),
            health,
            metrics,
            disk: None,
            descriptors: None,
        })
    }

    /// Gives it a file system of 16 MiB of its own, in memory, which ends with it. Any user may do that in a user
    /// namespace.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn on_a_small_disk(mut self, disk: &Path) -> Result<Self> {
        std::fs::create_dir_all(disk)?;
        self.disk = Some(disk.to_owned());
        Ok(self)
    }

    /// Sets another address of the API server, `http://HOST:PORT`, from the next start on.
    ///
    /// # Errors
    /// When its kubeconfig cannot be changed.
    pub fn go_through(&mut self, server: &str) -> Result<()> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(&self.kubeconfig)?)?;
        let cluster = config.pointer_mut("/clusters/0/cluster");
        *cluster.context("the kubeconfig has no cluster")? = json!({ "server": server });
        std::fs::write(&self.kubeconfig, config.to_string())?;
        Ok(())
    }

    /// Takes the program from a folder from the next start on; without one, that which is built beside the tests.
    pub fn take_from(&mut self, folder: Option<&Path>) {
        self.file = folder.map(|folder| folder.join(self.program));
    }

    /// Limits the descriptors of the process from the next start on.
    pub fn limit_descriptors(&mut self, most: u32) {
        self.descriptors = Some(most);
    }

    /// The path of a file in the process's view of the file system.
    ///
    /// # Errors
    /// When the process does not run.
    pub fn sees(&self, path: &Path) -> Result<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid().context("it does not run")?));
        Ok(root.join(path.strip_prefix("/")?))
    }

    /// Starts the process when it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, cluster: &Cluster) -> Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let errors = log.try_clone()?;
        let mut arguments = self.arguments.clone();
        let mut program = self.file.clone().map_or_else(|| binary(self.program), Ok)?;
        if let Some(disk) = &self.disk {
            arguments.splice(..0, mounted(disk, &program));
            program = "unshare".into();
        }
        if let Some(most) = self.descriptors {
            let limited = [format!("--nofile={most}:{most}"), program.display().to_string()];
            arguments.splice(..0, limited);
            program = "prlimit".into();
        }
        let child = cluster.spawn(program, |command| {
            command
                .args(arguments)
                // The same settings as in the images.
                .envs(HEAPS)
                .stdout(log)
                .stderr(errors)
                .stdin(Stdio::null());
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Adds an argument for the next start.
    pub fn add_argument(&mut self, argument: String) {
        self.arguments.push(argument);
    }

    /// Removes an argument for the next start.
    pub fn remove_argument(&mut self, argument: &str) {
        self.arguments.retain(|found| found != argument);
    }

    /// Stops the process and waits for it; returns the duration.
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let Some(mut child) = self.child.take() else {
            return Ok(Duration::ZERO);
        };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        while child.try_wait()?.is_none() {
            if begin.elapsed() > Duration::from_secs(30) {
                child.kill()?;
                child.wait()?;
                bail!(
                    "{} did not end when asked to; the end of its log:\n{}",
                    self.name,
                    self.log_end()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(begin.elapsed())
    }

    /// Ends the process at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may be gone already; in both cases nothing remains to be done.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until `/readyz` reports ready.
    ///
    /// # Errors
    /// When it does not within 60 s, or the process ends.
    pub async fn ready(&mut self) -> Result<()> {
        let url = format!("http://{}/readyz", self.health);
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = tokio::time::timeout(Duration::from_secs(10), reqwest::get(&url)).await;
            if let Ok(Ok(answer)) = answer
                && answer.status().is_success()
            {
                return Ok(());
            }
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > end {
                bail!(
                    "{} is not ready; the end of its log:\n{}",
                    self.name,
                    self.log_end()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The last lines of the log.
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(40)..)
            .unwrap_or_default()
            .join("\n")
    }
}

/// The arguments of `unshare` that start a program with a small file system.
fn mounted(disk: &Path, program: &Path) -> Vec<String> {
    let user: &[&str] = if geteuid().is_root() {
        &[]
    } else {
        &["--user", "--map-root-user"]
    };
    let script = r#"mount -t tmpfs -o size=16m tmpfs "$0" && exec setpriv --pdeathsig KILL -- "$@""#;
    let paths = [disk, program].map(|path| path.display().to_string());
    let mount = ["--mount", "sh", "-c", script];
    let arguments = user.iter().chain(&mount).map(|&argument| argument.to_owned());
    arguments.chain(paths).collect()
}

/// A kubeconfig with the rights of a service account, for a day.
async fn write_kubeconfig(lab: &Lab, namespace: &str, account: &str, path: &Path) -> Result<()> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(86_400),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let token = Api::<ServiceAccount>::namespaced(lab.client.clone(), namespace)
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for {namespace}/{account}"))?
        .status
        .context("the API server returned no token")?
        .token;
    let admin = kube::config::Kubeconfig::read_from(lab.cluster.kubeconfig())?;
    let mut config = serde_json::to_value(&admin)?;
    let user = config
        .pointer_mut("/users/0/user")
        .context("the kubeconfig has no user")?;
    *user = json!({ "token": token });
    std::fs::write(path, config.to_string())?;
    Ok(())
}
