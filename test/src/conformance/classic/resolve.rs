//! The resolution of a namespace, and its parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use olm_classic::properties::{read_annotation, write_annotation};
use olm_classic::registry::{BundleMessage, PackageMessage, Registry, TypedValue};
use olm_classic::resolve::{
    CatalogContent, Constraint, Entry, EntryIndex, Request, Rule, SolveError, Variable, ends_in_failure,
    resolve, solve,
};
use olm_classic::subscription::ResolveError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Outcome;
use super::{list, one_of, registry_grpc, significant, sort_keys, text, texts};

/// Runs a case. Where several outcomes are recorded, one of them does.
pub fn run(case: &Value) -> Outcome {
    let actual = match text(case, "kind") {
        "resolve" => resolution(case),
        "solve" => solution(case),
        "bundle_entry" => bundle_entry(case),
        "csv_entry" => csv_entry(case),
        "replacement_chain_failure" => {
            match ends_in_failure(text(case, "csv"), &list(case, "clusterServiceVersions")) {
                Ok(is_failure) => json!({"ok": true, "ends_in_failure": is_failure}),
                Err(error) => json!({"ok": false, "error": error}),
            }
        }
        "properties_annotation" => annotation(case),
        other => json!({"ok": false, "error": format!("unknown kind {other}")}),
    };
    one_of(case, |expected| compare(expected, &actual))
}

fn compare(expected: &Value, actual: &Value) -> Outcome {
    let (expected, actual) = (normal(expected), normal(actual));
    if is_informative(text(&expected, "error")) {
        return Outcome::compare("ok", &expected["ok"], &actual["ok"])
            .and(|| Outcome::compare("reason", &expected["reason"], &actual["reason"]));
    }
    Outcome::compare("outcome", &expected.to_string(), &actual.to_string())
}

/// Texts of Go's parsers are not compared.
fn is_informative(error: &str) -> bool {
    ["JSON input", "invalid character", "json:", "Syntax error"]
        .iter()
        .any(|part| error.contains(part))
}

/// An outcome without insignificant values, with sorted keys and sorted unordered lists.
fn normal(outcome: &Value) -> Value {
    let mut outcome = sort_keys(&significant(outcome));
    sort_unordered(&mut outcome);
    if let Some(fields) = outcome.as_object_mut() {
        fields.shift_remove("error_prefix");
    }
    outcome
}

fn sort_unordered(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        return;
    };
    for (key, value) in fields.iter_mut() {
        if let (true, Some(items)) = (key.ends_with("_unordered"), value.as_array_mut()) {
            items.sort_by_key(ToString::to_string);
        }
        if key == "entry" {
            sort_unordered(value);
        }
    }
}

fn resolution(case: &Value) -> Value {
    let catalogs: Result<Vec<CatalogContent>, String> =
        list(case, "catalogs").into_iter().map(catalog).collect();
    let catalogs = match catalogs {
        Ok(catalogs) => catalogs,
        Err(error) => return json!({"ok": false, "error": error}),
    };
    let request = Request {
        namespace: text(case, "namespace"),
        global_namespace: text(case, "globalCatalogNamespace"),
        operator_groups: list(case, "operatorGroups"),
        catalogs: &catalogs,
        subscriptions: list(case, "subscriptions"),
        csvs: list(case, "clusterServiceVersions"),
    };
    match resolve(&request) {
        Ok(found) => {
            let operators: Vec<Value> = found.operators.iter().map(operator).collect();
            let lookups: Vec<Value> = found.resolution.bundle_lookups.iter().map(lookup).collect();
            let steps: Vec<Value> = found.resolution.steps.iter().map(step).collect();
            json!({
                "ok": true, "operators_unordered": operators, "bundle_lookups_unordered": lookups,
                "steps_unordered": steps, "subscriptions_updated": found.resolution.updated,
            })
        }
        Err(ResolveError::NotSatisfiable(clauses)) => {
            json!({"ok": false, "reason": "ConstraintsNotSatisfiable", "error_clauses_unordered": clauses})
        }
        Err(ResolveError::Other(error)) => {
            json!({"ok": false, "reason": "ErrorPreventedResolution", "error": error})
        }
    }
}

