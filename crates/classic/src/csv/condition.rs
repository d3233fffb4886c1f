//! OperatorConditions: one for each ClusterServiceVersion, by which an operator says whether it may be replaced, and
//! its right to write it.

use serde_json::{Value, json};

use super::ClusterServiceVersion;
use crate::cluster::{Cluster, items, object_at, put, text};
use crate::names;

const API_VERSION: &str = "operators.coreos.com/v2";
/// The account of an operator whose strategy names none.
const DEFAULT_ACCOUNT: &str = "default";

/// Result of a pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorConditionDecision {
    /// The objects to write, whole: those that the cluster lacks or holds with other content.
    pub written: Vec<Value>,
}

/// One pass over the OperatorCondition of a ClusterServiceVersion on the wire, with the same name: the condition
/// itself, then its role and binding, then its status. A pass that makes the condition ends there: its UID is not known
/// yet.
pub fn pass(object: &Value, csv: &ClusterServiceVersion, cluster: &Cluster) -> OperatorConditionDecision {
    let (place, name) = (csv.metadata.namespace.as_str(), csv.metadata.name.as_str());
    let found = cluster.get(names::OPERATOR_CONDITION_KIND, place, name);
    let mut condition = found.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": API_VERSION, "kind": names::OPERATOR_CONDITION_KIND,
            "metadata": {"namespace": place, "name": name},
        })
    });
    let accounts = accounts(csv);
    let strategy = csv.spec.install.spec.deployments.iter();
    let deployments: Vec<&str> = strategy.map(|entry| entry.name.as_str()).collect();
    put(&mut condition, &["spec"], "serviceAccounts", json!(accounts));
    put(&mut condition, &["spec"], "deployments", json!(deployments));
    put(
        &mut condition,
        &["metadata"],
        "ownerReferences",
        json!([owner(object)]),
    );
    put(
        &mut condition,
        &["metadata", "labels"],
        names::MANAGED_LABEL,
        "true",
    );
    let mut decision = OperatorConditionDecision::default();
    let Some(found) = found else {
        decision.written.push(condition);
        return decision;
    };
    if follow(&mut condition) || condition != *found {
        decision.written.push(condition.clone());
    }
    let rights = rights(&condition, &accounts, place);
    let is_missing = |wanted: &Value| {
        let found = cluster.get(text(wanted, "/kind"), place, name);
        found.is_none_or(|found| !holds(found, wanted))
    };
    decision.written.extend(rights.into_iter().filter(is_missing));
    decision
}

/// The accounts of an operator: first those with rights in the whole cluster, each as often as it is named.
fn accounts(csv: &ClusterServiceVersion) -> Vec<String> {
    let strategy = &csv.spec.install.spec;
    let entries = strategy.cluster_permissions.iter().chain(&strategy.permissions);
    let accounts: Vec<String> = entries.map(|entry| entry.service_account_name.clone()).collect();
    if accounts.is_empty() {
        vec![DEFAULT_ACCOUNT.to_owned()]
    } else {
        accounts
    }
}

fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object.get("apiVersion"),
        "kind": object.get("kind"),
        "name": text(object, "/metadata/name"),
        "uid": text(object, "/metadata/uid"),
        "controller": true,
        "blockOwnerDeletion": false,
    })
}

/// Takes the conditions that the operator wrote over into the status; whether it is another one then.
fn follow(condition: &mut Value) -> bool {
    let generation = condition.pointer("/metadata/generation").cloned();
    let generation = generation.unwrap_or_else(|| 0.into());
    let before: Vec<Value> = items(condition, "/status/conditions").cloned().collect();
    let wanted: Vec<Value> = items(condition, "/spec/conditions").cloned().collect();
    // One that the operator has withdrawn holds nothing up any longer. An operator that writes the status itself has no
    // list.
    let is_list = condition.pointer("/spec/conditions").is_some_and(Value::is_array);
    let is_kept = |known: &&Value| {
        !is_list
            && !wanted
                .iter()
                .any(|reported| text(reported, "/type") == text(known, "/type"))
    };
    let mut after: Vec<Value> = before.iter().filter(is_kept).cloned().collect();
    for mut reported in wanted.clone() {
        let known = before
            .iter()
            .find(|known| text(known, "/type") == text(&reported, "/type"));
        if let Some(fields) = reported.as_object_mut() {
            fields.insert("observedGeneration".to_owned(), generation.clone());
        }
        match known {
            Some(known) if is_same(known, &reported) => after.push(known.clone()),
            _ => after.push(reported),
        }
    }
    if after == before {
        return false;
    }
    if let Some(status) = object_at(condition, &["status"]) {
        status.insert("conditions".to_owned(), after.into());
    }
    true
}

/// Whether two conditions say the same of the same generation.
fn is_same(known: &Value, reported: &Value) -> bool {
    ["type", "status", "reason", "message", "observedGeneration"]
        .iter()
        .all(|key| known.get(*key) == reported.get(*key))
}

