//! Checks of the fields of a ClusterServiceVersion: their types, and unknown fields.
//!
//! The table contains all fields, also for lint, which is less strict; all faults are reported at once. The types of
//! [`ClusterServiceVersion`] contain the fields that rendering needs, and serde stops at the first fault.

use std::fmt;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use olm_fbc::similar::nearest;
use olm_version::{blang, quoted};
use serde_json::Value;

use super::{Path, SpecFault, Step, spec_faults_of};
use crate::csv::ClusterServiceVersion;

/// The type of a field.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Boolean,
    Any,
    Number,
    /// A text with a grammar. The function returns the fault, if any.
    Grammar(fn(&str) -> Option<String>),
    List(&'static Self),
    Map,
    Object(&'static [(&'static str, Self)]),
    /// A type of Kubernetes, which the function checks.
    Kubernetes(fn(&Value) -> Vec<SpecFault>),
}

use Shape::{Any, Boolean, Grammar, Kubernetes, List, Map, Number, Object, Text};

/// The purpose, which determines how strict the checks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Lint: a number or boolean instead of a text counts as its text, as authors expect of YAML. Types of Kubernetes
    /// are not checked.
    Author,
    /// Installation: every value that the types of the reference implementation reject is a fault.
    Installer,
}

const RESOURCE: Shape = Object(&[("name", Text), ("kind", Text), ("version", Text)]);
const DESCRIPTOR: Shape = Object(&[
    ("path", Text),
    ("displayName", Text),
    ("description", Text),
    ("x-descriptors", List(&Text)),
    ("value", Any),
]);
const DEFINITION: Shape = Object(&[
    ("name", Text),
    ("group", Text),
    ("version", Text),
    ("kind", Text),
    ("deploymentName", Text),
    ("containerPort", Number),
    ("displayName", Text),
    ("description", Text),
    ("resources", List(&RESOURCE)),
    ("statusDescriptors", List(&DESCRIPTOR)),
    ("specDescriptors", List(&DESCRIPTOR)),
    ("actionDescriptors", List(&DESCRIPTOR)),
]);
const DEFINITIONS: Shape = Object(&[("owned", List(&DEFINITION)), ("required", List(&DEFINITION))]);
const RULE: Shape = Object(&[
    ("verbs", List(&Text)),
    ("apiGroups", List(&Text)),
    ("resources", List(&Text)),
    ("resourceNames", List(&Text)),
    ("nonResourceURLs", List(&Text)),
]);
const PERMISSION: Shape = Object(&[("serviceAccountName", Text), ("rules", List(&RULE))]);
const DEPLOYMENT: Shape = Object(&[
    ("name", Text),
    ("label", Map),
    ("spec", Kubernetes(spec_faults_of::<DeploymentSpec>)),
]);
const INSTALL: Shape = Object(&[
    ("strategy", Text),
    (
        "spec",
        Object(&[
            ("deployments", List(&DEPLOYMENT)),
            ("permissions", List(&PERMISSION)),
            ("clusterPermissions", List(&PERMISSION)),
        ]),
    ),
]);
const SELECTOR: Shape = Kubernetes(spec_faults_of::<LabelSelector>);
const WEBHOOK: Shape = Object(&[
    ("generateName", Text),
    ("type", Text),
    ("deploymentName", Text),
    ("containerPort", Number),
    ("targetPort", Kubernetes(spec_faults_of::<IntOrString>)),
    ("rules", List(&Kubernetes(spec_faults_of::<RuleWithOperations>))),
    ("failurePolicy", Text),
    ("matchPolicy", Text),
    ("objectSelector", SELECTOR),
    ("sideEffects", Text),
    ("timeoutSeconds", Number),
    ("admissionReviewVersions", List(&Text)),
    ("reinvocationPolicy", Text),
    ("webhookPath", Text),
    ("conversionCRDs", List(&Text)),
]);
const LINK: Shape = Object(&[("name", Text), ("url", Text)]);
const SPEC: Shape = Object(&[
    ("install", INSTALL),
    ("version", Grammar(version_fault)),
    ("release", Grammar(release_fault)),
    ("maturity", Text),
    ("customresourcedefinitions", DEFINITIONS),
    ("apiservicedefinitions", DEFINITIONS),
    ("webhookdefinitions", List(&WEBHOOK)),
    (
        "nativeAPIs",
        List(&Object(&[("group", Text), ("version", Text), ("kind", Text)])),
    ),
    ("minKubeVersion", Text),
    ("displayName", Text),
    ("description", Text),
    ("keywords", List(&Text)),
    ("maintainers", List(&Object(&[("name", Text), ("email", Text)]))),
    ("provider", LINK),
    ("links", List(&LINK)),
    (
        "icon",
        List(&Object(&[("base64data", Text), ("mediatype", Text)])),
    ),
    (
        "installModes",
        List(&Object(&[("type", Text), ("supported", Boolean)])),
    ),
    ("replaces", Text),
    ("labels", Map),
    ("annotations", Map),
    ("selector", SELECTOR),
    ("cleanup", Object(&[("enabled", Boolean)])),
    ("skips", List(&Text)),
    ("relatedImages", List(&Object(&[("name", Text), ("image", Text)]))),
]);
const CSV: Shape = Object(&[
    ("apiVersion", Text),
    ("kind", Text),
    (
        "metadata",
        Object(&[("name", Text), ("labels", Map), ("annotations", Map)]),
    ),
    ("spec", SPEC),
    // The status comes from a cluster and is not used.
    ("status", Any),
]);

