//! The third-party parts of the programs, and their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use self::expression::is_allowed;
use super::SYSTEMS;

mod expression;

/// The programs whose dependencies are listed.
const PROGRAMS: [&str; 4] = ["olm", "catalogd", "operator-controller", "classic"];
/// The prefixes of names of files with licences, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];
/// The largest file that is taken for a licence, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The parts of static programs that are not packages of Cargo.
const BESIDES: &str = "\
The Rust standard library (https://www.rust-lang.org) is in all programs, under MIT or Apache-2.0.
musl (https://musl.libc.org) is in programs for Linux on amd64 that are not in an image, under MIT.
The GNU C Library (https://www.gnu.org/software/libc) is in programs for Linux on arm64, and in the images, under
LGPL-2.1-or-later. To link a program with another version of it, build the program from the sources of this release.
";

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// The path below the folder of the package, if no expression is given.
    license_file: Option<PathBuf>,
    repository: Option<String>,
    /// None for our own.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Deny {
    licenses: Licences,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
}

/// The packages that the programs contain, the licences that they name, and the texts of these.
///
/// # Errors
/// When Cargo fails, or a package has no licence that `deny.toml` allows.
pub fn text(root: &Path) -> Result<String> {
    let packages = packages(root)?;
    let deny: Deny = toml::from_str(&std::fs::read_to_string(root.join("deny.toml"))?)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in &packages {
        let title = format!("{} {}", package.name, package.version);
        let folder = package.manifest_path.parent().context("a package has a folder")?;
        let licence = match &package.license {
            Some(expression) => expression.clone(),
            None => titled(folder, package).with_context(|| format!("{title} names no licence"))?,
        };
        ensure!(
            is_allowed(&licence, &deny.licenses.allow)?,
            "{title} is under {licence}, which deny.toml does not allow"
        );
        let place = package.repository.as_deref().unwrap_or("https://crates.io");
        writeln!(list, "{title}  {licence}  {place}")?;
        for text in files(folder)? {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    let mut out = format!(
        "The programs of this release contain {} packages of others besides the code of OLM itself.\n\n{BESIDES}\n{list}",
        packages.len()
    );
    for (text, owners) in texts {
        let line = "-".repeat(80);
        write!(
            out,
            "\n{line}\n{}\n{line}\n\n{}\n",
            owners.join(", "),
            text.trim()
        )?;
    }
    Ok(out)
}

/// The licence of a package that has only its text, by the first line.
fn titled(folder: &Path, package: &Package) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(package.license_file.as_ref()?)).ok()?;
    (text.lines().next()?.trim() == "MIT License").then(|| "MIT".to_owned())
}

/// The packages of others that the programs contain on the systems of a release, sorted by name and version.
fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = cargo(root, &["metadata", "--format-version=1"])?;
    let metadata: Metadata = serde_json::from_str(&metadata)?;
    // Dependencies that only build or test are not in the program.
    let mut arguments = vec![
        "tree",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ];
    // The images hold programs of this machine.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    for target in SYSTEMS.iter().map(|system| system.target).chain([host.as_str()]) {
        arguments.extend(["--target", target]);
    }
    arguments.extend(PROGRAMS.iter().flat_map(|program| ["--package", program]));
    let tree = cargo(root, &arguments)?;
    // `name v1.2.3`, followed by more for a path dependency.
    let linked: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let mut found: Vec<Package> = metadata
        .packages
        .into_iter()
        .filter(|one| one.source.is_some() && linked.contains(&(one.name.as_str(), one.version.as_str())))
        .collect();
    found.sort_by(|left, right| (&left.name, &left.version).cmp(&(&right.name, &right.version)));
    Ok(found)
}

/// The output of Cargo.
fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .arg("--locked")
        .current_dir(root)
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "cargo {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The texts of licences in a package, and in the folders of its bundled code.
fn files(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let entries = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut paths = entries(folder)?;
    for inner in paths.clone().into_iter().filter(|path| path.is_dir()) {
        paths.extend(entries(&inner)?);
    }
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        let is_licence = NAMES.iter().any(|begin| name.starts_with(begin));
        // Sources about licences are none.
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if is_licence && !is_source && path.is_file() && path.metadata()?.len() <= MAX_BYTES {
            found.insert(String::from_utf8_lossy(&std::fs::read(&path)?).into_owned());
        }
    }
    Ok(found)
}
