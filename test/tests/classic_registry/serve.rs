//! Sources with an image: served, shared, restored, removed.

use anyhow::{Context as _, Result};
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, blobs, named, slice};

#[test]
fn a_source_with_an_image_is_served_through_its_service() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("served")?;
        let image = stage.lab.push_catalog("served:v1", &blobs(&["a", "b"])).await?;
        let source = stage.source(
            "served",
            "my.catalog",
            json!({
                "sourceType": "grpc", "image": image, "displayName": "Mine",
                "grpcPodConfig": {"securityContextConfig": "restricted", "extractContent": {"catalogDir": "/configs"}},
            }),
        )?;
        let found = stage.connected(&source, "READY").await?;
        let status = &found["status"];
        assert_eq!(
            status["connectionState"]["address"],
            "my-catalog.served.svc:50051"
        );
        let service = json!({
            "protocol": "grpc", "serviceName": "my-catalog", "serviceNamespace": "served", "port": "50051",
            "createdAt": status["registryService"]["createdAt"],
        });
        assert_eq!(status["registryService"], service);
        assert_eq!((status.get("reason"), status.get("message")), (None, None));

        let service = stage
            .get(&named("v1", "Service", "served", "my-catalog"))
            .await?
            .context("no Service")?;
        assert_eq!(service["spec"].get("selector"), None);
        assert_eq!(service["spec"]["ports"][0]["port"], 50051);
        assert_eq!(service["metadata"]["labels"]["olm.managed"], "true");
        assert_eq!(service["metadata"]["ownerReferences"][0]["name"], "my.catalog");
        let slice = stage
            .get(&slice("served", "my-catalog"))
            .await?
            .context("no EndpointSlice")?;
        assert_eq!(slice["endpoints"][0]["conditions"]["ready"], true);

        let client = stage.client("served", "my-catalog").await?;
        assert_eq!(client.list_packages().await?, ["a", "b"]);
        assert!(client.check().await?);

        // Nothing is written without a change.
        let version = |found: &Value| found["metadata"]["resourceVersion"].clone();
        let before = stage.get(&source).await?.context("no source")?;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let after = stage.get(&source).await?.context("no source")?;
        assert_eq!(version(&before), version(&after));

        let metrics = stage.metrics().await?;
        assert!(
            metrics.contains("catalogsource_ready{namespace=\"served\",name=\"my.catalog\"} 1"),
            "{metrics}"
        );
        Ok(())
    })
}

#[test]
fn deletion_removes_service_and_endpoints() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("removed")?;
        let image = stage.lab.push_catalog("removed:v1", &blobs(&["r"])).await?;
        let spec = json!({"sourceType": "grpc", "image": image});
        let source = stage.source("removed", "catalog", spec)?;
        stage.connected(&source, "READY").await?;
        let address = stage.endpoint("removed", "catalog").await?;
        stage.delete(&source).await?;
        stage.goes(&named("v1", "Service", "removed", "catalog")).await?;
        stage.goes(&slice("removed", "catalog")).await?;
        eventually("the port is closed", SOON, async || {
            let connected = tokio::net::TcpStream::connect(&address).await;
            Ok(connected.is_err().then_some(()))
        })
        .await
    })
}

