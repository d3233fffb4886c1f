//! `olm-test dist reproducible`: each program is built twice, in folders of different length and with another folder of
//! Cargo, and compared.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use sha2::{Digest as _, Sha256};
use tracing::info;

use super::{build, host, images};

/// The folders of the builds.
const FOLDERS: [&str; 2] = ["a", "another/folder/with/a/longer/name"];

/// The arguments of `dist reproducible`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The repository's root.
    #[arg(long, default_value = ".")]
    pub root: PathBuf,
    /// An empty or missing folder to build in. It takes some gigabytes.
    #[arg(long, default_value = "target/reproducible")]
    pub scratch: PathBuf,
    /// The target to build for.
    #[arg(long, default_value_t = host())]
    pub target: String,
    /// Only these programs.
    #[arg(long, value_delimiter = ',')]
    pub programs: Vec<String>,
}

/// Builds and compares.
///
/// # Errors
/// When a build fails, or two builds of a program differ.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments {
        root,
        scratch,
        target,
        programs,
    } = arguments;
    let mut names: Vec<&str> = programs.iter().map(String::as_str).collect();
    if names.is_empty() {
        names.extend(build::programs_for(target)?);
    }
    let mut sums: Vec<Vec<String>> = Vec::new();
    for folder in FOLDERS {
        let folder = scratch.join(folder);
        ensure!(!folder.exists(), "{} exists already; remove it", folder.display());
        copy(root, &folder.join("source"))?;
        let home = cargo_home(&folder)?;
        let builds = folder.join("target");
        build::programs(&folder.join("source"), &builds, target, &names, Some(&home))?;
        let of = |name: &&str| -> Result<String> {
            let program = builds.join(target).join("release").join(name);
            Ok(hex::encode(Sha256::digest(images::stripped(&program)?)))
        };
        sums.push(names.iter().map(of).collect::<Result<_>>()?);
        // Room for the next one.
        std::fs::remove_dir_all(&folder)?;
    }
    let mut differ = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let found: Vec<&String> = sums.iter().filter_map(|sums| sums.get(index)).collect();
        if found.windows(2).all(|pair| pair[0] == pair[1]) {
            info!("{name} for {target}: sha256 {} from both builds", found[0]);
        } else {
            differ.push(format!("{name}: {found:?}"));
        }
    }
    if !differ.is_empty() {
        bail!("two builds for {target} differ: {}", differ.join("; "));
    }
    Ok(())
}

/// Copies the files that git knows, with the changes that are not committed.
fn copy(root: &Path, to: &Path) -> Result<()> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot run git")?;
    ensure!(output.status.success(), "{} is no git repository", root.display());
    for name in String::from_utf8(output.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), to.join(name));
        // Removed, but the removal is not committed.
        if !from.is_file() {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}

/// A folder of Cargo with the packages and settings of the usual one.
fn cargo_home(folder: &Path) -> Result<PathBuf> {
    let home = folder.join("cargo");
    std::fs::create_dir_all(&home)?;
    for name in ["registry", "config.toml"] {
        let usual = build::home()?.join(name);
        if usual.exists() {
            std::os::unix::fs::symlink(usual, home.join(name))?;
        }
    }
    home.canonicalize().context("the folder is there")
}
