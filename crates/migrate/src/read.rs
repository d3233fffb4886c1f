//! Reads the facts of a cluster that decide on a move.

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use olm_api::names::operator_condition;
use olm_classic::names::COPIED_FROM_LABEL;
use serde_json::Value;

use crate::certificates;
use crate::facts::{ClassicObjects, name, namespace};
use crate::hint::Hint;

/// The number of objects on a page.
const PAGE: u32 = 250;

/// A kind of OLM classic.
pub(crate) fn resource(version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(operator_condition::GROUP, version, kind))
}

/// Reads all of it.
pub async fn facts(client: &Client) -> anyhow::Result<ClassicObjects> {
    let Some(subscriptions) = list(client, "v1alpha1", "Subscription", "").await? else {
        let error = anyhow!(
            "the cluster does not serve Subscriptions of {}",
            operator_condition::GROUP
        );
        return Err(error.context(Hint(
            "OLM classic is not installed: there is nothing to move".to_owned(),
        )));
    };
    let some = |found: Option<Vec<Value>>| found.unwrap_or_default();
    let own = format!("!{COPIED_FROM_LABEL}");
    let params = ListParams::default();
    let catalogs: Api<olm_api::ClusterCatalog> = Api::all(client.clone());
    let catalogs = catalogs.list(&params).await;
    let extensions: Api<olm_api::ClusterExtension> = Api::all(client.clone());
    let extensions = extensions.list(&params).await;
    let versions = some(list(client, "v1alpha1", "ClusterServiceVersion", &own).await?);
    Ok(ClassicObjects {
        subscriptions,
        certificates: read_certificates(client, &versions).await?,
        versions,
        groups: some(list(client, "v1", "OperatorGroup", "").await?),
        plans: some(list(client, "v1alpha1", "InstallPlan", "").await?),
        sources: some(list(client, "v1alpha1", "CatalogSource", "").await?),
        conditions: some(list(client, operator_condition::VERSION, operator_condition::KIND, "").await?),
        catalogs: catalogs.context("cannot list the ClusterCatalogs")?.items,
        extensions: extensions.context("cannot list the ClusterExtensions")?.items,
        now: Timestamp::now(),
    })
}

/// Reads what a program that follows the other objects lacks: the OperatorConditions and certificates of these
/// ClusterServiceVersions.
pub async fn details(client: &Client, versions: &[Value]) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    let resource = resource(operator_condition::VERSION, operator_condition::KIND);
    let mut conditions = Vec::new();
    for version in versions {
        let place = namespace(version);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), place, &resource);
        let found = api.get_opt(name(version)).await;
        let found =
            found.with_context(|| format!("cannot read OperatorCondition {place}/{}", name(version)))?;
        conditions.extend(found.map(serde_json::to_value).transpose()?);
    }
    Ok((conditions, read_certificates(client, versions).await?))
}

/// The certificates of webhooks and aggregated APIs, without their keys. Without the right to read a Secret, the
/// ClusterServiceVersion's own data counts.
async fn read_certificates(client: &Client, versions: &[Value]) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for version in versions {
        let place = namespace(version);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), place);
        for name in certificates::secrets(version) {
            match secrets.get_opt(&name).await {
                Err(Error::Api(status)) if status.code == 403 => {}
                secret => {
                    let secret = secret.with_context(|| format!("cannot read Secret {place}/{name}"))?;
                    let secret = secret.map(serde_json::to_value).transpose()?;
                    found.extend(secret.as_ref().map(certificates::public));
                }
            }
        }
    }
    Ok(found)
}

/// All objects of a kind of OLM classic with these labels; empty if the cluster does not serve it.
async fn list(
    client: &Client,
    version: &str,
    kind: &str,
    labels: &str,
) -> anyhow::Result<Option<Vec<Value>>> {
    let resource = resource(version, kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut params = ListParams::default().limit(PAGE).labels(labels);
    let mut found = Vec::new();
    loop {
        let page = match api.list(&params).await {
            Err(Error::Api(status)) if status.code == 404 => return Ok(None),
            page => page.with_context(|| format!("cannot list the {}", resource.plural))?,
        };
        for object in page.items {
            found.push(serde_json::to_value(object)?);
        }
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(Some(found)),
        }
    }
}
