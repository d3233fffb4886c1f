//! Reading a ClusterServiceVersion: whether its fields have the types that they are read with, and whether it has others.
//!
//! The table of fields stands beside the types of [`ClusterServiceVersion`]: it also has the fields that no cluster reads,
//! it reads for authors with fewer demands, and it names every fault at once, where a typed read stops at the first.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use olm_fbc::similar::nearest;
use olm_version::{blang, quoted};
use serde_json::Value;

use super::{Misfit, misfits_of};
use crate::csv::ClusterServiceVersion;

/// The type of a field.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Boolean,
    Any,
    Number,
    /// A text of which the function says what is wrong with it.
    Grammar(fn(&str) -> Option<String>),
    List(&'static Self),
    Map,
    Object(&'static [(&'static str, Self)]),
    /// A type of Kubernetes, which the function reads.
    Kubernetes(fn(&Value) -> Vec<Misfit>),
}

use Shape::{Any, Boolean, Grammar, Kubernetes, List, Map, Number, Object, Text};

/// The reader, which decides how strict reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The validators: numbers and booleans where a text belongs are taken for their text, as authors expect of YAML, and
    /// what Kubernetes reads is left to it.
    Author,
    /// The installation: a value that the types of the reference refuse is a fault.
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
    ("spec", Kubernetes(misfits_of::<DeploymentSpec>)),
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
const SELECTOR: Shape = Kubernetes(misfits_of::<LabelSelector>);
const WEBHOOK: Shape = Object(&[
    ("generateName", Text),
    ("type", Text),
    ("deploymentName", Text),
    ("containerPort", Number),
    ("targetPort", Kubernetes(misfits_of::<IntOrString>)),
    ("rules", List(&Kubernetes(misfits_of::<RuleWithOperations>))),
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
    // What a cluster wrote is not read.
    ("status", Any),
]);

fn version_fault(text: &str) -> Option<String> {
    let fault = || format!("{} is no version, such as 1.2.3", quoted(text));
    blang::parse_tolerant(text).is_err().then(fault)
}

fn release_fault(text: &str) -> Option<String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_sound =
        |part: &str| part.bytes().all(is_letter) && blang::parse_version(&format!("0.0.0-{part}")).is_ok();
    let fault = || format!("{} is no release, such as 1 or alpha.1", quoted(text));
    (!text.split('.').all(is_sound)).then(fault)
}

/// Reads a ClusterServiceVersion to install it.
///
/// # Errors
/// Every field whose value has another type: what it is and must be.
pub(crate) fn read(csv: &Value) -> Result<ClusterServiceVersion, Vec<String>> {
    let wrong = faults(csv, Reader::Installer);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    super::value::read(csv).map_err(|fault| vec![fault.to_string()])
}

/// Every field of a ClusterServiceVersion with a value of the wrong type: what it is and must be.
pub fn faults(csv: &Value, reader: Reader) -> Vec<String> {
    look(csv, reader).wrong
}

/// The unknown fields of a ClusterServiceVersion, but for those of its Deployments;
/// each with the field that it probably means.
pub fn unknown(csv: &Value) -> Vec<(String, Option<&'static str>)> {
    let mut unknown = look(csv, Reader::Installer).unknown;
    unknown.retain(|(field, _)| !is_of_deployment(field));
    unknown
}

fn is_of_deployment(field: &str) -> bool {
    let inner = field.strip_prefix("spec.install.spec.deployments[");
    inner
        .and_then(|inner| inner.split_once(']'))
        .is_some_and(|(_, rest)| rest.starts_with(".spec."))
}

/// The largest number of faults, and of unknown fields, that are reported.
const MOST: usize = 50;

