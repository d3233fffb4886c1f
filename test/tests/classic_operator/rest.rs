//! Rest: what is as it should be costs nothing; and what is counted.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use olm_test::world::eventually;
use serde_json::json;

use crate::stage::{CLUSTER, Stage, csv};

/// Requests to the API server by method.
async fn requests(stage: &Stage) -> Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for line in stage.metrics("rest_client_requests_total{").await? {
        let method = line
            .split("method=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let count = line
            .rsplit(' ')
            .next()
            .and_then(|count| count.parse::<u64>().ok());
        if let (Some(method), Some(count)) = (method, count) {
            *counts.entry(method.to_owned()).or_default() += count;
        }
    }
    Ok(counts)
}

#[test]
fn a_cluster_at_rest_costs_no_request_and_a_restart_no_write() -> Result<()> {
    CLUSTER.alone(async |stage| {
        stage.namespace("rest-target")?;
        stage.group("rest", json!({"targetNamespaces": ["rest", "rest-target"]}))?;
        let webhook = json!({"webhookdefinitions": [{
            "type": "ValidatingAdmissionWebhook", "generateName": "vrest.example", "deploymentName": "rest-operator",
            "containerPort": 443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "webhookPath": "/validate",
            "rules": [{"apiGroups": ["rest.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
        }]});
        stage.lab.apply(&[csv("rest", "rest.v1", &webhook)])?;
        stage.phase("rest", "rest.v1", "Succeeded", "InstallSucceeded").await?;
        let quiet = async |stage: &Stage| {
            let limit = Duration::from_secs(120);
            eventually("nothing is asked or written for 6 s", limit, async || {
                let before = requests(stage).await?;
                tokio::time::sleep(Duration::from_secs(6)).await;
                let after = requests(stage).await?;
                ensure!(before == after, "{before:?} became {after:?}");
                Ok(Some(after))
            })
            .await
        };
        ensure!(!quiet(stage).await?.is_empty());
        stage.operator.stop().await?;
        stage.operator.start(&stage.lab.cluster)?;
        stage.operator.ready().await?;
        let after = quiet(stage).await?;
        let writes: Vec<_> = after.iter().filter(|(method, _)| *method != "GET").collect();
        ensure!(writes.is_empty(), "a restart writes: {writes:?}\n{}", stage.operator.log_end());
        Ok(())
    })
}

#[test]
fn the_metrics_of_versions_have_the_names_that_alerts_know() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("counted", json!({}))?;
        let required = json!({"customresourcedefinitions": {"required": [
            {"name": "no.counted.example", "version": "v1", "kind": "No"},
        ]}});
        stage
            .lab
            .apply(&[csv("counted", "good.v1", &json!({})), csv("counted", "bad.v1", &required)])?;
        stage.phase("counted", "good.v1", "Succeeded", "InstallSucceeded").await?;
        stage.phase("counted", "bad.v1", "Pending", "RequirementsNotMet").await?;
        eventually("both are counted", Duration::from_secs(20), async || {
            let good = "csv_succeeded{namespace=\"counted\",name=\"good.v1\",version=\"1.0.0\"} 1";
            let bad = "csv_abnormal{namespace=\"counted\",name=\"bad.v1\",version=\"1.0.0\",phase=\"Pending\",\
                       reason=\"RequirementsNotMet\"} 1";
            let lines = stage.metrics("").await?;
            let has = |line: &str| lines.iter().any(|found| found == line);
            Ok((has(good) && has(bad) && lines.iter().any(|line| line.starts_with("csv_count "))).then_some(()))
        })
        .await
    })
}
