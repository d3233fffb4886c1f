//! The cluster's programs: found in `KUBEBUILDER_ASSETS`, or built from Go modules once and kept in the user's cache.

mod modules;
mod signing;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};
use tracing::info;

use self::modules::{
    Client, GRPCURL, HEALTH, HEALTH_SOURCES, HELM, HELM_SOURCES, KUBECTL_OPERATOR, MINOR, MODULES, Module,
    Needed, OPM, PROMETHEUS, PROMETHEUS_SOURCES, Program, REGISTRY, SOURCES, TOKEN_SOURCES,
};
pub use self::signing::Tool;
use super::minors::{self, Minor};
use super::{Mode, process, requirements};

/// KWOK's rules for nodes and pods, in its module.
const STAGES: &[&str] = &[
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
];

/// The places of the programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// `KUBEBUILDER_ASSETS` or the programs of another minor version, which go first.
    assets: Option<PathBuf>,
    cache: PathBuf,
    sources: &'static [(&'static str, &'static str)],
    modules: &'static [Module],
}

impl Binaries {
    /// Builds the missing programs of a mode. The first build takes minutes. Concurrent calls, also in other processes,
    /// wait for it.
    ///
    /// # Errors
    /// When Go is missing or a build fails; the error ends with the output of Go.
    pub fn ensure(mode: Mode) -> Result<Self> {
        let wanted = |needed: Needed| match mode {
            Mode::ApiServer => needed == Needed::Always,
            Mode::Simulated => needed != Needed::Node,
            Mode::Node => true,
        };
        Self::all()?.ensure_where(wanted)
    }

    /// Makes sure that the registry is there.
    pub(crate) fn ensure_registry() -> Result<Self> {
        Self::all()?.ensure_where(|needed| needed == Needed::Registry)
    }

    /// Makes sure that the registry that admits clients with a token is there.
    pub(crate) fn ensure_token_registry() -> Result<Self> {
        let binaries = Self::separate(TOKEN_SOURCES, &[REGISTRY])?;
        binaries.ensure_where(|needed| needed == Needed::Registry)
    }

    /// Builds the program that evaluates the health of objects as GitOps tools do, if it is missing.
    pub(crate) fn ensure_health() -> Result<Self> {
        let binaries = Self::separate(HEALTH_SOURCES, &[HEALTH])?;
        binaries.ensure_where(|needed| needed == Needed::Health)
    }