#[test]
fn an_image_that_cannot_be_served_is_said_and_recovers() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("wrong")?;
        let registry = stage.lab.registry()?.to_owned();
        let spec = |image: &str| json!({"sourceType": "grpc", "image": image});
        let source = stage.source("wrong", "catalog", spec(&format!("{registry}/wrong-nowhere:v1")))?;
        let found = stage.connected(&source, "TRANSIENT_FAILURE").await?;
        let message = found["status"]["message"].as_str().context("no message")?;
        assert_eq!(found["status"]["reason"], "RegistryServerError");
        assert!(
            message.contains("wrong-nowhere:v1") && message.contains("has no repository"),
            "{message}"
        );

        let database = (
            "operators.operatorframework.io.index.database.v1",
            "/database/index.db",
        );
        let files = std::collections::BTreeMap::from([("database/index.db".to_owned(), Vec::new())]);
        stage.lab.push("wrong-database:v1", &files, &[database]).await?;
        stage.source("wrong", "catalog", spec(&format!("{registry}/wrong-database:v1")))?;
        stage
            .becomes("the format is named", &source, |found| {
                let message = found["status"]["message"].as_str().unwrap_or_default();
                message.contains("database image")
                    && message.contains("olm.operatorframework.io/registry-pod")
            })
            .await?;

        let image = stage.lab.push_catalog("wrong:v1", &blobs(&["w"])).await?;
        stage.source("wrong", "catalog", spec(&image))?;
        let found = stage.connected(&source, "READY").await?;
        assert_eq!(found["status"].get("message"), None);

        // The status reports a fault of the specification, and nothing is served.
        let refused = |message: &'static str| move |found: &Value| found["status"]["message"] == message;
        stage.source("wrong", "kind", json!({"sourceType": "", "image": image}))?;
        let kind = crate::stage::source("wrong", "kind", json!({}));
        let found = stage
            .becomes("its kind is refused", &kind, refused("unknown sourcetype: "))
            .await?;
        assert_eq!(found["status"]["reason"], "SpecInvalidError");
        stage.source("wrong", "kind", json!({"sourceType": "grpc", "image": image}))?;
        stage.connected(&kind, "READY").await.map(drop)
    })
}

#[test]
fn a_source_names_the_directory_of_its_catalog() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("directory")?;
        let files = std::collections::BTreeMap::from([
            ("elsewhere/catalog.json".to_owned(), blobs(&["e"]).into_bytes()),
            ("other/catalog.json".to_owned(), blobs(&["o"]).into_bytes()),
        ]);
        let label = ("operators.operatorframework.io.index.configs.v1", "/other");
        let registry = stage.lab.registry()?.to_owned();
        stage.lab.push("directory:plain", &files, &[]).await?;
        stage.lab.push("directory:labelled", &files, &[label]).await?;
        let spec = |tag: &str, directory: &str| {
            json!({
                "sourceType": "grpc", "image": format!("{registry}/directory:{tag}"),
                "grpcPodConfig": {"extractContent": {"catalogDir": directory}},
            })
        };
        let packages = async |name: &str| -> Result<Vec<String>> {
            Ok(stage.client("directory", name).await?.list_packages().await?)
        };

        let plain = stage.source("directory", "plain", spec("plain", "/elsewhere"))?;
        stage.connected(&plain, "READY").await?;
        assert_eq!(packages("plain").await?, ["e"]);

        // It counts more than the label of the image, and two directories of one image are two catalogs.
        let labelled = stage.source("directory", "labelled", spec("labelled", "/elsewhere/"))?;
        let other = json!({"sourceType": "grpc", "image": format!("{registry}/directory:labelled")});
        let by_label = stage.source("directory", "by-label", other)?;
        for source in [&labelled, &by_label] {
            stage.connected(source, "READY").await?;
        }
        assert_eq!(packages("labelled").await?, ["e"]);
        assert_eq!(packages("by-label").await?, ["o"]);

        // A directory that is not there is named, and the old content stays until there is a good one.
        let why = |found: &Value| found["status"]["message"].as_str().unwrap_or_default().to_owned();
        stage.source("directory", "plain", spec("plain", "/nowhere"))?;
        let found = stage
            .becomes("the directory is missing", &plain, |found| {
                why(found).contains("nowhere")
            })
            .await?;
        let hint = "catalog image has no directory \"/nowhere\"; correct `spec.grpcPodConfig.extractContent.catalogDir`";
        assert!(why(&found).ends_with(hint), "{found}");
        assert_eq!(packages("plain").await?, ["e"]);
        stage.source("directory", "plain", spec("plain", "other"))?;
        eventually("the other directory is served", SOON, async || {
            Ok((packages("plain").await? == ["o"]).then_some(()))
        })
        .await
    })
}

