//! The user's changes to the operator's Deployments: `spec.config.inline.deploymentConfig`.
//!
//! They apply to every Deployment of the bundle and to all of its containers.

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, ResourceRequirements, Toleration, Volume, VolumeMount,
};
use serde_json::{Map, Value, json};

use super::manifests::child;
use super::manifests::containers_mut;
use crate::reader::{Path, SpecFault, drop_unknown, spec_faults_of};

/// The parts of an affinity, each of which can be replaced separately.
const AFFINITIES: [&str; 3] = ["nodeAffinity", "podAffinity", "podAntiAffinity"];

/// A checked `deploymentConfig`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeploymentConfig {
    fields: Map<String, Value>,
    ignored: Vec<String>,
}

/// A `deploymentConfig` has fields of wrong types or invalid quantities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to unmarshal deploymentConfig: {0}")]
pub struct DeploymentConfigError(String);

/// The fields with their types of Kubernetes.
type Typed = (&'static str, fn(&Value) -> Vec<SpecFault>, fn(&mut Value));
const TYPED: [Typed; 7] = [
    ("env", spec_faults_of::<Vec<EnvVar>>, drop_unknown::<Vec<EnvVar>>),
    (
        "envFrom",
        spec_faults_of::<Vec<EnvFromSource>>,
        drop_unknown::<Vec<EnvFromSource>>,
    ),
    (
        "volumes",
        spec_faults_of::<Vec<Volume>>,
        drop_unknown::<Vec<Volume>>,
    ),
    (
        "volumeMounts",
        spec_faults_of::<Vec<VolumeMount>>,
        drop_unknown::<Vec<VolumeMount>>,
    ),
    (
        "tolerations",
        spec_faults_of::<Vec<Toleration>>,
        drop_unknown::<Vec<Toleration>>,
    ),
    ("affinity", spec_faults_of::<Affinity>, drop_unknown::<Affinity>),
    (
        "resources",
        spec_faults_of::<ResourceRequirements>,
        drop_unknown::<ResourceRequirements>,
    ),
];

impl DeploymentConfig {
    /// Reads a `deploymentConfig`; `None` for null. Fields that the types of Kubernetes do not have are dropped, as in
    /// the reference implementation; [`DeploymentConfig::ignored`] lists them.
    ///
    /// # Errors
    /// Lists every field with an invalid value.
    pub fn new(value: &Value) -> Result<Option<Self>, DeploymentConfigError> {
        let mut fields = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => fields.clone(),
            _ => {
                let fault = "deploymentConfig must be an object";
                return Err(DeploymentConfigError(fault.to_owned()));
            }
        };
        let (mut faults, mut ignored) = (Vec::new(), Vec::new());
        for map in ["annotations", "nodeSelector"] {
            match fields.get(map) {
                None | Some(Value::Null) => {}
                Some(Value::Object(entries)) if entries.values().all(Value::is_string) => {}
                Some(_) => faults.push(format!("{map} must be a mapping of text to text")),
            }
        }
        for (field, spec_faults, clean) in TYPED {
            let Some(value) = fields.get_mut(field).filter(|value| !value.is_null()) else {
                continue;
            };
            if let Some(entries) = value.as_array()
                && !entries.iter().all(Value::is_object)
            {
                faults.push(format!("{field} must be a list of objects"));
                continue;
            }
            let place = Path::default().member(field);
            for fault in spec_faults(value).into_iter().map(|fault| fault.within(&place)) {
                match &fault {
                    SpecFault::Wrong { .. } => faults.push(fault.to_string()),
                    SpecFault::Unknown(path) => ignored.push(path.to_string()),
                }
            }
            clean(value);
        }
        if faults.is_empty() {
            Ok(Some(Self { fields, ignored }))
        } else {
            Err(DeploymentConfigError(faults.join("; ")))
        }
    }

    /// The dropped fields, which Kubernetes does not have: `env[0].valeu`.
    #[must_use]
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The configuration as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.fields.clone())
    }

    fn list(&self, field: &str) -> &[Value] {
        self.fields
            .get(field)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Applies the changes to a Deployment and to the containers in these lists.
    pub(super) fn apply(&self, deployment: &mut Value, lists: &[&str]) {
        self.annotate(deployment);
        let Some(template) = deployment.pointer_mut("/spec/template") else {
            return;
        };
        self.annotate(template);
        let Some(pod) = child(template, "spec") else {
            return;
        };
        merge(pod, "volumes", self.list("volumes"), Merge::ByName);
        merge(pod, "tolerations", self.list("tolerations"), Merge::Distinct);
        if let Some(selector @ Value::Object(_)) = self.fields.get("nodeSelector") {
            pod.insert("nodeSelector".to_owned(), selector.clone());
        }
        if let Some(Value::Object(affinity)) = self.fields.get("affinity") {
            set_affinity(pod, affinity);
        }
        for list in lists {
            for container in containers_mut(pod, list) {
                self.change(container);
            }
        }
    }

    fn change(&self, container: &mut Map<String, Value>) {
        merge(container, "env", self.list("env"), Merge::ByName);
        merge(container, "envFrom", self.list("envFrom"), Merge::Distinct);
        let mounts = self.list("volumeMounts");
        merge(container, "volumeMounts", mounts, Merge::ByLastName);
        if let Some(resources @ Value::Object(_)) = self.fields.get("resources") {
            container.insert("resources".to_owned(), resources.clone());
        }
    }

    /// Adds the annotations that the object does not have yet.
    fn annotate(&self, object: &mut Value) {
        let Some(Value::Object(wanted)) = self.fields.get("annotations") else {
            return;
        };
        if wanted.is_empty() {
            return;
        }
        let Some(metadata) = child(object, "metadata") else {
            return;
        };
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        let Some(annotations) = annotations.as_object_mut() else {
            return;
        };
        for (key, value) in wanted {
            annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
        annotations.sort_keys();
    }
}

/// The way in which entries replace those of the bundle in a list.
#[derive(Clone, Copy)]
enum Merge {
    /// Replaces the first entry with the same name.
    ByName,
    /// Replaces the last entry with the same name.
    ByLastName,
    /// Skips equal entries and appends others.
    Distinct,
}

fn merge(owner: &mut Map<String, Value>, field: &str, additions: &[Value], how: Merge) {
    if additions.is_empty() {
        return;
    }
    let entry = owner.entry(field).or_insert_with(|| json!([]));
    if entry.is_null() {
        *entry = json!([]);
    }
    let Some(list) = entry.as_array_mut() else { return };
    // Only an entry of the bundle is replaced, and only once, never one of the user.
    let brought = list.len();
    let mut given = std::collections::BTreeSet::new();
    for addition in additions {
        let same_name = |existing: &Value| existing.get("name") == addition.get("name");
        let head = list.get(..brought).unwrap_or_default();
        let position = match how {
            Merge::ByName => head.iter().position(same_name),
            Merge::ByLastName => {
                let mut brought = head.iter().enumerate();
                brought
                    .rfind(|(index, existing)| same_name(existing) && !given.contains(index))
                    .map(|(index, _)| index)
            }
            Merge::Distinct => {
                if list.contains(addition) {
                    continue;
                }
                None
            }
        };
        given.extend(position);
        match position.and_then(|position| list.get_mut(position)) {
            Some(existing) => *existing = addition.clone(),
            None => list.push(addition.clone()),
        }
    }
}

/// An empty affinity clears all, an empty part clears that part, any other part replaces it.
fn set_affinity(pod: &mut Map<String, Value>, wanted: &Map<String, Value>) {
    let mut affinity = match pod.shift_remove("affinity") {
        Some(Value::Object(affinity)) => affinity,
        _ => Map::new(),
    };
    let named: Vec<(&str, &Value)> = AFFINITIES
        .iter()
        .filter_map(|part| Some((*part, wanted.get(*part).filter(|v| !v.is_null())?)))
        .collect();
    if named.is_empty() {
        return;
    }
    for (part, value) in named {
        if says_nothing(value) {
            affinity.shift_remove(part);
        } else {
            affinity.insert(part.to_owned(), value.clone());
        }
    }
    if !affinity.is_empty() {
        pod.insert("affinity".to_owned(), Value::Object(affinity));
    }
}

/// Whether a value consists of empty mappings, empty lists and nulls.
fn says_nothing(value: &Value) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Null => {}
            Value::Object(map) => open.extend(map.values()),
            Value::Array(items) => open.extend(items),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
        }
    }
    true
}