fn version_fault(text: &str) -> Option<String> {
    let fault = || format!("{} is not a version, such as 1.2.3", quoted(text));
    blang::parse_tolerant(text).is_err().then(fault)
}

fn release_fault(text: &str) -> Option<String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_sound =
        |part: &str| part.bytes().all(is_letter) && blang::parse_version(&format!("0.0.0-{part}")).is_ok();
    let fault = || format!("{} is not a release, such as 1 or alpha.1", quoted(text));
    (!text.split('.').all(is_sound)).then(fault)
}

/// Reads a ClusterServiceVersion to install it.
///
/// # Errors
/// All fields with a value of another type.
pub(crate) fn read(csv: &Value) -> Result<ClusterServiceVersion, Vec<String>> {
    let wrong = faults(csv, Reader::Installer);
    if !wrong.is_empty() {
        return Err(wrong.iter().map(FieldFault::to_string).collect());
    }
    super::value::read(csv).map_err(|fault| vec![fault.to_string()])
}

/// A field of a ClusterServiceVersion with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldFault {
    /// The value has another type.
    Type {
        /// The field.
        path: Path,
        /// The type that it must have: `a string`.
        wanted: &'static str,
        /// The actual type: `a number`.
        given: &'static str,
    },
    /// The value has the right type but is invalid.
    Value {
        /// The field.
        path: Path,
        /// The fault.
        why: String,
    },
    /// There are more faults than are reported.
    More,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { path, wanted, given } if path.steps().is_empty() => {
                write!(formatter, "it must be {wanted}, not {given}")
            }
            Self::Type { path, wanted, given } => write!(formatter, "{path} must be {wanted}, not {given}"),
            Self::Value { path, why } => write!(formatter, "{path}: {why}"),
            Self::More => formatter.write_str("and perhaps more"),
        }
    }
}

impl FieldFault {
    /// Whether quotes around the value fix it.
    #[must_use]
    pub fn wants_quotes(&self) -> bool {
        matches!(
            self,
            Self::Type {
                wanted: TEXT,
                given: NUMBER | BOOLEAN,
                ..
            }
        )
    }

