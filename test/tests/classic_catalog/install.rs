//! From a Subscription to an installed operator.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::stage::{CLUSTER, condition, csv, named};

#[test]
fn a_subscription_installs_the_head_of_its_channel() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("plain", &["1.0.0", "1.0.1"]).await?;
        stage.subscribe("plain", &json!({}))?;
        let subscription = stage.installs("plain", "1.0.1").await?;
        let status = &subscription["status"];
        ensure!(
            status["currentCSV"] == "plain.v1.0.1" && status["installPlanGeneration"] == 1,
            "{status}"
        );
        let healthy =
            condition(&subscription, "CatalogSourcesUnhealthy").context("no condition about catalogs")?;
        ensure!(healthy["status"] == "False", "{healthy}");
        let plan = stage.phase("plain", "Complete").await?;
        ensure!(status["installPlanRef"]["uid"] == plan["metadata"]["uid"]);
        ensure!(status["installplan"]["uuid"] == plan["metadata"]["uid"]);
        ensure!(plan["metadata"]["ownerReferences"][0]["uid"] == subscription["metadata"]["uid"]);
        ensure!(plan["spec"]["approval"] == "Automatic" && plan["spec"]["approved"] == true);
        ensure!(plan["spec"]["clusterServiceVersionNames"] == json!(["plain.v1.0.1"]));
        let steps = plan["status"]["plan"].as_array().context("no steps")?;
        let kinds: Vec<&str> = steps
            .iter()
            .filter_map(|step| step["resource"]["kind"].as_str())
            .collect();
        ensure!(
            kinds[..2] == ["ClusterServiceVersion", "CustomResourceDefinition"]
                && kinds.contains(&"ClusterRole"),
            "{kinds:?}"
        );
        ensure!(
            steps
                .iter()
                .all(|step| step["status"] == "Created" || step["status"] == "Present"),
            "{steps:?}"
        );
        let installed = stage
            .becomes("the operator is installed", &csv("plain", "1.0.1"), |found| {
                found["status"]["phase"] == "Succeeded"
            })
            .await?;
        let account = stage
            .get(&named("v1", "ServiceAccount", "plain", "plain-operator"))
            .await?;
        let account = account.context("no service account")?;
        ensure!(account["metadata"]["ownerReferences"][0]["uid"] == installed["metadata"]["uid"]);
        ensure!(account["metadata"]["labels"]["olm.managed"] == "true");
        Ok(())
    })
}
