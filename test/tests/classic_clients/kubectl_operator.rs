//! `kubectl operator`: from a catalog to an upgraded operator, and back to nothing.

use anyhow::{Result, ensure};
use olm_test::cluster::Binaries;
use olm_test::world::eventually;
use serde_json::Value;

use crate::stage::{CLUSTER, OPERATOR, SOON, V1ALPHA1, named};

#[test]
fn an_operator_is_found_installed_upgraded_and_uninstalled() -> Result<()> {
    CLUSTER.with(async |stage| {
        let program = tokio::task::spawn_blocking(Binaries::ensure_kubectl_operator).await??;
        let place = "journey";
        stage.namespace(place)?;
        let run = async |arguments: &[&str]| {
            let flags = ["-n", place, "--timeout=3m"];
            stage.run(&program, &[&flags[..], arguments].concat()).await
        };
        let image = stage.lab.publish(place, &["1.0.0"], OPERATOR).await?;
        let added = run(&["catalog", "add", "shop", &image, "-d", "A shop", "-p", "Me"]).await?;
        ensure!(added.contains(r#"created catalogsource "shop""#), "{added}");
        let listed = run(&["catalog", "list"]).await?;
        ensure!(listed.contains("shop") && listed.contains("A shop"), "{listed}");
        eventually("the package is listed", SOON, async || {
            let listed = run(&["list-available"]).await?;
            Ok((listed.contains(place) && listed.contains("A shop")).then_some(()))
        })
        .await?;
        let described = run(&["describe", place]).await?;
        ensure!(
            described.contains("1.0.0") && described.contains("stable"),
            "{described}"
        );

        let installed = run(&["install", place, "--create-operator-group", "-a", "Manual"]).await?;
        ensure!(
            installed.contains(r#"installed csv is "journey.v1.0.0""#),
            "{installed}"
        );
        let csv = |version: &str| {
            named(
                V1ALPHA1,
                "ClusterServiceVersion",
                place,
                &format!("journey.v{version}"),
            )
        };
        let succeeded = |found: &Value| found["status"]["phase"] == "Succeeded";
        stage
            .becomes("the operator is installed", &csv("1.0.0"), succeeded)
            .await?;
        let listed = run(&["list"]).await?;
        ensure!(listed.contains("journey.v1.0.0"), "{listed}");

        // A newer version: a plan waits for the approval that `upgrade` gives.
        let blobs = stage
            .lab
            .push_bundles(place, &["1.0.0", "1.0.1"], OPERATOR)
            .await?;
        let image = stage.lab.push_catalog("journey-catalog:newer", &blobs).await?;
        let patch = format!(r#"--patch={{"spec":{{"image":"{image}"}}}}"#);
        stage
            .lab
            .kubectl(&["patch", "catsrc", "shop", "-n", place, "--type=merge", &patch])?;
        let subscription = named(V1ALPHA1, "Subscription", place, place);
        stage
            .becomes("an upgrade waits", &subscription, |found| {
                found["status"]["currentCSV"] == "journey.v1.0.1"
                    && found["status"]["state"] == "UpgradePending"
            })
            .await?;
        let upgraded = run(&["upgrade", place]).await?;
        ensure!(upgraded.contains("journey.v1.0.1"), "{upgraded}");
        stage
            .becomes("the operator is upgraded", &csv("1.0.1"), succeeded)
            .await?;

        // The client asks for the first version among the components of the operator.
        let operator = named("operators.coreos.com/v1", "Operator", "", "journey.journey");
        stage
            .becomes("the old version is no component", &operator, |found| {
                let components = found["status"]["components"]["refs"].as_array();
                let is_old = |one: &Value| one["name"] == "journey.v1.0.0";
                components.is_some_and(|all| !all.is_empty() && !all.iter().any(is_old))
            })
            .await?;
        run(&["uninstall", place, "--delete-all"]).await?;
        for object in [&subscription, &csv("1.0.1"), &csv("1.0.0")] {
            eventually("it is gone", SOON, async || {
                Ok(stage.get(object).await?.is_none().then_some(()))
            })
            .await?;
        }
        run(&["catalog", "remove", "shop"]).await?;
        let source = named(V1ALPHA1, "CatalogSource", place, "shop");
        ensure!(stage.get(&source).await?.is_none(), "the catalog is there");
        Ok(())
    })
}
