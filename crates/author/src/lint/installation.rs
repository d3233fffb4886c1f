//! Faults in manifests that change the result of an installation, each with its place.

mod deployment;

use std::borrow::Cow;
use std::collections::BTreeSet;

use olm_bundle::BundleFiles;
use olm_bundle::InstallMode;
use olm_bundle::object::{flatten, object_name};
use olm_bundle::object::{list, text};
use olm_bundle::reader::csv::{self, Reader};
use olm_bundle::reader::{SpecFault, spec_faults};
use olm_fbc::base64_text;
use olm_fbc::check::Severity;
use olm_fbc::similar::nearest;
use serde_json::{Map, Value};

use super::finding::{Finding, INSTALL};
use super::manifests::{Object, objects};

/// Findings about the manifests, file by file. Unreadable files are reported elsewhere.
pub(super) fn manifests_as_installed(files: &BundleFiles) -> Vec<Finding> {
    let mut found = Vec::new();
    for object in objects(files) {
        for value in flatten(object.value.clone()) {
            let mut notes = Notes {
                object: &object,
                found: &mut found,
            };
            match (text(&value, "/apiVersion"), text(&value, "/kind")) {
                (_, "ClusterServiceVersion") => notes.of_csv(&value),
                ("v1", "ConfigMap") => {
                    notes.of_texts(&value, "ConfigMap", ["data", "binaryData"]);
                    notes.of_base64(&value, "ConfigMap", "binaryData");
                }
                ("v1", "Secret") => {
                    notes.of_texts(&value, "Secret", ["data", "stringData"]);
                    notes.of_base64(&value, "Secret", "data");
                }
                _ => {}
            }
        }
    }
    found
}

/// The largest number of findings about one field of an object.
const MOST: usize = 50;

struct Notes<'a> {
    object: &'a Object,
    found: &'a mut Vec<Finding>,
}

impl Notes<'_> {
    fn add(&mut self, severity: Severity, message: String, hint: impl Into<Cow<'static, str>>) {
        let file = &self.object.file;
        let fault = message.clone();
        self.found.push(Finding {
            line: Some(self.object.line),
            hint: Some(hint.into()),
            ..Finding::new(severity, INSTALL, message)
                .in_file(Some(file))
                .of_fault(file, fault)
        });
    }

    fn of_csv(&mut self, csv: &Value) {
        let deployments = list(csv, "/spec/install/spec/deployments");
        for fault in csv::faults(csv, Reader::Installer) {
            let message = of_deployment(&fault, deployments).unwrap_or_else(|| fault.to_string());
            let hint = if fault.wants_quotes() {
                "quote the value"
            } else {
                "correct the value; a bundle that cannot be read is not installed"
            };
            self.add(Severity::Error, message, hint);
        }
        for (field, meant) in csv::unknown(csv) {
            let hint = match meant {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "remove it, or correct its name or position".to_owned(),
            };
            let message = format!("unknown field {field} of the ClusterServiceVersion is ignored");
            self.add(Severity::Warning, message, hint);
        }
        let modes = list(csv, "/spec/installModes");
        let is_supported = |mode: &Value| {
            mode.get("supported") == Some(&Value::Bool(true))
                && text(mode, "/type").parse::<InstallMode>().is_ok()
        };
        // Without another mode the bundle can never be installed.
        let severity = if modes.iter().any(is_supported) {
            Severity::Warning
        } else {
            Severity::Error
        };
        for (at, mode) in modes.iter().enumerate() {
            let kind = text(mode, "/type");
            if kind.parse::<InstallMode>().is_err() {
                let names = InstallMode::ALL.map(InstallMode::as_str);
                let hint = match nearest(kind, names) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => format!("there are {}", names.join(", ")),
                };
                let message = format!("spec.installModes[{at}].type: unknown install mode {kind:?}");
                self.add(severity, message, hint);
            }
        }
        for deployment in deployments {
            self.of_deployment(deployment);
        }
    }

    fn of_deployment(&mut self, deployment: &Value) {
        let name = text(deployment, "/name");
        let empty = Value::Null;
        let spec = deployment.get("spec").unwrap_or(&empty);
        let spec_faults = spec_faults(spec);
        for fault in &spec_faults {
            if let SpecFault::Unknown(field) = fault {
                let message = format!("Deployment {name:?}: unknown field {field} is ignored");
                self.add(
                    Severity::Warning,
                    message,
                    "correct its name or position, or remove it",
                );
            }
        }
        // Wrong types are reported above.
        if spec.is_object()
            && !spec_faults
                .iter()
                .any(|fault| matches!(fault, SpecFault::Wrong { .. }))
        {
            for fault in deployment::refused(spec) {
                let message = format!("Deployment {name:?}: the API server refuses {fault}");
                self.add(
                    Severity::Error,
                    message,
                    "correct it: every API server rejects the Deployment",
                );
            }
        }
        if let Some(fault) = selector_fault(spec) {
            self.add(
                Severity::Error,
                format!("Deployment {name:?}: the API server refuses spec.selector: {fault}"),
                "add the labels of spec.selector.matchLabels to spec.template.metadata.labels",
            );
        }
        for kind in ["initContainers", "containers"] {
            for container in list(spec, &format!("/template/spec/{kind}")) {
                let mut known = BTreeSet::new();
                for entry in list(container, "/env") {
                    let variable = text(entry, "/name");
                    if !known.insert(variable) {
                        let container = text(container, "/name");
                        let message = format!(
                            "Deployment {name:?}: container {container:?} sets the variable {variable:?} more than \
                             once; the last one counts"
                        );
                        self.add(Severity::Warning, message, "keep one of them");
                    }
                }
            }
        }
    }

    /// Data that are not texts, which the API server refuses.
    fn of_texts(&mut self, object: &Value, kind: &str, fields: [&str; 2]) {
        let name = object_name(object);
        for field in fields {
            let Some(entries) = object.get(field).and_then(Value::as_object) else {
                continue;
            };
            let is_wrong = |value: &Value| !value.is_string() && !value.is_null();
            for (key, value) in entries.iter().filter(|(_, value)| is_wrong(value)).take(MOST) {
                let given = csv::given(value);
                let message = format!(
                    "{kind} {name:?}: the API server refuses {field}.{key}, which must be a string, not {given}"
                );
                self.add(Severity::Error, message, "quote the value");
            }
        }
    }

    /// Data that must be base64 and are not.
    fn of_base64(&mut self, object: &Value, kind: &str, field: &str) {
        let name = object_name(object);
        let entries = object.get(field).and_then(Value::as_object).into_iter().flatten();
        let is_wrong = |value: &Value| {
            value
                .as_str()
                .is_some_and(|text| base64_text::decode(text).is_err())
        };
        for (key, _) in entries.filter(|(_, value)| is_wrong(value)).take(MOST) {
            let message =
                format!("{kind} {name:?}: the API server refuses {field}.{key}, which is not base64");
            let hint = match kind {
                "Secret" => "encode the value, or move it to stringData",
                _ => "encode the value, or move it to data",
            };
            self.add(Severity::Error, message, hint);
        }
    }
}

