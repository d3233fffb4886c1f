//! Copies in the namespaces that operators watch.

use anyhow::{Result, ensure};
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, Stage, csv, group, named};

fn copy(namespace: &str, name: &str) -> Value {
    named(
        "operators.coreos.com/v1alpha1",
        "ClusterServiceVersion",
        namespace,
        name,
    )
}

async fn copied(stage: &Stage, namespace: &str, name: &str) -> Result<Value> {
    stage
        .becomes(
            "the copy says what the original says",
            &copy(namespace, name),
            |found| found["status"]["phase"] == "Succeeded" && found["status"]["reason"] == "Copied",
        )
        .await
}

#[test]
fn targets_get_copies_that_follow_the_original() -> Result<()> {
    CLUSTER.with(async |stage| {
        for name in ["tenant-a", "tenant-b"] {
            stage.namespace(name)?;
        }
        stage.group("copied", json!({"targetNamespaces": ["tenant-a", "tenant-b"]}))?;
        stage.lab.apply(&[csv("copied", "copied.v1", &json!({}))])?;
        stage
            .phase("copied", "copied.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let first = copied(stage, "tenant-a", "copied.v1").await?;
        ensure!(first["metadata"]["labels"]["olm.copiedFrom"] == "copied");
        ensure!(first["metadata"]["annotations"]["olm.operatorNamespace"] == "copied");
        ensure!(
            first["metadata"]["annotations"]
                .get("olm.targetNamespaces")
                .is_none()
        );
        ensure!(first["metadata"].get("finalizers").is_none());
        ensure!(
            first["status"]["message"] == "The operator is running in copied but is managing this namespace"
        );
        // Changes of users are reverted, and deleted copies are made again.
        stage
            .patch(&first, &json!({"spec": {"displayName": "changed"}}))
            .await?;
        stage
            .becomes("the name is that of the original", &first, |found| {
                found["spec"]["displayName"] == "copied"
            })
            .await?;
        let second = copied(stage, "tenant-b", "copied.v1").await?;
        stage.delete(&second).await?;
        stage
            .becomes("the copy is back", &second, |found| {
                found["metadata"]["uid"] != second["metadata"]["uid"]
            })
            .await?;
        // A namespace that is no target any more loses its copy, and all go with the original.
        stage.lab.apply(&[group(
            "copied",
            "group",
            json!({"targetNamespaces": ["tenant-a"]}),
        )])?;
        stage.goes(&second).await?;
        stage
            .phase("copied", "copied.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage.delete(&copy("copied", "copied.v1")).await?;
        stage.goes(&copy("copied", "copied.v1")).await?;
        stage.goes(&first).await
    })
}

/// The number of events that say that the operator is not copied.
fn events(stage: &Stage) -> Result<usize> {
    let selected = "--field-selector=reason=DisabledCopiedCSVs";
    let found = stage
        .lab
        .kubectl(&["get", "events", "-n", "everywhere", selected, "-o", "name"])?;
    Ok(found.lines().count())
}

#[test]
fn copies_of_operators_for_all_namespaces_are_switched_off_and_on() -> Result<()> {
    CLUSTER.alone(async |stage| {
        for name in ["kept", "bystander"] {
            stage.namespace(name)?;
        }
        stage.group("everywhere", json!({}))?;
        stage
            .lab
            .apply(&[csv("everywhere", "everywhere.v1", &json!({}))])?;
        copied(stage, "bystander", "everywhere.v1").await?;
        copied(stage, "kept", "everywhere.v1").await?;
        let mut config = named("operators.coreos.com/v1", "OLMConfig", "", "cluster");
        config["spec"] = json!({"features": {"disableCopiedCSVs": true}});
        stage.lab.apply(std::slice::from_ref(&config))?;
        stage.goes(&copy("bystander", "everywhere.v1")).await?;
        stage
            .becomes("the condition says so", &config, |found| {
                let condition = &found["status"]["conditions"][0];
                condition["type"] == "DisabledCopiedCSVs"
                    && condition["status"] == "True"
                    && condition["reason"] == "CopiedCSVsDisabled"
            })
            .await?;
        ensure!(stage.get(&copy("kept", "everywhere.v1")).await?.is_some());
        eventually("an event says so", SOON, async || {
            let events = stage
                .lab
                .kubectl(&["get", "events", "-n", "everywhere", "-o", "json"])?;
            Ok(events
                .contains("CSV copying disabled for everywhere/everywhere.v1")
                .then_some(()))
        })
        .await?;
        // A program that starts knows the event.
        stage.operator.stop().await?;
        stage.operator.start(&stage.lab.cluster)?;
        stage.operator.ready().await?;
        crate::rest::quiet(stage).await?;
        ensure!(events(stage)? == 1, "{} events", events(stage)?);
        config["spec"] = json!({"features": {"disableCopiedCSVs": false}});
        stage.lab.apply(std::slice::from_ref(&config))?;
        copied(stage, "bystander", "everywhere.v1").await?;
        eventually("the event is gone", SOON, async || {
            Ok((events(stage)? == 0).then_some(()))
        })
        .await?;
        stage
            .becomes("the condition says so", &config, |found| {
                found["status"]["conditions"][0]["message"]
                    == "Copied CSVs are enabled and present across the cluster"
            })
            .await?;
        stage.delete(&copy("everywhere", "everywhere.v1")).await?;
        stage.goes(&copy("bystander", "everywhere.v1")).await
    })
}
