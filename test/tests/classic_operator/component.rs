//! Operators: the objects of a package in a namespace.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::stage::{CLUSTER, csv, definition, named};

#[test]
fn an_operator_refers_to_its_objects_and_goes_with_them() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("parts", json!({}))?;
        stage.lab.apply(&[definition("parts", "parts", "Part")])?;
        let owned = json!({"customresourcedefinitions": {"owned": [
            {"name": "parts.parts.example", "version": "v1", "kind": "Part"},
        ]}});
        let version = csv("parts", "parts.v1", &owned);
        let mut subscription = named("operators.coreos.com/v1alpha1", "Subscription", "parts", "parts");
        subscription["spec"] =
            json!({"name": "parts", "channel": "a", "source": "s", "sourceNamespace": "n"});
        stage.lab.apply(&[version.clone(), subscription.clone()])?;
        let status = json!({"status": {
            "installedCSV": "parts.v1", "currentCSV": "parts.v1", "lastUpdated": "2026-01-01T00:00:00Z",
        }});
        stage.patch_status(&subscription, &status).await?;
        let operator = named("operators.coreos.com/v1", "Operator", "", "parts.parts");
        let found = stage
            .becomes("the operator refers to all", &operator, |found| {
                let refs = found["status"]["components"]["refs"].as_array();
                let has = |kind: &str| {
                    refs.is_some_and(|refs| refs.iter().any(|reference| reference["kind"] == kind))
                };
                [
                    "Subscription",
                    "ClusterServiceVersion",
                    "Deployment",
                    "CustomResourceDefinition",
                    "OperatorCondition",
                ]
                .into_iter()
                .all(has)
            })
            .await?;
        let selector = &found["status"]["components"]["labelSelector"]["matchExpressions"][0];
        ensure!(*selector == json!({"key": "operators.coreos.com/parts.parts", "operator": "Exists"}));
        stage.delete(&subscription).await?;
        stage.delete(&version).await?;
        stage.goes(&version).await?;
        // The definition keeps its label and does not bring it back.
        stage.goes(&operator).await?;
        let kept = stage
            .get(&definition("parts", "parts", "Part"))
            .await?
            .unwrap_or_default();
        ensure!(kept["metadata"]["labels"]["operators.coreos.com/parts.parts"] == "");
        Ok(())
    })
}

#[test]
fn an_operator_that_somebody_makes_stays_and_refers_to_nothing() -> Result<()> {
    CLUSTER.with(async |stage| {
        let operator = named("operators.coreos.com/v1", "Operator", "", "made.by-hand");
        stage.lab.apply(std::slice::from_ref(&operator))?;
        let found = stage
            .becomes("it says how objects become its own", &operator, |found| {
                found["status"]["components"]["labelSelector"]["matchExpressions"][0]["key"]
                    == "operators.coreos.com/made.by-hand"
            })
            .await?;
        ensure!(
            found["status"]["components"]["refs"].is_null(),
            "{}",
            found["status"]
        );
        let mut claimed = named("v1", "Namespace", "", "by-hand");
        claimed["metadata"]["labels"] = json!({"operators.coreos.com/made.by-hand": ""});
        stage.lab.apply(std::slice::from_ref(&claimed))?;
        stage
            .becomes("it refers to the namespace", &operator, |found| {
                found["status"]["components"]["refs"][0]["name"] == "by-hand"
            })
            .await?;
        stage
            .patch(
                &claimed,
                &json!({"metadata": {"labels": {"operators.coreos.com/made.by-hand": null}}}),
            )
            .await?;
        stage
            .becomes("it refers to nothing", &operator, |found| {
                found["status"]["components"]["refs"].is_null()
            })
            .await?;
        // It stays deleted, too.
        stage.delete(&operator).await?;
        stage.goes(&operator).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ensure!(stage.get(&operator).await?.is_none(), "it came back");
        Ok(())
    })
}

#[test]
fn only_the_present_plan_of_a_subscription_carries_its_label() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("planned")?;
        let mut subscription = named("operators.coreos.com/v1alpha1", "Subscription", "planned", "planned");
        subscription["spec"] =
            json!({"name": "planned", "channel": "a", "source": "s", "sourceNamespace": "n"});
        let plan = |name: &str| {
            let mut plan = named("operators.coreos.com/v1alpha1", "InstallPlan", "planned", name);
            plan["spec"] = json!({"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["c.v1"]});
            plan
        };
        let refers = |name: &str| {
            json!({"status": {
                "installPlanRef": {"name": name, "namespace": "planned"}, "lastUpdated": "2026-01-01T00:00:00Z",
            }})
        };
        let has_label = |found: &Value| found["metadata"]["labels"]["operators.coreos.com/planned.planned"] == "";
        stage.lab.apply(&[subscription.clone(), plan("first")])?;
        stage.patch_status(&subscription, &refers("first")).await?;
        stage
            .becomes("the plan carries the label", &plan("first"), has_label)
            .await?;
        // The Subscription refers to its next plan before that is seen.
        stage.patch_status(&subscription, &refers("second")).await?;
        stage.lab.apply(&[plan("second")])?;
        stage
            .becomes("the next plan carries the label", &plan("second"), has_label)
            .await?;
        stage
            .becomes("the former one does not", &plan("first"), |found| !has_label(found))
            .await?;
        Ok(())
    })
}
