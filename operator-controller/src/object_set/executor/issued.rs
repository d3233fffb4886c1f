//! The Secret that cert-manager creates for a Certificate. It outlives the Certificate, and would leave a private key.

use std::time::Instant;

use olm_api::names::cert_manager;
use olm_cluster::apply::Target;
use olm_rollout::failure::{FailureKind, RequestFailure};
use olm_rollout::object::ObjectId;
use olm_rollout::ownership::{Guard, Ownership};
use serde_json::Value;

use super::{Executor, goal::Goal};

/// The number of attempts to delete a Secret. Afterwards nothing refers to it any more.
const TRIES: usize = 3;

impl Executor<'_> {
    /// Deletes an object. With a Certificate, also deletes the Secret of cert-manager if the account may: it is not
    /// content of a revision, so the teardown does not wait for it.
    pub(super) async fn delete(
        &self,
        target: &Target<'_>,
        id: &ObjectId,
        guard: &Guard,
    ) -> Result<Option<Value>, RequestFailure> {
        let certificate = if is_certificate(id) {
            target.read().await?
        } else {
            None
        };
        let left = target.delete(guard).await?;
        if let (None, Some(secret)) = (&left, certificate.as_ref().and_then(secret_of)) {
            self.delete_secret(&secret, &id.name).await;
        }
        Ok(left)
    }

    /// Deletes the Secret of a Certificate that others deleted, perhaps with its kind. Rendered Certificates have the
    /// name of their Secret.
    pub(super) async fn delete_remains_of(&self, certificate: &ObjectId) {
        if is_certificate(certificate) {
            let secret = secret(certificate.namespace.clone(), certificate.name.clone());
            self.delete_secret(&secret, &certificate.name).await;
        }
    }

    async fn delete_secret(&self, id: &ObjectId, certificate: &str) {
        if let Err(failure) = self.try_to_delete_secret(id, certificate).await {
            tracing::warn!(
                set = self.outline.owner.name,
                namespace = id.namespace,
                secret = id.name,
                reason = failure.message,
                "cannot delete the Secret of cert-manager"
            );
        }
    }

    async fn try_to_delete_secret(&self, id: &ObjectId, certificate: &str) -> Result<(), RequestFailure> {
        let resource = self.resource(id, Goal::Remove, Instant::now()).await?;
        let target = Target {
            client: self.client,
            resource: &resource,
            namespace: &id.namespace,
            name: &id.name,
        };
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.delete_once(&target, certificate).await {
                Err(failure)
                    if tries > 0
                        && matches!(failure.kind, FailureKind::Conflict | FailureKind::Transient) => {}
                done => return done,
            }
        }
    }

    async fn delete_once(&self, secret: &Target<'_>, certificate: &str) -> Result<(), RequestFailure> {
        match secret.read().await? {
            Some(live) if is_made_for(&live, certificate) => {
                let guard = Ownership::of(&live, &self.outline.owner.uid).guard();
                secret.delete(&guard).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

fn is_certificate(id: &ObjectId) -> bool {
    id.group == cert_manager::GROUP && id.kind == cert_manager::CERTIFICATE
}

/// The Secret that a Certificate names.
fn secret_of(certificate: &Value) -> Option<ObjectId> {
    let name = certificate.pointer("/spec/secretName")?.as_str()?;
    Some(secret(ObjectId::of(certificate).namespace, name.to_owned()))
}

fn secret(namespace: String, name: String) -> ObjectId {
    ObjectId {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace,
        name,
    }
}

/// Whether cert-manager created a Secret for the Certificate with this name, and it has no other owner.
fn is_made_for(secret: &Value, certificate: &str) -> bool {
    let annotations = secret.pointer("/metadata/annotations");
    let named = annotations.and_then(|annotations| annotations.get(cert_manager::CERTIFICATE_NAME));
    let owners = secret
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    named.and_then(Value::as_str) == Some(certificate) && owners.is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use olm_cluster::fake;
    use olm_rollout::engine::teardown::{RetainedObjects, TeardownEnd};
    use olm_rollout::outline::ObjectPosition;
    use serde_json::json;

    use super::super::testing;
    use super::*;

    /// Tears a Certificate down whose kind is no longer served. Returns the paths of deletions.
    async fn take_down(kept: BTreeSet<ObjectPosition>, annotations: Value) -> Vec<String> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "namespace": "n",
            "uid": "s", "resourceVersion": "7", "annotations": annotations}});
        let (client, log) = fake::client(move |method, path| match (method, path) {
            (_, "/api" | "/apis") => (200, json!({"items": []})),
            (_, "/api/v1") => (
                200,
                json!({"groupVersion": "v1", "resources": [
                    {"name": "secrets", "singularName": "", "namespaced": true, "kind": "Secret", "verbs": ["get"]},
                ]}),
            ),
            ("DELETE", _) => (200, json!({"kind": "Status", "status": "Success"})),
            ("GET", "/api/v1/namespaces/n/secrets/c") => (200, secret.clone()),
            _ => (404, json!("404 page not found")),
        });
        let certificate = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": "c", "namespace": "n"}});
        let retained = RetainedObjects {
            kept,
            ..RetainedObjects::default()
        };
        let outline = testing::outline(vec![("deploy", certificate)]);
        let (end, deleted) = testing::take_down(&client, &log, &outline, retained).await;
        assert_eq!(end, TeardownEnd::Complete);
        deleted
    }

    #[tokio::test]
    async fn the_secret_goes_although_the_kind_of_its_certificate_is_served_no_longer() {
        let made = json!({"cert-manager.io/certificate-name": "c"});
        let position = ObjectPosition { phase: 0, object: 0 };
        let none: [&str; 0] = [];
        assert_eq!(
            take_down(BTreeSet::new(), made.clone()).await,
            ["/api/v1/namespaces/n/secrets/c"]
        );
        assert_eq!(take_down(BTreeSet::from([position]), made).await, none);
        assert_eq!(take_down(BTreeSet::new(), json!({})).await, none);
    }

    #[test]
    fn only_a_secret_that_was_made_for_the_certificate_goes_with_it() {
        let check = |metadata: Value, expected| {
            assert_eq!(
                is_made_for(&json!({"metadata": metadata}), "c"),
                expected,
                "{metadata}"
            );
        };
        let made = json!({"cert-manager.io/certificate-name": "c"});
        check(json!({"annotations": made}), true);
        check(json!({"annotations": made, "ownerReferences": []}), true);
        check(
            json!({"annotations": made, "ownerReferences": [{"uid": "u"}]}),
            false,
        );
        check(
            json!({"annotations": {"cert-manager.io/certificate-name": "d"}}),
            false,
        );
        check(json!({"annotations": {}}), false);
        check(json!({}), false);
    }

    #[test]
    fn the_secret_is_the_one_that_the_certificate_names() {
        let certificate = |version: &str| {
            json!({
                "apiVersion": version, "kind": "Certificate", "metadata": {"name": "c", "namespace": "n"},
                "spec": {"secretName": "s"},
            })
        };
        let secret = secret_of(&certificate("cert-manager.io/v1")).unwrap();
        assert_eq!(
            [
                &*secret.group,
                &secret.version,
                &secret.kind,
                &secret.namespace,
                &secret.name
            ],
            ["", "v1", "Secret", "n", "s"]
        );
        assert!(is_certificate(&ObjectId::of(&certificate("cert-manager.io/v1"))));
        assert!(!is_certificate(&ObjectId::of(&certificate(
            "networking.internal.knative.dev/v1"
        ))));
        assert_eq!(secret_of(&json!({"spec": {}})), None);
    }
}
