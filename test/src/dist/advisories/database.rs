//! The table, from a clone of the advisory database.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::Advisory;

/// The TOML at the beginning of an advisory.
#[derive(Deserialize)]
struct Facts {
    advisory: About,
    #[serde(default)]
    versions: Versions,
}

#[derive(Deserialize)]
struct About {
    id: String,
    package: String,
    /// The day on which it turned out to be wrong.
    withdrawn: Option<String>,
    /// The class of an advisory that is about no vulnerability, such as `unmaintained`.
    informational: Option<String>,
}

#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

/// The text of the table: all advisories about packages that are not withdrawn, sorted by package.
pub(super) fn table(database: &Path) -> Result<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(database)
        .args(["log", "-1", "--format=%cs %H"])
        .output()
        .context("cannot run git")?;
    let head = String::from_utf8(output.stdout)?;
    let (date, commit) = head
        .trim()
        .split_once(' ')
        .with_context(|| format!("{} is no git repository with a commit", database.display()))?;
    let mut advisories = Vec::new();
    for file in files(&database.join("crates"))? {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        advisories.extend(parse(&text).with_context(|| format!("cannot read {}", file.display()))?);
    }
    ensure!(
        !advisories.is_empty(),
        "{} holds no advisories",
        database.display()
    );
    advisories.sort();
    let mut text = format!(
        "# Facts of the RustSec advisory database (https://rustsec.org). `olm-test advisories --database DIR` writes this\n\
         # file. Versions are affected that are neither patched nor unaffected.\n\
         date = \"{date}\"\ncommit = \"{commit}\"\nadvisories = [\n"
    );
    for one in &advisories {
        text.push_str(&line(one)?);
    }
    text.push_str("]\n");
    Ok(text)
}

/// The files of the advisories: two levels below the folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut found = Vec::new();
    for package in entries(folder)? {
        found.extend(entries(&package)?);
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    Ok(found)
}

/// The facts of an advisory; `None` if it is withdrawn, or only says that a package is unmaintained.
fn parse(text: &str) -> Result<Option<Advisory>> {
    let facts = text
        .trim_start()
        .strip_prefix("```toml")
        .and_then(|rest| rest.split_once("\n```"))
        .context("it does not begin with a block of TOML")?
        .0;
    let Facts { advisory, versions } = toml::from_str(facts)?;
    let is_unsafe = advisory.informational.is_none_or(|class| class == "unsound");
    Ok((advisory.withdrawn.is_none() && is_unsafe).then_some(Advisory {
        package: advisory.package,
        id: advisory.id,
        patched: versions.patched,
        unaffected: versions.unaffected,
    }))
}

/// A row of the table. Texts and lists of texts are written alike in JSON and TOML.
fn line(advisory: &Advisory) -> Result<String> {
    let Advisory {
        package,
        id,
        patched,
        unaffected,
    } = advisory;
    let mut fields = vec![
        ("crate", serde_json::to_string(package)?),
        ("id", serde_json::to_string(id)?),
    ];
    for (name, list) in [("patched", patched), ("unaffected", unaffected)] {
        if !list.is_empty() {
            fields.push((name, serde_json::to_string(list)?));
        }
    }
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    Ok(format!("  {{ {} }},\n", fields.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    const ADVISORY: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2000-0001\"\npackage = \"a\"\ndate = \"2000-01-01\"\n\
                            [versions]\npatched = [\">= 1.5.1\"]\n```\n\n# Title\n\nText.\n";

    #[test]
    fn an_advisory_becomes_a_row_that_can_be_read_again() {
        let advisory = parse(ADVISORY).unwrap().unwrap();
        let row = line(&advisory).unwrap();
        assert_eq!(
            row,
            "  { crate = \"a\", id = \"RUSTSEC-2000-0001\", patched = [\">= 1.5.1\"] },\n"
        );
        let table = Table::parse(&format!(
            "date = \"2000-01-01\"\ncommit = \"c\"\nadvisories = [\n{row}]\n"
        ));
        assert_eq!(table.unwrap().advisories, [advisory]);
    }

    #[test]
    fn an_advisory_about_no_vulnerability_is_no_row_and_a_text_without_facts_an_error() {
        let with = |line: &str| parse(&ADVISORY.replace("date =", &format!("{line}\ndate ="))).unwrap();
        assert_eq!(with("withdrawn = \"2000-01-02\""), None);
        assert_eq!(with("informational = \"unmaintained\""), None);
        assert!(with("informational = \"unsound\"").is_some());
        assert!(parse("# Title\n").is_err());
    }
}
