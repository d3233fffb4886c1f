//! CatalogSources: the registry that serves each, its health, and a pass over one.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Cluster, annotation, items, label, put, text};
use crate::names;

mod config_map;
mod default_sources;
mod listen;
mod pinned;
mod pod;
mod registry;
mod template;
mod update;

pub use config_map::{ConfigMapContent, config_map_content};
pub use default_sources::{NAMESPACE as MARKETPLACE, OperatorHubDecision, default_sources};
pub use listen::{Listening, ServedRegistry, led_to_program, listen};
pub use pinned::PinnedCatalog;
pub use registry::{ensure, is_healthy};
pub use template::{has_template, with_image};

/// The reason of everything that is wrong with a registry.
pub const FAULT: &str = "RegistryServerError";

/// A CatalogSource and the cluster around it.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The CatalogSource as it is on the wire.
    pub object: &'a Value,
    /// ServiceAccounts, roles, Pods, Services, NetworkPolicies and ConfigMaps of its namespace, and that Namespace.
    pub cluster: &'a Cluster,
}

/// Source of the content of a CatalogSource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// From a catalog image.
    Image,
    /// From a registry that runs elsewhere.
    Address,
    /// From a ConfigMap.
    ConfigMap,
}

/// Images of registry Pods.
#[derive(Debug, Clone)]
pub struct Images {
    /// The image of the catalog, where a signature policy asks about it; else `spec.image` as it is.
    pub catalog: Option<PinnedCatalog>,
    /// The image that serves a ConfigMap.
    pub config_map_server: String,
    /// The image with `opm`, which serves content that is taken out of an image.
    pub opm: String,
    /// The image with the program that takes it out.
    pub utilities: String,
    /// The user of Pods in restricted namespaces.
    pub run_as_user: Option<i64>,
}

impl Source<'_> {
    fn name(&self) -> &str {
        text(self.object, "/metadata/name")
    }

    fn namespace(&self) -> &str {
        text(self.object, "/metadata/namespace")
    }

    fn kind(&self) -> &str {
        text(self.object, "/spec/sourceType")
    }

    /// Source of its content. An address takes precedence over an image.
    ///
    /// # Errors
    /// The fault of the specification.
    pub fn source_kind(&self) -> Result<SourceKind, String> {
        match self.fault() {
            Some(fault) => Err(fault),
            None if self.kind() != "grpc" => Ok(SourceKind::ConfigMap),
            None if text(self.object, "/spec/address").is_empty() => Ok(SourceKind::Image),
            None => Ok(SourceKind::Address),
        }
    }

    /// Whether it asks for a registry Pod by annotation.
    pub fn wants_pod(&self) -> bool {
        annotation(self.object, olm_api::names::REGISTRY_POD) == "true"
    }

    /// Address at which its registry elsewhere is dialled: `HOST:PORT`, after `https://` where it speaks TLS.
    pub fn target(&self) -> String {
        let is_secure = annotation(self.object, olm_api::names::REGISTRY_TLS) == "true";
        let scheme = if is_secure { "https://" } else { "" };
        format!("{scheme}{}", text(self.object, "/spec/address"))
    }

    /// Interval at which the registry is polled for a newer image; `None` without polling.
    pub fn poll_interval(&self) -> Option<SignedDuration> {
        update::is_polled(self).then(|| update::interval(self))
    }

    /// Whether a newer image is due for its registry Pod.
    pub fn is_poll_due(&self, now: Timestamp) -> bool {
        update::is_polled(self) && update::is_due(self, now)
    }

    /// Whether a Pod serves it.
    pub fn has_pod(&self) -> bool {
        serving(self).next().is_some()
    }

    /// Whether its registry runs an image.
    fn is_image(&self) -> bool {
        self.kind() == "grpc" && !text(self.object, "/spec/image").is_empty()
    }

    /// Whether its registry is elsewhere.
    fn is_address(&self) -> bool {
        self.kind() == "grpc" && !self.is_image()
    }

    /// Whether it has a registry at all.
    pub fn has_registry(&self) -> bool {
        match self.kind() {
            "grpc" => self.is_image() || !text(self.object, "/spec/address").is_empty(),
            "internal" | "configmap" => true,
            _ => false,
        }
    }

    /// The name of the Service.
    pub fn service_name(&self) -> String {
        if self.is_image() {
            self.name().replace('.', "-")
        } else {
            self.name().to_owned()
        }
    }

    /// Address of the registry.
    pub fn address(&self) -> String {
        match text(self.object, "/spec/address") {
            "" => format!("{}.{}.svc:50051", self.service_name(), self.namespace()),
            address => address.to_owned(),
        }
    }

    fn owner(&self, is_controller: bool, is_blocking: bool) -> Value {
        json!({
            "apiVersion": names::CSV_API_VERSION, "kind": names::CATALOG_SOURCE_KIND,
            "name": self.name(), "uid": text(self.object, "/metadata/uid"),
            "controller": is_controller, "blockOwnerDeletion": is_blocking,
        })
    }

    /// The ConfigMap that holds its content.
    fn config_map(&self) -> Result<&Value, String> {
        let (place, name) = (self.namespace(), text(self.object, "/spec/configMap"));
        let found = self.cluster.get("ConfigMap", place, name);
        found.ok_or_else(|| {
            format!("unable to find configmap {place}/{name}: configmaps \"{name}\" not found")
        })
    }

    /// Whether the status has the version of the existing ConfigMap.
    fn is_map_known(&self, map: &Value) -> bool {
        let known = self.object.pointer("/status/configMapReference");
        known
            .filter(|known| known.is_object())
            .is_some_and(|known| text(known, "/resourceVersion") == text(map, "/metadata/resourceVersion"))
    }

    /// The fault of the specification.
    fn fault(&self) -> Option<String> {
        match self.kind() {
            "internal" | "configmap" => text(self.object, "/spec/configMap").is_empty().then(|| {
                format!(
                    "configmap name unset: must be set for sourcetype: {}",
                    self.kind()
                )
            }),
            "grpc" => (!self.has_registry())
                .then(|| "image and address unset: at least one must be set for sourcetype: grpc".to_owned()),
            other => Some(format!("unknown sourcetype: {other}")),
        }
    }
}

