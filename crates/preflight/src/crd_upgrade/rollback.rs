//! Whether custom resource definitions can go back to those of an older revision.
//!
//! A rollback is not an upgrade in reverse. It may lose fields that the newer version added, if the user accepts that.
//! It can never drop a version in which objects are stored.

use std::collections::BTreeSet;

use olm_api::text::escape;
use serde_json::Value;

use super::version::{RemovedField, removed_fields};
use super::{Check, Finding, FindingLocation, Policy, compare, definition_name};

/// The effect of a rollback on one definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdRollback {
    /// The definition's name.
    pub definition: String,
    /// The effect.
    pub effect: RollbackEffect,
    /// The fields that go away with their values, those inside one another once.
    pub removed_fields: Vec<RemovedField>,
}

/// The effect of a rollback on a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackEffect {
    /// The API server would refuse the older definition, or could no longer read stored objects.
    Impossible(Vec<Finding>),
    /// The rollback is possible; objects may lose fields or become invalid.
    Lossy(Vec<Finding>),
    /// The older revision does not have the definition: it is deleted with all its objects.
    Deleted,
}

impl CrdRollback {
    /// Whether the definition can go back.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        !matches!(self.effect, RollbackEffect::Impossible(_))
    }

    /// The effects for users, one a line.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let findings = match &self.effect {
            RollbackEffect::Deleted => {
                return vec![
                    "it is deleted with all its objects: the older version does not have it".to_owned(),
                ];
            }
            RollbackEffect::Impossible(findings) => {
                let lines = findings.iter().map(|finding| &finding.message);
                return lines
                    .map(|message| escape(&format!("it cannot go back: {message}")).into_owned())
                    .collect();
            }
            RollbackEffect::Lossy(findings) => findings,
        };
        let removed = self.removed_fields.iter();
        let removed = removed.map(|field| format!("{} ({}) goes away", shown(&field.path), field.version));
        let others = findings.iter().filter_map(|finding| match &finding.location {
            FindingLocation::Definition if finding.check == Check::ExistingFieldRemoval => None,
            FindingLocation::Definition => Some(finding.message.clone()),
            FindingLocation::Property { path, .. } if self.is_removed(path) => None,
            FindingLocation::Property { version, path } => {
                Some(format!("{} ({version}): {}", shown(path), finding.message))
            }
        });
        removed
            .chain(others)
            .map(|line| escape(&line).into_owned())
            .collect()
    }

    /// Whether a field goes away, alone or with another one around it.
    fn is_removed(&self, path: &str) -> bool {
        self.removed_fields
            .iter()
            .any(|field| is_within(path, &field.path))
    }
}

/// Whether a path in a schema is another one, or leads further from there.
fn is_within(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A path in a schema, in the words of users.
fn shown(path: &str) -> String {
    match path.strip_prefix("^.") {
        Some(field) => format!("field {field}"),
        None => "the object".to_owned(),
    }
}

/// The removed fields, those inside one another once.
fn outermost(removed: Vec<RemovedField>) -> Vec<RemovedField> {
    let mut kept: Vec<RemovedField> = Vec::new();
    for field in removed {
        let is_inside =
            |outer: &RemovedField| outer.version == field.version && is_within(&field.path, &outer.path);
        if !kept.iter().any(is_inside) {
            kept.push(field);
        }
    }
    kept
}

/// The effects of a rollback from the objects of the `current` revision to those of an `older` one, in the order of the
/// older revision. Definitions that lose nothing are left out.
///
/// `existing` returns the definition with a name on the cluster, whose status has the stored versions. A missing
/// definition can go back.
pub fn rollback_effects<'a>(
    current: &[Value],
    older: &[Value],
    existing: impl Fn(&str) -> Option<&'a Value>,
) -> Vec<CrdRollback> {
    let mut found = Vec::new();
    for object in older {
        let Some(definition) = definition_name(object) else {
            continue;
        };
        let Some(live) = existing(definition) else {
            continue;
        };
        let findings = compare(live, object, &Policy::default());
        let (hard, soft): (Vec<_>, Vec<_>) = findings
            .into_iter()
            .partition(|finding| matches!(finding.check, Check::StoredVersionRemoval | Check::Scope));
        let effect = match (hard.is_empty(), soft.is_empty()) {
            (false, _) => RollbackEffect::Impossible(hard),
            (true, false) => RollbackEffect::Lossy(soft),
            (true, true) => continue,
        };
        found.push(CrdRollback {
            definition: definition.to_owned(),
            effect,
            removed_fields: outermost(removed_fields(live, object)),
        });
    }
    let kept: BTreeSet<&str> = older.iter().filter_map(definition_name).collect();
    let gone = current
        .iter()
        .filter_map(definition_name)
        .filter(|name| !kept.contains(name));
    found.extend(
        gone.filter(|name| existing(name).is_some())
            .map(|name| CrdRollback {
                definition: name.to_owned(),
                effect: RollbackEffect::Deleted,
                removed_fields: Vec::new(),
            }),
    );
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str, versions: &[&str], fields: &Value, stored: &[&str]) -> Value {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                json!({
                    "name": version, "served": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
                })
            })
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"scope": "Namespaced", "versions": versions},
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn a_stored_version_blocks_a_rollback_and_added_fields_are_lost() {
        let text = json!({"a": {"type": "string"}});
        let more = json!({
            "a": {"type": "integer"}, "b": {"type": "object", "properties": {"c": {"type": "string"}}},
        });
        let check = |live: &Value, older: &Value, expected: &[&str]| {
            let current = [live.clone()];
            let found = rollback_effects(&current, std::slice::from_ref(older), |_| Some(live));
            let lines: Vec<String> = found.iter().flat_map(CrdRollback::lines).collect();
            assert_eq!(lines, expected);
        };
        let old = definition("x", &["v1"], &text, &["v1"]);
        check(&old, &old, &[]);
        // A field within one that goes away is not repeated, nor are its type and the like.
        check(
            &definition("x", &["v1"], &more, &["v1"]),
            &old,
            &[
                "field b (v1) goes away",
                "field a (v1): type changed : \"integer\" -> \"string\"",
            ],
        );
        check(
            &definition("x", &["v1", "v2"], &more, &["v1", "v2"]),
            &old,
            &["it cannot go back: stored versions removed : [v2]"],
        );
    }

    #[test]
    fn a_definition_that_the_older_revision_does_not_have_is_deleted() {
        let [kept, new] = ["kept", "new"].map(|name| definition(name, &["v1"], &json!({}), &["v1"]));
        let current = [kept.clone(), new];
        let older = [kept];
        let live = |name: &str| {
            current
                .iter()
                .find(|object| definition_name(object) == Some(name))
        };
        let found = rollback_effects(&current, &older, live);
        assert_eq!(
            found,
            [CrdRollback {
                definition: "new".to_owned(),
                effect: RollbackEffect::Deleted,
                removed_fields: Vec::new(),
            }]
        );
        assert!(found.iter().all(CrdRollback::is_possible));
        assert_eq!(rollback_effects(&current, &older, |_| None), []);
    }
}
