//! The aggregated APIs that a ClusterServiceVersion brings: their owner, and the state of the resources that they need.

use serde_json::Value;

use super::CsvPass;
use crate::cluster::{Cluster, group_version, items, label, text};
use crate::csv::{ApiDescription, ClusterServiceVersion};
use crate::install::certificate;
use crate::install::serving::{secret_name, service_name};
use crate::names;

fn name(api: &ApiDescription) -> String {
    format!("{}.{}", api.version, api.group)
}

/// Whether an owned APIService exists and belongs to something else.
pub(super) fn are_foreign(pass: &CsvPass<'_>) -> bool {
    pass.csv.spec.owned_services().into_iter().any(|(name, _)| {
        let found = pass.facts.cluster.get(names::API_SERVICE_KIND, "", &name);
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

/// State of the owned APIServices together.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApiServiceState {
    /// Every one exists, is served and answers.
    Available,
    /// One does not exist, is not available, or lacks its kind.
    Missing,
    /// Discovery does not know the group and version of one that is available; the reason.
    Unknown(String),
}

/// The server behind an available APIService does not answer for the moment; the reason.
pub(super) struct Unanswered(pub(super) String);

/// The state of the owned APIServices: that of the first one that is not available.
///
/// # Errors
/// Its state is unknown, because its server does not answer.
pub(super) fn state(pass: &CsvPass<'_>) -> Result<ApiServiceState, Unanswered> {
    let discovery = pass.facts.discovery;
    for api in &pass.csv.spec.api_service_definitions.owned {
        let found = pass.facts.cluster.get(names::API_SERVICE_KIND, "", &name(api));
        let is_available = found.is_some_and(|found| {
            items(found, "/status/conditions").any(|condition| {
                text(condition, "/type") == "Available" && text(condition, "/status") == "True"
            })
        });
        let (group, version) = (api.group.as_str(), api.version.as_str());
        if !is_available {
            return Ok(ApiServiceState::Missing);
        }
        if discovery.serves(group, version, &api.kind) {
            continue;
        }
        let named = group_version(group, version);
        return if discovery.is_unavailable(group, version) {
            Err(Unanswered(format!(
                "the server is currently unable to handle the request, GroupVersion \"{named}\""
            )))
        } else if discovery.has(group, version) {
            Ok(ApiServiceState::Missing)
        } else {
            Ok(ApiServiceState::Unknown(format!(
                "the server could not find the requested resource, GroupVersion \"{named}\" not found"
            )))
        };
    }
    Ok(ApiServiceState::Available)
}

/// The fault of the resources of the owned APIServices, and whether an installation fixes it.
pub(super) struct Issues {
    pub(super) message: String,
    pub(super) is_mendable: bool,
}

/// Fault of the resources of an APIService.
enum Issue {
    /// It belongs to something else: no other one is looked at.
    Foreign(String),
    /// An installation fixes it.
    Mendable(String),
}

/// The faults of all owned APIServices together; nothing where all is good. A fault of several appears once.
pub(super) fn issues(pass: &CsvPass<'_>) -> Option<Issues> {
    let mut found: Vec<String> = Vec::new();
    let mut is_mendable = true;
    for (registration, api) in pass.csv.spec.owned_services() {
        for issue in checked(pass, &registration, api) {
            let message = match issue {
                Issue::Foreign(message) => {
                    is_mendable = false;
                    message
                }
                Issue::Mendable(message) => message,
            };
            if !found.contains(&message) {
                found.push(message);
            }
        }
        if !is_mendable {
            break;
        }
    }
    let message = match &found[..] {
        [] => return None,
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Some(Issues { message, is_mendable })
}

fn checked(pass: &CsvPass<'_>, registration: &str, api: &ApiDescription) -> Vec<Issue> {
    let registered = match require(pass.facts.cluster, names::API_SERVICE_KIND, "", registration) {
        Ok(registered) => registered,
        Err(error) => return vec![Issue::Mendable(error)],
    };
    if !is_adoptable(registered, &pass.csv, pass.facts.cluster) {
        return vec![Issue::Foreign(format!("{registration} is unadoptable"))];
    }
    match called(pass, registered, &api.deployment_name) {
        Ok(live) => rights(pass, live, &api.deployment_name)
            .into_iter()
            .map(Issue::Mendable)
            .collect(),
        Err(error) => vec![Issue::Mendable(error)],
    }
}

/// The Deployment behind an APIService, where it, its Service and its certificate fit.
fn called<'a>(pass: &'a CsvPass<'_>, registered: &Value, deployment: &str) -> Result<&'a Value, String> {
    let cluster = pass.facts.cluster;
    let place = pass.namespace();
    let (service, secret) = (service_name(deployment), secret_name(deployment));
    managed(cluster, "Service", place, &service)?;
    if text(registered, "/spec/service/name") != service
        || text(registered, "/spec/service/namespace") != place
    {
        return Err("found APIService and service reference mismatch".to_owned());
    }
    let authority = certificate::decoded(registered, "/spec/caBundle");
    certificate::read(&authority)?;
    let kept = managed(cluster, names::SECRET_KIND, place, &secret)?;
    certificate::read(&certificate::decoded(kept, "/data/tls.crt"))?;
    let hash = certificate::hash(&authority);
    if annotation(kept, "/metadata/annotations") != Some(&hash) {
        return Err(format!("secret {secret} CA cert hash does not match expected"));
    }
    let live = managed(cluster, names::DEPLOYMENT_KIND, place, deployment)?;
    if annotation(live, "/spec/template/metadata/annotations") != Some(&hash) {
        return Err(format!(
            "deployment {deployment} CA cert hash does not match expected"
        ));
    }
    Ok(live)
}

/// The missing accounts, roles and bindings of a Deployment.
fn rights(pass: &CsvPass<'_>, live: &Value, deployment: &str) -> Vec<String> {
    let cluster = pass.facts.cluster;
    let place = pass.namespace();
    let (service, secret) = (service_name(deployment), secret_name(deployment));
    let account = match text(live, "/spec/template/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };
    let delegator = format!("{service}-system:auth-delegator");
    let reader = format!("{service}-auth-reader");
    let account = cluster
        .get("ServiceAccount", place, account)
        .ok_or_else(|| format!("serviceaccounts \"{account}\" not found"));
    let found = [
        account,
        managed(cluster, "Role", place, &secret),
        managed(cluster, "RoleBinding", place, &secret),
        managed(cluster, "ClusterRoleBinding", "", &delegator),
        managed(cluster, "RoleBinding", "kube-system", &reader),
    ];
    found.into_iter().filter_map(Result::err).collect()
}

/// The annotation with the hash of the authority.
fn annotation<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object
        .pointer(pointer)
        .and_then(|annotations| annotations.get(names::CA_HASH_ANNOTATION))
        .and_then(Value::as_str)
}

/// The object of OLM, or the words of a cache where it is absent.
fn managed<'a>(cluster: &'a Cluster, kind: &str, namespace: &str, name: &str) -> Result<&'a Value, String> {
    cluster
        .get_watched(kind, namespace, name)
        .ok_or_else(|| absent(kind, name))
}

/// The object, or the words of a cache where it is absent.
fn require<'a>(cluster: &'a Cluster, kind: &str, namespace: &str, name: &str) -> Result<&'a Value, String> {
    cluster
        .get(kind, namespace, name)
        .ok_or_else(|| absent(kind, name))
}

fn absent(kind: &str, name: &str) -> String {
    let group = match kind {
        names::API_SERVICE_KIND => ".apiregistration.k8s.io",
        names::DEPLOYMENT_KIND => ".apps",
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => ".rbac.authorization.k8s.io",
        _ => "",
    };
    format!("{}{group} \"{name}\" not found", kind.to_lowercase())
}
