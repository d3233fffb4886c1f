//! Runs recorded cases against the same public functions that the product calls.
//!
//! A suite is one JSON file of cases, for example `fbc-validate/rules.json`. Its module here converts a case's inputs
//! into a call and compares the outcome with `expect`. Cases whose recorded outcome is a fault of the reference
//! implementation are in `test/conformance/deviations.toml`, with our outcome as the expectation.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use olm_version::VersionRelease;
use serde::Deserialize;
use serde_json::{Value, json};

pub mod bundle;
pub mod catalog;
pub mod classic;
pub mod network_error_sanitize;
pub mod resolution;
pub mod versions;

/// The result of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Our outcome is the expected one.
    Pass,
    /// Our outcome differs; the text contains the expected and the actual one.
    Fail(String),
    /// The case records a text of a library that is not part of the contract; it is not counted.
    Informative,
}

impl Outcome {
    /// [`Outcome::Pass`] when both are equal, else a failure that shows both.
    pub fn compare<T: PartialEq + fmt::Debug>(what: &str, expected: &T, actual: &T) -> Self {
        if expected == actual {
            Self::Pass
        } else {
            Self::Fail(format!("{what}: expected {expected:?}, got {actual:?}"))
        }
    }

    /// The first failure of the two, else the other outcome.
    #[must_use]
    pub fn and(self, next: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Pass => next(),
            other => other,
        }
    }
}

/// The expectation of a case under this key.
fn expect<'a>(case: &'a Value, key: &str) -> &'a Value {
    case.get("expect")
        .and_then(|expect| expect.get(key))
        .unwrap_or(&Value::Null)
}

/// The files of a case, by path.
fn files(case: &Value) -> BTreeMap<String, Vec<u8>> {
    case.get("files")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(path, text)| {
            let content = text.as_str().unwrap_or_default();
            (path.clone(), content.as_bytes().to_vec())
        })
        .collect()
}

/// Compares the version and the release of a bundle with the expectation.
fn compare_version(case: &Value, found: &VersionRelease) -> Outcome {
    let release = found
        .release
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    Outcome::compare("ok", &expect(case, "ok"), &&json!(true))
        .and(|| {
            Outcome::compare(
                "version",
                &expect(case, "version"),
                &&json!(found.version.to_string()),
            )
        })
        .and(|| Outcome::compare("release", &expect(case, "release"), &&json!(release)))
}

/// Runs one case.
pub type Runner = fn(&Value) -> Outcome;

/// A suite that this project passes: its file below the directory of cases and the code that runs a case.
struct Suite {
    file: &'static str,
    run: Runner,
}

