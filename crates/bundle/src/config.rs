//! The user's configuration of a bundle: `spec.config.inline`.
//!
//! [`schema`] makes a JSON schema from the install modes of a bundle, [`check`] validates a configuration and lists all
//! faults as text.

mod advice;
mod deployment;
mod errors;

use serde_json::{Value, json};

use crate::install_modes::{InstallMode, InstallModes};
use crate::render::deployment_config::{DeploymentConfig, DeploymentConfigError};

/// The field with the namespace that the operator watches.
pub const WATCH_NAMESPACE: &str = "watchNamespace";
/// A namespace's name.
const NAMESPACE_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The format of a watch namespace that must be the install namespace.
const OWN_NAMESPACE_FORMAT: &str = "ownNamespaceInstallMode";
/// The format of a watch namespace that must not be the install namespace.
const SINGLE_NAMESPACE_FORMAT: &str = "singleNamespaceInstallMode";

/// Whether `deploymentConfig` is part of the configuration (feature gate `DeploymentConfig`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeploymentConfiguration {
    /// The field is allowed.
    #[default]
    Allowed,
    /// The field is unknown.
    Unknown,
}

/// A checked configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The namespace to watch; `None` for the default of the install modes.
    pub watch_namespace: Option<String>,
    /// The changes to the operator's Deployments.
    pub deployment: Option<DeploymentConfig>,
}

/// The reason why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is neither YAML nor JSON.
    #[error("invalid configuration: {}", .0.kind)]
    Text(olm_yaml::Error),
    /// The configuration does not match the schema, with all faults in a fixed order.
    #[error("invalid configuration: {}", one_or_several(.0))]
    Schema(Vec<String>),
    /// The configuration is not an object, and there is no schema.
    #[error("invalid configuration: error unmarshalling configuration: input is not a valid JSON object")]
    NotAnObject,
    /// `deploymentConfig` has fields of wrong types.
    #[error("invalid deploymentConfig: {0}")]
    Deployment(#[from] DeploymentConfigError),
    /// The schema is invalid, which is a fault of the bundle.
    #[error("failed to compile schema: {0}")]
    BadSchema(String),
}

fn one_or_several(messages: &[String]) -> String {
    match messages {
        [only] => only.clone(),
        several => format!("multiple errors found:\n  - {}", several.join("\n  - ")),
    }
}

/// The JSON schema of a configuration for a bundle that supports these install modes.
#[must_use]
pub fn schema(modes: &InstallModes, deployment: DeploymentConfiguration) -> Value {
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://operator-framework.io/schemas/registry-v1-bundle-config.json",
        "type": "object",
        "properties": {},
        "additionalProperties": false,
    });
    let all = modes.contains(InstallMode::AllNamespaces);
    let watched = watch_namespace(modes);
    let required = watched.is_some() && !all;
    let described = watched.map(|mut single| {
        let description = "The namespace that the operator should watch for custom resources";
        if all {
            json!({"description": description, "anyOf": [{"type": "null"}, single]})
        } else {
            if let Some(single) = single.as_object_mut() {
                single.insert("description".to_owned(), description.into());
            }
            single
        }
    });
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        if let Some(watched) = described {
            properties.insert(WATCH_NAMESPACE.to_owned(), watched);
        }
        if deployment == DeploymentConfiguration::Allowed {
            properties.insert("deploymentConfig".to_owned(), deployment::schema());
        }
    }
    if let (true, Some(schema)) = (required, schema.as_object_mut()) {
        schema.insert("required".to_owned(), json!([WATCH_NAMESPACE]));
    }
    schema
}

/// The schema of the watch namespace; `None` if it cannot be chosen.
fn watch_namespace(modes: &InstallModes) -> Option<Value> {
    let format = match (
        modes.contains(InstallMode::OwnNamespace),
        modes.contains(InstallMode::SingleNamespace),
    ) {
        (false, false) => return None,
        (true, true) => None,
        (true, false) => Some(OWN_NAMESPACE_FORMAT),
        (false, true) => Some(SINGLE_NAMESPACE_FORMAT),
    };
    let mut name = json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": NAMESPACE_PATTERN});
    if let (Some(format), Some(name)) = (format, name.as_object_mut()) {
        name.insert("format".to_owned(), format.into());
    }
    Some(name)
}

/// Advice if [`check`] finds an unknown field or misses the namespace.
#[must_use]
pub fn advice(schema: &Value, config: &Value, modes: &InstallModes) -> Option<String> {
    advice::advice(schema, config, modes)
}

/// The configuration with the namespace of the installation as the one to watch. `None` if the configuration stays as it
/// is: the bundle can watch all namespaces, does not support its own, or the configuration names one.
#[must_use]
pub fn with_own_namespace(modes: &InstallModes, config: Option<&Value>, namespace: &str) -> Option<Value> {
    let is_required = !modes.contains(InstallMode::AllNamespaces);
    if !is_required || !modes.contains(InstallMode::OwnNamespace) {
        return None;
    }
    let mut config = config.cloned().unwrap_or_else(|| json!({}));
    let fields = config.as_object_mut()?;
    let is_named = fields.get(WATCH_NAMESPACE).is_some_and(|named| !named.is_null());
    if is_named {
        return None;
    }
    fields.insert(WATCH_NAMESPACE.to_owned(), namespace.into());
    Some(config)
}

/// Reads a configuration from YAML or JSON text.
///
/// # Errors
/// When the text is neither.
pub fn from_text(text: &str) -> Result<Value, ConfigError> {
    olm_yaml::to_json(text).map_err(ConfigError::Text)
}

/// Validates a configuration. An absent one is empty. Without a schema every object is valid.
///
/// # Errors
/// The configuration does not match the schema, or the schema is invalid.
pub fn check(
    schema: Option<&Value>,
    config: Option<&Value>,
    install_namespace: &str,
) -> Result<Config, ConfigError> {
    let empty = json!({});
    let config = config.unwrap_or(&empty);
    if let Some(schema) = schema {
        let messages = errors::find(schema, config, install_namespace)?;
        if !messages.is_empty() {
            return Err(ConfigError::Schema(messages));
        }
    }
    let config = config.as_object().ok_or(ConfigError::NotAnObject)?;
    let watch_namespace = config
        .get(WATCH_NAMESPACE)
        .and_then(Value::as_str)
        .map(str::to_owned);
    let deployment = match config.get("deploymentConfig") {
        Some(value) => DeploymentConfig::new(value)?,
        None => None,
    };
    Ok(Config {
        watch_namespace,
        deployment,
    })
}
