//! Fields that the reference implementation wrote by updates: its Helm runtime wrote all fields so, its Boxcutter
//! runtime those of an object that it had just created. Server-side apply removes an unwanted field only if no other
//! manager owns it. So these fields become fields of our apply before we apply an object.

use olm_api::names::field_manager;
use olm_api::object::text;
use serde_json::{Map, Value, json};

/// The field managers of the reference implementation.
const EARLIER: [&str; 2] = [field_manager::OPERATOR_CONTROLLER, field_manager::OBJECTS];

/// Whether a live object has such fields.
pub fn is_due(live: &Value) -> bool {
    entries(live).iter().any(|entry| is_earlier(live, entry))
}

/// A merge patch that makes all such fields of a live object fields of our apply; `None` if it has none. It contains
/// the resourceVersion that it requires.
pub fn patch(live: &Value) -> Option<Value> {
    moving(live, |entry| is_earlier(live, entry), field_manager::OBJECTS)
}

/// A merge patch that makes the fields of a Secret that a revision applied as content fields of its certificate; `None`
/// if it has none. It contains the resourceVersion that it requires. Otherwise nothing would remove them, and the old
/// revision would stay the controller.
pub fn certified(live: &Value) -> Option<Value> {
    let is_content =
        |entry: &Value| is_earlier(live, entry) || is(live, entry, field_manager::OBJECTS, "Apply");
    moving(live, is_content, field_manager::CERTIFICATES)
}

fn moving(live: &Value, is_moved: impl Fn(&Value) -> bool, to: &str) -> Option<Value> {
    let fields = managed_fields(live, is_moved, to)?;
    Some(json!({"metadata": {
        "uid": live.pointer("/metadata/uid"),
        "resourceVersion": live.pointer("/metadata/resourceVersion"),
        "managedFields": fields,
    }}))
}

/// The `metadata.managedFields` of a live object with these entries moved to the apply of a manager of ours; `None` if
/// it has none.
fn managed_fields(live: &Value, is_moved: impl Fn(&Value) -> bool, to: &str) -> Option<Vec<Value>> {
    let (earlier, mut kept): (Vec<&Value>, Vec<Value>) =
        entries(live)
            .iter()
            .fold((Vec::new(), Vec::new()), |(mut earlier, mut kept), entry| {
                if is_moved(entry) {
                    earlier.push(entry);
                } else {
                    kept.push(entry.clone());
                }
                (earlier, kept)
            });
    let newest = earlier.last()?;
    let mut fields = Map::new();
    for entry in &earlier {
        unite(&mut fields, entry.get("fieldsV1").and_then(Value::as_object));
    }
    fields.remove("f:status");
    let ours = kept.iter_mut().find(|entry| is(live, entry, to, "Apply"));
    match ours {
        Some(ours) => {
            unite(&mut fields, ours.get("fieldsV1").and_then(Value::as_object));
            if let Some(ours) = ours.as_object_mut() {
                ours.insert("fieldsV1".to_owned(), Value::Object(fields));
            }
        }
        None => kept.push(json!({
            "manager": to,
            "operation": "Apply",
            "apiVersion": live.get("apiVersion"),
            "time": newest.get("time"),
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        })),
    }
    Some(kept)
}

fn entries(live: &Value) -> &[Value] {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.map_or(&[], Vec::as_slice)
}

fn is_earlier(live: &Value, entry: &Value) -> bool {
    EARLIER.iter().any(|manager| is(live, entry, manager, "Update"))
}

/// Whether an entry belongs to a manager and operation, in the version in which the object is read.
fn is(live: &Value, entry: &Value, manager: &str, operation: &str) -> bool {
    text(entry, "/manager") == manager
        && text(entry, "/operation") == operation
        && text(entry, "/subresource").is_empty()
        && text(entry, "/apiVersion") == text(live, "/apiVersion")
}

/// Adds other managed fields. The parser bounds the depth of both.
pub fn unite(fields: &mut Map<String, Value>, more: Option<&Map<String, Value>>) {
    for (key, value) in more.into_iter().flatten() {
        let below = fields
            .entry(key.clone())
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(below) = below.as_object_mut() {
            unite(below, value.as_object());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, more: &Value, fields: &Value) -> Value {
        let mut entry = json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "time": "t", "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        });
        for (key, value) in more.as_object().unwrap() {
            entry[key] = value.clone();
        }
        entry
    }

    fn live(entries: &[Value]) -> Value {
        json!({"apiVersion": "v1", "metadata": {"managedFields": entries}})
    }

    fn inherited(live: &Value) -> Option<Vec<Value>> {
        managed_fields(live, |entry| is_earlier(live, entry), field_manager::OBJECTS)
    }

    #[test]
    fn fields_of_a_secret_that_was_content_become_those_of_its_certificate() {
        let none = json!({});
        let content = entry(
            "olm.operatorframework.io",
            "Apply",
            &none,
            &json!({"f:data": {"f:tls.crt": {}, "f:olmCAKey": {}}}),
        );
        let foreign = entry("kubectl", "Update", &none, &json!({"f:x": {}}));
        let patch = certified(&live(&[foreign.clone(), content.clone()])).unwrap();
        let mut expected = content;
        expected["manager"] = json!("olm.operatorframework.io/certificates");
        assert_eq!(patch["metadata"]["managedFields"], json!([foreign, expected]));
        assert_eq!(certified(&live(&[foreign, expected])), None);
    }

    #[test]
    fn fields_written_by_the_reference_become_ours_and_others_keep_theirs() {
        let none = json!({});
        let others = [
            entry("kubectl", "Update", &none, &json!({"f:x": {}})),
            entry(
                "operator-controller",
                "Update",
                &json!({"subresource": "status"}),
                &json!({"f:y": {}}),
            ),
            entry(
                "operator-controller",
                "Update",
                &json!({"apiVersion": "v2"}),
                &json!({"f:z": {}}),
            ),
            entry("operator-controller", "Apply", &none, &json!({"f:a": {}})),
        ];
        assert!(!is_due(&live(&others)));
        assert_eq!(inherited(&live(&others)), None);
        let helm = entry(
            "operator-controller",
            "Update",
            &none,
            &json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:status": {"f:s": {}}}),
        );
        let mut all = others.to_vec();
        all.push(helm.clone());
        let mut expected = others.to_vec();
        expected.push(entry(
            "olm.operatorframework.io",
            "Apply",
            &none,
            &json!({"f:metadata": {"f:labels": {"f:a": {}}}}),
        ));
        assert!(is_due(&live(&all)));
        assert_eq!(inherited(&live(&all)), Some(expected));

        let ours = entry(
            "olm.operatorframework.io",
            "Apply",
            &none,
            &json!({"f:metadata": {"f:labels": {".": {}, "f:b": {}}}}),
        );
        let created = entry(
            "olm.operatorframework.io",
            "Update",
            &none,
            &json!({"f:data": {}}),
        );
        assert_eq!(
            inherited(&live(&[ours, helm, created])),
            Some(vec![entry(
                "olm.operatorframework.io",
                "Apply",
                &none,
                &json!({"f:data": {}, "f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:b": {}}}}),
            )])
        );
    }
}
