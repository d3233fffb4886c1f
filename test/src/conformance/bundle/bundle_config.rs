//! `bundle-config`: configurations of bundles against the schema that follows from their install modes.

use olm_bundle::config::{self, Config, ConfigError, DeploymentConfiguration};
use olm_bundle::{InstallMode, InstallModes};
use serde_json::{Value, json};

use crate::conformance::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    if case.get("kind").and_then(Value::as_str) == Some("watch_namespace_schema") {
        return watch_namespace_schema(case);
    }
    let expect = &case["expect"];
    let actual = checked(case);
    let expected_ok = expect["ok"].as_bool().unwrap_or_default();
    match actual {
        Ok(config) => Outcome::compare("ok", &expected_ok, &true).and(|| accepted(expect, &config)),
        Err(error) => Outcome::compare("ok", &expected_ok, &false).and(|| {
            let is_reported = expect["faults"] == "told";
            message(expect["error"].as_str().unwrap_or_default(), is_reported, &error)
        }),
    }
}

fn checked(case: &Value) -> Result<Config, ConfigError> {
    let text = case["config_text"].as_str();
    let config = text.map(config::from_text).transpose()?;
    let derived = case["install_modes"].as_array().map(|modes| {
        let modes: InstallModes = modes
            .iter()
            .filter_map(Value::as_str)
            .filter_map(|mode| mode.parse::<InstallMode>().ok())
            .collect();
        config::schema(&modes, DeploymentConfiguration::Allowed)
    });
    let explicit = case.get("schema").filter(|schema| !schema.is_null());
    let namespace = case["install_namespace"].as_str().unwrap_or_default();
    config::check(derived.as_ref().or(explicit), config.as_ref(), namespace)
}

fn accepted(expect: &Value, config: &Config) -> Outcome {
    let watched = json!(config.watch_namespace);
    let deployment = config
        .deployment
        .as_ref()
        .map_or(Value::Null, olm_bundle::DeploymentConfig::to_value);
    Outcome::compare(
        "watch_namespace",
        expect.get("watch_namespace").unwrap_or(&Value::Null),
        &watched,
    )
    .and(|| {
        Outcome::compare(
            "deployment_config",
            expect.get("deployment_config").unwrap_or(&Value::Null),
            &deployment,
        )
    })
}

/// Texts of the parsers of YAML and JSON differ; our own texts are compared.
fn message(expected: &str, is_reported: bool, error: &ConfigError) -> Outcome {
    match error {
        ConfigError::Text(_) => Outcome::Pass,
        ConfigError::Deployment(_) => {
            let (expected, actual) = (expected.split(':').next(), error.to_string());
            Outcome::compare("error", &expected, &actual.split(':').next())
        }
        _ if is_reported && is_vague(expected) => {
            let (expected, actual) = (expected.split(':').next(), error.to_string());
            Outcome::compare("error", &expected, &actual.split(':').next())
        }
        _ => Outcome::compare("error", &expected.to_owned(), &error.to_string()),
    }
}

/// Whether the reference implementation does not name the fault, or reports a null as missing.
fn is_vague(expected: &str) -> bool {
    expected.contains("validation failed")
        || (expected.contains("required field \"deploymentConfig") && expected.contains("\" is missing"))
}

fn watch_namespace_schema(case: &Value) -> Outcome {
    let supported = |entry: &&Value| entry["supported"].as_bool() == Some(true);
    let modes: InstallModes = case["install_modes_declared"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(supported)
        .filter_map(|entry| entry["type"].as_str()?.parse::<InstallMode>().ok())
        .collect();
    let schema = config::schema(&modes, DeploymentConfiguration::Allowed);
    let expect = &case["expect"];
    let watched = schema
        .pointer("/properties/watchNamespace")
        .cloned()
        .unwrap_or_default();
    let required = schema.get("required").cloned().unwrap_or_default();
    Outcome::compare("watchNamespace", &expect["watchNamespace"], &watched)
        .and(|| Outcome::compare("required", &expect["required"], &required))
}
