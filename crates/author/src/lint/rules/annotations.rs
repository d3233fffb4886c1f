//! Annotations whose keys are often misspelled.

use olm_bundle::object::object_name;
use olm_fbc::check::Severity;
use serde_json::Value;

use crate::lint::manifests::{Manifests, of_kind};
use crate::lint::rule_finding::{Options, RuleFinding};

/// Keys that count letter by letter.
const KEYS: [&str; 5] = [
    "olm.operatorGroup",
    "olm.operatorNamespace",
    "olm.targetNamespaces",
    "olm.providedAPIs",
    "olm.skipRange",
];

pub(super) fn check(value: &Value) -> Vec<RuleFinding> {
    let name = object_name(value);
    let annotations = value.pointer("/metadata/annotations").and_then(Value::as_object);
    let mut findings = Vec::new();
    for key in annotations.into_iter().flatten().map(|(key, _)| key) {
        let known = KEYS.iter().find(|known| known.eq_ignore_ascii_case(key));
        if let Some(known) = known.filter(|known| **known != key.as_str()) {
            let detail = format!("provided annotation {key} uses wrong case and should be {known} instead");
            findings.push(
                RuleFinding::failed(Severity::Error, name, detail)
                    .hinted("annotation keys count letter by letter: rename the key"),
            );
        }
        if key == "olm.properties" {
            findings.push(RuleFinding::new(
                Severity::Warning,
                "PropertiesAnnotationUsed",
                Some(String::new()),
                format!("found {key} annotation, please define these properties in metadata/properties.yaml instead"),
            ));
        }
    }
    findings
}

pub(super) fn operator_groups(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    of_kind(manifests, "OperatorGroup")
        .flat_map(|(at, value)| check(value).into_iter().map(move |finding| finding.at(at)))
        .collect()
}