/// A fault of a Deployment's specification in terms of the Deployment.
fn of_deployment(fault: &csv::FieldFault, deployments: &[Value]) -> Option<String> {
    let (at, fault) = fault.in_deployment()?;
    let name = text(deployments.get(at)?, "/name");
    Some(format!("Deployment {name:?}: the API server refuses {fault}"))
}

/// The reason why the API server rejects the selector of a Deployment: it is empty, or does not match the template's
/// own labels.
fn selector_fault(spec: &Value) -> Option<String> {
    let selector = match spec.get("selector") {
        None | Some(Value::Null) if spec.is_object() => return Some("it is missing".to_owned()),
        selector => selector?.as_object()?,
    };
    let empty = Map::new();
    let labels = spec
        .pointer("/template/metadata/labels")
        .and_then(Value::as_object);
    let labels = labels.unwrap_or(&empty);
    let wanted = selector.get("matchLabels").and_then(Value::as_object);
    let rules = selector.get("matchExpressions").and_then(Value::as_array);
    if wanted.is_none_or(Map::is_empty) && rules.is_none_or(Vec::is_empty) {
        return Some("it is empty".to_owned());
    }
    let unmatched = |(key, value): &(&String, &Value)| labels.get(*key) != Some(*value);
    if let Some((key, value)) = wanted.into_iter().flatten().find(unmatched) {
        let value = value.as_str().unwrap_or_default();
        return Some(format!("the template has no label {key}: {value:?}"));
    }
    let rule = rules
        .into_iter()
        .flatten()
        .find(|rule| !is_fulfilled(rule, labels))?;
    Some(format!(
        "the labels of the template do not match the expression {:?} {}",
        text(rule, "/key"),
        text(rule, "/operator")
    ))
}

fn is_fulfilled(rule: &Value, labels: &Map<String, Value>) -> bool {
    let given = labels.get(text(rule, "/key"));
    let is_listed = || given.is_some_and(|given| list(rule, "/values").contains(given));
    match text(rule, "/operator") {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => given.is_some(),
        "DoesNotExist" => given.is_none(),
        _ => false,
    }
}
