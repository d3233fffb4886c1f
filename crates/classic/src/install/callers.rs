//! Objects that make the API server call a Deployment: APIServices, webhook configurations, and conversions of
//! CustomResourceDefinitions.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::certificate::decoded;
use super::serving::{bundle, port, secret_name, service_name};
use super::{is_of, overrides, owner_labels};
use crate::cluster::{Cluster, items, label, object_at, text};
use crate::csv::phases::is_adoptable;
use crate::csv::{ApiDescription, ClusterServiceVersion};
use crate::operator_group::OperatorGroup;
use crate::operator_group::copies::WEBHOOK;
use crate::operator_group::targets::webhook_selector;
use crate::{hash, names, wire};

/// The authority of each Deployment that is called.
pub(super) type Authorities<'a> = BTreeMap<&'a str, Vec<u8>>;

const DEFAULT_PORT: i32 = 443;
/// Pointer to the authority of a CustomResourceDefinition's conversion webhook.
const CONVERSION_AUTHORITY: &str = "/spec/conversion/webhook/clientConfig/caBundle";
/// Fields that a webhook configuration copies from the definition of the webhook.
const COPIED: [&str; 7] = [
    "rules",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "sideEffects",
    "timeoutSeconds",
    "admissionReviewVersions",
];

/// The objects for all aggregated APIs and webhooks.
///
/// # Errors
/// The first object that cannot be installed; the objects before it are in `written`.
pub(super) fn write(
    csv: &ClusterServiceVersion,
    authorities: &Authorities<'_>,
    cluster: &Cluster,
    written: &mut Vec<Value>,
) -> Result<(), String> {
    for (name, api) in csv.spec.owned_services() {
        written.push(api_service(csv, &name, api, authorities, cluster)?);
    }
    for definition in &csv.spec.webhook_definitions {
        let authority = authorities.get(text(definition, "/deploymentName"));
        let authority = authority.map(|authority| bundle(authority)).unwrap_or_default();
        match text(definition, "/type") {
            "ValidatingAdmissionWebhook" => {
                written.extend(admission("Validating", csv, definition, &authority, cluster)?);
            }
            "MutatingAdmissionWebhook" => {
                written.extend(admission("Mutating", csv, definition, &authority, cluster)?);
            }
            "ConversionWebhook" => conversion(csv, definition, &authority, cluster, written)?,
            _ => {}
        }
    }
    Ok(())
}

/// Whether the API server already makes calls by the object that this one replaces.
pub(super) fn is_calling(wanted: &Value, cluster: &Cluster) -> bool {
    let kind = text(wanted, "/kind");
    let found = cluster.get(kind, "", text(wanted, "/metadata/name"));
    found.is_some_and(|found| kind != names::CRD_KIND || !decoded(found, CONVERSION_AUTHORITY).is_empty())
}

/// The authority by which each Deployment is called now: that of its last webhook, else of its last APIService. Nothing
/// where one of these is missing, has no authority, or is for a Deployment without a Secret or outside of the strategy.
pub(super) fn authorities<'a>(csv: &'a ClusterServiceVersion, cluster: &Cluster) -> Option<Authorities<'a>> {
    let mut authorities = BTreeMap::new();
    let is_served = |deployment: &str| {
        let mut strategy = csv.spec.install.spec.deployments.iter();
        let secret = secret_name(deployment);
        strategy.any(|entry| entry.name == deployment)
            && cluster
                .get_watched(names::SECRET_KIND, &csv.metadata.namespace, &secret)
                .is_some()
    };
    for api in &csv.spec.api_service_definitions.owned {
        let name = format!("{}.{}", api.version, api.group);
        let authority = decoded(cluster.get(names::API_SERVICE_KIND, "", &name)?, "/spec/caBundle");
        let deployment = api.deployment_name.as_str();
        if authority.is_empty() || !is_served(deployment) {
            return None;
        }
        authorities.insert(deployment, authority);
    }
    for definition in &csv.spec.webhook_definitions {
        let deployment = text(definition, "/deploymentName");
        let authority = webhook_authority(csv, definition, cluster)?;
        if !is_served(deployment) {
            return None;
        }
        authorities.insert(deployment, authority);
    }
    Some(authorities)
}

