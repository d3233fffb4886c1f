//! Access to the metrics, and their content.

use anyhow::{Context as _, Result, ensure};
use olm_api::names;
use olm_test::extensions::{administrator, catalog, patch_source};
use olm_test::samples;
use serde_json::json;

use crate::files::token;
use crate::{CLUSTER, SOON, Stage, publish};

/// A client needs a token and the permission, which the shipped roles grant.
#[test]
fn metrics_are_for_accounts_with_the_shipped_roles() -> Result<()> {
    CLUSTER.with(async |stage| {
        let (catalogd, other) = (stage.of_catalogd()?, stage.of_operator_controller().await?);
        let Stage { world, reader, .. } = stage;
        let stranger = token(world, "stranger")?;
        for (scraper, manager) in [(&catalogd, &world.catalogd), (&other, &world.operator_controller)] {
            ensure!(scraper.get(manager, None).await?.0 == 401, "a token is needed");
            ensure!(
                scraper.get(manager, Some("made up")).await?.0 == 401,
                "a true token is needed"
            );
            let (status, text) = scraper.get(manager, Some(&stranger)).await?;
            ensure!(
                status == 403 && text.contains("system:serviceaccount:default:stranger"),
                "{status}: {text}"
            );
            scraper
                .shows(world, manager, reader, &["process_resident_memory_bytes"])
                .await?;
        }
        Ok(())
    })
}

/// The names that dashboards for controllers know, with values that work has left.
#[test]
fn metrics_show_the_work_of_both_managers() -> Result<()> {
    CLUSTER.with(async |stage| {
        let (catalogd, other) = (stage.of_catalogd()?, stage.of_operator_controller().await?);
        let Stage {
            world, reader: token, ..
        } = stage;
        let of = |controller: &str| {
            let label = format!("{{name=\"{controller}\",controller=\"{controller}\"}}");
            let queue = [
                "depth",
                "adds_total",
                "retries_total",
                "queue_duration_seconds_count",
                "work_duration_seconds_count",
                "unfinished_work_seconds",
                "longest_running_processor_seconds",
            ];
            let mut all: Vec<String> = queue
                .iter()
                .map(|name| format!("workqueue_{name}{label} "))
                .collect();
            let label = format!("{{controller=\"{controller}\"");
            for name in ["total", "errors_total", "panics_total", "time_seconds_count"] {
                all.push(format!("controller_runtime_reconcile_{name}{label}"));
            }
            all.push(format!(
                "controller_runtime_terminal_reconcile_errors_total{label}"
            ));
            all.push(format!("controller_runtime_active_workers{label}"));
            all.push(format!("controller_runtime_max_concurrent_reconciles{label}"));
            all
        };
        let server = kube::config::Kubeconfig::read_from(world.cluster.kubeconfig())?;
        let server = server
            .clusters
            .first()
            .and_then(|named| named.cluster.as_ref()?.server.clone());
        let host = server
            .unwrap_or_default()
            .trim_start_matches("https://")
            .to_owned();
        for (scraper, manager, controllers, lease, methods) in [
            (
                &catalogd,
                &world.catalogd,
                &["catalogd-clustercatalog-controller"][..],
                names::lease::CATALOGD,
                &[("200", "GET"), ("201", "POST")][..],
            ),
            (
                &other,
                &world.operator_controller,
                &[
                    "controller-operator-cluster-extension-controller",
                    "clusterobjectset",
                ],
                names::lease::OPERATOR_CONTROLLER,
                // A PATCH is made under the account of an extension.
                &[("200", "GET"), ("201", "POST"), ("200", "PATCH")],
            ),
        ] {
            let mut wanted: Vec<String> = controllers.iter().flat_map(|name| of(name)).collect();
            wanted.push(format!("leader_election_master_status{{name=\"{lease}\"}} 1"));
            for (code, method) in methods {
                wanted.push(format!(
                    "rest_client_requests_total{{code=\"{code}\",method=\"{method}\",host=\"{host}\"}}"
                ));
            }
            let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            scraper.shows(world, manager, token, &wanted).await?;
        }
        Ok(())
    })
}