/// Every suite that is done. A file named on the command line that is not here fails as a whole.
const SUITES: &[Suite] = &[
    Suite {
        file: "semver-constraints.json",
        run: versions::semver_constraints::run,
    },
    Suite {
        file: "blang-ranges.json",
        run: versions::blang_ranges::run,
    },
    Suite {
        file: "release-versions.json",
        run: versions::release_versions::run,
    },
    Suite {
        file: "fbc-load.json",
        run: catalog::fbc_load::run,
    },
    Suite {
        file: "fbc-validate/channel-graph.json",
        run: catalog::fbc_validate::run,
    },
    Suite {
        file: "fbc-validate/convert-to-model.json",
        run: catalog::fbc_validate::run,
    },
    Suite {
        file: "fbc-validate/rules.json",
        run: catalog::fbc_validate::run,
    },
    Suite {
        file: "fbc-write.json",
        run: catalog::fbc_write::run,
    },
    Suite {
        file: "indexignore.json",
        run: catalog::indexignore::run,
    },
    Suite {
        file: "metas-query.json",
        run: catalog::metas_query::run,
    },
    Suite {
        file: "fbc-templates.json",
        run: catalog::fbc_templates::run,
    },
    Suite {
        file: "bundle-to-fbc.json",
        run: bundle::bundle_to_fbc::run,
    },
    Suite {
        file: "bundle-validators.json",
        run: bundle::bundle_validators::run,
    },
    Suite {
        file: "successors-resolution.json",
        run: resolution::successors_resolution::run,
    },
    Suite {
        file: "bundle-config.json",
        run: bundle::bundle_config::run,
    },
    Suite {
        file: "registryv1-render/convert.json",
        run: bundle::registryv1_render::run,
    },
    Suite {
        file: "registryv1-render/generators.json",
        run: bundle::registryv1_render::run,
    },
    Suite {
        file: "registryv1-render/install-modes.json",
        run: bundle::registryv1_render::run,
    },
    Suite {
        file: "registryv1-render/validators.json",
        run: bundle::registryv1_render::run,
    },
    Suite {
        file: "crd-upgrade-safety.json",
        run: bundle::crd_upgrade_safety::run,
    },
    Suite {
        file: "olm-constraints-cel.json",
        run: resolution::olm_constraints_cel::run,
    },
    Suite {
        file: "max-openshift-version.json",
        run: bundle::max_openshift_version::run,
    },
    Suite {
        file: "clustercatalog-admission.json",
        run: catalog::clustercatalog_admission::run,
    },
    Suite {
        file: "network-error-sanitize.json",
        run: network_error_sanitize::run,
    },
    Suite {
        file: "classic-operatorgroup.json",
        run: classic::operatorgroup::run,
    },
    Suite {
        file: "classic-csv-requirements.json",
        run: classic::csv_requirements::run,
    },
    Suite {
        file: "classic-registry-grpc.json",
        run: classic::registry_grpc::run,
    },
    Suite {
        file: "classic-packagemanifest.json",
        run: classic::package_manifest::run,
    },
    Suite {
        file: "classic-catalogsource.json",
        run: classic::catalog_source::run,
    },
    Suite {
        file: "classic-installplan.json",
        run: classic::install_plan::run,
    },
    Suite {
        file: "classic-resolve.json",
        run: classic::resolve::run,
    },
    Suite {
        file: "classic-subscription.json",
        run: classic::subscription::run,
    },
    Suite {
        file: "classic-csv-phases.json",
        run: classic::csv_phases::run,
    },
    Suite {
        file: "classic-csv-render.json",
        run: classic::csv_render::run,
    },
];

#[derive(Deserialize)]
struct SuiteFile {
    cases: Vec<Value>,
}

/// The outcomes of one file.
#[derive(Debug, Default)]
pub struct Tally {
    /// The file, relative to the directory of cases.
    pub file: String,
    /// Cases that came out as expected.
    pub passed: usize,
    /// Id and reason of each case that did not.
    pub failed: Vec<(String, String)>,
}

/// Runs the suites in `dir`: the files named, or every suite that is done. The cases' `bundle_ref`s are
/// resolved against `dir`'s parent, which contains the large bundles.
///
/// # Errors
/// When a file or the list of deviations cannot be read.
pub fn run(dir: &Path, files: &[String]) -> anyhow::Result<Vec<Tally>> {
    let deviations = Deviations::load()?;
    let files: Vec<&str> = if files.is_empty() {
        SUITES.iter().map(|s| s.file).collect()
    } else {
        files.iter().map(String::as_str).collect()
    };
    files
        .into_iter()
        .map(|file| run_file(dir, file, &deviations))
        .collect()
}

