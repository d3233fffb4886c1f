//! The provenance of a release: a statement of in-toto with the predicate of SLSA 1.0. It says from which commit which
//! files were made, and by whom.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The type of the predicate.
const PREDICATE: &str = "https://slsa.dev/provenance/v1";

/// Where the files come from.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// The commit.
    pub(super) commit: String,
    /// Whether files differ from the commit.
    pub(super) is_changed: bool,
    /// The SHA-256 of `Cargo.lock`.
    pub(super) lock: String,
    /// The version of Rust.
    pub(super) toolchain: String,
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
    /// The time of the build.
    pub(super) time: Option<Timestamp>,
}

/// The statement about files by their SHA-256.
pub(super) fn statement(
    subjects: &BTreeMap<String, String>,
    source: &Source,
    builder: &Builder<'_>,
) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .map(|(name, sum)| json!({ "name": name, "digest": { "sha256": sum } }))
        .collect();
    let mut commit = json!({ "name": "source", "digest": { "gitCommit": source.commit } });
    if let Some(repository) = builder.repository {
        commit["uri"] = json!(format!("git+{repository}@{}", source.commit));
    }
    let mut metadata = json!({});
    if let Some(time) = builder.time {
        metadata["finishedOn"] = json!(time.to_string());
    }
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": builder.build,
                "externalParameters": {
                    "command": "make dist",
                    "version": env!("CARGO_PKG_VERSION"),
                    "source": { "repository": builder.repository, "commit": source.commit },
                },
                "internalParameters": { "uncommittedChanges": source.is_changed },
                "resolvedDependencies": [
                    commit,
                    { "name": "Cargo.lock", "digest": { "sha256": source.lock } },
                    { "name": "rust", "uri": format!("pkg:generic/rust@{}", source.toolchain) },
                ],
            },
            "runDetails": {
                "builder": { "id": builder.id, "version": { "olm-test": env!("CARGO_PKG_VERSION") } },
                "metadata": metadata,
            },
        },
    })
}

/// The commit of a repository, and whether files differ from it.
pub(super) fn commit(root: &Path) -> Result<(String, bool)> {
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
