//! The operator's Deployments.

use std::collections::HashMap;

use k8s_openapi::api::apps::v1::DeploymentSpec;
use olm_api::names::operator_condition;
use serde_json::{Map, Value, json};

use super::Options;
use super::certificates::mount_certificates;
use super::manifests::{child, containers_mut};
use crate::bundle::Bundle;
use crate::csv::StrategyDeployment;
use crate::reader::drop_unknown;

/// The annotation with the namespaces that the operator watches.
const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// The annotation with the namespace of the operator.
const OPERATOR_NAMESPACE: &str = "olm.operatorNamespace";

/// The lists of containers in a pod.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// A Deployment for each deployment of the install strategy.
#[must_use]
pub fn deployments(bundle: &Bundle, options: &Options) -> Vec<Value> {
    let deployments = bundle.csv.deployments().iter();
    deployments
        .map(|strategy| deployment(bundle, strategy, options))
        .collect()
}

fn deployment(bundle: &Bundle, strategy: &StrategyDeployment, options: &Options) -> Value {
    let mut metadata = json!({"name": strategy.name, "namespace": options.install_namespace});
    if !strategy.labels.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.insert("labels".to_owned(), json!(strategy.labels));
    }
    // Content that is taken over from the reference implementation stays the same, so init containers are left out; its
    // operator gets no condition either.
    let lists: &[&str] = match options.operator_condition {
        Some(_) => &CONTAINERS,
        None => &["containers"],
    };
    let mut deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": strategy.spec,
    });
    if let Some(spec) = deployment.get_mut("spec") {
        drop_unknown::<DeploymentSpec>(spec);
    }
    if let Some(spec) = child(&mut deployment, "spec") {
        spec.insert("revisionHistoryLimit".to_owned(), 1.into());
        spec.entry("strategy").or_insert_with(|| json!({}));
        let template = spec.entry("template").or_insert(Value::Null);
        if !template.is_object() {
            *template = json!({});
        }
        annotate_template(bundle, template, options);
        if let Some(pod) = child(template, "spec") {
            drop_nulls(pod);
            complete_containers(pod);
            if options.certificates.is_some() && bundle.csv.is_called(&strategy.name) {
                mount_certificates(pod, &strategy.name, lists);
            }
            if let Some(name) = &options.operator_condition {
                set_condition_name(pod, name);
            }
        }
    }
    if let Some(config) = &options.deployment_config {
        config.apply(&mut deployment, lists);
    }
    if let Some(pod) = child(&mut deployment, "spec")
        .and_then(|spec| spec.get_mut("template"))
        .and_then(|template| child(template, "spec"))
    {
        keep_last_of_each_name(pod, "imagePullSecrets");
        for list in CONTAINERS {
            for container in containers_mut(pod, list) {
                keep_last_of_each_name(container, "env");
            }
        }
    }
    deployment
}

/// Removes all but the last entry with the same name, which is the one that counts: server-side apply rejects
/// duplicates.
fn keep_last_of_each_name(owner: &mut Map<String, Value>, list: &str) {
    let Some(entries) = owner.get_mut(list).and_then(Value::as_array_mut) else {
        return;
    };
    let name = |entry: &Value| entry.get("name").and_then(Value::as_str).map(str::to_owned);
    let mut later: HashMap<String, usize> = HashMap::new();
    for entry in &*entries {
        if let Some(name) = name(entry) {
            *later.entry(name).or_default() += 1;
        }
    }
    entries.retain(|entry| {
        let Some(count) = name(entry).and_then(|name| later.get_mut(&name)) else {
            return true;
        };
        *count -= 1;
        *count == 0
    });
}

/// The annotations of the ClusterServiceVersion, overridden by those of the template, and by the operator's namespace
/// and watched namespaces.
fn annotate_template(bundle: &Bundle, template: &mut Value, options: &Options) {
    let Some(metadata) = child(template, "metadata") else {
        return;
    };
    if metadata.get("creationTimestamp") == Some(&Value::Null) {
        metadata.shift_remove("creationTimestamp");
    }
    let mut annotations: Map<String, Value> = Map::new();
    for (key, value) in &bundle.csv.metadata.annotations {
        annotations.insert(key.clone(), value.clone().into());
    }
    if let Some(Value::Object(own)) = metadata.shift_remove("annotations") {
        annotations.extend(own);
    }
    annotations.insert(TARGET_NAMESPACES.to_owned(), options.targets.joined().into());
    annotations.insert(
        OPERATOR_NAMESPACE.to_owned(),
        options.install_namespace.clone().into(),
    );
    annotations.sort_keys();
    metadata.insert("annotations".to_owned(), Value::Object(annotations));
}

/// Adds the environment variable with the name of the operator's OperatorCondition.
fn set_condition_name(pod: &mut Map<String, Value>, name: &str) {
    for container in containers_mut(pod, "containers") {
        let environment = container.entry("env").or_insert_with(|| json!([]));
        let Some(environment) = environment.as_array_mut() else {
            continue;
        };
        environment.retain(|entry| {
            entry.get("name").and_then(Value::as_str) != Some(operator_condition::ENVIRONMENT)
        });
        environment.push(json!({"name": operator_condition::ENVIRONMENT, "value": name}));
    }
}

/// Removes null fields, which in a pod are the same as absent ones.
fn drop_nulls(pod: &mut Map<String, Value>) {
    pod.retain(|_, value| !value.is_null());
    let mut open: Vec<&mut Value> = pod.values_mut().collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => {
                map.retain(|_, value| !value.is_null());
                open.extend(map.values_mut());
            }
            Value::Array(items) => open.extend(items.iter_mut()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Adds the empty resource requirements that every container of the reference implementation has, so that objects of a
/// cluster that moves over do not change.
fn complete_containers(pod: &mut Map<String, Value>) {
    for list in CONTAINERS {
        for container in containers_mut(pod, list) {
            container.entry("resources").or_insert_with(|| json!({}));
        }
    }
}
