//! The certificates that a revision needs, and the objects that must trust them.

use std::collections::BTreeMap;

use olm_api::cluster_object_set::CollisionProtection;
use olm_api::names::{annotation, label};
use serde_json::{Value, json};

use super::authority;
use crate::content::{ContentObject, ContentPhase, RevisionContent};
use crate::object::ObjectId;
use crate::outline::ObjectPosition;

/// The name of the phase before those of the revision.
const PHASE: &str = "certificates";

/// The positions of certificates in a revision, and of the objects that must trust them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    secrets: BTreeMap<ObjectPosition, Vec<String>>,
    callers: BTreeMap<ObjectPosition, ObjectPosition>,
}

/// The Secrets for the certificates that objects request, without data.
pub fn secrets<'a>(objects: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let found: BTreeMap<ObjectId, Value> = objects
        .filter_map(skeleton)
        .map(|secret| (ObjectId::of(&secret), secret))
        .collect();
    found.into_values().collect()
}

/// Adds the Secrets for the certificates before the content of a revision. `protection` is that of the
/// ClusterObjectSet.
pub fn complete(protection: CollisionProtection, content: &mut RevisionContent) {
    let objects = content.phases.iter().flat_map(|phase| &phase.objects);
    let secrets = secrets(objects.map(|object| &object.object));
    if secrets.is_empty() {
        return;
    }
    let objects = secrets
        .into_iter()
        .map(|object| ContentObject {
            object,
            collision_protection: protection,
        })
        .collect();
    let phase = ContentPhase {
        name: PHASE.to_owned(),
        // `status.observedPhases` never contains this phase.
        digest: String::new(),
        objects,
    };
    content.phases.insert(0, phase);
}

/// The Secret for the certificate that a Service requests, without data.
fn skeleton(service: &Value) -> Option<Value> {
    let id = ObjectId::of(service);
    let name = annotated(service, annotation::SERVING_CERTIFICATE)
        .filter(|_| id.kind == "Service" && id.group.is_empty())?;
    let mut secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "namespace": id.namespace,
            "annotations": {annotation::CERTIFICATE_FOR: id.name},
        },
    });
    let kind = service
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(label::OWNER_KIND));
    if let (Some(kind), Some(metadata)) = (kind, secret.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("labels".to_owned(), json!({label::OWNER_KIND: kind}));
    }
    Some(secret)
}

fn annotated<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

impl Layout {
    /// No certificates.
    pub const NONE: Self = Self {
        secrets: BTreeMap::new(),
        callers: BTreeMap::new(),
    };

    /// The layout of a complete content.
    pub fn of(content: &RevisionContent) -> Self {
        let Some(first) = content
            .phases
            .first()
            .filter(|phase| phase.name == PHASE && phase.digest.is_empty())
        else {
            return Self::default();
        };
        let mut layout = Self::default();
        let mut by_name = BTreeMap::new();
        for (object, secret) in first.objects.iter().enumerate() {
            let id = ObjectId::of(&secret.object);
            let position = ObjectPosition { phase: 0, object };
            let service = annotated(&secret.object, annotation::CERTIFICATE_FOR).unwrap_or_default();
            layout.secrets.insert(position, names(service, &id.namespace));
            by_name.insert(format!("{}/{}", id.namespace, id.name), position);
        }
        for (phase, objects) in content
            .phases
            .iter()
            .map(|phase| &phase.objects)
            .enumerate()
            .skip(1)
        {
            for (object, caller) in objects.iter().enumerate() {
                let secret =
                    annotated(&caller.object, annotation::AUTHORITY_FROM).and_then(|from| by_name.get(from));
                if let Some(secret) = secret.filter(|_| authority::is_caller(&caller.object)) {
                    layout.callers.insert(ObjectPosition { phase, object }, *secret);
                }
            }
        }
        layout
    }

    /// The positions of the Secrets with certificates.
    pub fn secrets(&self) -> impl Iterator<Item = ObjectPosition> + '_ {
        self.secrets.keys().copied()
    }

    /// The host names of the certificate at a position, first the one that the API server calls; `None` if there is no
    /// certificate.
    pub fn names(&self, position: ObjectPosition) -> Option<&[String]> {
        self.secrets.get(&position).map(Vec::as_slice)
    }

    /// The Secret with the authority that the object at a position must trust.
    pub fn secret_of(&self, caller: ObjectPosition) -> Option<ObjectPosition> {
        self.callers.get(&caller).copied()
    }

    /// The objects that must trust the authority in a Secret.
    pub fn callers(&self, secret: ObjectPosition) -> impl Iterator<Item = ObjectPosition> + '_ {
        self.callers
            .iter()
            .filter(move |(_, of)| **of == secret)
            .map(|(caller, _)| *caller)
    }
}

/// The names of a Service.
fn names(service: &str, namespace: &str) -> Vec<String> {
    let host = format!("{service}.{namespace}");
    vec![
        format!("{host}.svc"),
        host.clone(),
        format!("{host}.svc.cluster.local"),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn object(object: Value) -> ContentObject {
        ContentObject {
            object,
            collision_protection: CollisionProtection::Prevent,
        }
    }

    /// A revision with a Service that requests a certificate and a webhook configuration that trusts it.
    pub(in crate::certificates) fn content() -> RevisionContent {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {
            "name": "op-service", "namespace": "ns",
            "labels": {label::OWNER_KIND: "ClusterExtension"},
            "annotations": {annotation::SERVING_CERTIFICATE: "op-service-cert"},
        }});
        let webhooks = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "w", "annotations": {annotation::AUTHORITY_FROM: "ns/op-service-cert"}},
            "webhooks": [{"name": "a"}],
        });
        let plain =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other", "namespace": "ns"}});
        RevisionContent {
            phases: vec![ContentPhase {
                name: "deploy".to_owned(),
                digest: "sha256:x".to_owned(),
                objects: vec![object(plain), object(service), object(webhooks)],
            }],
        }
    }

    #[test]
    fn a_service_that_asks_gets_a_secret_in_front_of_everything() {
        let mut all = content();
        complete(CollisionProtection::Prevent, &mut all);
        let [first, _] = &all.phases[..] else {
            panic!("{all:?}")
        };
        assert_eq!(
            first.objects[0].object,
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": {
                    "name": "op-service-cert", "namespace": "ns",
                    "annotations": {"olm.operatorframework.io/certificate-for": "op-service"},
                    "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension"},
                },
            })
        );
        assert_eq!(
            all.observed_phases(),
            content().observed_phases(),
            "it is not content"
        );
        let layout = Layout::of(&all);
        let (secret, caller) = (
            ObjectPosition { phase: 0, object: 0 },
            ObjectPosition { phase: 1, object: 2 },
        );
        assert_eq!(
            layout.names(secret).unwrap(),
            [
                "op-service.ns.svc",
                "op-service.ns",
                "op-service.ns.svc.cluster.local"
            ]
        );
        assert_eq!(layout.names(caller), None);
        assert_eq!(layout.secret_of(caller), Some(secret));
        assert_eq!(layout.callers(secret).collect::<Vec<_>>(), [caller]);
    }

    #[test]
    fn a_revision_that_asks_for_no_certificate_stays_as_it_is() {
        let mut plain = content();
        plain.phases[0].objects.remove(1);
        let mut all = plain.clone();
        complete(CollisionProtection::Prevent, &mut all);
        assert_eq!(all, plain);
        assert_eq!(Layout::of(&all), Layout::default());
    }
}