fn catalog(found: &Value) -> Result<CatalogContent, String> {
    let (name, namespace) = (text(found, "name"), text(found, "namespace"));
    let content = if found["noClient"] == true {
        Err(format!(
            "no registry client established for catalogsource {namespace}/{name}"
        ))
    } else if text(found, "listError").is_empty() {
        let (bundles, packages) = answers(found)?;
        Ok(Arc::new(EntryIndex::new(bundles, &packages)))
    } else {
        Err(format!("failed to list bundles: {}", text(found, "listError")))
    };
    Ok(CatalogContent {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        priority: found["priority"].as_i64().unwrap_or_default(),
        content,
    })
}

/// The answers of the registry of a catalog.
fn answers(found: &Value) -> Result<(Vec<BundleMessage>, BTreeMap<String, PackageMessage>), String> {
    let mut packages = BTreeMap::new();
    if found.get("fbc").is_some() {
        let catalog = registry_grpc::unchecked(found)?;
        let registry = Registry::new(&catalog);
        for name in registry.list_packages() {
            let package = registry.get_package(name).map_err(|error| error.to_string())?;
            packages.insert(name.to_owned(), package);
        }
        return Ok((registry.list_bundles(), packages));
    }
    let rows: Result<Vec<BundleMessage>, _> = list(found, "bundles")
        .into_iter()
        .map(BundleMessage::deserialize)
        .collect();
    for (name, package) in found["packages"].as_object().into_iter().flatten() {
        let package = PackageMessage::deserialize(package).map_err(|error| error.to_string())?;
        packages.insert(name.clone(), package);
    }
    Ok((rows.map_err(|error| error.to_string())?, packages))
}

fn operator(entry: &Entry) -> Value {
    let mut operator = json!({
        "name": entry.name, "package": entry.package, "channel": entry.channel,
        "catalog": format!("{}/{}", entry.catalog_namespace, entry.catalog),
    });
    for (key, value) in [
        ("replaces", &entry.replaces),
        ("startingCSV", &entry.starting_csv),
    ] {
        if !value.is_empty() {
            operator[key] = json!(value);
        }
    }
    operator
}

fn lookup(found: &Value) -> Value {
    let reference = &found["catalogSourceRef"];
    let mut lookup = found.clone();
    lookup["catalogSourceRef"] = json!(format!(
        "{}/{}",
        text(reference, "namespace"),
        text(reference, "name")
    ));
    if let Some(fields) = lookup.as_object_mut() {
        fields.remove("conditions");
    }
    lookup
}

fn step(found: &Value) -> Value {
    let resource = &found["resource"];
    let manifest: Value = serde_json::from_str(text(resource, "manifest")).unwrap_or_default();
    let mut step = json!({
        "catalogSource": resource["sourceName"], "catalogSourceNamespace": resource["sourceNamespace"],
        "resolving": found["resolving"], "status": found["status"],
    });
    for key in ["group", "version", "kind", "name"] {
        step[key] = resource[key].clone();
    }
    if step["kind"] == "Subscription" {
        step["spec"] = manifest["spec"].clone();
        step["namespace"] = manifest["metadata"]["namespace"].clone();
    }
    step
}

fn solution(case: &Value) -> Value {
    let variables: Vec<Variable> = list(case, "variables")
        .into_iter()
        .map(|variable| {
            let id = text(variable, "id").to_owned();
            let constraints = list(variable, "constraints").into_iter();
            let constraints = constraints.map(|found| constraint(&id, found)).collect();
            Variable { id, constraints }
        })
        .collect();
    match solve(&variables) {
        Ok(installed) => json!({"ok": true, "installed_unordered": installed}),
        Err(SolveError::NotSatisfiable(clauses)) => json!({"ok": false, "error_clauses_unordered": clauses}),
        Err(error) => json!({"ok": false, "error": error.to_string()}),
    }
}