/// The series of each catalog: whether it is served, its content with its time, the cost of its pull, and failures. A
/// catalog that is not served would block the extensions of other tests.
#[test]
fn metrics_show_every_catalog() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let scraper = stage.of_catalogd()?;
        let Stage {
            world, reader: token, ..
        } = stage;
        let anonymous = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .build()?;
        anonymous
            .get(format!("{}/catalogs", world.catalogs))
            .send()
            .await?;
        // A catalog that this process has pulled.
        publish(world, "measured").await?;
        let lost = format!("{}/lost:latest", world.registry()?);
        world.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": { "name": "lost" },
        "spec": { "source": { "type": "Image", "image": { "ref": lost } } },
    })])?;
        let begin = jiff::Timestamp::now().as_second();
        world
            .eventually("the metrics show catalogs", SOON, async || {
                let (_, text) = scraper.get(&world.catalogd, Some(token)).await?;
                let value = |metric: &str| -> Result<f64> {
                    let lines = text.lines().filter(|line| !line.starts_with('#'));
                    let mut values = lines.filter_map(|line| line.strip_prefix(metric)?.rsplit_once(' '));
                    let (_, value) = values.next().with_context(|| format!("no {metric} in {text}"))?;
                    Ok(value.parse()?)
                };
                for (metric, least, most) in [
                    ("catalogd_catalog_ready{catalog=\"measured\"}", 1.0, 1.0),
                    ("catalogd_catalog_ready{catalog=\"lost\"}", 0.0, 0.0),
                    (
                        "catalogd_catalog_failures_total{catalog=\"lost\",reason=\"registry\"}",
                        1.0,
                        1e6,
                    ),
                    (
                        "catalogd_catalog_content{catalog=\"measured\",digest=\"",
                        1.0,
                        1.0,
                    ),
                    ("catalogd_catalog_pull_seconds{catalog=\"measured\"}", 1e-6, 900.0),
                    (
                        "catalogd_catalog_unpack_seconds{catalog=\"measured\"}",
                        1e-6,
                        900.0,
                    ),
                    (
                        "catalogd_catalog_pulled_bytes_total{catalog=\"measured\"}",
                        100.0,
                        1e6,
                    ),
                    ("catalogd_catalog_bytes{catalog=\"measured\"}", 100.0, 1e6),
                    ("catalogd_catalog_blobs{catalog=\"measured\"}", 3.0, 100.0),
                    ("catalogd_catalog_findings{catalog=\"measured\"}", 0.0, 0.0),
                    ("catalogd_disk_used_bytes", 100.0, 1e9),
                    (
                        "catalogd_http_requests_total{endpoint=\"catalogs\",code=\"401\"}",
                        1.0,
                        1e6,
                    ),
                    (
                        "catalogd_http_requests_total{endpoint=\"metas\",code=\"200\"}",
                        1.0,
                        1e6,
                    ),
                    (
                        "catalogd_http_response_bytes_total{endpoint=\"metas\",code=\"200\"}",
                        100.0,
                        1e9,
                    ),
                    (
                        "catalogd_http_endpoint_duration_seconds_count{endpoint=\"metas\"}",
                        1.0,
                        1e6,
                    ),
                ] {
                    let found = value(metric)?;
                    ensure!((least..=most).contains(&found), "{metric} is {found}");
                }
                let stored = value("catalogd_catalog_stored_timestamp_seconds{catalog=\"measured\"}")?;
                let age = f64::from(i32::try_from(begin)?) - stored;
                ensure!((-5.0..=3600.0).contains(&age), "content is {age} s old");
                Ok(Some(()))
            })
            .await?;
        world.kubectl(&["delete", "clustercatalog", "lost", "measured"])?;
        world
            .eventually(
                "the metrics of a catalog that is gone are gone",
                SOON,
                async || {
                    let (_, text) = scraper.get(&world.catalogd, Some(token)).await?;
                    Ok((!text.contains("catalog=\"lost\"")).then_some(()))
                },
            )
            .await
    })
}

