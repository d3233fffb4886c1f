//! The copies of a member in the namespaces that its OperatorGroup selects.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::OperatorGroup;
use super::targets::select;
use crate::cluster::{Cluster, object_at, text};
use crate::csv::{COPIED, ClusterServiceVersion};
use crate::{hash, names, wire};

mod shapes;

pub(crate) use shapes::{PERMISSIONS, RULE, WEBHOOK};

/// Reasons of a ClusterServiceVersion that is not copied.
const UNCOPIABLE: &[&str] = &[
    COPIED,
    "CannotModifyStaticOperatorGroupProvidedAPIs",
    "InterOperatorGroupOwnerConflict",
    "InvalidInstallModes",
    "NoOperatorGroup",
    "NoTargetNamespaces",
    "TooManyOperatorGroups",
    "UnsupportedOperatorGroup",
];

/// Namespaces of copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyNamespaces {
    /// In these namespaces and no others.
    These(BTreeSet<String>),
    /// Their current namespaces; nothing is known yet.
    Kept,
}

/// Whether operators for all namespaces are copied.
#[derive(Debug, Clone, Copy)]
pub enum CopySwitch<'a> {
    /// They are.
    On,
    /// They are in these namespaces only.
    Off(&'a BTreeSet<String>),
}

/// The namespaces that have a copy of a ClusterServiceVersion.
pub fn copy_namespaces(
    csv: &ClusterServiceVersion,
    cluster: &Cluster,
    switch: CopySwitch<'_>,
) -> CopyNamespaces {
    const CONFLICT: &str = "InterOperatorGroupOwnerConflict";
    if csv.metadata.deletion_timestamp.is_some() || csv.status.reason == CONFLICT {
        return CopyNamespaces::These(BTreeSet::new());
    }
    let own = csv.metadata.namespace.as_str();
    let mut groups = cluster.in_namespace(names::OPERATOR_GROUP_KIND, own);
    let (Some(group), None) = (groups.next(), groups.next()) else {
        return CopyNamespaces::Kept;
    };
    let Ok(group) = OperatorGroup::read(group) else {
        return CopyNamespaces::Kept;
    };
    // It has lost its last namespace. One that has just been made selects some.
    if group.namespaces().is_empty() && select(&group, cluster).is_ok_and(|selected| selected.is_empty()) {
        return CopyNamespaces::These(BTreeSet::new());
    }
    if is_uncopiable(csv) || !is_annotated(csv, &group) {
        return CopyNamespaces::Kept;
    }
    let is_global = group.namespaces() == [""];
    let is_wanted = |name: &str| match switch {
        CopySwitch::Off(protected) if is_global => protected.contains(name),
        _ => is_global || group.namespaces().iter().any(|selected| selected == name),
    };
    let living = cluster
        .of_kind("Namespace")
        .filter(|namespace| text(namespace, "/metadata/deletionTimestamp").is_empty())
        .map(|namespace| text(namespace, "/metadata/name"));
    let wanted = living.filter(|name| *name != own && is_wanted(name));
    CopyNamespaces::These(wanted.map(str::to_owned).collect())
}

/// Whether a member has the annotations of its OperatorGroup.
pub fn is_annotated(csv: &ClusterServiceVersion, group: &OperatorGroup) -> bool {
    let wanted = [
        (
            names::OPERATOR_NAMESPACE_ANNOTATION,
            group.metadata.namespace.clone(),
        ),
        (names::OPERATOR_GROUP_ANNOTATION, group.metadata.name.clone()),
        (names::TARGET_NAMESPACES_ANNOTATION, group.targets_annotation()),
    ];
    wanted
        .iter()
        .all(|(key, value)| csv.metadata.annotations.get(*key) == Some(value))
}

/// The copy of a ClusterServiceVersion, for any namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    /// The object without its namespace.
    pub object: Value,
    /// The hash of name, labels, annotations and spec. Another one says that the copy must be written.
    pub content_hash: String,
    /// The hash of the status. Another one says that the status of the copy must be written.
    pub status_hash: String,
}

/// Whether it has no copies: it has no phase yet, is itself a copy, or does not fit its OperatorGroup.
pub fn is_uncopiable(csv: &ClusterServiceVersion) -> bool {
    csv.status.phase.is_empty() || UNCOPIABLE.contains(&csv.status.reason.as_str())
}

/// The copy of a ClusterServiceVersion. It has no owners and finalizers, and not the annotations that belong to the
/// original alone.
pub fn copy_of(original: &Value) -> Copy {
    let namespace = text(original, "/metadata/namespace");
    let mut labels = kept(original, "/metadata/labels", |key| {
        !key.starts_with(names::COMPONENT_LABEL_PREFIX)
    });
    labels.insert(names::COPIED_FROM_LABEL.to_owned(), namespace.into());
    let annotations = kept(original, "/metadata/annotations", |key| {
        key != names::TARGET_NAMESPACES_ANNOTATION && key != names::LAST_APPLIED_ANNOTATION
    });
    let mut object = json!({
        "apiVersion": names::CSV_API_VERSION,
        "kind": names::CSV_KIND,
        "metadata": {"name": text(original, "/metadata/name"), "labels": labels, "annotations": annotations},
        "spec": original.get("spec").unwrap_or(&Value::Null),
        "status": original.get("status").unwrap_or(&Value::Null),
    });
    if let Some(status) = object_at(&mut object, &["status"]) {
        status.insert("reason".to_owned(), COPIED.into());
        let message = format!("The operator is running in {namespace} but is managing this namespace");
        status.insert("message".to_owned(), message.into());
    }
    let [content_hash, status_hash] = hashes(&object);
    Copy {
        object,
        content_hash,
        status_hash,
    }
}