    /// Makes sure that `prometheus` and `promtool` are there.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn ensure_prometheus() -> Result<Self> {
        let binaries = Self::separate(PROMETHEUS_SOURCES, &[PROMETHEUS])?;
        binaries.ensure_where(|needed| needed == Needed::Prometheus)
    }

    /// Makes sure that `helm` is there.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn ensure_helm() -> Result<Self> {
        let binaries = Self::separate(HELM_SOURCES, &[HELM])?;
        binaries.ensure_where(|needed| needed == Needed::Helm)
    }

    /// Builds the missing programs that sign images, or the services that they use.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn ensure_signing(tool: Tool) -> Result<Self> {
        let (sources, modules, wanted) = tool.parts();
        Self::separate(sources, modules)?.ensure_where(|needed| needed == wanted)
    }

    /// Builds `kubectl-operator` if it is missing, and returns its file.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn ensure_kubectl_operator() -> Result<PathBuf> {
        Self::ensure_client(&KUBECTL_OPERATOR, "kubectl-operator")
    }

    /// Builds `grpcurl` if it is missing, and returns its file.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn ensure_grpcurl() -> Result<PathBuf> {
        Self::ensure_client(&GRPCURL, "grpcurl")
    }

    /// Builds `opm` if it is missing, and returns its file.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn ensure_opm() -> Result<PathBuf> {
        Self::ensure_client(&OPM, "opm")
    }

    fn ensure_client(client: &Client, name: &str) -> Result<PathBuf> {
        let binaries = Self::separate(client.sources, client.modules)?;
        let binaries = binaries.ensure_where(|needed| needed == Needed::Client)?;
        Ok(binaries.path(name))
    }

    /// Builds the missing programs of another minor version, and returns their folder.
    fn ensure_minor(minor: &'static Minor) -> Result<PathBuf> {
        let binaries = Self::separate(minor.sources, &[MINOR])?;
        let binaries = binaries.ensure_where(|needed| needed == Needed::Minor)?;
        Ok(binaries.cache.join("bin"))
    }

    /// Programs that have a folder of the cache to themselves.
    fn separate(
        sources: &'static [(&'static str, &'static str)],
        modules: &'static [Module],
    ) -> Result<Self> {
        Ok(Self {
            assets: None,
            cache: cache_home()?.join(fingerprint(sources)),
            sources,
            modules,
        })
    }

    fn all() -> Result<Self> {
        let given = std::env::var_os("KUBEBUILDER_ASSETS").filter(|v| !v.is_empty());
        let assets = match (given, minors::chosen()?) {
            (None, Some(minor)) => Some(Self::ensure_minor(minor)?),
            (given, _) => given.map(PathBuf::from),
        };
        Ok(Self {
            assets,
            cache: cache_home()?.join(fingerprint(SOURCES)),
            sources: SOURCES,
            modules: MODULES,
        })
    }

    fn ensure_where(self, wanted: impl Fn(Needed) -> bool) -> Result<Self> {
        let binaries = self;
        let missing = |module: &Module| -> Vec<&Program> {
            let programs = module.programs.iter().filter(|p| wanted(p.needed));
            programs.filter(|p| !binaries.path(p.name).is_file()).collect()
        };
        let complete = || {
            binaries.modules.iter().all(|module| missing(module).is_empty())
                && (!wanted(Needed::Simulated) || binaries.stages().is_file())
        };
        if complete() {
            return Ok(binaries);
        }
        fs::create_dir_all(binaries.cache.join("bin"))
            .with_context(|| format!("cannot create {}", binaries.cache.display()))?;
        let lock = File::create(binaries.cache.join("lock"))?;
        lock.lock().context("cannot lock the cache")?;
        for module in binaries.modules {
            let missing = missing(module);
            if !missing.is_empty() {
                binaries.build(module, &missing)?;
            }
        }
        if wanted(Needed::Simulated) && !binaries.stages().is_file() {
            binaries.write_stages()?;
        }
        Ok(binaries)
    }

    /// The file of a program.
    pub fn path(&self, name: &str) -> PathBuf {
        let asset = self
            .assets
            .as_ref()
            .map(|folder| folder.join(name))
            .filter(|file| file.is_file());
        asset.unwrap_or_else(|| self.cache.join("bin").join(name))
    }

    /// The search path with the programs in front.
    pub fn search_path(&self) -> OsString {
        let own = self.assets.iter().cloned().chain([self.cache.join("bin")]);
        let rest = std::env::var_os("PATH").unwrap_or_default();
        // The search path of some users lacks the folders of administrators' programs, which a node needs.
        let administrators = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        let all: Vec<PathBuf> = own
            .chain(std::env::split_paths(&rest))
            .chain(administrators)
            .collect();
        std::env::join_paths(all).unwrap_or(rest)
    }

    /// KWOK's rules.
    pub(super) fn stages(&self) -> PathBuf {
        self.cache.join("kwok-stages.yaml")
    }

    /// A folder for files derived from the programs.
    pub(super) fn derived(&self) -> PathBuf {
        // Images made by an older writer must not be taken for ours.
        self.cache
            .join(format!("images-{}", short_digest([include_str!("oci.rs")])))
    }

    fn build(&self, module: &Module, programs: &[&Program]) -> Result<()> {
        let begin = Instant::now();
        let names: Vec<&str> = programs.iter().map(|p| p.name).collect();
        info!("building {}; minutes the first time", names.join(", "));
        let folder = self.unpack_sources(module)?;
        let version = match module.version_of {
            "" => String::new(),
            dependency => go(&folder, &["list", "-m", "-f", "{{.Version}}", dependency])?
                .trim()
                .to_owned(),
        };
        let output = self.cache.join("new");
        fs::create_dir_all(&output)?;
        for program in programs {
            // One at a time, because the progress is shown, and two linkers at once need gigabytes.
            let file = output.join(program.name);
            let flags = format!("-s -w {}", (module.stamp)(&version));
            let file_argument = file.to_string_lossy().into_owned();
            let arguments = [
                "build",
                "-p",
                "2",
                "-trimpath",
                "-tags",
                module.tags,
                "-ldflags",
                &flags,
                "-o",
                &file_argument,
                program.package,
            ];
            let begin = Instant::now();
            go(&folder, &arguments)?;
            fs::rename(&file, self.cache.join("bin").join(program.name))?;
            info!("{} built in {} s", program.name, begin.elapsed().as_secs());
        }
        info!("built {} in {} s", names.join(", "), begin.elapsed().as_secs());
        Ok(())
    }

    fn unpack_sources(&self, module: &Module) -> Result<PathBuf> {
        let root = self.cache.join("src");
        for (path, text) in self.sources {
            let file = root.join(path);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(root.join(module.folder))
    }

    fn write_stages(&self) -> Result<()> {
        let module = self
            .modules
            .iter()
            .find(|m| m.folder.is_empty())
            .context("no module of Kubernetes")?;
        let folder = self.unpack_sources(module)?;
        go(&folder, &["mod", "download", "sigs.k8s.io/kwok"])?;
        let kwok = go(&folder, &["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])?;
        let rules = Path::new(kwok.trim()).join("kustomize/stage");
        let mut text = String::new();
        for stage in STAGES {
            let file = rules.join(stage).with_extension("yaml");
            text.push_str("---\n");
            text.push_str(
                &fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?,
            );
        }
        let fresh = self.cache.join("kwok-stages.new");
        fs::write(&fresh, text)?;
        fs::rename(fresh, self.stages())?;
        Ok(())
    }
}

/// The launcher's part of the user's cache directory.
pub(super) fn cache_home() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let home = || set("HOME").map(|home| home.join(".cache"));
    let cache = set("XDG_CACHE_HOME")
        .or_else(home)
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("olm-test"))
}

/// A name for the exact sources, so that programs of several versions can exist side by side.
fn fingerprint(sources: &[(&'static str, &'static str)]) -> String {
    short_digest(sources.iter().flat_map(|(path, text)| [*path, *text]))
}

fn short_digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text);
    }
    let mut digits = hex::encode(hash.finalize());
    digits.truncate(12);
    digits
}

/// Runs Go at low priority and returns its output.
fn go(folder: &Path, arguments: &[&str]) -> Result<String> {
    if requirements::find("go").is_none() {
        bail!(
            "Go is missing; the cluster's programs are built with Go 1.26.8 or newer, or found in KUBEBUILDER_ASSETS"
        );
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "nice", "-n", "10", "go"])
        .args(arguments)
        .current_dir(folder)
        .envs([("CGO_ENABLED", "0"), ("GOWORK", "off"), ("GOFLAGS", "")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = process::spawn(command).context("cannot start Go")?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| !line.starts_with("go: downloading"))
            .collect();
        let last = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default();
        bail!("go {} failed:\n{}", arguments.join(" "), last.join("\n"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
