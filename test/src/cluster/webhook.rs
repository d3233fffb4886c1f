//! An admission webhook that refuses every object: a real HTTPS server on the loopback address.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::ByteString;
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::tls::{Profile, ReloadingCertificate, server_config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pki::{Authority, Subject};

/// A webhook that serves until it is dropped.
#[derive(Debug)]
pub struct RefusingWebhook {
    url: String,
    authority: ByteString,
    _stop: DropGuard,
}

impl RefusingWebhook {
    /// Starts the server on a free port; `folder` receives its certificate, `message` is the reason of its refusals.
    ///
    /// # Errors
    /// When the certificate cannot be issued or no port is free.
    pub async fn start(folder: &Path, message: &'static str) -> Result<Self> {
        let authority = Authority::create(&folder.join("webhook"))?;
        let subject = Subject {
            name: "webhook",
            group: None,
        };
        let pair = authority.issue("webhook", &subject, &["127.0.0.1"])?;
        let (chain, key) = (std::fs::read(&pair.certificate)?, std::fs::read(&pair.key)?);
        let certificate = Arc::new(ReloadingCertificate::new(&chain, &key, "webhook")?);
        let transport = Transport::Tls(Arc::new(server_config(&Profile::default(), certificate)?));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://{}/", listener.local_addr()?);
        let stop = CancellationToken::new();
        let answers = listener::serve(
            listener,
            transport,
            Limits::default(),
            stop.clone(),
            move |request, _| async move {
                let body = request.into_body().collect().await;
                let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let mut response = Response::new(Full::new(std::io::Cursor::new(refusal(&body, message))));
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                response
            },
        );
        tokio::spawn(answers);
        Ok(Self {
            url,
            authority: ByteString(std::fs::read(authority.certificate())?),
            _stop: stop.drop_guard(),
        })
    }

    /// The configuration: the API server asks it about new objects of a core resource in a namespace.
    pub fn configuration(&self, name: &str, namespace: &str, resource: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": name },
            "webhooks": [{
                "name": format!("{name}.olm.example"),
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 5,
                "clientConfig": { "url": self.url, "caBundle": self.authority },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"],
                }],
            }],
        })
    }
}

fn refusal(question: &[u8], message: &str) -> Vec<u8> {
    let question: Value = serde_json::from_slice(question).unwrap_or_default();
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": question.pointer("/request/uid"), "allowed": false, "status": { "message": message },
        },
    });
    answer.to_string().into_bytes()
}
