//! The objects that steps write, by their kinds.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::reference::Bundles;
use super::step_error::StepError;
use super::typed::{as_written, usual_version};
use super::{PassInput, Write};
use crate::cluster::{items, object_at, put, text};
use crate::install::owner_reference;
use crate::names;
use crate::wire::{UNEXPECTED_END, json_fault};

/// The kinds that a bundle may hold besides those that OLM knows itself.
const SUPPORTED: &[&str] = &[
    "ConsoleCLIDownload",
    "ConsoleLink",
    "ConsolePlugin",
    "ConsoleQuickStart",
    "ConsoleYAMLSample",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PriorityClass",
    "PrometheusRule",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
];

/// Whether a bundle may hold objects of the kind besides those that OLM knows itself.
pub fn is_supported(kind: &str) -> bool {
    SUPPORTED.contains(&kind)
}

/// Whether steps install objects of the kind.
pub fn is_installable(kind: &str) -> bool {
    const KNOWN: &[&str] = &[
        names::CRD_KIND,
        names::CSV_KIND,
        names::SUBSCRIPTION_KIND,
        names::SECRET_KIND,
        names::BUNDLE_SECRET_KIND,
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ];
    KNOWN.contains(&kind) || is_supported(kind)
}

const CREATED: &str = "Created";
const PRESENT: &str = "Present";

/// The new status of a step; `None` for a kind that is not supported.
pub(super) type StepResult = Result<Option<&'static str>, StepError>;

/// The objects as the steps so far leave them.
pub(super) struct Objects<'a> {
    plan: &'a Value,
    pub(super) facts: &'a PassInput<'a>,
    /// The position of the step that is carried out.
    pub(super) step: usize,
    written: Vec<Write>,
    bundles: Bundles,
}

impl<'a> Objects<'a> {
    pub(super) fn new(plan: &'a Value, facts: &'a PassInput<'a>) -> Self {
        Self {
            plan,
            facts,
            step: 0,
            written: Vec::new(),
            bundles: Bundles::default(),
        }
    }

    pub(super) fn into_written(self) -> Vec<Write> {
        self.written
    }

