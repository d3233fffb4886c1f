//! The sample operator: keeps a ConfigMap with a greeting for every `Greeting`, and says so in its status.
//!
//! Small, but real: it runs as a Pod, watches a custom resource, writes objects and status. `WATCH_NAMESPACE` names the
//! one namespace to watch (empty: all), `OPERATOR_VERSION` what it calls itself.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::{info, warn};

const MANAGER: &str = "greeter-operator";

struct Operator {
    client: Client,
    kind: ApiResource,
    version: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().json().init();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another crypto provider is installed already"))?;
    let client = Client::try_default().await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("samples.olm.example", "v1", "Greeting"));
    let version = std::env::var("OPERATOR_VERSION").unwrap_or_else(|_| "unknown".to_owned());
    let greetings = match std::env::var("WATCH_NAMESPACE") {
        Ok(namespace) if !namespace.is_empty() => Api::namespaced_with(client.clone(), &namespace, &kind),
        _ => Api::<DynamicObject>::all_with(client.clone(), &kind),
    };
    info!(version, "greeting whoever asks for it");
    let operator = Arc::new(Operator {
        client,
        kind: kind.clone(),
        version,
    });
    Controller::new_with(greetings, watcher::Config::default(), kind)
        .shutdown_on_signal()
        .run(
            greet,
            |_, error, _| {
                warn!(%error, "will try again");
                Action::requeue(Duration::from_secs(5))
            },
            operator,
        )
        .for_each(|_| futures::future::ready(()))
        .await;
    Ok(())
}

async fn greet(greeting: Arc<DynamicObject>, operator: Arc<Operator>) -> Result<Action, kube::Error> {
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