    /// The index of the Deployment with the field, and the fault relative to the Deployment.
    #[must_use]
    pub fn in_deployment(&self) -> Option<(usize, Self)> {
        let (Self::Type { path, .. } | Self::Value { path, .. }) = self else {
            return None;
        };
        let at = deployment(path)?;
        let inner = path.after(DEPLOYMENTS.len() + 1);
        let mut fault = self.clone();
        if let Self::Type { path, .. } | Self::Value { path, .. } = &mut fault {
            *path = inner;
        }
        Some((at, fault))
    }
}

/// All fields of a ClusterServiceVersion with invalid values.
#[must_use]
pub fn faults(csv: &Value, reader: Reader) -> Vec<FieldFault> {
    check(csv, reader).wrong
}

/// The unknown fields of a ClusterServiceVersion without those of its Deployments, each with the most similar field.
pub fn unknown(csv: &Value) -> Vec<(String, Option<&'static str>)> {
    let unknown = check(csv, Reader::Installer).unknown.into_iter();
    let outside = unknown.filter(|(field, _)| !is_of_deployment(field));
    outside.map(|(field, meant)| (field.to_string(), meant)).collect()
}

/// The list of Deployments.
const DEPLOYMENTS: [&str; 4] = ["spec", "install", "spec", "deployments"];

/// The index of the Deployment that contains a field.
fn deployment(field: &Path) -> Option<usize> {
    let (list, rest) = field.steps().split_at_checked(DEPLOYMENTS.len())?;
    let is_key = |(step, name): (&Step, &str)| matches!(step, Step::Key(key) if key == name);
    match rest.first()? {
        Step::Index(index) if list.iter().zip(DEPLOYMENTS).all(is_key) => Some(*index),
        _ => None,
    }
}

/// Whether a field is one of a Deployment's specification.
fn is_of_deployment(field: &Path) -> bool {
    let inner = field.steps().get(DEPLOYMENTS.len() + 1..);
    deployment(field).is_some()
        && matches!(inner, Some([Step::Key(spec), Step::Key(_), ..]) if spec == "spec")
}

/// The most faults, and the most unknown fields, that are reported.
const MOST: usize = 50;

