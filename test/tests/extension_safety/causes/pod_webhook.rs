//! A webhook that refuses the Pods of a namespace.

use std::io::Cursor;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::tls::{Profile, ReloadingCertificate, server_config};
use olm_test::registry::front::{Issued, named};
use olm_test::world::World;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Why the webhook refuses.
pub(crate) const REFUSAL: &str = "Pods need a cost centre";

/// A running webhook. It ends when it is dropped; its configuration stays until `remove`.
pub(crate) struct PodWebhook {
    name: String,
    stop: Option<DropGuard>,
}

impl PodWebhook {
    /// Starts a webhook that refuses each Pod of the namespace.
    pub(crate) async fn start(world: &World, namespace: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let key = KeyPair::generate()?;
        let pem = key.serialize_pem();
        let issued = Issued::alone(named("webhook", &["127.0.0.1"])?, key)?;
        let certificate = ReloadingCertificate::new(issued.pem().as_bytes(), pem.as_bytes(), "the webhook")?;
        let config = server_config(&Profile::default(), Arc::new(certificate))?;
        let stop = CancellationToken::new();
        tokio::spawn(listener::serve(
            listener,
            Transport::Tls(Arc::new(config)),
            Limits::default(),
            stop.clone(),
            |request, _| async move {
                let body = request.into_body().collect().await;
                let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let review: Value = serde_json::from_slice(&body).unwrap_or_default();
                let answer = json!({
                    "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "response": {
                        "uid": review.pointer("/request/uid"), "allowed": false,
                        "status": { "message": REFUSAL },
                    },
                });
                Response::new(Full::new(Cursor::new(answer.to_string().into_bytes())))
            },
        ));
        let name = format!("{namespace}-refuses-pods");
        let webhook = json!({
            "name": "cost-centre.olm.example", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/"),
                "caBundle": k8s_openapi::ByteString(issued.pem().into_bytes()),
            },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
            }],
        });
        world.apply(&[json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": name }, "webhooks": [webhook],
        })])?;
        let stop = Some(stop.drop_guard());
        Ok(Self { name, stop })
    }

    /// Ends the server; the API server goes on asking it.
    pub(crate) fn stop(&mut self) {
        self.stop = None;
    }

    /// Removes the configuration.
    pub(crate) fn remove(self, world: &World) -> Result<()> {
        world
            .kubectl(&["delete", "validatingwebhookconfiguration", &self.name])
            .map(drop)
    }
}