/// Changes that set up a registry.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegistryChanges {
    /// The objects to write, whole.
    pub written: Vec<Value>,
    /// The names of Pods to delete.
    pub deleted: Vec<String>,
    /// The names of Pods to delete without grace: their node is gone.
    pub dead: Vec<String>,
    /// The status of the CatalogSource after that.
    pub status: Value,
    /// Whether a Pod that looks for a newer catalog is not ready yet: the pass is tried again soon.
    pub is_pending: bool,
    /// Error of the setup.
    pub error: Option<String>,
}

/// The Pods that serve a source.
fn serving<'a>(source: &'a Source<'_>) -> impl Iterator<Item = &'a Value> {
    let pods = source.cluster.in_namespace("Pod", source.namespace());
    pods.filter(|pod| label(pod, names::CATALOG_SOURCE_LABEL) == source.name())
}

/// The Pods of a source: those that serve it, and those that look for a newer catalog.
fn registry_pods<'a>(source: &'a Source<'_>) -> impl Iterator<Item = &'a Value> {
    let pods = source.cluster.in_namespace("Pod", source.namespace());
    pods.filter(|pod| {
        [names::CATALOG_SOURCE_LABEL, names::UPDATE_LABEL]
            .iter()
            .any(|key| label(pod, key) == source.name())
    })
}

/// Reference to a ConfigMap for the status of its source.
fn reference(source: &Source<'_>, map: &Value, now: Timestamp) -> Value {
    json!({
        "name": text(map, "/metadata/name"), "namespace": source.namespace(), "uid": text(map, "/metadata/uid"),
        "resourceVersion": text(map, "/metadata/resourceVersion"), "lastUpdateTime": format!("{now:.0}"),
    })
}

/// Whether a reference names this version of a ConfigMap.
fn is_reference_to(reference: &Value, map: &Value) -> bool {
    let same = |key: &str| text(reference, &format!("/{key}")) == text(map, &format!("/metadata/{key}"));
    same("uid") && same("resourceVersion")
}

/// Result of a pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CatalogSourceDecision {
    /// The objects to write, whole.
    pub written: Vec<Value>,
    /// The names of Pods of the namespace to delete.
    pub deleted: Vec<String>,
    /// The names of Pods of the namespace to delete without grace: their node is gone.
    pub dead: Vec<String>,
    /// The status after the pass.
    pub status: Value,
    /// Error that makes the pass be retried.
    pub error: Option<String>,
    /// Whether the pass is tried again soon.
    pub is_pending: bool,
    /// Longest delay until the next pass looks for a newer catalog; `None` without polling.
    pub next: Option<SignedDuration>,
}

