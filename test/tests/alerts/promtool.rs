//! Prometheus's own tool reads the rules and plays them on series.

use std::process::Command;

use anyhow::{Result, ensure};
use olm_test::cluster::Binaries;
use olm_test::world::repository;
use tempfile::TempDir;

use crate::{alerts, rules};

const SAMPLES: &[&str] = &["alerts.yaml", "long.yaml"];

#[test]
fn alerts_fire_on_series_that_show_a_fault_and_on_no_others() -> Result<()> {
    let folder = TempDir::new()?;
    std::fs::write(folder.path().join("rules.yaml"), rules()?.to_string())?;
    let mut texts = String::new();
    for name in SAMPLES {
        let text = std::fs::read_to_string(repository().join("test/samples/alerts").join(name))?;
        std::fs::write(folder.path().join(name), &text)?;
        texts.push_str(&text);
    }
    for alert in alerts()? {
        let asked = format!("expr: ALERTS{{alertname=\"{}\"", alert.name);
        let count = texts.matches(&asked).count();
        ensure!(count >= 2, "{}: quiet and firing", alert.name);
    }
    let tool = Binaries::ensure_prometheus()?.path("promtool");
    for arguments in [
        &["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"][..],
        &["test", "rules", "alerts.yaml", "long.yaml"],
    ] {
        let output = Command::new(&tool)
            .args(arguments)
            .current_dir(folder.path())
            .output()?;
        ensure!(
            output.status.success(),
            "promtool {}:\n{}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
