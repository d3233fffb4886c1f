//! The aggregated APIs that a ClusterServiceVersion brings: whose they are, and whether what they stand on is there.

use serde_json::Value;

use super::Pass;
use crate::cluster::{Cluster, items, label, text};
use crate::csv::{ApiDescription, ClusterServiceVersion};
use crate::install::serving::{secret_name, service_name};
use crate::names;

fn name(api: &ApiDescription) -> String {
    format!("{}.{}", api.version, api.group)
}

/// Whether an owned APIService exists and belongs to something else.
pub(super) fn are_foreign(pass: &Pass<'_>) -> bool {
    pass.csv.spec.api_service_definitions.owned.iter().any(|api| {
        let found = pass.facts.cluster.get(names::API_SERVICE_KIND, "", &name(api));
        found.is_some_and(|found| !is_adoptable(found, &pass.csv, pass.facts.cluster))
    })
}

/// Whether the labels of an APIService name this ClusterServiceVersion, the one that it replaces, or one that is going.
pub fn is_adoptable(found: &Value, csv: &ClusterServiceVersion, cluster: &Cluster) -> bool {
    let owner = label(found, names::OWNER_LABEL);
    let place = csv.metadata.namespace.as_str();
    if label(found, names::OWNER_KIND_LABEL) != names::CSV_KIND
        || label(found, names::OWNER_NAMESPACE_LABEL) != place
        || owner.is_empty()
    {
        return false;
    }
    let is_going = |csv: &Value| matches!(text(csv, "/status/phase"), "Replacing" | "Deleting");
    owner == csv.metadata.name
        || owner == csv.spec.replaces
        || cluster.get(names::CSV_KIND, place, owner).is_some_and(is_going)
}

/// Whether every owned APIService exists, is served and answers.
pub(super) fn are_available(pass: &Pass<'_>) -> bool {
    pass.csv.spec.api_service_definitions.owned.iter().all(|api| {
        let found = pass.facts.cluster.get(names::API_SERVICE_KIND, "", &name(api));
        let is_available = found.is_some_and(|found| {
            items(found, "/status/conditions").any(|condition| {
                text(condition, "/type") == "Available" && text(condition, "/status") == "True"
            })
        });
        is_available && pass.facts.discovery.serves(&api.group, &api.version, &api.kind)
    })
}

/// What is wrong with the resources of the owned APIServices, and whether an installation mends it.
pub(super) struct Issues {
    pub(super) message: String,
    pub(super) is_mendable: bool,
}

/// What is wrong, for all owned APIServices together; nothing where all is good.
pub(super) fn issues(pass: &Pass<'_>) -> Option<Issues> {
    let mut found = Vec::new();
    let mut is_mendable = true;
    for api in &pass.csv.spec.api_service_definitions.owned {
        let Err(issue) = checked(pass, api) else {
            continue;
        };
        is_mendable &= !issue.ends_with("is not adoptable");
        found.push(issue);
    }
    let message = match &found[..] {
        [] => return None,
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Some(Issues { message, is_mendable })
}

fn checked(pass: &Pass<'_>, api: &ApiDescription) -> Result<(), String> {
    let cluster = pass.facts.cluster;
    let registration = name(api);
    let place = pass.namespace();
    let registered = require(cluster, names::API_SERVICE_KIND, "", &registration)?;
    if !is_adoptable(registered, &pass.csv, cluster) {
        return Err(format!("pre-existing APIService {registration} is not adoptable"));
    }
    let deployment = api.deployment_name.as_str();
    let service = service_name(deployment);
    require_watched(cluster, "Service", place, &service)?;
    if text(registered, "/spec/service/name") != service
        || text(registered, "/spec/service/namespace") != place
    {
        return Err("found APIService and service reference mismatch".to_owned());
    }
    let kept = require(cluster, names::SECRET_KIND, place, &secret_name(deployment))?;
    let hash = annotation(kept, "/metadata/annotations");
    let live = require_watched(cluster, names::DEPLOYMENT_KIND, place, deployment)?;
    if annotation(live, "/spec/template/metadata/annotations") != hash {
        return Err(format!(
            "deployment {deployment} CA cert hash does not match expected"
        ));
    }
    let account = match text(live, "/spec/template/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };
    // It may be anybody's, as `default` is.
    require(cluster, "ServiceAccount", place, account)?;
    require_watched(cluster, "Role", place, &secret_name(deployment))?;
    require_watched(cluster, "RoleBinding", place, &secret_name(deployment))?;
    require_watched(
        cluster,
        "ClusterRoleBinding",
        "",
        &format!("{service}-system:auth-delegator"),
    )?;
    require_watched(
        cluster,
        "RoleBinding",
        "kube-system",
        &format!("{service}-auth-reader"),
    )?;
    Ok(())
}

/// The annotation with the hash of the authority.
fn annotation<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(|annotations| annotations.get(names::CA_HASH_ANNOTATION))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The object, or the words of the API server where it is absent.
fn require<'a>(cluster: &'a Cluster, kind: &str, namespace: &str, name: &str) -> Result<&'a Value, String> {
    let found = cluster.get(kind, namespace, name);
    found.ok_or_else(|| missing(kind, name))
}

/// The same for one that OLM manages.
fn require_watched<'a>(
    cluster: &'a Cluster,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<&'a Value, String> {
    let found = cluster.get_watched(kind, namespace, name);
    found.ok_or_else(|| missing(kind, name))
}

fn missing(kind: &str, name: &str) -> String {
    let group = match kind {
        names::API_SERVICE_KIND => ".apiregistration.k8s.io",
        names::DEPLOYMENT_KIND => ".apps",
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => ".rbac.authorization.k8s.io",
        _ => "",
    };
    format!("{}{group} \"{name}\" not found", kind.to_lowercase())
}
