//! Admission webhooks and aggregated APIs: real HTTPS servers on the loopback address.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::ByteString;
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::tls::{Profile, ReloadingCertificate, server_config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pki::{Authority, Subject};

/// A webhook that refuses every object until it is dropped.
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
        let (port, stop) = serve(0, certificate, move |_, body| answer(body, Some(message))).await?;
        Ok(Self {
            url: format!("https://127.0.0.1:{port}/"),
            authority: ByteString(std::fs::read(authority.certificate())?),
            _stop: stop,
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

/// A webhook that allows every object until it is dropped. Each call is a connection of its own: the certificate is
/// checked each time.
#[derive(Debug)]
pub struct AllowingWebhook {
    certificate: Arc<ReloadingCertificate>,
    _stop: DropGuard,
}

impl AllowingWebhook {
    /// Starts the server on a port with a certificate and its key, both PEM.
    ///
    /// # Errors
    /// When the certificate cannot be used or the port is taken.
    pub async fn start(port: u16, certificate: &str, key: &str) -> Result<Self> {
        let certificate = ReloadingCertificate::new(certificate.as_bytes(), key.as_bytes(), "webhook")?;
        let certificate = Arc::new(certificate);
        let (_, stop) = serve(port, Arc::clone(&certificate), |_, body| answer(body, None)).await?;
        Ok(Self {
            certificate,
            _stop: stop,
        })
    }

    /// Serves with another certificate from now on.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn replace(&self, certificate: &str, key: &str) -> Result<()> {
        Ok(self
            .certificate
            .replace(certificate.as_bytes(), key.as_bytes(), "webhook")?)
    }
}

/// An aggregated API with one kind and no objects, until it is dropped. Each call is a connection of its own, like
/// those of [`AllowingWebhook`].
#[derive(Debug)]
pub struct AggregatedApi {
    _stop: DropGuard,
}

impl AggregatedApi {
    /// Starts the server of this group, version `v1`, with the given plural and kind on a port with a certificate and
    /// its key, both PEM.
    ///
    /// # Errors
    /// When the certificate cannot be used or the port is taken.
    pub async fn start(port: u16, [certificate, key]: [&str; 2], api: [&str; 3]) -> Result<Self> {
        let certificate =
            ReloadingCertificate::new(certificate.as_bytes(), key.as_bytes(), "aggregated API")?;
        let api = api.map(str::to_owned);
        let (_, stop) = serve(port, Arc::new(certificate), move |path, _| served(path, &api)).await?;
        Ok(Self { _stop: stop })
    }
}

/// The answer of an aggregated API to a read; `None` for paths that it does not serve.
fn served(path: &str, [group, plural, kind]: &[String; 3]) -> Option<Vec<u8>> {
    let group_version = format!("{group}/v1");
    let verbs = ["get", "list"];
    let answer = match path.strip_prefix(&format!("/apis/{group_version}"))? {
        "" => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": [{
                "name": plural, "singularName": "", "namespaced": false, "kind": kind, "verbs": verbs,
            }],
        }),
        found if found.trim_start_matches('/') == plural => json!({
            "kind": format!("{kind}List"), "apiVersion": group_version, "metadata": {}, "items": [],
        }),
        _ => return None,
    };
    Some(answer.to_string().into_bytes())
}

/// Answers each request by its path and body, or that it is not found. Returns the port.
async fn serve(
    port: u16,
    certificate: Arc<ReloadingCertificate>,
    answer: impl Fn(&str, &[u8]) -> Option<Vec<u8>> + Clone + Send + Sync + 'static,
) -> Result<(u16, DropGuard)> {
    let mut config = server_config(&Profile::default(), certificate)?;
    // A connection of HTTP/1.1 ends with its answer.
    config.alpn_protocols.clear();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let port = listener.local_addr()?.port();
    let stop = CancellationToken::new();
    let answers = listener::serve(
        listener,
        Transport::Tls(Arc::new(config)),
        Limits::default(),
        stop.clone(),
        move |request, _| {
            let answer = answer.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await;
                let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let found = answer(&path, &body);
                let code = if found.is_some() {
                    StatusCode::OK
                } else {
                    StatusCode::NOT_FOUND
                };
                let body = std::io::Cursor::new(found.unwrap_or_default());
                let mut response = Response::new(Full::new(body));
                *response.status_mut() = code;
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
                response
            }
        },
    );
    tokio::spawn(answers);
    Ok((port, stop.drop_guard()))
}

/// The review of an object: refused with this message, or allowed if there is none.
fn answer(question: &[u8], refusal: Option<&str>) -> Option<Vec<u8>> {
    let question: Value = serde_json::from_slice(question).unwrap_or_default();
    let mut response = json!({
        "uid": question.pointer("/request/uid"), "allowed": refusal.is_none(),
    });
    if let Some(message) = refusal {
        response["status"] = json!({ "message": message });
    }
    let answer =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    Some(answer.to_string().into_bytes())
}
