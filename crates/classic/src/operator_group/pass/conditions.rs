//! Conditions of OperatorGroups.

use serde_json::{Value, json};

use super::GroupPass;
use crate::cluster::{items, object_at, text};
use crate::names;

/// The condition of OperatorGroups that share a namespace.
const SEVERAL: &str = "MultipleOperatorGroup";

/// Marks all OperatorGroups of the namespace while there are several, and removes the mark from one that is left.
pub(super) fn mark_several(pass: &mut GroupPass<'_>, namespace: &str) {
    let groups: Vec<&Value> = pass
        .cluster
        .in_namespace(names::OPERATOR_GROUP_KIND, namespace)
        .collect();
    let are_several = groups.len() > 1;
    for group in groups {
        if has(group, SEVERAL) == are_several {
            continue;
        }
        let mut group = group.clone();
        if are_several {
            let message = "Multiple OperatorGroup found in the same namespace";
            let condition = condition(SEVERAL, "MultipleOperatorGroupsFound", message, &pass.now);
            set(&mut group, condition);
        } else {
            remove(&mut group, SEVERAL);
        }
        // A status must have it.
        if let Some(status) = object_at(&mut group, &["status"]) {
            status
                .entry("lastUpdated")
                .or_insert_with(|| pass.now.as_str().into());
        }
        if text(&group, "/metadata/name") == text(&pass.group, "/metadata/name") {
            pass.group = group.clone();
        }
        pass.changes.put(group);
    }
}

/// A condition that is true since now.
pub(super) fn condition(kind: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    })
}

/// Whether an OperatorGroup has a condition of this type.
pub(super) fn has(group: &Value, kind: &str) -> bool {
    items(group, "/status/conditions").any(|condition| text(condition, "/type") == kind)
}

/// Sets a condition. One of the same type keeps its time of transition while its status stays.
pub(super) fn set(group: &mut Value, mut condition: Value) {
    let mut conditions = all(group);
    let kind = text(&condition, "/type").to_owned();
    let existing = conditions
        .iter_mut()
        .find(|existing| text(existing, "/type") == kind);
    match existing {
        Some(existing) => {
            let since = existing.get("lastTransitionTime").cloned();
            if existing.get("status") == condition.get("status")
                && let Some((since, fields)) = since.zip(condition.as_object_mut())
            {
                fields.insert("lastTransitionTime".to_owned(), since);
            }
            *existing = condition;
        }
        None => conditions.push(condition),
    }
    write(group, conditions);
}

/// Removes the condition of this type.
pub(super) fn remove(group: &mut Value, kind: &str) {
    let mut conditions = all(group);
    conditions.retain(|condition| text(condition, "/type") != kind);
    write(group, conditions);
}

fn all(group: &Value) -> Vec<Value> {
    items(group, "/status/conditions").cloned().collect()
}

fn write(group: &mut Value, conditions: Vec<Value>) {
    if let Some(status) = object_at(group, &["status"]) {
        if conditions.is_empty() {
            status.remove("conditions");
        } else {
            status.insert("conditions".to_owned(), conditions.into());
        }
    }
}
