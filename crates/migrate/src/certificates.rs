//! The certificates of an operator's webhooks and aggregated APIs, and the objects that OLM classic creates for them.
//! Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use olm_classic::csv::ClusterServiceVersion;
use olm_classic::install::serving::{self, secret_name, service_name};
use olm_classic::names::{AUTHORITY_KEY, MANAGED_LABEL};
use olm_platform::tls::certificate::not_after;
use olm_platform::tls::issue::CERTIFICATE;
use serde_json::{Value, json};

use crate::facts::{Case, find, list, name, namespace, text};
use crate::objects::reduce::is_written_by_go;

/// The namespace of the binding that lets servers read the authority of API requests.
const SYSTEM: &str = "kube-system";
/// The time before its end at which OLM classic renews a certificate: the status names the renewal.
const ROTATION: SignedDuration = SignedDuration::from_hours(24);
/// Parts of a Secret that decide its renewal. The key is none of them.
const PUBLIC: [&str; 2] = [CERTIFICATE, AUTHORITY_KEY];

/// Group, kind, namespace and name of an object.
pub type Part = [String; 4];

/// The Deployments of a ClusterServiceVersion that the API server calls.
fn called(version: &Value) -> Vec<String> {
    let Ok(version) = ClusterServiceVersion::read(version) else {
        return Vec::new();
    };
    let called = serving::called(&version).into_iter();
    called.map(str::to_owned).collect()
}

/// The names of the Secrets with the certificates of a ClusterServiceVersion.
pub fn secrets(version: &Value) -> Vec<String> {
    called(version).iter().map(|name| secret_name(name)).collect()
}

/// The objects that OLM classic creates for the Deployments that the API server calls. Some have no owner: those that
/// it found without one, and the binding in another namespace.
pub fn parts(version: &Value) -> Vec<Part> {
    let place = namespace(version);
    let rbac = "rbac.authorization.k8s.io";
    let parts = called(version).into_iter().flat_map(|deployment| {
        let (secret, service) = (secret_name(&deployment), service_name(&deployment));
        [
            ["", "Service", place, &service],
            ["", "Secret", place, &secret],
            [rbac, "Role", place, &secret],
            [rbac, "RoleBinding", place, &secret],
            [rbac, "RoleBinding", SYSTEM, &format!("{service}-auth-reader")],
        ]
        .map(|part| part.map(str::to_owned))
    });
    parts.collect()
}

/// Whether an object with the name of a part is that part. Another namespace may have a Deployment of that name, and
/// the name of a binding in `kube-system` does not tell.
pub fn is_part(found: &Value, version: &Value) -> bool {
    let labels = found.pointer("/metadata/labels");
    let is_managed = labels.and_then(|labels| labels.get(MANAGED_LABEL)) == Some(&json!("true"));
    let mut subjects = list(found, "/subjects").iter();
    let is_near = namespace(found) == namespace(version)
        || subjects.any(|subject| text(subject, "/namespace") == namespace(version));
    is_managed && is_near
}

/// Whether the Go implementation has created a certificate of the operator. A Secret that cannot be read may be of any.
pub fn are_of_go(case: Case<'_>) -> bool {
    let secrets = case.version().map(secrets).unwrap_or_default();
    let find = |wanted: &String| find(&case.facts.certificates, case.namespace(), wanted);
    secrets
        .iter()
        .any(|wanted| find(wanted).is_none_or(is_written_by_go))
}

/// The part of a Secret that tells how long its certificate is valid, and who has written it.
pub fn public(secret: &Value) -> Value {
    let data = PUBLIC.map(|key| (key, secret.get("data").and_then(|data| data.get(key))));
    let data = data.into_iter().filter_map(|(key, value)| Some((key, value?)));
    json!({
        "metadata": {
            "name": name(secret), "namespace": namespace(secret),
            "managedFields": secret.pointer("/metadata/managedFields"),
        },
        "data": data.collect::<std::collections::BTreeMap<_, _>>(),
    })
}

