//! One large real catalog, stored as in catalogd, and the newest bundle of each of its packages.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use olm_fbc::{Blob, Checker, Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, meta, metas};
use olm_resolve::{Availability, Catalog, Package, PackageAnswer, Reason, ReleaseField, Request, resolve};
use olm_serve::{Commit, Filter, Findings, Origin, Snapshot, Store, StoreLimits, ingest};
use olm_version::{BuildMetadata, VersionRelease};
use serde_json::Value;

use super::{Case, Kind, guarded};

const FILE: &str = "operatorhub.json";
/// Properties with dependencies of a bundle.
const DEPENDENCIES: &[&str] = &["olm.package.required", "olm.gvk.required", "olm.constraint"];

/// Runs `dir/operatorhub.json`: one case that it is stored, and one for each of its packages.
pub fn run(dir: &Path) -> Kind {
    let mut kind = Kind {
        name: "operatorhub",
        ..Kind::default()
    };
    if !dir.join(FILE).is_file() {
        return kind;
    }
    let root = tempfile::tempdir().map_err(|error| error.to_string());
    let stored = root.and_then(|root| {
        let stored = guarded(|| store(dir, root.path()))?;
        Ok((root, stored))
    });
    match stored {
        Err(why) => kind.cases.push((FILE.to_owned(), Err(why))),
        Ok((_root, (snapshot, checker))) => {
            kind.cases.push((FILE.to_owned(), Ok("stored".to_owned())));
            for finding in checker.finish().findings {
                *kind.findings.entry(finding.rule.id().to_owned()).or_default() += 1;
            }
            match facts(&dir.join(FILE)) {
                Err(why) => kind.cases.push((format!("{FILE}: packages"), Err(why))),
                Ok(packages) => kind.cases.extend(packages.iter().map(|(name, facts)| -> Case {
                    let outcome = guarded(|| newest(&snapshot, name, facts));
                    (format!("{FILE}: {name}"), outcome)
                })),
            }
        }
    }
    kind
}

/// Stores the catalog blob by blob.
fn store(dir: &Path, root: &Path) -> Result<(Arc<Snapshot>, Checker), String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let store = Arc::new(Store::open(root, StoreLimits::default()).map_err(|error| text(&error))?);
    let mut writer = store.begin("operatorhub").map_err(|error| text(&error))?;
    let mut checker = Checker::new();
    ingest(
        &mut writer,
        std::iter::once(FILE),
        |path| File::open(dir.join(path)),
        |path, blob| {
            checker.add(path, blob);
            ControlFlow::Continue(())
        },
    )
    .map_err(|error| text(&error))?;
    let commit = Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified: Timestamp::UNIX_EPOCH,
        now: Timestamp::UNIX_EPOCH,
    };
    let snapshot = writer.commit(commit).map_err(|error| text(&error))?;
    Ok((snapshot, checker))
}

/// The facts about one package from a plain scan of the catalog's lines.
#[derive(Debug, Default)]
struct Facts {
    /// Name, version, and whether the bundle has dependencies.
    bundles: Vec<(String, Option<String>, bool)>,
    /// The bundles in some channel.
    entries: HashSet<String>,
    deprecated: HashSet<String>,
}

