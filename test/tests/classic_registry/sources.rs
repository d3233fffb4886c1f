//! Sources without an image: an address, a ConfigMap.

use anyhow::Result;
use serde_json::json;

use crate::stage::{CLUSTER, blobs, named, slice};

const CSV: &str = "
- apiVersion: operators.coreos.com/v1alpha1
  kind: ClusterServiceVersion
  metadata: {name: NAME.v1}
  spec:
    version: 1.0.0
    customresourcedefinitions:
      owned: [{name: dbs.db.example, version: v1, kind: Db}]
";

#[test]
fn a_source_with_an_address_is_connected_to() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("elsewhere")?;
        let image = stage.lab.push_catalog("elsewhere:v1", &blobs(&["e"])).await?;
        let served = stage.source(
            "elsewhere",
            "served",
            json!({"sourceType": "grpc", "image": image}),
        )?;
        stage.connected(&served, "READY").await?;
        let address = stage.endpoint("elsewhere", "served").await?;

        let spec = |address: &str| json!({"sourceType": "grpc", "address": address});
        let source = stage.source("elsewhere", "dialled", spec(&address))?;
        let found = stage.connected(&source, "READY").await?;
        assert_eq!(found["status"]["connectionState"]["address"], address.as_str());
        assert_eq!(found["status"]["registryService"]["protocol"], "grpc");
        assert_eq!(found["status"]["registryService"].get("serviceName"), None);
        assert!(
            stage
                .get(&named("v1", "Service", "elsewhere", "dialled"))
                .await?
                .is_none()
        );

        // The registry goes, and its address with it.
        stage.delete(&served).await?;
        let found = stage.connected(&source, "TRANSIENT_FAILURE").await?;
        let message = found["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(&address), "{message}");

        stage.source("elsewhere", "dialled", spec("nothing"))?;
        stage
            .becomes("the address is refused", &source, |found| {
                let message = found["status"]["message"].as_str().unwrap_or_default();
                message.contains("it must be HOST:PORT")
            })
            .await
            .map(drop)
    })
}

#[test]
fn a_config_map_is_served_and_followed() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("mapped")?;
        let map = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "mapped", "name": "content"},
                "data": {
                    "packages": format!("- {{packageName: {name}, channels: [{{name: alpha, currentCSV: {name}.v1}}]}}"),
                    "clusterServiceVersions": CSV.replace("NAME", name),
                    "customResourceDefinitions": "[]",
                },
            })
        };
        let spec = json!({"sourceType": "configmap", "configMap": "content"});
        let source = stage.source("mapped", "catalog", spec)?;
        let found = stage.connected(&source, "TRANSIENT_FAILURE").await?;
        assert_eq!(found["status"]["reason"], "ConfigMapError");
        stage.lab.apply(&[map("db")])?;
        let found = stage.connected(&source, "READY").await?;
        assert_eq!(found["status"]["configMapReference"]["name"], "content");
        assert_eq!(found["status"].get("reason"), None);
        let client = stage.client("mapped", "catalog").await?;
        let head = client.get_bundle_for_channel("db", "alpha").await?;
        assert!(head.csv_json.contains("dbs.db.example"), "{}", head.csv_json);
        assert_eq!(head.provided_apis[0].kind, "Db");

        let version = found["status"]["configMapReference"]["resourceVersion"].clone();
        stage.lab.apply(&[map("cache")])?;
        stage
            .becomes("the new content is noted", &source, |found| {
                found["status"]["configMapReference"]["resourceVersion"] != version
            })
            .await?;
        assert_eq!(client.list_packages().await?, ["cache"]);
        // Users keep their ConfigMap.
        let kept = stage.get(&map("cache")).await?.unwrap_or_default();
        assert_eq!(kept["metadata"].get("ownerReferences"), None);
        stage.delete(&source).await?;
        stage.goes(&slice("mapped", "catalog")).await?;
        assert!(stage.get(&map("cache")).await?.is_some());
        Ok(())
    })
}
