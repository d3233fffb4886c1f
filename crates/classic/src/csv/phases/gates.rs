//! Checks in every phase: one OperatorGroup, its annotations, install modes and provided APIs.

use serde_json::Value;

use super::{CsvPass, GROUP_CONFLICT, Gate};
use crate::cluster::object_at;
use crate::names;
use crate::operator_group::apis::provided_by;
use crate::operator_group::install_modes::InstallModes;
use crate::operator_group::targets::select;
use crate::operator_group::{ApiDecision, ApiSet, OperatorGroup, OperatorGroupApis};

const CONFLICT: &str = "InterOperatorGroupOwnerConflict";
const NONE: &str = "csv in namespace with no operatorgroups";
const SEVERAL: &str = "csv created in namespace with multiple operatorgroups, can't pick one automatically";
const TOO_MANY: &str = "TooManyOperatorGroups";

/// The OperatorGroup of the namespace, where every gate is passed.
pub(super) fn check(pass: &mut CsvPass<'_>) -> Result<OperatorGroup, Gate> {
    // A definition without a group cannot be looked for.
    let provided = provided_by(&pass.csv).map_err(|_| Gate::Closed)?;
    let group = group(pass)?;
    let is_open = annotated(pass, &group) == Gate::Passed
        && supported(pass) == Gate::Passed
        && provides(pass, &group, &provided.without_plurals()) == Gate::Passed;
    is_open.then_some(group).ok_or(Gate::Closed)
}

fn group(pass: &mut CsvPass<'_>) -> Result<OperatorGroup, Gate> {
    let cluster = pass.facts.cluster;
    let place = pass.namespace().to_owned();
    let mut groups = cluster.in_namespace(names::OPERATOR_GROUP_KIND, &place);
    match (groups.next(), groups.next()) {
        (None, _) => {
            pass.set("Failed", "NoOperatorGroup", NONE);
            pass.retry(NONE);
            Err(Gate::Closed)
        }
        (Some(_), Some(_)) => {
            if pass.csv.status.reason != TOO_MANY {
                pass.set("Failed", TOO_MANY, SEVERAL);
            }
            pass.retry(SEVERAL);
            Err(Gate::Closed)
        }
        (Some(group), None) => OperatorGroup::read(group).map_err(|error| {
            pass.retry(format!("cannot read operatorgroup: {error}"));
            Gate::Closed
        }),
    }
}

fn annotated(pass: &mut CsvPass<'_>, group: &OperatorGroup) -> Gate {
    let targets = group.targets_annotation();
    let wanted = [
        (
            names::OPERATOR_NAMESPACE_ANNOTATION,
            group.metadata.namespace.as_str(),
        ),
        (names::OPERATOR_GROUP_ANNOTATION, group.metadata.name.as_str()),
        (names::TARGET_NAMESPACES_ANNOTATION, targets.as_str()),
    ];
    let present = &pass.csv.metadata.annotations;
    let is_annotated = wanted
        .iter()
        .all(|(key, value)| present.get(*key).is_some_and(|found| found == value));
    if is_annotated {
        return Gate::Passed;
    }
    if let Some(annotations) = object_at(&mut pass.decision.csv, &["metadata", "annotations"]) {
        for (key, value) in wanted {
            if key != names::TARGET_NAMESPACES_ANNOTATION || !group.namespaces().is_empty() {
                annotations.insert(key.to_owned(), value.into());
            }
        }
    }
    if select(group, pass.facts.cluster).is_ok_and(|selected| selected.is_empty()) {
        pass.set_changed(
            "Failed",
            "NoTargetNamespaces",
            "no targetNamespaces are matched operatorgroups namespace selection",
        );
    }
    Gate::Closed
}

fn supported(pass: &mut CsvPass<'_>) -> Gate {
    let modes = match InstallModes::new(&pass.csv.spec.install_modes) {
        Ok(modes) => modes,
        Err(error) => {
            pass.set_changed("Failed", "InvalidInstallModes", &error.to_string());
            return Gate::Closed;
        }
    };
    let annotation = pass
        .csv
        .metadata
        .annotations
        .get(names::TARGET_NAMESPACES_ANNOTATION);
    let Some(targets) = annotation else {
        pass.set_changed(
            "Failed",
            "NoTargetNamespaces",
            "csv missing olm.targetNamespaces annotation",
        );
        return Gate::Closed;
    };
    let targets: Vec<String> = targets.split(',').map(str::to_owned).collect();
    match modes.supports(pass.namespace(), &targets) {
        Ok(()) => Gate::Passed,
        Err(error) => {
            pass.set_changed("Failed", "UnsupportedOperatorGroup", &error.to_string());
            Gate::Closed
        }
    }
}

fn provides(pass: &mut CsvPass<'_>, group: &OperatorGroup, provided: &ApiSet) -> Gate {
    let cluster = pass.facts.cluster;
    let others: Vec<OperatorGroupApis> = cluster
        .of_kind(names::OPERATOR_GROUP_KIND)
        .filter_map(|other| Some(OperatorGroupApis::of(&OperatorGroup::read(other).ok()?)))
        .collect();
    let own_apis = OperatorGroupApis::of(group);
    let decision = own_apis.decide(provided, &others);
    match decision {
        ApiDecision::Keep => return Gate::Passed,
        ApiDecision::Conflict => {
            if pass.csv.status.reason != CONFLICT {
                pass.set("Failed", CONFLICT, GROUP_CONFLICT);
                withdraw(pass);
            }
            return Gate::Closed;
        }
        ApiDecision::Add | ApiDecision::Remove if group.spec.static_provided_apis => {
            if pass.csv.status.reason != CONFLICT {
                pass.set(
                    "Failed",
                    "CannotModifyStaticOperatorGroupProvidedAPIs",
                    "static provided api operatorgroup cannot be modified by these apis",
                );
                withdraw(pass);
            }
            return Gate::Closed;
        }
        ApiDecision::Add | ApiDecision::Remove => {}
    }
    let annotation = own_apis.annotation_after(decision, provided).unwrap_or_default();
    let recorded = group.metadata.annotations.get(names::PROVIDED_APIS_ANNOTATION);
    // An API whose kind has a dot is read back as another one: it is never recorded as it is.
    if decision == ApiDecision::Add && recorded == Some(&annotation) {
        return Gate::Passed;
    }
    let (place, name) = (&group.metadata.namespace, &group.metadata.name);
    let Some(mut object) = cluster.get(names::OPERATOR_GROUP_KIND, place, name).cloned() else {
        return Gate::Closed;
    };
    if let Some(annotations) = object_at(&mut object, &["metadata", "annotations"]) {
        annotations.insert(
            names::PROVIDED_APIS_ANNOTATION.to_owned(),
            Value::String(annotation),
        );
    }
    pass.decision.written.push(object);
    let own = pass.name().to_owned();
    pass.decision.csvs.insert(own);
    Gate::Closed
}

/// Deletes the Deployments of a ClusterServiceVersion that must not run.
fn withdraw(pass: &mut CsvPass<'_>) {
    let place = pass.namespace().to_owned();
    for entry in &pass.csv.spec.install.spec.deployments {
        if pass
            .facts
            .cluster
            .get(names::DEPLOYMENT_KIND, &place, &entry.name)
            .is_some()
        {
            let key = (
                names::DEPLOYMENT_KIND.to_owned(),
                place.clone(),
                entry.name.clone(),
            );
            pass.decision.deleted.push(key);
        }
    }
}