/// The role that lets the accounts write the condition, and its binding.
fn rights(condition: &Value, accounts: &[String], place: &str) -> [Value; 2] {
    let name = text(condition, "/metadata/name");
    let metadata = json!({
        "namespace": place, "name": name, "labels": {names::MANAGED_LABEL: "true"},
        "ownerReferences": [owner(condition)],
    });
    let mut distinct: Vec<&String> = accounts.iter().collect();
    distinct.sort();
    distinct.dedup();
    let subjects: Vec<Value> = distinct
        .into_iter()
        .map(|account| json!({"kind": "ServiceAccount", "name": account}))
        .collect();
    [
        json!({
            "apiVersion": names::RBAC_API_VERSION, "kind": "Role", "metadata": metadata,
            "rules": [{
                "verbs": ["get", "update", "patch"], "apiGroups": [names::GROUP],
                "resources": ["operatorconditions"], "resourceNames": [name],
            }],
        }),
        json!({
            "apiVersion": names::RBAC_API_VERSION, "kind": "RoleBinding", "metadata": metadata,
            "subjects": subjects,
            "roleRef": {"apiGroup": names::RBAC_GROUP, "kind": "Role", "name": name},
        }),
    ]
}

/// Whether an object has all fields of the wanted one.
fn holds(found: &Value, wanted: &Value) -> bool {
    ["/rules", "/subjects", "/roleRef", "/metadata/ownerReferences"]
        .iter()
        .all(|part| found.pointer(part) == wanted.pointer(part))
        && found
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(names::MANAGED_LABEL))
            == Some(&json!("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        json!({
            "apiVersion": names::CSV_API_VERSION, "kind": names::CSV_KIND,
            "metadata": {"namespace": "n", "name": "c.v1", "uid": "u"},
            "spec": {"install": {"strategy": "deployment", "spec": {
                "deployments": [{"name": "d"}],
                "permissions": [{"serviceAccountName": "b"}], "clusterPermissions": [{"serviceAccountName": "a"}],
            }}},
        })
    }

    fn passed(cluster: &Cluster) -> Vec<Value> {
        let object = object();
        pass(&object, &ClusterServiceVersion::read(&object).unwrap(), cluster).written
    }

    /// The cluster after passes until nothing is written.
    fn settled(mut objects: Vec<Value>) -> Vec<Value> {
        for _ in 0..5 {
            let cluster: Cluster = objects.iter().cloned().collect();
            let written = passed(&cluster);
            if written.is_empty() {
                return objects;
            }
            for object in written {
                objects.retain(|found| found["kind"] != object["kind"]);
                objects.push(object);
            }
        }
        panic!("passes do not end");
    }

    #[test]
    fn a_condition_has_the_accounts_and_deployments_and_a_role_to_write_it() {
        let objects = settled(Vec::new());
        let kinds: Vec<&str> = objects.iter().map(|object| text(object, "/kind")).collect();
        assert_eq!(kinds, ["OperatorCondition", "Role", "RoleBinding"]);
        assert_eq!(
            objects[0]["spec"],
            json!({"serviceAccounts": ["a", "b"], "deployments": ["d"]})
        );
        assert_eq!(objects[0]["metadata"]["ownerReferences"][0]["controller"], true);
        for object in &objects {
            assert_eq!(object["metadata"]["labels"], json!({"olm.managed": "true"}));
        }
        assert_eq!(objects[1]["rules"][0]["resourceNames"], json!(["c.v1"]));
        assert_eq!(
            objects[2]["subjects"][1],
            json!({"kind": "ServiceAccount", "name": "b"})
        );
    }

    #[test]
    fn a_condition_gets_the_label_of_olm_back() {
        let mut objects = settled(Vec::new());
        objects[0]["metadata"]["labels"] = json!({"mine": "x"});
        let objects = settled(objects);
        let condition = objects
            .iter()
            .find(|object| object["kind"] == "OperatorCondition");
        assert_eq!(
            condition.unwrap()["metadata"]["labels"],
            json!({"mine": "x", "olm.managed": "true"})
        );
    }

    #[test]
    fn what_the_operator_says_is_in_the_status_with_its_generation() {
        let mut objects = settled(Vec::new());
        let reported = json!({
            "type": "Upgradeable", "status": "False", "reason": "Busy", "message": "m", "lastTransitionTime": "t",
        });
        objects[0]["metadata"]["generation"] = json!(2);
        objects[0]["spec"]["conditions"] = json!([reported]);
        objects[0]["spec"]["overrides"] = json!([{"type": "x"}]);
        let mut objects = settled(objects);
        let at = objects
            .iter()
            .position(|object| object["kind"] == "OperatorCondition")
            .unwrap();
        let status = objects[at]["status"]["conditions"][0].clone();
        assert_eq!(
            (&status["status"], &status["observedGeneration"]),
            (&json!("False"), &json!(2))
        );
        assert_eq!(objects[at]["spec"]["overrides"], json!([{"type": "x"}]));
        objects[at]["metadata"]["generation"] = json!(3);
        objects[at]["spec"]["conditions"] = json!([]);
        let objects = settled(objects);
        let condition = objects
            .iter()
            .find(|object| object["kind"] == "OperatorCondition")
            .unwrap();
        assert_eq!(condition["status"]["conditions"], json!([]));
    }
}
