//! Operators that the API server calls: the certificates of webhooks and aggregated APIs. Pure.

use jiff::SignedDuration;
use serde_json::Value;

use super::finding::Findings;
use crate::certificates;
use crate::facts::{list, text};

/// The time for which certificates must be valid after the move.
const RESERVE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The check of an operator's certificates and what they are for. An operator with both has one certificate for both.
fn subject(version: &Value) -> (&'static str, &'static str) {
    let has = |part: &str| !list(version, part).is_empty();
    match (
        has("/spec/webhookdefinitions"),
        has("/spec/apiservicedefinitions/owned"),
    ) {
        (true, true) => ("webhooks", "webhooks and aggregated APIs"),
        (false, true) => ("aggregated-apis", "aggregated APIs"),
        _ => ("webhooks", "webhooks"),
    }
}

/// The certificates. Nothing renews them between the move and the first upgrade.
pub(crate) fn certificates(findings: &mut Findings<'_>, version: &Value) {
    let case = findings.case;
    let secrets = certificates::secrets(version).join(" ");
    if secrets.is_empty() {
        return;
    }
    let (check, called) = subject(version);
    let Some(end) = certificates::valid_until(case) else {
        findings.block(
            check,
            format!("the certificate of the {called} cannot be read (Secret {secrets})"),
            findings.advice(
                "wait until OLM classic has created it, and run the command with the right to read it"
                    .to_owned(),
                "wait until OLM classic has created it".to_owned(),
            ),
        );
        return;
    };
    let day = end.strftime("%Y-%m-%d");
    let message = format!(
        "the certificate of the {called} is valid until {day}, and only an upgrade after the move renews it"
    );
    if end.duration_since(case.facts.now) < RESERVE {
        findings.block(
            check,
            message,
            format!(
                "let OLM classic renew it first, which restarts the operator: `kubectl delete secret -n {} {secrets}`",
                case.namespace()
            ),
        );
        return;
    }
    findings.ask(check, message, format!("upgrade the operator before {day}"));
    let is_converting = list(version, "/spec/webhookdefinitions")
        .iter()
        .any(|webhook| text(webhook, "/type") == "ConversionWebhook");
    if is_converting && certificates::are_of_go(case) {
        findings.ask(
            "conversion",
            "the olm-operator of the Go implementation ends the conversion of custom resources when it sees the move"
                .to_owned(),
            "stop it if it runs",
        );
    }
}
