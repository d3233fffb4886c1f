//! Custom resource definitions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::certificates::inject_authority;
use super::manifests::without_noise;
use super::{Options, schema};
use crate::bundle::Bundle;
use crate::csv::{WebhookDefinition, WebhookKind};
use crate::names::service_name;
use crate::object::object_name;

/// A custom resource definition cannot be converted by a webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// Several webhooks claim it.
    #[error("custom resource definition '{0}' is referenced by multiple conversion webhook definitions")]
    Ambiguous(String),
    /// It keeps unknown fields, which the API server does not let webhooks convert.
    #[error(
        "custom resource definition '{0}' must have .spec.preserveUnknownFields set to false to let API Server call \
         webhook to do the conversion"
    )]
    PreservesUnknownFields(String),
}

/// The bundle's custom resource definitions, with the conversion webhooks of the bundle in them.
///
/// # Errors
/// When the conversion that the bundle describes is impossible.
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
        }
        Ok(definition)
    };
    bundle.definitions.iter().map(convert).collect()
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
