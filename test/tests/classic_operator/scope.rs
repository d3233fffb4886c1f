//! Namespaces that an operator watches, from its OperatorGroup.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::stage::{CLUSTER, Stage, csv, definition, group, named};

async fn targets(stage: &Stage, namespace: &str, name: &str) -> Result<Value> {
    let done = stage
        .phase(namespace, name, "Succeeded", "InstallSucceeded")
        .await?;
    let package = name.split('.').next().unwrap_or_default();
    let live = named("apps/v1", "Deployment", namespace, &format!("{package}-operator"));
    let live = stage.get(&live).await?.unwrap_or_default();
    let key = "olm.targetNamespaces";
    let annotations = &live["spec"]["template"]["metadata"]["annotations"];
    ensure!(annotations[key] == done["metadata"]["annotations"][key]);
    Ok(annotations[key].clone())
}

#[test]
fn operators_learn_the_namespaces_of_their_group() -> Result<()> {
    CLUSTER.with(async |stage| {
        for (namespace, spec, expected) in [
            ("own", json!({"targetNamespaces": ["own"]}), "own"),
            ("single", json!({"targetNamespaces": ["own"]}), "own"),
            (
                "multi",
                json!({"targetNamespaces": ["single", "own"]}),
                "own,single",
            ),
            ("all", json!({}), ""),
        ] {
            stage.group(namespace, spec)?;
            let name = format!("scope-{namespace}.v1");
            stage.lab.apply(&[csv(namespace, &name, &json!({}))])?;
            ensure!(targets(stage, namespace, &name).await? == expected, "{namespace}");
        }
        Ok(())
    })
}

#[test]
fn an_unsupported_mode_fails_until_the_group_changes() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("narrow", json!({}))?;
        let modes = json!({"installModes": [{"type": "OwnNamespace", "supported": true}]});
        stage.lab.apply(&[csv("narrow", "narrow.v1", &modes)])?;
        let failed = stage
            .phase("narrow", "narrow.v1", "Failed", "UnsupportedOperatorGroup")
            .await?;
        ensure!(
            failed["status"]["message"]
                == "AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces"
        );
        stage
            .lab
            .apply(&[group("narrow", "group", json!({"targetNamespaces": ["narrow"]}))])?;
        stage
            .phase("narrow", "narrow.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}

#[test]
fn none_or_two_groups_fail_until_there_is_one() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("count")?;
        stage.lab.apply(&[csv("count", "count.v1", &json!({}))])?;
        stage
            .phase("count", "count.v1", "Failed", "NoOperatorGroup")
            .await?;
        let (first, second) = (group("count", "one", json!({})), group("count", "two", json!({})));
        stage.lab.apply(std::slice::from_ref(&first))?;
        stage
            .phase("count", "count.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage.lab.apply(std::slice::from_ref(&second))?;
        stage
            .phase("count", "count.v1", "Failed", "TooManyOperatorGroups")
            .await?;
        let marked = |found: &Value| {
            found["status"]["conditions"][0]["type"] == "MultipleOperatorGroup"
                && found["status"]["conditions"][0]["status"] == "True"
        };
        stage.becomes("the group is marked", &first, marked).await?;
        stage.delete(&second).await?;
        stage
            .phase("count", "count.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage
            .becomes("the mark is gone", &first, |found| !marked(found))
            .await?;
        Ok(())
    })
}

#[test]
fn a_new_namespace_that_the_selector_matches_is_a_target_at_once() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group(
            "selecting",
            json!({"selector": {"matchLabels": {"team": "blue"}}}),
        )?;
        stage.lab.apply(&[csv("selecting", "selecting.v1", &json!({}))])?;
        stage
            .phase("selecting", "selecting.v1", "Failed", "NoTargetNamespaces")
            .await?;
        let mut namespace = named("v1", "Namespace", "", "blue");
        namespace["metadata"]["labels"] = json!({"team": "blue"});
        stage.lab.apply(std::slice::from_ref(&namespace))?;
        ensure!(targets(stage, "selecting", "selecting.v1").await? == "blue");
        let found = stage
            .get(&group("selecting", "group", json!({})))
            .await?
            .unwrap_or_default();
        let label = format!(
            "olm.operatorgroup.uid/{}",
            found["metadata"]["uid"].as_str().unwrap_or_default()
        );
        stage
            .becomes("the namespace names the group", &namespace, |found| {
                found["metadata"]["labels"][&label] == ""
            })
            .await?;
        stage
            .phase("selecting", "selecting.v1", "Succeeded", "InstallSucceeded")
            .await?;

        // Without the last namespace the operator does not watch all of them.
        let operator = named("apps/v1", "Deployment", "selecting", "selecting-operator");
        let running = stage.get(&operator).await?.context("a Deployment")?;
        let label = |team: Value| json!({"metadata": {"labels": {"team": team}}});
        stage.patch(&namespace, &label(Value::Null)).await?;
        let failed = stage
            .phase("selecting", "selecting.v1", "Failed", "NoTargetNamespaces")
            .await?;
        let annotation = &failed["metadata"]["annotations"]["olm.targetNamespaces"];
        ensure!(annotation == "blue", "{annotation}");
        let copy = named(
            "operators.coreos.com/v1alpha1",
            "ClusterServiceVersion",
            "blue",
            "selecting.v1",
        );
        stage.goes(&copy).await?;
        let still = stage.get(&operator).await?.context("a Deployment")?;
        ensure!(still["spec"] == running["spec"], "{still:#}");
        stage.patch(&namespace, &label(json!("blue"))).await?;
        stage
            .phase("selecting", "selecting.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}

#[test]
fn of_two_groups_that_meet_only_the_first_provides_an_api() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("shared-target")?;
        stage
            .lab
            .apply(&[definition("shared", "greetings", "Greeting")])?;
        let owned = json!({"customresourcedefinitions": {"owned": [
            {"name": "greetings.shared.example", "version": "v1", "kind": "Greeting"},
        ]}});
        for namespace in ["shared-one", "shared-two"] {
            stage.group(namespace, json!({"targetNamespaces": ["shared-target"]}))?;
        }
        let (first, second) = (
            csv("shared-one", "one.v1", &owned),
            csv("shared-two", "two.v1", &owned),
        );
        stage.lab.apply(std::slice::from_ref(&first))?;
        stage
            .phase("shared-one", "one.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage.lab.apply(std::slice::from_ref(&second))?;
        let failed = stage
            .phase(
                "shared-two",
                "two.v1",
                "Failed",
                "InterOperatorGroupOwnerConflict",
            )
            .await?;
        ensure!(
            failed["status"]["message"]
                == "intersecting operatorgroups provide the same apis: OperatorGroup shared-one/group provides \
                    Greeting.v1.shared.example"
        );
        stage
            .phase("shared-one", "one.v1", "Succeeded", "InstallSucceeded")
            .await?;
        stage.delete(&first).await?;
        stage
            .phase("shared-two", "two.v1", "Succeeded", "InstallSucceeded")
            .await?;
        Ok(())
    })
}
