//! The packages of Cargo that programs contain, and which of them needs which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The programs of a release.
pub(super) const PROGRAMS: [&str; 4] = ["olm", "catalogd", "operator-controller", "classic"];

/// Name and version. There is one registry, so they are unique.
pub(super) type Id = (String, String);

/// Fields of the manifest of a package.
#[derive(Debug, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    /// The path below the folder of the package, if no expression is given.
    pub(super) license_file: Option<PathBuf>,
    pub(super) repository: Option<String>,
    /// None for our own.
    pub(super) source: Option<String>,
    pub(super) manifest_path: PathBuf,
}

/// The manifests of all packages that `Cargo.lock` names, those for tests and other systems included.
pub(super) fn all(root: &Path) -> Result<BTreeMap<Id, Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let metadata: Metadata = serde_json::from_str(&cargo(root, &["metadata", "--format-version=1"])?)?;
    let packages = metadata.packages.into_iter();
    Ok(packages
        .map(|one| ((one.name.clone(), one.version.clone()), one))
        .collect())
}

/// The SHA-256 of the archives of the packages of others, from `Cargo.lock`.
pub(super) fn checksums(root: &Path) -> Result<BTreeMap<Id, String>> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let lock: Lock = toml::from_str(&std::fs::read_to_string(root.join("Cargo.lock"))?)?;
    let packages = lock.package.into_iter();
    Ok(packages
        .filter_map(|one| Some(((one.name, one.version), one.checksum?)))
        .collect())
}

/// The packages that are linked into programs of one build, each with those that it needs.
#[derive(Debug)]
pub(super) struct Graph(BTreeMap<Id, BTreeSet<Id>>);

impl Graph {
    /// The graph of programs that are built together for a target: that decides about the features of packages.
    pub(super) fn of(root: &Path, target: &str, programs: &[&str]) -> Result<Self> {
        // Dependencies that only build or test are not in the program.
        let mut arguments = vec![
            "tree",
            "--edges=normal,no-proc-macro",
            "--prefix=depth",
            "--format={p}",
            "--target",
            target,
        ];
        arguments.extend(programs.iter().flat_map(|program| ["--package", program]));
        Self::parse(&cargo(root, &arguments)?)
    }

    /// Parses lines of the form `2name v1.2.3 (*)`. The number is the depth; what a package needs follows it the first
    /// time.
    fn parse(tree: &str) -> Result<Self> {
        let mut graph: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
        let mut path: Vec<Id> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let wrong = || format!("cannot read {line:?} of cargo tree");
            let begin = line.find(|c: char| !c.is_ascii_digit()).with_context(wrong)?;
            let (depth, rest) = line.split_at(begin);
            let depth: usize = depth.parse().with_context(wrong)?;
            let mut words = rest.split(' ');
            let name = words.next().with_context(wrong)?;
            let version = words.next().and_then(|version| version.strip_prefix('v'));
            let id = (name.to_owned(), version.with_context(wrong)?.to_owned());
            path.truncate(depth);
            if let Some(parent) = path.last() {
                graph.entry(parent.clone()).or_default().insert(id.clone());
            }
            graph.entry(id.clone()).or_default();
            path.push(id);
        }
        Ok(Self(graph))
    }

    /// All packages.
    pub(super) fn packages(&self) -> impl Iterator<Item = &Id> {
        self.0.keys()
    }

    /// The packages of one program, itself included, each with those that it needs.
    pub(super) fn part(&self, program: &str) -> Result<BTreeMap<&Id, &BTreeSet<Id>>> {
        let root = self.0.keys().find(|(name, _)| name == program);
        let mut waiting = vec![root.with_context(|| format!("{program} is not built"))?];
        let mut found = BTreeMap::new();
        while let Some(id) = waiting.pop() {
            let needed = self.0.get(id).context("every package has an entry")?;
            if found.insert(id, needed).is_none() {
                waiting.extend(needed);
            }
        }
        Ok(found)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0a v0.1.0 (/src/a)\n1b v1.0.0\n2c v2.0.0\n1d v1.0.0\n\n0e v0.1.0 (/src/e)\n1b v1.0.0 (*)\n1f v3.0.0-rc.1\n";

    #[test]
    fn a_program_has_what_it_needs_even_where_the_tree_is_printed_once() {
        let graph = Graph::parse(TREE).unwrap();
        let names = |program: &str| -> String {
            let part = graph.part(program).unwrap();
            part.keys().map(|(name, _)| name.as_str()).collect()
        };
        assert_eq!(names("a"), "abcd");
        assert_eq!(names("e"), "bcef");
        assert!(graph.part("g").is_err());
        assert_eq!(graph.packages().count(), 6);
        let needed = graph.part("e").unwrap();
        let b = ("b".to_owned(), "1.0.0".to_owned());
        assert_eq!(needed[&b].len(), 1);
    }

    #[test]
    fn a_line_of_another_form_is_an_error() {
        for line in ["a v1.0.0", "0a", "0a 1.0.0", "7"] {
            assert!(Graph::parse(line).is_err(), "{line}");
        }
    }
}
