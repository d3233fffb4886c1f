//! The authorities that the API server trusts when it calls a webhook or an aggregated API: the fields `caBundle`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_api::names::{annotation, field_manager};
use olm_api::object::text;
use serde_json::{Map, Value, json};

use crate::object::ObjectId;
use crate::ownership::fields_of;

/// The places of the fields `caBundle` in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registers {
    /// Every entry of `webhooks`.
    Webhooks,
    /// The field `spec.conversion`.
    Conversion,
    /// The field `spec`.
    Api,
}

const CONVERSION: &str = "/spec/conversion/webhook/clientConfig";

impl Registers {
    fn of(object: &Value) -> Option<Self> {
        let id = ObjectId::of(object);
        match (id.group.as_str(), id.kind.as_str()) {
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
            ) => Some(Self::Webhooks),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(Self::Conversion),
            ("apiregistration.k8s.io", "APIService") => Some(Self::Api),
            _ => None,
        }
    }
}

/// Whether the API server calls a server that the object registers.
pub fn is_caller(object: &Value) -> bool {
    Registers::of(object).is_some()
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let webhooks = object.get("webhooks").and_then(Value::as_array);
    webhooks
        .into_iter()
        .flatten()
        .filter_map(|entry| Some((entry.get("name")?.as_str()?, entry)))
}

/// The values of the live object at each place for authorities in the wanted object.
fn held<'a>(wanted: &Value, live: &'a Value) -> Vec<Option<&'a str>> {
    let text = |value: Option<&'a Value>| {
        value
            .and_then(|value| value.get("caBundle"))
            .and_then(Value::as_str)
    };
    match Registers::of(wanted) {
        None => Vec::new(),
        Some(Registers::Webhooks) => {
            let in_live = |name: &str| entries(live).find(|(found, _)| *found == name);
            entries(wanted)
                .map(|(name, _)| text(in_live(name).and_then(|(_, entry)| entry.get("clientConfig"))))
                .collect()
        }
        Some(Registers::Conversion) => wanted
            .pointer(CONVERSION)
            .map(|_| text(live.pointer(CONVERSION)))
            .into_iter()
            .collect(),
        Some(Registers::Api) => vec![text(live.get("spec"))],
    }
}

/// All authorities in a live object, PEM.
pub fn trusted_by(live: &Value) -> String {
    let decoded = held(live, live)
        .into_iter()
        .flatten()
        .filter_map(|text| STANDARD.decode(text).ok());
    decoded
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

/// Whether a live object trusts exactly these authorities at all places of the wanted one.
pub fn is_trusting(wanted: &Value, live: &Value, trusted: &str) -> bool {
    let encoded = STANDARD.encode(trusted);
    held(wanted, live)
        .into_iter()
        .all(|held| held == Some(encoded.as_str()))
}

/// The body to apply so that a live object trusts exactly these authorities. It requires the object that was read.
pub fn trusting(wanted: &Value, live: &Value, trusted: &str) -> Value {
    let bundle = json!({"caBundle": STANDARD.encode(trusted)});
    let mut body = identity(live);
    match Registers::of(wanted) {
        None => {}
        Some(Registers::Webhooks) => {
            let list: Vec<Value> = entries(wanted)
                .map(|(name, _)| json!({"name": name, "clientConfig": bundle}))
                .collect();
            body.insert("webhooks".to_owned(), list.into());
        }
        Some(Registers::Conversion) if wanted.pointer(CONVERSION).is_none() => {}
        Some(Registers::Conversion) => {
            let conversion = json!({"conversion": {"webhook": {"clientConfig": bundle}}});
            body.insert("spec".to_owned(), conversion);
        }
        Some(Registers::Api) => {
            body.insert("spec".to_owned(), bundle);
        }
    }
    Value::Object(body)
}

/// The body to apply so that earlier authorities do not block the wanted object: an entry with nothing but authorities
/// makes an object invalid. `None` if there is no such entry.
fn without_leftovers(wanted: &Value, live: &Value) -> Option<Value> {
    let api_version = text(live, "/apiVersion");
    let ours = fields_of(live, api_version, field_manager::CERTIFICATES)?;
    let trusts = wanted
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(annotation::AUTHORITY_FROM))
        .is_some();
    let mut body = identity(live);
    match Registers::of(wanted)? {
        Registers::Webhooks => {
            let is_wanted = |name: &str| entries(wanted).any(|(wanted, _)| wanted == name);
            let (kept, left): (Vec<_>, Vec<_>) = entries(live)
                .filter(|(name, _)| {
                    let key = format!("k:{}", json!({"name": name}));
                    ours.get("f:webhooks").is_some_and(|list| list.get(key).is_some())
                })
                .partition(|(name, _)| trusts && is_wanted(name));
            if left.is_empty() {
                return None;
            }
            let kept: Vec<Value> = kept
                .into_iter()
                .map(|(name, entry)| {
                    let bundle = entry.pointer("/clientConfig/caBundle");
                    json!({"name": name, "clientConfig": {"caBundle": bundle}})
                })
                .collect();
            if !kept.is_empty() {
                body.insert("webhooks".to_owned(), kept.into());
            }
        }
        Registers::Conversion if trusts && wanted.pointer(CONVERSION).is_some() => return None,
        Registers::Api if trusts => return None,
        Registers::Conversion | Registers::Api => {}
    }
    Some(Value::Object(body))
}

