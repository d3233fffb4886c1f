//! Objects for a Deployment that the API server calls: a Service, a certificate, and the right to read it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use olm_bundle::render::certificates::{APISERVER_VOLUME, WEBHOOK_VOLUME};
use serde_json::{Map, Value, json};

use super::certificate::{decoded, hash, is_due};
use super::{IssuedCertificate, Issuer, Setting, owner_labels, owner_reference};
use crate::cluster::{Cluster, items, object_at, text};
use crate::csv::ClusterServiceVersion;
use crate::names;

const DEFAULT_PORT: i64 = 443;
const SYSTEM: &str = "kube-system";
/// Time before its expiry at which a certificate is due.
pub(crate) const ROTATION: SignedDuration = SignedDuration::from_hours(24);

/// The names of the Deployments of the strategy that the API server calls, in its order.
pub fn called(csv: &ClusterServiceVersion) -> Vec<&str> {
    let owned = csv.spec.owned_services();
    let is_called = |name: &&str| {
        owned.values().any(|api| api.deployment_name == *name)
            || csv
                .spec
                .webhook_definitions
                .iter()
                .any(|webhook| text(webhook, "/deploymentName") == *name)
    };
    let deployments = csv.spec.install.spec.deployments.iter();
    deployments
        .map(|entry| entry.name.as_str())
        .filter(is_called)
        .collect()
}

/// The hosts that the certificate of a Deployment is for; the first is its common name.
pub(crate) fn hosts(deployment: &str, namespace: &str) -> [String; 3] {
    let host = format!("{}.{namespace}", service_name(deployment));
    [
        host.clone(),
        format!("{host}.svc"),
        format!("{host}.svc.cluster.local"),
    ]
}

/// The name of the Service of a Deployment. It has dashes for dots, which the name of a Service must not have.
pub fn service_name(deployment: &str) -> String {
    format!("{}-service", deployment.replace('.', "-"))
}

/// The name of the Secret with the certificate of a Deployment.
pub fn secret_name(deployment: &str) -> String {
    format!("{deployment}-service-cert")
}

/// The authority as webhook configurations and APIServices have it.
pub(super) fn bundle(authority: &[u8]) -> String {
    STANDARD.encode(authority)
}

/// The objects for one Deployment, and its authority, PEM. A Secret whose certificate is good is kept.
pub(super) struct DeploymentServing {
    pub(super) objects: Vec<Value>,
    pub(super) authority: Vec<u8>,
    pub(super) due: Option<Timestamp>,
    pub(super) is_made: bool,
}

/// Time when the certificate in a Secret must be renewed; `None` where that is unknown.
fn secret_due(secret: &Value, issuer: &dyn Issuer) -> Option<Timestamp> {
    let decoded = |key: &str| String::from_utf8(decoded(secret, &format!("/data/{key}"))).unwrap_or_default();
    issuer.due(&decoded("tls.crt"), &decoded(names::AUTHORITY_KEY))
}

/// The new authority, and the one before it: certificates of that one are in use until the Pods are new.
fn overlapping(authority: &str, before: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let newest = before.split_inclusive(END).next();
    match newest.filter(|newest| newest.ends_with(END)) {
        Some(newest) => format!("{}\n{}\n", authority.trim_end(), newest.trim()),
        None => authority.to_owned(),
    }
}

