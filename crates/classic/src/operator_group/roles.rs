//! The ClusterRoles by which users get at the APIs of operators: three for an OperatorGroup, which aggregate those of
//! the APIs, and three or four for each API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::apis::{DefinitionNameError, plural_and_group};
use super::{ApiKey, ApiSet, OperatorGroup};
use crate::cluster::{Cluster, items, object_at, text};
use crate::csv::{ApiDescription, ClusterServiceVersion, PolicyRule};
use crate::{hash, names};

/// The suffixes of roles with the verbs that they allow on an API.
const LEVELS: [(&str, &[&str]); 3] = [
    ("admin", &["*"]),
    ("edit", &["create", "update", "patch", "delete"]),
    ("view", &["get", "list", "watch"]),
];
const VIEW: &str = "view";
const MAX_NAME: usize = 253;
const KIND: &str = "ClusterRole";

/// The name of an OperatorGroup's role with a suffix: `admin`, `edit` or `view`. The group's name is cut where the
/// whole gets too long.
pub fn group_role_name(namespace: &str, name: &str, suffix: &str) -> String {
    let hash = hash::text(&format!("{namespace}/{name}/{suffix}"));
    let limit = MAX_NAME.saturating_sub("olm.og..-".len() + suffix.len() + hash.len());
    let end = name.floor_char_boundary(limit);
    let name = name.get(..end).unwrap_or(name);
    format!("olm.og.{name}.{suffix}-{hash}")
}

/// The roles of an OperatorGroup that must be written, whole. A role of the same name without the label of OLM is
/// replaced.
pub fn group_roles(group: &OperatorGroup, apis: &ApiSet, cluster: &Cluster) -> Vec<Value> {
    let role = |(suffix, _)| group_role(group, apis, suffix, cluster);
    LEVELS.into_iter().filter_map(role).collect()
}

fn group_role(group: &OperatorGroup, apis: &ApiSet, suffix: &str, cluster: &Cluster) -> Option<Value> {
    let name = group_role_name(&group.metadata.namespace, &group.metadata.name, suffix);
    let aggregation = aggregation_rule(apis, suffix);
    let owner = [
        (names::OWNER_LABEL, group.metadata.name.as_str()),
        (names::OWNER_NAMESPACE_LABEL, &group.metadata.namespace),
        (names::OWNER_KIND_LABEL, names::OPERATOR_GROUP_KIND),
    ];
    let existing = cluster.get_watched(KIND, "", &name);
    let mut role = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": names::RBAC_API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "labels": {names::MANAGED_LABEL: "true"}},
            "rules": null,
        })
    });
    if let Some(labels) = object_at(&mut role, &["metadata", "labels"]) {
        labels.extend(owner.map(|(key, value)| (key.to_owned(), value.into())));
    }
    let fields = role.as_object_mut()?;
    match aggregation {
        Some(aggregation) => fields.insert("aggregationRule".to_owned(), aggregation),
        None => fields.remove("aggregationRule"),
    };
    (existing != Some(&role)).then_some(role)
}

/// The sorted selectors of the roles for the APIs; none for no API.
fn aggregation_rule(apis: &ApiSet, suffix: &str) -> Option<Value> {
    let labels: BTreeSet<String> = apis.iter().map(|api| api.aggregation_label(suffix)).collect();
    let selector = |label: String| json!({"matchLabels": {label: "true"}});
    let selectors: Vec<Value> = labels.into_iter().map(selector).collect();
    (!selectors.is_empty()).then(|| json!({"clusterRoleSelectors": selectors}))
}

/// Error of the roles of an API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiRolesError {
    /// The CustomResourceDefinition does not exist.
    #[error("crd \"{0}\" not found: customresourcedefinition.apiextensions.k8s.io \"{0}\" not found")]
    Definition(String),
    /// The APIService does not exist.
    #[error("apiservice \"{0}\" not found: apiservice.apiregistration.k8s.io \"{0}\" not found")]
    Service(String),
    /// The name of the CustomResourceDefinition has no group.
    #[error("invalid parsing of name '{0}', got [{0}]")]
    Name(String),
}

/// The roles for the APIs of a ClusterServiceVersion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApiRoles {
    /// The roles that must be written, whole: those up to the error.
    pub written: Vec<Value>,
    /// Error that keeps the rest from being written.
    pub error: Option<ApiRolesError>,
}

