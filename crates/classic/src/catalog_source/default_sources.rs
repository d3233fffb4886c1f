//! The default catalogs of OpenShift: those that the OperatorHub of the cluster does not disable.

use serde_json::{Value, json};

use crate::cluster::{Cluster, annotation, items, put, text};
use crate::names;

/// The namespace of the default catalogs.
pub const NAMESPACE: &str = "openshift-marketplace";
/// The annotation that distinguishes default catalogs from those that users made, and its value.
const MANAGED_BY: (&str, &str) = ("operatorframework.io/managed-by", "marketplace-operator");

/// A default catalog.
struct DefaultSource {
    name: &'static str,
    display_name: &'static str,
    publisher: &'static str,
    image: &'static str,
    priority: i64,
}

const DEFAULTS: &[DefaultSource] = &[
    DefaultSource {
        name: "redhat-operators",
        display_name: "Red Hat Operators",
        publisher: "Red Hat",
        image: "registry.redhat.io/redhat/redhat-operator-index",
        priority: -100,
    },
    DefaultSource {
        name: "certified-operators",
        display_name: "Certified Operators",
        publisher: "Red Hat",
        image: "registry.redhat.io/redhat/certified-operator-index",
        priority: -200,
    },
    DefaultSource {
        name: "redhat-marketplace",
        display_name: "Red Hat Marketplace",
        publisher: "Red Hat",
        image: "registry.redhat.io/redhat/redhat-marketplace-index",
        priority: -300,
    },
    DefaultSource {
        name: "community-operators",
        display_name: "Community Operators",
        publisher: "Red Hat",
        image: "registry.redhat.io/redhat/community-operator-index",
        priority: -400,
    },
];

/// Result of a pass over an OperatorHub.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorHubDecision {
    /// CatalogSources to create or to put back, whole.
    pub written: Vec<Value>,
    /// CatalogSources to delete, as they are.
    pub deleted: Vec<Value>,
    /// The status of the OperatorHub after that.
    pub status: Value,
}

/// The default catalogs that an OperatorHub as it is on the wire asks for. `version` is that of OpenShift, like
/// `4.18.3`, and `cluster` has the CatalogSources.
///
/// A CatalogSource of the name of a disabled default that a user made stays as it is.
pub fn default_sources(hub: &Value, version: &str, cluster: &Cluster) -> OperatorHubDecision {
    let mut decision = OperatorHubDecision::default();
    let tag = tag(version);
    let mut sources = Vec::new();
    for default in DEFAULTS {
        let live = cluster.get(names::CATALOG_SOURCE_KIND, NAMESPACE, default.name);
        let is_disabled = is_disabled(hub, default.name);
        let mut fault = None;
        match (&tag, live) {
            (_, Some(live)) if is_disabled => {
                if annotation(live, MANAGED_BY.0) == MANAGED_BY.1 {
                    decision.deleted.push(live.clone());
                }
            }
            (_, None) if is_disabled => {}
            (Some(tag), live) => {
                let wanted = default_catalog_source(default, tag, live);
                if live != Some(&wanted) {
                    decision.written.push(wanted);
                }
            }
            (None, _) => {
                fault = Some(format!(
                    "cannot tell the image of the catalog: {version:?} is not a version of OpenShift"
                ));
            }
        }
        sources.push(source_status(default.name, is_disabled, fault.as_deref()));
    }
    for source in items(hub, "/spec/sources") {
        let name = text(source, "/name");
        if !DEFAULTS.iter().any(|default| default.name == name) {
            let is_disabled = source.get("disabled") == Some(&Value::Bool(true));
            let names: Vec<&str> = DEFAULTS.iter().map(|default| default.name).collect();
            let fault = format!("there is no such default source; there are {}", names.join(", "));
            sources.push(source_status(name, is_disabled, Some(&fault)));
        }
    }
    decision.status = json!({"sources": sources});
    decision
}

/// Whether a default catalog is disabled: its own entry comes before the rule for all.
fn is_disabled(hub: &Value, name: &str) -> bool {
    let mut entries = items(hub, "/spec/sources");
    let own = entries.find(|entry| text(entry, "/name") == name);
    let own = own.map(|own| own.get("disabled") == Some(&Value::Bool(true)));
    own.unwrap_or_else(|| hub.pointer("/spec/disableAllDefaultSources") == Some(&Value::Bool(true)))
}

fn source_status(name: &str, is_disabled: bool, fault: Option<&str>) -> Value {
    let mut status = json!({"name": name, "disabled": is_disabled, "status": "Success"});
    if let Some(fault) = fault {
        put(&mut status, &[], "status", "Error");
        put(&mut status, &[], "message", fault);
    }
    status
}

