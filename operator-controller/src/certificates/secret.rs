//! A Secret with an authority and a certificate: its checks and its content. Pure except for the creation of keys; the
//! day is an argument.

use std::collections::BTreeMap;

use jiff::civil::Date;
use k8s_openapi::ByteString;
use olm_api::names::field_manager;
use olm_platform::tls::TlsError;
use olm_platform::tls::issue::{Issued, Lifetimes, Renew, issue, plan};
use olm_rollout::engine::desired;
use olm_rollout::engine::differences::{Differences, differences_by};
use olm_rollout::engine::request::Write;
use olm_rollout::outline::Owner;
use serde_json::{Value, json};

/// Operators may read their certificate only at start.
const LIFETIMES: Lifetimes = Lifetimes::LONG;

/// The state of a live Secret.
#[derive(Debug)]
pub struct SecretState {
    /// The differences from the wanted one, including a certificate that is due for renewal.
    pub differences: Differences,
    /// The authorities to trust, PEM; `None` if the Secret cannot be used.
    pub trusted: Option<String>,
}

/// Compares a live Secret with the wanted one.
pub fn state(skeleton: &Value, owner: &Owner, names: &[String], live: &Value, today: Date) -> SecretState {
    let issued = Issued::read(&data(live));
    let mut differences = differences_by(field_manager::CERTIFICATES, &wanted(skeleton, owner, live), live);
    let renew = plan(issued.as_ref(), names, LIFETIMES, today);
    if renew != Renew::Nothing {
        differences.add(&format!("data ({renew:?})"));
    }
    SecretState {
        differences,
        trusted: issued.map(|issued| issued.trusted()),
    }
}

/// The valid content of a live Secret of ours.
pub fn usable(live: &Value) -> Option<Issued> {
    let only_data = json!({"apiVersion": "v1", "kind": "Secret", "data": live.get("data")});
    let ours = differences_by(field_manager::CERTIFICATES, &only_data, live).fingerprint == 0;
    Issued::read(&data(live)).filter(|_| ours)
}

/// The Secret to apply: the live content, with parts renewed that are due. Authorities in `older`, PEM, whose keys are
/// lost stay trusted for a while.
///
/// # Errors
/// When keys or certificates cannot be made.
pub fn body(
    skeleton: &Value,
    owner: &Owner,
    write: &Write,
    names: &[String],
    live: Option<&Value>,
    older: &str,
    today: Date,
) -> Result<Value, TlsError> {
    let before = live.and_then(usable);
    let renew = plan(before.as_ref(), names, LIFETIMES, today);
    let lost = before.is_none();
    let mut issued = issue(before, renew, names, LIFETIMES, today)?;
    if lost {
        issued = issued.also_trusting(older, LIFETIMES, today);
    }
    if renew != Renew::Nothing {
        tracing::info!(set = owner.name, service = names.first(), ?renew, expires = %issued.expires(), "renewed certificates");
    }
    let mut body = desired::body(skeleton, owner, write);
    if let Some(body) = body.as_object_mut() {
        body.insert("data".to_owned(), json!(issued.data()));
    }
    Ok(body)
}

/// The wanted Secret with the live data, to check that all of it is ours.
fn wanted(skeleton: &Value, owner: &Owner, live: &Value) -> Value {
    let mut wanted = desired::wanted(skeleton, owner);
    if let (Some(wanted), Some(data)) = (wanted.as_object_mut(), live.get("data")) {
        wanted.insert("data".to_owned(), data.clone());
    }
    wanted
}