/// The roles for the APIs that a ClusterServiceVersion brings: on the API itself, and for CustomResourceDefinitions one
/// more to read the definition. A role with other rules, labels or owner is replaced.
pub fn api_roles(csv: &ClusterServiceVersion, cluster: &Cluster) -> ApiRoles {
    let definitions = csv.spec.custom_resource_definitions.owned.iter();
    let services = csv.spec.api_service_definitions.owned.iter();
    let roles = definitions
        .map(|api| definition_roles(api, cluster))
        .chain(services.map(|api| service_roles(api, cluster)));
    let mut result = ApiRoles::default();
    for roles in roles {
        match roles {
            Ok(roles) => {
                let differing = roles.into_iter().filter(|role| !is_current(role, cluster));
                result.written.extend(differing);
            }
            Err(error) => {
                result.error = Some(error);
                break;
            }
        }
    }
    result
}

fn definition_roles(described: &ApiDescription, cluster: &Cluster) -> Result<Vec<Value>, ApiRolesError> {
    let name = &described.name;
    let definition = cluster
        .get(names::CRD_KIND, "", name)
        .ok_or_else(|| ApiRolesError::Definition(name.clone()))?;
    let (plural, group) =
        plural_and_group(name).map_err(|DefinitionNameError(name)| ApiRolesError::Name(name))?;
    let api = ApiKey {
        group: group.to_owned(),
        version: described.version.clone(),
        kind: described.kind.clone(),
        plural: plural.to_owned(),
    };
    let owner = owner(definition, names::CRD_GROUP, names::CRD_KIND);
    let prefix = format!("{name}-{}-", described.version);
    let mut roles = resource_roles(&prefix, &api, &owner);
    let rule = PolicyRule {
        verbs: vec!["get".to_owned()],
        api_groups: vec![names::CRD_GROUP.to_owned()],
        resources: vec!["customresourcedefinitions".to_owned()],
        resource_names: vec![name.clone()],
        non_resource_urls: Vec::new(),
    };
    roles.push(api_role(&format!("{prefix}crd{VIEW}"), VIEW, &rule, &api, &owner));
    Ok(roles)
}

fn service_roles(described: &ApiDescription, cluster: &Cluster) -> Result<Vec<Value>, ApiRolesError> {
    let name = format!("{}.{}", described.version, described.group);
    let service = cluster
        .get(names::API_SERVICE_KIND, "", &name)
        .ok_or(ApiRolesError::Service(name))?;
    let api = ApiKey {
        group: described.group.clone(),
        version: described.version.clone(),
        kind: described.kind.clone(),
        plural: described.name.clone(),
    };
    let owner = owner(service, names::API_SERVICE_GROUP, names::API_SERVICE_KIND);
    let prefix = format!("{}-{}-", described.name, described.version);
    Ok(resource_roles(&prefix, &api, &owner))
}

fn resource_roles(prefix: &str, api: &ApiKey, owner: &Value) -> Vec<Value> {
    LEVELS
        .iter()
        .map(|(suffix, verbs)| {
            let rule = PolicyRule {
                verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
                api_groups: vec![api.group.clone()],
                resources: vec![api.plural.clone()],
                ..PolicyRule::default()
            };
            api_role(&format!("{prefix}{suffix}"), suffix, &rule, api, owner)
        })
        .collect()
}

fn api_role(name: &str, suffix: &str, rule: &PolicyRule, api: &ApiKey, owner: &Value) -> Value {
    let kubernetes = format!("{}{suffix}", names::KUBERNETES_AGGREGATION_PREFIX);
    json!({
        "apiVersion": names::RBAC_API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "labels": {
                kubernetes: "true",
                api.aggregation_label(suffix): "true",
                names::MANAGED_LABEL: "true",
            },
            "ownerReferences": [owner],
        },
        "rules": [rule],
    })
}

/// The owner that lets the garbage collector delete a role with its API.
fn owner(object: &Value, group: &str, kind: &str) -> Value {
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": kind,
        "name": text(object, "/metadata/name"),
        "uid": text(object, "/metadata/uid"),
        "controller": false,
        "blockOwnerDeletion": false,
    })
}

/// Whether a role like this one exists. Other owners of it do not matter.
fn is_current(role: &Value, cluster: &Cluster) -> bool {
    let Some(existing) = cluster.get(KIND, "", text(role, "/metadata/name")) else {
        return false;
    };
    let uid = role.pointer("/metadata/ownerReferences/0/uid");
    let is_owned = items(existing, "/metadata/ownerReferences")
        .any(|owner| owner.get("uid").is_some() && owner.get("uid") == uid);
    is_owned
        && ["/metadata/labels", "/rules"]
            .iter()
            .all(|part| existing.pointer(part) == role.pointer(part))
}

#[cfg(test)]
mod tests;
