//! The steps before a definition may drop a version in which objects are stored.

use std::collections::BTreeSet;

use olm_api::object::text;
use serde_json::Value;

use super::version;
use crate::permissions::Right;
use crate::rules::{Access, Object};

/// The API group of CRDs.
const EXTENSIONS: &str = "apiextensions.k8s.io";

/// The migration of the versions that a new definition drops, out of `status.storedVersions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Migration {
    /// No stored version is dropped.
    Needless,
    /// Every object must be written once more, which stores it in another version; then the list must be cleaned.
    Possible(Rewrite),
    /// The definition cannot be replaced before a user acts.
    Impossible {
        /// The stored versions that the new definition drops.
        gone: Vec<String>,
        /// The reason, with a hint.
        reason: String,
    },
}

/// Objects that must be written once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// The definition's name.
    pub definition: String,
    /// The group.
    pub group: String,
    /// The plural.
    pub plural: String,
    /// A served version by which to list and write the objects.
    pub served: String,
    /// The version in which the API server stores them afterwards.
    pub storage: String,
    /// The versions that leave the list.
    pub gone: Vec<String>,
    /// The content of the list afterwards.
    pub kept: Vec<String>,
}

impl Rewrite {
    /// The versions that leave the list: `version v1`, `versions v1, v2`.
    #[must_use]
    pub fn versions(&self) -> String {
        let plural = if self.gone.len() == 1 { "" } else { "s" };
        format!("version{plural} {}", self.gone.join(", "))
    }

    /// The rights that it needs: to write every object, and to clean the list of stored versions.
    #[must_use]
    pub fn rights(&self) -> [Right; 3] {
        let right = |verb: &str, group: &str, resource: &str, name: Option<&String>| Right {
            namespace: None,
            access: Access {
                verb: verb.to_owned(),
                object: Object::Resource {
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    name: name.cloned(),
                },
            },
        };
        let list = "customresourcedefinitions/status";
        [
            right("list", &self.group, &self.plural, None),
            right("patch", &self.group, &self.plural, None),
            right("patch", EXTENSIONS, list, Some(&self.definition)),
        ]
    }
}

/// The migration before `new` replaces `old`, the definition on the cluster.
#[must_use]
pub fn migration(old: &Value, new: &Value) -> Migration {
    let present: BTreeSet<&str> = version::names(new).collect();
    let (kept, gone): (Vec<&str>, Vec<&str>) =
        version::stored(old).partition(|version| present.contains(version));
    let owned = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
    if gone.is_empty() {
        return Migration::Needless;
    }
    let shown = gone.join(" ");
    let impossible = |reason: String| Migration::Impossible {
        gone: owned(gone.clone()),
        reason,
    };
    let Some(storage) = version::storage(old) else {
        return impossible(format!(
            "objects may be stored as [{shown}], and the definition names no version to store them in"
        ));
    };
    if !present.contains(storage) {
        return impossible(format!(
            "objects are stored as {storage}, which the new definition lacks: first install a version whose definition \
             has {storage} and stores objects in another version"
        ));
    }
    let served = version::served_names(old).find(|served| *served == storage);
    let Some(served) = served.or_else(|| version::served_names(old).next()) else {
        return impossible(format!(
            "objects may be stored as [{shown}] and cannot be migrated, because no version of the definition is served"
        ));
    };
    let text = |pointer: &str| text(old, pointer).to_owned();
    let mut kept = kept;
    if !kept.contains(&storage) {
        kept.push(storage);
    }
    Migration::Possible(Rewrite {
        definition: text("/metadata/name"),
        group: text("/spec/group"),
        plural: text("/spec/names/plural"),
        served: served.to_owned(),
        storage: storage.to_owned(),
        gone: owned(gone),
        kept: owned(kept),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Versions as (name, served, storage).
    fn definition(versions: &[(&str, bool, bool)], stored: &[&str]) -> Value {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(name, served, storage)| json!({"name": name, "served": served, "storage": storage}))
            .collect();
        json!({
            "metadata": {"name": "greetings.example.com"},
            "spec": {"group": "example.com", "names": {"plural": "greetings"}, "versions": versions},
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn a_stored_version_leaves_the_list_only_when_objects_can_be_stored_in_another() {
        let check = |old: Value, expected: Result<(&str, &[&str]), &str>| {
            let new = definition(&[("v2", true, true), ("v3", true, false)], &[]);
            match (migration(&old, &new), expected) {
                (Migration::Possible(rewrite), Ok((served, kept))) => {
                    assert_eq!(
                        (rewrite.served.as_str(), rewrite.plural.as_str()),
                        (served, "greetings")
                    );
                    assert_eq!(rewrite.kept, kept);
                    assert_eq!(rewrite.gone, ["v1"]);
                }
                (Migration::Needless, Err("")) => {}
                (Migration::Impossible { reason, .. }, Err(part)) if !part.is_empty() => {
                    assert!(reason.contains(part), "{reason}");
                }
                (other, expected) => panic!("{other:?} {expected:?}"),
            }
        };
        let moved = [("v1", false, false), ("v2", true, true)];
        check(definition(&moved, &["v1", "v2"]), Ok(("v2", &["v2"])));
        check(definition(&moved, &["v1"]), Ok(("v2", &["v2"])));
        check(definition(&moved, &["v2"]), Err(""));
        check(
            definition(&[("v1", true, false), ("v2", false, true)], &["v1", "v2"]),
            Ok(("v1", &["v2"])),
        );
        check(
            definition(&[("v1", true, true)], &["v1"]),
            Err("first install a version whose definition has v1"),
        );
        check(
            definition(&[("v1", false, false), ("v2", false, true)], &["v1", "v2"]),
            Err("no version of the definition is served"),
        );
    }
}
