//! The names in the shipped files exist.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use olm_test::docs::{page, pages};
use olm_test::world::repository;
use serde_json::Value;

use crate::queries::{family, metrics};
use crate::{Alert, alerts, rules};

const DASHBOARD: &str = "manifests/prometheus/dashboard/olm.json";

/// The queries of the dashboard, without the variables of Grafana.
fn dashboard() -> Result<Vec<String>> {
    let text = std::fs::read(repository().join(DASHBOARD))?;
    let dashboard: Value = serde_json::from_slice(&text)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array());
    let queries = targets.flatten().filter_map(|target| target["expr"].as_str());
    Ok(queries.map(str::to_owned).collect())
}

/// The queries of the rules and the dashboard.
pub(crate) fn named() -> Result<BTreeSet<String>> {
    let alerts = alerts()?;
    let queries = alerts.iter().map(|alert| alert.expr.clone());
    let all = queries.chain(dashboard()?);
    let mut named: BTreeSet<String> = all.flat_map(|query| metrics(&query)).collect();
    // Prometheus makes it of its own scrapes.
    named.remove("up");
    ensure!(named.len() > 20, "{named:?}");
    Ok(named)
}

#[test]
fn every_alert_has_its_texts_and_a_page() -> Result<()> {
    let mut linked = BTreeSet::new();
    for Alert {
        name: alert,
        labels,
        annotations,
        ..
    } in alerts()?
    {
        let severity = labels.get("severity").map(String::as_str).unwrap_or_default();
        ensure!(
            ["critical", "warning", "info"].contains(&severity),
            "{alert}: {severity}"
        );
        for text in ["summary", "description"] {
            ensure!(
                annotations.get(text).is_some_and(|text| text.ends_with('.')),
                "{alert}: {text}"
            );
        }
        let command = annotations.get("runbook").context("runbook")?;
        ensure!(*command == format!("olm runbook {alert}"), "{alert}: {command}");
        let text = page(&format!("runbooks/{alert}.md"))?.text;
        for heading in ["Meaning", "Impact", "Diagnosis", "Mitigation"] {
            ensure!(
                text.contains(&format!("\n## {heading}\n")),
                "{alert}: no {heading}"
            );
        }
        ensure!(
            page("how-to/monitor.md")?
                .text
                .contains(&format!("| [{alert}](../runbooks/{alert}.md) | {severity} |")),
            "{alert}: not in the table of monitor.md"
        );
        linked.insert(format!("docs/runbooks/{alert}.md"));
    }
    let there = pages()?.into_iter().map(|page| page.path.display().to_string());
    let there: BTreeSet<String> = there.filter(|path| path.starts_with("docs/runbooks/")).collect();
    assert_eq!(linked, there, "each page belongs to an alert");
    Ok(())
}

#[test]
fn queries_name_only_documented_metrics() -> Result<()> {
    let reference = page("reference/metrics.md")?.text;
    for name in named()? {
        let is_documented = reference.contains(&format!("`{}`", family(&name)))
            || (name.starts_with("process_") && reference.contains("`process_*`"));
        ensure!(is_documented, "{name} is not in docs/reference/metrics.md");
    }
    Ok(())
}

/// The seconds of a duration such as `15s`, `2m`.
fn seconds(text: &str) -> Result<u64> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        _ => anyhow::bail!("{text}"),
    };
    Ok(number.parse::<u64>()? * factor)
}

/// At worst, a fault comes right after a scrape, and the scrape right after an evaluation.
#[test]
fn urgent_alerts_fire_within_a_minute_of_the_fault() -> Result<()> {
    const URGENT: &[&str] = &[
        "OLMCatalogdDown",
        "OLMOperatorControllerDown",
        "OLMExtensionUnavailable",
    ];
    let mut scrapes = Vec::new();
    for path in [
        "manifests/prometheus/monitors.yaml",
        "manifests/overlays/openshift/monitoring.yaml",
    ] {
        let text = std::fs::read_to_string(repository().join(path))?;
        for document in text.split("\n---\n") {
            let object: Value = olm_yaml::to_json(document)?;
            if object["kind"] == "ServiceMonitor" {
                let endpoint = &object["spec"]["endpoints"][0];
                let interval = seconds(endpoint["interval"].as_str().context("interval")?)?;
                scrapes
                    .push(interval + seconds(endpoint["scrapeTimeout"].as_str().context("scrapeTimeout")?)?);
            }
        }
    }
    ensure!(scrapes.len() == 4, "{scrapes:?}");
    let scrape = scrapes.into_iter().max().unwrap_or_default();
    let rules = rules()?;
    let mut urgent = 0;
    for group in rules["groups"].as_array().context("groups")? {
        let interval = seconds(group["interval"].as_str().context("interval")?)?;
        for rule in group["rules"].as_array().context("rules")? {
            let name = rule["alert"].as_str().unwrap_or_default();
            if URGENT.contains(&name) {
                let lasts = seconds(rule["for"].as_str().context("for")?)?;
                let latest = scrape + interval + lasts.div_ceil(interval) * interval;
                ensure!(latest <= 60, "{name} fires after {latest} s");
                urgent += 1;
            }
        }
    }
    ensure!(urgent == URGENT.len(), "{urgent} urgent alerts");
    Ok(())
}