/// The findings about the fields of a ClusterServiceVersion.
#[derive(Default)]
struct CsvFindings {
    /// Fields with invalid values.
    wrong: Vec<FieldFault>,
    /// Unknown fields, each with the most similar field.
    unknown: Vec<(Path, Option<&'static str>)>,
}

impl CsvFindings {
    fn add(&mut self, spec_faults: Vec<SpecFault>, place: &Path) {
        for fault in spec_faults {
            match fault.within(place) {
                SpecFault::Wrong { path, why } => self.wrong.push(FieldFault::Value { path, why }),
                SpecFault::Unknown(field) => self.unknown.push((field, None)),
            }
        }
    }
}

fn check(csv: &Value, reader: Reader) -> CsvFindings {
    let mut found = CsvFindings::default();
    let mut open: Vec<(Path, &Value, Shape)> = vec![(Path::default(), csv, CSV)];
    while let Some((path, value, shape)) = open.pop() {
        if found.wrong.len() >= MOST {
            found.wrong.truncate(MOST);
            found.wrong.push(FieldFault::More);
            break;
        }
        let fits = match (value, shape) {
            (Value::Null, _) | (_, Any) | (Value::Bool(_), Boolean) | (Value::String(_), Text) => true,
            (Value::Number(_) | Value::Bool(_), Text | Grammar(_)) => reader == Reader::Author,
            (_, Number | Kubernetes(_)) if reader == Reader::Author => {
                // Lint only checks that these are objects.
                !matches!(shape, Kubernetes(_))
                    || !matches!(path.steps().last(), Some(Step::Key(name)) if OBJECTS.contains(&name.as_str()))
                    || value.is_object()
            }
            (value, Number) => super::value::read::<i32>(value).is_ok(),
            (Value::String(text), Grammar(fault)) => {
                if reader == Reader::Installer
                    && let Some(why) = fault(text)
                {
                    let path = path.clone();
                    found.wrong.push(FieldFault::Value { path, why });
                }
                true
            }
            (value, Kubernetes(spec_faults)) => {
                found.add(spec_faults(value), &path);
                true
            }
            (Value::Array(elements), List(inner)) => {
                // A string in a list of strings needs no further check, and no path of its own.
                let odd = |element: &Value| !matches!(inner, Text) || !is_text(element);
                let most = if matches!(inner, Text) { MOST } else { usize::MAX };
                let elements = elements.iter().enumerate();
                let elements: Vec<_> = elements.filter(|(_, element)| odd(element)).take(most).collect();
                let elements = elements.into_iter().rev();
                open.extend(elements.map(|(at, element)| (path.element(at), element, *inner)));
                true
            }
            (Value::Object(members), Map) => {
                let members = members.iter();
                let members = members.filter(|(_, member)| !is_text(member)).take(MOST);
                open.extend(members.map(|(key, member)| (path.member(key), member, Text)));
                true
            }
            (Value::Object(members), Object(fields)) => {
                let is_known = |name: &str| fields.iter().any(|(known, _)| *known == name);
                if !matches!(path.steps(), [Step::Key(name)] if name == "metadata") {
                    let room = MOST.saturating_sub(found.unknown.len());
                    for name in members.keys().filter(|name| !is_known(name)).take(room) {
                        let meant = nearest(name, fields.iter().map(|(known, _)| *known));
                        found.unknown.push((path.member(name), meant));
                    }
                } else if reader == Reader::Installer {
                    // Known fields are checked below.
                    let mut rest = members.clone();
                    rest.retain(|name, _| !is_known(name));
                    found.add(spec_faults_of::<ObjectMeta>(&Value::Object(rest)), &path);
                }
                let fields = fields.iter().rev();
                open.extend(
                    fields.filter_map(|(name, inner)| Some((path.member(name), members.get(*name)?, *inner))),
                );
                true
            }
            _ => false,
        };
        if !fits {
            let (wanted, given) = (wanted(shape), given(value));
            found.wrong.push(FieldFault::Type { path, wanted, given });
        }
    }
    found
}

fn is_text(value: &Value) -> bool {
    value.is_string() || value.is_null()
}

/// Objects of Kubernetes that lint does not check further.
const OBJECTS: [&str; 2] = ["spec", "selector"];

const TEXT: &str = "a string";
const NUMBER: &str = "a number";
const BOOLEAN: &str = "a boolean";

fn wanted(shape: Shape) -> &'static str {
    match shape {
        Text | Grammar(_) => TEXT,
        Boolean => "true or false",
        Any => "anything",
        Number => "a whole number of 32 bits",
        List(_) => "a list",
        Map | Object(_) | Kubernetes(_) => "an object",
    }
}

/// The type of a value.
pub fn given(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => BOOLEAN,
        Value::Number(_) => NUMBER,
        Value::String(_) => TEXT,
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_million_faults_a_few_are_reported() {
        let ones = vec![1; 1_000_000];
        let strange: serde_json::Map<String, Value> = (0..10_000)
            .map(|at| (format!("strange{at}"), Value::Null))
            .collect();
        let csv = json!({"metadata": {"labels": {"a": 1}}, "spec": {"keywords": ones, "provider": strange}});
        let found = faults(&csv, Reader::Installer);
        assert_eq!(found.len(), 51, "{found:?}");
        assert_eq!(
            found[0].to_string(),
            "metadata.labels.a must be a string, not a number"
        );
        assert_eq!(
            found[1].to_string(),
            "spec.keywords[0] must be a string, not a number"
        );
        assert!(found[1].wants_quotes());
        assert_eq!(found[50], FieldFault::More);
        assert_eq!(
            unknown(&csv).len(),
            0,
            "nothing is looked for beyond so many faults"
        );
        let csv = json!({"spec": {"keywords": ["a", null], "provider": csv["spec"]["provider"]}});
        assert_eq!(
            (faults(&csv, Reader::Installer).len(), unknown(&csv).len()),
            (0, 50)
        );
    }
}
