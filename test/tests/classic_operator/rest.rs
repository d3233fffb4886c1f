//! Rest: what is as it should be costs nothing; and what is counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::time::Duration;

use anyhow::{Result, ensure};
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, Stage, csv};

/// The requests of the program after a position of the audit log, under its own account and under that for content, by
/// verb.
pub(crate) fn requests(stage: &Stage, start: u64) -> Result<BTreeMap<String, usize>> {
    let mut file = File::open(stage.lab.cluster.audit_log())?;
    file.seek(SeekFrom::Start(start))?;
    let mut counts = BTreeMap::new();
    for line in BufReader::new(file).lines() {
        // The last line may still be written.
        let Ok(event) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let user = event["user"]["username"].as_str().unwrap_or_default();
        let verb = event["verb"].as_str().unwrap_or_default();
        let is_ours = ["olm-operator", "classic-installer"]
            .iter()
            .any(|name| user == format!("system:serviceaccount:olm:{name}"));
        // Watches begin again now and then.
        if is_ours && verb != "watch" {
            let what = format!("{verb} {}", event["requestURI"].as_str().unwrap_or_default());
            *counts.entry(what).or_default() += 1;
        }
    }
    Ok(counts)
}

/// The present end of the audit log.
pub(crate) fn end(stage: &Stage) -> Result<u64> {
    Ok(std::fs::metadata(stage.lab.cluster.audit_log())?.len())
}

/// Waits until the program asks and writes nothing.
pub(crate) async fn quiet(stage: &Stage) -> Result<()> {
    eventually(
        "nothing is asked or written for 6 s",
        Duration::from_secs(120),
        async || {
            let start = end(stage)?;
            tokio::time::sleep(Duration::from_secs(6)).await;
            let asked = requests(stage, start)?;
            ensure!(asked.is_empty(), "{asked:?}");
            Ok(Some(()))
        },
    )
    .await
}

#[test]
fn a_cluster_at_rest_costs_no_request_and_a_restart_no_write() -> Result<()> {
    CLUSTER.alone(async |stage| {
        stage.namespace("rest-target")?;
        stage.group("rest", json!({"targetNamespaces": ["rest", "rest-target"]}))?;
        let webhook = json!({"webhookdefinitions": [{
            "type": "ValidatingAdmissionWebhook", "generateName": "vrest.rest.example", "deploymentName": "rest-operator",
            "containerPort": 443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "webhookPath": "/validate",
            "rules": [{"apiGroups": ["rest.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
        }]});
        stage.lab.apply(&[csv("rest", "rest.v1", &webhook)])?;
        stage.phase("rest", "rest.v1", "Succeeded", "InstallSucceeded").await?;
        quiet(stage).await?;
        stage.operator.stop().await?;
        let start = end(stage)?;
        stage.operator.start(&stage.lab.cluster)?;
        stage.operator.ready().await?;
        quiet(stage).await?;
        let asked = requests(stage, start)?;
        ensure!(asked.keys().any(|what| what.starts_with("list ")), "nothing was counted");
        let is_write = |what: &&String| !what.starts_with("get ") && !what.starts_with("list ");
        let writes: Vec<&String> = asked.keys().filter(is_write).collect();
        ensure!(writes.is_empty(), "a restart writes: {writes:?}");
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
            let upgrades = "# TYPE csv_upgrade_count counter";
            let lines = stage.metrics().await?;
            let has = |line: &str| lines.iter().any(|found| found == line);
            Ok((has(good) && has(bad) && has(upgrades) && lines.iter().any(|line| line.starts_with("csv_count "))).then_some(()))
        })
        .await
    })
}