/// A merge patch that removes fields from a live object that we applied and no longer want. Apply does not remove them
/// if another writer, such as cert-manager or the service CA of OpenShift, has written authorities into them and owns
/// them too. `None` if there are none.
fn without_injected(wanted: &Value, live: &Value) -> Option<Value> {
    let api_version = text(live, "/apiVersion");
    let ours = fields_of(live, api_version, field_manager::OBJECTS)?;
    let others = fields_of_others(live);
    let mut patch = identity(live);
    match Registers::of(wanted)? {
        Registers::Webhooks => {
            let applied = ours.get("f:webhooks");
            let is_over = |entry: &Value| {
                let is = |name: &str| {
                    let key = format!("k:{}", json!({"name": name}));
                    applied.is_some_and(|list| list.get(&key).is_some())
                        && !entries(wanted).any(|(wanted, _)| wanted == name)
                        && others.iter().any(|fields| {
                            let entry = fields.get("f:webhooks").and_then(|list| list.get(&key));
                            entry.is_some_and(|entry| entry.pointer(BUNDLE_FIELD).is_some())
                        })
                };
                entry.get("name").and_then(Value::as_str).is_some_and(is)
            };
            let all = live.get("webhooks")?.as_array()?;
            let kept: Vec<&Value> = all.iter().filter(|entry| !is_over(entry)).collect();
            if kept.len() == all.len() {
                return None;
            }
            patch.insert("webhooks".to_owned(), json!(kept));
        }
        Registers::Conversion => {
            let pointer = "/f:spec/f:conversion/f:webhook";
            let is_held = |fields: &&Value| {
                let webhook = fields.pointer(pointer);
                webhook.is_some_and(|webhook| webhook.pointer(BUNDLE_FIELD).is_some())
            };
            if wanted.pointer(CONVERSION).is_some()
                || ours.pointer(pointer).is_none()
                || !others.iter().any(is_held)
            {
                return None;
            }
            let plain = json!({"conversion": {"strategy": "None", "webhook": null}});
            patch.insert("spec".to_owned(), plain);
        }
        Registers::Api => return None,
    }
    Some(Value::Object(patch))
}

