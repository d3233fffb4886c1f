//! The objects of a registry: what they are, whether they are there, and what makes them so.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::pod::{is_dead, is_same, pod};
use super::{Images, RegistryChanges, Source, serving, update};
use crate::cluster::{items, label, object_at, put, text};
use crate::wire::{Field, Shape};
use crate::{hash, names, wire};

/// The port of registries.
pub(super) const PORT: i64 = 50051;
const UNPACK_LABEL: &str = "operatorframework.io/bundle-unpack-ref";
const SERVICE_SPEC: Shape = Shape::Struct(&[
    Field::optional("ports", Shape::List(&SERVICE_PORT)),
    Field::optional("selector", Shape::Plain),
]);
const SERVICE_PORT: Shape = Shape::Struct(&[
    Field::optional("name", Shape::Plain),
    Field::optional("protocol", Shape::Plain),
    Field::always("port", "0", Shape::Plain),
    Field::always("targetPort", "0", Shape::Plain),
]);

/// The objects of a registry as they should be.
struct RegistryObjects {
    policies: [Value; 2],
    account: Value,
    roles: Vec<Value>,
    pod: Value,
    /// The Pod that looks for a newer catalog, where it runs another image.
    update: Option<Value>,
    service: Value,
}

fn registry_objects(source: &Source<'_>, images: &Images) -> Result<RegistryObjects, String> {
    let mut labels = Map::new();
    labels.insert(names::CATALOG_SOURCE_LABEL.to_owned(), source.name().into());
    labels.insert(names::MANAGED_LABEL.to_owned(), "true".into());
    if !source.is_image() {
        let map = source.config_map()?;
        let version = text(map, "/metadata/resourceVersion");
        labels.insert(names::CONFIG_MAP_LABEL.to_owned(), version.into());
    }
    let (account, roles) = if source.is_image() {
        (account(source, source.name(), true), Vec::new())
    } else {
        let name = format!("{}-configmap-server", source.name());
        (account(source, &name, false), roles(source, &name))
    };
    let live = source.cluster.get(
        "ServiceAccount",
        source.namespace(),
        text(&account, "/metadata/name"),
    );
    let of_image = |image: &str| pod(source, image, images, &labels, live.unwrap_or(&account));
    let (pod, update) = match &images.catalog {
        None => (of_image(text(source.object, "/spec/image")), None),
        Some(catalog) => {
            let newest = Some(&catalog.newest).filter(|newest| **newest != catalog.serving);
            (of_image(&catalog.serving), newest.map(|newest| of_image(newest)))
        }
    };
    Ok(RegistryObjects {
        policies: [server_policy(source, &labels), unpack_policy(source)],
        account,
        roles,
        pod,
        update,
        service: service(source),
    })
}

/// An object that goes with the source.
pub(super) fn object(source: &Source<'_>, api_version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name, "namespace": source.namespace(), "labels": {names::MANAGED_LABEL: "true"},
            "ownerReferences": [source.owner(false, false)],
        },
    })
}

fn with(mut object: Value, fields: &[(&str, Value)]) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.extend(
            fields
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.clone())),
        );
    }
    object
}

fn account(source: &Source<'_>, name: &str, is_controlled: bool) -> Value {
    let mut account = object(source, "v1", "ServiceAccount", name);
    if is_controlled {
        put(
            &mut account,
            &["metadata"],
            "ownerReferences",
            json!([source.owner(true, true)]),
        );
    }
    let secrets: Vec<Value> = items(source.object, "/spec/secrets")
        .filter_map(Value::as_str)
        .filter(|name| !name.is_empty())
        .map(|name| json!({"name": name}))
        .collect();
    if secrets.is_empty() || !is_controlled {
        return account;
    }
    with(account, &[("imagePullSecrets", json!(secrets))])
}

fn roles(source: &Source<'_>, account: &str) -> Vec<Value> {
    let role = format!("{}-configmap-reader", source.name());
    let map = text(source.object, "/spec/configMap");
    let rules = json!([{
        "verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [map],
    }]);
    let binding = format!("{}-server-configmap-reader", source.name());
    vec![
        with(
            object(source, names::RBAC_API_VERSION, "Role", &role),
            &[("rules", rules)],
        ),
        with(
            object(source, names::RBAC_API_VERSION, "RoleBinding", &binding),
            &[
                (
                    "subjects",
                    json!([{"kind": "ServiceAccount", "name": account, "namespace": source.namespace()}]),
                ),
                (
                    "roleRef",
                    json!({"apiGroup": names::RBAC_GROUP, "kind": "Role", "name": role}),
                ),
            ],
        ),
    ]
}

