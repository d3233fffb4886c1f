//! Answers of the registry API over a file-based catalog.

use std::sync::Arc;

use classic::registry::catalog::{CallError, StoredCatalog};
use jiff::Timestamp;
use olm_fbc::check::Rule;
use olm_fbc::meta::{limits, metas};
use olm_fbc::{Catalog, Checker, Gvk, Meta};
use olm_serve::{Commit, Findings, Origin, Store, StoreLimits};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::Outcome;
use super::{list, one_of, significant, sort_keys, text};

/// Runs a case. Where several outcomes are recorded, one of them does.
pub fn run(case: &Value) -> Outcome {
    let actual = match read(case) {
        Ok(_) => match stored(case) {
            Ok((catalog, _folder)) => {
                let calls = list(case, "calls");
                let answers: Vec<Value> = calls.into_iter().map(|call| answer(&catalog, call)).collect();
                json!({"ok": true, "answers": answers})
            }
            Err(error) => return Outcome::Fail(error),
        },
        Err(error) => json!({"ok": false, "error": error}),
    };
    one_of(case, |expected| compare(expected, &actual))
}

/// The catalog of a case, if it is valid.
pub(super) fn read(case: &Value) -> Result<Catalog, String> {
    let mut checker = Checker::new();
    let catalog = each(case, |meta| checker.add("catalog.json", meta))?;
    let report = checker.finish();
    // A registry serves bundles that carry their manifests instead of an image.
    match report
        .errors()
        .find(|finding| finding.rule != Rule::BundleImageOnly)
    {
        Some(finding) => Err(finding.message.clone()),
        None => Ok(catalog),
    }
}

/// The catalog of a case, valid or not.
pub(super) fn unchecked(case: &Value) -> Result<Catalog, String> {
    each(case, |_| ())
}

/// Reads the catalog of a case and shows each of its blobs.
fn each(case: &Value, mut show: impl FnMut(&Meta)) -> Result<Catalog, String> {
    let lines: Vec<String> = list(case, "fbc").into_iter().map(Value::to_string).collect();
    let mut catalog = Catalog::default();
    for meta in metas(lines.join("\n").as_bytes(), &limits()) {
        let meta = meta.map_err(|error| error.to_string())?;
        show(&meta);
        catalog.add(meta).map_err(|error| error.to_string())?;
    }
    Ok(catalog)
}

/// The catalog of a case on the disk, as registries serve it.
fn stored(case: &Value) -> Result<(StoredCatalog, tempfile::TempDir), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let store = Store::open(folder.path(), StoreLimits::default()).map_err(|error| error.to_string())?;
    let mut writer = Arc::new(store).begin("case").map_err(|error| error.to_string())?;
    for blob in list(case, "fbc") {
        let [schema, package, name] = ["schema", "package", "name"].map(|key| text(blob, key));
        let written = writer.push(schema, package, name, blob.to_string().as_bytes());
        written.map_err(|error| error.to_string())?;
    }
    let snapshot = writer.commit(Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified: Timestamp::UNIX_EPOCH,
        now: Timestamp::UNIX_EPOCH,
    });
    let snapshot = snapshot.map_err(|error| error.to_string())?;
    Ok((StoredCatalog::new(snapshot), folder))
}

fn compare(expected: &Value, actual: &Value) -> Outcome {
    Outcome::compare("ok", &expected["ok"], &actual["ok"]).and(|| {
        let answers =
            |outcome: &Value| -> Vec<Value> { list(outcome, "answers").into_iter().map(normal).collect() };
        Outcome::compare("answers", &answers(expected), &answers(actual))
    })
}

/// An answer with sorted keys and items, and with text that holds JSON as that JSON.
fn normal(answer: &Value) -> Value {
    let mut answer = sort_keys(&significant(&parsed(answer)));
    if let Some(items) = answer.get_mut("items_unordered").and_then(Value::as_array_mut) {
        items.sort_by_key(ToString::to_string);
    }
    answer
}

fn parsed(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), parsed(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(parsed).collect()),
        Value::String(text) if text.starts_with(['{', '[']) => {
            serde_json::from_str(text).unwrap_or_else(|_| value.clone())
        }
        plain => plain.clone(),
    }
}

fn answer(catalog: &StoredCatalog, call: &Value) -> Value {
    let request = call.get("request").unwrap_or(&Value::Null);
    let asked = |key: &str| text(request, key);
    let api = Gvk {
        group: asked("group").to_owned(),
        kind: asked("kind").to_owned(),
        version: asked("version").to_owned(),
    };
    let (package, channel, csv) = (asked("pkgName"), asked("channelName"), asked("csvName"));
    match text(call, "method") {
        "ListPackages" => {
            let named = catalog.packages().into_iter().map(|name| json!({"name": name}));
            stream(Ok(named.collect::<Vec<_>>()))
        }
        "GetPackage" => one(catalog.get_package(asked("name"))),
        "ListBundles" => {
            let bundles = catalog
                .packages()
                .into_iter()
                .map(|package| catalog.list_bundles(&package));
            let bundles: Result<Vec<_>, _> = bundles.collect();
            stream(bundles.map(|bundles| bundles.concat()))
        }
        "GetBundle" => one(catalog.get_bundle(package, channel, csv)),
        "GetBundleForChannel" => one(catalog.get_bundle_for_channel(package, channel)),
        "GetBundleThatReplaces" => one(catalog.get_bundle_that_replaces(csv, package, channel)),
        "GetChannelEntriesThatReplace" => stream(catalog.entries_that_replace(csv)),
        "GetChannelEntriesThatProvide" => stream(catalog.entries_that_provide(&api)),
        "GetLatestChannelEntriesThatProvide" => stream(catalog.latest_entries_that_provide(&api)),
        "GetDefaultBundleThatProvides" => one(catalog.default_bundle_that_provides(&api)),
        "ExperimentalListPackageCustomSchemas" => {
            let headers = call.get("headers").unwrap_or(&Value::Null);
            let is_acknowledged = text(headers, "x-acknowledge-experimental") == "true";
            stream(catalog.custom_schemas(asked("schema"), asked("packageName"), is_acknowledged))
        }
        other => json!({"code": "Unimplemented", "message": other}),
    }
}

fn one(found: Result<impl Serialize, CallError>) -> Value {
    match found {
        Ok(found) => json!({"code": "OK", "response": found}),
        Err(error) => failure(&error),
    }
}

fn stream(found: Result<Vec<impl Serialize>, CallError>) -> Value {
    match found {
        Ok(found) => json!({"code": "OK", "items_unordered": found}),
        Err(error) => failure(&error),
    }
}

fn failure(error: &CallError) -> Value {
    let code = match error {
        CallError::Unknown(_) => "Unknown",
        CallError::Argument(_) => "InvalidArgument",
        CallError::Read(_) => "Internal",
    };
    json!({"code": code, "message": error.to_string()})
}
