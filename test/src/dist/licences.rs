//! The third-party parts of the programs, and their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use self::expression::is_allowed;
use super::packages::{self, Graph, Id, PROGRAMS, Package};
use super::{build, host, images};

mod expression;

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
The certificate authorities of Mozilla are in the images, under CDLA-Permissive-2.0 (see webpki-root-certs).
";

#[derive(Debug, Deserialize)]
struct Deny {
    licenses: Licences,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
}

/// The packages that the programs for these targets contain, the licences that they name, and the texts of these.
///
/// # Errors
/// When a target is not known, Cargo fails, or a package has no licence that `deny.toml` allows.
pub fn text(root: &Path, targets: &[String]) -> Result<String> {
    let packages = packages(root, targets)?;
    let deny: Deny = toml::from_str(&std::fs::read_to_string(root.join("deny.toml"))?)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in &packages {
        let title = format!("{} {}", package.name, package.version);
        let folder = package.manifest_path.parent().context("a package has a folder")?;
        let licence = licence(package).with_context(|| format!("{title} names no licence"))?;
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

/// The licence of a package as an expression of SPDX. A package that has only its text is known by the first line.
pub(super) fn licence(package: &Package) -> Option<String> {
    if let Some(expression) = &package.license {
        let older: Vec<&str> = expression.split('/').map(str::trim).collect();
        return Some(older.join(" OR "));
    }
    let file = package
        .manifest_path
        .parent()?
        .join(package.license_file.as_ref()?);
    let text = std::fs::read_to_string(file).ok()?;
    (text.lines().next()?.trim() == "MIT License").then(|| "MIT".to_owned())
}

/// The packages of others that the programs of a release for these targets contain, sorted by name and version.
fn packages(root: &Path, targets: &[String]) -> Result<Vec<Package>> {
    let mut linked: BTreeSet<Id> = BTreeSet::new();
    for target in targets {
        let programs = build::programs_for(target)?;
        linked.extend(Graph::of(root, target, programs)?.packages().cloned());
    }
    // Images that nothing is built for hold the programs of this machine.
    let host = host();
    if !targets.contains(&host) {
        linked.extend(Graph::of(root, &host, &PROGRAMS)?.packages().cloned());
    }
    let found = packages::all(root)?.into_iter();
    Ok(found
        .filter(|(id, one)| {
            one.source.is_some() && (linked.contains(id) || id.0 == images::authorities::PACKAGE)
        })
        .map(|(_, one)| one)
        .collect())
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
