//! Installation: from a new ClusterServiceVersion to Succeeded.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, Stage, csv, definition, deployment, named};
use olm_test::world::eventually;

#[test]
fn a_csv_in_an_operator_group_is_installed() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("plain", json!({}))?;
        stage.lab.apply(&[csv("plain", "plain.v1", &json!({}))])?;
        let done = stage
            .phase("plain", "plain.v1", "Succeeded", "InstallSucceeded")
            .await?;
        ensure!(done["status"]["message"] == "install strategy completed with no errors");
        ensure!(done["metadata"]["finalizers"] == json!(["operators.coreos.com/csv-cleanup"]));
        let annotations = &done["metadata"]["annotations"];
        ensure!(annotations["olm.operatorGroup"] == "group" && annotations["olm.targetNamespaces"] == "");
        let found = stage
            .get(&named("apps/v1", "Deployment", "plain", "plain-operator"))
            .await?;
        let found = found.unwrap_or_default();
        ensure!(found["metadata"]["labels"]["olm.owner"] == "plain.v1");
        ensure!(found["metadata"]["ownerReferences"][0]["uid"] == done["metadata"]["uid"]);
        let container = &found["spec"]["template"]["spec"]["containers"][0];
        ensure!(container["env"] == json!([{"name": "OPERATOR_CONDITION_NAME", "value": "plain.v1"}]));
        Ok(())
    })
}

#[test]
fn a_missing_definition_is_named_and_its_arrival_continues_at_once() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("needy", json!({}))?;
        let required = json!({"customresourcedefinitions": {"required": [
            {"name": "greetings.needy.example", "version": "v1", "kind": "Greeting"},
        ]}});
        stage.lab.apply(&[csv("needy", "needy.v1", &required)])?;
        let waiting = stage
            .phase("needy", "needy.v1", "Pending", "RequirementsNotMet")
            .await?;
        let row = &waiting["status"]["requirementStatus"][0];
        ensure!(
            row["name"] == "greetings.needy.example" && row["status"] == "NotPresent",
            "{row}"
        );
        ensure!(
            waiting["status"]["message"]
                == "one or more requirements couldn't be found: CustomResourceDefinition greetings.needy.example: CRD \
                    is not present",
            "{}",
            waiting["status"]["message"]
        );
        stage.lab.apply(&[definition("needy", "greetings", "Greeting")])?;
        let begin = std::time::Instant::now();
        stage
            .phase("needy", "needy.v1", "Succeeded", "InstallSucceeded")
            .await?;
        ensure!(begin.elapsed().as_secs() < 20, "it took {:?}", begin.elapsed());
        Ok(())
    })
}

#[test]
fn a_deleted_or_unlabelled_deployment_is_installed_again() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("drift", json!({}))?;
        stage.lab.apply(&[csv("drift", "drift.v1", &json!({}))])?;
        stage.phase("drift", "drift.v1", "Succeeded", "InstallSucceeded").await?;
        let live = named("apps/v1", "Deployment", "drift", "drift-operator");
        let before = stage.get(&live).await?.unwrap_or_default();
        stage.delete(&live).await?;
        stage
            .becomes("the Deployment is back", &live, |found| {
                found["metadata"]["uid"] != before["metadata"]["uid"]
            })
            .await?;
        stage.phase("drift", "drift.v1", "Succeeded", "InstallSucceeded").await?;
        let patch = json!({
            "metadata": {"labels": {"olm.deployment-spec-hash": null}},
            "spec": {"template": {"spec": {"containers": [{"name": "operator", "image": "other.example/x:v1"}]}}},
        });
        stage.patch(&live, &patch).await?;
        stage
            .becomes("the image is that of the strategy", &live, |found| {
                found["spec"]["template"]["spec"]["containers"][0]["image"] == "operator.example/operator:v1"
                    && found["metadata"]["labels"]["olm.deployment-spec-hash"].is_string()
            })
            .await?;
        stage.phase("drift", "drift.v1", "Succeeded", "InstallSucceeded").await?;
        Ok(())
    })
}

