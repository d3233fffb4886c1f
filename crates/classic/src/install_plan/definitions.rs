//! Steps that create or replace a CustomResourceDefinition.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::PassInput;
use super::objects::{Objects, StepResult};
use super::schema::faults;
use super::step_error::StepError;
use crate::cluster::{Cluster, items, put, text};
use crate::csv::ClusterServiceVersion;
use crate::wire::{UNEXPECTED_EOF, json_fault};
use crate::{hash, names};

/// The status of a step whose CRD is waited for. One that is gone is created again.
pub(super) fn awaited(name: &str, facts: &PassInput<'_>) -> &'static str {
    let Some(found) = facts.cluster.get(names::CRD_KIND, "", name) else {
        return super::MISSING;
    };
    let holds = |kind: &str| {
        items(found, "/status/conditions")
            .any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
    };
    if holds("Established") && holds("NamesAccepted") {
        "Created"
    } else {
        super::WAITING
    }
}

/// The CRD of a step.
pub(super) fn wanted(step: &Value, objects: &mut Objects<'_>) -> Result<Value, StepError> {
    let manifest = objects.manifest(step)?;
    let mut wanted = if manifest.trim_start().starts_with('{') {
        serde_json::from_str(&manifest).map_err(|error| json_fault(&error, UNEXPECTED_EOF))?
    } else {
        olm_yaml::to_json(&manifest).map_err(|error| error.to_string())?
    };
    if let Some(fields) = Value::as_object_mut(&mut wanted) {
        fields.remove("status");
    }
    Ok(wanted)
}

/// Creates the CRD of a step, or replaces the one on the cluster where this loses no data.
pub(super) fn apply(
    step: &Value,
    plan: &Value,
    objects: &mut Objects<'_>,
    events: &mut Vec<(String, String)>,
) -> StepResult {
    let mut wanted = wanted(step, objects)?;
    let found = objects
        .get(names::CRD_KIND, "", text(&wanted, "/metadata/name"))
        .cloned();
    if let Some(found) = &found {
        check(found, &wanted, objects.facts, events)?;
    }
    let (namespace, csv) = (text(plan, "/metadata/namespace"), text(step, "/resolving"));
    let own = (!namespace.is_empty() && !csv.is_empty()).then(|| format!("{namespace}/{csv}"));
    note_alongside(&mut wanted, found.as_ref(), own.as_deref(), objects.facts);
    objects.write(wanted);
    Ok(Some(if found.is_some() {
        "Present"
    } else {
        super::WAITING
    }))
}

/// Notes which ClusterServiceVersions installed a CRD: the one of the step, and those noted before that still exist.
fn note_alongside(wanted: &mut Value, found: Option<&Value>, own: Option<&str>, facts: &PassInput<'_>) {
    let noted = |object: &Value| -> Vec<String> {
        alongside(object)
            .filter_map(|(_, value)| value.as_str().map(str::to_owned))
            .collect()
    };
    let mut all = noted(wanted);
    all.extend(found.map(noted).unwrap_or_default());
    all.retain(|one| Some(one.as_str()) != own && is_kept(one, facts.cluster));
    all.extend(own.map(str::to_owned));
    all.sort();
    all.dedup();
    let annotations = wanted.pointer("/metadata/annotations").and_then(Value::as_object);
    let mut annotations: Map<String, Value> = annotations.cloned().unwrap_or_default();
    annotations.retain(|key, _| !key.starts_with(names::ALONGSIDE_PREFIX));
    if all.is_empty() && annotations.is_empty() {
        return;
    }
    for one in all {
        let key = format!("{}{}", names::ALONGSIDE_PREFIX, hash::fnv(&one));
        annotations.insert(key, one.into());
    }
    put(wanted, &["metadata"], "annotations", annotations);
}

/// The annotations about the ClusterServiceVersions that installed a CRD.
fn alongside(definition: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let annotations = definition
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    let annotations = annotations.into_iter().flatten();
    annotations.filter(|(key, _)| key.starts_with(names::ALONGSIDE_PREFIX))
}

/// The two writes of a CRD of which several plans may be installing at once.
#[derive(Debug, Clone, PartialEq)]
pub struct DefinitionWrites {
    /// The object that is applied.
    pub applied: Value,
    /// The annotations that are merged afterwards; those to remove are null.
    pub merged: Map<String, Value>,
}

impl DefinitionWrites {
    /// The writes of the CRD of a step. `found` is the one on the cluster that the pass has read, `cluster` has the
    /// ClusterServiceVersions and InstallPlans since then.
    ///
    /// An apply removes annotations that an earlier one had and this one lacks, and plans that run at once do not read
    /// each other's annotations. So an apply has only those that `found` has; the annotations of new
    /// ClusterServiceVersions are merged, which removes nothing that others have written.
    pub fn new(wanted: &Value, found: Option<&Value>, cluster: &Cluster) -> Self {
        let known: BTreeMap<&String, &Value> = found.into_iter().flat_map(alongside).collect();
        let noted: BTreeSet<&String> = alongside(wanted).map(|(key, _)| key).collect();
        let added = alongside(wanted).filter(|(key, _)| !known.contains_key(key));
        let mut merged: Map<String, Value> = added.map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut applied = wanted.clone();
        if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
            && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        {
            annotations.retain(|key, _| !merged.contains_key(key));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        let ended = known.into_iter().filter(|(key, note)| {
            !noted.contains(key) && !note.as_str().is_some_and(|note| is_kept(note, cluster))
        });
        merged.extend(ended.map(|(key, _)| (key.clone(), Value::Null)));
        Self { applied, merged }
    }
}

/// Whether a ClusterServiceVersion, as `namespace/name`, exists and is no copy, or a plan may still create it: a plan
/// writes its CRDs first. A failed plan that continues writes its note again.
fn is_kept(csv: &str, cluster: &Cluster) -> bool {
    let (namespace, name) = csv.split_once('/').unwrap_or(("", csv));
    if let Some(found) = cluster.get(names::CSV_KIND, namespace, name) {
        return !ClusterServiceVersion::read(found).is_ok_and(|found| found.is_copy());
    }
    let mut plans = cluster.in_namespace(names::INSTALL_PLAN_KIND, namespace);
    plans.any(|plan| {
        !["Complete", "Failed"].contains(&text(plan, "/status/phase"))
            && items(plan, "/status/plan").any(|step| text(step, "/resolving") == name)
    })
}

/// Refuses a CRD that objects of the cluster do not fit, or that lacks a stored version.
fn check(
    found: &Value,
    wanted: &Value,
    facts: &PassInput<'_>,
    events: &mut Vec<(String, String)>,
) -> Result<(), StepError> {
    let name = text(wanted, "/metadata/name");
    if let Err(error) = check_objects(found, wanted, facts) {
        if text(wanted, "/spec/conversion/strategy") != "Webhook" {
            return Err(StepError::Other(format!(
                "error validating existing CRs against new CRD's schema for \"{name}\": {error}"
            )));
        }
        events.push((
            "CRDValidation".to_owned(),
            format!(
                "Validation of existing CRs against the new CRD's schema failed, but a webhook conversion strategy was specified in \
                 the new CRD.\nThe new webhook will only start after the bundle is upgraded, so we must assume that it will \
                 successfully convert existing CRs to a format that would have passed validation.\n\nCRD: \"{name}\"\nValidation \
                 Error: {error}\n"
            ),
        ));
    }
    let is_kept = |stored: &str| {
        text(wanted, "/spec/version") == stored
            || items(wanted, "/spec/versions").any(|version| text(version, "/name") == stored)
    };
    for stored in items(found, "/status/storedVersions").filter_map(Value::as_str) {
        if !is_kept(stored) {
            return Err(StepError::Other(format!(
                "risk of data loss updating \"{name}\": new CRD removes version {stored} that is listed as a stored version on the \
                 existing CRD"
            )));
        }
    }
    Ok(())
}

/// The versions of a CRD that are served, with their schemas. The older API may have one of each for the whole.
fn served(definition: &Value) -> Vec<(&str, Option<&Value>)> {
    let whole = definition.pointer("/spec/validation/openAPIV3Schema");
    let versions: Vec<&Value> = items(definition, "/spec/versions").collect();
    let only = text(definition, "/spec/version");
    if versions.is_empty() && !only.is_empty() {
        return vec![(only, whole)];
    }
    versions
        .into_iter()
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| {
            let own = version.pointer("/schema/openAPIV3Schema");
            (text(version, "/name"), own.or(whole))
        })
        .collect()
}

/// A CustomResourceDefinition and the one that replaces it.
#[derive(Debug, Clone)]
pub struct Replacement {
    group: String,
    kind: String,
    /// The versions that are served before and after, with the schemas before and after.
    versions: Vec<(String, Value, Value)>,
}

impl Replacement {
    /// `found` is replaced by `wanted`.
    pub fn new(found: &Value, wanted: &Value) -> Self {
        let before: BTreeMap<&str, Option<&Value>> = served(found).into_iter().collect();
        let versions = served(wanted).into_iter().filter_map(|(name, after)| {
            let before = before.get(name)?.cloned().unwrap_or_default();
            Some((name.to_owned(), before, after?.clone()))
        });
        Self {
            group: text(found, "/spec/group").to_owned(),
            kind: text(found, "/spec/names/kind").to_owned(),
            versions: versions.collect(),
        }
    }

    /// The kind of the objects.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The versions, as `group/version`, of which objects may not fit afterwards: those with another schema.
    pub fn changed_schemas(&self) -> impl Iterator<Item = String> {
        let versions = self.versions.iter().filter(|(_, before, after)| before != after);
        versions.map(|(name, ..)| format!("{}/{name}", self.group))
    }

    /// Reason why an object of a version does not fit the new schema.
    pub fn misfit(&self, object: &Value) -> Option<String> {
        let mut versions = self.versions.iter();
        let (name, _, schema) =
            versions.find(|(name, ..)| text(object, "/apiVersion") == format!("{}/{name}", self.group))?;
        let faults = faults(object, schema);
        let detail = match faults.as_slice() {
            [] => return None,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let place = match text(object, "/metadata/namespace") {
            "" => text(object, "/metadata/name").to_owned(),
            namespace => format!("{namespace}/{}", text(object, "/metadata/name")),
        };
        let Self { group, kind, .. } = self;
        Some(format!(
            "error validating {group}/{name}, Kind={kind} \"{place}\": updated validation is too restrictive: {detail}"
        ))
    }
}

/// Checks the objects of each version that is served before and after.
fn check_objects(found: &Value, wanted: &Value, facts: &PassInput<'_>) -> Result<(), String> {
    let replacement = Replacement::new(found, wanted);
    for (version, ..) in &replacement.versions {
        let api_version = format!("{}/{version}", replacement.group);
        let objects = facts.cluster.of_kind(&replacement.kind);
        let mut objects = objects.filter(|object| text(object, "/apiVersion") == api_version);
        if let Some(misfit) = objects.find_map(|object| replacement.misfit(object)) {
            return Err(misfit);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(notes: &[&str]) -> Value {
        let key = |note: &str| format!("{}{note}", names::ALONGSIDE_PREFIX);
        let notes = notes.iter().map(|note| (key(note), json!(note)));
        let mut annotations: Map<String, Value> = notes.collect();
        annotations.insert("own".to_owned(), json!("1"));
        json!({"metadata": {"name": "as.g", "annotations": annotations}})
    }

    fn new(wanted: &Value, found: Option<&Value>) -> DefinitionWrites {
        DefinitionWrites::new(wanted, found, &Cluster::default())
    }

    fn merged(writes: &DefinitionWrites) -> Vec<(&str, &Value)> {
        let merged = writes.merged.iter();
        merged
            .map(|(key, value)| (key.strip_prefix(names::ALONGSIDE_PREFIX).unwrap(), value))
            .collect()
    }

    #[test]
    fn an_apply_has_no_annotation_that_another_plan_may_not_have_read() {
        let first = new(&definition(&["a"]), None);
        assert_eq!(first.applied, definition(&[]));
        assert_eq!(merged(&first), [("a", &json!("a"))]);
        let second = new(&definition(&["a", "b"]), Some(&definition(&["a"])));
        assert_eq!(second.applied, definition(&["a"]));
        assert_eq!(merged(&second), [("b", &json!("b"))]);
        let mut bare = definition(&["a"]);
        bare["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("own");
        let writes = new(&bare, None);
        assert_eq!(writes.applied, json!({"metadata": {"name": "as.g"}}));
    }

    #[test]
    fn annotations_of_what_is_gone_are_removed_whoever_has_written_them() {
        let found = definition(&["a", "gone"]);
        let writes = new(&definition(&["a"]), Some(&found));
        assert_eq!(writes.applied, definition(&["a"]));
        assert_eq!(merged(&writes), [("gone", &Value::Null)]);
        let settled = new(&definition(&["a"]), Some(&definition(&["a"])));
        assert!(settled.merged.is_empty());
    }

    #[test]
    fn annotations_of_what_a_plan_may_still_create_stay() {
        let plan = |phase: &str| {
            json!({
                "kind": names::INSTALL_PLAN_KIND, "metadata": {"namespace": "n", "name": "p"},
                "status": {"phase": phase, "plan": [{"resolving": "c.v1"}]},
            })
        };
        let csv = json!({"kind": names::CSV_KIND, "metadata": {"namespace": "n", "name": "c.v1"}});
        let check = |object: Value, expected: bool| {
            let cluster: Cluster = [object].into_iter().collect();
            assert_eq!(is_kept("n/c.v1", &cluster), expected);
            let found = definition(&["n/c.v1"]);
            let writes = DefinitionWrites::new(&definition(&[]), Some(&found), &cluster);
            assert_eq!(writes.merged.is_empty(), expected);
            assert!(!is_kept("n/c.v2", &cluster) && !is_kept("m/c.v1", &cluster));
        };
        check(plan("Installing"), true);
        check(plan("Complete"), false);
        check(csv, true);
    }
}
