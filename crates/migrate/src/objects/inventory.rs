//! The objects of an installed operator. Only reads.

use std::collections::BTreeSet;

use anyhow::Context as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use olm_api::names::{operator_condition, token_secret};
use olm_classic::names;
use serde_json::Value;

use crate::certificates;
use crate::check::Finding;
use crate::context::MoveContext;
use crate::facts::{Case, annotation, list, name, namespace, text, within};

/// A kind in bundles of OLM classic: group, version, kind, and whether it is namespaced.
struct Kind(&'static str, &'static str, &'static str, bool);

/// Kinds of every cluster, whose objects are found by owner.
const LOOKED_FOR: &[Kind] = &[
    Kind("", "v1", "ServiceAccount", true),
    Kind("", "v1", "Service", true),
    Kind("", "v1", "ConfigMap", true),
    Kind("", "v1", "Secret", true),
    Kind("apps", "v1", "Deployment", true),
    Kind("rbac.authorization.k8s.io", "v1", "Role", true),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", true),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", false),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", false),
    Kind("networking.k8s.io", "v1", "NetworkPolicy", true),
    Kind("policy", "v1", "PodDisruptionBudget", true),
    Kind("apiregistration.k8s.io", "v1", "APIService", false),
    Kind("scheduling.k8s.io", "v1", "PriorityClass", false),
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        false,
    ),
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        false,
    ),
];
/// Further kinds, whose objects the InstallPlan names.
const NAMED: &[Kind] = &[
    Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", false),
    Kind("monitoring.coreos.com", "v1", "PrometheusRule", true),
    Kind("monitoring.coreos.com", "v1", "ServiceMonitor", true),
    Kind("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", true),
    Kind("console.openshift.io", "v1", "ConsoleYAMLSample", false),
    Kind("console.openshift.io", "v1", "ConsoleQuickStart", false),
    Kind("console.openshift.io", "v1", "ConsoleCLIDownload", false),
    Kind("console.openshift.io", "v1", "ConsoleLink", false),
    Kind("console.openshift.io", "v1", "ConsolePlugin", false),
];

/// The API of an object's kind in a namespace, or in the cluster if that is empty.
pub(crate) fn api(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// The API of an object.
pub(crate) fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (group, version) = text(object, "/apiVersion")
        .split_once('/')
        .unwrap_or(("", text(object, "/apiVersion")));
    api(
        client,
        group,
        version,
        text(object, "/kind"),
        text(object, "/metadata/namespace"),
    )
}

/// Reads an object; `None` if it does not exist.
pub(crate) async fn get(api: &Api<DynamicObject>, what: &str, name: &str) -> anyhow::Result<Option<Value>> {
    let found = api
        .get_opt(name)
        .await
        .with_context(|| format!("cannot read {what} {name:?}"))?;
    Ok(found.map(serde_json::to_value).transpose()?)
}

/// The check of the objects.
const CHECK: &str = "objects";
/// The advice about an object that is not there.
const COMPLETE: &str = "only an operator whose objects all exist can move: leave it to OLM classic";

/// The objects of an operator.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Those that a move takes over, as they live.
    pub objects: Vec<Value>,
    /// What keeps it from that.
    pub findings: Vec<Finding>,
}

impl Inventory {
    /// Adds a finding.
    pub fn block(&mut self, message: String, fix: &str) {
        self.findings.push(Finding::blocking(CHECK, message, fix));
    }

    fn has_account(&self, place: &str, wanted: &str) -> bool {
        self.objects.iter().any(|object| {
            text(object, "/kind") == "ServiceAccount" && namespace(object) == place && name(object) == wanted
        })
    }

    /// The objects that the steps of the plans name. Those of unknown kinds are findings.
    fn wanted_by_steps(&mut self, case: Case<'_>) -> BTreeSet<Reference> {
        let mut wanted = BTreeSet::new();
        for step in within(&case.facts.plans, case.namespace()).flat_map(|plan| list(plan, "/status/plan")) {
            let resource = |key: &str| text(step, &format!("/resource/{key}"));
            let is_foreign = text(step, "/resolving") != case.installed();
            if is_foreign || resource("group") == operator_condition::GROUP {
                continue;
            }
            let kind_of_step = match resource("kind") {
                names::BUNDLE_SECRET_KIND => names::SECRET_KIND,
                kind => kind,
            };
            let mut known = LOOKED_FOR.iter().chain(NAMED);
            // OLM classic knows the objects of some bundles by their kinds alone.
            let is_of_group = |group: &str| ["", group].contains(&resource("group"));
            let known = known.find(|Kind(group, _, kind, _)| *kind == kind_of_step && is_of_group(group));
            let Some(Kind(group, version, kind, is_namespaced)) = known else {
                let (kind, wanted) = (resource("kind"), resource("name"));
                self.block(
                    format!("cannot take over {kind} {wanted:?}: the kind is unknown"),
                    "leave the operator to OLM classic",
                );
                continue;
            };
            let version = match resource("version") {
                number if *kind != names::CRD_KIND && !number.is_empty() => number,
                _ => version,
            };
            let [group, version, kind] = [*group, version, *kind].map(str::to_owned);
            let name = resource("name").to_owned();
            wanted.insert((group, version, kind, place(case, *is_namespaced), name));
        }
        wanted
    }

