//! The sample operator: creates a ConfigMap with a greeting for every `Greeting`, and reports it in the status.
//!
//! It is small, but real: it runs as a Pod, watches a custom resource, writes objects and status. `WATCH_NAMESPACE` is
//! the namespace to watch (empty: all), `OPERATOR_VERSION` its version. With a certificate, its webhooks reject
//! Greetings for `Nobody`, set a default salutation and convert old versions of Greetings, and it serves an aggregated
//! API with its salutations. While a Greeting has the label `samples.olm.example/hold-upgrade=true`, the
//! OperatorCondition in `OPERATOR_CONDITION_NAME` reports that the operator must not be upgraded.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::ByteString;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt as _};
use olm_api::names::operator_condition;
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::tls::{Profile, ReloadingCertificate, server_config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const MANAGER: &str = "greeter-operator";
/// The mount path of certificates for webhooks.
const CERTIFICATES: &str = "/tmp/k8s-webhook-server/serving-certs";
const WEBHOOK_PORT: u16 = 9443;
/// The label on a Greeting during which the operator must not be upgraded.
const HOLD: &str = "samples.olm.example/hold-upgrade=true";

struct Operator {
    client: Client,
    kind: ApiResource,
    greetings: Api<DynamicObject>,
    version: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().json().init();
    olm_platform::crypto::install();
    let client = Client::try_default().await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("samples.olm.example", "v1", "Greeting"));
    let version = std::env::var("OPERATOR_VERSION").unwrap_or_else(|_| "unknown".to_owned());
    let greetings = match std::env::var("WATCH_NAMESPACE") {
        Ok(namespace) if !namespace.is_empty() => Api::namespaced_with(client.clone(), &namespace, &kind),
        _ => Api::<DynamicObject>::all_with(client.clone(), &kind),
    };
    if Path::new(CERTIFICATES).is_dir() {
        tokio::spawn(serve_webhook(certificate()?));
    }
    info!(version, "greeting whoever asks for it");
    let operator = Arc::new(Operator {
        client,
        kind: kind.clone(),
        greetings: greetings.clone(),
        version,
    });
    Controller::new_with(greetings, watcher::Config::default(), kind)
        .shutdown_on_signal()
        .run(
            greet,
            |_, error, _| {
                warn!(%error, "retrying");
                Action::requeue(Duration::from_secs(5))
            },
            operator,
        )
        .for_each(|_| futures::future::ready(()))
        .await;
    Ok(())
}

/// The certificate in the mounted Secret, read again every second.
fn certificate() -> anyhow::Result<Arc<ReloadingCertificate>> {
    let read = || -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let file = |name: &str| {
            let path = Path::new(CERTIFICATES).join(name);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok((file("tls.crt")?, file("tls.key")?))
    };
    let (chain, key) = read()?;
    let serving = Arc::new(ReloadingCertificate::new(&chain, &key, CERTIFICATES)?);
    let renewed = Arc::clone(&serving);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let replaced = read().and_then(|(chain, key)| Ok(renewed.replace(&chain, &key, CERTIFICATES)?));
            if let Err(error) = replaced {
                warn!(error = format!("{error:#}"), "keeping the old certificate");
            }
        }
    });
    Ok(serving)
}

async fn serve_webhook(certificate: Arc<ReloadingCertificate>) {
    let config = match server_config(&Profile::default(), certificate) {
        Ok(config) => Arc::new(config),
        Err(error) => return warn!(%error, "no webhook"),
    };
    let listener = match TcpListener::bind(("0.0.0.0", WEBHOOK_PORT)).await {
        Ok(listener) => listener,
        Err(error) => return warn!(%error, "no webhook"),
    };
    info!("a webhook checks greetings");
    let stop = CancellationToken::new();
    listener::serve(
        listener,
        Transport::Tls(config),
        Limits::default(),
        stop,
        |request, _| async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let question: Value = serde_json::from_slice(&body).unwrap_or_default();
            let answer = match path.as_str() {
                "/validate" => Some(review(&question)),
                "/mutate" => Some(welcome(&question)),
                "/convert" => Some(convert(&question)),
                path => salutation(path),
            };
            let mut response = Response::new(Full::new(std::io::Cursor::new(
                answer.clone().unwrap_or_default().to_string().into_bytes(),
            )));
            if answer.is_none() {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        },
    )
    .await;
}

/// Rejects a Greeting for `Nobody`.
fn review(review: &Value) -> Value {
    let name = review
        .pointer("/request/object/spec/name")
        .and_then(Value::as_str);
    let allowed = name.is_some_and(|name| !name.eq_ignore_ascii_case("nobody"));
    info!(name, allowed, "checked a greeting");
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": review.pointer("/request/uid"),
            "allowed": allowed,
            "status": {"message": "nobody is not greeted"},
        },
    })
}

