//! Conditions of Subscriptions about their catalogs and resolutions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use olm_test::world::eventually;
use serde_json::json;
use tokio::net::TcpListener;

use crate::stage::{CLUSTER, SOON, V1ALPHA1, condition, named, subscription};

#[test]
fn a_package_that_no_catalog_has_is_named_until_it_comes() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.offer("absent", &["1.0.0"]).await?;
        stage.subscribe("absent", &json!({"name": "nowhere"}))?;
        let why = stage
            .says("absent", "ResolutionFailed", "True", "ConstraintsNotSatisfiable")
            .await?;
        let expected = "constraints not satisfiable: no operators found in package nowhere in the catalog referenced by \
                        subscription absent, subscription absent exists, `kubectl get packagemanifests -n absent` lists the packages";
        ensure!(why == expected, "{why}");
        stage.subscribe("absent", &json!({"channel": "beta"}))?;
        let object = subscription("absent", &json!({}));
        let is_reported = |found: &serde_json::Value| {
            let failed = condition(found, "ResolutionFailed");
            failed.and_then(|failed| failed["message"].as_str()).is_some_and(|why| {
                why.contains("no operators found in channel beta of package absent")
                    && why.ends_with("package absent has the channels stable")
            })
        };
        stage.becomes("the channels are named", &object, is_reported).await?;
        stage.subscribe("absent", &json!({}))?;
        let installed = stage.installs("absent", "1.0.0").await?;
        ensure!(condition(&installed, "ResolutionFailed").is_none(), "{installed}");
        Ok(())
    })
}

#[test]
fn a_missing_catalog_and_a_missing_operator_group_are_named() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.lab.apply(&[named("v1", "Namespace", "", "bare")])?;
        stage.subscribe("bare", &json!({}))?;
        let why = stage
            .says("bare", "CatalogSourcesUnhealthy", "True", "NoCatalogSourcesFound")
            .await?;
        ensure!(
            why == "dependency resolution requires at least one catalogsource",
            "{why}"
        );
        let why = stage
            .says("bare", "ResolutionFailed", "True", "ErrorPreventedResolution")
            .await?;
        ensure!(why == "found 0 operatorGroups, expected 1", "{why}");
        stage.offer("bare", &["1.0.0"]).await?;
        stage.installs("bare", "1.0.0").await?;
        stage
            .says(
                "bare",
                "CatalogSourcesUnhealthy",
                "False",
                "AllCatalogSourcesHealthy",
            )
            .await?;
        Ok(())
    })
}

#[test]
fn a_dependency_brings_its_own_subscription() -> Result<()> {
    CLUSTER.with(async |stage| {
        let needed = stage.lab.push_bundles("needed", &["1.0.0"], crate::stage::OPERATOR).await?;
        let needing = stage.lab.push_bundles("needing", &["1.0.0"], crate::stage::OPERATOR).await?;
        let plain = r#"{"type":"olm.package","value":{"packageName":"needing","version":"1.0.0"}}"#;
        ensure!(needing.contains(plain), "{needing}");
        let requires = format!(
            r#"{plain},{{"type":"olm.gvk.required","value":{{"group":"needed.olm.example","version":"v1","kind":"Greeting"}}}}"#
        );
        let blobs = format!("{}{needed}", needing.replace(plain, &requires));
        let image = stage.lab.push_catalog("needing-catalog:latest", &blobs).await?;
        stage.group("needing", json!({}))?;
        stage.lab.apply(&[crate::stage::catalog_source("needing", &image)])?;
        stage.subscribe("needing", &json!({}))?;
        stage.installs("needing", "1.0.0").await?;
        let generated = named(V1ALPHA1, "Subscription", "needing", "needed-stable-catalog-needing");
        let found = stage
            .becomes("the dependency is installed", &generated, |found| {
                found["status"]["installedCSV"] == "needed.v1.0.0"
            })
            .await?;
        let plan = stage.phase("needing", "Complete").await?;
        ensure!(found["metadata"]["annotations"]["olm.generated-by"] == plan["metadata"]["name"]);
        ensure!(found["spec"]["startingCSV"] == "needed.v1.0.0" && found["spec"]["source"] == "catalog");
        let plans = stage.list(&named(V1ALPHA1, "InstallPlan", "needing", "")).await?;
        ensure!(plans.len() == 1, "{} plans", plans.len());
        Ok(())
    })
}