/// The time until which all certificates of the operator are valid; `None` if it is unknown.
pub fn valid_until(case: Case<'_>) -> Option<Timestamp> {
    let version = case.version()?;
    let secrets = secrets(version);
    let end = |wanted: &String| {
        let secret = find(&case.facts.certificates, case.namespace(), wanted)?;
        let ends = PUBLIC.map(|key| {
            let bytes = secret.get("data")?.get(key)?;
            let bytes: ByteString = serde_json::from_value(bytes.clone()).ok()?;
            Timestamp::from_second(not_after(&bytes.0)?).ok()
        });
        ends.into_iter().flatten().min()
    };
    let ends: Option<Vec<Timestamp>> = secrets.iter().map(end).collect();
    let read = ends.and_then(|ends| ends.into_iter().min());
    let noted = || {
        let due: Timestamp = text(version, "/status/certsRotateAt").parse().ok()?;
        due.checked_add(ROTATION).ok()
    };
    read.or_else(noted)
}

#[cfg(test)]
mod tests {
    use olm_platform::tls::issue::{Lifetimes, Renew, issue};

    use super::*;
    use crate::facts::tests::facts;

    fn version() -> Value {
        json!({
            "metadata": {"name": "postgres.v1.0.0", "namespace": "databases"},
            "spec": {
                "install": {"strategy": "deployment", "spec": {"deployments": [
                    {"name": "postgres", "spec": {}}, {"name": "worker", "spec": {}},
                ]}},
                "webhookdefinitions": [{"type": "ValidatingAdmissionWebhook", "deploymentName": "postgres"}],
            },
        })
    }

    #[test]
    fn only_called_deployments_have_parts() {
        let names: Vec<String> = parts(&version()).into_iter().map(|[.., name]| name).collect();
        assert_eq!(
            names,
            [
                "postgres-service",
                "postgres-service-cert",
                "postgres-service-cert",
                "postgres-service-cert",
                "postgres-service-auth-reader",
            ]
        );
        assert_eq!(secrets(&version()), ["postgres-service-cert"]);
    }

    #[test]
    fn a_part_is_managed_and_of_the_namespace() {
        let part = |place: &str, managed: &str, subject: &str| {
            let found = json!({
                "metadata": {"namespace": place, "labels": {"olm.managed": managed}},
                "subjects": [{"kind": "ServiceAccount", "name": "postgres", "namespace": subject}],
            });
            is_part(&found, &version())
        };
        assert!(part("databases", "true", "other") && part("kube-system", "true", "databases"));
        assert!(!part("databases", "false", "databases") && !part("kube-system", "true", "other"));
    }

    #[test]
    fn a_key_is_never_among_the_facts() {
        let secret = json!({
            "metadata": {"name": "s", "namespace": "n", "labels": {}}, "data": {"tls.crt": "YQ==", "tls.key": "Yg=="},
        });
        assert_eq!(
            public(&secret),
            json!({"metadata": {"name": "s", "namespace": "n", "managedFields": null}, "data": {"tls.crt": "YQ=="}})
        );
    }

    #[test]
    fn the_end_is_that_of_the_certificate() {
        let names = ["postgres-service.databases.svc".to_owned()];
        let issued = issue(
            None,
            Renew::Both,
            &names,
            Lifetimes::LONG,
            "2026-01-01".parse().unwrap(),
        )
        .unwrap();
        let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let mut facts = facts();
        facts.versions[0] = version();
        facts.versions[0]["status"] = json!({"certsRotateAt": "2030-01-01T00:00:00Z"});
        facts.certificates.push(json!({
            "metadata": {"name": "postgres-service-cert", "namespace": "databases"},
            "data": {"tls.crt": bytes(issued.certificate()), "olmCAKey": bytes(&issued.trusted())},
        }));
        let case = Case {
            facts: &facts,
            subscription: &facts.subscriptions[0],
        };
        assert_eq!(valid_until(case).unwrap().to_string(), "2028-01-01T00:00:00Z");
    }

    #[test]
    fn the_status_names_the_end_where_no_certificate_can_be_read() {
        let mut facts = facts();
        facts.versions[0] = version();
        let end = |facts: &_| {
            let case = Case {
                facts,
                subscription: &facts.subscriptions[0],
            };
            valid_until(case).map(|end| end.to_string())
        };
        assert_eq!(end(&facts), None);
        facts.versions[0]["status"] = json!({"certsRotateAt": "2027-01-01T00:00:00Z"});
        assert_eq!(end(&facts).as_deref(), Some("2027-01-02T00:00:00Z"));
    }
}
