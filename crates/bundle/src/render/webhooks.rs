//! Webhook configurations and the Services in front of the operator's webhooks and aggregated APIs.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};

use super::Options;
use super::certificates::{annotate_service, inject_authority};
use crate::bundle::Bundle;
use crate::csv::{WebhookDefinition, WebhookKind};
use crate::names::service_name;
use crate::object::object_name;
use crate::reader::drop_unknown;

/// A ValidatingWebhookConfiguration for each validating webhook.
#[must_use]
pub fn validating(bundle: &Bundle, options: &Options) -> Vec<Value> {
    configurations(
        bundle,
        options,
        WebhookKind::Validating,
        "ValidatingWebhookConfiguration",
    )
}

/// A MutatingWebhookConfiguration for each mutating webhook.
#[must_use]
pub fn mutating(bundle: &Bundle, options: &Options) -> Vec<Value> {
    configurations(
        bundle,
        options,
        WebhookKind::Mutating,
        "MutatingWebhookConfiguration",
    )
}

fn configurations(bundle: &Bundle, options: &Options, wanted: WebhookKind, kind: &str) -> Vec<Value> {
    bundle
        .csv
        .spec
        .webhook_definitions
        .iter()
        .filter(|webhook| webhook.kind() == Some(wanted))
        .map(|webhook| configuration(webhook, options, wanted, kind))
        .collect()
}

fn configuration(webhook: &WebhookDefinition, options: &Options, wanted: WebhookKind, kind: &str) -> Value {
    // The name is historically a prefix, to which the API server added a random part.
    let name = webhook
        .generate_name
        .strip_suffix('-')
        .unwrap_or(&webhook.generate_name);
    let mut service = json!({
        "namespace": options.install_namespace,
        "name": service_name(&webhook.deployment_name),
        "port": webhook.service_port(),
    });
    if let (Some(path), Some(service)) = (&webhook.webhook_path, service.as_object_mut()) {
        service.insert("path".to_owned(), path.clone().into());
    }
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.into());
    entry.insert("clientConfig".to_owned(), json!({"service": service}));
    let copied = [
        ("failurePolicy", &webhook.failure_policy),
        ("matchPolicy", &webhook.match_policy),
        ("objectSelector", &webhook.object_selector),
        ("sideEffects", &webhook.side_effects),
        ("timeoutSeconds", &webhook.timeout_seconds),
        ("admissionReviewVersions", &webhook.admission_review_versions),
    ];
    for (field, value) in copied {
        if let Some(value) = value {
            entry.insert(field.to_owned(), value.clone());
        }
    }
    if let Some(selector) = entry.get_mut("objectSelector") {
        drop_unknown::<LabelSelector>(selector);
    }
    if let Some(rules) = &webhook.rules {
        let mut rules = rules.clone();
        for rule in &mut rules {
            drop_unknown::<RuleWithOperations>(rule);
        }
        entry.insert("rules".to_owned(), Value::Array(rules));
    }
    if let (WebhookKind::Mutating, Some(policy)) = (wanted, &webhook.reinvocation_policy) {
        entry.insert("reinvocationPolicy".to_owned(), policy.clone());
    }
    if !options.targets.is_all() {
        let selector = json!({"matchExpressions": [{
            "key": "kubernetes.io/metadata.name",
            "operator": "In",
            "values": options.targets.as_slice(),
        }]});
        entry.insert("namespaceSelector".to_owned(), selector);
    }
    let mut object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        // The kind is cluster-scoped. The reference implementation writes a namespace, which the API server ignores.
        "metadata": {"name": name, "namespace": options.install_namespace},
        "webhooks": [entry],
    });
    if let Some(provider) = options.certificates {
        inject_authority(
            provider,
            &mut object,
            &webhook.deployment_name,
            &options.install_namespace,
        );
    }
    object
}

/// A Service for each deployment that the API server calls.
#[must_use]
pub fn services(bundle: &Bundle, options: &Options) -> Vec<Value> {
    let strategy = bundle.csv.deployments();
    strategy
        .iter()
        .filter_map(|deployment| {
            let ports = ports(bundle, &deployment.name);
            if ports.is_empty() {
                return None;
            }
            let mut spec = json!({"ports": ports});
            if let (Some(labels), Some(spec)) = (
                deployment.spec.pointer("/selector/matchLabels"),
                spec.as_object_mut(),
            ) {
                spec.insert("selector".to_owned(), labels.clone());
            }
            let mut service = json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": service_name(&deployment.name), "namespace": options.install_namespace},
                "spec": spec,
            });
            if let Some(provider) = options.certificates {
                annotate_service(provider, &mut service, &deployment.name);
            }
            Some(service)
        })
        .collect()
}

/// The container's port: a number or a name. Numbers come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TargetPort {
    Number(i64),
    Name(String),
}

impl TargetPort {
    /// The port as written, or that of the Service if absent.
    fn new(written: Option<&Value>, service_port: i32) -> Self {
        match written {
            Some(Value::String(name)) if !name.is_empty() => Self::Name(name.clone()),
            Some(Value::Number(number)) => {
                Self::Number(number.as_i64().unwrap_or_else(|| service_port.into()))
            }
            _ => Self::Number(service_port.into()),
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Name(name) => name.as_str().into(),
        }
    }
}

/// The target port of the bundle's own Service with the generated name.
fn brought<'a>(bundle: &'a Bundle, deployment: &str, port: i32) -> Option<&'a Value> {
    let name = service_name(deployment);
    let is_it = |object: &&Value| {
        let is = |field: &str, value: &str| object.get(field).and_then(Value::as_str) == Some(value);
        is("apiVersion", "v1") && is("kind", "Service") && object_name(object) == name
    };
    let service = bundle.others.iter().find(is_it)?;
    let mut ports = service.pointer("/spec/ports")?.as_array()?.iter();
    let port = ports.find(|entry| entry.get("port").and_then(Value::as_i64) == Some(port.into()))?;
    port.get("targetPort")
}

fn ports(bundle: &Bundle, deployment: &str) -> Vec<Value> {
    let apis = bundle.csv.spec.api_service_definitions.owned.iter();
    let apis = apis
        .filter(|api| api.deployment_name == deployment)
        .map(|api| (api.service_port(), TargetPort::Number(api.service_port().into())));
    let distinct: BTreeSet<(i32, TargetPort)> = bundle
        .csv
        .spec
        .webhook_definitions
        .iter()
        .filter(|webhook| webhook.deployment_name == deployment)
        .map(|webhook| {
            let port = webhook.service_port();
            let written = webhook.target_port.as_ref().filter(|port| !port.is_null());
            (
                port,
                TargetPort::new(written.or_else(|| brought(bundle, deployment, port)), port),
            )
        })
        .chain(apis)
        .collect();
    distinct
        .into_iter()
        .map(
            |(port, target)| json!({"name": port.to_string(), "port": port, "targetPort": target.to_value()}),
        )
        .collect()
}
