//! Webhooks that a ClusterServiceVersion may bring, and whether their configurations exist.

use std::collections::BTreeSet;

use serde_json::Value;

use super::CsvPass;
use crate::cluster::{items, label, text};
use crate::{install, names};

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
const ADMISSION_KINDS: [&str; 3] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "*",
];

/// Reason why the webhooks are refused; `None` where they are good.
pub(super) fn refusal(definitions: &[Value]) -> Option<&'static str> {
    let mut names = BTreeSet::new();
    definitions.iter().find_map(|definition| {
        if !names.insert(text(definition, "/generateName")) {
            return Some("CSV contains repeated WebhookDescription name");
        }
        items(definition, "/rules").find_map(refused_rule)
    })
}

fn refused_rule(rule: &Value) -> Option<&'static str> {
    let has = |key: &str, wanted: &str| items(rule, key).any(|found| found.as_str() == Some(wanted));
    if has("/apiGroups", "*") {
        return Some("webhook rules cannot include all groups");
    }
    if has("/apiGroups", names::GROUP) {
        return Some("webhook rules cannot include the OLM group");
    }
    let is_admission =
        has("/apiGroups", ADMISSION_GROUP) && ADMISSION_KINDS.iter().any(|kind| has("/resources", kind));
    is_admission.then_some(
        "webhook rules cannot include MutatingWebhookConfiguration or ValidatingWebhookConfiguration resources",
    )
}

const CONFIGURATIONS: [&str; 2] = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

/// State of the webhooks in the cluster.
pub(super) struct WebhookState {
    /// Configurations of this ClusterServiceVersion that no webhook asks for, as kind and name.
    pub(super) superfluous: Vec<(&'static str, String)>,
    /// Whether every webhook has a configuration.
    ///
    /// The error says why the state is unknown, or which part a conversion lacks.
    pub(super) are_installed: Result<bool, String>,
}

/// Looks for the configurations of all webhooks.
pub(super) fn webhook_state(pass: &CsvPass<'_>) -> WebhookState {
    let definitions = &pass.csv.spec.webhook_definitions;
    let names: BTreeSet<&str> = definitions
        .iter()
        .map(|definition| text(definition, "/generateName"))
        .collect();
    let mut superfluous = Vec::new();
    for kind in CONFIGURATIONS {
        let all = pass.facts.cluster.of_kind(kind);
        for found in all.filter(|found| install::is_of(found, &pass.csv)) {
            let labels = found.pointer("/metadata/labels");
            let name = text(found, "/metadata/name");
            let Some(of) = labels.and_then(|labels| labels.get(names::WEBHOOK_NAME_LABEL)) else {
                let kind = if kind == CONFIGURATIONS[0] {
                    "validating"
                } else {
                    "mutating"
                };
                let error = format!("{kind}WebhookConfiguration {name} does not have WebhookDesc key");
                return WebhookState {
                    superfluous,
                    are_installed: Err(error),
                };
            };
            if !names.contains(of.as_str().unwrap_or_default()) {
                superfluous.push((kind, name.to_owned()));
            }
        }
    }
    let mut are_installed = Ok(true);
    for definition in definitions {
        are_installed = is_installed(pass, definition);
        if are_installed != Ok(true) {
            break;
        }
    }
    WebhookState {
        superfluous,
        are_installed,
    }
}

fn is_installed(pass: &CsvPass<'_>, definition: &Value) -> Result<bool, String> {
    let kind = match text(definition, "/type") {
        "ValidatingAdmissionWebhook" => CONFIGURATIONS[0],
        "MutatingAdmissionWebhook" => CONFIGURATIONS[1],
        "ConversionWebhook" => return converts(pass, definition),
        _ => return Ok(false),
    };
    let hash = install::webhook_hash(definition);
    Ok(pass.facts.cluster.of_kind(kind).any(|found| {
        install::is_of(found, &pass.csv)
            && label(found, names::WEBHOOK_NAME_LABEL) == text(definition, "/generateName")
            && label(found, names::WEBHOOK_HASH_LABEL) == hash
    }))
}

/// Whether a conversion webhook has CustomResourceDefinitions, which all use it.
fn converts(pass: &CsvPass<'_>, definition: &Value) -> Result<bool, String> {
    let mut is_used = false;
    for name in items(definition, "/conversionCRDs").filter_map(Value::as_str) {
        let found = pass.facts.cluster.get(names::CRD_KIND, "", name);
        let found = found
            .ok_or_else(|| format!("customresourcedefinitions.apiextensions.k8s.io \"{name}\" not found"))?;
        if text(found, "/spec/conversion/strategy") != "Webhook"
            || text(found, "/spec/conversion/webhook/clientConfig/caBundle").is_empty()
        {
            return Err("conversionWebhook not ready".to_owned());
        }
        is_used = true;
    }
    Ok(is_used)
}
