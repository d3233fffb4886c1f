//! Operators: the objects of a package in a namespace.

use anyhow::{Result, ensure};
use olm_test::objects::api;
use serde_json::json;

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
        api(&stage.lab.client, &subscription)
            .patch_status(
                "parts",
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(&status),
            )
            .await?;
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