/// The hashes of a copy as it is on the wire: of its content and of its status.
pub fn hashes(copy: &Value) -> [String; 2] {
    let content = json!({"metadata": copy.get("metadata"), "spec": copy.get("spec")});
    let status = copy.get("status").unwrap_or(&Value::Null);
    [
        object_hash(&content, shapes::COPY),
        object_hash(status, shapes::STATUS),
    ]
}

fn kept(object: &Value, pointer: &str, keep: impl Fn(&str) -> bool) -> Map<String, Value> {
    let entries = object.pointer(pointer).and_then(Value::as_object);
    entries
        .into_iter()
        .flatten()
        .filter(|(key, _)| keep(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The hash of an object: of its text with a line feed.
fn object_hash(value: &Value, shape: wire::Shape) -> String {
    hash::text(&format!("{}\n", wire::write(value, shape)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Value {
        json!({
            "kind": "ClusterServiceVersion",
            "metadata": {
                "name": "c.v1",
                "namespace": "n",
                "uid": "u",
                "finalizers": ["f"],
                "labels": {"operators.coreos.com/p.n": "", "kept": "yes"},
                "annotations": {"olm.operatorGroup": "g", "olm.targetNamespaces": "x"},
            },
            "spec": {"displayName": "C"},
            "status": {"phase": "Succeeded", "reason": "InstallSucceeded"},
        })
    }

    #[test]
    fn a_copy_says_where_the_operator_runs() {
        let copy = copy_of(&original()).object;
        assert_eq!(
            copy["metadata"],
            json!({
                "name": "c.v1",
                "labels": {"kept": "yes", "olm.copiedFrom": "n"},
                "annotations": {"olm.operatorGroup": "g"},
            })
        );
        assert_eq!(copy["spec"], original()["spec"]);
        assert_eq!(
            copy["status"],
            json!({
                "phase": "Succeeded",
                "reason": "Copied",
                "message": "The operator is running in n but is managing this namespace",
            })
        );
    }

    #[test]
    fn copies_are_where_the_group_selects() {
        let member = |reason: &str, targets: &str| {
            let csv = json!({
                "metadata": {"name": "c", "namespace": "n", "annotations": {
                    "olm.operatorGroup": "g", "olm.operatorNamespace": "n", "olm.targetNamespaces": targets,
                }},
                "status": {"phase": "Succeeded", "reason": reason},
            });
            ClusterServiceVersion::read(&csv).unwrap()
        };
        let cluster = |namespaces: &[&str]| -> Cluster {
            let group = json!({
                "kind": "OperatorGroup", "metadata": {"name": "g", "namespace": "n"}, "status": {"namespaces": namespaces},
            });
            let of_name = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name}});
            ["n", "x", "y"].map(of_name).into_iter().chain([group]).collect()
        };
        let these =
            |names: &[&str]| CopyNamespaces::These(names.iter().map(|name| (*name).to_owned()).collect());
        let protected = BTreeSet::from(["y".to_owned()]);
        let global = cluster(&[""]);
        assert_eq!(
            copy_namespaces(&member("", ""), &global, CopySwitch::On),
            these(&["x", "y"])
        );
        assert_eq!(
            copy_namespaces(&member("", ""), &global, CopySwitch::Off(&protected)),
            these(&["y"])
        );
        let some = cluster(&["n", "x", "z"]);
        assert_eq!(
            copy_namespaces(&member("", "n,x,z"), &some, CopySwitch::Off(&protected)),
            these(&["x"])
        );
        assert_eq!(
            copy_namespaces(&member("", "n"), &some, CopySwitch::On),
            CopyNamespaces::Kept
        );
        assert_eq!(
            copy_namespaces(
                &member("InterOperatorGroupOwnerConflict", ""),
                &global,
                CopySwitch::On
            ),
            these(&[])
        );
    }

    #[test]
    fn each_hash_covers_its_part() {
        let first = copy_of(&original());
        let mut other = original();
        other["metadata"]["uid"] = json!("v");
        assert_eq!(copy_of(&other), first);
        other["status"]["phase"] = json!("Failed");
        let failed = copy_of(&other);
        assert_eq!(failed.content_hash, first.content_hash);
        assert_ne!(failed.status_hash, first.status_hash);
        other["spec"]["displayName"] = json!("D");
        assert_ne!(copy_of(&other).content_hash, first.content_hash);
    }

    #[test]
    fn a_member_without_a_phase_or_outside_its_group_is_not_copied() {
        for (phase, reason, expected) in [
            ("", "", true),
            ("Failed", "UnsupportedOperatorGroup", true),
            ("Failed", "InstallCheckFailed", false),
            ("Pending", "RequirementsNotMet", false),
        ] {
            let csv = json!({"status": {"phase": phase, "reason": reason}});
            let csv = ClusterServiceVersion::read(&csv).unwrap();
            assert_eq!(is_uncopiable(&csv), expected, "{phase}/{reason}");
        }
    }
}
