//! Creating the objects with the user's own rights.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use olm_api::object::text;
use olm_cluster::identity::AccountName;
use serde_json::Value;

use super::objects::object_label;
use crate::extension::change::MANAGER;
use crate::extension::cluster::Cluster;
use crate::hint::Hint;
use crate::output::print_text;

/// The resource of an object, its namespace and its name.
fn place(object: &Value) -> anyhow::Result<(ApiResource, &str, &str)> {
    let text = |pointer: &str| text(object, pointer);
    let (group, version) = text("/apiVersion")
        .split_once('/')
        .unwrap_or(("", text("/apiVersion")));
    let kind = text("/kind");
    if kind.is_empty() || text("/metadata/name").is_empty() {
        return Err(anyhow!("an object has no kind or name"));
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Ok((resource, text("/metadata/namespace"), text("/metadata/name")))
}

/// Fails before any write if the user may not create an object.
pub(super) fn may_create(cluster: &Cluster, account: &AccountName, objects: &[Value]) -> anyhow::Result<()> {
    let mut denied: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for object in objects {
        let (resource, namespace, _) = place(object)?;
        // An apply that creates takes both.
        for verb in ["create", "patch"] {
            let asked = ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(resource.group.clone()),
                resource: Some(resource.plural.clone()),
                namespace: Some(namespace.to_owned()),
                ..ResourceAttributes::default()
            };
            if !may(cluster, asked)? {
                let place = match namespace {
                    "" => String::new(),
                    namespace => format!(" in namespace {namespace}"),
                };
                let verbs = denied.entry(format!("{}{place}", resource.plural)).or_default();
                verbs.push(verb);
            }
        }
    }
    // The admission policy of OLM requires it.
    let impersonates = ResourceAttributes {
        verb: Some("impersonate".to_owned()),
        resource: Some("serviceaccounts".to_owned()),
        namespace: Some(account.namespace.clone()),
        name: Some(account.name.clone()),
        ..ResourceAttributes::default()
    };
    if !may(cluster, impersonates)? {
        denied.insert(format!("service account {account}"), vec!["impersonate"]);
    }
    if denied.is_empty() {
        return Ok(());
    }
    let denied: Vec<String> = denied
        .iter()
        .map(|(what, verbs)| format!("{} {what}", verbs.join(" or ")))
        .collect();
    let error = anyhow!("you may not {}", denied.join(", "));
    Err(error.context(Hint(
        "give the output of --dry-run to an administrator; --namespace and --service-account name what exists already"
            .to_owned(),
    )))
}

fn may(cluster: &Cluster, asked: ResourceAttributes) -> anyhow::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answer = cluster
        .runtime
        .block_on(reviews.create(&PostParams::default(), &review));
    let answer = answer.context("cannot check what you may do")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Applies the objects one after the other, and reports each if asked to.
pub(super) fn create(cluster: &Cluster, objects: &[Value], reports: bool) -> anyhow::Result<()> {
    for (index, object) in objects.iter().enumerate() {
        let (resource, namespace, name) = place(object)?;
        let api: Api<DynamicObject> = match namespace {
            "" => Api::all_with(cluster.client.clone(), &resource),
            namespace => Api::namespaced_with(cluster.client.clone(), namespace, &resource),
        };
        let params = PatchParams::apply(MANAGER);
        let applied = cluster
            .runtime
            .block_on(api.patch(name, &params, &Patch::Apply(object)));
        if let Err(error) = applied {
            let made: Vec<String> = objects.iter().take(index).map(object_label).collect();
            let hint = if made.is_empty() {
                "nothing was created".to_owned()
            } else {
                format!(
                    "created before that: {}; run the command again to continue",
                    made.join(", ")
                )
            };
            let error = anyhow::Error::new(error).context(format!("cannot create {}", object_label(object)));
            return Err(error.context(Hint(hint)));
        }
        if reports {
            print_text(&format!("{} created\n", object_label(object)))?;
        }
    }
    Ok(())
}
