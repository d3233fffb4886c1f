//! Which webhooks a ClusterServiceVersion may bring, and whether they are there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Pass;
use crate::cluster::{items, label, text};
use crate::{install, names};

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
const ADMISSION_KINDS: [&str; 3] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "*",
];

/// Why the webhooks are refused; nothing where they are good.
pub(super) fn refusal(definitions: &[Value]) -> Option<&'static str> {
    let mut names = BTreeSet::new();
    if !definitions
        .iter()
        .all(|definition| names.insert(text(definition, "/generateName")))
    {
        return Some("CSV contains repeated WebhookDescription name");
    }
    definitions
        .iter()
        .flat_map(|definition| items(definition, "/rules"))
        .find_map(refused_rule)
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

/// Whether every webhook has a configuration.
pub(super) fn are_installed(pass: &Pass<'_>) -> bool {
    pass.csv.spec.webhook_definitions.iter().all(|definition| {
        let kind = match text(definition, "/type") {
            "ValidatingAdmissionWebhook" => "ValidatingWebhookConfiguration",
            "MutatingAdmissionWebhook" => "MutatingWebhookConfiguration",
            "ConversionWebhook" => return converts(pass, definition),
            _ => return true,
        };
        let hash = install::webhook_hash(definition);
        pass.facts.cluster.of_kind(kind).any(|found| {
            install::is_of(found, &pass.csv)
                && label(found, names::WEBHOOK_NAME_LABEL) == text(definition, "/generateName")
                && label(found, names::WEBHOOK_HASH_LABEL) == hash
        })
    })
}

/// Whether the CustomResourceDefinitions of a conversion webhook have one.
fn converts(pass: &Pass<'_>, definition: &Value) -> bool {
    items(definition, "/conversionCRDs")
        .filter_map(Value::as_str)
        .all(|name| {
            let found = pass.facts.cluster.get(names::CRD_KIND, "", name);
            found.is_some_and(|found| {
                text(found, "/spec/conversion/strategy") == "Webhook"
                    && !text(found, "/spec/conversion/webhook/clientConfig/caBundle").is_empty()
            })
        })
}
