//! Upgrades: one version replaces another.

use anyhow::{Result, ensure};
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, csv, named};

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
        ensure!(made["metadata"]["labels"]["olm.managed"] == "true");
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
        stage
            .phase("held", "held.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage.patch(&own, &said("True")).await?;
        stage
            .phase("held", "held.v2", "Succeeded", "InstallSucceeded")
            .await?;
        stage.goes(&old).await
    })
}

#[test]
fn a_version_whose_replacement_is_gone_says_so_and_goes_with_the_next_one() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("stranded", json!({}))?;
        let old = csv("stranded", "stranded.v1", &json!({}));
        stage.lab.apply(std::slice::from_ref(&old))?;
        stage
            .phase("stranded", "stranded.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let required = json!({"replaces": "stranded.v1", "customresourcedefinitions": {"required": [
            {"name": "no.stranded.example", "version": "v1", "kind": "No"},
        ]}});
        let stuck = csv("stranded", "stranded.v2", &required);
        stage.lab.apply(std::slice::from_ref(&stuck))?;
        stage
            .phase("stranded", "stranded.v1", "Replacing", "BeingReplaced")
            .await?;
        stage.delete(&stuck).await?;
        stage.goes(&stuck).await?;
        eventually("an event says so", SOON, async || {
            let events = stage
                .lab
                .kubectl(&["get", "events", "-n", "stranded", "-o", "json"])?;
            let note = "marked as replacement, but no replacement CSV found in cluster. Create or correct the one that \
                        replaces it, or delete it";
            Ok((events.contains("ReplacementMissing") && events.contains(note)).then_some(()))
        })
        .await?;
        stage
            .lab
            .apply(&[csv("stranded", "stranded.v3", &json!({"replaces": "stranded.v1"}))])?;
        stage
            .phase("stranded", "stranded.v3", "Succeeded", "InstallSucceeded")
            .await?;
        stage.goes(&old).await
    })
}

#[test]
fn an_upgrade_keeps_the_certificate_and_rolls_out_once() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("once", json!({}))?;
        let more = |replaces: Option<&str>| {
            let mut more = json!({"webhookdefinitions": [{
                "type": "ValidatingAdmissionWebhook", "generateName": "v.once.example", "deploymentName": "once-operator",
                "containerPort": 443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Ignore", "webhookPath": "/validate",
                "rules": [{"apiGroups": ["once.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
            }]});
            if let Some(replaces) = replaces {
                more["replaces"] = json!(replaces);
            }
            more
        };
        let old = csv("once", "once.v1", &more(None));
        stage.lab.apply(std::slice::from_ref(&old))?;
        stage
            .phase("once", "once.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let secret = named("v1", "Secret", "once", "once-operator-service-cert");
        let before = stage.get(&secret).await?.unwrap_or_default();
        let live = named("apps/v1", "Deployment", "once", "once-operator");
        let first = stage.get(&live).await?.unwrap_or_default();
        stage.lab.apply(&[csv("once", "once.v2", &more(Some("once.v1")))])?;
        let new = stage
            .phase("once", "once.v2", "Succeeded", "InstallSucceeded")
            .await?;
        stage.goes(&old).await?;
        // The garbage collector looks at everything that the old version owned.
        stage
            .becomes("the certificate belongs to the new version alone", &secret, |found| {
                let owners = &found["metadata"]["ownerReferences"];
                owners[0]["uid"] == new["metadata"]["uid"] && owners[1].is_null()
            })
            .await?;
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let after = stage.get(&secret).await?.unwrap_or_default();
        ensure!(after["data"] == before["data"], "the certificate was made anew");
        let last = stage.get(&live).await?.unwrap_or_default();
        let rollouts = |found: &Value| found["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone();
        ensure!((rollouts(&first), rollouts(&last)) == (json!("1"), json!("2")), "{}", rollouts(&last));
        let history = stage.csv("once", "once.v2").await?.unwrap_or_default();
        ensure!(history["status"]["phase"] == "Succeeded", "{}", history["status"]);
        Ok(())
    })
}