fn constraint(id: &str, found: &Value) -> Constraint {
    let ids = texts(found, "ids");
    let shown = ids.join(", ");
    let (rule, text) = match text(found, "type") {
        "mandatory" => (Rule::Mandatory, format!("{id} is mandatory")),
        "prohibited" => (Rule::Prohibited, format!("{id} is prohibited")),
        "conflict" => (
            Rule::Conflict(ids.first().cloned().unwrap_or_default()),
            format!("{id} conflicts with {shown}"),
        ),
        "at_most" => {
            let most = found["n"].as_u64().and_then(|most| usize::try_from(most).ok());
            let most = most.unwrap_or_default();
            (
                Rule::AtMost(most, ids),
                format!("{id} permits at most {most} of {shown}"),
            )
        }
        _ if ids.is_empty() => (
            Rule::Dependency(ids),
            format!("{id} has a dependency without any candidates to satisfy it"),
        ),
        _ => (
            Rule::Dependency(ids),
            format!("{id} requires at least one of {shown}"),
        ),
    };
    Constraint { rule, text }
}

fn properties(entry: &Entry) -> Vec<Value> {
    let value = |found: &TypedValue| -> Value { serde_json::from_str(&found.value).unwrap_or_default() };
    let properties = entry.properties.iter();
    properties
        .map(|found| json!({"type": found.kind, "value": value(found)}))
        .collect()
}

fn apis<'a>(found: impl IntoIterator<Item = &'a olm_classic::operator_group::ApiKey>) -> Vec<String> {
    let texts = found
        .into_iter()
        .map(|api| format!("{}/{}/{}/{}", api.group, api.version, api.kind, api.plural));
    texts.collect()
}

fn common(entry: &Entry) -> Value {
    json!({
        "name": entry.name, "package": entry.package, "properties": properties(entry),
        "providedAPIs_unordered": apis(&entry.provided), "requiredAPIs_unordered": apis(&entry.required),
        "version": entry.version.as_ref().map(ToString::to_string),
    })
}

fn bundle_entry(case: &Value) -> Value {
    let read = |case: &Value| -> Result<Entry, serde_json::Error> {
        let bundle = BundleMessage::deserialize(&case["bundle"])?;
        let package = case.get("package").map(PackageMessage::deserialize).transpose()?;
        Entry::of_bundle(&bundle, package.as_ref())
    };
    let Ok(entry) = read(case) else {
        return json!({"ok": true, "entry": null});
    };
    let mut shown = common(&entry);
    shown["bundlePath"] = json!(entry.bundle_path);
    shown["channel"] = json!(entry.channel);
    shown["inlineBundle"] = json!(entry.bundle_path.is_empty());
    shown["isDefaultChannel"] = json!(entry.is_default_channel);
    shown["replaces"] = json!(entry.replaces);
    shown["skips"] = json!(entry.skips);
    shown["skipRangeParsed"] = json!(entry.skip_range.is_some());
    let [package, channel, bundle] = &entry.deprecations;
    shown["deprecations"] = json!({"package": package, "channel": channel, "bundle": bundle});
    json!({"ok": true, "entry": shown})
}

fn csv_entry(case: &Value) -> Value {
    match Entry::of_csv(&case["csv"], list(case, "subscriptions")) {
        Ok(entry) => {
            let mut shown = common(&entry);
            if let Some(subscription) = &entry.subscription {
                shown["subscription"] = json!(subscription);
            }
            json!({"ok": true, "entry": shown})
        }
        Err(error) => json!({"ok": false, "error": error}),
    }
}

fn annotation(case: &Value) -> Value {
    if let Some(text) = case.get("annotation").and_then(Value::as_str) {
        return match read_annotation(text) {
            Ok(found) => {
                let found: Vec<Value> = found
                    .iter()
                    .map(|found| json!({"type": found.kind, "valueText": found.value}))
                    .collect();
                json!({"ok": true, "properties": found})
            }
            Err(error) => json!({"ok": false, "error": error}),
        };
    }
    let properties: Vec<TypedValue> = list(case, "properties")
        .into_iter()
        .filter_map(|found| TypedValue::deserialize(found).ok())
        .collect();
    match write_annotation(&properties) {
        Ok(text) => json!({"ok": true, "annotation": text}),
        Err(error) => json!({"ok": false, "error": error}),
    }
}
