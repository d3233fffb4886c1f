//! Aggregated APIs and the APIs of Kubernetes.

use std::collections::BTreeMap;

use super::definitions::is_true;
use super::{ClusterFacts, Requirement, RequirementStatus};
use crate::cluster::text;
use crate::csv::{ApiDescription, ClusterServiceVersion};
use crate::names;

/// Rows for the APIServices required, for those owned, and for the APIs of Kubernetes.
pub(super) fn requirements(csv: &ClusterServiceVersion, facts: &ClusterFacts<'_>) -> Vec<Requirement> {
    let services = &csv.spec.api_service_definitions;
    let owned = by_service(&services.owned);
    let mut required = by_service(&services.required);
    required.retain(|name, _| !owned.contains_key(name));
    let mut rows = Vec::new();
    rows.extend(
        required
            .iter()
            .map(|(name, api)| required_service(name, api, facts)),
    );
    rows.extend(owned.iter().map(|(name, api)| owned_service(name, api, csv)));
    let native = csv.spec.native_apis.iter();
    rows.extend(native.map(|api| native_api(api, facts)));
    rows
}

/// The APIs by the name of their APIService. Several kinds share one; the last one stands for it.
fn by_service(apis: &[ApiDescription]) -> BTreeMap<String, &ApiDescription> {
    apis.iter().map(|api| (service_name(api), api)).collect()
}

fn service_name(api: &ApiDescription) -> String {
    format!("{}.{}", api.version, api.group)
}

fn service_row(name: &str) -> Requirement {
    Requirement::new(names::API_SERVICE_GROUP, "v1", names::API_SERVICE_KIND, name)
}

fn required_service(name: &str, api: &ApiDescription, facts: &ClusterFacts<'_>) -> Requirement {
    let row = service_row(name);
    let service = facts
        .cluster
        .get(names::API_SERVICE_KIND, "", name)
        .filter(|service| is_true(service, "Available"))
        .filter(|_| facts.discovery.serves(&api.group, &api.version, &api.kind));
    match service {
        Some(service) => row.with_uid(text(service, "/metadata/uid")),
        None => row.found(RequirementStatus::NotPresent, ""),
    }
}

fn owned_service(name: &str, api: &ApiDescription, csv: &ClusterServiceVersion) -> Requirement {
    let deployments = &csv.spec.install.spec.deployments;
    let is_installed = deployments
        .iter()
        .any(|deployment| deployment.name == api.deployment_name);
    let status = if is_installed {
        RequirementStatus::DeploymentFound
    } else {
        RequirementStatus::DeploymentNotFound
    };
    service_row(name).found(status, "")
}

fn native_api(api: &ApiDescription, facts: &ClusterFacts<'_>) -> Requirement {
    let row = Requirement::new(&api.group, &api.version, &api.kind, &service_name(api));
    if facts.discovery.serves(&api.group, &api.version, &api.kind) {
        row.found(RequirementStatus::Present, "Native API exists")
    } else {
        row.found(RequirementStatus::NotPresent, "Native API does not exist")
    }
}
