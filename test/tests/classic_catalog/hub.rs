//! The default catalogs of OpenShift.

use anyhow::{Result, ensure};
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, V1ALPHA1, named};

const MARKETPLACE: &str = "openshift-marketplace";

#[test]
fn an_operator_hub_chooses_the_default_catalogs() -> Result<()> {
    CLUSTER.with(async |stage| {
        let lab = &stage.lab;
        lab.apply(&[named("v1", "Namespace", "", MARKETPLACE)])?;
        for file in ["openshift", "operatorhub"] {
            lab.apply_file(&format!("test/samples/definitions/{file}.yaml"))?;
        }
        lab.await_definitions()?;
        let configuration = |kind: &str, name: &str, spec: Value| {
            let mut object = named("config.openshift.io/v1", kind, "", name);
            object["spec"] = spec;
            object
        };
        let version = configuration("ClusterVersion", "version", json!({"clusterID": "c"}));
        let hub = configuration(
            "OperatorHub",
            "cluster",
            json!({"sources": [{"name": "none", "disabled": true}]}),
        );
        lab.apply(&[version, hub.clone()])?;
        let told = |found: &Value, name: &str| {
            let mut sources = found["status"]["sources"].as_array().into_iter().flatten();
            sources
                .find(|source| source["name"] == name)
                .cloned()
                .unwrap_or_default()
        };
        // Without a version, no image is known.
        stage
            .becomes("the lacking version is reported", &hub, |found| {
                told(found, "redhat-operators")["status"] == "Error"
                    && told(found, "none")["status"] == "Error"
            })
            .await?;
        let patch = r#"--patch={"status":{"desired":{"version":"4.18.3"}}}"#;
        lab.kubectl(&[
            "patch",
            "clusterversion",
            "version",
            "--subresource=status",
            "--type=merge",
            patch,
        ])?;
        let disabling = json!({
            "disableAllDefaultSources": true, "sources": [{"name": "community-operators", "disabled": false}],
        });
        let hub = configuration("OperatorHub", "cluster", disabling);
        lab.apply(std::slice::from_ref(&hub))?;
        let community = named(V1ALPHA1, "CatalogSource", MARKETPLACE, "community-operators");
        let image = "registry.redhat.io/redhat/community-operator-index:v4.18";
        let is_default = |found: &Value| found["spec"]["image"] == image && found["spec"]["priority"] == -400;
        stage
            .becomes("the one default catalog is there", &community, is_default)
            .await?;
        let all = stage.list(&community).await?;
        ensure!(all.len() == 1, "{} catalogs", all.len());
        stage
            .becomes("the status follows", &hub, |found| {
                told(found, "community-operators")
                    == json!({
                        "name": "community-operators", "disabled": false, "status": "Success",
                    })
                    && told(found, "redhat-operators")["disabled"] == true
            })
            .await?;

        // It is put back when it is edited, and made again when it is deleted.
        stage
            .patch(
                &community,
                &json!({"spec": {"image": "registry.example/mine:v1"}}),
            )
            .await?;
        let before = stage.becomes("it is put back", &community, is_default).await?;
        stage.delete(&community).await?;
        stage
            .becomes("it is made again", &community, |found| {
                is_default(found) && found["metadata"]["uid"] != before["metadata"]["uid"]
            })
            .await?;

        // A disabled one goes; one that a user makes in its place stays.
        lab.apply(&[configuration(
            "OperatorHub",
            "cluster",
            json!({"disableAllDefaultSources": true, "sources": []}),
        )])?;
        eventually("the catalog is gone", SOON, async || {
            Ok(stage.get(&community).await?.is_none().then_some(()))
        })
        .await?;
        let mut own = community.clone();
        own["spec"] = json!({"sourceType": "grpc", "image": "registry.example/mine:v1"});
        lab.apply(&[own])?;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let kept = stage.get(&community).await?.unwrap_or_default();
        ensure!(kept["spec"]["image"] == "registry.example/mine:v1", "{kept}");
        stage.delete(&community).await
    })
}

#[test]
fn an_operator_source_is_refused_with_advice() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.lab.apply(&[named("v1", "Namespace", "", "old-source")])?;
        stage
            .lab
            .apply_file("test/samples/definitions/operatorhub.yaml")?;
        let source = named("operators.coreos.com/v1", "OperatorSource", "old-source", "apps");
        eventually("an OperatorSource can be made", SOON, async || {
            stage.lab.apply(std::slice::from_ref(&source))?;
            Ok(Some(()))
        })
        .await?;
        let arguments = [
            "get",
            "events",
            "-n",
            "old-source",
            "-o",
            "jsonpath={.items[*].message}",
        ];
        eventually("an event advises", SOON, async || {
            let events = stage.lab.kubectl(&arguments)?;
            Ok(events.contains("Create a CatalogSource").then_some(()))
        })
        .await
    })
}
