//! A Secret with an authority and a certificate: its checks and its content. Pure except for the creation of keys; the
//! day is an argument.
//!
//! A Secret that came from OLM classic keeps its certificate until that is due, and gets an authority beside the old
//! one: webhook configurations of the revision before trust only the old one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use k8s_openapi::ByteString;
use olm_api::names::{CLASSIC_AUTHORITY, field_manager};
use olm_platform::tls::TlsError;
use olm_platform::tls::certificate::{dns_names, not_after};
use olm_platform::tls::issue::{CERTIFICATE, Issued, KEY, Lifetimes, Renew, issue, plan};
use olm_rollout::engine::desired;
use olm_rollout::engine::differences::{Differences, differences_by};
use olm_rollout::engine::request::Write;
use olm_rollout::outline::Owner;
use serde_json::{Value, json};

/// Operators may read their certificate only at start.
const LIFETIMES: Lifetimes = Lifetimes::LONG;

/// The state of a live Secret.
#[derive(Debug)]
pub(crate) struct SecretState {
    /// The differences from the wanted one, including a certificate that is due for renewal.
    pub differences: Differences,
    /// The authorities to trust, PEM; `None` if the Secret cannot be used.
    pub trusted: Option<String>,
}

/// Compares a live Secret with the wanted one.
pub(crate) fn state(
    skeleton: &Value,
    owner: &Owner,
    names: &[String],
    live: &Value,
    today: Date,
) -> SecretState {
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
pub(crate) fn usable(live: &Value) -> Option<Issued> {
    Issued::read(&data(live)).filter(|_| is_ours(live))
}

/// Whether we have written all of the data.
fn is_ours(live: &Value) -> bool {
    let only_data = json!({"apiVersion": "v1", "kind": "Secret", "data": live.get("data")});
    differences_by(field_manager::CERTIFICATES, &only_data, live).fingerprint == 0
}

/// The certificate of OLM classic in a Secret of ours, which has no authority of its own yet; `None` if it is due or
/// not for all names.
fn of_classic(live: &Value, names: &[String], today: Date) -> Option<Issued> {
    let data = data(live);
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let (authority, certificate, key) = (text(CLASSIC_AUTHORITY)?, text(CERTIFICATE)?, text(KEY)?);
    let ends = Timestamp::from_second(not_after(certificate.as_bytes())?).ok()?;
    let hosts = dns_names(certificate.as_bytes());
    if !is_ours(live) || !names.iter().all(|name| hosts.contains(name)) {
        return None;
    }
    let expires = ends.to_zoned(TimeZone::UTC).date();
    Issued::of_others([&authority, &certificate, &key], expires, names, LIFETIMES, today)
}

/// The Secret to apply: the live content, with parts renewed that are due. Authorities in `older`, PEM, whose keys are
/// lost stay trusted for a while.
///
/// # Errors
/// When keys or certificates cannot be made.
pub(crate) fn body(
    skeleton: &Value,
    owner: &Owner,
    write: &Write,
    names: &[String],
    live: Option<&Value>,
    older: &str,
    today: Date,
) -> Result<Value, TlsError> {
    let mut before = live.and_then(usable);
    let mut renew = plan(before.as_ref(), names, LIFETIMES, today);
    if before.is_none() {
        before = live.and_then(|live| of_classic(live, names, today));
        if before.is_some() {
            renew = Renew::Authority;
        }
    }
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

    /// A Secret of OLM classic that a revision has taken over, with the field manager of its data.
    fn of_classic_by(manager: &str, host: &str) -> Value {
        let names = [host.to_owned()];
        let made = issue(None, Renew::Both, &names, LIFETIMES, day("2026-01-01")).unwrap();
        let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let (skeleton, _) = skeleton();
        let mut body = desired::wanted(&skeleton, &owner());
        body["data"] = json!({
            "olmCAKey": bytes(&made.trusted()), "tls.crt": bytes(made.certificate()), "tls.key": bytes(made.key()),
        });
        applied(&body, manager)
    }

    #[test]
    fn a_certificate_of_classic_is_kept_until_it_is_due_and_gets_an_authority() {
        let classic = of_classic_by(field_manager::CERTIFICATES, "op-service.ns.svc");
        let authority = String::from_utf8(data(&classic)["olmCAKey"].0.clone()).unwrap();
        assert_eq!(looked(&classic, "2026-02-01").trusted, None);
        let kept = make(Some(&classic), "", "2026-02-01");
        for key in ["tls.crt", "tls.key"] {
            assert_eq!(kept["data"][key], classic["data"][key], "{key}");
        }
        assert_eq!(kept["data"].get("olmCAKey"), None);
        let seen = looked(&kept, "2026-02-01");
        assert_eq!(seen.differences, Differences::default());
        let trusted = seen.trusted.unwrap();
        assert!(trusted.ends_with(&authority) && trusted.len() > authority.len());
        let renewed = make(Some(&kept), "", "2027-02-01");
        assert_ne!(renewed["data"]["tls.crt"], classic["data"]["tls.crt"]);
        assert_eq!(looked(&renewed, "2027-02-01").trusted, Some(trusted));

        // One that is due, for another host, or of another writer.
        for (live, on) in [
            (&classic, "2027-02-01"),
            (&of_classic_by(field_manager::CERTIFICATES, "other"), "2026-02-01"),
            (&of_classic_by("kubectl", "op-service.ns.svc"), "2026-02-01"),
        ] {
            let anew = make(Some(live), &authority, on);
            assert_ne!(anew["data"]["tls.crt"], live["data"]["tls.crt"]);
            assert!(looked(&anew, on).trusted.unwrap().ends_with(&authority));
        }
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
