use serde_json::{Value, json};

use super::*;

fn schema_of(kind: &str) -> Value {
    let definition = definitions()
        .into_iter()
        .find(|d| d["spec"]["names"]["kind"] == kind)
        .unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Checks that `value` and the schema have the same members.
fn same_members(path: &str, schema: &Value, value: &Value) {
    match (schema["type"].as_str(), value) {
        (Some("object"), Value::Object(map)) if schema.get("properties").is_some() => {
            let members = schema["properties"].as_object().unwrap();
            for (key, value) in map {
                let member = members
                    .get(key)
                    .unwrap_or_else(|| panic!("{path}.{key} is not in the schema"));
                same_members(&format!("{path}.{key}"), member, value);
            }
            for key in members.keys() {
                assert!(map.contains_key(key), "{path}.{key} is only in the schema");
            }
        }
        (Some("array"), Value::Array(items)) => {
            for item in items {
                same_members(&format!("{path}[]"), &schema["items"], item);
            }
        }
        _ => {}
    }
}

fn condition() -> Value {
    json!({"type": "A", "status": "True", "reason": "B", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn selector() -> Value {
    json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]})
}

fn check<K>(kind: &str, full: &Value)
where
    K: serde::de::DeserializeOwned + serde::Serialize,
{
    let typed: K = serde_json::from_value(full.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&typed).unwrap(),
        *full,
        "the types keep every member"
    );
    same_members(kind, &schema_of(kind), full);
}

#[test]
fn names_and_priorities_are_bounded() {
    for (kind, longest) in [("ClusterExtension", 52), ("ClusterCatalog", 63)] {
        let name = &schema_of(kind)["properties"]["metadata"]["properties"]["name"];
        assert_eq!(name, &json!({"type": "string", "maxLength": longest}));
    }
    let priority = &schema_of("ClusterCatalog")["properties"]["spec"]["properties"]["priority"];
    assert_eq!(priority["minimum"], json!(i32::MIN));
    assert_eq!(priority["maximum"], json!(i32::MAX));
}

#[test]
fn types_and_schema_of_changes_have_the_same_members() {
    check::<crate::ChangePolicy>(
        "ChangePolicy",
        &json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ChangePolicy", "metadata": {"name": "a"},
            "spec": {
                "selector": selector(), "freeze": true,
                "approval": {
                    "default": "Manual", "install": "Automatic", "patch": "Automatic", "minor": "Manual",
                    "major": "Manual", "widenedRights": "Manual",
                },
                "windows": [{"schedule": "0 1 * * *", "duration": "1h", "timeZone": "UTC"}],
            },
            "status": {"observedGeneration": 1, "conditions": [condition()]},
        }),
    );
    check::<crate::PendingChange>(
        "PendingChange",
        &json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "PendingChange", "metadata": {"name": "a"},
            "spec": {
                "extension": "e", "extensionUID": "u", "digest": "sha256:0", "from": "1.0.0", "to": "1.1.0",
                "bundle": "e.v1.1.0", "image": "i", "account": "n/a", "class": "Minor", "widensRights": true,
                "definitions": "Safe", "summary": ["adds 1 object"],
                "decision": {"verdict": "Approved", "approver": "jane", "note": "ok"},
            },
            "status": {"observedGeneration": 1, "conditions": [condition()]},
        }),
    );
}

#[test]
fn types_and_schema_have_the_same_members() {
    check::<crate::ClusterExtension>(
        "ClusterExtension",
        &json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "a"},
            "spec": {
                "namespace": "n", "serviceAccount": {"name": "s"},
                "source": {"sourceType": "Catalog", "catalog": {
                    "packageName": "p", "version": "1", "channels": ["c"], "selector": selector(),
                    "upgradeConstraintPolicy": "SelfCertified"}},
                "install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}},
                "config": {"configType": "Inline", "inline": {"watchNamespace": "w"}},
                "progressDeadlineMinutes": 10},
            "status": {
                "observedGeneration": 1,
                "conditions": [condition()],
                "install": {"bundle": {"name": "b", "version": "1.0.0", "release": ""}},
                "activeRevisions": [{"name": "a-1", "conditions": [condition()]}],
                "updates": {
                    "next": {"name": "b", "version": "1.1.0", "release": "", "catalog": "c"},
                    "newest": {"name": "b", "version": "2.0.0", "release": "1", "catalog": "c"},
                    "heldBackBy": "Range", "message": "m"}},
        }),
    );
    check::<crate::ClusterCatalog>(
        "ClusterCatalog",
        &json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "a"},
            "spec": {
                "source": {"type": "Image", "image": {"ref": "r", "pollIntervalMinutes": 1}},
                "priority": -1, "availabilityMode": "Unavailable"},
            "status": {
                "observedGeneration": 1,
                "conditions": [condition()], "lastUnpacked": "2026-01-01T00:00:00Z",
                "resolvedSource": {"type": "Image", "image": {"ref": "r"}}, "urls": {"base": "https://h"}},
        }),
    );
    check::<crate::ClusterObjectSet>(
        "ClusterObjectSet",
        &json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": "a"},
            "spec": {
                "lifecycleState": "Archived", "revision": 1, "progressDeadlineMinutes": 10, "collisionProtection": "None",
                "phases": [{"name": "p", "collisionProtection": "IfNoController", "objects": [
                    {"object": {"a": {"b": null}}, "collisionProtection": "Prevent", "ref": {"name": "s", "namespace": "n", "key": "k"}}]}],
                "progressionProbes": [{
                    "selector": {"type": "Label", "groupKind": {"group": "", "kind": "Pod"}, "label": selector()},
                    "assertions": [{
                        "type": "FieldValue", "conditionEqual": {"type": "Ready", "status": "True"},
                        "fieldsEqual": {"fieldA": "a", "fieldB": "b"}, "fieldValue": {"fieldPath": "a", "value": "v"}}]}]},
            "status": {"observedGeneration": 1, "conditions": [condition()], "observedPhases": [{"name": "p", "digest": "sha256:0"}]},
        }),
    );
}

