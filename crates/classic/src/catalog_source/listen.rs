//! A registry that the program itself serves: the Service and the EndpointSlice that lead to it, and the status.

use std::net::SocketAddr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::registry::{PORT, has_valid_status, object, service_labels};
use super::{FAULT, Source, SourceKind, connect, registry_pods, update};
use crate::cluster::{annotation, items, label, object_at, put, text};
use crate::names;

/// State of the registry that the program serves for a source.
#[derive(Debug, Clone, Copy)]
pub struct ServedRegistry<'a> {
    /// The address at which the program listens for the source, if it already does.
    pub endpoint: Option<SocketAddr>,
    /// Whether there is content to serve.
    pub is_ready: bool,
    /// The name of the content, which no other content has.
    pub content: Option<&'a str>,
    /// The state of the connection, in the words of gRPC.
    pub connection: &'a str,
    /// Reason why the content is not the requested one.
    pub fault: Option<&'a str>,
    /// The time of the last request to the registry of the image for a newer catalog.
    pub polled: Option<Timestamp>,
}

/// Result of a pass over a source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listening {
    /// The objects to write, whole.
    pub written: Vec<Value>,
    /// The objects to delete.
    pub deleted: Vec<Value>,
    /// The status after the pass.
    pub status: Value,
}

/// One pass over a source whose registry is no Pod.
pub fn listen(source: &Source<'_>, served: &ServedRegistry<'_>, now: Timestamp) -> Listening {
    let status = source.object.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut pass = Listening {
        status,
        ..Listening::default()
    };
    if let Some(status) = pass.status.as_object_mut() {
        status.remove("reason");
        status.remove("message");
    }
    let kind = match source.source_kind() {
        Ok(kind) => kind,
        Err(fault) => {
            pass.remove_registry(source);
            pass.fail("SpecInvalidError", &fault);
            return pass;
        }
    };
    // From now on the program serves the content instead of a Pod.
    pass.deleted.extend(registry_pods(source).cloned());
    if kind == SourceKind::ConfigMap {
        pass.note_config_map(source, now);
    }
    let mut fault = served.fault.map(str::to_owned);
    if kind == SourceKind::Address {
        pass.remove_registry(source);
        if pass.status.get("registryService").is_none_or(has_service) {
            let found = json!({"protocol": "grpc", "createdAt": format!("{now:.0}")});
            put(&mut pass.status, &[], "registryService", found);
        }
    } else {
        if let Err(error) = pass.lead_to(source, served) {
            fault = fault.or(Some(error));
        }
        if !has_valid_status(source) {
            put(
                &mut pass.status,
                &[],
                "registryService",
                json!({
                    "protocol": "grpc", "serviceName": source.service_name(), "serviceNamespace": source.namespace(),
                    "port": PORT.to_string(), "createdAt": format!("{now:.0}"),
                }),
            );
        }
    }
    if let Some(fault) = fault {
        let reason = if kind == SourceKind::ConfigMap && source.config_map().is_err() {
            "ConfigMapError"
        } else {
            FAULT
        };
        pass.fail(reason, &fault);
    } else if source.poll_interval().is_some()
        && let Some(fault) = update::interval_fault(source)
    {
        pass.fail("InvalidIntervalError", &fault);
    }
    if let Some(polled) = served.polled.filter(|_| source.poll_interval().is_some()) {
        put(
            &mut pass.status,
            &[],
            "latestImageRegistryPoll",
            json!(format!("{polled:.0}")),
        );
    }
    connect(&mut pass.status, &source.address(), served.connection, now);
    pass
}

fn has_service(found: &Value) -> bool {
    found.get("serviceName").is_some()
}

impl Listening {
    fn fail(&mut self, reason: &str, message: &str) {
        put(&mut self.status, &[], "reason", json!(reason));
        put(&mut self.status, &[], "message", json!(message));
    }

    /// Notes which ConfigMap, and which version of it, is served.
    fn note_config_map(&mut self, source: &Source<'_>, now: Timestamp) {
        let Ok(map) = source.config_map() else {
            return;
        };
        let known = self.status.get("configMapReference");
        if !known.is_some_and(|known| super::is_reference_to(known, map)) {
            let reference = super::reference(source, map, now);
            put(&mut self.status, &[], "configMapReference", reference);
        }
    }

