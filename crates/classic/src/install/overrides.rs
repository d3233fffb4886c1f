//! Settings of the Subscription and of the cluster for the Deployments of an operator.

use serde_json::{Map, Value, json};

use super::proxy;
use crate::cluster::{Cluster, items, object_at, text};
use crate::csv::ClusterServiceVersion;
use crate::names;

/// The variable that gives an operator the name of its OperatorCondition.
const CONDITION_VARIABLE: &str = "OPERATOR_CONDITION_NAME";
const AFFINITIES: [&str; 3] = ["nodeAffinity", "podAffinity", "podAntiAffinity"];

/// `spec.config` of the Subscription that has installed a ClusterServiceVersion.
pub(super) fn config<'a>(csv: &'a ClusterServiceVersion, cluster: &'a Cluster) -> Option<&'a Value> {
    let mut subscriptions = cluster.in_namespace(names::SUBSCRIPTION_KIND, &csv.metadata.namespace);
    let installed = subscriptions.find(|found| text(found, "/status/installedCSV") == csv.metadata.name)?;
    installed
        .pointer("/spec/config")
        .filter(|config| config.is_object())
}

/// Settings that are laid over the Deployments of an operator.
#[derive(Debug, Default)]
pub(super) struct Overrides<'a> {
    /// `spec.config` of its Subscription.
    pub(super) config: Option<&'a Value>,
    /// The variables of the cluster's proxy.
    pub(super) proxy: Vec<Value>,
}

impl<'a> Overrides<'a> {
    /// The settings for a ClusterServiceVersion.
    pub(super) fn of(csv: &'a ClusterServiceVersion, cluster: &'a Cluster) -> Self {
        let config = config(csv, cluster);
        Self {
            config,
            proxy: proxy::variables(cluster, config),
        }
    }

    /// Lays them over a DeploymentSpec, and names the OperatorCondition to each regular container.
    pub(super) fn apply(&self, spec: &mut Value, condition: &str) {
        let none = json!({});
        let config = self.config.unwrap_or(&none);
        let listed = |key: &str| items(config, &format!("/{key}")).cloned().collect::<Vec<_>>();
        if let Some(annotations) = config.get("annotations").and_then(Value::as_object)
            && let Some(template) = object_at(spec, &["template", "metadata", "annotations"])
        {
            for (key, value) in annotations {
                template.entry(key).or_insert_with(|| value.clone());
            }
        }
        let Some(pod) = object_at(spec, &["template", "spec"]) else {
            return;
        };
        replace_or_append(pod, "volumes", &listed("volumes"));
        append_new(pod, "tolerations", &listed("tolerations"));
        if let Some(selector) = config.get("nodeSelector").filter(|selector| selector.is_object()) {
            pod.insert("nodeSelector".to_owned(), selector.clone());
        }
        if let Some(affinity) = config.get("affinity").and_then(Value::as_object) {
            lay_affinity(pod, affinity);
        }
        let mut variables = listed("env");
        variables.extend(self.proxy.iter().cloned());
        variables.push(json!({"name": CONDITION_VARIABLE, "value": condition}));
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            replace_or_append(container, "env", &variables);
            append_new(container, "envFrom", &listed("envFrom"));
            replace_or_append(container, "volumeMounts", &listed("volumeMounts"));
            if let Some(resources) = config.get("resources").filter(|resources| !resources.is_null()) {
                container.insert("resources".to_owned(), resources.clone());
            }
        }
    }
}

/// Adds elements to a list; one of the same name is replaced.
fn replace_or_append(object: &mut Map<String, Value>, key: &str, wanted: &[Value]) {
    if wanted.is_empty() {
        return;
    }
    let list = object.entry(key).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    for element in wanted {
        let mut same = list
            .iter_mut()
            .filter(|found| found.get("name") == element.get("name"))
            .peekable();
        if same.peek().is_none() {
            list.push(element.clone());
        } else {
            same.for_each(|found| *found = element.clone());
        }
    }
}

/// Adds elements to a list that it does not hold.
fn append_new(object: &mut Map<String, Value>, key: &str, wanted: &[Value]) {
    if wanted.is_empty() {
        return;
    }
    let list = object.entry(key).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        for element in wanted {
            if !list.contains(element) {
                list.push(element.clone());
            }
        }
    }
}

/// An empty affinity removes all, an empty part removes that part; an empty `podAntiAffinity` removes all.
fn lay_affinity(pod: &mut Map<String, Value>, affinity: &Map<String, Value>) {
    let given = |part: &str| affinity.get(part).filter(|part| part.is_object());
    let is_empty = |part: &Value| part.as_object().is_some_and(Map::is_empty);
    if AFFINITIES.iter().all(|part| given(part).is_none()) || given("podAntiAffinity").is_some_and(is_empty) {
        pod.remove("affinity");
        return;
    }
    let mut merged = pod
        .get("affinity")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for part in AFFINITIES {
        match given(part) {
            Some(wanted) if is_empty(wanted) => {
                merged.remove(part);
            }
            Some(wanted) => {
                merged.insert(part.to_owned(), wanted.clone());
            }
            None => {}
        }
    }
    if merged.is_empty() {
        pod.remove("affinity");
    } else {
        pod.insert("affinity".to_owned(), Value::Object(merged));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(spec: &mut Value, config: &Value, condition: &str) {
        let overrides = Overrides {
            config: Some(config),
            proxy: vec![json!({"name": "NO_PROXY", "value": "n"})],
        };
        overrides.apply(spec, condition);
    }

    #[test]
    fn names_are_replaced_and_others_appended() {
        let mut spec = json!({"template": {"spec": {"containers": [
            {"name": "a", "env": [{"name": "X", "value": "1"}], "resources": {"limits": {"cpu": "1"}}},
        ], "tolerations": [{"key": "k"}]}}});
        let config = json!({
            "env": [{"name": "X", "value": "2"}, {"name": "Y", "value": "3"}], "resources": {},
            "tolerations": [{"key": "k"}, {"key": "l"}], "nodeSelector": {},
        });
        apply(&mut spec, &config, "c.v1");
        assert_eq!(
            spec["template"]["spec"],
            json!({
                "containers": [{
                    "name": "a", "resources": {},
                    "env": [
                        {"name": "X", "value": "2"}, {"name": "Y", "value": "3"},
                        {"name": "NO_PROXY", "value": "n"},
                        {"name": CONDITION_VARIABLE, "value": "c.v1"},
                    ],
                }],
                "tolerations": [{"key": "k"}, {"key": "l"}], "nodeSelector": {},
            })
        );
    }

    #[test]
    fn an_affinity_is_replaced_part_by_part() {
        let own = json!({"nodeAffinity": {"a": 1}, "podAffinity": {"b": 1}});
        for (given, expected) in [
            (json!({}), json!(null)),
            (json!({"podAffinity": {}}), json!({"nodeAffinity": {"a": 1}})),
            (json!({"podAntiAffinity": {}}), json!(null)),
            (
                json!({"nodeAffinity": {"a": 2}}),
                json!({"nodeAffinity": {"a": 2}, "podAffinity": {"b": 1}}),
            ),
        ] {
            let mut spec = json!({"template": {"spec": {"affinity": own}}});
            apply(&mut spec, &json!({"affinity": given}), "c");
            assert_eq!(spec["template"]["spec"]["affinity"], expected, "{given}");
        }
    }
}