fn webhook_authority(csv: &ClusterServiceVersion, definition: &Value, cluster: &Cluster) -> Option<Vec<u8>> {
    let kind = match text(definition, "/type") {
        "ValidatingAdmissionWebhook" => "ValidatingWebhookConfiguration",
        "MutatingAdmissionWebhook" => "MutatingWebhookConfiguration",
        "ConversionWebhook" => {
            let mut converted = items(definition, "/conversionCRDs").filter_map(Value::as_str);
            return converted.find_map(|name| {
                let found = cluster.get(names::CRD_KIND, "", name)?;
                let authority = decoded(found, CONVERSION_AUTHORITY);
                (!authority.is_empty()).then_some(authority)
            });
        }
        _ => return None,
    };
    let name = text(definition, "/generateName");
    let mut found = cluster.of_kind(kind);
    let found = found.find(|found| is_of(found, csv) && label(found, names::WEBHOOK_NAME_LABEL) == name)?;
    Some(decoded(found, "/webhooks/0/clientConfig/caBundle"))
}

fn labelled(object: &mut Value, csv: &ClusterServiceVersion, more: &[(&str, String)]) {
    if let Some(labels) = object_at(object, &["metadata", "labels"]) {
        labels.insert(names::MANAGED_LABEL.to_owned(), "true".into());
        labels.extend(owner_labels(csv));
        labels.extend(
            more.iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_str().into())),
        );
    }
}

fn api_service(
    csv: &ClusterServiceVersion,
    name: &str,
    api: &ApiDescription,
    authorities: &Authorities<'_>,
    cluster: &Cluster,
) -> Result<Value, String> {
    let found = cluster.get(names::API_SERVICE_KIND, "", name);
    if found.is_some_and(|found| !is_adoptable(found, csv, cluster)) {
        return Err(format!("pre-existing APIService {name} is not adoptable"));
    }
    let mut object = found.cloned().unwrap_or_else(|| {
        let mut metadata = json!({"name": name});
        let config = overrides::config(csv, cluster);
        let annotations = config.and_then(|config| config.get("annotations"));
        if let (Some(annotations), Some(metadata)) = (
            annotations.filter(|annotations| annotations.is_object()),
            metadata.as_object_mut(),
        ) {
            metadata.insert("annotations".to_owned(), annotations.clone());
        }
        json!({
            "apiVersion": format!("{}/v1", names::API_SERVICE_GROUP), "kind": names::API_SERVICE_KIND,
            "metadata": metadata, "spec": {"groupPriorityMinimum": 2000, "versionPriority": 15},
        })
    });
    labelled(&mut object, csv, &[]);
    let deployment = api.deployment_name.as_str();
    let port = if api.container_port > 0 {
        api.container_port
    } else {
        DEFAULT_PORT
    };
    if let Some(spec) = object_at(&mut object, &["spec"]) {
        let service = json!({
            "name": service_name(deployment), "namespace": csv.metadata.namespace, "port": port,
        });
        for (key, value) in [
            ("group", json!(api.group)),
            ("version", json!(api.version)),
            ("service", service),
        ] {
            spec.insert(key.to_owned(), value);
        }
        match authorities.get(deployment) {
            Some(authority) => spec.insert("caBundle".to_owned(), bundle(authority).into()),
            None => spec.remove("caBundle"),
        };
    }
    Ok(object)
}

/// The Service that a webhook is called at.
fn client_config(
    csv: &ClusterServiceVersion,
    definition: &Value,
    authority: &str,
    path: Option<&str>,
) -> Value {
    let deployment = text(definition, "/deploymentName");
    let mut service = json!({
        "name": service_name(deployment), "namespace": csv.metadata.namespace, "port": port(definition),
    });
    if let (Some(path), Some(service)) = (path, service.as_object_mut()) {
        service.insert("path".to_owned(), path.into());
    }
    if authority.is_empty() {
        json!({"service": service})
    } else {
        json!({"service": service, "caBundle": authority})
    }
}

/// The hash of a webhook definition, which says that its configuration must be written.
pub fn webhook_hash(definition: &Value) -> String {
    hash::text(&format!("{}\n", wire::write(definition, WEBHOOK)))
}

