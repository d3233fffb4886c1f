//! A large catalog, and the memory that it takes.

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use serde_json::json;

use crate::stage::{CLUSTER, Stage};

/// Packages of the catalog, each with five bundles of ten thousand bytes.
const PACKAGES: usize = 400;

#[test]
fn a_catalog_of_20_megabytes_is_streamed() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.namespace("large")?;
        let blobs = blobs();
        let image = stage.lab.push_catalog("large:v1", &blobs).await?;
        let before = memory(stage)?;
        let source = stage.source(
            "large",
            "catalog",
            json!({"sourceType": "grpc", "image": image}),
        )?;
        stage.connected(&source, "READY").await?;
        let unpacked = memory(stage)?;
        let clients = futures::future::try_join_all((0..4).map(|_| async {
            let client = stage.client("large", "catalog").await?;
            let bundles = client.list_bundles().await?;
            let count = bundles.try_fold(0_usize, |count, _| async move { Ok(count + 1) });
            anyhow::Ok(count.await?)
        }));
        assert_eq!(clients.await?, [PACKAGES * 5; 4]);
        let listed = memory(stage)?;
        println!(
            "{} MB of blobs; resident memory {before} MB before, {unpacked} MB served, {listed} MB after four clients",
            blobs.len() >> 20
        );
        Ok(())
    })
}

fn blobs() -> String {
    let mut blobs = String::new();
    for package in 0..PACKAGES {
        let name = format!("p{package:03}");
        let entries: Vec<_> = (0..5)
            .map(|version| json!({"name": format!("{name}.v{version}.0.0")}))
            .collect();
        let mut lines = vec![
            json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"}),
            json!({"schema": "olm.channel", "package": name, "name": "stable", "entries": entries}),
        ];
        lines.extend((0..5).map(|version| {
            json!({
                "schema": "olm.bundle", "package": name, "name": format!("{name}.v{version}.0.0"),
                "image": format!("registry.example/{name}@sha256:{}", "b".repeat(64)),
                "properties": [
                    {"type": "olm.package", "value": {"packageName": name, "version": format!("{version}.0.0")}},
                    {"type": "olm.csv.metadata", "value": {"description": "x".repeat(10_000)}},
                ],
            })
        }));
        blobs.extend(lines.iter().map(|line| format!("{line}\n")));
    }
    blobs
}

/// The resident memory of the program in MB.
fn memory(stage: &Stage) -> Result<u64> {
    let pid = stage.program.pid().context("it does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line.context("no VmRSS")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes >> 10)
}
