//! A ClusterServiceVersion from its first pass to its removal, each pass over the result of the last one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::cluster::{Cluster, Discovery};
use crate::install::{IssuedCertificate, Issuer};

struct Authority;

impl Issuer for Authority {
    fn issue(&self, hosts: &[String]) -> Result<IssuedCertificate, String> {
        let host = hosts.first().cloned().unwrap_or_default();
        Ok(IssuedCertificate {
            authority: "authority".to_owned(),
            certificate: format!("certificate of {host}"),
            key: "key".to_owned(),
            expires: "2028-01-01T00:00:00Z".parse().unwrap(),
        })
    }
}

const NOW: &str = "2026-01-01T00:00:00Z";

/// The objects of a namespace `n` with an OperatorGroup for itself.
struct World(Vec<Value>);

impl World {
    fn with(objects: Vec<Value>) -> Self {
        let group = json!({
            "kind": "OperatorGroup", "metadata": {"name": "g", "namespace": "n", "uid": "g"},
            "spec": {"targetNamespaces": ["n"]}, "status": {"namespaces": ["n"]},
        });
        let mut all = vec![group];
        all.extend(objects);
        Self(all)
    }

    fn put(&mut self, object: Value) {
        let key = |object: &Value| {
            let metadata = &object["metadata"];
            [
                object["kind"].clone(),
                metadata["namespace"].clone(),
                metadata["name"].clone(),
            ]
        };
        self.0.retain(|found| key(found) != key(&object));
        self.0.push(object);
    }

    fn csv(&self, name: &str) -> &Value {
        let is_meant =
            |object: &&Value| object["kind"] == "ClusterServiceVersion" && object["metadata"]["name"] == name;
        self.0.iter().find(is_meant).unwrap()
    }

    /// One pass; returns the objects that it deletes.
    fn pass(&mut self, name: &str) -> Vec<(String, String, String)> {
        let cluster: Cluster = self.0.iter().cloned().collect();
        let served = [("apps/v1".to_owned(), BTreeSet::from(["Deployment".to_owned()]))];
        let discovery: Discovery = served.into_iter().collect();
        let facts = ClusterFacts {
            cluster: &cluster,
            discovery: &discovery,
            server_version: Some("v1.36.0"),
        };
        let decision = pass(self.csv(name), &facts, &Authority, NOW.parse().unwrap()).unwrap();
        self.put(decision.csv);
        for object in decision.written {
            self.put(object);
        }
        decision.deleted
    }

    /// What the next pass over `v1` says about its Deployments.
    fn unready(&self) -> Option<UnreadyDeployments> {
        let cluster: Cluster = self.0.iter().cloned().collect();
        let facts = ClusterFacts {
            cluster: &cluster,
            discovery: &Discovery::default(),
            server_version: Some("v1.36.0"),
        };
        let decision = pass(self.csv("v1"), &facts, &Authority, NOW.parse().unwrap()).unwrap();
        decision.unready
    }

    fn phase(&self, name: &str) -> (&str, &str) {
        let status = &self.csv(name)["status"];
        (
            status["phase"].as_str().unwrap_or_default(),
            status["reason"].as_str().unwrap_or_default(),
        )
    }

    /// Stands in for the controllers of Kubernetes.
    fn run_deployments(&mut self) {
        for object in &mut self.0 {
            if object["kind"] == "Deployment" {
                object["status"] = json!({
                    "replicas": 1, "updatedReplicas": 1, "conditions": [{"type": "Available", "status": "True"}],
                });
            }
        }
    }
}

fn csv(name: &str, replaces: &str) -> Value {
    json!({
        "kind": "ClusterServiceVersion", "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {
            "replaces": replaces,
            "installModes": [{"type": "OwnNamespace", "supported": true}],
            "install": {"strategy": "deployment", "spec": {"deployments": [{"name": "d", "spec": {
                "selector": {"matchLabels": {"app": "d"}},
                "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": name}]}},
            }}]}},
        },
    })
}

fn installed() -> World {
    installed_as(csv("v1", ""))
}

