//! Versions of a definition, and findings about the definition as a whole.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use olm_api::object::{list, text};
use serde_json::Value;

use super::schema::flatten;
use super::{Check, Finding, FindingLocation};

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    list(definition, "/spec/versions").iter()
}

fn name(version: &Value) -> &str {
    text(version, "/name")
}

fn served(version: &Value) -> bool {
    version.get("served") == Some(&Value::Bool(true))
}

/// The names of all versions.
pub(super) fn names(definition: &Value) -> impl Iterator<Item = &str> {
    versions(definition).map(name)
}

/// The names of the served versions, in the order of the definition.
pub(super) fn served_names(definition: &Value) -> impl Iterator<Item = &str> {
    versions(definition).filter(|version| served(version)).map(name)
}

/// The version that objects are stored in.
pub(super) fn storage(definition: &Value) -> Option<&str> {
    let mut all = versions(definition);
    all.find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(name)
}

/// The versions in which objects are or were stored.
pub(super) fn stored(definition: &Value) -> impl Iterator<Item = &str> {
    list(definition, "/status/storedVersions")
        .iter()
        .filter_map(Value::as_str)
}

/// Whether a webhook converts objects from version to version.
pub(super) fn is_converted(definition: &Value) -> bool {
    definition
        .pointer("/spec/conversion/strategy")
        .and_then(Value::as_str)
        == Some("Webhook")
}

/// The versions with their schemas, in the order of the definition. An absent schema is empty.
pub(super) fn schemas(definition: &Value) -> impl Iterator<Item = (&str, &Value)> {
    versions(definition).map(|version| {
        let schema = version.pointer("/schema/openAPIV3Schema");
        (name(version), schema.unwrap_or(&Value::Null))
    })
}

/// The schema of a version.
pub(super) fn schema<'a>(definition: &'a Value, wanted: &str) -> Option<&'a Value> {
    schemas(definition)
        .find(|(name, _)| *name == wanted)
        .map(|(_, schema)| schema)
}

/// The served versions, oldest first.
pub(super) fn served_ascending(definition: &Value) -> Vec<(&str, &Value)> {
    let served: BTreeSet<&str> = served_names(definition).collect();
    let mut found: Vec<(&str, &Value)> = schemas(definition)
        .filter(|(name, _)| served.contains(name))
        .collect();
    found.sort_by(|(left, _), (right, _)| by_age(left, right));
    found
}

/// A field of a version that the replacement of the definition does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedField {
    /// The version.
    pub version: String,
    /// The path in the schema, `^.spec.field`.
    pub path: String,
}

/// The fields of the versions that both definitions have, as far as only the old one has them.
pub(super) fn removed_fields(old: &Value, new: &Value) -> Vec<RemovedField> {
    let mut removed = Vec::new();
    for (version, schema) in schemas(old) {
        let Some(replacement) = self::schema(new, version) else {
            continue;
        };
        let kept = flatten(replacement);
        let gone = flatten(schema).into_iter();
        let gone = gone.filter(|(place, _)| !kept.contains_key(place));
        removed.extend(gone.map(|(_, node)| RemovedField {
            version: version.to_owned(),
            path: node.path,
        }));
    }
    removed
}

/// Removed fields and versions, and a changed scope.
pub(super) fn definition_findings(old: &Value, new: &Value) -> Vec<Finding> {
    let finding = |check, message| Finding {
        location: FindingLocation::Definition,
        check,
        message,
    };
    let mut findings: Vec<Finding> = removed_fields(old, new)
        .into_iter()
        .map(|RemovedField { version, path }| {
            finding(
                Check::ExistingFieldRemoval,
                format!("removed field : {version}.{path}"),
            )
        })
        .collect();
    let scope = |definition: &Value| text(definition, "/spec/scope").to_owned();
    let (before, after) = (scope(old), scope(new));
    if before != after {
        findings.push(finding(
            Check::Scope,
            format!("scope changed : {before:?} -> {after:?}"),
        ));
    }
    let present: BTreeSet<&str> = names(new).collect();
    let gone = |names: Vec<&str>| {
        let gone: Vec<&str> = names.into_iter().filter(|name| !present.contains(name)).collect();
        (!gone.is_empty()).then(|| gone.join(" "))
    };
    if let Some(gone) = gone(stored(old).collect()) {
        findings.push(finding(
            Check::StoredVersionRemoval,
            format!("stored versions removed : [{gone}]"),
        ));
    }
    if let Some(gone) = gone(served_names(old).collect()) {
        findings.push(finding(
            Check::ServedVersionRemoval,
            format!("served versions removed : [{gone}]; a version must stop being served before it goes"),
        ));
    }
    findings
}

/// The stability of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Maturity {
    Alpha,
    Beta,
    Stable,
}

/// Kubernetes' own order: `v1alpha1`, `v1beta1`, `v1`, `v2`; names of another form are older than all of these.
fn by_age(left: &str, right: &str) -> Ordering {
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => right.cmp(left),
    }
}

fn parse(name: &str) -> Option<(Maturity, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let (maturity, major, minor) = if let Some((major, minor)) = rest.split_once("alpha") {
        (Maturity::Alpha, major, minor)
    } else if let Some((major, minor)) = rest.split_once("beta") {
        (Maturity::Beta, major, minor)
    } else {
        (Maturity::Stable, rest, "1")
    };
    Some((maturity, number(major)?, number(minor)?))
}

/// A number without a sign and without a leading zero.
fn number(text: &str) -> Option<u64> {
    if text.starts_with(['0', '+']) {
        None
    } else {
        text.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_age_as_kubernetes_has_it() {
        let mut names = [
            "v10",
            "v2",
            "v1",
            "v1beta2",
            "v1beta1",
            "v2alpha1",
            "v1alpha10",
            "v1alpha2",
            "foo",
            "v01",
            "bar",
        ];
        names.sort_by(|left, right| by_age(left, right));
        let expected = [
            "v01",
            "foo",
            "bar",
            "v1alpha2",
            "v1alpha10",
            "v2alpha1",
            "v1beta1",
            "v1beta2",
            "v1",
            "v2",
            "v10",
        ];
        assert_eq!(names, expected);
    }
}
