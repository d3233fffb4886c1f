//! One custom resource definition, one extension (requirements 5.04, 7.51).
//!
//! Custom resource definitions are global. Two operators that each believe one to be theirs would rewrite it, and the
//! objects stored in it, against one another.

use olm_api::names::{CLUSTER_EXTENSION, label};
use serde_json::Value;

/// The extension that an object on the cluster belongs to, by its labels. `None` for objects made by others.
#[must_use]
pub fn owner(object: &Value) -> Option<&str> {
    let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
    if label(label::OWNER_KIND)? == CLUSTER_EXTENSION {
        label(label::OWNER_NAME)
    } else {
        None
    }
}

/// A custom resource definition that is about to be applied belongs to another extension.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("custom resource definition {definition:?} is owned by ClusterExtension {owner:?}")]
pub struct Conflict {
    /// The definition's name.
    pub definition: String,
    /// The other extension.
    pub owner: String,
}

/// The custom resource definitions among `objects` that another extension than `extension` owns, sorted by name.
///
/// `existing` are the definitions of these names that the cluster has; what else is in it is not looked at.
#[must_use]
pub fn conflicts(extension: &str, objects: &[Value], existing: &[Value]) -> Vec<Conflict> {
    let name = |object: &Value| {
        object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let is_definition =
        |object: &&Value| object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition");
    let mut wanted: Vec<String> = objects.iter().filter(is_definition).filter_map(name).collect();
    wanted.sort();
    wanted.dedup();
    wanted
        .into_iter()
        .filter_map(|definition| {
            let found = existing
                .iter()
                .find(|object| name(object).as_deref() == Some(&definition))?;
            let owner = owner(found).filter(|owner| *owner != extension)?.to_owned();
            Some(Conflict { definition, owner })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(name: &str, owner: Option<(&str, &str)>) -> Value {
        let mut object = json!({"kind": "CustomResourceDefinition", "metadata": {"name": name}});
        if let Some((kind, owner)) = owner {
            object["metadata"]["labels"] = json!({label::OWNER_KIND: kind, label::OWNER_NAME: owner});
        }
        object
    }

    #[test]
    fn a_definition_of_another_extension_is_refused_by_name() {
        let objects = [
            definition("kettles.example.com", None),
            definition("cups.example.com", None),
            json!({"kind": "ConfigMap", "metadata": {"name": "pots.example.com"}}),
        ];
        let theirs = Some(("ClusterExtension", "theirs"));
        let check = |existing: &[Value], expected: &[&str]| {
            let found: Vec<String> = conflicts("ours", &objects, existing)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected);
        };
        check(&[], &[]);
        check(
            &[definition(
                "kettles.example.com",
                Some(("ClusterExtension", "ours")),
            )],
            &[],
        );
        check(&[definition("kettles.example.com", None)], &[]);
        check(
            &[definition(
                "kettles.example.com",
                Some(("ClusterCatalog", "theirs")),
            )],
            &[],
        );
        check(
            &[
                definition("pots.example.com", theirs),
                definition("pans.example.com", theirs),
            ],
            &[],
        );
        check(
            &[
                definition("kettles.example.com", theirs),
                definition("cups.example.com", theirs),
            ],
            &[
                "custom resource definition \"cups.example.com\" is owned by ClusterExtension \"theirs\"",
                "custom resource definition \"kettles.example.com\" is owned by ClusterExtension \"theirs\"",
            ],
        );
    }
}