fn run_file(dir: &Path, file: &str, deviations: &Deviations) -> anyhow::Result<Tally> {
    let path = dir.join(file);
    let text =
        std::fs::read(&path).with_context(|| format!("cannot read the cases in {}", path.display()))?;
    let suite: SuiteFile = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not a suite of cases", path.display()))?;
    let mut tally = Tally {
        file: file.to_owned(),
        ..Tally::default()
    };
    let Some(known) = SUITES.iter().find(|s| s.file == file) else {
        tally.failed = suite
            .cases
            .iter()
            .map(|case| (id(case), "nothing runs the cases of this file yet".to_owned()))
            .collect();
        return Ok(tally);
    };
    for mut case in suite.cases {
        let name = id(&case);
        attach_bundle(dir, &mut case)?;
        let case = deviations.rewrite(file.trim_end_matches(".json"), case);
        let outcome = catch_unwind(AssertUnwindSafe(|| (known.run)(&case)))
            .unwrap_or_else(|_| Outcome::Fail("panicked".to_owned()));
        match outcome {
            Outcome::Pass => tally.passed += 1,
            Outcome::Fail(why) => tally.failed.push((name, why)),
            Outcome::Informative => {}
        }
    }
    Ok(tally)
}

fn id(case: &Value) -> String {
    case.get("id")
        .and_then(Value::as_str)
        .unwrap_or("(no id)")
        .to_owned()
}

/// Puts the files of a referenced bundle into the case, so that a runner sees one shape only.
fn attach_bundle(dir: &Path, case: &mut Value) -> anyhow::Result<()> {
    let Some(reference) = case.get("bundle_ref").and_then(Value::as_str) else {
        return Ok(());
    };
    let beside = dir.parent().unwrap_or(dir).join(reference);
    let path: PathBuf = if beside.exists() {
        beside
    } else {
        dir.join(reference)
    };
    let text = std::fs::read(&path).with_context(|| format!("cannot read the bundle {}", path.display()))?;
    let mut files: Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    if let Some(inner) = files.get_mut("files") {
        files = inner.take();
    }
    if let Some(object) = case.as_object_mut() {
        object.insert("bundle_files".to_owned(), files);
    }
    Ok(())
}

/// The deviations from recorded outcomes that are faulty, with reasons.
#[derive(Debug, Default, Deserialize)]
struct Deviations {
    #[serde(default)]
    deviation: Vec<Deviation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deviation {
    suite: String,
    id: Option<String>,
    #[serde(default)]
    ids: Vec<String>,
    kind: Option<String>,
    input_contains: Option<String>,
    #[serde(rename = "quirk")]
    _quirk: String,
    ours: toml::Table,
}

impl Deviations {
    fn load() -> anyhow::Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/deviations.toml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a list of deviations", path.display()))
    }

    /// The case with the expectation of every deviation that covers it.
    fn rewrite(&self, suite: &str, mut case: Value) -> Value {
        let covering: Vec<&Deviation> = self
            .deviation
            .iter()
            .filter(|deviation| deviation.suite == suite && deviation.covers(&case))
            .collect();
        for deviation in covering {
            let Some(object) = case.as_object_mut() else {
                continue;
            };
            let expect = object
                .entry("expect")
                .or_insert_with(|| Value::Object(serde_json::Map::new()));
            let Some(expect) = expect.as_object_mut() else {
                continue;
            };
            for (key, value) in &deviation.ours {
                if value.as_str() == Some("__absent__") {
                    expect.remove(key);
                } else if let Ok(value) = serde_json::to_value(value) {
                    expect.insert(key.clone(), value);
                }
            }
        }
        case
    }
}

impl Deviation {
    fn covers(&self, case: &Value) -> bool {
        let named = |id: &str| case.get("id").and_then(Value::as_str) == Some(id);
        if self.id.is_some() || !self.ids.is_empty() {
            return self.id.as_deref().is_some_and(named) || self.ids.iter().any(|id| named(id));
        }
        if self.kind.is_none() && self.input_contains.is_none() {
            return false;
        }
        let kind = self
            .kind
            .as_deref()
            .is_none_or(|k| case.get("kind").and_then(Value::as_str) == Some(k));
        let mut inputs = case.clone();
        if let Some(object) = inputs.as_object_mut() {
            object.remove("expect");
            object.remove("id");
            object.remove("source");
        }
        kind && self
            .input_contains
            .as_deref()
            .is_none_or(|part| inputs.to_string().contains(part))
    }
}
