//! Service accounts and their rights.

use std::collections::BTreeMap;

use olm_bundle::names::go_json;
use serde::Deserialize as _;
use serde_json::Value;

use super::grants::Grants;
use super::{InvalidRuleError, Requirement, RequirementStatus, RuleRequirement, RuleStatus};
use crate::cluster::Cluster;
use crate::csv::{ClusterServiceVersion, Metadata, PolicyRule, ServiceAccountPermissions};
use crate::names;

const KIND: &str = "ServiceAccount";

/// One row for each service account, sorted by name, with the rules that it needs: first those in the namespace, then
/// those in the whole cluster.
pub(super) fn requirements(
    csv: &ClusterServiceVersion,
    cluster: &Cluster,
) -> Result<Vec<Requirement>, InvalidRuleError> {
    let strategy = &csv.spec.install.spec;
    let mut rows: BTreeMap<String, Requirement> = BTreeMap::new();
    for (entries, scope) in [
        (&strategy.permissions, csv.metadata.namespace.as_str()),
        (&strategy.cluster_permissions, ""),
    ] {
        for entry in entries {
            let name = &entry.service_account_name;
            let row = rows
                .entry(name.clone())
                .or_insert_with(|| Requirement::new("", "v1", KIND, name));
            check_account(row, csv, entry, scope, cluster)?;
        }
    }
    Ok(rows.into_values().collect())
}

fn check_account(
    row: &mut Requirement,
    csv: &ClusterServiceVersion,
    entry: &ServiceAccountPermissions,
    scope: &str,
    cluster: &Cluster,
) -> Result<(), InvalidRuleError> {
    let Some(account) = cluster.get(KIND, &csv.metadata.namespace, &row.name) else {
        row.status = RequirementStatus::NotPresent;
        "Service account does not exist".clone_into(&mut row.message);
        return Ok(());
    };
    if is_of_another(account, csv) {
        row.status = RequirementStatus::PresentNotSatisfied;
        "Service account is owned by another ClusterServiceVersion".clone_into(&mut row.message);
        return Ok(());
    }
    let grants = Grants::of(&csv.metadata.namespace, &row.name, scope, cluster);
    for rule in &entry.rules {
        let requirement = rule_requirement(rule, scope, &grants)?;
        if requirement.status == RuleStatus::NotSatisfied {
            row.status = RequirementStatus::PresentNotSatisfied;
            "Policy rule not satisfied for service account".clone_into(&mut row.message);
        }
        row.dependents.push(requirement);
    }
    Ok(())
}

/// Whether an object belongs to ClusterServiceVersions, and not to this one.
fn is_of_another(object: &Value, csv: &ClusterServiceVersion) -> bool {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let owners = Metadata::deserialize(metadata)
        .unwrap_or_default()
        .owner_references;
    owners.iter().any(|owner| owner.kind == names::CSV_KIND)
        && !owners.iter().any(|owner| owner.uid == csv.metadata.uid)
}

fn rule_requirement(
    rule: &PolicyRule,
    scope: &str,
    grants: &Grants,
) -> Result<RuleRequirement, InvalidRuleError> {
    check_rule(rule)?;
    let status = if grants.satisfy(rule) {
        RuleStatus::Satisfied
    } else {
        RuleStatus::NotSatisfied
    };
    let scope = if scope.is_empty() { "cluster" } else { "namespaced" };
    Ok(RuleRequirement {
        group: names::RBAC_GROUP.to_owned(),
        version: "v1".to_owned(),
        kind: "PolicyRule".to_owned(),
        status,
        message: format!("{scope} rule:{}", go_json(rule)),
    })
}

fn check_rule(rule: &PolicyRule) -> Result<(), InvalidRuleError> {
    let names_resources =
        !(rule.api_groups.is_empty() && rule.resources.is_empty() && rule.resource_names.is_empty());
    if rule.verbs.is_empty() {
        Err(InvalidRuleError::NoVerb)
    } else if names_resources && !rule.non_resource_urls.is_empty() {
        Err(InvalidRuleError::ResourcesAndPaths)
    } else {
        Ok(())
    }
}