/// Sets the salutation of a Greeting that has none.
fn welcome(review: &Value) -> Value {
    let mut response = json!({"uid": review.pointer("/request/uid"), "allowed": true});
    let spec = review.pointer("/request/object/spec");
    if spec.is_some_and(|spec| spec.get("salutation").is_none()) {
        let patch = json!([{"op": "add", "path": "/spec/salutation", "value": "Welcome"}]);
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(ByteString(patch.to_string().into_bytes()));
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// `spec.name` was `spec.who` once.
fn convert(review: &Value) -> Value {
    let wanted = review.pointer("/request/desiredAPIVersion").cloned();
    let is_older = wanted == Some(json!("samples.olm.example/v1beta1"));
    let (from, to) = if is_older {
        ("name", "who")
    } else {
        ("who", "name")
    };
    let objects = review.pointer("/request/objects").and_then(Value::as_array);
    let mut objects = objects.cloned().unwrap_or_default();
    info!(count = objects.len(), to, "converting greetings");
    for object in &mut objects {
        object["apiVersion"] = json!(wanted);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.to_owned(), value);
        }
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {
            "uid": review.pointer("/request/uid"),
            "convertedObjects": objects,
            "result": {"status": "Success"},
        },
    })
}

/// The API of salutations: a list of its kinds, and one object that all users may read.
fn salutation(path: &str) -> Option<Value> {
    match path {
        "/apis/served.samples.olm.example/v1" => Some(json!({
            "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "served.samples.olm.example/v1",
            "resources": [{
                "name": "salutations", "singularName": "salutation", "kind": "Salutation", "namespaced": false,
                "verbs": ["get"],
            }],
        })),
        "/apis/served.samples.olm.example/v1/salutations/first" => Some(json!({
            "apiVersion": "served.samples.olm.example/v1", "kind": "Salutation", "metadata": {"name": "first"},
            "text": "Welcome",
        })),
        _ => None,
    }
}

async fn greet(greeting: Arc<DynamicObject>, operator: Arc<Operator>) -> Result<Action, kube::Error> {
    say_whether_upgradeable(&operator).await?;
    let (namespace, name) = (greeting.namespace().unwrap_or_default(), greeting.name_any());
    let text = |field: &str| {
        greeting
            .data
            .pointer(&format!("/spec/{field}"))
            .and_then(serde_json::Value::as_str)
    };
    let message = format!(
        "{}, {}!",
        text("salutation").unwrap_or("Hello"),
        text("name").unwrap_or("nobody")
    );
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("greeting-{name}"),
            "ownerReferences": [{
                "apiVersion": "samples.olm.example/v1",
                "kind": "Greeting",
                "name": name,
                "uid": greeting.uid().unwrap_or_default(),
                "controller": true,
            }],
        },
        "data": { "message": message, "operatorVersion": operator.version },
    });
    let parameters = PatchParams::apply(MANAGER).force();
    Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(operator.client.clone(), &namespace)
        .patch(
            &format!("greeting-{name}"),
            &parameters,
            &Patch::Apply(&config_map),
        )
        .await?;
    let status = json!({
        "apiVersion": "samples.olm.example/v1",
        "kind": "Greeting",
        "status": { "message": message, "operatorVersion": operator.version },
    });
    Api::<DynamicObject>::namespaced_with(operator.client.clone(), &namespace, &operator.kind)
        .patch_status(&name, &parameters, &Patch::Apply(&status))
        .await?;
    Ok(Action::await_change())
}

async fn say_whether_upgradeable(operator: &Operator) -> Result<(), kube::Error> {
    let Ok(condition) = std::env::var(operator_condition::ENVIRONMENT) else {
        return Ok(());
    };
    let holding = operator
        .greetings
        .list_metadata(&ListParams::default().labels(HOLD))
        .await?;
    let (status, reason, message) = match holding.items.first() {
        Some(greeting) => (
            "False",
            "Greeting",
            format!(
                "still greeting {}",
                greeting.metadata.name.as_deref().unwrap_or_default()
            ),
        ),
        None => ("True", "Idle", "nothing is under way".to_owned()),
    };
    let kind = GroupVersionKind::gvk(
        operator_condition::GROUP,
        operator_condition::VERSION,
        operator_condition::KIND,
    );
    let patch = json!({"spec": {"conditions": [{
        "type": operator_condition::UPGRADEABLE, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": jiff::Timestamp::now().to_string(),
    }]}});
    Api::<DynamicObject>::default_namespaced_with(operator.client.clone(), &ApiResource::from_gvk(&kind))
        .patch(&condition, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(drop)
}
