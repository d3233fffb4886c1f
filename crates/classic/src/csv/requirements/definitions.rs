//! CustomResourceDefinitions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Requirement, RequirementStatus};
use crate::cluster::{Cluster, items, text};
use crate::csv::{ApiDescription, ClusterServiceVersion};
use crate::names;

/// One row for each name, sorted. Where it is owned and required, the owned one counts; of several, the last.
pub(super) fn requirements(csv: &ClusterServiceVersion, cluster: &Cluster) -> Vec<Requirement> {
    let definitions = &csv.spec.custom_resource_definitions;
    let required = definitions.required.iter().map(|api| (api, false));
    let owned = definitions.owned.iter().map(|api| (api, true));
    let by_name: BTreeMap<&str, (&ApiDescription, bool)> = required
        .chain(owned)
        .map(|(api, is_owned)| (api.name.as_str(), (api, is_owned)))
        .collect();
    by_name
        .into_values()
        .map(|(api, is_owned)| requirement(csv, api, is_owned, cluster))
        .collect()
}

fn requirement(
    csv: &ClusterServiceVersion,
    api: &ApiDescription,
    is_owned: bool,
    cluster: &Cluster,
) -> Requirement {
    let row = Requirement::new(names::CRD_GROUP, "v1", names::CRD_KIND, &api.name);
    let Some(definition) = cluster.get(names::CRD_KIND, "", &api.name) else {
        return row.found(RequirementStatus::NotPresent, "CRD is not present");
    };
    if is_owned {
        let others = others_alongside(definition, csv, cluster);
        if !others.is_empty() {
            let message = format!("CRD installed alongside other CSV(s): {}", others.join(", "));
            return row.found(RequirementStatus::PresentNotSatisfied, message);
        }
    }
    if !is_served(definition, &api.version) {
        return row.found(RequirementStatus::NotPresent, "CRD version not served");
    }
    if !is_true(definition, "Established") || !is_true(definition, "NamesAccepted") {
        let message = "CRD is present but the Established condition is False (not available)";
        return row.found(RequirementStatus::PresentNotAvailable, message);
    }
    row.found(
        RequirementStatus::Present,
        "CRD is present and Established condition is true",
    )
    .with_uid(text(definition, "/metadata/uid"))
}

fn is_served(definition: &Value, version: &str) -> bool {
    items(definition, "/spec/versions")
        .find(|found| text(found, "/name") == version)
        .is_some_and(|found| found.get("served") == Some(&Value::Bool(true)))
}

/// Whether a condition of an object is true.
pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    items(object, "/status/conditions")
        .any(|found| text(found, "/type") == condition && text(found, "/status") == "True")
}

/// The ClusterServiceVersions with which the definition came, sorted, if this one replaces them, at once or in a chain
/// of such: the definition is then the one of an older version. None if it came with this one.
fn others_alongside(definition: &Value, csv: &ClusterServiceVersion, cluster: &Cluster) -> Vec<String> {
    let own = &csv.metadata;
    let named = named_alongside(definition, &own.namespace);
    if named.contains(own.name.as_str()) {
        return Vec::new();
    }
    let living: BTreeMap<&str, String> = named
        .into_iter()
        .filter_map(|name| {
            let other = cluster.get(names::CSV_KIND, &own.namespace, name)?;
            let other = ClusterServiceVersion::read(other).ok()?;
            (!other.is_copy()).then_some((name, other.spec.replaces))
        })
        .collect();
    let mut replaced = BTreeSet::new();
    let mut next = Some(csv.spec.replaces.as_str());
    while let Some((name, replaces)) = next.and_then(|name| living.get_key_value(name)) {
        // A circle ends where it began.
        next = replaced.insert((*name).to_owned()).then_some(replaces.as_str());
    }
    replaced.into_iter().collect()
}

/// The names of the ClusterServiceVersions in this namespace with which the definition came.
fn named_alongside<'a>(definition: &'a Value, namespace: &str) -> BTreeSet<&'a str> {
    let annotations = definition
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(names::ALONGSIDE_PREFIX))
        .filter_map(|(_, value)| value.as_str()?.split_once('/'))
        .filter(|(found, name)| *found == namespace && !name.contains('/'))
        .map(|(_, name)| name)
        .collect()
}