/// Makes the objects that a Deployment needs to be called.
///
/// # Errors
/// When no certificate can be issued.
pub(super) fn serve(
    object: &Value,
    csv: &ClusterServiceVersion,
    deployment: &str,
    setting: Setting<'_>,
) -> Result<DeploymentServing, String> {
    let Setting { cluster, issuer, now } = setting;
    let place = csv.metadata.namespace.as_str();
    let mut entries = csv.spec.install.spec.deployments.iter();
    let spec = entries
        .find(|entry| entry.name == deployment)
        .map_or(Value::Null, |entry| entry.spec.clone());
    let account = match text(&spec, "/template/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };
    let service = service_name(deployment);
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(object, &service),
        "spec": {
            "ports": ports(csv, deployment),
            "selector": spec.pointer("/selector/matchLabels").unwrap_or(&Value::Null),
        },
    })];
    let name = secret_name(deployment);
    let hosts = hosts(deployment, place);
    let found = cluster.get_watched(names::SECRET_KIND, place, &name);
    let before = found
        .map(|secret| decoded(secret, &format!("/data/{}", names::AUTHORITY_KEY)))
        .unwrap_or_default();
    let kept = found.filter(|secret| !is_due(secret, &hosts, now, ROTATION));
    let is_made = kept.is_none();
    let (authority, due) = if let Some(kept) = kept {
        objects.extend(owned_by(kept, object));
        (before, secret_due(kept, issuer))
    } else {
        let mut made = issuer.issue(&hosts)?;
        made.authority = overlapping(&made.authority, &String::from_utf8_lossy(&before));
        let metadata = taken_over(object, names::SECRET_KIND, &name, cluster);
        objects.push(secret(metadata, &made));
        let due = made.expires - ROTATION;
        (made.authority.into_bytes(), Some(due))
    };
    objects.extend(rights(object, csv, deployment, account, cluster));
    Ok(DeploymentServing {
        objects,
        authority,
        due,
        is_made,
    })
}

fn metadata(csv: &Value, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": text(csv, "/metadata/namespace"),
        "labels": {names::MANAGED_LABEL: "true"},
        "ownerReferences": [owner_reference(csv)],
    })
}

/// A Secret that stays as it is, with this ClusterServiceVersion as its owner; nothing where no ClusterServiceVersion
/// owns it. Its old owner is going to be deleted, and the certificate must not go with it.
fn owned_by(kept: &Value, csv: &Value) -> Option<Value> {
    let owners: Vec<&Value> = items(kept, "/metadata/ownerReferences").collect();
    let is_owned = owners.iter().any(|owner| text(owner, "/kind") == names::CSV_KIND);
    let wanted = json!([owner_reference(csv)]);
    if !is_owned || kept.pointer("/metadata/ownerReferences") == Some(&wanted) {
        return None;
    }
    let mut kept = kept.clone();
    object_at(&mut kept, &["metadata"])?.insert("ownerReferences".to_owned(), wanted);
    Some(kept)
}

/// The metadata of an object that may be there already. One that no ClusterServiceVersion owns stays so.
fn taken_over(csv: &Value, kind: &str, name: &str, cluster: &Cluster) -> Value {
    let mut metadata = metadata(csv, name);
    let found = cluster.get_watched(kind, text(csv, "/metadata/namespace"), name);
    let is_unowned = found.is_some_and(|found| {
        !items(found, "/metadata/ownerReferences").any(|owner| text(owner, "/kind") == names::CSV_KIND)
    });
    if let (true, Some(metadata)) = (is_unowned, metadata.as_object_mut()) {
        metadata.remove("ownerReferences");
    }
    metadata
}

fn secret(mut metadata: Value, made: &IssuedCertificate) -> Value {
    if let Some(metadata) = metadata.as_object_mut() {
        let hash = hash(made.authority.as_bytes());
        metadata.insert("annotations".to_owned(), json!({names::CA_HASH_ANNOTATION: hash}));
    }
    json!({
        "apiVersion": "v1", "kind": names::SECRET_KIND, "metadata": metadata, "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": STANDARD.encode(&made.certificate),
            "tls.key": STANDARD.encode(&made.key),
            names::AUTHORITY_KEY: STANDARD.encode(&made.authority),
        },
    })
}

/// One port for each that is called.
fn ports(csv: &ClusterServiceVersion, deployment: &str) -> Vec<Value> {
    let services = csv.spec.owned_services();
    let services = services
        .values()
        .filter(|owned| owned.deployment_name == deployment)
        .map(|owned| (i64::from(owned.container_port), Value::Null));
    let webhooks = csv.spec.webhook_definitions.iter();
    let webhooks = webhooks
        .filter(|webhook| text(webhook, "/deploymentName") == deployment)
        .map(|webhook| {
            let target = webhook.get("targetPort").cloned().unwrap_or_default();
            (port(webhook), target)
        });
    let mut ports: Vec<Value> = Vec::new();
    for (port, target) in services.chain(webhooks) {
        let port = if port == 0 { DEFAULT_PORT } else { port };
        let target = match target {
            Value::Null => port.into(),
            target => target,
        };
        let wanted = json!({"name": port.to_string(), "port": port, "targetPort": target});
        if !ports.contains(&wanted) {
            ports.push(wanted);
        }
    }
    ports
}

