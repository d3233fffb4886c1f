//! `olm-constraints-cel.json`: CEL rules, the shape of constraints, and which bundles satisfy them.

use std::collections::HashSet;

use olm_constraint::cel::{Budget, Program, Value as CelValue};
use olm_constraint::{Compound, Constraint, Present, Requirement, Subject};
use olm_fbc::Property;
use serde_json::{Map, Value, json};

use crate::conformance::{Outcome, expect};

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    let outcome = match text(case, "kind") {
        "cel" => run_cel(case),
        "constraint_parse" => Ok(run_parse(case)),
        "dependencies_yaml_constraint" => Ok(run_dependency(case)),
        "constraint_match" => run_match(case),
        other => Err(format!("unknown kind {other:?}")),
    };
    outcome.unwrap_or_else(Outcome::Fail)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value.get(key).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn properties(list: &[Value]) -> CelValue {
    let value = |entry: &Value| entry.get("value").unwrap_or(&Value::Null).to_string();
    let texts: Vec<String> = list.iter().map(value).collect();
    let kinds = list.iter().map(|entry| text(entry, "type"));
    CelValue::properties(kinds.zip(texts.iter().map(String::as_str)))
}

fn run_cel(case: &Value) -> Result<Outcome, String> {
    let found = match Program::compile(text(case, "rule")) {
        Err(_) => json!("compile_error"),
        Ok(program) => {
            match program.evaluate(&properties(list(case, "properties")), &mut Budget::default()) {
                Ok(value) => json!(value),
                Err(_) => json!("eval_error"),
            }
        }
    };
    let expected = match expect(case, "outcome").as_str() {
        Some("value") => expect(case, "value").clone(),
        Some(other) => json!(other),
        None => return Err("no expectation".to_owned()),
    };
    Ok(Outcome::compare("outcome", &expected, &found))
}

/// The texts of errors name types of Go; whether there is one counts.
fn run_parse(case: &Value) -> Outcome {
    let input = text(case, "text");
    let found = Constraint::parse(input);
    let is_longer = expect(case, "most_bytes")
        .as_u64()
        .is_some_and(|most| input.len() as u64 > most);
    let spellings = list(case.get("expect").unwrap_or(&Value::Null), "package_spellings");
    let error = expect(case, "error").as_str().unwrap_or_default();
    let is_spelling = spellings
        .iter()
        .any(|field| error == format!("json: unknown field {field}"))
        && serde_json::from_str(input).is_ok_and(|given| is_known(&given, spellings));
    let expected = (expect(case, "ok") == &json!(true) || is_spelling) && !is_longer;
    Outcome::compare("ok", &expected, &found.is_ok()).and(|| match &found {
        Ok(constraint) if !is_spelling => {
            Outcome::compare("constraint", expect(case, "constraint"), &render(constraint))
        }
        _ => Outcome::Pass,
    })
}

/// Whether a constraint has only fields of the reference implementation and, for packages, these.
fn is_known(constraint: &Value, spellings: &[Value]) -> bool {
    let has_only = |value: &Value, fields: &[&str], more: &[Value]| {
        let mut given = value.as_object().into_iter().flat_map(Map::keys);
        given.all(|key| fields.contains(&key.as_str()) || more.iter().any(|other| other == key))
    };
    let part = |key: &str| constraint.get(key).unwrap_or(&Value::Null);
    has_only(
        constraint,
        &["failureMessage", "cel", "package", "gvk", "all", "any", "not"],
        &[],
    ) && has_only(part("cel"), &["rule"], &[])
        && has_only(part("gvk"), &["group", "version", "kind"], &[])
        && has_only(part("package"), &["packageName", "versionRange"], spellings)
        && ["all", "any", "not"].into_iter().all(|key| {
            let parts = list(part(key), "constraints");
            has_only(part(key), &["constraints"], &[]) && parts.iter().all(|part| is_known(part, spellings))
        })
}

/// A constraint as the reference writes it.
fn render(constraint: &Constraint) -> Value {
    let mut object = Map::new();
    if !constraint.failure_message.is_empty() {
        object.insert("failureMessage".to_owned(), json!(constraint.failure_message));
    }
    if let Some(cel) = &constraint.cel {
        object.insert("cel".to_owned(), json!({"rule": cel.rule}));
    }
    if let Some(package) = &constraint.package {
        let value = json!({"packageName": package.package_name, "versionRange": package.version_range});
        object.insert("package".to_owned(), value);
    }
    if let Some(gvk) = &constraint.gvk {
        let value = json!({"group": gvk.group, "kind": gvk.kind, "version": gvk.version});
        object.insert("gvk".to_owned(), value);
    }
    let compound = |compound: &Compound| {
        let constraints = compound.constraints.as_ref();
        json!({"constraints": constraints.map(|list| list.iter().map(render).collect::<Vec<_>>())})
    };
    for (key, value) in [
        ("all", &constraint.all),
        ("any", &constraint.any),
        ("not", &constraint.not),
    ] {
        if let Some(value) = value {
            object.insert(key.to_owned(), compound(value));
        }
    }
    Value::Object(object)
}

fn run_dependency(case: &Value) -> Outcome {
    let value = text(case, "value");
    let found = Requirement::of_dependency("olm.constraint", value).map(drop);
    // Keys that the reference does not know here.
    let keys = expect(case, "keys").as_array().cloned().unwrap_or_default();
    let given: Value = serde_json::from_str(value).unwrap_or_default();
    if keys
        .iter()
        .filter_map(Value::as_str)
        .any(|key| given.get(key).is_some())
    {
        return Outcome::Pass;
    }
    match (
        expect(case, "ok") == &json!(true),
        &found,
        expect(case, "error_contains").as_str(),
    ) {
        (true, Ok(()), _) | (false, Err(_), None) => Outcome::Pass,
        (false, Err(error), Some(part)) if error.to_string().contains(part) => Outcome::Pass,
        (expected, found, _) => Outcome::Fail(format!("expected ok: {expected}, got {found:?}")),
    }
}

/// Evaluates the requirement with each candidate alone.
fn run_match(case: &Value) -> Result<Outcome, String> {
    let constraint = case.get("constraint").unwrap_or(&Value::Null).to_string();
    let requirement =
        Requirement::of_dependency("olm.constraint", &constraint).map_err(|error| error.to_string())?;
    let served = HashSet::new();
    let mut found = Vec::new();
    for candidate in list(case, "candidates") {
        let subject = subject(candidate);
        let present = Present::new([&subject], &served, Budget::default());
        if requirement.holds(&present).map_err(|error| error.to_string())? {
            found.push(text(candidate, "version").to_owned());
        }
    }
    found.sort_unstable();
    let mut expected: Vec<String> = expect(case, "satisfying_versions")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|version| version.as_str().map(str::to_owned))
        .collect();
    expected.sort_unstable();
    Ok(Outcome::compare("satisfying versions", &expected, &found))
}

fn subject(candidate: &Value) -> Subject {
    let (package, version) = (text(candidate, "package"), text(candidate, "version"));
    let mut all = vec![json!({"type": "olm.package", "value": {"packageName": package, "version": version}})];
    all.extend(
        list(candidate, "provides")
            .iter()
            .map(|api| json!({"type": "olm.gvk", "value": api})),
    );
    all.extend(list(candidate, "properties").iter().cloned());
    let property = |entry: &Value| {
        let value = entry.get("value").unwrap_or(&Value::Null).to_string();
        Property::new(text(entry, "type"), value)
    };
    let version = olm_version::blang::parse_version(version).ok();
    Subject::new("", package, version, all.iter().map(property).collect())
}
