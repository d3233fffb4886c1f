//! Rules about deployments, custom resource definitions and additional objects.

use std::collections::BTreeSet;

use serde_json::Value;

use super::duplicates;
use crate::bundle::Bundle;
use crate::object::{object_name, scope, text};
use olm_text::names::subdomain_faults;

pub(super) fn deployment_uniqueness(bundle: &Bundle) -> Vec<String> {
    duplicates(bundle.csv.deployment_names())
        .into_iter()
        .map(|name| format!("cluster service version contains duplicate strategy deployment spec '{name}'"))
        .collect()
}

pub(super) fn deployment_names(bundle: &Bundle) -> Vec<String> {
    let names: BTreeSet<&str> = bundle.csv.deployment_names().collect();
    let describe = |name: &str| {
        let mut faults = subdomain_faults(name);
        faults.sort_unstable();
        (!faults.is_empty()).then(|| {
            format!(
                "invalid cluster service version strategy deployment name '{name}': {}",
                faults.join(", ")
            )
        })
    };
    names.into_iter().filter_map(describe).collect()
}

pub(super) fn definition_uniqueness(bundle: &Bundle) -> Vec<String> {
    duplicates(bundle.definitions.iter().map(object_name))
        .into_iter()
        .map(|name| format!("bundle contains duplicate custom resource definition '{name}'"))
        .collect()
}

pub(super) fn owned_definitions(bundle: &Bundle) -> Vec<String> {
    let present: BTreeSet<&str> = bundle.definitions.iter().map(object_name).collect();
    let owned: BTreeSet<&str> = bundle.csv.owned_definitions().collect();
    owned
        .difference(&present)
        .map(|name| {
            format!(
                "cluster service definition references owned custom resource definition '{name}' not found in bundle"
            )
        })
        .collect()
}

pub(super) fn package_name(bundle: &Bundle) -> Vec<String> {
    if bundle.package().is_empty() {
        vec!["package name is empty".to_owned()]
    } else {
        Vec::new()
    }
}

pub(super) fn kinds(bundle: &Bundle) -> Vec<String> {
    let kind = |object: &Value| text(object, "/kind").to_owned();
    bundle
        .others
        .iter()
        .map(|object| (object_name(object), kind(object)))
        .filter(|(_, kind)| scope(kind).is_none())
        .map(|(name, kind)| format!("unsupported resource \"{name}\" with kind \"{kind}\""))
        .collect()
}
