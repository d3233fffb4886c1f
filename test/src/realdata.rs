//! Real catalogs, bundles and templates, run through the same public functions that the product calls.
//!
//! The data is not part of this project. Its folder contains `bundles/PACKAGE/VERSION`, `fbc/CATALOG`, `templates/` and
//! `operatorhub.json`. A case passes if the product accepts it or refuses it for a valid reason, and the reasons are
//! counted. [`cluster`] and [`operators`] also install real bundles, and [`migrations`] moves them.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub mod bundles;
pub mod catalogs;
pub mod changes;
pub mod cluster;
pub mod definitions;
pub mod migrations;
pub mod mirrors;
pub mod operatorhub;
pub mod operators;
pub mod plans;
pub mod rights;
pub mod templates;

/// A case and its result: the name of a counted outcome (`rendered`, `webhooks`), or the fault.
pub type Case = (String, Result<String, String>);

/// The cases of one kind of data.
#[derive(Debug, Default)]
pub struct Kind {
    /// The name of the kind.
    pub name: &'static str,
    /// The cases.
    pub cases: Vec<Case>,
    /// The findings in passing data, counted by name.
    pub findings: BTreeMap<String, usize>,
}

impl Kind {
    /// The numbers of passed and failed cases.
    pub fn tally(&self) -> (usize, usize) {
        let passed = self.cases.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        (passed, self.cases.len() - passed)
    }

    /// The number of cases for each outcome.
    pub fn outcomes(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for outcome in self.cases.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()) {
            *counts.entry(outcome.as_str()).or_default() += 1;
        }
        counts
    }
}

/// Runs all cases in `dir` and reports to `out`. Returns whether there were cases and all passed.
///
/// # Errors
/// When the report cannot be written.
pub fn run(dir: &Path, out: &mut impl Write) -> std::io::Result<bool> {
    let kinds = [
        Kind {
            name: "bundles",
            cases: bundles::run(dir),
            ..Kind::default()
        },
        Kind {
            name: "plans",
            cases: plans::run(dir),
            ..Kind::default()
        },
        Kind {
            name: "changes",
            cases: changes::run(dir),
            ..Kind::default()
        },
        definitions::run(dir),
        catalogs::run(dir),
        operatorhub::run(dir),
        templates::run(dir),
    ];
    for kind in &kinds {
        for (case, outcome) in &kind.cases {
            if let Err(why) = outcome {
                writeln!(out, "{case}: {}", why.chars().take(2000).collect::<String>())?;
            }
        }
    }
    let (mut all_passed, mut all_failed) = (0, 0);
    for kind in &kinds {
        let (passed, failed) = kind.tally();
        if kind.cases.is_empty() {
            writeln!(out, "{}: no such data here", kind.name)?;
            continue;
        }
        writeln!(out, "{}: {passed} passed, {failed} failed", kind.name)?;
        for (outcome, count) in kind.outcomes() {
            writeln!(out, "  {count:5}  {outcome}")?;
        }
        for (finding, count) in &kind.findings {
            writeln!(out, "  {count:5}  finding {finding}")?;
        }
        all_passed += passed;
        all_failed += failed;
    }
    writeln!(out, "{all_passed} passed, {all_failed} failed")?;
    Ok(all_passed > 0 && all_failed == 0)
}

/// Runs `work`; that it panics is an error like any other.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("panicked".to_owned()))
}

/// The files below `root` with their paths relative to it, walked directory by directory in the order of names.
fn walk(root: &Path) -> std::io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let mut entries = std::fs::read_dir(&path)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<std::io::Result<Vec<PathBuf>>>()?;
            entries.sort_by(|left, right| right.file_name().cmp(&left.file_name()));
            open.append(&mut entries);
        } else if let Ok(relative) = path.strip_prefix(root) {
            files.push(relative.to_string_lossy().into_owned());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_counts_what_passed_and_why() {
        let kind = Kind {
            cases: vec![
                ("a".to_owned(), Ok("rendered".to_owned())),
                ("b".to_owned(), Err("panicked".to_owned())),
                ("c".to_owned(), Ok("webhooks".to_owned())),
                ("d".to_owned(), Ok("rendered".to_owned())),
            ],
            ..Kind::default()
        };
        assert_eq!(kind.tally(), (3, 1));
        assert_eq!(
            kind.outcomes(),
            BTreeMap::from([("rendered", 2), ("webhooks", 1)])
        );
    }

    #[test]
    fn a_folder_without_data_does_not_pass() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        assert!(!run(folder.path(), &mut out).unwrap());
        assert!(String::from_utf8(out).unwrap().ends_with("0 passed, 0 failed\n"));
    }

    #[test]
    fn files_are_walked_directory_by_directory() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b.yaml", "a/2.yaml", "a-b.yaml", "a/1/x.yaml"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let expected = ["a/1/x.yaml", "a/2.yaml", "a-b.yaml", "b.yaml"];
        assert_eq!(walk(folder.path()).unwrap(), expected);
    }
}
