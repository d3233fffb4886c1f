//! The ClusterServiceVersion alone.

use std::collections::BTreeSet;

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use olm_text::names::{label_value_faults, subdomain_faults};
use olm_version::blang;
use serde_json::Value;

use super::annotations;
use crate::lint::manifests::{Manifests, csvs};
use crate::lint::rule_finding::{Options, RuleFinding};

pub(super) const NO_MINIMUM: &str = "csv.Spec.minKubeVersion is not informed. It is recommended you provide this information. Otherwise, it would mean that your operator project can be distributed and installed in any cluster version available, which is not necessarily the case for all projects.";

pub(super) fn lint(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    csvs(manifests)
        .flat_map(|(at, csv)| check(csv).into_iter().map(move |finding| finding.at(at)))
        .collect()
}

fn check(csv: &Value) -> Vec<RuleFinding> {
    let name = object_name(csv);
    let mut findings = Vec::new();
    for (field, value) in [
        ("metadata.name", name),
        ("spec.replaces", text(csv, "/spec/replaces")),
    ] {
        let mut faults = subdomain_faults(value);
        faults.extend(label_value_faults(value));
        if !faults.is_empty() && (field == "metadata.name" || !value.is_empty()) {
            let detail = format!(
                "{field} {} is invalid: {}",
                olm_version::quoted(value),
                faults.join(",")
            );
            findings.push(RuleFinding::csv(Severity::Error, name, detail));
        }
    }
    findings.extend(examples(csv));
    findings.extend(install_modes(csv));
    findings.extend(minimum_version(csv));
    findings.extend(required_fields(csv));
    findings.extend(annotations::check(csv));
    for (pointer, field) in [("/apiVersion", "apiVersion"), ("/kind", "kind")] {
        if text(csv, pointer).is_empty() {
            findings.push(RuleFinding::csv(
                Severity::Error,
                name,
                format!("'{field}' is missing"),
            ));
        }
    }
    findings
}

/// Checks that a minimum version is present and valid.
pub(super) fn minimum_version(csv: &Value) -> Option<RuleFinding> {
    let name = object_name(csv);
    let minimum = match csv.pointer("/spec/minKubeVersion") {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    };
    if minimum.trim().is_empty() {
        let finding = RuleFinding::csv(Severity::Warning, name, NO_MINIMUM);
        return Some(finding.hinted("set spec.minKubeVersion, for example 1.30.0"));
    }
    blang::parse_version(&minimum).err().map(|_| {
        let detail = format!("csv.Spec.MinKubeVersion has an invalid value: {minimum}");
        RuleFinding::csv(Severity::Error, name, detail).hinted("write three numbers, for example 1.30.0")
    })
}

/// Group, version and kind.
type Api = (String, String, String);

fn shown((group, version, kind): &Api) -> String {
    format!("{group}/{version}, Kind={kind}")
}

fn examples(csv: &Value) -> Vec<RuleFinding> {
    let name = object_name(csv);
    let annotations = csv.pointer("/metadata/annotations").and_then(Value::as_object);
    let (provided, faults) = provided(csv);
    let hint = if provided.is_empty() && faults.is_empty() {
        "no API is provided, so nothing is missing; the annotation alm-examples: '[]' says so to tools"
    } else {
        "add the annotation alm-examples with one example of each provided API"
    };
    let Some(annotations) = annotations.filter(|annotations| !annotations.is_empty()) else {
        let finding = RuleFinding::csv(Severity::Warning, name, "annotations not found");
        return vec![finding.hinted(hint)];
    };
    let example = |key: &str| {
        annotations
            .get(key)
            .map(|value| value.as_str().unwrap_or_default())
    };
    let mut findings = Vec::new();
    let examples = match (example("alm-examples"), example("olm.examples")) {
        (None, None) => {
            let finding = RuleFinding::csv(Severity::Warning, name, "example annotations not found");
            return vec![finding.hinted(hint)];
        }
        (Some(first), second) => {
            if second.is_some() {
                findings.push(RuleFinding::csv(
                    Severity::Warning,
                    name,
                    "both `alm-examples` and `olm.examples` are present. Checking only `alm-examples`",
                ));
            }
            first
        }
        (None, Some(second)) => second,
    };
    let found = match parse_examples(examples) {
        Ok(found) => found,
        Err(finding) => {
            findings.push(*finding);
            return findings;
        }
    };
    findings.extend(faults);
    findings.extend(found.difference(&provided).map(|api| {
        operation(Severity::Error, api, "example must have a provided API")
            .hinted("remove the example, or list its API under owned")
    }));
    findings.extend(provided.difference(&found).map(|api| {
        let detail = "provided API should have an example annotation";
        operation(Severity::Warning, api, detail)
            .hinted("add an example of the API to the annotation alm-examples")
    }));
    findings
}

fn operation(severity: Severity, api: &Api, detail: &str) -> RuleFinding {
    RuleFinding::new(severity, "OperationFailed", Some(shown(api)), detail.to_owned())
}

fn unparsed(value: Option<String>, detail: impl Into<String>) -> RuleFinding {
    RuleFinding::new(Severity::Error, "ParseError", value, detail.into())
}

