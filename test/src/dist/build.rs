//! `olm-test dist build`: programs whose bytes do not depend on the folder in which they are built, nor on those of
//! Cargo and Rust.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use tracing::info;

pub(super) mod macos;

/// The separator of the flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// The programs for a target.
#[derive(Debug, Clone, Copy)]
struct Build {
    target: &'static str,
    /// The name of the processor in the names of compilers for it.
    compilers: &'static str,
    programs: &'static [&'static str],
}

/// Programs for Linux are static. musl is the smallest for the command line; the managers are tuned to the GNU C
/// Library.
const BUILDS: [Build; 5] = [
    Build {
        target: "x86_64-unknown-linux-musl",
        compilers: "x86_64",
        programs: &["olm"],
    },
    Build {
        target: "x86_64-unknown-linux-gnu",
        compilers: "x86_64",
        programs: &["catalogd", "operator-controller", "classic"],
    },
    Build {
        target: "aarch64-unknown-linux-gnu",
        compilers: "aarch64",
        programs: &["olm", "catalogd", "operator-controller", "classic"],
    },
    Build {
        target: "aarch64-apple-darwin",
        compilers: "aarch64",
        programs: &["olm"],
    },
    Build {
        target: "x86_64-apple-darwin",
        compilers: "x86_64",
        programs: &["olm"],
    },
];

/// The arguments of `dist build`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The repository's root.
    #[arg(long, default_value = ".")]
    pub root: PathBuf,
    /// The folder to build in; the programs are in `TARGET/release` in it.
    #[arg(long, default_value = "target/dist")]
    pub builds: PathBuf,
    /// Only for these targets; by default all with Linux.
    #[arg(long, value_delimiter = ',', default_values_t = linux())]
    pub targets: Vec<String>,
}

/// Builds the programs of the targets.
///
/// # Errors
/// When a target is not known, or Cargo fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    for target in &arguments.targets {
        let build = of(target)?;
        info!("building {} for {target}", build.programs.join(", "));
        programs(&arguments.root, &arguments.builds, target, build.programs, None)?;
    }
    Ok(())
}

/// The targets with Linux.
pub(super) fn linux() -> Vec<String> {
    let targets = BUILDS.map(|build| build.target).into_iter();
    targets
        .filter(|target| !macos::is_meant(target))
        .map(str::to_owned)
        .collect()
}

/// The programs that are built for a target.
pub(super) fn programs_for(target: &str) -> Result<&'static [&'static str]> {
    Ok(of(target)?.programs)
}

/// A tool of the compiler for a processor: with a prefix if it is not the one of this machine.
pub(super) fn tool_for(processor: &str, tool: &str) -> String {
    if processor == std::env::consts::ARCH {
        tool.to_owned()
    } else {
        format!("{processor}-linux-gnu-{tool}")
    }
}

fn of(target: &str) -> Result<Build> {
    let known = BUILDS.iter().find(|build| build.target == target).copied();
    known.with_context(|| {
        let known: Vec<&str> = BUILDS.iter().map(|build| build.target).collect();
        format!("nothing is built for {target}; known are {}", known.join(", "))
    })
}

/// Builds programs of the workspace in `root` for a target, with another folder of Cargo if one is given.
///
/// # Errors
/// When a folder is not there, or Cargo fails.
pub fn programs(
    root: &Path,
    builds: &Path,
    target: &str,
    programs: &[&str],
    cargo_home: Option<&Path>,
) -> Result<()> {
    std::fs::create_dir_all(builds).with_context(|| format!("cannot create {}", builds.display()))?;
    let home = match cargo_home {
        Some(home) => home.to_owned(),
        None => home()?,
    };
    let places = [
        (root.canonicalize()?, "/olm"),
        // It may be in the root. The last one that fits counts.
        (builds.canonicalize()?, "/target"),
        (home.clone(), "/cargo"),
        (home.canonicalize().unwrap_or_else(|_| home.clone()), "/cargo"),
        (sysroot(root)?, "/rust"),
    ];
    let build = of(target)?;
    let variable = |name: &str| format!("CARGO_TARGET_{}_{name}", target.to_uppercase().replace('-', "_"));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--release", "--locked", "--target", target])
        .arg("--target-dir")
        .arg(builds.canonicalize()?)
        .args(programs.iter().flat_map(|program| ["--package", program]))
        .current_dir(root)
        .env("CARGO_HOME", &home)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(target, &places)?)
        .env(format!("CFLAGS_{}", target.replace('-', "_")), c_flags(&places));
    if macos::is_meant(target) {
        command.envs(macos::Tools::find(&builds.canonicalize()?)?.variables(target));
    } else if build.compilers != std::env::consts::ARCH {
        command.env(variable("LINKER"), tool_for(build.compilers, "gcc"));
    }
    let status = command.status().context("cannot run cargo")?;
    ensure!(
        status.success(),
        "cargo cannot build {} for {target}",
        programs.join(", ")
    );
    Ok(())
}

/// The flags that make a program for Linux static, link one for macOS, and hide folders in it.
fn rust_flags(target: &str, places: &[(PathBuf, &str)]) -> Result<String> {
    let mut flags = if macos::is_meant(target) {
        macos::Tools::rust_flags()
    } else {
        vec!["-Ctarget-feature=+crt-static".to_owned()]
    };
    for (from, to) in places {
        let from = from.to_str().context("the path of a folder is not text")?;
        flags.push(format!("--remap-path-prefix={from}={to}"));
    }
    Ok(flags.join(SEPARATOR))
}

/// The same for what is written in C.
fn c_flags(places: &[(PathBuf, &str)]) -> OsString {
    let mut flags = OsString::new();
    for (from, to) in places {
        flags.push("-ffile-prefix-map=");
        flags.push(from);
        flags.push(format!("={to} "));
    }
    flags
}

/// The folder of Cargo.
pub(super) fn home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME").filter(|home| !home.is_empty()) {
        return std::path::absolute(home).context("a path");
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

/// The folder of Rust.
fn sysroot(root: &Path) -> Result<PathBuf> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--print", "sysroot"])
        .current_dir(root)
        .output()
        .context("cannot run rustc")?;
    ensure!(output.status.success(), "rustc does not say where it is");
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}