/// One pass over a CatalogSource. `connection` is the state of the connection to its registry.
pub fn pass(source: &Source<'_>, images: &Images, connection: &str, now: Timestamp) -> CatalogSourceDecision {
    let mut object = source.object.clone();
    let status = object.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut decision = CatalogSourceDecision {
        status,
        ..CatalogSourceDecision::default()
    };
    if let Some(status) = decision.status.as_object_mut() {
        status.remove("reason");
        status.remove("message");
    }
    if let Some(fault) = source.fault() {
        decision.fail("SpecInvalidError", &fault);
        return decision;
    }
    if !source.is_image() && !source.is_address() && !content(source, &mut decision, now) {
        return decision;
    }
    put(&mut object, &[], "status", decision.status.clone());
    let current = Source {
        object: &object,
        ..*source
    };
    let is_served = serve(&current, images, &mut decision, now);
    decision.next = update::next(&current, &decision, now);
    if !is_served {
        return decision;
    }
    let service = decision.status.pointer("/registryService");
    let address = match text(source.object, "/spec/address") {
        "" => {
            let part = |key: &str| service.map(|service| text(service, key)).unwrap_or_default();
            format!(
                "{}.{}.svc:{}",
                part("/serviceName"),
                part("/serviceNamespace"),
                part("/port")
            )
        }
        address => address.to_owned(),
    };
    connect(&mut decision.status, &address, connection, now);
    decision
}

/// The status of a source whose image may not be used. A registry that serves it stays.
pub fn refused(source: &Source<'_>, fault: &str, connection: &str, now: Timestamp) -> Value {
    let mut decision = CatalogSourceDecision {
        status: source.object.get("status").cloned().unwrap_or_else(|| json!({})),
        ..CatalogSourceDecision::default()
    };
    decision.fail(FAULT, fault);
    if decision.status.get("registryService").is_some() {
        connect(&mut decision.status, &source.address(), connection, now);
    }
    decision.status
}

/// Notes the state of the connection where it is news.
fn connect(status: &mut Value, address: &str, connection: &str, now: Timestamp) {
    let known = status.pointer("/connectionState");
    let is_known = known.is_some_and(|known| {
        text(known, "/address") == address && text(known, "/lastObservedState") == connection
    });
    if !is_known {
        let state = json!({
            "address": address, "lastObservedState": connection, "lastConnect": format!("{now:.0}"),
        });
        put(status, &[], "connectionState", state);
    }
}

impl CatalogSourceDecision {
    fn fail(&mut self, reason: &str, message: &str) {
        put(&mut self.status, &[], "reason", json!(reason));
        put(&mut self.status, &[], "message", json!(message));
    }
}

/// Sets the owner reference on the ConfigMap and records its version. Returns whether the pass continues; `false` on
/// the first pass.
fn content(source: &Source<'_>, decision: &mut CatalogSourceDecision, now: Timestamp) -> bool {
    let name = text(source.object, "/spec/configMap");
    let Ok(map) = source.config_map() else {
        let error = format!("failed to get catalog config map {name}: configmaps \"{name}\" not found");
        decision.fail("ConfigMapError", &error);
        decision.error = Some(error);
        return false;
    };
    let uid = text(source.object, "/metadata/uid");
    let mut owners: Vec<Value> = items(map, "/metadata/ownerReferences").cloned().collect();
    if !owners.iter().any(|owner| text(owner, "/uid") == uid) {
        let mut owned = map.clone();
        owners.push(source.owner(false, false));
        put(&mut owned, &["metadata"], "ownerReferences", owners);
        decision.written.push(owned);
    }
    let known = decision.status.get("configMapReference");
    if known.is_some_and(|known| is_reference_to(known, map)) {
        return true;
    }
    put(
        &mut decision.status,
        &[],
        "configMapReference",
        reference(source, map, now),
    );
    false
}

/// Makes the registry where it is not as it is wanted; whether the pass continues.
fn serve(source: &Source<'_>, images: &Images, decision: &mut CatalogSourceDecision, now: Timestamp) -> bool {
    let is_healthy = match is_healthy(source, images) {
        Ok(is_healthy) => is_healthy && source.object.pointer("/status/registryService").is_some(),
        Err(error) => {
            decision.fail(FAULT, &error);
            decision.error = Some(error);
            return false;
        }
    };
    let is_polled = update::is_polled(source);
    if is_healthy && !is_polled {
        return true;
    }
    let ensured = ensure(source, images, now);
    decision.written.extend(ensured.written);
    decision.deleted.extend(ensured.deleted);
    decision.dead.extend(ensured.dead);
    decision.status = ensured.status;
    decision.is_pending = ensured.is_pending;
    if let Some(error) = ensured.error {
        let error = format!("couldn't ensure registry server - {error}");
        decision.fail(FAULT, &error);
        decision.error = Some(error);
        return false;
    }
    if ensured.is_pending {
        return is_healthy;
    }
    if let Some(fault) = update::interval_fault(source) {
        decision.fail("InvalidIntervalError", &fault);
    }
    is_healthy
}