/// The APIs of the examples.
fn parse_examples(examples: &str) -> Result<BTreeSet<Api>, Box<RuleFinding>> {
    if examples.is_empty() {
        return Ok(BTreeSet::new());
    }
    let value: Value = serde_json::from_str(examples).map_err(|error| {
        let offset = offset(examples, error.line(), error.column());
        let before = examples.get(..offset).unwrap_or(examples);
        let shown = format!("invalid character at {offset}\n {before}<--(see the invalid character)");
        Box::new(unparsed(Some(shown), "invalid example"))
    })?;
    let undecodable = |fault: &str| {
        Box::new(unparsed(
            Some(fault.to_owned()),
            "error decoding example CustomResource",
        ))
    };
    let examples = match value {
        Value::Null => return Ok(BTreeSet::new()),
        Value::Array(examples) => examples,
        _ => return Err(undecodable("the examples are not a list")),
    };
    let api = |example: &Value| {
        let version = text(example, "/apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        match text(example, "/kind") {
            "" => Err(undecodable("Object 'Kind' is missing in an example")),
            kind => Ok((group.to_owned(), version.to_owned(), kind.to_owned())),
        }
    };
    examples.iter().map(api).collect()
}

/// The number of bytes of the text up to and including a line and column, both counted from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    (before + column).min(text.len())
}

fn provided(csv: &Value) -> (BTreeSet<Api>, Vec<RuleFinding>) {
    let mut apis = BTreeSet::new();
    let mut findings = Vec::new();
    let of = |value: &Value, group: &str| {
        (
            group.to_owned(),
            text(value, "/version").to_owned(),
            text(value, "/kind").to_owned(),
        )
    };
    for owned in list(csv, "/spec/customresourcedefinitions/owned") {
        match text(owned, "/name").split_once('.') {
            Some((_, group)) => {
                apis.insert(of(owned, group));
            }
            None => findings.push(unparsed(
                None,
                format!(
                    "couldn't parse plural.group from crd name: {}",
                    text(owned, "/name")
                ),
            )),
        }
    }
    let served = list(csv, "/spec/apiservicedefinitions/owned");
    apis.extend(served.iter().map(|owned| of(owned, text(owned, "/group"))));
    (apis, findings)
}

fn install_modes(csv: &Value) -> Vec<RuleFinding> {
    let name = object_name(csv);
    let error = |detail: &str| RuleFinding::csv(Severity::Error, name, detail);
    let modes: Vec<(&str, bool)> = list(csv, "/spec/installModes")
        .iter()
        .map(|mode| {
            let supported = mode.get("supported").and_then(Value::as_bool).unwrap_or_default();
            (text(mode, "/type"), supported)
        })
        .collect();
    if modes.is_empty() {
        let finding = error("install modes not found");
        return vec![finding.hinted("list all four install modes with supported: true or false")];
    }
    let mut findings = Vec::new();
    let distinct: BTreeSet<&str> = modes.iter().map(|(mode, _)| *mode).collect();
    if distinct.len() < modes.len() {
        findings.push(error("duplicate install modes present").hinted("list each install mode once"));
    }
    let converts = list(csv, "/spec/webhookdefinitions")
        .iter()
        .filter(|webhook| !list(webhook, "/conversionCRDs").is_empty());
    let only_all = modes
        .iter()
        .all(|(mode, supported)| (*mode == "AllNamespaces") == *supported);
    if !only_all {
        findings.extend(converts.map(|_| {
            error("only AllNamespaces InstallModeType is supported when conversionCRDs is present")
        }));
    }
    if modes.iter().all(|(_, supported)| !supported) {
        findings.push(error("none of InstallModeTypes are supported"));
    }
    findings
}

/// Required fields without a value.
fn required_fields(csv: &Value) -> Vec<RuleFinding> {
    let missing = |field: &str, what: &str| RuleFinding {
        field: Some(field.to_owned()),
        ..RuleFinding::new(
            Severity::Error,
            "FieldNotFound",
            Some(what.to_owned()),
            "required field missing".to_owned(),
        )
    };
    let empty = |pointer: &str| csv.pointer(pointer).is_none_or(says_nothing);
    let mut findings = Vec::new();
    if empty("/apiVersion") && empty("/kind") {
        findings.push(missing("TypeMeta", "struct"));
    }
    if empty("/metadata") {
        findings.push(missing("ObjectMeta", "struct"));
    }
    if empty("/spec") {
        findings.push(missing("Spec", "struct"));
        return findings;
    }
    if empty("/spec/install") {
        findings.push(missing("Spec.InstallStrategy", "struct"));
    } else {
        if empty("/spec/install/strategy") {
            findings.push(missing("Spec.InstallStrategy.StrategyName", "field"));
        }
        let deployments = csv.pointer("/spec/install/spec/deployments");
        if !empty("/spec/install/spec") && deployments.is_none_or(Value::is_null) {
            findings.push(missing(
                "Spec.InstallStrategy.StrategySpec.DeploymentSpecs",
                "field",
            ));
        }
    }
    if empty("/spec/displayName") {
        findings.push(missing("Spec.DisplayName", "field"));
    }
    findings
}

/// Whether a value equals that of an absent field. Lists count as present even if they are empty.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) => false,
        Value::Object(members) => members.is_empty() || members.values().all(Value::is_null),
    }
}