    /// Removes the objects that lead to a registry that the source no longer has.
    fn remove_registry(&mut self, source: &Source<'_>) {
        for kind in ["Service", "EndpointSlice"] {
            let found = source
                .cluster
                .get(kind, source.namespace(), &source.service_name());
            let owned = found.filter(|found| is_owned(source, found));
            self.deleted.extend(owned.cloned());
        }
    }

    /// The Service and the EndpointSlice of a source that the program serves.
    fn lead_to(&mut self, source: &Source<'_>, served: &ServedRegistry<'_>) -> Result<(), String> {
        let name = source.service_name();
        let live = source.cluster.get("Service", source.namespace(), &name);
        match live {
            Some(live) if !is_owned(source, live) => {
                return Err(format!(
                    "cannot serve the catalog: Service {name} has another owner; delete or rename it"
                ));
            }
            // The EndpointSlices that the selector has made go with it.
            Some(live) if live.pointer("/spec/selector").is_some_and(is_given) => {
                self.deleted.push(live.clone());
                return Ok(());
            }
            live => self.written.extend(service(source, live)),
        }
        if let Some(endpoint) = served.endpoint {
            self.written.extend(slice(source, endpoint, served));
        }
        Ok(())
    }
}

/// The objects that led to the registry that the program served, of a source whose registry is a Pod from now on: the
/// Service without a selector, and the EndpointSlice.
pub fn led_to_program<'a>(source: &'a Source<'_>) -> impl Iterator<Item = &'a Value> {
    let get = |kind: &str| {
        source
            .cluster
            .get(kind, source.namespace(), &source.service_name())
    };
    let service = get("Service").filter(|service| !service.pointer("/spec/selector").is_some_and(is_given));
    let slice = get("EndpointSlice").filter(|slice| is_owned(source, slice));
    service.into_iter().chain(slice)
}

fn is_given(selector: &Value) -> bool {
    selector.as_object().is_some_and(|selector| !selector.is_empty())
}

fn is_owned(source: &Source<'_>, object: &Value) -> bool {
    let uid = text(source.object, "/metadata/uid");
    items(object, "/metadata/ownerReferences").any(|owner| text(owner, "/uid") == uid)
}

/// The Service without a selector, where the live one is not as it is wanted.
fn service(source: &Source<'_>, live: Option<&Value>) -> Option<Value> {
    let ports = json!([{"name": "grpc", "port": PORT, "protocol": "TCP", "targetPort": PORT}]);
    let labels = service_labels(&json!({"ports": ports}));
    let Some(live) = live else {
        let mut wanted = object(source, "v1", "Service", &source.service_name());
        put(&mut wanted, &["metadata"], "labels", labels);
        put(&mut wanted, &[], "spec", json!({"ports": ports}));
        return Some(wanted);
    };
    let is_labelled = labels
        .iter()
        .all(|(key, value)| value.as_str() == Some(label(live, key)));
    let is_port = |port: &Value| {
        text(port, "/name") == "grpc" && port.get("port").and_then(Value::as_i64) == Some(PORT)
    };
    let mut found = items(live, "/spec/ports");
    if is_labelled && found.next().is_some_and(is_port) && found.next().is_none() {
        return None;
    }
    let mut wanted = live.clone();
    if let Some(found) = object_at(&mut wanted, &["metadata", "labels"]) {
        found.extend(labels);
    }
    put(&mut wanted, &["spec"], "ports", ports);
    Some(wanted)
}

