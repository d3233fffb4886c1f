//! Custom resource definitions.

use std::collections::BTreeMap;

use olm_api::text::escape;
use serde_json::{Value, json};

use super::certificates::inject_authority;
use super::manifests::without_noise;
use super::{Options, schema};
use crate::bundle::Bundle;
use crate::csv::{WebhookDefinition, WebhookKind};
use crate::names::service_name;
use crate::object::object_name;

/// The reason why the conversion webhook of a custom resource definition is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// Several webhooks claim it.
    #[error("custom resource definition '{}' is referenced by multiple conversion webhook definitions", escape(.0))]
    Ambiguous(String),
    /// The definition keeps unknown fields, which excludes conversion webhooks.
    #[error(
        "custom resource definition '{}' must have .spec.preserveUnknownFields set to false to let API Server call \
         webhook to do the conversion",
        escape(.0)
    )]
    PreservesUnknownFields(String),
    /// The conversion webhook has a URL. Any server could be behind it, and would read and change all custom resources.
    #[error(
        "custom resource definition '{}' has a conversion webhook at a URL: only a Service in the install namespace may convert \
         custom resources, as a ConversionWebhook in spec.webhookdefinitions of the ClusterServiceVersion names it",
        escape(.0)
    )]
    Url(String),
}

/// The bundle's custom resource definitions with the bundle's conversion webhooks.
///
/// # Errors
/// The conversion of a definition is invalid.
pub fn custom_resource_definitions(
    bundle: &Bundle,
    options: &Options,
) -> Result<Vec<Value>, ConversionError> {
    let converters = converters(bundle)?;
    let convert = |definition: &Value| {
        let mut definition = without_noise(definition.clone());
        if let Some(object) = definition.as_object_mut() {
            object.shift_remove("status");
        }
        if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
            schema::drop_unknown(spec);
        }
        let name = object_name(&definition).to_owned();
        if let Some(webhook) = converters.get(name.as_str()) {
            if definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
                return Err(ConversionError::PreservesUnknownFields(name));
            }
            if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("conversion".to_owned(), conversion(webhook, options));
            }
            if let Some(provider) = options.certificates {
                inject_authority(
                    provider,
                    &mut definition,
                    &webhook.deployment_name,
                    &options.install_namespace,
                );
            }
        } else if !keeps_at_home(&mut definition, &options.install_namespace) {
            return Err(ConversionError::Url(name));
        }
        Ok(definition)
    };
    bundle.definitions.iter().map(convert).collect()
}

/// Moves the Service of a definition's own conversion webhook to the install namespace; returns false if the webhook
/// has a URL.
fn keeps_at_home(definition: &mut Value, install_namespace: &str) -> bool {
    for path in [
        "/spec/conversion/webhook/clientConfig",
        "/spec/conversion/webhookClientConfig",
    ] {
        let Some(client) = definition.pointer_mut(path).and_then(Value::as_object_mut) else {
            continue;
        };
        if client.get("url").is_some_and(|url| !url.is_null()) {
            return false;
        }
        if let Some(service) = client.get_mut("service").and_then(Value::as_object_mut) {
            service.insert("namespace".to_owned(), install_namespace.into());
        }
    }
    true
}

fn converters(bundle: &Bundle) -> Result<BTreeMap<&str, &WebhookDefinition>, ConversionError> {
    let mut converters = BTreeMap::new();
    for webhook in &bundle.csv.spec.webhook_definitions {
        if webhook.kind() != Some(WebhookKind::Conversion) {
            continue;
        }
        for definition in &webhook.conversion_crds {
            if converters.insert(definition.as_str(), webhook).is_some() {
                return Err(ConversionError::Ambiguous(definition.clone()));
            }
        }
    }
    Ok(converters)
}

fn conversion(webhook: &WebhookDefinition, options: &Options) -> Value {
    json!({
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"service": {
                "namespace": options.install_namespace,
                "name": service_name(&webhook.deployment_name),
                "path": webhook.webhook_path.as_deref().unwrap_or("/"),
                "port": webhook.service_port(),
            }},
            "conversionReviewVersions": webhook.admission_review_versions.clone().unwrap_or_else(|| json!([])),
        },
    })
}
