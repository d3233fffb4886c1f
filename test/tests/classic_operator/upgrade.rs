//! Upgrades: one version replaces another.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::stage::{CLUSTER, csv, named};

fn condition(namespace: &str, name: &str) -> Value {
    named("operators.coreos.com/v2", "OperatorCondition", namespace, name)
}

#[test]
fn a_new_version_takes_the_deployment_over_and_the_old_one_goes() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("lift", json!({}))?;
        let old = csv("lift", "lift.v1", &json!({}));
        stage.lab.apply(std::slice::from_ref(&old))?;
        stage
            .phase("lift", "lift.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let live = named("apps/v1", "Deployment", "lift", "lift-operator");
        let before = stage.get(&live).await?.unwrap_or_default();
        stage.lab.apply(&[csv(
            "lift",
            "lift.v2",
            &json!({"replaces": "lift.v1", "version": "2.0.0"}),
        )])?;
        let new = stage
            .phase("lift", "lift.v2", "Succeeded", "InstallSucceeded")
            .await?;
        stage.goes(&old).await?;
        stage.goes(&condition("lift", "lift.v1")).await?;
        let after = stage.get(&live).await?.unwrap_or_default();
        ensure!(
            after["metadata"]["uid"] == before["metadata"]["uid"],
            "it was made anew"
        );
        ensure!(after["metadata"]["labels"]["olm.owner"] == "lift.v2");
        let owners = after["metadata"]["ownerReferences"]
            .as_array()
            .map_or(0, Vec::len);
        ensure!(owners == 1 && after["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]);
        Ok(())
    })
}

#[test]
fn a_chain_of_three_ends_with_the_last() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("chain", json!({}))?;
        let versions = [
            csv("chain", "chain.v1", &json!({})),
            csv("chain", "chain.v2", &json!({"replaces": "chain.v1"})),
            csv("chain", "chain.v3", &json!({"replaces": "chain.v2"})),
        ];
        stage.lab.apply(&versions)?;
        stage
            .phase("chain", "chain.v3", "Succeeded", "InstallSucceeded")
            .await?;
        stage.goes(&versions[0]).await?;
        stage.goes(&versions[1]).await
    })
}

#[test]
fn an_operator_that_is_not_upgradeable_holds_the_upgrade() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("held", json!({}))?;
        let old = csv("held", "held.v1", &json!({}));
        stage.lab.apply(std::slice::from_ref(&old))?;
        stage
            .phase("held", "held.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let own = condition("held", "held.v1");
        let made = stage
            .becomes("the condition is there", &own, |found| {
                found["spec"]["deployments"] == json!(["held-operator"])
            })
            .await?;
        ensure!(made["metadata"]["ownerReferences"][0]["controller"] == true);
        let role = named("rbac.authorization.k8s.io/v1", "Role", "held", "held.v1");
        stage
            .becomes("the operator may write it", &role, |found| {
                found["rules"][0]["resourceNames"] == json!(["held.v1"])
            })
            .await?;
        let said = |status: &str| {
            json!({"spec": {"conditions": [{
                "type": "Upgradeable", "status": status, "reason": "Busy", "message": "a migration runs",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}})
        };
        stage.patch(&own, &said("False")).await?;
        stage
            .becomes("the status says so", &own, |found| {
                found["status"]["conditions"][0]["status"] == "False"
                    && found["status"]["conditions"][0]["observedGeneration"]
                        == found["metadata"]["generation"]
            })
            .await?;
        stage
            .lab
            .apply(&[csv("held", "held.v2", &json!({"replaces": "held.v1"}))])?;
        let held = stage
            .phase("held", "held.v2", "Pending", "OperatorConditionNotUpgradeable")
            .await?;
        ensure!(
            held["status"]["message"]
                == "operator is not upgradeable: the operator is not upgradeable: a migration runs"
        );
        stage.patch(&own, &said("True")).await?;
        stage
            .phase("held", "held.v2", "Succeeded", "InstallSucceeded")
            .await?;
        stage.goes(&old).await
    })
}
