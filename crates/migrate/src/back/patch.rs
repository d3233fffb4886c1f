//! One object during the return: a change of its metadata only. Pure.

use olm_api::names::{field_manager, label};
use olm_classic::names::{CSV_API_VERSION, CSV_KIND, OWNER_LABEL};
use serde_json::{Map, Value, json};

use crate::facts::{list, name, text};
use crate::objects::backup::ClassicRecord;
use crate::objects::reduce::is_ours;

/// The owners of the objects of an operator before and after the return.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owners<'a> {
    /// The name of the ClusterExtension.
    pub(crate) extension: &'a str,
    /// The UID of its revision, if any.
    pub(crate) revision: Option<&'a str>,
    /// The ClusterServiceVersion.
    pub(crate) version: &'a Value,
}

/// Whether an object belongs to the ClusterExtension or the ClusterServiceVersion, by its owners or its labels. A user
/// may have deleted it and created another one with its name.
pub(crate) fn is_of_operator(live: &Value, owners: Owners<'_>) -> bool {
    let uids = [owners.revision, Some(text(owners.version, "/metadata/uid"))];
    let mut present = list(live, "/metadata/ownerReferences").iter();
    let label_of = |key: &str| live.pointer("/metadata/labels")?.get(key)?.as_str();
    present.any(|owner| uids.contains(&Some(text(owner, "/uid"))))
        || label_of(label::OWNER_NAME) == Some(owners.extension)
        || label_of(OWNER_LABEL) == Some(name(owners.version))
}

/// A merge patch that returns an object to OLM classic: its labels and annotations, the ClusterServiceVersion as owner,
/// our fields to its manager; `None` if nothing differs. The patch requires the object that was read.
pub(crate) fn patch(live: &Value, kept: &ClassicRecord, owners: Owners<'_>) -> Option<Value> {
    let mut metadata = Map::new();
    for (key, wanted) in [("labels", &kept.labels), ("annotations", &kept.annotations)] {
        let present = live
            .pointer(&format!("/metadata/{key}"))
            .and_then(Value::as_object);
        let ours = present.into_iter().flatten().map(|(key, _)| key);
        let ours = ours.filter(|key| is_ours(key) && !wanted.contains_key(*key));
        let mut map: Map<String, Value> = ours.map(|key| (key.clone(), Value::Null)).collect();
        let missing = wanted
            .iter()
            .filter(|(key, value)| present.and_then(|present| present.get(*key)) != Some(*value));
        map.extend(missing.map(|(key, value)| (key.clone(), value.clone())));
        if !map.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(map));
        }
    }
    if let Some(owners) = after(live, kept, owners) {
        metadata.insert("ownerReferences".to_owned(), owners);
    }
    if let Some(fields) = fields(live, kept) {
        metadata.insert("managedFields".to_owned(), fields);
    }
    if metadata.is_empty() {
        return None;
    }
    for key in ["uid", "resourceVersion"] {
        metadata.insert(key.to_owned(), json!(live.pointer(&format!("/metadata/{key}"))));
    }
    Some(json!({ "metadata": metadata }))
}

/// The owners without our revision and with the ClusterServiceVersion; `None` if they are unchanged.
fn after(live: &Value, kept: &ClassicRecord, owners: Owners<'_>) -> Option<Value> {
    let Owners {
        revision, version, ..
    } = owners;
    let present = list(live, "/metadata/ownerReferences");
    let uid = text(version, "/metadata/uid");
    let mut owners: Vec<Value> = present
        .iter()
        .filter(|owner| Some(text(owner, "/uid")) != revision)
        .cloned()
        .collect();
    if kept.is_owned && !owners.iter().any(|owner| text(owner, "/uid") == uid) {
        owners.push(json!({
            "apiVersion": CSV_API_VERSION, "kind": CSV_KIND, "name": name(version), "uid": uid,
            "controller": false, "blockOwnerDeletion": false,
        }));
    }
    (owners != present).then(|| json!(owners))
}

/// What tells an entry of `managedFields` from the others.
fn manager(entry: &Value) -> Value {
    let parts = ["manager", "operation", "subresource", "apiVersion"];
    parts
        .map(|part| entry.get(part).cloned().unwrap_or_default())
        .into_iter()
        .collect()
}