    fn namespace(&self) -> &'a str {
        text(self.plan, "/metadata/namespace")
    }

    /// An object, as a step before has written it where one has.
    pub(super) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let is_it = |object: &&Value| {
            text(object, "/kind") == kind
                && text(object, "/metadata/namespace") == namespace
                && text(object, "/metadata/name") == name
        };
        let written = self.written.iter().rev().map(|write| &write.object).find(is_it);
        written.or_else(|| self.facts.cluster.get(kind, namespace, name))
    }

    pub(super) fn write(&mut self, mut object: Value) {
        put(&mut object, &["metadata", "labels"], names::MANAGED_LABEL, "true");
        let step = self.step;
        self.written.push(Write { step, object });
    }

    /// The manifest of a step as JSON or YAML.
    pub(super) fn manifest(&mut self, step: &Value) -> Result<String, StepError> {
        let namespace = self.namespace();
        self.bundles.manifest(step, namespace, self.facts)
    }

    /// Carries out a step of any kind but CustomResourceDefinition.
    pub(super) fn apply(&mut self, step: &Value) -> StepResult {
        let kind = text(step, "/resource/kind");
        match kind {
            names::CSV_KIND => self.csv(step),
            names::SUBSCRIPTION_KIND => self.subscription(step),
            names::SECRET_KIND => self.pull_secret(step),
            "ClusterRole" | "ClusterRoleBinding" => self.cluster_role(step),
            "Role" | "RoleBinding" => self.role(step),
            "ServiceAccount" => self.account(step),
            "Service" | "ConfigMap" | names::BUNDLE_SECRET_KIND => self.owned(step),
            kind if is_installable(kind) => self.other(step),
            _ => Ok(None),
        }
    }

    /// The manifest of a step, with apiVersion and kind.
    fn object(&mut self, step: &Value) -> Result<Value, StepError> {
        let manifest = self.manifest(step)?;
        let name = text(step, "/resource/name");
        let mut object: Value = serde_json::from_str(&manifest).map_err(|error| {
            let fault = json_fault(&error, UNEXPECTED_END);
            format!("error parsing step manifest: {name}: {fault}")
        })?;
        let kind = match text(step, "/resource/kind") {
            names::BUNDLE_SECRET_KIND => names::SECRET_KIND,
            kind => kind,
        };
        let api_version = match group_version(text(step, "/resource/group"), text(step, "/resource/version"))
        {
            // The kinds that OLM knows itself need none in a bundle.
            unnamed if unnamed.is_empty() => usual_version(kind).to_owned(),
            named => named,
        };
        put(&mut object, &[], "apiVersion", api_version);
        put(&mut object, &[], "kind", kind);
        Ok(object)
    }

    fn placed(&mut self, step: &Value) -> Result<Value, StepError> {
        let mut object = self.object(step)?;
        put(&mut object, &["metadata"], "namespace", self.namespace());
        Ok(object)
    }

    fn is_there(&self, object: &Value) -> bool {
        let field = |name: &str| text(object, &format!("/metadata/{name}"));
        let found = self.get(text(object, "/kind"), field("namespace"), field("name"));
        found.is_some()
    }

    fn status(&self, object: &Value) -> &'static str {
        if self.is_there(object) { PRESENT } else { CREATED }
    }

    /// The ClusterServiceVersion that a step belongs to.
    fn resolved(&self, name: &str, subject: &str) -> Result<&Value, StepError> {
        let found = self.get(names::CSV_KIND, self.namespace(), name);
        found.ok_or_else(|| {
            StepError::NotFound(format!(
                "error generating ownerrefs for {subject}: clusterserviceversions.operators.coreos.com \"{name}\" not found"
            ))
        })
    }

    fn csv(&mut self, step: &Value) -> StepResult {
        let csv = as_written(self.placed(step)?);
        let name = text(&csv, "/metadata/name").to_owned();
        let mut listed = items(self.plan, "/spec/clusterServiceVersionNames");
        if !listed.any(|listed| listed.as_str() == Some(name.as_str())) {
            self.check_owners(&csv, &name)?;
        }
        if self.is_there(&csv) {
            return Ok(Some(PRESENT));
        }
        self.write(csv);
        Ok(Some(CREATED))
    }

    /// Refuses a dependency whose CRDs another ClusterServiceVersion of the namespace owns. Copies count too.
    fn check_owners(&self, csv: &Value, name: &str) -> Result<(), StepError> {
        let namespace = self.namespace();
        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for other in self.facts.cluster.in_namespace(names::CSV_KIND, namespace) {
            for owned in items(other, OWNED) {
                let owners = owners.entry(text(owned, "/name")).or_default();
                owners.push(text(other, "/metadata/name"));
            }
        }
        for owned in items(csv, OWNED) {
            let definition = text(owned, "/name");
            match owners.get(definition).map(Vec::as_slice).unwrap_or_default() {
                [] => {}
                [owner] if *owner == name => {}
                [_] => {
                    return Err(StepError::Other(format!(
                        "pre-existing CRD owners found for owned CRD(s) of dependent CSV {name}"
                    )));
                }
                several => {
                    return Err(StepError::Other(format!(
                        "error checking crd owners for: {name}: Existing CSVs [{}] in namespace {namespace} all claim to own CRD \
                         {definition}",
                        several.join(" ")
                    )));
                }
            }
        }
        Ok(())
    }

    fn subscription(&mut self, step: &Value) -> StepResult {
        let mut object = self.placed(step)?;
        if self.is_there(&object) {
            return Ok(Some(PRESENT));
        }
        let plan = text(self.plan, "/metadata/name");
        put(
            &mut object,
            &["metadata", "annotations"],
            names::GENERATED_BY_ANNOTATION,
            plan,
        );
        self.write(object);
        Ok(Some(CREATED))
    }

    /// Copies a pull Secret from the global namespace.
    fn pull_secret(&mut self, step: &Value) -> StepResult {
        let (name, namespace) = (text(step, "/resource/name"), self.namespace());
        let found = self.get(names::SECRET_KIND, self.facts.global_namespace, name);
        let Some(found) = found else {
            return Err(StepError::Other(format!(
                "secret {name} does not exist - secrets \"{name}\" not found"
            )));
        };
        if self.get(names::SECRET_KIND, namespace, name).is_some() {
            return Ok(Some(PRESENT));
        }
        let mut copy = json!({
            "apiVersion": "v1", "kind": names::SECRET_KIND, "metadata": {"name": name, "namespace": namespace},
        });
        for key in ["data", "type"] {
            if let Some(value) = found.get(key) {
                put(&mut copy, &[], key, value.clone());
            }
        }
        self.write(copy);
        Ok(Some(CREATED))
    }

    fn cluster_role(&mut self, step: &Value) -> StepResult {
        let mut object = self.object(step)?;
        let status = self.status(&object);
        let owner = text(step, "/resolving");
        if !owner.is_empty() {
            self.label(&mut object, owner);
        }
        self.write(object);
        Ok(Some(status))
    }

    /// Labels an object at cluster scope with the ClusterServiceVersion that brings it, whose deletion deletes it.
    fn label(&self, object: &mut Value, csv: &str) {
        if let Some(labels) = object_at(object, &["metadata", "labels"]) {
            for (key, value) in [
                (names::OWNER_LABEL, csv),
                (names::OWNER_NAMESPACE_LABEL, self.namespace()),
                (names::OWNER_KIND_LABEL, names::CSV_KIND),
            ] {
                labels.insert(key.to_owned(), value.into());
            }
        }
    }

    /// Makes the ClusterServiceVersion of a step the owner of an object of its bundle that names no owner: what a
    /// bundle brings goes with it.
    fn own_unowned(&self, object: &mut Value, step: &Value) {
        let csv = self.get(names::CSV_KIND, self.namespace(), text(step, "/resolving"));
        if let Some(csv) = csv
            && !is_owned(object)
        {
            let owner = owner_reference(csv);
            put(object, &["metadata"], "ownerReferences", json!([owner]));
        }
    }

    fn role(&mut self, step: &Value) -> StepResult {
        let kind = text(step, "/resource/kind").to_lowercase();
        let mut object = self.placed(step)?;
        let subject = format!("{kind} {}", text(&object, "/metadata/name"));
        self.own_unowned(&mut object, step);
        self.fill_owners(&mut object, &subject)?;
        let status = self.status(&object);
        self.write(object);
        Ok(Some(status))
    }

    /// An account keeps its Secrets; its annotations and owners are merged.
    fn account(&mut self, step: &Value) -> StepResult {
        let mut object = self.placed(step)?;
        let name = text(&object, "/metadata/name").to_owned();
        // An account that was there before stays when the operator goes.
        if self
            .get("ServiceAccount", self.namespace(), &name)
            .is_none_or(is_owned)
        {
            self.own_unowned(&mut object, step);
        }
        self.fill_owners(&mut object, &format!("service account: {name}"))?;
        let found = self.get("ServiceAccount", self.namespace(), &name);
        let Some(found) = found.cloned() else {
            self.write(object);
            return Ok(Some(CREATED));
        };
        if let Some(secrets) = found.get("secrets") {
            put(&mut object, &[], "secrets", secrets.clone());
        }
        let mut annotations = map_at(&found, "/metadata/annotations");
        annotations.extend(map_at(&object, "/metadata/annotations"));
        put(&mut object, &["metadata"], "annotations", annotations);
        let mut owners: Vec<Value> = items(&found, "/metadata/ownerReferences").cloned().collect();
        for owner in items(&object, "/metadata/ownerReferences") {
            if !owners
                .iter()
                .any(|known| text(known, "/uid") == text(owner, "/uid"))
            {
                owners.push(owner.clone());
            }
        }
        put(&mut object, &["metadata"], "ownerReferences", owners);
        put(&mut object, &["metadata", "labels"], names::MANAGED_LABEL, "true");
        // Nothing is lost of an account that has all of it.
        if !has(&found, &object) {
            self.write(object);
        }
        Ok(Some(PRESENT))
    }

    /// An object that its ClusterServiceVersion owns.
    fn owned(&mut self, step: &Value) -> StepResult {
        let subject = match text(step, "/resource/kind") {
            names::BUNDLE_SECRET_KIND => "secret",
            "Service" => "service:",
            _ => "configmap:",
        };
        let mut object = self.placed(step)?;
        let subject = format!("{subject} {}", text(&object, "/metadata/name"));
        self.own(&mut object, text(step, "/resolving"), &subject)?;
        self.fill_owners(&mut object, &subject)?;
        let status = self.status(&object);
        self.write(object);
        Ok(Some(status))
    }

    fn own(&self, object: &mut Value, csv: &str, subject: &str) -> Result<(), StepError> {
        if csv.is_empty() {
            return Ok(());
        }
        let owner = owner_reference(self.resolved(csv, subject)?);
        let mut owners: Vec<Value> = items(object, "/metadata/ownerReferences").cloned().collect();
        if !owners
            .iter()
            .any(|known| text(known, "/uid") == text(&owner, "/uid"))
        {
            owners.push(owner);
        }
        put(object, &["metadata"], "ownerReferences", owners);
        Ok(())
    }

    /// Fills in the UIDs of owners that are ClusterServiceVersions.
    fn fill_owners(&self, object: &mut Value, subject: &str) -> Result<(), StepError> {
        let owners = object
            .pointer_mut("/metadata/ownerReferences")
            .and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            if text(owner, "/kind") != names::CSV_KIND {
                continue;
            }
            let csv = self.resolved(text(owner, "/name"), subject)?;
            let uid = text(csv, "/metadata/uid").to_owned();
            put(owner, &[], "uid", uid);
        }
        Ok(())
    }

    /// An object of a kind that OLM does not know itself.
    fn other(&mut self, step: &Value) -> StepResult {
        let manifest = self.manifest(step)?;
        let mut object = olm_yaml::to_json(&manifest).map_err(|error| error.to_string())?;
        let field = |name: &str| text(step, &format!("/resource/{name}"));
        let (group, version, kind) = (field("group"), field("version"), field("kind"));
        let missing = || format!("Unable to find GVK in discovery: {group} {version} {kind}");
        let kinds = self.facts.served.kinds(&group_version(group, version));
        let kinds = kinds.ok_or_else(|| StepError::NotFound(missing()))?;
        let is_namespaced = *kinds.get(kind).ok_or_else(|| StepError::Other(missing()))?;
        let csv = text(step, "/resolving");
        if is_namespaced {
            put(&mut object, &["metadata"], "namespace", self.namespace());
            let subject = format!("unstructured object: {}", text(&object, "/metadata/name"));
            if !csv.is_empty() {
                self.own(&mut object, csv, &subject)?;
                self.fill_owners(&mut object, &subject)?;
            }
        } else if !csv.is_empty() {
            self.label(&mut object, csv);
        }
        let status = self.status(&object);
        self.write(object);
        Ok(Some(status))
    }
}

const OWNED: &str = "/spec/customresourcedefinitions/owned";

fn is_owned(object: &Value) -> bool {
    items(object, "/metadata/ownerReferences").next().is_some()
}

/// Whether a value has all that another one has. Empty values are no part of one.
fn has(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (_, Value::Null) => true,
        (_, Value::Object(wanted)) if wanted.is_empty() => true,
        (_, Value::Array(wanted)) if wanted.is_empty() => true,
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| has(found.get(key).unwrap_or(&Value::Null), wanted)),
        (Value::Array(found), Value::Array(wanted)) => wanted
            .iter()
            .all(|wanted| found.iter().any(|found| has(found, wanted))),
        (found, wanted) => found == wanted,
    }
}

fn map_at(object: &Value, pointer: &str) -> Map<String, Value> {
    let found = object.pointer(pointer).and_then(Value::as_object);
    found.cloned().unwrap_or_default()
}

/// `group/version`; the version alone in the core group.
pub(super) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}