fn data(live: &Value) -> BTreeMap<String, ByteString> {
    live.get("data")
        .and_then(|data| serde_json::from_value(data.clone()).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use olm_api::names::annotation;
    use olm_rollout::certificates::layout;
    use olm_rollout::ownership::Guard;

    use super::*;

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn owner() -> Owner {
        Owner {
            name: "e-1".to_owned(),
            uid: "u".to_owned(),
            revision: 1,
            owner_name: "e".to_owned(),
            ..Owner::default()
        }
    }

    fn skeleton() -> (Value, Vec<String>) {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {
            "name": "op-service", "namespace": "ns",
            "annotations": {annotation::SERVING_CERTIFICATE: "op-service-cert"},
        }});
        let secret = layout::secrets([&service].into_iter()).remove(0);
        (secret, vec!["op-service.ns.svc".to_owned()])
    }

    /// The object on the server after an apply by `manager`.
    fn applied(body: &Value, manager: &str) -> Value {
        fn fields(value: &Value) -> Value {
            match value {
                Value::Object(map) => map
                    .iter()
                    .map(|(key, value)| (format!("f:{key}"), fields(value)))
                    .collect(),
                _ => json!({}),
            }
        }
        let mut live = body.clone();
        let mut owned = fields(body);
        let reference = json!({"k:{\"uid\":\"u\"}": fields(&body["metadata"]["ownerReferences"][0])});
        owned["f:metadata"]["f:ownerReferences"] = reference;
        live["metadata"]["managedFields"] =
            json!([{"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsV1": owned}]);
        live
    }

    fn make(live: Option<&Value>, older: &str, on: &str) -> Value {
        let (skeleton, names) = skeleton();
        let write = Write {
            guard: Guard::Absent,
            demoted: Vec::new(),
        };
        let body = body(&skeleton, &owner(), &write, &names, live, older, day(on)).unwrap();
        applied(&body, field_manager::CERTIFICATES)
    }

    fn looked(live: &Value, on: &str) -> SecretState {
        let (skeleton, names) = skeleton();
        state(&skeleton, &owner(), &names, live, day(on))
    }

    #[test]
    fn certificates_are_kept_until_they_are_due_and_renewed_in_time() {
        let live = make(None, "", "2026-01-01");
        for on in ["2026-01-01", "2026-12-30"] {
            assert_eq!(looked(&live, on).differences, Differences::default(), "{on}");
        }
        let due = looked(&live, "2027-01-02");
        assert_ne!(due.differences.fingerprint, 0);
        let renewed = make(Some(&live), "", "2027-01-02");
        assert_eq!(looked(&renewed, "2027-01-02").differences, Differences::default());
        assert_eq!(
            looked(&renewed, "2027-01-02").trusted,
            due.trusted,
            "the authority stays"
        );
        assert_ne!(live["data"]["tls.crt"], renewed["data"]["tls.crt"]);
        let same = make(Some(&renewed), "", "2027-01-02");
        assert_eq!(same["data"], renewed["data"], "applied again it is the same");
    }

    #[test]
    fn a_lost_secret_is_made_anew_and_the_old_authority_stays_trusted() {
        let trusted = looked(&make(None, "", "2026-01-01"), "2026-01-01")
            .trusted
            .unwrap();
        let anew = make(None, &trusted, "2026-02-01");
        let now = looked(&anew, "2026-02-01").trusted.unwrap();
        assert!(now.ends_with(&trusted) && now.len() > trusted.len());
        assert_eq!(looked(&anew, "2026-02-01").differences, Differences::default());
    }

    #[test]
    fn content_of_another_writer_is_not_reused() {
        let live = make(None, "", "2026-01-01");
        let mut foreign = live.clone();
        foreign["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]
            .as_object_mut()
            .unwrap()
            .remove("f:tls.crt");
        let seen = looked(&foreign, "2026-01-01");
        assert_eq!(seen.differences.paths, ["data.tls.crt"]);
        let anew = make(Some(&foreign), &seen.trusted.unwrap(), "2026-01-01");
        assert_ne!(anew["data"]["ca.key"], live["data"]["ca.key"]);
        let garbled = json!({"metadata": live["metadata"], "data": {"tls.crt": "AAAA"}});
        assert_ne!(looked(&garbled, "2026-01-01").differences.fingerprint, 0);
        assert_eq!(looked(&garbled, "2026-01-01").trusted, None);
    }
}
