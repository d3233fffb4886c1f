//! The container images that objects run.

use std::collections::BTreeSet;

use olm_api::object::text;
use serde::Serialize;
use serde_json::Value;

/// The paths of Pod specifications in the kinds that run Pods.
const POD_SPECS: [&str; 3] = [
    "/spec/template/spec",
    "/spec/jobTemplate/spec/template/spec",
    "/spec",
];
/// Kinds that run Pods.
const WORKLOADS: [&str; 8] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Pod",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
];
/// The prefix of the environment variables that give an operator its operand images.
const RELATED: &str = "RELATED_IMAGE_";

/// The images that are added, removed and kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Images {
    /// Images that only the new revision has.
    pub added: BTreeSet<String>,
    /// Images that only the old revision has.
    pub removed: BTreeSet<String>,
    /// Images that both have.
    pub kept: BTreeSet<String>,
}

/// Compares the images of two revisions.
pub fn images(before: &[&Value], after: &[&Value]) -> Images {
    let (before, after) = (of(before), of(after));
    Images {
        added: after.difference(&before).cloned().collect(),
        removed: before.difference(&after).cloned().collect(),
        kept: before.intersection(&after).cloned().collect(),
    }
}

/// The images of containers and of volumes, and those in variables `RELATED_IMAGE_…`.
pub fn of(objects: &[&Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for object in objects {
        let kind = text(object, "/kind");
        if !WORKLOADS.contains(&kind) {
            continue;
        }
        let specs = POD_SPECS.iter().filter_map(|pointer| object.pointer(pointer));
        let volumes = specs.clone().filter_map(|spec| spec.get("volumes")?.as_array());
        let mounted = volumes
            .flatten()
            .filter_map(|volume| volume.pointer("/image/reference")?.as_str());
        found.extend(mounted.map(str::to_owned));
        let lists = specs.flat_map(|spec| {
            ["containers", "initContainers"]
                .iter()
                .filter_map(move |list| spec.get(list)?.as_array())
        });
        for container in lists.flatten() {
            found.extend(container.get("image").and_then(Value::as_str).map(str::to_owned));
            let variables = container.get("env").and_then(Value::as_array);
            let related = variables.into_iter().flatten().filter(|variable| {
                let name = variable.get("name").and_then(Value::as_str);
                name.is_some_and(|name| name.starts_with(RELATED))
            });
            let values = related.filter_map(|variable| variable.get("value")?.as_str());
            found.extend(values.map(str::to_owned));
        }
    }
    found.remove("");
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_of_containers_and_those_handed_to_operators_come_go_and_stay() {
        let deployment = |image: &str, related: &str| {
            json!({"kind": "Deployment", "spec": {"template": {"spec": {
                "initContainers": [{"image": "init"}],
                "volumes": [{"image": {"reference": "model"}}, {"emptyDir": {}}],
                "containers": [{"image": image, "env": [
                    {"name": "RELATED_IMAGE_DB", "value": related}, {"name": "OTHER", "value": "no-image"},
                    {"name": "RELATED_IMAGE_REF", "valueFrom": {}},
                ]}],
            }}}})
        };
        let job = json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": {
            "containers": [{"image": "job"}]}}}}}});
        let other = json!({"kind": "ConsolePlugin", "spec": {"containers": [{"image": "no"}]}});
        let (old, new) = (deployment("op:1", "db:1"), deployment("op:2", "db:1"));
        let found = images(&[&old, &other], &[&new, &job]);
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            found,
            Images {
                added: set(&["op:2", "job"]),
                removed: set(&["op:1"]),
                kept: set(&["init", "db:1", "model"]),
            }
        );
    }
}