    /// Adds an object. One that is missing or being deleted is a finding.
    async fn read(&mut self, context: &MoveContext<'_>, reference: Reference) -> anyhow::Result<()> {
        let (group, version, kind, namespace, name) = reference;
        let api = api(&context.content, &group, &version, &kind, &namespace);
        match get(&api, &kind, &name).await? {
            None => self.block(
                format!("{kind} {name:?} of the operator does not exist"),
                COMPLETE,
            ),
            Some(found) if found.pointer("/metadata/deletionTimestamp").is_some() => self.block(
                format!("{kind} {name:?} of the operator is being deleted"),
                COMPLETE,
            ),
            Some(found) => self.objects.push(found),
        }
        Ok(())
    }

    /// Adds the Secrets that will not be there: Kubernetes deletes those with tokens of accounts that do not exist.
    async fn check_tokens(&mut self, context: &MoveContext<'_>) -> anyhow::Result<()> {
        let mut findings = Vec::new();
        for secret in &self.objects {
            let Some(account) = token_account(secret) else {
                continue;
            };
            let accounts = api(&context.content, "", "v1", "ServiceAccount", namespace(secret));
            if self.has_account(namespace(secret), account)
                || get(&accounts, "ServiceAccount", account).await?.is_some()
            {
                continue;
            }
            findings.push(format!(
                "Kubernetes deletes Secret {:?} of the operator: its ServiceAccount {account:?} does not exist",
                name(secret)
            ));
        }
        for finding in findings {
            self.block(finding, COMPLETE);
        }
        Ok(())
    }
}

/// An object by group, version, kind, namespace and name.
type Reference = (String, String, String, String, String);

/// The namespace of an object of the operator; empty for a cluster-wide one.
fn place(case: Case<'_>, is_namespaced: bool) -> String {
    if is_namespaced {
        case.namespace().to_owned()
    } else {
        String::new()
    }
}

/// The account whose token a Secret holds.
fn token_account(object: &Value) -> Option<&str> {
    let is_token = text(object, "/kind") == names::SECRET_KIND && text(object, "/type") == token_secret::TYPE;
    annotation(object, token_secret::ACCOUNT).filter(|_| is_token)
}

/// All objects of the operator. Only reads.
///
/// # Errors
/// An object cannot be read.
pub async fn inventory(context: &MoveContext<'_>, case: Case<'_>) -> anyhow::Result<Inventory> {
    let mut inventory = Inventory::default();
    let mut wanted = inventory.wanted_by_steps(case);
    for Kind(group, version, kind, is_namespaced) in LOOKED_FOR {
        let namespace = place(case, *is_namespaced);
        for found in owned(
            case,
            &api(&context.own, group, version, kind, &namespace),
            *is_namespaced,
        )
        .await?
        {
            let [group, version, kind] = [*group, *version, *kind].map(str::to_owned);
            wanted.insert((group, version, kind, namespace.clone(), found));
        }
    }
    let version = case.version();
    for owned in version
        .iter()
        .flat_map(|version| list(version, "/spec/customresourcedefinitions/owned"))
    {
        let [group, version, kind] =
            ["apiextensions.k8s.io", "v1", "CustomResourceDefinition"].map(str::to_owned);
        wanted.insert((
            group,
            version,
            kind,
            String::new(),
            text(owned, "/name").to_owned(),
        ));
    }
    for [group, kind, namespace, wanted_name] in version.into_iter().flat_map(certificates::parts) {
        let found = get(
            &api(&context.content, &group, "v1", &kind, &namespace),
            &kind,
            &wanted_name,
        )
        .await?;
        let is_part = |found: &Value| version.is_some_and(|version| certificates::is_part(found, version));
        if found.as_ref().is_some_and(is_part) {
            wanted.insert((group, "v1".to_owned(), kind, namespace, wanted_name));
        }
    }
    for reference in wanted {
        inventory.read(context, reference).await?;
    }
    inventory.check_tokens(context).await?;
    Ok(inventory)
}

/// The names of the objects of a kind that the ClusterServiceVersion owns, by reference or by label.
async fn owned(case: Case<'_>, api: &Api<DynamicObject>, is_namespaced: bool) -> anyhow::Result<Vec<String>> {
    let Some(version) = case.version() else {
        return Ok(Vec::new());
    };
    let uid = text(version, "/metadata/uid");
    let mut params = ListParams::default();
    if !is_namespaced {
        params = params.labels(&format!("{}={}", names::OWNER_LABEL, name(version)));
    }
    let listed = api.list_metadata(&params).await;
    let listed = listed.with_context(|| format!("cannot list objects of {}", name(version)))?;
    let is_owned = |found: &kube::api::PartialObjectMeta<DynamicObject>| {
        let label = |key: &str| {
            found
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(key))
                .map(String::as_str)
        };
        let by_label = label(names::OWNER_LABEL) == Some(name(version))
            && label(names::OWNER_NAMESPACE_LABEL) == Some(case.namespace());
        let mut owners = found.metadata.owner_references.iter().flatten();
        by_label || owners.any(|owner| owner.uid == uid)
    };
    Ok(listed
        .items
        .into_iter()
        .filter(is_owned)
        .filter_map(|found| found.metadata.name)
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_secret_of_that_type_holds_the_token_of_an_account() {
        let object = |kind: &str, of_type: &str| {
            json!({
                "kind": kind, "type": of_type,
                "metadata": {"name": "s", "annotations": {token_secret::ACCOUNT: "operator"}},
            })
        };
        assert_eq!(
            token_account(&object("Secret", token_secret::TYPE)),
            Some("operator")
        );
        assert_eq!(token_account(&object("Secret", "Opaque")), None);
        assert_eq!(token_account(&object("ConfigMap", token_secret::TYPE)), None);
    }
}
