//! Checks of a revision's objects before any is applied.

use std::collections::BTreeMap;

use olm_text::names::is_dns1035_label;
use serde_json::Value;

use crate::content::RevisionContent;
use crate::object::ObjectId;

/// Fields of an object's metadata that only the server or the owner writes.
const FORBIDDEN: [&str; 6] = [
    "uid",
    "generation",
    "generateName",
    "finalizers",
    "ownerReferences",
    "resourceVersion",
];

/// Checks all objects and lists every fault; `None` if there is none.
pub fn faults(name: &str, revision: i64, content: &RevisionContent) -> Option<String> {
    let mut places: BTreeMap<ObjectId, Vec<&str>> = BTreeMap::new();
    for phase in &content.phases {
        for object in &phase.objects {
            // Two versions of one object are the same object.
            let id = ObjectId {
                version: String::new(),
                ..ObjectId::of(&object.object)
            };
            places.entry(id).or_default().push(&phase.name);
        }
    }
    let mut texts = Vec::new();
    for phase in &content.phases {
        let mut faults = Vec::new();
        // The definition of the kind also accepts a digit at the beginning.
        if !is_dns1035_label(&phase.name) {
            faults.push(format!(
                "phase name invalid: {:?} must begin with a lower-case letter and consist of lower-case letters, digits \
                 and hyphens",
                phase.name
            ));
        }
        for object in &phase.objects {
            let id = ObjectId::of(&object.object);
            faults.extend(
                object_faults(&id, &object.object)
                    .iter()
                    .map(|fault| format!("{}: {fault}", id.reference())),
            );
            let at = places.get(&ObjectId {
                version: String::new(),
                ..id.clone()
            });
            if let Some(at) = at.filter(|at| at.len() > 1) {
                faults.push(format!(
                    "{}: duplicate object found in phases: {}",
                    id.reference(),
                    at.join(", ")
                ));
            }
        }
        if !faults.is_empty() {
            texts.push(format!("phase \"{}\": {}", phase.name, faults.join(", ")));
        }
    }
    (!texts.is_empty()).then(|| format!("revision \"{name}\" ({revision}): {}", texts.join(", ")))
}

fn object_faults(id: &ObjectId, object: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (field, missing) in [
        ("apiVersion", id.version.is_empty()),
        ("kind", id.kind.is_empty()),
        ("metadata.name", id.name.is_empty()),
    ] {
        if missing {
            faults.push(format!("{field} must be set"));
        }
    }
    for (field, value) in [("metadata.name", &id.name), ("metadata.namespace", &id.namespace)] {
        // These values become parts of a path.
        if value == "." || value == ".." || value.contains(['/', '%', '?', '#']) {
            faults.push(format!("{field} may not be \"{value}\""));
        }
    }
    let metadata = object.get("metadata");
    let set = |field: &&str| match metadata.and_then(|metadata| metadata.get(*field)) {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    faults.extend(
        FORBIDDEN
            .iter()
            .filter(|field| set(field))
            .map(|field| format!("metadata.{field} must be empty")),
    );
    faults
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::CollisionProtection;
    use serde_json::json;

    use super::*;
    use crate::content::{ContentObject, ContentPhase};

    fn content(phases: &[(&str, &[Value])]) -> RevisionContent {
        let object = |object: &Value| ContentObject {
            object: object.clone(),
            collision_protection: CollisionProtection::Prevent,
        };
        let phase = |(name, objects): &(&str, &[Value])| ContentPhase {
            name: (*name).to_owned(),
            digest: String::new(),
            objects: objects.iter().map(object).collect(),
        };
        RevisionContent {
            phases: phases.iter().map(phase).collect(),
        }
    }

    #[test]
    fn sound_objects_have_no_faults() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "ownerReferences": []}});
        assert_eq!(faults("e-1", 1, &content(&[("deploy", &[object])])), None);
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["..", "a/status", "a?force=true", "a%2fstatus"] {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            let fault = faults("e-1", 1, &content(&[("one", &[object])])).unwrap();
            assert!(
                fault.ends_with(&format!("metadata.name may not be \"{name}\"")),
                "{fault}"
            );
        }
    }

    #[test]
    fn every_fault_is_named() {
        let bad = json!({"apiVersion": "v1", "metadata": {"name": "a", "uid": "u", "finalizers": ["f"]}});
        let twice = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        assert_eq!(
            faults(
                "e-1",
                1,
                &content(&[("one", &[bad, twice.clone()]), ("two", &[twice])])
            )
            .unwrap(),
            "revision \"e-1\" (1): phase \"one\": v1, Kind= /a: kind must be set, v1, Kind= /a: metadata.uid must be empty, \
             v1, Kind= /a: metadata.finalizers must be empty, \
             v1, Kind=ConfigMap /a: duplicate object found in phases: one, two, \
             phase \"two\": v1, Kind=ConfigMap /a: duplicate object found in phases: one, two"
        );
    }
}
