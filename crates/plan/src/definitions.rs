//! The effect of a change on custom resource definitions and on stored objects.

use std::collections::{BTreeMap, BTreeSet};

use olm_preflight::crd_upgrade::migration::{Migration, migration};
use olm_preflight::crd_upgrade::{Check, Policy, compare, definition_name};
use olm_rollout::object::ObjectId;
use serde::Serialize;
use serde_json::{Value, json};

use crate::content::unmarked_bytes;

/// The severity of the changes of all definitions. It depends only on the two revisions, so it does not change while
/// users write objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Class {
    /// No definition is added, removed or changed.
    #[default]
    None,
    /// Stored objects stay valid.
    Safe,
    /// Stored objects may become invalid, lose fields, or be deleted with their definition.
    Breaking,
}

/// The change of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Effect {
    /// The definition is added.
    Added,
    /// The definition changes.
    Changed,
    /// The definition is deleted, with all objects of its kind.
    Deleted,
    /// The bundle lacks it, and it stays on the cluster.
    Left,
}

/// A definition that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefinitionChange {
    /// The name.
    pub name: String,
    /// The change.
    pub effect: Effect,
    /// Findings that may break stored objects, compared with the old revision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// The number of existing objects of its kind; none if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
}

/// The changes of the definitions among the objects. With `is_left`, definitions that the new revision lacks stay on
/// the cluster.
pub fn definitions(before: &[&Value], after: &[&Value], is_left: bool) -> (Class, Vec<DefinitionChange>) {
    let (old, new) = (named(before), named(after));
    let mut changes = Vec::new();
    let mut class = Class::None;
    let mut add = |name: &str, effect: Effect, findings: Vec<String>| {
        let is_breaking = effect == Effect::Deleted || !findings.is_empty();
        class = class.max(if is_breaking { Class::Breaking } else { Class::Safe });
        changes.push(DefinitionChange {
            name: name.to_owned(),
            effect,
            findings,
            objects: None,
        });
    };
    for (name, definition) in &new {
        match old.get(name) {
            None => add(name, Effect::Added, Vec::new()),
            Some(before) if is_same(before, definition) => {}
            Some(before) => add(name, Effect::Changed, findings(before, definition)),
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        let effect = if is_left { Effect::Left } else { Effect::Deleted };
        add(name, effect, Vec::new());
    }
    changes.sort_by(|left, right| left.name.cmp(&right.name));
    (class, changes)
}

fn named<'v>(objects: &[&'v Value]) -> BTreeMap<&'v str, &'v Value> {
    let definitions = objects
        .iter()
        .filter_map(|object| Some((definition_name(object)?, *object)));
    definitions.collect()
}

fn is_same(before: &Value, after: &Value) -> bool {
    unmarked_bytes(before) == unmarked_bytes(after)
}

/// The unsafe changes, whatever the policy of the extension allows. Objects may be stored in the storage version of the
/// old definition; if they can be migrated, that version may go.
fn findings(before: &Value, after: &Value) -> Vec<String> {
    let mut before = before.clone();
    let versions = before.pointer("/spec/versions").and_then(Value::as_array);
    let is_storage = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    let storage = versions.into_iter().flatten().find(is_storage);
    let storage = storage.and_then(|version| version.get("name")).cloned();
    if let Some(fields) = before.as_object_mut() {
        let stored: Vec<Value> = storage.into_iter().collect();
        fields.insert("status".to_owned(), json!({ "storedVersions": stored }));
    }
    let mut found = compare(&before, after, &Policy::default());
    if let Migration::Possible(_) = migration(&before, after) {
        found.retain(|finding| finding.check != Check::StoredVersionRemoval);
    }
    found.iter().map(ToString::to_string).collect()
}

/// The kinds that definitions among objects define, by group and kind.
pub(crate) struct DefinedKinds<'v>(BTreeSet<(&'v str, &'v str)>);

impl<'v> DefinedKinds<'v> {
    pub(crate) fn of(objects: impl IntoIterator<Item = &'v Value>) -> Self {
        let definitions = objects
            .into_iter()
            .filter(|object| definition_name(object).is_some());
        let kinds = definitions.filter_map(|definition| {
            let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
            Some((text("/spec/group")?, text("/spec/names/kind")?))
        });
        Self(kinds.collect())
    }

    /// Whether an object is a definition, or of a kind that one of these defines. An extension can keep such objects.
    pub(crate) fn concern(&self, id: &ObjectId) -> bool {
        (id.group == "apiextensions.k8s.io" && id.kind == "CustomResourceDefinition")
            || self.0.contains(&(id.group.as_str(), id.kind.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, versions: &Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}, "spec": {"group": "x.io", "names": {"plural": name}, "versions": versions},
        })
    }

    fn version(name: &str, required: &[&str]) -> Value {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": required});
        json!({"name": name, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}})
    }

    #[track_caller]
    fn check(before: &[&Value], after: &[&Value], is_left: bool, class: Class, expected: &[&str]) {
        let (found, changes) = definitions(before, after, is_left);
        let lines: Vec<String> = changes
            .iter()
            .map(|change| {
                format!(
                    "{:?} {} {}",
                    change.effect,
                    change.name,
                    change.findings.join("; ")
                )
            })
            .collect();
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        assert_eq!((found, lines), (class, expected.to_vec()));
    }

    #[test]
    fn the_gravest_change_decides_the_class() {
        let v1 = definition("greetings", &json!([version("v1", &[])]));
        let described = {
            let mut described = v1.clone();
            described["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] =
                json!("Greetings.");
            described
        };
        let strict = definition("greetings", &json!([version("v1", &["a"])]));
        let other = definition("greetings", &json!([version("v2", &[])]));
        let backups = definition("backups", &json!([version("v1", &[])]));
        check(&[], &[], false, Class::None, &[]);
        check(&[&v1], &[&v1], false, Class::None, &[]);
        check(&[], &[&v1], false, Class::Safe, &["Added greetings"]);
        check(&[&v1], &[&described], false, Class::Safe, &["Changed greetings"]);
        let required = "Changed greetings v1: ^: required: new required fields: [a]";
        check(
            &[&v1],
            &[&strict, &backups],
            false,
            Class::Breaking,
            &["Added backups", required],
        );
        let removed =
            "Changed greetings storedVersionRemoval: stored versions removed : [v1]; servedVersionRemoval";
        let (class, changes) = definitions(&[&v1], &[&other], false);
        let text = format!("Changed greetings {}", changes[0].findings.join("; "));
        assert!(class == Class::Breaking && text.starts_with(removed), "{text}");
        check(
            &[&v1, &backups],
            &[&v1],
            false,
            Class::Breaking,
            &["Deleted backups"],
        );
        check(&[&v1, &backups], &[&v1], true, Class::Safe, &["Left backups"]);
    }
}