#[test]
fn deployments_that_the_strategy_no_longer_names_are_deleted() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("orphan", json!({}))?;
        let strategy = |names: &[&str]| {
            let deployments: Vec<_> = names.iter().map(|name| deployment(name)).collect();
            json!({"install": {"strategy": "deployment", "spec": {"deployments": deployments}}})
        };
        stage
            .lab
            .apply(&[csv("orphan", "orphan.v1", &strategy(&["one", "two"]))])?;
        stage
            .phase("orphan", "orphan.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage
            .lab
            .apply(&[csv("orphan", "orphan.v1", &strategy(&["one", "three"]))])?;
        stage
            .goes(&named("apps/v1", "Deployment", "orphan", "two"))
            .await?;
        let three = named("apps/v1", "Deployment", "orphan", "three");
        eventually("the new one is there", SOON, async || stage.get(&three).await).await?;
        stage
            .phase("orphan", "orphan.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}

#[test]
fn the_configuration_of_a_subscription_is_laid_over_the_deployment() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("configured", json!({}))?;
        stage
            .lab
            .apply(&[csv("configured", "configured.v1", &json!({}))])?;
        stage
            .phase("configured", "configured.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let mut subscription = named(
            "operators.coreos.com/v1alpha1",
            "Subscription",
            "configured",
            "configured",
        );
        subscription["spec"] = json!({
            "name": "configured", "channel": "a", "source": "s", "sourceNamespace": "n",
            "config": {"env": [{"name": "LEVEL", "value": "3"}]},
        });
        stage.lab.apply(std::slice::from_ref(&subscription))?;
        let status = json!({"status": {
            "installedCSV": "configured.v1", "currentCSV": "configured.v1", "lastUpdated": "2026-01-01T00:00:00Z",
        }});
        stage.patch_status(&subscription, &status).await?;
        let live = named("apps/v1", "Deployment", "configured", "configured-operator");
        stage
            .becomes("the variable is set", &live, |found| {
                let container = &found["spec"]["template"]["spec"]["containers"][0];
                container["env"][0] == json!({"name": "LEVEL", "value": "3"})
            })
            .await?;
        stage
            .phase("configured", "configured.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}

#[test]
fn operators_get_the_proxy_of_an_openshift_cluster() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let mut served = definition("config", "proxies", "Proxy");
        served["metadata"]["name"] = json!("proxies.config.openshift.io");
        served["spec"]["group"] = json!("config.openshift.io");
        served["spec"]["scope"] = json!("Cluster");
        stage.lab.apply(std::slice::from_ref(&served))?;
        let outcome = proxied(stage).await;
        stage.delete(&served).await?;
        stage.goes(&served).await?;
        outcome
    })
}

async fn proxied(stage: &mut Stage) -> Result<()> {
    let mut proxy = named("config.openshift.io/v1", "Proxy", "", "cluster");
    proxy["status"] = json!({"httpsProxy": "http://proxy.example:3128", "noProxy": ".svc"});
    eventually("the API server takes a proxy", SOON, async || {
        Ok(stage
            .lab
            .apply(std::slice::from_ref(&proxy))
            .is_ok()
            .then_some(()))
    })
    .await?;
    stage.group("proxied", json!({}))?;
    stage.lab.apply(&[csv("proxied", "proxied.v1", &json!({}))])?;
    let live = named("apps/v1", "Deployment", "proxied", "proxied-operator");
    let has = |variables: Value| {
        move |found: &Value| found["spec"]["template"]["spec"]["containers"][0]["env"] == variables
    };
    let condition = json!({"name": "OPERATOR_CONDITION_NAME", "value": "proxied.v1"});
    let expected = json!([
        {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"},
        {"name": "NO_PROXY", "value": ".svc"},
        condition,
    ]);
    stage
        .becomes("the container has the proxy", &live, has(expected.clone()))
        .await?;
    stage
        .phase("proxied", "proxied.v1", "Succeeded", "InstallSucceeded")
        .await?;
    // A program that starts does not roll out without the proxy.
    let before = stage.get(&live).await?.unwrap_or_default();
    stage.operator.stop().await?;
    stage.operator.start(&stage.lab.cluster)?;
    stage.operator.ready().await?;
    crate::rest::quiet(stage).await?;
    let after = stage.get(&live).await?.unwrap_or_default();
    ensure!(after["metadata"]["generation"] == before["metadata"]["generation"]);
    stage.delete(&proxy).await?;
    stage
        .becomes("the container has no proxy", &live, has(json!([condition])))
        .await?;
    stage
        .phase("proxied", "proxied.v1", "Succeeded", "InstallSucceeded")
        .await?;
    Ok(())
}

#[test]
fn a_rollout_and_a_drain_leave_the_phase_of_a_healthy_operator() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let (namespace, version) = ("rolling", "rolling.v1");
        stage.group(namespace, json!({}))?;
        stage.lab.apply(&[csv(namespace, version, &json!({}))])?;
        let before = stage
            .phase(namespace, version, "Succeeded", "InstallSucceeded")
            .await?;
        let live = named("apps/v1", "Deployment", namespace, "rolling-operator");
        let is_available = |found: &Value| {
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|found| found["type"] == "Available" && found["status"] == "True")
        };
        let is_rolled_out = |found: &Value| {
            found["metadata"]["generation"] == found["status"]["observedGeneration"]
                && found["status"]["updatedReplicas"] == found["status"]["replicas"]
                && is_available(found)
        };
        let deployment = "deployment/rolling-operator";
        stage
            .lab
            .kubectl(&["rollout", "restart", deployment, "-n", namespace])?;
        let restarted = |found: &Value| {
            let annotations = &found["spec"]["template"]["metadata"]["annotations"];
            annotations["kubectl.kubernetes.io/restartedAt"].is_string() && is_rolled_out(found)
        };
        stage.becomes("it is rolled out", &live, restarted).await?;

        let nodes = stage.lab.kubectl(&["get", "nodes", "-o", "name"])?;
        let nodes: Vec<&str> = nodes.lines().collect();
        stage.lab.kubectl(&[&["cordon"], &nodes[..]].concat())?;
        stage
            .lab
            .kubectl(&["delete", "pods", "--all", "-n", namespace, "--wait=false"])?;
        let down = stage
            .becomes("no Pod runs", &live, |found| !is_available(found))
            .await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        stage.lab.kubectl(&[&["uncordon"], &nodes[..]].concat())?;
        down?;
        stage.becomes("it runs again", &live, is_rolled_out).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = stage
            .phase(namespace, version, "Succeeded", "InstallSucceeded")
            .await?;
        ensure!(after["status"] == before["status"], "{after}");
        Ok(())
    })
}