#[test]
fn a_deprecated_version_is_reported() -> Result<()> {
    CLUSTER.with(async |stage| {
        let blobs = stage
            .lab
            .push_bundles("fading", &["1.0.0"], crate::stage::OPERATOR)
            .await?;
        let deprecations = json!({"schema": "olm.deprecations", "package": "fading", "entries": [
            {"reference": {"schema": "olm.package"}, "message": "fading ends"},
            {"reference": {"schema": "olm.bundle", "name": "fading.v1.0.0"}, "message": "too old"},
        ]});
        let image = stage
            .lab
            .push_catalog("fading-catalog:latest", &format!("{blobs}{deprecations}\n"))
            .await?;
        stage.group("fading", json!({}))?;
        stage
            .lab
            .apply(&[crate::stage::catalog_source("fading", &image)])?;
        stage.subscribe("fading", &json!({}))?;
        stage.installs("fading", "1.0.0").await?;
        let object = subscription("fading", &json!({}));
        let is_reported = |found: &serde_json::Value| condition(found, "Deprecated").is_some();
        let found = stage
            .becomes("the deprecation is reported", &object, is_reported)
            .await?;
        let message = |kind: &str| condition(&found, kind).map(|found| found["message"].clone());
        ensure!(message("PackageDeprecated") == Some(json!("olm.package/fading: fading ends")));
        ensure!(message("BundleDeprecated") == Some(json!("olm.bundle/fading.v1.0.0: too old")));
        ensure!(
            message("Deprecated")
                == Some(json!(
                    "olm.package/fading: fading ends; olm.bundle/fading.v1.0.0: too old"
                ))
        );
        Ok(())
    })
}

#[test]
fn a_registry_that_does_not_list_its_bundles_is_named_and_asked_again() -> Result<()> {
    CLUSTER.with(async |stage| {
        let registry = BrokenRegistry::start().await?;
        stage.group("unlisted", json!({}))?;
        let mut source = crate::stage::catalog_source("unlisted", "");
        source["spec"] = json!({"sourceType": "grpc", "address": registry.address});
        stage.lab.apply(std::slice::from_ref(&source))?;
        stage
            .becomes("the registry is connected", &source, |found| {
                found["status"]["connectionState"]["lastObservedState"] == "READY"
            })
            .await?;
        stage.subscribe("unlisted", &json!({}))?;
        let why = stage
            .says("unlisted", "ResolutionFailed", "True", "ErrorPreventedResolution")
            .await?;
        let expected = "error using catalogsource unlisted/catalog: failed to list bundles: rpc error: code = Unknown desc = broken";
        ensure!(why == expected, "{why}");
        let told = named("v1", "Event", "default", "");
        eventually("the failure is an event of the Namespace", SOON, async || {
            let events = stage.list(&told).await?;
            let is_it = |event: &serde_json::Value| {
                event["reason"] == "ResolutionFailed" && event["involvedObject"]["name"] == "unlisted"
            };
            Ok(events.iter().any(is_it).then_some(()))
        })
        .await?;
        // Nothing but another question shows that the registry works again: it lists no bundles then.
        registry.is_mended.store(true, Ordering::Release);
        let why = stage
            .says("unlisted", "ResolutionFailed", "True", "ConstraintsNotSatisfiable")
            .await?;
        ensure!(
            why.contains("no operators found from catalog catalog in namespace unlisted"),
            "{why}"
        );
        stage
            .says(
                "unlisted",
                "CatalogSourcesUnhealthy",
                "False",
                "AllCatalogSourcesHealthy",
            )
            .await?;
        Ok(())
    })
}

/// A registry whose calls fail until it is mended, and that has no bundles then.
struct BrokenRegistry {
    address: String,
    is_mended: Arc<AtomicBool>,
}

impl BrokenRegistry {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let is_mended = Arc::<AtomicBool>::default();
        let mended = Arc::clone(&is_mended);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mended = Arc::clone(&mended);
                let answer = service_fn(move |_: Request<Incoming>| {
                    let code = if mended.load(Ordering::Acquire) { "0" } else { "2" };
                    let answer = Response::builder()
                        .header("content-type", "application/grpc")
                        .header("grpc-status", code)
                        .header("grpc-message", "broken")
                        .body(Empty::<Bytes>::new());
                    async move { answer }
                });
                tokio::spawn(async move {
                    let server = http2::Builder::new(TokioExecutor::new());
                    server.serve_connection(TokioIo::new(stream), answer).await
                });
            }
        });
        Ok(Self { address, is_mended })
    }
}
