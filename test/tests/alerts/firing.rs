//! A real Prometheus scrapes both managers and fires the shipped alerts on faults of a real cluster.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use olm_test::extensions::{administrator, await_version, catalog};
use olm_test::samples;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

use crate::prometheus::Prometheus;
use crate::shipped::named;

/// The time limit for an alert; each alert defines how long a fault must last.
const LATEST: Duration = Duration::from_mins(5);
/// Metrics that are there in states only that this test does not hold.
const PASSING: &[&str] = &[
    "operator_controller_extension_update_available",
    "operator_controller_extension_update_held_back",
    "operator_controller_extension_rollout_started_timestamp_seconds",
    "operator_controller_extension_deletion_requested_timestamp_seconds",
];

/// Waits for an alert and logs the time.
#[expect(clippy::print_stdout, reason = "how long it took is for readers")]
async fn fires(world: &World, prometheus: &Prometheus, fault: Instant, labels: &Value) -> Result<()> {
    world
        .eventually(&format!("{labels} fires"), LATEST, async || {
            let firing = prometheus.firing().await?;
            let wanted = labels.as_object().into_iter().flatten();
            let fits = |alert: &Value| wanted.clone().all(|(key, value)| alert[key] == *value);
            ensure!(firing.iter().any(fits), "{firing:?}");
            Ok(Some(()))
        })
        .await?;
    println!("{labels} fires {} s after the fault", fault.elapsed().as_secs());
    Ok(())
}

/// Waits until no alert fires without a fault. While the servers start, Prometheus may lose scrapes.
async fn is_quiet(world: &World, prometheus: &Prometheus) -> Result<()> {
    world
        .eventually("no alert fires", LATEST, async || {
            tokio::time::sleep(Duration::from_secs(32)).await;
            let (firing, unhealthy) = (prometheus.firing().await?, prometheus.unhealthy().await?);
            ensure!(
                firing.is_empty(),
                "without a fault: {firing:?}; lost scrapes: {unhealthy:?}"
            );
            Ok(Some(()))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_fires_on_faults() -> Result<()> {
    let elected = || vec!["--leader-elect".to_owned()];
    let mut world = World::start(Options {
        catalogd: elected(),
        operator_controller: elected(),
        ..Options::default()
    })
    .await?;
    let reference = world
        .publish("greeter", &["1.0.0"], samples::OPERATOR_IMAGE)
        .await?;
    world.apply(&[catalog("greeter", &reference)])?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    await_version(&world, "greeter", "1.0.0").await?;
    world.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "cext/greeter"])?;

    let prometheus = Prometheus::start(&world)?;
    world
        .eventually("both managers are scraped", LATEST, async || {
            let unhealthy = prometheus.unhealthy().await?;
            ensure!(unhealthy.is_empty(), "{unhealthy:?}");
            Ok(Some(()))
        })
        .await?;
    is_quiet(&world, &prometheus).await?;

    let fault = Instant::now();
    // Its Pods cannot be scheduled again.
    let nodes = world.kubectl(&["get", "nodes", "-o", "name"])?;
    for node in nodes.lines() {
        world.kubectl(&["cordon", node.trim_start_matches("node/")])?;
    }
    world.kubectl(&["delete", "pods", "--all", "-n", "greeter", "--wait=false"])?;
    let [namespace, account, _] = administrator("powerless", "installer");
    let lost = format!("{}/lost:latest", world.registry()?);
    world.apply(&[
        namespace,
        account,
        json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterExtension",
            "metadata": { "name": "powerless" },
            "spec": {
                "namespace": "powerless",
                "serviceAccount": { "name": "installer" },
                "source": { "sourceType": "Catalog", "catalog": {
                    "packageName": "powerless",
                    "selector": { "matchLabels": { "olm.operatorframework.io/metadata.name": "powerless" } },
                } },
            },
        }),
        catalog("lost", &lost),
    ])?;
    let reference = world
        .publish("powerless", &["1.0.0"], samples::OPERATOR_IMAGE)
        .await?;
    world.apply(&[catalog("powerless", &reference)])?;
    for labels in [
        json!({ "alertname": "OLMExtensionUnavailable", "extension": "greeter", "severity": "critical" }),
        json!({ "alertname": "OLMExtensionBlocked", "extension": "powerless", "severity": "warning" }),
        json!({ "alertname": "OLMCatalogNotServed", "catalog": "lost", "severity": "warning" }),
    ] {
        fires(&world, &prometheus, fault, &labels).await?;
    }
    let names = prometheus.names().await?;
    for name in named()? {
        let is_there = names.contains(&name) || PASSING.contains(&name.as_str());
        ensure!(is_there, "{name} is none of {names:?}");
    }

    for node in nodes.lines() {
        world.kubectl(&["uncordon", node.trim_start_matches("node/")])?;
    }
    let fault = Instant::now();
    world.catalogd.stop().await?;
    world.operator_controller.stop().await?;
    for alert in ["OLMCatalogdDown", "OLMOperatorControllerDown"] {
        let labels = json!({ "alertname": alert, "severity": "critical" });
        fires(&world, &prometheus, fault, &labels).await?;
    }
    world.start_catalogd()?;
    world.start_operator_controller()?;
    world
        .eventually("what is mended does not alert any more", LATEST, async || {
            let firing = prometheus.firing().await?;
            let mended = [
                "OLMCatalogdDown",
                "OLMOperatorControllerDown",
                "OLMExtensionUnavailable",
            ];
            let left = firing.iter().filter_map(|alert| alert["alertname"].as_str());
            let left: Vec<&str> = left.filter(|alert| mended.contains(alert)).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await
}