fn facts(file: &Path) -> Result<BTreeMap<String, Facts>, String> {
    let mut packages: BTreeMap<String, Facts> = BTreeMap::new();
    for line in BufReader::new(File::open(file).map_err(|error| error.to_string())?).lines() {
        let blob: Value = serde_json::from_str(&line.map_err(|error| error.to_string())?)
            .map_err(|error| format!("it is not lines of JSON: {error}"))?;
        let text = |key: &str| {
            blob.get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let list = |key: &str| {
            blob.get(key)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let schema = text("schema");
        let package = text(if schema == olm_fbc::SCHEMA_PACKAGE {
            "name"
        } else {
            "package"
        });
        let facts = packages.entry(package).or_default();
        match schema.as_str() {
            SCHEMA_BUNDLE => {
                let properties = list("properties");
                let version = properties
                    .iter()
                    .find(|property| property["type"] == "olm.package")
                    .and_then(|property| property["value"]["version"].as_str().map(str::to_owned));
                let depends = properties
                    .iter()
                    .any(|property| DEPENDENCIES.iter().any(|kind| property["type"] == *kind));
                facts.bundles.push((text("name"), version, depends));
            }
            SCHEMA_CHANNEL => facts.entries.extend(
                list("entries")
                    .iter()
                    .filter_map(|entry| entry["name"].as_str().map(str::to_owned)),
            ),
            SCHEMA_DEPRECATIONS => facts.deprecated.extend(
                list("entries")
                    .iter()
                    .filter(|entry| entry["reference"]["schema"] == SCHEMA_BUNDLE)
                    .filter_map(|entry| entry["reference"]["name"].as_str().map(str::to_owned)),
            ),
            _ => {}
        }
    }
    Ok(packages)
}

impl Facts {
    /// The bundles of the highest version among those that may be chosen at all; one, unless versions are equal.
    fn newest(&self) -> BTreeSet<&str> {
        let mut best: Option<(bool, VersionRelease)> = None;
        let mut names = BTreeSet::new();
        for (name, version, _) in self
            .bundles
            .iter()
            .filter(|(name, ..)| self.entries.contains(name))
        {
            let version = version
                .as_deref()
                .map(|text| VersionRelease::parse(text, BuildMetadata::Release));
            let Some(Ok(version)) = version else { continue };
            let current = !self.deprecated.contains(name);
            let order = best
                .as_ref()
                .map_or(std::cmp::Ordering::Greater, |(was, highest)| {
                    current.cmp(was).then_with(|| version.compare(highest))
                });
            if order.is_gt() {
                names.clear();
                best = Some((current, version));
            }
            if order.is_ge() {
                names.insert(name.as_str());
            }
        }
        names
    }

    fn depends(&self, bundle: &str) -> bool {
        self.bundles
            .iter()
            .any(|(name, _, depends)| name == bundle && *depends)
    }
}

/// Asks the store for one package, resolves it without a wish, and compares with the facts.
fn newest(snapshot: &Snapshot, name: &str, facts: &Facts) -> Result<String, String> {
    let package =
        Package::new(blobs(snapshot, name)?, ReleaseField::Counts).map_err(|error| error.to_string())?;
    if package.candidates().len() != facts.bundles.len() {
        return Err(format!(
            "{} bundles are found, {} there are",
            package.candidates().len(),
            facts.bundles.len()
        ));
    }
    let labels = BTreeMap::new();
    let catalog = Catalog {
        name: "operatorhub",
        priority: 0,
        labels: &labels,
        availability: Availability::Available,
        answer: PackageAnswer::Package(&package),
    };
    let request = Request {
        package: name,
        ..Request::default()
    };
    let expected = facts.newest();
    match resolve(&[catalog], &request, None) {
        Ok(resolution) => {
            let chosen = resolution.bundle.name.as_str();
            if !expected.contains(chosen) {
                Err(format!("{chosen} is chosen, newest is {expected:?}"))
            } else if facts.depends(chosen) == resolution.bundle.requirements.is_empty() {
                Err(format!(
                    "{chosen} is said to depend on nothing or on something, and that is wrong"
                ))
            } else {
                Ok("resolved".to_owned())
            }
        }
        Err(refusal) => match refusal.reason() {
            Reason::NoBundle(_)
                if !facts
                    .bundles
                    .iter()
                    .any(|(name, ..)| facts.entries.contains(name)) =>
            {
                Ok("refused: no bundle is in a channel".to_owned())
            }
            Reason::Version { .. } if expected.is_empty() => {
                Ok("refused: no bundle has a readable version".to_owned())
            }
            _ => Err(format!("refused without a true reason: {refusal}")),
        },
    }
}

/// The answer of the server for a package.
fn blobs(snapshot: &Snapshot, package: &str) -> Result<Vec<Blob>, String> {
    let filter = Filter {
        package: Some(package.to_owned()),
        ..Filter::default()
    };
    let mut blobs = Vec::new();
    for range in snapshot.select(&filter) {
        let bytes = snapshot.read(range).map_err(|error| error.to_string())?;
        for found in metas(bytes.as_slice(), &meta::limits()) {
            let found: Meta = found.map_err(|error| error.to_string())?;
            blobs.push(Blob::from_json(&found.schema, found.json()).map_err(|error| error.to_string())?);
        }
    }
    Ok(blobs)
}
