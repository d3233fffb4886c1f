//! Whether custom resource definitions can go back to those of an older revision.
//!
//! A rollback is not an upgrade in reverse. It may lose fields that the newer version added, if the user accepts that.
//! It can never drop a version in which objects are stored.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::{Check, Finding, Policy, compare, definition_name};

/// The effect of a rollback on one definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdRollback {
    /// The definition's name.
    pub definition: String,
    /// The effect.
    pub effect: RollbackEffect,
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
}

impl fmt::Display for CrdRollback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, findings) = match &self.effect {
            RollbackEffect::Impossible(findings) => ("cannot go back", findings.as_slice()),
            RollbackEffect::Lossy(findings) => ("loses when it goes back", findings.as_slice()),
            RollbackEffect::Deleted => ("is deleted with all its objects", &[][..]),
        };
        write!(formatter, "CRD {:?} {what}", self.definition)?;
        for (index, finding) in findings.iter().enumerate() {
            formatter.write_str(if index == 0 { ": " } else { "\n" })?;
            finding.fmt(formatter)?;
        }
        Ok(())
    }
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
        let definition = definition.to_owned();
        found.push(CrdRollback { definition, effect });
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
        let more = json!({"a": {"type": "string"}, "b": {}});
        let check = |live: &Value, older: &Value, expected: &[&str]| {
            let current = [live.clone()];
            let found = rollback_effects(&current, std::slice::from_ref(older), |_| Some(live));
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(texts, expected);
        };
        let old = definition("x", &["v1"], &text, &["v1"]);
        check(&old, &old, &[]);
        check(
            &definition("x", &["v1"], &more, &["v1"]),
            &old,
            &["CRD \"x\" loses when it goes back: existingFieldRemoval: removed field : v1.^.b"],
        );
        check(
            &definition("x", &["v1", "v2"], &more, &["v1", "v2"]),
            &old,
            &["CRD \"x\" cannot go back: storedVersionRemoval: stored versions removed : [v2]"],
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
                effect: RollbackEffect::Deleted
            }]
        );
        assert!(found.iter().all(CrdRollback::is_possible));
        assert_eq!(rollback_effects(&current, &older, |_| None), []);
    }
}