fn installed_as(csv: Value) -> World {
    let mut world = World::with(vec![csv]);
    for _ in 0..4 {
        world.pass("v1");
    }
    world.run_deployments();
    world.pass("v1");
    world
}

#[test]
fn an_operator_is_installed_pass_by_pass() {
    let mut world = World::with(vec![csv("v1", "")]);
    let mut seen = Vec::new();
    for _ in 0..5 {
        world.pass("v1");
        let (phase, reason) = world.phase("v1");
        seen.push(format!("{phase}/{reason}"));
    }
    world.run_deployments();
    world.pass("v1");
    let (phase, reason) = world.phase("v1");
    seen.push(format!("{phase}/{reason}"));
    assert_eq!(
        seen,
        [
            "/", // The annotations of its OperatorGroup.
            "Pending/RequirementsUnknown",
            "InstallReady/AllRequirementsMet",
            "Installing/InstallSucceeded",
            "Installing/InstallWaiting",
            "Succeeded/InstallSucceeded",
        ]
    );
    let before = world.0.clone();
    world.pass("v1");
    assert_eq!(world.0, before, "a pass over what is well changes nothing");
}

#[test]
fn the_old_one_goes_when_the_new_one_has_succeeded() {
    let mut world = installed();
    world.put(csv("v2", "v1"));
    world.pass("v2");
    world.pass("v2");
    assert_eq!(world.phase("v2").0, "Pending");
    world.pass("v2");
    assert_eq!(world.phase("v2").0, "Pending", "the old one is not replaced yet");
    world.pass("v1");
    assert_eq!(world.phase("v1"), ("Replacing", "BeingReplaced"));
    world.pass("v2");
    world.pass("v2");
    assert_eq!(world.phase("v2").0, "Installing");
    world.pass("v1");
    assert_eq!(world.phase("v1").0, "Replacing");
    world.run_deployments();
    world.pass("v2");
    assert_eq!(world.phase("v2").0, "Succeeded");
    world.pass("v1");
    assert_eq!(world.phase("v1"), ("Deleting", "Replaced"));
    let gone = world.pass("v1");
    assert_eq!(
        gone,
        [(
            "ClusterServiceVersion".to_owned(),
            "n".to_owned(),
            "v1".to_owned()
        )]
    );
}

#[test]
fn a_deployment_that_was_changed_by_hand_is_installed_again() {
    let mut world = installed();
    for object in &mut world.0 {
        if object["kind"] == "Deployment" {
            object["metadata"]["labels"]["olm.deployment-spec-hash"] = json!("other");
        }
    }
    world.pass("v1");
    assert_eq!(world.phase("v1"), ("InstallReady", "ComponentUnhealthy"));
    world.pass("v1");
    world.run_deployments();
    world.pass("v1");
    assert_eq!(world.phase("v1").0, "Succeeded");
}

