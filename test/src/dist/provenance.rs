//! The provenance of a release: a statement of in-toto with the predicate of SLSA 1.0. It says from which commit which
//! files were made, and by whom.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::build::{macos, tool_for};
use super::{sum, toolchain};

/// The type of the predicate.
const PREDICATE: &str = "https://slsa.dev/provenance/v1";

/// The file that says how the files of a release were built. Signing reads it: the sources may have changed since.
pub(super) const RECORD: &str = "build.json";

/// How the files of a release were built: all that decides what is in them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Record {
    /// The commit of the sources.
    pub(super) commit: String,
    /// Whether files differed from the commit.
    pub(super) uncommitted_changes: bool,
    /// The SHA-256 of `Cargo.lock`.
    pub(super) cargo_lock: String,
    /// The names and versions of the tools.
    pub(super) tools: BTreeMap<String, String>,
    /// What was chosen for this build.
    pub(super) parameters: Parameters,
}

/// What somebody sets who builds the same release again.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Parameters {
    /// The targets of the programs, by their names in Rust.
    pub(super) targets: Vec<String>,
    /// The URL of the files, for krew.
    pub(super) url: String,
    /// The time of the files in seconds since 1970, if one was set.
    pub(super) source_date_epoch: Option<i64>,
}

impl Record {
    /// The record of a build from `root`.
    pub(super) fn of(root: &Path, kubectl: &Path, parameters: Parameters) -> Result<Self> {
        let (commit, uncommitted_changes) = commit(root)?;
        let mut tools = BTreeMap::from([("rust".to_owned(), toolchain(root)?)]);
        let mut commands: Vec<(String, PathBuf, &[&str])> = vec![
            ("cc".to_owned(), "cc".into(), &["-dumpfullversion"]),
            ("libc".to_owned(), "getconf".into(), &["GNU_LIBC_VERSION"]),
            ("binutils".to_owned(), "strip".into(), &["--version"]),
            ("kubectl".to_owned(), kubectl.to_owned(), &["version", "--client"]),
        ];
        let (macos, linux): (Vec<&String>, Vec<&String>) = parameters
            .targets
            .iter()
            .partition(|target| macos::is_meant(target));
        if let Some(zig) = macos::zig().filter(|_| !macos.is_empty()) {
            commands.push(("zig".to_owned(), zig, &["version"]));
        }
        // Programs for another processor are linked and stripped by tools of their own.
        let processors = linux.into_iter().filter_map(|target| target.split('-').next());
        for processor in processors.filter(|processor| *processor != std::env::consts::ARCH) {
            for (tool, arguments) in [("gcc", &["-dumpfullversion"]), ("strip", &["--version"])] {
                let tool = tool_for(processor, tool);
                commands.push((tool.clone(), tool.into(), arguments));
            }
        }
        for (name, program, arguments) in commands {
            let output = Command::new(program).args(arguments).output();
            let printed = output.ok().filter(|output| output.status.success());
            let printed = printed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            // The version is the last word of the first line.
            let version =
                printed.and_then(|text| text.lines().next()?.split(' ').next_back().map(str::to_owned));
            tools.extend(version.map(|version| (name, version)));
        }
        Ok(Self {
            commit,
            uncommitted_changes,
            cargo_lock: sum(&root.join("Cargo.lock"))?,
            tools,
            parameters,
        })
    }

    /// The record of the release in a folder.
    pub(super) fn read(out: &Path) -> Result<Self> {
        let path = out.join(RECORD);
        let text = std::fs::read(&path)
            .with_context(|| format!("cannot read {}; run `make dist`", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no record of a build", path.display()))
    }
}

/// The builder and the repository.
#[derive(Debug, Clone)]
pub(super) struct Builder<'a> {
    /// The URI of who built, whom the key of the signature belongs to.
    pub(super) id: &'a str,
    /// The URI of the kind of build.
    pub(super) build: &'a str,
    /// The URL of the repository, if it is known.
    pub(super) repository: Option<&'a str>,
}

/// The statement about files by their SHA-256.
///
/// # Errors
/// When the time of the record is out of range.
pub(super) fn statement(
    subjects: &BTreeMap<String, String>,
    record: &Record,
    builder: &Builder<'_>,
) -> Result<Value> {
    let subjects: Vec<Value> = subjects
        .iter()
        .map(|(name, sum)| json!({ "name": name, "digest": { "sha256": sum } }))
        .collect();
    let mut commit = json!({ "name": "source", "digest": { "gitCommit": record.commit } });
    if let Some(repository) = builder.repository {
        commit["uri"] = json!(format!("git+{repository}@{}", record.commit));
    }
    let mut dependencies = vec![
        commit,
        json!({ "name": "Cargo.lock", "digest": { "sha256": record.cargo_lock } }),
    ];
    dependencies.extend(
        record
            .tools
            .iter()
            .map(|(name, version)| json!({ "name": name, "uri": format!("pkg:generic/{name}@{}", version) })),
    );
    let mut metadata = json!({});
    if let Some(seconds) = record.parameters.source_date_epoch {
        metadata["finishedOn"] = json!(Timestamp::from_second(seconds)?.to_string());
    }
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": builder.build,
                "externalParameters": {
                    "command": "make dist",
                    "version": env!("CARGO_PKG_VERSION"),
                    "source": { "repository": builder.repository, "commit": record.commit },
                    "DIST_TARGETS": record.parameters.targets,
                    "URL": record.parameters.url,
                    "SOURCE_DATE_EPOCH": record.parameters.source_date_epoch,
                },
                "internalParameters": { "uncommittedChanges": record.uncommitted_changes },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": { "id": builder.id, "version": { "olm-test": env!("CARGO_PKG_VERSION") } },
                "metadata": metadata,
            },
        },
    }))
}

/// The commit of a repository, and whether files differ from it.
fn commit(root: &Path) -> Result<(String, bool)> {
    let git = |arguments: &[&str]| -> Result<String> {
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(arguments)
            .output()
            .context("cannot run git")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "cannot name the commit of {}: {}",
            root.display(),
            said.trim()
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let changed = git(&["status", "--porcelain"])?;
    Ok((git(&["rev-parse", "HEAD"])?, !changed.is_empty()))
}
