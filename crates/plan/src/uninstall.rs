//! The objects that a deletion of an extension removes, and its possible blockers.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::object::qualified_name;
use olm_preflight::crd_upgrade::definition_name;
use olm_rollout::policy::Uninstall;
use serde::Serialize;
use serde_json::Value;

use crate::change::ObjectName;
use crate::content::identified;
use crate::definitions::DefinedKinds;

/// The most objects that are named for a finalizer.
const EXAMPLES: usize = 3;
/// Finalizers that Kubernetes itself removes, whatever operators exist.
const OF_KUBERNETES: [&str; 2] = ["foregroundDeletion", "orphan"];
/// The domain of further finalizers of Kubernetes.
const KUBERNETES: &str = "kubernetes.io/";

/// The effects of a deletion.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UninstallPlan {
    /// The name of the ClusterExtension.
    pub extension: String,
    /// Objects that are deleted.
    pub removed: Vec<ObjectName>,
    /// Objects that stay on the cluster.
    pub left: Vec<ObjectName>,
    /// The kinds that the extension defines, with their stored objects.
    pub custom_resources: Vec<CustomResources>,
    /// Extensions that depend on it and block the deletion.
    pub dependents: Vec<Dependent>,
}

/// The objects of a kind that the extension defines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomResources {
    /// The name of the definition.
    pub definition: String,
    /// Whether they stay on the cluster.
    pub left: bool,
    /// The number of existing objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Finalizers that no controller removes after the operator is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<Finalizer>,
    /// Facts that could not be determined, with the reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A finalizer of custom resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finalizer {
    /// The name.
    pub name: String,
    /// The number of objects with the finalizer.
    pub objects: u64,
    /// Some of them, `NAMESPACE/NAME`.
    pub examples: Vec<String>,
}

/// An extension that depends on another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dependent {
    /// The name.
    pub extension: String,
    /// The requirement that it would lack.
    pub reason: String,
}

/// The stored objects of a kind, counted one by one.
#[derive(Debug, Default)]
pub struct StoredObjects {
    finalizers: BTreeMap<String, (u64, Vec<String>)>,
}

impl StoredObjects {
    /// Counts an object. Its metadata is enough.
    pub fn count(&mut self, object: &Value) {
        let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let names = list.into_iter().flatten().filter_map(Value::as_str);
        for finalizer in names.filter(|name| !OF_KUBERNETES.contains(name) && !name.starts_with(KUBERNETES)) {
            let (count, examples) = self.finalizers.entry(finalizer.to_owned()).or_default();
            *count += 1;
            if examples.len() < EXAMPLES {
                examples.push(qualified_name(object));
            }
        }
    }

    /// The finalizers of all counted objects.
    pub fn finalizers(self) -> Vec<Finalizer> {
        let finalizers = self.finalizers.into_iter();
        finalizers
            .map(|(name, (objects, examples))| Finalizer {
                name,
                objects,
                examples,
            })
            .collect()
    }
}

/// Plans a deletion. `objects` are those of the active revisions, `stored` the stored objects of a kind by the name of
/// its definition.
pub fn uninstall(
    extension: &str,
    policy: Uninstall,
    objects: &[&Value],
    stored: &BTreeMap<String, CustomResources>,
    dependents: Vec<Dependent>,
) -> UninstallPlan {
    let kinds = DefinedKinds::of(objects.iter().copied());
    let ids: BTreeSet<_> = objects.iter().map(|object| identified(object).0).collect();
    let (left, removed): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| match policy {
        Uninstall::Delete => false,
        Uninstall::Orphan => true,
        Uninstall::KeepCrds => kinds.concern(id),
    });
    let definitions: BTreeSet<&str> = objects
        .iter()
        .filter_map(|object| definition_name(object))
        .collect();
    let is_left = policy != Uninstall::Delete;
    let custom_resources = definitions.into_iter().map(|name| {
        let known = stored.get(name).cloned().unwrap_or_default();
        CustomResources {
            definition: name.to_owned(),
            left: is_left,
            // A finalizer does not block an object that is kept.
            finalizers: if is_left { Vec::new() } else { known.finalizers },
            ..known
        }
    });
    UninstallPlan {
        extension: extension.to_owned(),
        removed: removed.into_iter().map(ObjectName).collect(),
        left: left.into_iter().map(ObjectName).collect(),
        custom_resources: custom_resources.collect(),
        dependents,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects() -> Vec<Value> {
        let object = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        let mut definition = object(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "greetings.x.io",
        );
        definition["spec"] = json!({"group": "x.io", "names": {"kind": "Greeting", "plural": "greetings"}});
        Vec::from([
            definition,
            object("v1", "ConfigMap", "map"),
            object("x.io/v1", "Greeting", "default"),
        ])
    }

    #[test]
    fn the_policy_decides_which_objects_stay_and_only_removed_ones_wait_for_finalizers() {
        let mut seen = StoredObjects::default();
        for (name, finalizers) in [
            ("a", json!(["x.io/clean", "foregroundDeletion"])),
            ("b", json!(["x.io/clean", "kubernetes.io/pvc-protection"])),
            ("c", json!(null)),
        ] {
            seen.count(&json!({"metadata": {"name": name, "namespace": "n", "finalizers": finalizers}}));
        }
        let greetings = CustomResources {
            objects: Some(3),
            finalizers: seen.finalizers(),
            ..CustomResources::default()
        };
        let clean = Finalizer {
            name: "x.io/clean".to_owned(),
            objects: 2,
            examples: Vec::from(["n/a".to_owned(), "n/b".to_owned()]),
        };
        assert_eq!(greetings.finalizers, std::slice::from_ref(&clean));
        let stored = BTreeMap::from([("greetings.x.io".to_owned(), greetings)]);
        let objects = objects();
        let objects: Vec<&Value> = objects.iter().collect();
        for (policy, removed, left, held) in [
            (
                Uninstall::Delete,
                &["map", "greetings.x.io", "default"][..],
                &[][..],
                1,
            ),
            (Uninstall::KeepCrds, &["map"], &["greetings.x.io", "default"], 0),
            (Uninstall::Orphan, &[], &["map", "greetings.x.io", "default"], 0),
        ] {
            let plan = uninstall("ext", policy, &objects, &stored, Vec::new());
            let names =
                |list: &[ObjectName]| -> Vec<String> { list.iter().map(|id| id.0.name.clone()).collect() };
            assert_eq!(
                (names(&plan.removed), names(&plan.left)),
                (
                    removed.iter().map(ToString::to_string).collect(),
                    left.iter().map(ToString::to_string).collect()
                )
            );
            let greetings = &plan.custom_resources[0];
            assert_eq!(
                (greetings.objects, greetings.left, greetings.finalizers.len()),
                (Some(3), !left.is_empty(), held)
            );
        }
    }

    #[test]
    fn a_kind_of_which_nothing_is_known_is_named_without_a_number() {
        let objects = objects();
        let objects: Vec<&Value> = objects.iter().collect();
        let plan = uninstall("ext", Uninstall::Delete, &objects, &BTreeMap::new(), Vec::new());
        assert_eq!(
            serde_json::to_value(&plan.custom_resources).unwrap(),
            json!([{"definition": "greetings.x.io", "left": false}])
        );
    }
}