/// Whether an earlier revision applied the authorities at all places of the wanted object as content, such as those of
/// OLM classic. An apply of the wanted object removes them.
pub fn is_content(wanted: &Value, live: &Value) -> bool {
    let api_version = live.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let held = held(wanted, live);
    if held.is_empty() || held.contains(&None) {
        return false;
    }
    let Some(ours) = fields_of(live, api_version, field_manager::OBJECTS) else {
        return false;
    };
    match Registers::of(wanted) {
        None => false,
        Some(Registers::Webhooks) => entries(wanted).all(|(name, _)| {
            let key = format!("k:{}", json!({"name": name}));
            let entry = ours.get("f:webhooks").and_then(|list| list.get(&key));
            entry.is_some_and(|entry| entry.pointer(BUNDLE_FIELD).is_some())
        }),
        Some(Registers::Conversion) => ours
            .pointer("/f:spec/f:conversion/f:webhook")
            .is_some_and(|webhook| webhook.pointer(BUNDLE_FIELD).is_some()),
        Some(Registers::Api) => ours.pointer("/f:spec/f:caBundle").is_some(),
    }
}

/// The part of a live object that makes the server refuse the wanted one.
#[derive(Debug, Clone, PartialEq)]
pub enum AuthorityObstacle {
    /// Entries with nothing but our authorities. To remove them, apply this body with the field manager of
    /// certificates.
    Ours(Value),
    /// Fields into which others have written authorities. To remove them, send this merge patch.
    Injected(Value),
}

impl AuthorityObstacle {
    /// The obstacle in a live object, if any.
    pub fn of(wanted: &Value, live: &Value) -> Option<Self> {
        without_leftovers(wanted, live)
            .map(Self::Ours)
            .or_else(|| without_injected(wanted, live).map(Self::Injected))
    }
}

/// The authorities of a webhook in the fields of a manager.
const BUNDLE_FIELD: &str = "/f:clientConfig/f:caBundle";

/// The fields of each other manager.
fn fields_of_others(live: &Value) -> Vec<&Value> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let is_other = |entry: &&Value| {
        let manager = entry.get("manager").and_then(Value::as_str);
        manager != Some(field_manager::OBJECTS) && manager != Some(field_manager::CERTIFICATES)
    };
    let entries = entries.into_iter().flatten().filter(is_other);
    entries.filter_map(|entry| entry.get("fieldsV1")).collect()
}