/// The tag of the catalogs of a version: that of its minor version.
fn tag(version: &str) -> Option<String> {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(major) && is_number(minor)).then(|| format!("v{major}.{minor}"))
}

/// The CatalogSource of a default catalog, with the metadata that users added to the live one.
fn default_catalog_source(default: &DefaultSource, tag: &str, live: Option<&Value>) -> Value {
    let mut wanted = live.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": names::CSV_API_VERSION, "kind": names::CATALOG_SOURCE_KIND,
            "metadata": {"namespace": NAMESPACE, "name": default.name},
        })
    });
    let path = ["metadata", "annotations"];
    for (key, value) in [
        MANAGED_BY,
        (
            "target.workload.openshift.io/management",
            r#"{"effect": "PreferredDuringScheduling"}"#,
        ),
        ("openshift.io/required-scc", "restricted-v2"),
    ] {
        put(&mut wanted, &path, key, value);
    }
    let unreachable = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 120});
    let spec = json!({
        "displayName": default.display_name,
        "grpcPodConfig": {
            "extractContent": {"cacheDir": "/tmp/cache", "catalogDir": "/configs"},
            "memoryTarget": "30Mi",
            "nodeSelector": {"kubernetes.io/os": "linux", "node-role.kubernetes.io/master": ""},
            "priorityClassName": "system-cluster-critical",
            "securityContextConfig": "restricted",
            "tolerations": [
                {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
                unreachable("node.kubernetes.io/unreachable"),
                unreachable("node.kubernetes.io/not-ready"),
            ],
        },
        "image": format!("{}:{tag}", default.image),
        "priority": default.priority,
        "publisher": default.publisher,
        "sourceType": "grpc",
        "updateStrategy": {"registryPoll": {"interval": "10m"}},
    });
    put(&mut wanted, &[], "spec", spec);
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(sources: &[Value]) -> Vec<&str> {
        sources
            .iter()
            .map(|source| text(source, "/metadata/name"))
            .collect()
    }

    #[test]
    fn the_entry_of_a_source_comes_before_the_rule_for_all() {
        let hub = json!({"spec": {
            "disableAllDefaultSources": true, "sources": [{"name": "community-operators", "disabled": false}],
        }});
        let decision = default_sources(&hub, "4.18.3", &Cluster::default());
        assert_eq!(names_of(&decision.written), ["community-operators"]);
        let image = text(&decision.written[0], "/spec/image");
        assert_eq!(image, "registry.redhat.io/redhat/community-operator-index:v4.18");
        assert_eq!(
            decision.status["sources"][0],
            json!({"name": "redhat-operators", "disabled": true, "status": "Success"})
        );
    }

    #[test]
    fn an_edited_source_is_put_back_and_a_disabled_one_deleted_unless_a_user_made_it() {
        let empty = default_sources(&json!({}), "4.18.3", &Cluster::default());
        assert_eq!(empty.written.len(), 4);
        let stored: Cluster = empty.written.iter().cloned().collect();
        let settled = default_sources(&json!({}), "4.18.3", &stored);
        assert_eq!((settled.written.len(), settled.deleted.len()), (0, 0));
        let mut edited = empty.written[0].clone();
        edited["spec"]["image"] = "registry.example/mine".into();
        edited["metadata"]["labels"] = json!({"team": "a"});
        let mut mine = empty.written[3].clone();
        mine["metadata"]["annotations"] = json!({});
        let cluster: Cluster = [edited, empty.written[1].clone(), mine].into_iter().collect();
        let hub = json!({"spec": {"sources": [
            {"name": "certified-operators", "disabled": true}, {"name": "redhat-marketplace", "disabled": true},
            {"name": "community-operators", "disabled": true},
        ]}});
        let decision = default_sources(&hub, "4.18.3", &cluster);
        assert_eq!(names_of(&decision.written), ["redhat-operators"]);
        assert_eq!(decision.written[0]["metadata"]["labels"]["team"], "a");
        assert_eq!(names_of(&decision.deleted), ["certified-operators"]);
    }

    #[test]
    fn what_cannot_be_done_is_an_error_of_its_source() {
        let hub = json!({"spec": {"sources": [{"name": "my-operators", "disabled": true}]}});
        let decision = default_sources(&hub, "", &Cluster::default());
        assert_eq!(decision.written, Vec::<Value>::new());
        let sources = decision.status["sources"].as_array().unwrap();
        assert_eq!(sources.len(), 5);
        assert!(sources.iter().all(|source| source["status"] == "Error"));
        let message = text(&sources[4], "/message");
        assert!(
            message.starts_with("there is no such default source"),
            "{message}"
        );
    }
}
