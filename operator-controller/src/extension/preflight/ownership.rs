//! The rule that at most one extension owns a CustomResourceDefinition.

use std::collections::BTreeMap;

use olm_api::names::{CLUSTER_EXTENSION, label};
use serde_json::Value;

/// Other extensions own CRDs of the bundle. The text begins as the one of the reference implementation, which collides
/// with them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("revision object collisions in phase {phase}\nother extensions provide kinds of this bundle: {}; only one extension may provide a kind: delete the ClusterExtension that you do not want", list(.owners))]
pub(crate) struct OwnershipError {
    /// The first phase with such a CRD.
    phase: usize,
    /// CRD: owner.
    owners: BTreeMap<String, String>,
}

fn list(kinds: &BTreeMap<String, String>) -> String {
    let item = |(definition, owner): (&String, &String)| {
        format!("CustomResourceDefinition {definition:?} belongs to ClusterExtension {owner:?}")
    };
    kinds.iter().map(item).collect::<Vec<_>>().join(", ")
}

/// Checks whether another extension owns a CRD on the cluster (by name). CRDs of an extension that no longer exists are
/// judged when they are applied. `phase` is the index of the phase with a CRD.
pub(crate) fn kinds(
    live: &BTreeMap<String, Value>,
    extension: &str,
    exists: impl Fn(&str) -> bool,
    phase: impl Fn(&str) -> usize,
) -> Result<(), OwnershipError> {
    let taken: BTreeMap<String, String> = live
        .iter()
        .filter_map(|(name, definition)| Some((name.clone(), owner(definition)?.to_owned())))
        .filter(|(_, owner)| owner != extension && exists(owner))
        .collect();
    if taken.is_empty() {
        Ok(())
    } else {
        Err(OwnershipError {
            phase: taken.keys().map(|name| phase(name)).min().unwrap_or_default(),
            owners: taken,
        })
    }
}

/// The extension in the labels of a live object.
fn owner(object: &Value) -> Option<&str> {
    let labels = object.pointer("/metadata/labels")?;
    let value = |key: &str| labels.get(key).and_then(Value::as_str);
    (value(label::OWNER_KIND) == Some(CLUSTER_EXTENSION)).then_some(())?;
    value(label::OWNER_NAME).filter(|owner| !owner.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_of_another_extension_is_refused() {
        let check = |kind: &str, owner: &str, expected: Option<&str>| {
            let labels = json!({label::OWNER_KIND: kind, label::OWNER_NAME: owner});
            let live = BTreeMap::from([
                ("x.y".to_owned(), json!({"metadata": {"labels": labels}})),
                ("a.b".to_owned(), json!({"metadata": {}})),
            ]);
            let found = kinds(&live, "ours", |owner| owner != "gone", |_| 2);
            let expected = expected.map(|owner| OwnershipError {
                phase: 2,
                owners: BTreeMap::from([("x.y".to_owned(), owner.to_owned())]),
            });
            assert_eq!(found.err(), expected);
        };
        check(CLUSTER_EXTENSION, "theirs", Some("theirs"));
        check(CLUSTER_EXTENSION, "ours", None);
        check(CLUSTER_EXTENSION, "gone", None);
        check(CLUSTER_EXTENSION, "", None);
        check("Other", "theirs", None);
    }
}