fn admission(
    effect: &str,
    csv: &ClusterServiceVersion,
    definition: &Value,
    authority: &str,
    cluster: &Cluster,
) -> Result<Vec<Value>, String> {
    let kind = format!("{effect}WebhookConfiguration");
    let name = text(definition, "/generateName");
    let mut groups = cluster.in_namespace(names::OPERATOR_GROUP_KIND, &csv.metadata.namespace);
    let (Some(object), None) = (groups.next(), groups.next()) else {
        return Err("error retrieving OperatorGroup info".to_owned());
    };
    let group = OperatorGroup::read(object).map_err(|error| error.to_string())?;
    let selector = webhook_selector(&group, object).map_err(|error| error.to_string())?;
    let path = definition.get("webhookPath").and_then(Value::as_str);
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.into());
    for key in COPIED {
        if let Some(value) = definition.get(key).filter(|value| !value.is_null()) {
            entry.insert(key.to_owned(), value.clone());
        }
    }
    if effect == "Mutating"
        && let Some(policy) = definition.get("reinvocationPolicy")
    {
        entry.insert("reinvocationPolicy".to_owned(), policy.clone());
    }
    if let Some(selector) = selector {
        entry.insert("namespaceSelector".to_owned(), selector);
    }
    let client = client_config(csv, definition, authority, path);
    entry.insert("clientConfig".to_owned(), client);
    let more = [
        (names::WEBHOOK_NAME_LABEL, name.to_owned()),
        (names::WEBHOOK_HASH_LABEL, webhook_hash(definition)),
    ];
    let mut written: Vec<Value> = cluster
        .of_kind(&kind)
        .filter(|found| is_of(found, csv) && label(found, names::WEBHOOK_NAME_LABEL) == name)
        .cloned()
        .collect();
    if written.is_empty() {
        written.push(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"generateName": format!("{name}-")},
        }));
    }
    for object in &mut written {
        labelled(object, csv, &more);
        if let Some(object) = object.as_object_mut() {
            object.insert("webhooks".to_owned(), json!([entry]));
        }
    }
    Ok(written)
}

fn conversion(
    csv: &ClusterServiceVersion,
    definition: &Value,
    authority: &str,
    cluster: &Cluster,
    written: &mut Vec<Value>,
) -> Result<(), String> {
    let modes = &csv.spec.install_modes;
    let is_global = modes
        .iter()
        .all(|mode| mode.supported == (mode.kind == "AllNamespaces"))
        && modes.iter().any(|mode| mode.supported);
    if !is_global {
        return Err(
            "unable to manage conversion webhook: CSVs with conversion webhooks must support only AllNamespaces".to_owned(),
        );
    }
    let converted: Vec<&str> = items(definition, "/conversionCRDs")
        .filter_map(Value::as_str)
        .collect();
    if converted.is_empty() {
        return Err(
            "unable to manager conversion webhook: conversion webhook must have at least one CRD specified"
                .to_owned(),
        );
    }
    for name in converted {
        let Some(found) = cluster.get(names::CRD_KIND, "", name) else {
            return Err(format!(
                "unable to get CRD {name} specified in Conversion Webhook: customresourcedefinitions.apiextensions.k8s.io \
                 \"{name}\" not found"
            ));
        };
        let mut owned = csv.spec.custom_resource_definitions.owned.iter();
        if !owned.any(|owned| owned.name == name) {
            return Err(format!("csv {} does not own CRD {name}", csv.metadata.name));
        }
        if found.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
            return Err(
                "crd.Spec.PreserveUnknownFields must be false to let API Server call webhook to do the conversion"
                    .to_owned(),
            );
        }
        let path = definition
            .get("webhookPath")
            .and_then(Value::as_str)
            .unwrap_or("/");
        let mut object = found.clone();
        if let Some(spec) = object_at(&mut object, &["spec"]) {
            let conversion = json!({
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": client_config(csv, definition, authority, Some(path)),
                    "conversionReviewVersions": definition.get("admissionReviewVersions"),
                },
            });
            spec.insert("conversion".to_owned(), conversion);
        }
        written.push(object);
    }
    Ok(())
}
