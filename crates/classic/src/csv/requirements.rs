//! Requirements of a ClusterServiceVersion and their state in the cluster: `status.requirementStatus`.
//!
//! Rows come in this order: the version of Kubernetes, CustomResourceDefinitions, required APIServices, owned ones,
//! APIs of Kubernetes, service accounts.

use serde::Serialize;

use super::ClusterServiceVersion;
use crate::cluster::{Cluster, Discovery};

mod apis;
mod definitions;
mod grants;
mod permissions;
mod server;

/// The state of the cluster that the rules read.
#[derive(Debug, Clone, Copy)]
pub struct ClusterFacts<'a> {
    /// CustomResourceDefinitions, APIServices, ClusterServiceVersions of the namespace, service accounts, and all roles
    /// and bindings.
    pub cluster: &'a Cluster,
    /// The kinds that are served.
    pub discovery: &'a Discovery,
    /// The version of the API server, like `v1.36.0`; `None` where it did not answer.
    pub server_version: Option<&'a str>,
}

/// State of all requirements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// Whether all are met.
    pub met: bool,
    /// One row for each.
    pub rows: Vec<Requirement>,
}

/// State of a requirement. Written as a row of the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Requirement {
    /// The group of the required object.
    pub group: String,
    /// The version of the required object.
    pub version: String,
    /// The kind of the required object.
    pub kind: String,
    /// The name of the required object.
    pub name: String,
    /// The state.
    pub status: RequirementStatus,
    /// The reason, for people.
    pub message: String,
    /// The UID of the object that meets the requirement; empty where it does not matter.
    #[serde(rename = "uuid", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The rules that a service account needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependents: Vec<RuleRequirement>,
}

/// State of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum RequirementStatus {
    /// The object exists and meets the requirement.
    Present,
    /// The object does not exist.
    NotPresent,
    /// The object exists and does not meet the requirement.
    PresentNotSatisfied,
    /// The object exists and is not usable yet.
    PresentNotAvailable,
    /// The deployment of an owned APIService is in the install strategy.
    DeploymentFound,
    /// The deployment of an owned APIService is not in the install strategy.
    DeploymentNotFound,
}

/// Whether a service account has the rights of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleRequirement {
    /// The API group of roles.
    pub group: String,
    /// The version of roles.
    pub version: String,
    /// Always `PolicyRule`.
    pub kind: String,
    /// Whether it has.
    pub status: RuleStatus,
    /// `namespaced rule:` or `cluster rule:`, and the rule as JSON.
    pub message: String,
}

/// Whether a service account has the rights of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum RuleStatus {
    /// It has all of them.
    Satisfied,
    /// It lacks some.
    NotSatisfied,
}

/// A rule that no role can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRuleError {
    /// It allows nothing.
    #[error("rule invalid: policy rule must have at least one verb")]
    NoVerb,
    /// It names resources and paths.
    #[error("rule invalid: rule cannot apply to both regular resources and non-resource URLs")]
    ResourcesAndPaths,
}

/// Looks for everything that a ClusterServiceVersion requires.
///
/// # Errors
/// When a rule of its permissions is invalid, and its service account exists.
pub fn evaluate(
    csv: &ClusterServiceVersion,
    facts: &ClusterFacts<'_>,
) -> Result<Requirements, InvalidRuleError> {
    let mut rows = Vec::new();
    rows.extend(server::requirement(csv, facts.server_version));
    rows.extend(definitions::requirements(csv, facts.cluster));
    rows.extend(apis::requirements(csv, facts));
    rows.extend(permissions::requirements(csv, facts.cluster)?);
    let met = rows.iter().all(Requirement::is_met);
    Ok(Requirements { met, rows })
}

/// Whether the accounts of a ClusterServiceVersion have the rights of its namespaced permissions in the namespace
/// `scope`; in the whole cluster where it is empty.
pub fn is_permitted(csv: &ClusterServiceVersion, scope: &str, cluster: &Cluster) -> bool {
    csv.spec.install.spec.permissions.iter().all(|entry| {
        let account = &entry.service_account_name;
        let grants = grants::Grants::of(&csv.metadata.namespace, account, scope, cluster);
        entry.rules.iter().all(|rule| grants.satisfy(rule))
    })
}

impl Requirement {
    /// A requirement that is met until something else is found.
    fn new(group: &str, version: &str, kind: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            status: RequirementStatus::Present,
            message: String::new(),
            uid: String::new(),
            dependents: Vec::new(),
        }
    }

    fn found(mut self, status: RequirementStatus, message: impl Into<String>) -> Self {
        self.status = status;
        self.message = message.into();
        self
    }

    fn with_uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.uid);
        self
    }

    fn is_met(&self) -> bool {
        matches!(
            self.status,
            RequirementStatus::Present | RequirementStatus::DeploymentFound
        )
    }
}

#[cfg(test)]
mod tests;