fn policy(source: &Source<'_>, suffix: &str, spec: Value) -> Value {
    let name = format!("{}-{suffix}", source.name());
    let mut policy = object(source, "networking.k8s.io/v1", "NetworkPolicy", &name);
    if let Some(labels) = object_at(&mut policy, &["metadata", "labels"]) {
        labels.insert(names::CATALOG_SOURCE_LABEL.to_owned(), source.name().into());
    }
    with(policy, &[("spec", spec)])
}

/// Everywhere, and to name servers.
fn all_egress() -> Value {
    let port = |port: i64, protocol: &str| json!({"port": port, "protocol": protocol});
    json!([
        {},
        {"ports": [port(53, "TCP"), port(53, "UDP"), port(5353, "TCP"), port(5353, "UDP")]},
    ])
}

fn server_policy(source: &Source<'_>, labels: &Map<String, Value>) -> Value {
    let mut spec = json!({
        "podSelector": {"matchLabels": labels},
        "ingress": [{"ports": [{"port": PORT, "protocol": "TCP"}]}],
        "policyTypes": ["Ingress", "Egress"],
    });
    if !source.is_image() {
        put(&mut spec, &[], "egress", all_egress());
    }
    policy(source, "grpc-server", spec)
}

fn unpack_policy(source: &Source<'_>) -> Value {
    let spec = json!({
        "podSelector": {"matchExpressions": [
            {"key": UNPACK_LABEL, "operator": "Exists"},
            {"key": names::MANAGED_LABEL, "operator": "In", "values": ["true"]},
        ]},
        "egress": all_egress(),
        "policyTypes": ["Ingress", "Egress"],
    });
    policy(source, "unpack-bundles", spec)
}

fn service(source: &Source<'_>) -> Value {
    let mut selector = json!({names::CATALOG_SOURCE_LABEL: source.name()});
    if source.is_image() {
        put(&mut selector, &[], names::MANAGED_LABEL, json!("true"));
    }
    let spec = json!({
        "ports": [{"name": "grpc", "port": PORT, "targetPort": PORT}],
        "selector": selector,
    });
    let labels = service_labels(&spec);
    let mut service = object(source, "v1", "Service", &source.service_name());
    put(&mut service, &["metadata"], "labels", labels);
    with(service, &[("spec", spec)])
}

/// The labels of a Service with this specification.
pub(super) fn service_labels(spec: &Value) -> Map<String, Value> {
    let hash = hash::text(&format!("{}\n", wire::write(spec, SERVICE_SPEC)));
    Map::from_iter([
        (names::MANAGED_LABEL.to_owned(), "true".into()),
        (names::SERVICE_HASH_LABEL.to_owned(), hash.into()),
    ])
}

fn is_there(source: &Source<'_>, object: &Value) -> bool {
    live(source, object).is_some()
}

fn live<'a>(source: &'a Source<'_>, object: &Value) -> Option<&'a Value> {
    let name = text(object, "/metadata/name");
    source
        .cluster
        .get(text(object, "/kind"), source.namespace(), name)
}

