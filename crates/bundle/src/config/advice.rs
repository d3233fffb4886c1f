//! Advice for a configuration with an unknown or a missing field.

use olm_fbc::similar::nearest;
use serde_json::{Map, Value};

use crate::install_modes::{InstallMode, InstallModes};

/// The advice for the first unknown field, otherwise for the missing namespace.
pub(super) fn advice(schema: &Value, config: &Value, modes: &InstallModes) -> Option<String> {
    let inner = |value: &Value| value.get("deploymentConfig").cloned().unwrap_or_default();
    let below = schema.pointer("/properties/deploymentConfig").cloned();
    let places = [(Some(schema.clone()), config.clone()), (below, inner(config))];
    let strange = places.iter().find_map(|(schema, given)| {
        let known = schema.as_ref()?.get("properties")?.as_object()?;
        let strange = given
            .as_object()?
            .keys()
            .find(|name| !known.contains_key(*name))?;
        Some(meant(strange, known, modes))
    });
    strange.or_else(|| missing(schema, config, modes))
}

fn missing(schema: &Value, config: &Value, modes: &InstallModes) -> Option<String> {
    let required = schema.get("required")?.as_array()?;
    let is_missing =
        required.iter().any(|name| name == "watchNamespace") && config.get("watchNamespace").is_none();
    let is_readable = config.is_object() || config.is_null();
    let which = if modes.contains(InstallMode::SingleNamespace) {
        "the namespace to watch"
    } else {
        "the namespace that it is installed in"
    };
    (is_missing && is_readable).then(|| {
        format!("The bundle supports {modes}: name {which} as watchNamespace, for a ClusterExtension in spec.config.inline")
    })
}

fn meant(strange: &str, known: &Map<String, Value>, modes: &InstallModes) -> String {
    if strange == "watchNamespace" {
        return format!("The bundle supports {modes}: there is no namespace to choose, remove the field");
    }
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    match nearest(strange, names.iter().copied()) {
        Some(meant) => format!("Did you mean {meant:?}?"),
        None if names.is_empty() => "The bundle has nothing to be configured".to_owned(),
        None => format!("There are: {}", names.join(", ")),
    }
}
