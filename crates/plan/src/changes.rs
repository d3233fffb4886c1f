//! The differences between a new revision and the installed one: added, removed and changed objects. Pure.

use std::collections::BTreeMap;
use std::fmt;

use olm_api::text::counted;
use olm_rollout::object::ObjectId;
use olm_rollout::report;
use serde_json::Value;

use crate::content::{identified, unmarked_bytes};

/// The differences between the objects of two revisions; each list in the order of identities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Objects that only the new revision has.
    pub added: Vec<ObjectId>,
    /// Objects that both have and that differ.
    pub changed: Vec<ObjectId>,
    /// Objects that only the old revision has.
    pub removed: Vec<ObjectId>,
}

/// Compares two revisions. Marks of a revision do not count.
pub fn changes<'v>(
    before: impl IntoIterator<Item = &'v Value>,
    after: impl IntoIterator<Item = &'v Value>,
) -> Changes {
    let before: BTreeMap<ObjectId, &Value> = before.into_iter().map(identified).collect();
    let after: BTreeMap<ObjectId, &Value> = after.into_iter().map(identified).collect();
    let mut changes = Changes::default();
    for (id, object) in &after {
        match before.get(id) {
            None => changes.added.push(id.clone()),
            Some(present) if unmarked_bytes(present) != unmarked_bytes(object) => {
                changes.changed.push(id.clone());
            }
            Some(_) => {}
        }
    }
    changes.removed = before.into_keys().filter(|id| !after.contains_key(id)).collect();
    changes
}

impl Changes {
    /// Whether the object is added or changed.
    pub fn touches(&self, object: &Value) -> bool {
        let (id, _) = identified(object);
        self.added.binary_search(&id).is_ok() || self.changed.binary_search(&id).is_ok()
    }
}

impl fmt::Display for Changes {
    /// `adds 1 object (…), changes 2 objects (…), removes nothing`. Objects are named if there are few.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("adds", &self.added),
            ("changes", &self.changed),
            ("removes", &self.removed),
        ];
        for (index, (verb, ids)) in lists.into_iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match ids.len() {
                0 => write!(f, "{verb} nothing")?,
                count => {
                    let count = counted(count, "object");
                    write!(f, "{verb} {count} ({})", report::short_names(ids))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use olm_api::names::annotation;
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, content: &str, version: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": kind, "data": content,
            "metadata": {"name": name, "namespace": "n", "annotations": {annotation::BUNDLE_VERSION: version}},
        })
    }

    #[test]
    fn added_removed_and_changed_objects_are_named_without_marks() {
        let before = [
            object("ConfigMap", "kept", "a", "1.0.0"),
            object("ConfigMap", "other", "a", "1.0.0"),
            object("Secret", "old", "a", "1.0.0"),
        ];
        let mut after = vec![
            object("ConfigMap", "kept", "a", "2.0.0"),
            object("ConfigMap", "other", "b", "2.0.0"),
        ];
        let text = changes(&before, &after).to_string();
        assert_eq!(
            text,
            "adds nothing, changes 1 object (ConfigMap n/other), removes 1 object (Secret n/old)"
        );
        after.extend((0..20).map(|number| object("Role", &format!("r{number}"), "", "2.0.0")));
        let found = changes(&before, &after);
        let text = found.to_string();
        assert!(
            text.starts_with("adds 20 objects (Role n/r0, ") && text.contains(" and 10 more)"),
            "{text}"
        );
        assert!(found.touches(&after[1]) && found.touches(&after[2]) && !found.touches(&after[0]));
    }
}