fn identity(live: &Value) -> Map<String, Value> {
    let field = |key: &str| {
        live.pointer(&format!("/metadata/{key}"))
            .cloned()
            .unwrap_or_default()
    };
    let mut body = Map::new();
    for key in ["apiVersion", "kind"] {
        body.insert(key.to_owned(), live.get(key).cloned().unwrap_or_default());
    }
    let metadata = json!({
        "name": field("name"), "uid": field("uid"), "resourceVersion": field("resourceVersion"),
    });
    body.insert("metadata".to_owned(), metadata);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhooks(names: &[(&str, Option<&str>)], owned: &[&str]) -> Value {
        let entry = |(name, bundle): &(&str, Option<&str>)| {
            let mut entry = json!({"name": name, "clientConfig": {"service": {}}});
            if let Some(bundle) = bundle {
                entry["clientConfig"]["caBundle"] = STANDARD.encode(bundle).into();
            }
            entry
        };
        let fields: Map<String, Value> = owned
            .iter()
            .map(|name| (format!("k:{{\"name\":\"{name}\"}}"), json!({})))
            .collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {
                "name": "w", "uid": "u", "resourceVersion": "7",
                "annotations": {annotation::AUTHORITY_FROM: "n/s"},
                "managedFields": [{
                    "manager": field_manager::CERTIFICATES, "operation": "Apply",
                    "apiVersion": "admissionregistration.k8s.io/v1", "fieldsV1": {"f:webhooks": fields},
                }],
            },
            "webhooks": names.iter().map(entry).collect::<Vec<_>>(),
        })
    }

    fn metadata() -> Value {
        json!({"name": "w", "uid": "u", "resourceVersion": "7"})
    }

    #[test]
    fn every_webhook_trusts_the_authorities() {
        let live = webhooks(&[("a", Some("x")), ("b", None)], &[]);
        assert!(!is_trusting(&live, &live, "x"));
        let body = trusting(&live, &live, "x");
        let bundle = json!({"caBundle": STANDARD.encode("x")});
        assert_eq!(
            body["webhooks"],
            json!([{"name": "a", "clientConfig": bundle}, {"name": "b", "clientConfig": bundle}])
        );
        assert_eq!(body["metadata"], metadata());
        let live = webhooks(&[("a", Some("x")), ("b", Some("x"))], &[]);
        assert!(is_trusting(&live, &live, "x") && !is_trusting(&live, &live, "y"));
        assert_eq!(trusted_by(&live), "xx");
    }

    #[test]
    fn a_converted_definition_and_a_registered_api_trust_the_authorities() {
        let bundle = json!({"caBundle": STANDARD.encode("x")});
        let definition = |client: Value| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata(),
                "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client}}},
            })
        };
        let wanted = definition(json!({"service": {}}));
        assert!(!is_trusting(&wanted, &wanted, "x"));
        assert!(is_trusting(&wanted, &definition(bundle.clone()), "x"));
        let body = trusting(&wanted, &wanted, "x");
        assert_eq!(
            body["spec"],
            json!({"conversion": {"webhook": {"clientConfig": bundle}}})
        );
        let api = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata(), "spec": {}});
        assert!(!is_trusting(&api, &api, "x"));
        assert_eq!(trusting(&api, &api, "x")["spec"], bundle);
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        assert!(!is_caller(&other) && is_trusting(&other, &other, "x"));
    }

    #[test]
    fn authorities_that_an_earlier_revision_applied_are_content() {
        let api = |fields: Value| {
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": "w", "managedFields": [{
                    "manager": field_manager::OBJECTS, "operation": "Apply",
                    "apiVersion": "apiregistration.k8s.io/v1", "fieldsV1": fields,
                }]},
                "spec": {"caBundle": "eA=="},
            })
        };
        let wanted = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": {}});
        assert!(is_content(&wanted, &api(json!({"f:spec": {"f:caBundle": {}}}))));
        assert!(!is_content(&wanted, &api(json!({"f:spec": {"f:group": {}}}))));
        assert!(!is_content(&wanted, &wanted));
        let applied = |names: &[&str]| {
            let mut live = webhooks(&[("a", Some("x")), ("b", Some("x"))], &[]);
            live["metadata"]["managedFields"][0]["manager"] = field_manager::OBJECTS.into();
            for name in names {
                let key = format!("k:{}", json!({"name": name}));
                live["metadata"]["managedFields"][0]["fieldsV1"]["f:webhooks"][key] =
                    json!({"f:clientConfig": {"f:caBundle": {}}});
            }
            live
        };
        let wanted = webhooks(&[("a", None), ("b", None)], &[]);
        assert!(is_content(&wanted, &applied(&["a", "b"])));
        assert!(!is_content(&wanted, &applied(&["a"])));
        let more = webhooks(&[("a", None), ("c", None)], &[]);
        assert!(!is_content(&more, &applied(&["a", "b"])));
    }

    #[test]
    fn the_remains_of_a_removed_webhook_are_released() {
        let live = webhooks(&[("a", Some("x")), ("b", Some("x"))], &["a", "b"]);
        assert_eq!(without_leftovers(&live, &live), None);
        let wanted = webhooks(&[("b", None)], &[]);
        assert_eq!(
            without_leftovers(&wanted, &live).unwrap()["webhooks"],
            json!([{"name": "b", "clientConfig": {"caBundle": STANDARD.encode("x")}}])
        );
        let mut plain = wanted.clone();
        plain["metadata"]["annotations"] = json!({});
        let body = without_leftovers(&plain, &live).unwrap();
        assert_eq!(body.get("webhooks"), None, "authorities of other writers stay");
        assert_eq!(
            without_leftovers(&wanted, &webhooks(&[("a", Some("x"))], &[])),
            None
        );
    }

    #[test]
    fn webhooks_that_others_hold_are_removed_when_no_longer_wanted() {
        let live = |applied: Value| {
            let mut live = webhooks(&[("a", Some("x")), ("b", Some("x"))], &[]);
            live["metadata"]["managedFields"][0]["manager"] = field_manager::OBJECTS.into();
            live["metadata"]["managedFields"][0]["fieldsV1"] = applied;
            let bundle = json!({"f:clientConfig": {"f:caBundle": {}}});
            let fields = json!({"f:webhooks": {"k:{\"name\":\"a\"}": bundle, "k:{\"name\":\"b\"}": bundle}});
            let injected = json!({"manager": "cainjector", "operation": "Update", "fieldsV1": fields});
            live["metadata"]["managedFields"]
                .as_array_mut()
                .unwrap()
                .push(injected);
            live
        };
        let both = json!({"f:webhooks": {"k:{\"name\":\"a\"}": {}, "k:{\"name\":\"b\"}": {}}});
        let wanted = webhooks(&[("b", None)], &[]);
        let patch = without_injected(&wanted, &live(both.clone())).unwrap();
        assert_eq!(patch["metadata"], metadata());
        assert_eq!(patch["webhooks"], json!([live(both.clone())["webhooks"][1]]));
        assert_eq!(without_injected(&live(both.clone()), &live(both.clone())), None);
        let mut own = live(both);
        own["metadata"]["managedFields"].as_array_mut().unwrap().pop();
        assert_eq!(without_injected(&wanted, &own), None, "no other manager holds it");
        let one = json!({"f:webhooks": {"k:{\"name\":\"b\"}": {}}});
        assert_eq!(
            without_injected(&wanted, &live(one)),
            None,
            "another manager holds a"
        );

        let definition = |applied: Value, conversion: Value| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "w", "uid": "u", "resourceVersion": "7", "managedFields": [{
                    "manager": field_manager::OBJECTS, "operation": "Apply",
                    "apiVersion": "apiextensions.k8s.io/v1", "fieldsV1": applied,
                }, {
                    "manager": "cainjector", "operation": "Update", "fieldsV1": {
                        "f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}},
                    },
                }]},
                "spec": {"conversion": conversion},
            })
        };
        let converted = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "eA=="}}});
        let ours =
            json!({"f:spec": {"f:conversion": {"f:strategy": {}, "f:webhook": {"f:clientConfig": {}}}}});
        let plain = definition(json!({}), json!({"strategy": "None"}));
        let live = definition(ours, converted.clone());
        assert_eq!(
            without_injected(&plain, &live).unwrap()["spec"],
            json!({"conversion": {"strategy": "None", "webhook": null}})
        );
        assert_eq!(without_injected(&live, &live), None);
        let mut own = live.clone();
        own["metadata"]["managedFields"].as_array_mut().unwrap().pop();
        assert_eq!(without_injected(&plain, &own), None, "no other manager holds it");
        let foreign = definition(json!({"f:spec": {}}), converted);
        assert_eq!(without_injected(&plain, &foreign), None);
    }

    #[test]
    fn a_definition_that_is_converted_no_longer_keeps_no_authority() {
        let live = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "w", "uid": "u", "resourceVersion": "7", "managedFields": [{
                "manager": field_manager::CERTIFICATES, "operation": "Apply",
                "apiVersion": "apiextensions.k8s.io/v1", "fieldsV1": {"f:spec": {}},
            }]},
            "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "eA=="}}}},
        });
        let mut wanted = live.clone();
        wanted["metadata"]["annotations"] = json!({annotation::AUTHORITY_FROM: "n/s"});
        assert_eq!(without_leftovers(&wanted, &live), None);
        wanted["spec"] = json!({});
        let body = without_leftovers(&wanted, &live).unwrap();
        assert_eq!((body.get("spec"), &body["metadata"]), (None, &metadata()));
    }
}
