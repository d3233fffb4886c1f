//! A newer image under the same tag.

use anyhow::{Context as _, Result};
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, blobs, slice};

#[test]
fn a_new_digest_is_served_after_the_interval() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("polled")?;
        let image = stage.lab.push_catalog("polled:latest", &blobs(&["old"])).await?;
        let spec = |interval: &str| {
            json!({
                "sourceType": "grpc", "image": image, "updateStrategy": {"registryPoll": {"interval": interval}},
            })
        };
        let source = stage.source("polled", "catalog", spec("2s"))?;
        let found = stage.connected(&source, "READY").await?;
        let asked = |found: &Value| {
            let time = found["status"]["latestImageRegistryPoll"].as_str();
            time.map(str::to_owned)
        };
        let first = asked(&found).context("nothing says when the registry was asked")?;
        let client = stage.client("polled", "catalog").await?;
        assert_eq!(client.list_packages().await?, ["old"]);
        let content = async || -> Result<Value> {
            let slice = stage.get(&slice("polled", "catalog")).await?.context("no EndpointSlice")?;
            Ok(slice["metadata"]["annotations"]["olm.operatorframework.io/catalog-content"].clone())
        };
        let named = content().await?;
        assert!(named.is_string(), "{named}");
        let again = stage
            .becomes("the registry is asked again", &source, |found| {
                asked(found).is_some_and(|time| time > first)
            })
            .await?;
        let again = asked(&again).context("nothing says when the registry was asked")?;
        assert_eq!(content().await?, named, "the content is the same");

        stage
            .lab
            .push_catalog("polled:latest", &blobs(&["new", "newer"]))
            .await?;
        // The connection stays, and so does the port.
        eventually("the new catalog is served", SOON, async || {
            let packages = client.list_packages().await?;
            Ok((packages == ["new", "newer"]).then_some(()))
        })
        .await?;
        stage
            .becomes("the time of the question is newer", &source, |found| {
                asked(found).is_some_and(|time| time > again)
            })
            .await?;
        eventually("the content has another name", SOON, async || {
            Ok((content().await? != named).then_some(()))
        })
        .await?;

        stage.source("polled", "catalog", spec("soon"))?;
        stage
            .becomes("the interval is refused", &source, |found| {
                found["status"]["reason"] == "InvalidIntervalError"
                    && found["status"]["connectionState"]["lastObservedState"] == "READY"
            })
            .await
            .map(drop)
    })
}

#[test]
fn what_was_served_is_served_after_a_restart() -> Result<()> {
    CLUSTER.alone(async |stage| {
        stage.namespace("restarted")?;
        let image = stage.lab.push_catalog("restarted:v1", &blobs(&["kept"])).await?;
        let source = stage.source(
            "restarted",
            "catalog",
            json!({"sourceType": "grpc", "image": image}),
        )?;
        stage.connected(&source, "READY").await?;
        stage.program.stop().await?;
        stage.program.start(&stage.lab.cluster)?;
        stage.program.ready().await?;
        eventually("the catalog is served again", SOON, async || {
            let Ok(client) = stage.client("restarted", "catalog").await else {
                return Ok(None);
            };
            let packages = client.list_packages().await;
            Ok(packages.is_ok_and(|found| found == ["kept"]).then_some(()))
        })
        .await
    })
}
