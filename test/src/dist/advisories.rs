//! `olm-test advisories`: what is publicly known to be wrong with the packages in `Cargo.lock`, without the network.
//!
//! `test/advisories.toml` holds the facts of the RustSec advisory database that decide whether a version is affected.

mod database;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use jiff::civil::Date;
use semver::{Version, VersionReq};
use serde::Deserialize;
use tracing::{info, warn};

/// The table in the repository.
pub const TABLE: &str = "test/advisories.toml";
/// The age from which a table is old, in days.
const OLD: i32 = 180;

/// The arguments of `olm-test advisories`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The repository's root.
    #[arg(long, default_value = ".")]
    pub root: PathBuf,
    /// A clone of <https://github.com/rustsec/advisory-db>, from which the table is written anew first.
    #[arg(long)]
    pub database: Option<PathBuf>,
}

/// The facts, and how old they are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The day of the commit of the database.
    date: Date,
    /// The commit of the database.
    commit: String,
    advisories: Vec<Advisory>,
}

/// The affected versions of a package by an advisory: those that are neither patched nor unaffected.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(deny_unknown_fields)]
struct Advisory {
    #[serde(rename = "crate")]
    package: String,
    id: String,
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

/// A package in `Cargo.lock` that an advisory is about.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the advisory, such as `RUSTSEC-2021-0072`.
    pub id: String,
    /// The package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// The requirements that patched versions fulfil.
    pub patched: Vec<String>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}, ", self.package, self.version, self.id)?;
        match &self.patched[..] {
            [] => f.write_str("no version is patched"),
            patched => write!(f, "patched in {}", patched.join(" or ")),
        }
    }
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// None for our own.
    source: Option<String>,
}

impl Table {
    /// The table in a text.
    ///
    /// # Errors
    /// When it is none, or has an unknown field.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("cannot read the table of advisories")
    }

    /// The table of a repository.
    ///
    /// # Errors
    /// When it is missing or is none.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join(TABLE);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text)
    }

    /// The advisories about the packages of others in the text of a `Cargo.lock`, except those that `deny.toml`
    /// ignores, sorted by package.
    ///
    /// A version before a release (`1.0.0-rc.1`) counts as affected unless a requirement names such a version.
    ///
    /// # Errors
    /// When a text cannot be parsed.
    pub fn findings(&self, lock: &str, deny: &str) -> Result<Vec<Finding>> {
        let lock: Lock = toml::from_str(lock).context("cannot read Cargo.lock")?;
        let ignored = ignored(deny)?;
        let mut found = Vec::new();
        for package in lock.package.iter().filter(|package| package.source.is_some()) {
            let version = Version::parse(&package.version)
                .with_context(|| format!("Cargo.lock: version {} of {}", package.version, package.name))?;
            let about = self.advisories.iter().filter(|one| one.package == package.name);
            for advisory in about.filter(|one| !ignored.contains(&one.id)) {
                if advisory.is_about(&version)? {
                    found.push(Finding {
                        id: advisory.id.clone(),
                        package: package.name.clone(),
                        version: package.version.clone(),
                        patched: advisory.patched.clone(),
                    });
                }
            }
        }
        Ok(found)
    }

    /// The warning about an old table.
    ///
    /// # Errors
    /// When the days cannot be counted.
    pub fn warning(&self, today: Date) -> Result<Option<String>> {
        let days = self.date.until(today)?.get_days();
        Ok((days > OLD).then(|| {
            format!(
                "{TABLE} is {days} days old: run `olm-test advisories --database DIR` with a new clone of the database"
            )
        }))
    }
}

