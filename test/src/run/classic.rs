//! `olm-test run --classic`: the same with the API of OLM classic.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::{Shell, until_interrupted};
use crate::world::{Lab, eventually, repository};
use crate::{classic, samples};

/// Starts a cluster, a registry, olm-operator and catalog-operator, installs the sample operator by a Subscription,
/// says how to go on, and stays up until SIGINT or SIGTERM.
///
/// # Errors
/// When a part does not start or the operator is not installed within two minutes.
pub async fn run() -> Result<()> {
    let mut out = std::io::stderr();
    let begin = Instant::now();
    writeln!(
        out,
        "starting a cluster, a registry, olm-operator and catalog-operator …"
    )?;
    let lab = Lab::with_manifests("manifests/classic").await?;
    let programs = classic::start(&lab).await?;
    writeln!(
        out,
        "all up after {:.1} s; pushing the sample catalog",
        begin.elapsed().as_secs_f64()
    )?;
    let catalog = lab
        .publish_greeter(samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    let sample = repository().join("manifests/samples/greeter-classic.yaml");
    let sample =
        std::fs::read_to_string(&sample).with_context(|| format!("cannot read {}", sample.display()))?;
    let applied = lab.folder().join("greeter-classic.yaml");
    std::fs::write(&applied, sample.replace("IMAGE", &catalog))?;
    lab.kubectl(&["apply", "-f", &applied.display().to_string()])?;
    eventually(
        "the sample operator is installed",
        Duration::from_mins(2),
        async || {
            let phases = ["-o", "jsonpath={.items[*].status.phase}"];
            let phases = lab.kubectl(&[&["get", "csv", "-n", "greeter"][..], &phases].concat())?;
            if phases == "Succeeded" {
                return Ok(Some(()));
            }
            bail!("the phases of ClusterServiceVersions are {phases:?}")
        },
    )
    .await?;
    writeln!(out, "installed after {:.1} s\n", begin.elapsed().as_secs_f64())?;
    let kinds = "catalogsources,subscriptions,installplans,csv,deployments";
    writeln!(out, "{}", lab.kubectl(&["get", kinds, "-n", "greeter"])?)?;
    writeln!(out, "In another terminal:\n\n  {}", Shell::of(&lab)?.export())?;
    writeln!(out, "  kubectl get csv -n greeter -o yaml")?;
    for program in &programs {
        writeln!(out, "  log: {}", program.log.display())?;
    }
    until_interrupted().await
}