/// What does not fit.
#[derive(Default)]
struct Look {
    /// Fields with values that they cannot have, and why.
    wrong: Vec<String>,
    /// Fields that there are none of, with what was probably meant.
    unknown: Vec<(String, Option<&'static str>)>,
}

impl Look {
    fn add(&mut self, misfits: Vec<Misfit>, place: &str) {
        for misfit in misfits {
            match misfit.within(place) {
                Misfit::Wrong(fault) => self.wrong.push(fault),
                Misfit::Unknown(field) => self.unknown.push((field, None)),
            }
        }
    }
}

fn look(csv: &Value, reader: Reader) -> Look {
    let mut found = Look::default();
    let mut open: Vec<(String, &Value, Shape)> = vec![(String::new(), csv, CSV)];
    while let Some((path, value, shape)) = open.pop() {
        if found.wrong.len() >= MOST {
            found.wrong.truncate(MOST);
            found.wrong.push("and perhaps more".to_owned());
            break;
        }
        let separator = if path.is_empty() { "" } else { "." };
        let fits = match (value, shape) {
            (Value::Null, _) | (_, Any) | (Value::Bool(_), Boolean) | (Value::String(_), Text) => true,
            (Value::Number(_) | Value::Bool(_), Text | Grammar(_)) => reader == Reader::Author,
            (_, Number | Kubernetes(_)) if reader == Reader::Author => {
                // As much as is written of every object.
                !matches!(shape, Kubernetes(_))
                    || !OBJECTS.iter().any(|name| path.ends_with(name))
                    || value.is_object()
            }
            (value, Number) => super::value::read::<i32>(value).is_ok(),
            (Value::String(text), Grammar(fault)) => {
                if reader == Reader::Installer
                    && let Some(fault) = fault(text)
                {
                    found.wrong.push(format!("{path}: {fault}"));
                }
                true
            }
            (value, Kubernetes(misfits)) => {
                found.add(misfits(value), &path);
                true
            }
            (Value::Array(elements), List(inner)) => {
                // Texts in a list of texts need no second look, and no path of their own.
                let odd = |element: &Value| !matches!(inner, Text) || !is_text(element);
                let most = if matches!(inner, Text) { MOST } else { usize::MAX };
                let elements = elements.iter().enumerate();
                let elements: Vec<_> = elements.filter(|(_, element)| odd(element)).take(most).collect();
                let elements = elements.into_iter().rev();
                open.extend(elements.map(|(at, element)| (format!("{path}[{at}]"), element, *inner)));
                true
            }
            (Value::Object(members), Map) => {
                let members = members.iter();
                let members = members.filter(|(_, member)| !is_text(member)).take(MOST);
                open.extend(members.map(|(key, member)| (format!("{path}.{key}"), member, Text)));
                true
            }
            (Value::Object(members), Object(fields)) => {
                let is_known = |name: &str| fields.iter().any(|(known, _)| *known == name);
                if path != "metadata" {
                    let room = MOST.saturating_sub(found.unknown.len());
                    for name in members.keys().filter(|name| !is_known(name)).take(room) {
                        let meant = nearest(name, fields.iter().map(|(known, _)| *known));
                        found.unknown.push((format!("{path}{separator}{name}"), meant));
                    }
                } else if reader == Reader::Installer {
                    // What is looked at below is said there.
                    let mut rest = members.clone();
                    rest.retain(|name, _| !is_known(name));
                    found.add(misfits_of::<ObjectMeta>(&Value::Object(rest)), &path);
                }
                let fields = fields.iter().rev();
                open.extend(fields.filter_map(|(name, inner)| {
                    Some((format!("{path}{separator}{name}"), members.get(*name)?, *inner))
                }));
                true
            }
            _ => false,
        };
        if !fits {
            let (wanted, given) = (wanted(shape), given(value));
            found.wrong.push(format!("{path} must be {wanted}, not {given}"));
        }
    }
    found
}

fn is_text(value: &Value) -> bool {
    value.is_string() || value.is_null()
}

/// Objects of Kubernetes that the validators look at no further.
const OBJECTS: [&str; 2] = ["spec", "selector"];

fn wanted(shape: Shape) -> &'static str {
    match shape {
        Text | Grammar(_) => "a string",
        Boolean => "true or false",
        Any => "anything",
        Number => "a whole number of 32 bits",
        List(_) => "a list",
        Map | Object(_) | Kubernetes(_) => "an object",
    }
}

/// What a value is.
pub fn given(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_million_faults_a_few_are_told() {
        let ones = vec![1; 1_000_000];
        let strange: serde_json::Map<String, Value> = (0..10_000)
            .map(|at| (format!("strange{at}"), Value::Null))
            .collect();
        let csv = json!({"metadata": {"labels": {"a": 1}}, "spec": {"keywords": ones, "provider": strange}});
        let found = faults(&csv, Reader::Installer);
        assert_eq!(found.len(), 51, "{found:?}");
        assert_eq!(found[0], "metadata.labels.a must be a string, not a number");
        assert_eq!(found[1], "spec.keywords[0] must be a string, not a number");
        assert_eq!(found[50], "and perhaps more");
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