/// The series of each extension: its state, the installed bundle, and its history. They are removed with the extension.
#[test]
fn metrics_show_every_extension() -> Result<()> {
    CLUSTER.with(async |stage| {
        let scraper = stage.of_operator_controller().await?;
        let Stage {
            world, reader: token, ..
        } = stage;
        let name = "counted";
        let reference = world
            .publish(name, &["1.0.0", "1.0.1"], samples::OPERATOR_IMAGE)
            .await?;
        world.apply(&[catalog(name, &reference)])?;
        world.apply(&administrator(name, "counted-installer"))?;
        let role = world.sample_file("manifests/overlays/restricted/token-role.yaml", name, |text| text)?;
        world.kubectl(&["apply", "--server-side", "-f", &role])?;
        world.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": { "name": name },
            "spec": {
                "namespace": name, "serviceAccount": { "name": "counted-installer" },
                "source": { "sourceType": "Catalog", "catalog": {
                    "packageName": name, "channels": ["stable"], "version": "1.0.0",
                } },
            },
        })])?;
        let metric = |metric: &str, labels: &str, value: &str| {
            format!("operator_controller_extension_{metric}{{extension=\"{name}\"{labels}}} {value}")
        };
        let shows = async |wanted: &[String]| {
            let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            scraper.shows(world, &world.operator_controller, token, &wanted).await
        };
        let state = ",state=\"Ready\",reason=\"Healthy\"";
        let info = |version| {
            format!(",package=\"{name}\",version=\"{version}\",channel=\"stable\",catalog=\"{name}\"")
        };
        shows(&[
            metric("ready", "", "1"),
            metric("state", state, "1"),
            metric("info", &info("1.0.0"), "1"),
            metric("installed", "", "1"),
            metric("available", "", "1"),
            metric("deprecated", "", "0"),
            metric("upgrades_total", "", "0"),
            metric("drift_repairs_total", "", "0"),
            "operator_controller_extensions{state=\"Ready\",reason=\"Healthy\"} ".to_owned(),
            "operator_controller_resolution_duration_seconds_count{outcome=\"succeeded\"} ".to_owned(),
            "operator_controller_rollout_duration_seconds_count ".to_owned(),
        ])
        .await?;

        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        shows(&[
            metric("ready", "", "1"),
            metric("info", &info("1.0.1"), "1"),
            metric("upgrades_total", "", "1"),
        ])
        .await?;
        // While a change waits for an approval, it counts.
        let waiting = "operator_controller_pending_changes{reason=\"AwaitingApproval\"} ";
        world.kubectl(&["label", "clusterextension", name, "example.com/policy=counted"])?;
        world.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ChangePolicy", "metadata": { "name": name },
            "spec": {
                "selector": { "matchLabels": { "example.com/policy": name } },
                "approval": { "default": "Manual" },
            },
        })])?;
        let back = json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" });
        patch_source(world, name, back).await?;
        shows(&[format!("{waiting}1")]).await?;
        let forth = json!({ "version": "1.0.1", "upgradeConstraintPolicy": "CatalogProvided" });
        patch_source(world, name, forth).await?;
        shows(&[format!("{waiting}0"), metric("ready", "", "1")]).await?;
        world.kubectl(&["delete", "changepolicy", name])?;

        let deployment = format!("deployment/{name}-operator");
        world.kubectl(&["scale", &deployment, "-n", name, "--replicas=3"])?;
        shows(&[metric("drift_repairs_total", "", "1")]).await?;

        world.kubectl(&["delete", "clusterextension", name])?;
        world
            .eventually("the metrics of an extension that is gone are gone", SOON, async || {
                let (_, text) = scraper.get(&world.operator_controller, Some(token)).await?;
                Ok((!text.contains("extension=\"counted\"")).then_some(()))
            })
            .await?;
        world.kubectl(&["delete", "clustercatalog", name]).map(drop)
    })
}