/// The port of a webhook; 0 where none is given.
pub(super) fn port(webhook: &Value) -> i64 {
    webhook
        .get("containerPort")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// The right of the account to read its certificate, and to ask the API server about the identity of callers.
fn rights(
    object: &Value,
    csv: &ClusterServiceVersion,
    deployment: &str,
    account: &str,
    cluster: &Cluster,
) -> Vec<Value> {
    let (secret, service) = (secret_name(deployment), service_name(deployment));
    let place = csv.metadata.namespace.as_str();
    let api_version = names::RBAC_API_VERSION;
    let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": place}]);
    let bound = |kind: &str, name: &str| json!({"apiGroup": names::RBAC_GROUP, "kind": kind, "name": name});
    let of = |kind: &str| taken_over(object, kind, &secret, cluster);
    let mut labels = owner_labels(csv);
    labels.insert(names::MANAGED_LABEL.to_owned(), "true".into());
    vec![
        json!({
            "apiVersion": api_version, "kind": "Role", "metadata": of("Role"),
            "rules": [{
                "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret],
            }],
        }),
        json!({
            "apiVersion": api_version, "kind": "RoleBinding", "metadata": of("RoleBinding"),
            "subjects": subjects, "roleRef": bound("Role", &secret),
        }),
        json!({
            "apiVersion": api_version, "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{service}-system:auth-delegator"), "labels": labels},
            "subjects": subjects, "roleRef": bound("ClusterRole", "system:auth-delegator"),
        }),
        json!({
            "apiVersion": api_version, "kind": "RoleBinding",
            "metadata": {
                "name": format!("{service}-auth-reader"), "namespace": SYSTEM,
                "labels": {names::MANAGED_LABEL: "true"},
            },
            "subjects": subjects, "roleRef": bound("Role", "extension-apiserver-authentication-reader"),
        }),
    ]
}

/// Gives the Pods of a DeploymentSpec the certificate, and the hash of its authority.
pub(super) fn mount(spec: &mut Value, deployment: &str, authority: &[u8]) {
    if let Some(annotations) = object_at(spec, &["template", "metadata", "annotations"]) {
        let hash = hash(authority);
        annotations.insert(names::CA_HASH_ANNOTATION.to_owned(), hash.into());
    }
    let Some(pod) = object_at(spec, &["template", "spec"]) else {
        return;
    };
    if pod
        .get("serviceAccountName")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        pod.insert("serviceAccountName".to_owned(), "default".into());
    }
    let secret = secret_name(deployment);
    let files = [
        (APISERVER_VOLUME, ["apiserver.crt", "apiserver.key"]),
        (WEBHOOK_VOLUME, ["tls.crt", "tls.key"]),
    ];
    for ((name, path), [certificate, key]) in files {
        let volume = json!({"name": name, "secret": {
            "secretName": secret,
            "items": [{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}],
        }});
        replace(pod, "volumes", volume, |found| text(found, "/name") == name);
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = container.get("volumeMounts").and_then(Value::as_array);
            let mut mounts = mounts.into_iter().flatten();
            let first =
                mounts.find(|mount| text(mount, "/name") == name || text(mount, "/mountPath") == path);
            if first.is_none_or(|mount| text(mount, "/name") != name) {
                let mount = json!({"name": name, "mountPath": path});
                replace(container, "volumeMounts", mount, |found| {
                    text(found, "/mountPath") == path
                });
            }
        }
    }
}

/// Puts an element into a list in place of those that it replaces, else at the end.
fn replace(object: &mut Map<String, Value>, key: &str, element: Value, is_replaced: impl Fn(&Value) -> bool) {
    let list = object.entry(key).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|found| is_replaced(found)) {
        Some(found) => *found = element,
        None => list.push(element),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_service_has_no_dots_and_the_certificate_is_for_it() {
        assert_eq!(service_name("d"), "d-service");
        assert_eq!(service_name("d.v1"), "d-v1-service");
        assert_eq!(
            hosts("d.v1", "n"),
            [
                "d-v1-service.n",
                "d-v1-service.n.svc",
                "d-v1-service.n.svc.cluster.local"
            ]
        );
    }
}