#[test]
fn sources_with_the_same_digest_share_the_content() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("shared")?;
        let image = stage.lab.push_catalog("shared:v1", &blobs(&["shared"])).await?;
        for name in ["one", "two"] {
            let spec = json!({"sourceType": "grpc", "image": image});
            let source = stage.source("shared", name, spec)?;
            stage.connected(&source, "READY").await?;
            let client = stage.client("shared", name).await?;
            assert_eq!(client.list_packages().await?, ["shared"]);
        }
        let store = stage.lab.folder().join("catalogs/catalogs");
        let mut holding = 0;
        for entry in std::fs::read_dir(store)? {
            // Catalogs of other tests come and go.
            let Ok(versions) = std::fs::read_dir(entry?.path()) else {
                continue;
            };
            for version in versions.flatten() {
                let record = std::fs::read_to_string(version.path().join("catalog.json"));
                holding += usize::from(record.is_ok_and(|record| record.contains("/shared:v1\"")));
            }
        }
        assert_eq!(holding, 1);
        Ok(())
    })
}

#[test]
fn a_pod_serves_where_the_source_asks_for_one() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("pods")?;
        let image = stage.lab.push_catalog("pods:v1", &blobs(&["p"])).await?;
        let mut source =
            crate::stage::source("pods", "catalog", json!({"sourceType": "grpc", "image": image}));
        source["metadata"]["annotations"] = json!({"olm.operatorframework.io/registry-pod": "true"});
        stage.lab.apply(std::slice::from_ref(&source))?;
        let service = named("v1", "Service", "pods", "catalog");
        let found = stage
            .becomes("the Service selects the Pod", &service, |found| {
                found["spec"]["selector"]["olm.catalogSource"] == "catalog"
            })
            .await?;
        assert_eq!(found["spec"]["selector"]["olm.managed"], "true");
        let pods = || {
            stage.lab.kubectl(&[
                "get",
                "pods",
                "-n",
                "pods",
                "-o",
                "name",
                "-l",
                "olm.catalogSource=catalog",
            ])
        };
        assert_eq!(pods()?.lines().count(), 1);
        let found = stage.get(&source).await?.context("no source")?;
        assert_eq!(found["status"]["registryService"]["serviceName"], "catalog");

        // Without the annotation this program serves, and the Pod goes.
        source["metadata"]["annotations"] = json!({});
        stage.lab.apply(std::slice::from_ref(&source))?;
        stage.connected(&source, "READY").await?;
        stage
            .becomes("the Service selects nothing", &service, |found| {
                found["metadata"].is_object() && found["spec"].get("selector").is_none()
            })
            .await?;
        let client = eventually("it is served", SOON, async || {
            Ok(stage.client("pods", "catalog").await.ok())
        })
        .await?;
        assert_eq!(client.list_packages().await?, ["p"]);
        eventually("the Pod is gone", SOON, async || {
            Ok(pods()?.is_empty().then_some(()))
        })
        .await
    })
}

#[test]
fn the_plain_metrics_port_is_open_and_healthy() -> Result<()> {
    CLUSTER.with(async |stage| {
        let metrics = stage.metrics().await?;
        assert!(metrics.contains("# TYPE catalog_source_count gauge"), "{metrics}");
        let answer = reqwest::get(format!("http://{}/healthz", stage.program.metrics)).await?;
        assert_eq!(answer.error_for_status()?.text().await?, "ok\n");
        Ok(())
    })
}

#[test]
fn a_source_that_asks_for_a_pod_leads_to_the_program_no_more() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("podded")?;
        let image = stage.lab.push_catalog("podded:v1", &blobs(&["p"])).await?;
        let spec = json!({"sourceType": "grpc", "image": image});
        let mut source = stage.source("podded", "catalog", spec)?;
        stage.connected(&source, "READY").await?;
        let before = stage.get(&slice("podded", "catalog")).await?;
        assert!(before.is_some(), "there is no EndpointSlice");
        source["metadata"]["annotations"] = json!({"olm.operatorframework.io/registry-pod": "true"});
        stage.lab.apply(std::slice::from_ref(&source))?;
        let service = named("v1", "Service", "podded", "catalog");
        stage
            .becomes("the Service selects the Pod", &service, |found| {
                found["spec"]["selector"]["olm.catalogSource"] == "catalog"
            })
            .await?;
        stage.goes(&slice("podded", "catalog")).await
    })
}