#[test]
fn a_deployment_as_it_should_be_that_does_not_run_is_only_unready() {
    let unready = |change: &dyn Fn(&mut Value)| {
        let mut world = installed();
        for object in world.0.iter_mut().filter(|object| object["kind"] == "Deployment") {
            change(object);
        }
        world.unready()
    };
    let down = |object: &mut Value| object["status"]["conditions"][0]["status"] = json!("False");
    assert_eq!(unready(&|_| ()), None, "it runs");
    assert_eq!(unready(&down), Some(UnreadyDeployments::Unavailable));
    let rolling = unready(&|object| {
        object["metadata"]["generation"] = json!(2);
        object["status"]["observedGeneration"] = json!(1);
        object["spec"]["template"]["metadata"]["annotations"]["restartedAt"] = json!("now");
    });
    assert_eq!(rolling, Some(UnreadyDeployments::RollingOut));
    let check = |change: &dyn Fn(&mut Value)| {
        let state = unready(&|object| {
            down(object);
            change(object);
        });
        assert_eq!(state, None);
    };
    check(&|object| object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other"));
    check(&|object| object["spec"]["template"]["spec"]["containers"] = json!([]));
    check(&|object| object["metadata"]["labels"]["olm.deployment-spec-hash"] = json!("other"));
    check(&|object| object["spec"]["template"]["metadata"]["annotations"] = json!({}));
    check(&|object| {
        object["status"]["conditions"] =
            json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
    });
    check(&|object| object["metadata"]["name"] = json!("elsewhere"));
}

#[test]
fn a_deployment_as_the_api_server_stores_it_is_as_it_should_be() {
    let container = "/spec/install/spec/deployments/0/spec/template/spec/containers/0";
    let mut csv = csv("v1", "");
    let wanted = csv.pointer_mut(container).unwrap();
    wanted["resources"] =
        json!({"requests": {"cpu": 0.5, "memory": "1024Mi"}, "limits": {"cpu": 1, "memory": "1.5Gi"}});
    wanted["env"] = json!([{"name": "EMPTY", "value": ""}]);
    wanted["stdin"] = json!(false);
    wanted["unknown"] = json!("field");
    let unready = |memory: &str| {
        let mut world = installed_as(csv.clone());
        for object in world.0.iter_mut().filter(|object| object["kind"] == "Deployment") {
            let found = &mut object["spec"]["template"]["spec"]["containers"][0];
            found["resources"] = json!({"requests": {"cpu": "500m", "memory": memory}, "limits": {"cpu": "1", "memory": "1536Mi"}});
            found["env"][0] = json!({"name": "EMPTY"});
            found["imagePullPolicy"] = json!("IfNotPresent");
            found
                .as_object_mut()
                .unwrap()
                .retain(|key, _| key != "stdin" && key != "unknown");
            object["status"]["conditions"][0]["status"] = json!("False");
        }
        world.unready()
    };
    assert_eq!(unready("1Gi"), Some(UnreadyDeployments::Unavailable));
    assert_eq!(unready("2Gi"), None, "it was changed");
}

/// A ClusterServiceVersion that has installed an aggregated API, whose APIService counts as available.
fn aggregated(discovery: &Discovery, phase: &str) -> CsvDecision {
    let mut object = csv("v1", "");
    object["spec"]["apiservicedefinitions"] = json!({"owned": [
        {"name": "ks", "group": "g", "version": "v1", "kind": "K", "deploymentName": "d"},
    ]});
    object["status"] = json!({"phase": phase, "reason": "R", "message": "m"});
    let service = json!({
        "kind": "APIService", "metadata": {"name": "v1.g", "labels": {
            "olm.owner": "v1", "olm.owner.namespace": "n", "olm.owner.kind": "ClusterServiceVersion",
        }},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    });
    let cluster: Cluster = World::with(vec![object.clone(), service]).0.into_iter().collect();
    let facts = ClusterFacts {
        cluster: &cluster,
        discovery,
        server_version: None,
    };
    let mut pass = CsvPass {
        facts: &facts,
        issuer: &Authority,
        csv: ClusterServiceVersion::read(&object).unwrap(),
        now: NOW.parse().unwrap(),
        decision: CsvDecision {
            csv: object,
            ..CsvDecision::default()
        },
    };
    let waiting = health::WaitingStatus {
        phase: "Installing",
        reason: "InstallWaiting",
    };
    assert!(!health::check(&mut pass, &[], &waiting));
    pass.decision
}

#[test]
fn a_server_that_does_not_answer_for_the_moment_changes_no_phase() {
    let mut discovery = Discovery::default();
    discovery.note_unavailable("g", "v1");
    for phase in ["Installing", "Succeeded", "Failed"] {
        let decision = aggregated(&discovery, phase);
        assert!(decision.is_unanswered && decision.error.is_some());
        assert_eq!(
            decision.csv["status"],
            json!({"phase": phase, "reason": "R", "message": "m"})
        );
    }
}

#[test]
fn a_kind_that_its_server_lacks_is_waited_for() {
    let mut discovery = Discovery::default();
    discovery.note("g", "v1", None);
    let decision = aggregated(&discovery, "Succeeded");
    assert!(!decision.is_unanswered);
    assert_eq!(
        decision.csv["status"]["message"], "apiServices not installed",
        "{}",
        decision.csv["status"]
    );
    let unknown = aggregated(&Discovery::default(), "Succeeded");
    assert_eq!(unknown.csv["status"]["reason"], "APIServiceInstallFailed");
}