impl Advisory {
    #[expect(
        clippy::disallowed_methods,
        reason = "the requirements are those of Cargo, not of OLM"
    )]
    fn is_about(&self, version: &Version) -> Result<bool> {
        for requirement in self.patched.iter().chain(&self.unaffected) {
            let parsed = VersionReq::parse(requirement)
                .with_context(|| format!("{}: cannot parse {requirement:?}", self.id))?;
            if parsed.matches(version) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The advisories that `deny.toml` ignores.
fn ignored(deny: &str) -> Result<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Deny {
        #[serde(default)]
        advisories: Advisories,
    }
    #[derive(Default, Deserialize)]
    struct Advisories {
        #[serde(default)]
        ignore: Vec<Ignored>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ignored {
        Id(String),
        WithReason { id: String },
    }
    let deny: Deny = toml::from_str(deny).context("cannot read deny.toml")?;
    let ids = deny.advisories.ignore.into_iter().map(|one| match one {
        Ignored::Id(id) | Ignored::WithReason { id } => id,
    });
    Ok(ids.collect())
}

/// Writes the table anew where a database is given, and compares `Cargo.lock` with it.
///
/// # Errors
/// When a file cannot be read or written, or an advisory is about a package.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = &arguments.root;
    if let Some(database) = &arguments.database {
        let text = database::table(database)?;
        std::fs::write(root.join(TABLE), text).with_context(|| format!("cannot write {TABLE}"))?;
    }
    let table = Table::read(root)?;
    if let Some(warning) = table.warning(jiff::Zoned::now().date())? {
        warn!("{warning}");
    }
    let read =
        |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
    let found = table.findings(&read("Cargo.lock")?, &read("deny.toml")?)?;
    if !found.is_empty() {
        let lines: String = found.iter().map(|finding| format!("\n  {finding}")).collect();
        bail!("advisories are about packages in Cargo.lock; run `cargo update` for them:{lines}");
    }
    info!(
        "none of the {} advisories of {} (commit {}) is about a package in Cargo.lock",
        table.advisories.len(),
        table.date,
        table.commit
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str =
        "[bans]\n[advisories]\nignore = ['RUSTSEC-2000-0009', { id = 'RUSTSEC-2000-0008', reason = 'x' }]\n";

    fn table() -> Table {
        Table::parse(
            "date = '2026-01-01'\ncommit = 'c'\nadvisories = [\n\
             { crate = 'a', id = 'RUSTSEC-2000-0001', patched = ['>= 1.5.1, < 1.6.0', '>= 1.6.3'], unaffected = ['< 1.0.0'] },\n\
             { crate = 'b', id = 'RUSTSEC-2000-0002' },\n\
             { crate = 'b', id = 'RUSTSEC-2000-0008' },\n\
             { crate = 'b', id = 'RUSTSEC-2000-0009' },\n]\n",
        )
        .unwrap()
    }

    fn lock(name: &str, version: &str) -> String {
        format!(
            "[[package]]\nname = '{name}'\nversion = '{version}'\nsource = 'registry+https://registry.example'\n"
        )
    }

    #[test]
    fn a_version_is_affected_that_is_neither_patched_nor_unaffected() {
        for (version, is_affected) in [
            ("0.9.9", false),
            ("1.0.0", true),
            ("1.5.0", true),
            ("1.5.1", false),
            ("1.6.0", true),
            ("1.6.3", false),
            ("2.0.0", false),
            ("2.0.0-rc.1", true),
        ] {
            let found = table().findings(&lock("a", version), DENY).unwrap();
            assert_eq!(!found.is_empty(), is_affected, "{version}: {found:?}");
        }
        assert!(table().findings(&lock("c", "1.0.0"), DENY).unwrap().is_empty());
    }

    #[test]
    fn a_finding_says_what_to_do_and_ignored_ones_are_left_out() {
        let said = |name| -> Vec<String> {
            let found = table().findings(&lock(name, "1.0.0"), DENY).unwrap();
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            said("a"),
            ["a 1.0.0: RUSTSEC-2000-0001, patched in >= 1.5.1, < 1.6.0 or >= 1.6.3"]
        );
        assert_eq!(said("b"), ["b 1.0.0: RUSTSEC-2000-0002, no version is patched"]);
    }

    #[test]
    fn our_own_packages_have_no_advisories() {
        let own = "[[package]]\nname = 'b'\nversion = '1.0.0'\n";
        assert!(table().findings(own, DENY).unwrap().is_empty());
    }

    #[test]
    fn only_an_old_table_warns() {
        let warning = |text: &str| table().warning(text.parse().unwrap()).unwrap();
        assert_eq!(warning("2026-06-30"), None);
        let said = warning("2026-07-01").unwrap();
        assert!(said.contains("is 181 days old"), "{said}");
    }

    #[test]
    fn what_cannot_be_understood_is_an_error() {
        assert!(Table::parse("date = '2026-01-01'\ncommit = ''\nadvisories = []\nmore = 1\n").is_err());
        let table = Table::parse(
            "date = '2026-01-01'\ncommit = ''\nadvisories = [{ crate = 'a', id = 'x', patched = ['newer'] }]\n",
        );
        let error = table.unwrap().findings(&lock("a", "1.0.0"), DENY).unwrap_err();
        assert_eq!(error.to_string(), "x: cannot parse \"newer\"");
    }
}
