//! Rules about webhooks and aggregated APIs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::duplicates;
use crate::bundle::Bundle;
use crate::csv::{ApiDescription, WebhookDefinition, WebhookKind};
use crate::install_modes::InstallMode;
use olm_text::names::subdomain_faults;

/// API groups that admission webhooks of a bundle must not select.
const FORBIDDEN_GROUPS: [&str; 2] = ["*", olm_api::names::GROUP];
/// The group of the webhook configurations themselves.
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// Resources of that group that admission webhooks of a bundle must not select, in lower case.
const FORBIDDEN_RESOURCES: [&str; 6] = [
    "*",
    "*/*",
    "mutatingwebhookconfiguration",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfiguration",
    "validatingwebhookconfigurations",
];

fn all(bundle: &Bundle) -> &[WebhookDefinition] {
    &bundle.csv.spec.webhook_definitions
}

fn conversions(bundle: &Bundle) -> impl Iterator<Item = &WebhookDefinition> {
    all(bundle)
        .iter()
        .filter(|webhook| webhook.kind() == Some(WebhookKind::Conversion))
}

pub(super) fn conversion_scope(bundle: &Bundle) -> Vec<String> {
    let modes = bundle.csv.install_modes();
    if modes.iter().eq([InstallMode::AllNamespaces]) {
        return Vec::new();
    }
    conversions(bundle)
        .map(|webhook| {
            format!(
                "bundle contains conversion webhook \"{}\" and supports install modes [{modes}] - conversion webhooks \
                 are only supported for bundles that only support AllNamespaces install mode",
                webhook.generate_name
            )
        })
        .collect()
}

pub(super) fn deployments(bundle: &Bundle) -> Vec<String> {
    let present: BTreeSet<&str> = bundle.csv.deployment_names().collect();
    let mut lost: Vec<(&str, &str, &str)> = all(bundle)
        .iter()
        .filter(|webhook| !present.contains(webhook.deployment_name.as_str()))
        .map(|webhook| {
            (
                &*webhook.deployment_name,
                &*webhook.type_name,
                &*webhook.generate_name,
            )
        })
        .collect();
    lost.sort_unstable();
    lost.into_iter()
        .map(|(deployment, kind, name)| {
            format!("webhook of type '{kind}' with name '{name}' references non-existent deployment '{deployment}'")
        })
        .collect()
}

pub(super) fn api_services(bundle: &Bundle) -> Vec<String> {
    let owned = &bundle.csv.spec.api_service_definitions.owned;
    let present: BTreeSet<&str> = bundle.csv.deployment_names().collect();
    let mut found: Vec<String> = duplicates(owned.iter().map(ApiDescription::api_service_name))
        .into_iter()
        .map(|name| format!("duplicate api service '{name}'"))
        .collect();
    for api in owned {
        let name = api.api_service_name();
        if api.group.is_empty() || api.version.is_empty() {
            found.push(format!("api service '{name}' has no group or no version"));
        }
        if !present.contains(api.deployment_name.as_str()) {
            found.push(format!(
                "api service '{name}' references non-existent deployment '{}'",
                api.deployment_name
            ));
        }
    }
    found
}

pub(super) fn uniqueness(bundle: &Bundle) -> Vec<String> {
    duplicates(
        all(bundle)
            .iter()
            .map(|webhook| (&webhook.type_name, &webhook.generate_name)),
    )
    .into_iter()
    .map(|(kind, name)| format!("duplicate webhook '{name}' of type '{kind}'"))
    .collect()
}

pub(super) fn names(bundle: &Bundle) -> Vec<String> {
    let distinct: BTreeSet<(&str, &str)> = all(bundle)
        .iter()
        .map(|webhook| (&*webhook.type_name, &*webhook.generate_name))
        .collect();
    distinct
        .into_iter()
        .filter_map(|(kind, name)| {
            let faults = subdomain_faults(name);
            (!faults.is_empty()).then(|| {
                format!(
                    "webhook of type '{kind}' has invalid name '{name}': {}",
                    faults.join(",")
                )
            })
        })
        .collect()
}

pub(super) fn conversion_uniqueness(bundle: &Bundle) -> Vec<String> {
    let mut by_definition: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for webhook in conversions(bundle) {
        for definition in &webhook.conversion_crds {
            by_definition
                .entry(definition)
                .or_default()
                .push(&webhook.generate_name);
        }
    }
    by_definition
        .into_iter()
        .filter(|(_, webhooks)| webhooks.len() > 1)
        .map(|(definition, mut webhooks)| {
            webhooks.sort_unstable();
            let webhooks = webhooks.join(",");
            format!(
                "conversion webhooks [{webhooks}] reference same custom resource definition '{definition}'"
            )
        })
        .collect()
}

pub(super) fn conversion_owned(bundle: &Bundle) -> Vec<String> {
    let owned: BTreeSet<&str> = bundle.csv.owned_definitions().collect();
    let converted: BTreeSet<(&str, &str)> = conversions(bundle)
        .flat_map(|webhook| {
            webhook
                .conversion_crds
                .iter()
                .map(|name| (&*webhook.generate_name, name.as_str()))
        })
        .collect();
    converted
        .into_iter()
        .filter(|(_, definition)| !owned.contains(definition))
        .map(|(webhook, definition)| {
            format!(
                "conversion webhook '{webhook}' references custom resource definition '{definition}' not owned bundle"
            )
        })
        .collect()
}

pub(super) fn rules(bundle: &Bundle) -> Vec<String> {
    let admission = |webhook: &&WebhookDefinition| {
        matches!(
            webhook.kind(),
            Some(WebhookKind::Mutating | WebhookKind::Validating)
        )
    };
    all(bundle)
        .iter()
        .filter(admission)
        .flat_map(forbidden_rules)
        .collect()
}

fn forbidden_rules(webhook: &WebhookDefinition) -> Vec<String> {
    let name = &webhook.generate_name;
    let mut found = Vec::new();
    for rule in webhook.rules.iter().flatten() {
        for group in texts(rule, "apiGroups") {
            if FORBIDDEN_GROUPS.contains(&group) {
                found.push(format!(
                    "webhook \"{name}\" contains forbidden rule: admission webhook rules cannot reference API group \
                     \"{group}\""
                ));
            }
            if group != ADMISSION_GROUP {
                continue;
            }
            let forbidden =
                |resource: &&str| FORBIDDEN_RESOURCES.contains(&resource.to_ascii_lowercase().as_str());
            found.extend(texts(rule, "resources").filter(forbidden).map(|resource| {
                format!(
                    "webhook \"{name}\" contains forbidden rule: admission webhook rules cannot reference resource \
                     \"{resource}\" for API group \"{ADMISSION_GROUP}\""
                )
            }));
        }
    }
    found
}

fn texts<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    rule.get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}