/// The fields that we applied, as if OLM classic had written them; `None` if there are none.
fn fields(live: &Value, kept: &ClassicRecord) -> Option<Value> {
    let is_applied = |entry: &Value| {
        text(entry, "/manager") == field_manager::OBJECTS && text(entry, "/subresource").is_empty()
    };
    let mut entries = list(live, "/metadata/managedFields").to_vec();
    entries.iter().any(is_applied).then_some(())?;
    if kept.manager.is_empty() {
        entries.retain(|entry| !is_applied(entry));
    }
    // The programs of this project apply; the Go implementation updates.
    let operation = match kept.manager.as_str() {
        field_manager::CLASSIC => "Apply",
        _ => "Update",
    };
    // A manager has one entry for each operation.
    let is_same = |entry: &Value| {
        text(entry, "/manager") == kept.manager
            && text(entry, "/operation") == operation
            && text(entry, "/subresource").is_empty()
    };
    entries.retain(|entry| is_applied(entry) || !is_same(entry));
    let mut others = kept.others.iter();
    let has_conversion = others.any(|other| text(other, "/manager") == field_manager::CLASSIC_CONVERSIONS);
    let mut is_first = true;
    entries.retain(|entry| !is_applied(entry) || std::mem::take(&mut is_first));
    for entry in entries.iter_mut().filter(|entry| is_applied(entry)) {
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("manager".to_owned(), kept.manager.as_str().into());
            entry.insert("operation".to_owned(), operation.into());
        }
        // We applied the fields of both, and the conversion is that of its own manager alone.
        if has_conversion
            && let Some(spec) = entry
                .pointer_mut("/fieldsV1/f:spec")
                .and_then(Value::as_object_mut)
        {
            spec.remove("f:conversion");
        }
    }
    let managers: Vec<Value> = entries.iter().map(manager).collect();
    let missing = kept
        .others
        .iter()
        .filter(|other| !managers.contains(&manager(other)));
    entries.extend(missing.cloned());
    Some(json!(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> ClassicRecord {
        ClassicRecord {
            object: json!({}),
            labels: json!({"olm.managed": "true"}).as_object().unwrap().clone(),
            annotations: Map::new(),
            is_owned: true,
            manager: "olm".to_owned(),
            others: Vec::new(),
        }
    }

    fn live() -> Value {
        json!({"metadata": {
            "name": "postgres", "uid": "u", "resourceVersion": "7",
            "labels": {
                "app": "postgres", "app.kubernetes.io/managed-by": "x", "olm.operatorframework.io/owner-name": "postgres",
            },
            "ownerReferences": [{"uid": "set", "kind": "ClusterObjectSet"}, {"uid": "other"}],
            "managedFields": [
                {"manager": field_manager::OBJECTS, "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {}}},
                {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
            ],
        }})
    }

    #[test]
    fn an_object_gets_the_marks_of_classic_instead_of_ours() {
        let version = json!({"metadata": {"name": "postgres.v1", "uid": "csv"}});
        let patch = patch(&live(), &kept(), owners(&version, Some("set"))).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {
                "uid": "u", "resourceVersion": "7",
                "labels": {
                    "olm.operatorframework.io/owner-name": null, "app.kubernetes.io/managed-by": null, "olm.managed": "true",
                },
                "ownerReferences": [{"uid": "other"}, {
                    "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "postgres.v1",
                    "uid": "csv", "controller": false, "blockOwnerDeletion": false,
                }],
                "managedFields": [
                    {"manager": "olm", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {}}},
                    {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
                ],
            }})
        );
    }

    #[test]
    fn every_manager_of_classic_has_its_fields_again() {
        let other = json!({"manager": "catalog", "operation": "Update", "fieldsV1": {"f:spec": {}}});
        let kept = ClassicRecord {
            others: vec![other.clone()],
            ..kept()
        };
        let version = json!({"metadata": {"name": "postgres.v1", "uid": "csv"}});
        let patch = patch(&live(), &kept, owners(&version, Some("set"))).unwrap();
        let fields = patch["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!((fields.len(), &fields[2]), (3, &other));
    }

    #[test]
    fn a_conversion_has_its_own_manager_again_and_no_other() {
        let conversion = json!({
            "manager": field_manager::CLASSIC_CONVERSIONS, "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:conversion": {}}},
        });
        let kept = ClassicRecord {
            others: vec![conversion.clone()],
            ..kept()
        };
        let mut live = live();
        live["metadata"]["managedFields"][0]["fieldsV1"] =
            json!({"f:spec": {"f:conversion": {}, "f:group": {}}});
        let version = json!({"metadata": {"name": "postgres.v1", "uid": "csv"}});
        let patch = patch(&live, &kept, owners(&version, Some("set"))).unwrap();
        let fields = patch["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(fields[0]["fieldsV1"], json!({"f:spec": {"f:group": {}}}));
        assert_eq!(fields[2], conversion);
    }

    fn owners<'a>(version: &'a Value, revision: Option<&'a str>) -> Owners<'a> {
        Owners {
            extension: "postgres",
            revision,
            version,
        }
    }

    #[test]
    fn an_object_that_somebody_made_anew_is_not_of_the_operator() {
        let version = json!({"metadata": {"name": "postgres.v1", "uid": "csv"}});
        let is_of =
            |metadata: Value| is_of_operator(&json!({"metadata": metadata}), owners(&version, Some("set")));
        assert!(is_of_operator(&live(), owners(&version, None)));
        assert!(is_of(json!({"ownerReferences": [{"uid": "set"}]})));
        assert!(is_of(json!({"ownerReferences": [{"uid": "csv"}]})));
        assert!(is_of(json!({"labels": {"olm.owner": "postgres.v1"}})));
        assert!(!is_of(
            json!({"labels": {"olm.owner": "tools.v1"}, "ownerReferences": [{"uid": "other"}]})
        ));
        assert!(!is_of(json!({})));
    }

    #[test]
    fn an_object_that_is_back_needs_nothing() {
        let live = json!({"metadata": {
            "labels": {"olm.managed": "true"}, "ownerReferences": [{"uid": "csv"}],
            "managedFields": [{"manager": "olm", "operation": "Update"}],
        }});
        let version = json!({"metadata": {"name": "postgres.v1", "uid": "csv"}});
        assert_eq!(patch(&live, &kept(), owners(&version, Some("set"))), None);
        assert_eq!(patch(&live, &kept(), owners(&version, None)), None);
    }
}