/// Whether a NetworkPolicy is as it is wanted.
fn is_current(source: &Source<'_>, policy: &Value) -> bool {
    let found = live(source, policy);
    found.is_some_and(|found| {
        let wanted = items_of(policy, "/metadata/labels");
        let labels = items_of(found, "/metadata/labels");
        given(found.pointer("/spec")) == given(policy.pointer("/spec"))
            && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

/// The fields of an object; none where there is none.
fn items_of(object: &Value, pointer: &str) -> Map<String, Value> {
    let fields = object.pointer(pointer).and_then(Value::as_object);
    fields.cloned().unwrap_or_default()
}

/// The fields that are not empty lists, which mean the same as absent ones.
fn given(value: Option<&Value>) -> Option<Map<String, Value>> {
    let mut fields = value?.as_object()?.clone();
    fields.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    Some(fields)
}

/// Whether the registry of a source is as it is wanted. One that is only an address always is.
///
/// # Errors
/// When its ConfigMap does not exist.
pub fn is_healthy(source: &Source<'_>, images: &Images) -> Result<bool, String> {
    if source.is_address() {
        return Ok(true);
    }
    let wanted = registry_objects(source, images)?;
    if !source.is_image() && !source.is_map_known(source.config_map()?) {
        return Ok(false);
    }
    let right: Vec<&Value> = serving(source)
        .filter(|pod| serves(source, pod, &wanted.pod))
        .collect();
    // A Pod of a ConfigMap source does not have to be the right one to be alive.
    let is_alive = if source.is_image() {
        right.iter().any(|pod| !is_dead(pod))
    } else {
        !right.is_empty() && serving(source).any(|pod| !is_dead(pod))
    };
    Ok(is_alive
        && wanted.policies.iter().all(|policy| is_current(source, policy))
        && is_there(source, &wanted.account)
        && wanted.roles.iter().all(|role| is_there(source, role))
        && is_there(source, &wanted.service))
}

/// Whether a Pod serves what is wanted. That of a ConfigMap source only needs the labels.
fn serves(source: &Source<'_>, pod: &Value, wanted: &Value) -> bool {
    if source.is_image() {
        return is_same(pod, wanted);
    }
    [names::MANAGED_LABEL, names::CONFIG_MAP_LABEL]
        .iter()
        .all(|key| label(pod, key) == label(wanted, key))
}

/// Makes the registry of a source what is wanted.
pub fn ensure(source: &Source<'_>, images: &Images, now: Timestamp) -> RegistryChanges {
    let mut ensured = RegistryChanges {
        status: source.object.get("status").cloned().unwrap_or_else(|| json!({})),
        ..RegistryChanges::default()
    };
    let time = format!("{now:.0}");
    if source.is_address() {
        let service = json!({"protocol": "grpc", "createdAt": time});
        put(&mut ensured.status, &[], "registryService", service);
        return ensured;
    }
    let wanted = match registry_objects(source, images) {
        Ok(wanted) => wanted,
        Err(error) => {
            ensured.error = Some(error);
            return ensured;
        }
    };
    let is_new = !has_valid_status(source);
    let has_pod = serving(source).any(|pod| serves(source, pod, &wanted.pod) && !is_dead(pod));
    let mut is_replaced = is_new || !has_pod;
    if !source.is_image()
        && let Ok(map) = source.config_map()
        && !source.is_map_known(map)
    {
        is_replaced = true;
        let reference = super::reference(source, map, now);
        put(&mut ensured.status, &[], "configMapReference", reference);
    }
    let policies = wanted.policies.iter();
    ensured
        .written
        .extend(policies.filter(|policy| !is_current(source, policy)).cloned());
    let others = std::iter::once(&wanted.account).chain(&wanted.roles);
    let is_missing = |object: &&Value| match live(source, object) {
        Some(found) => is_new && !source.is_image() && found != *object,
        None => true,
    };
    ensured.written.extend(others.filter(is_missing).cloned());
    if is_replaced {
        for pod in serving(source) {
            let name = text(pod, "/metadata/name").to_owned();
            if is_dead(pod) {
                ensured.dead.push(name);
            } else {
                ensured.deleted.push(name);
            }
        }
        ensured.written.push(wanted.pod.clone());
    }
    let update = wanted.update.as_ref().unwrap_or(&wanted.pod);
    if source.is_image() && !update::poll(source, update, now, &mut ensured) {
        return ensured;
    }
    let hash = |service: &Value| label(service, names::SERVICE_HASH_LABEL).to_owned();
    let service = live(source, &wanted.service);
    if is_new || service.is_none_or(|found| hash(found) != hash(&wanted.service)) {
        ensured.written.push(wanted.service);
    }
    if is_replaced {
        put(
            &mut ensured.status,
            &[],
            "registryService",
            json!({
                "protocol": "grpc", "serviceName": source.service_name(), "serviceNamespace": source.namespace(),
                "port": PORT.to_string(), "createdAt": time,
            }),
        );
    }
    ensured
}

/// Whether the status names the Service of the registry. That of a ConfigMap source may name any.
pub(super) fn has_valid_status(source: &Source<'_>) -> bool {
    let service = source.object.pointer("/status/registryService");
    service
        .filter(|service| service.is_object())
        .is_some_and(|service| {
            !source.is_image()
                || (text(service, "/serviceName") == source.service_name()
                    && text(service, "/serviceNamespace") == source.namespace()
                    && text(service, "/port") == PORT.to_string()
                    && text(service, "/protocol") == "grpc")
        })
}