#[test]
fn an_object_that_no_controller_has_seen_says_so() {
    for kind in ["ClusterCatalog", "ClusterExtension", "ClusterObjectSet"] {
        let default = &schema_of(kind)["properties"]["status"]["default"];
        assert_eq!(default, &json!({"observedGeneration": -1}), "{kind}");
    }
}

#[test]
fn absent_members_stay_absent() {
    let minimal = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": "a"},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
                 "phases": [{"name": "p", "objects": [{"object": {}}, {"ref": {"name": "s", "key": "k"}}]}],
                 "progressionProbes": [{"selector": {"type": "GroupKind", "groupKind": {"group": "", "kind": "Pod"}},
                     "assertions": [{"type": "FieldsEqual", "fieldsEqual": {"fieldA": "a", "fieldB": "b"}}]}]},
    });
    let typed: crate::ClusterObjectSet = serde_json::from_value(minimal.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), minimal);
}

#[test]
fn an_object_without_a_spec_can_be_read() {
    let bare = json!({"metadata": {"name": "a"}});
    let extension: crate::ClusterExtension = serde_json::from_value(bare).unwrap();
    assert_eq!(
        extension.spec,
        crate::cluster_extension::ClusterExtensionSpec::default()
    );
}

#[test]
fn the_schema_requires_what_the_reference_requires() {
    for (kind, expected) in [
        ("ClusterExtension", Value::Null),
        ("ClusterObjectSet", Value::Null),
        ("ClusterCatalog", json!(["metadata", "spec"])),
    ] {
        assert_eq!(schema_of(kind)["required"], expected, "{kind}");
    }
}

#[test]
fn the_columns_of_the_reference_keep_their_order_and_the_state_is_always_shown() {
    for (kind, always, wide) in [
        (
            "ClusterCatalog",
            &["LastUnpacked", "Serving", "Ready", "Status", "Age"][..],
            &["Availability", "Priority", "Reason"][..],
        ),
        (
            "ClusterExtension",
            &[
                "Installed Bundle",
                "Version",
                "Installed",
                "Progressing",
                "Ready",
                "Status",
                "Update",
                "Age",
            ],
            &["Reason", "Package", "Range", "Next", "Held Back By"],
        ),
        (
            "ClusterObjectSet",
            &[
                "Available",
                "Progressing",
                "Version",
                "Revision",
                "Ready",
                "Status",
                "Age",
            ],
            &["Lifecycle", "Reason"],
        ),
    ] {
        let definition = definitions()
            .into_iter()
            .find(|d| d["spec"]["names"]["kind"] == kind)
            .unwrap();
        let columns: Vec<(&str, Option<i64>)> = definition["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["name"].as_str().unwrap(), c["priority"].as_i64()))
            .collect();
        let always = always.iter().map(|name| (*name, None));
        let wide = wide.iter().map(|name| (*name, Some(1)));
        assert_eq!(columns, always.chain(wide).collect::<Vec<_>>(), "{kind}");
        assert_eq!(definition["spec"]["names"]["categories"][0], "olm", "{kind}");
    }
}

#[test]
fn committed_files_are_the_generated_ones() {
    for file in files() {
        let path = format!("{}/../manifests/crds/{}", env!("CARGO_MANIFEST_DIR"), file.name);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == file.yaml, "{} differs: run `make crds`", file.name);
    }
}

#[test]
fn the_committed_reference_is_the_generated_one() {
    let path = format!("{}/../docs/reference/api.md", env!("CARGO_MANIFEST_DIR"));
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == reference(),
        "docs/reference/api.md differs: run `make crds`"
    );
}