/// The EndpointSlice that leads to the program, where the live one is not as it is wanted.
fn slice(source: &Source<'_>, endpoint: SocketAddr, served: &ServedRegistry<'_>) -> Option<Value> {
    let name = source.service_name();
    let live = source.cluster.get("EndpointSlice", source.namespace(), &name);
    let kind = if endpoint.is_ipv4() { "IPv4" } else { "IPv6" };
    let mut wanted = object(source, "discovery.k8s.io/v1", "EndpointSlice", &name);
    if let Some(labels) = object_at(&mut wanted, &["metadata", "labels"]) {
        labels.insert(names::CATALOG_SOURCE_LABEL.to_owned(), source.name().into());
        labels.insert(names::SERVICE_NAME_LABEL.to_owned(), name.into());
        labels.insert(names::SLICE_MANAGER_LABEL.to_owned(), names::SLICE_MANAGER.into());
    }
    for (key, value) in [
        ("addressType", json!(kind)),
        (
            "endpoints",
            json!([{"addresses": [endpoint.ip().to_string()], "conditions": {"ready": served.is_ready}}]),
        ),
        (
            "ports",
            json!([{"name": "grpc", "port": endpoint.port(), "protocol": "TCP"}]),
        ),
    ] {
        put(&mut wanted, &[], key, value);
    }
    if let Some(content) = served.content {
        let path = ["metadata", "annotations"];
        put(&mut wanted, &path, names::CATALOG_CONTENT_ANNOTATION, content);
    }
    let same = ["/addressType", "/endpoints", "/ports", "/metadata/labels"];
    let content = |slice: &Value| annotation(slice, names::CATALOG_CONTENT_ANNOTATION).to_owned();
    let is_same = |live: &Value| {
        is_owned(source, live)
            && same.iter().all(|part| live.pointer(part) == wanted.pointer(part))
            && content(live) == content(&wanted)
    };
    (!live.is_some_and(is_same)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;

    #[test]
    fn the_endpoints_name_the_content_and_change_with_it() {
        let object = json!({
            "metadata": {"namespace": "n", "name": "c", "uid": "u"}, "spec": {"sourceType": "grpc", "image": "i"},
        });
        let written = |cluster: &Cluster, content: Option<&str>, polled: Option<Timestamp>| {
            let source = Source {
                object: &object,
                cluster,
            };
            let served = ServedRegistry {
                endpoint: Some(([10, 0, 0, 1], 4711).into()),
                is_ready: content.is_some(),
                content,
                connection: "READY",
                fault: None,
                polled,
            };
            let written = listen(&source, &served, Timestamp::UNIX_EPOCH).written;
            written
                .into_iter()
                .find(|object| text(object, "/kind") == "EndpointSlice")
        };
        let content = |slice: &Value| annotation(slice, names::CATALOG_CONTENT_ANNOTATION).to_owned();
        let empty = written(&Cluster::default(), None, None).unwrap();
        assert_eq!(content(&empty), "");
        let first = written(&[empty].into_iter().collect(), Some("sha256-1"), None).unwrap();
        assert_eq!(content(&first), "sha256-1");
        let cluster: Cluster = [first].into_iter().collect();
        assert_eq!(
            written(&cluster, Some("sha256-1"), Some(Timestamp::UNIX_EPOCH)),
            None
        );
        let second = written(&cluster, Some("sha256-2"), None).unwrap();
        assert_eq!(content(&second), "sha256-2");
    }

    #[test]
    fn a_source_that_asks_for_a_pod_gives_up_what_led_to_the_program() {
        let found = |service: Value, owner: &str| {
            let slice = json!({
                "kind": "EndpointSlice",
                "metadata": {"namespace": "n", "name": "my-cat", "ownerReferences": [{"uid": owner}]},
            });
            let mut service = service;
            put(&mut service, &[], "kind", "Service");
            put(
                &mut service,
                &[],
                "metadata",
                json!({"namespace": "n", "name": "my-cat"}),
            );
            let cluster: Cluster = [service, slice].into_iter().collect();
            let object = json!({
                "metadata": {"namespace": "n", "name": "my.cat", "uid": "u"},
                "spec": {"sourceType": "grpc", "image": "i"},
            });
            let source = Source {
                object: &object,
                cluster: &cluster,
            };
            let kinds = led_to_program(&source).map(|found| text(found, "/kind").to_owned());
            kinds.collect::<Vec<_>>()
        };
        let selecting = json!({"spec": {"selector": {"olm.catalogSource": "my.cat"}}});
        assert_eq!(found(json!({"spec": {}}), "u"), ["Service", "EndpointSlice"]);
        assert_eq!(found(selecting.clone(), "u"), ["EndpointSlice"]);
        assert_eq!(found(selecting, "other"), Vec::<String>::new());
    }
}
