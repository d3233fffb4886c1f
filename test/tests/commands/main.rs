//! The commands of `olm` for a cluster, run as an administrator runs them, against the API server and both managers.

mod contexts;
mod lifecycle;
mod outputs;
mod reach;
mod refusals;
mod support;

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::catalog;
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary};

static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

/// The package that all steps use. No node accepts the Pods of its version 2.0.0.
const LAMP: &str = "lamp";
/// The package of the other scenarios.
const FAN: &str = "fan";
/// The package whose commands are recorded.
const VASE: &str = "vase";
/// The package whose changes wait for approvals, in the catalog of the vases.
const VIAL: &str = "vial";
/// A package in the same catalog that nothing installs.
const VAT: &str = "vat";

async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let mut images = std::collections::BTreeMap::new();
    for version in samples::VERSIONS {
        let mut files = samples::renamed_bundle(LAMP, version, samples::OPERATOR_IMAGE);
        if *version == "2.0.0" {
            let place = "                serviceAccountName: ";
            for content in files.values_mut() {
                let text = String::from_utf8_lossy(content);
                let text = text.replace(
                    place,
                    &format!("                nodeSelector: {{lamp: none}}\n{place}"),
                );
                *content = text.into_bytes();
            }
        }
        let name = format!("{LAMP}-bundle:v{version}");
        images.insert((*version).to_owned(), world.push_bundle(&name, &files).await?);
    }
    let blobs = samples::catalog(samples::VERSIONS, |version| {
        images.get(version).cloned().unwrap_or_default()
    });
    let lamps = world
        .push_catalog("lamps:latest", &samples::renamed(LAMP, &blobs))
        .await?;
    let fans = world
        .publish(FAN, samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    let mut blobs = String::new();
    for package in [VASE, VAT, VIAL] {
        let bundles = world.push_bundles(package, samples::VERSIONS, samples::OPERATOR_IMAGE);
        blobs.push_str(&bundles.await?);
    }
    let vases = world.push_catalog("vase-catalog:latest", &blobs).await?;
    world.apply(&[
        catalog("lamps", &lamps),
        catalog("fans", &fans),
        catalog("vases", &vases),
    ])?;
    for name in [
        "clustercatalog/lamps",
        "clustercatalog/fans",
        "clustercatalog/vases",
    ] {
        world.kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", name])?;
    }
    Ok(world)
}

/// The result of a command.
struct Ran {
    arguments: String,
    status: i32,
    printed: String,
    said: String,
}

impl Ran {
    fn ended(self, status: i32) -> Result<Self> {
        ensure!(self.status == status, "{self} instead of {status}");
        Ok(self)
    }

    /// Checks for parts of the standard output.
    fn prints(self, parts: &[&str]) -> Result<Self> {
        for part in parts {
            ensure!(self.printed.contains(part), "{part:?} is not printed: {self}");
        }
        Ok(self)
    }

    /// Checks for parts of the standard error.
    fn says(self, parts: &[&str]) -> Result<Self> {
        for part in parts {
            ensure!(self.said.contains(part), "{part:?} is not said: {self}");
        }
        Ok(self)
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "`olm {}` ends with {}\n{}---\n{}",
            self.arguments, self.status, self.printed, self.said
        )
    }
}

/// Runs `olm` on a line of arguments, with the kubeconfig of an administrator.
fn olm(world: &World, line: &str) -> Result<Ran> {
    let kubeconfig = world.cluster.kubeconfig().display().to_string();
    olm_as(world, &kubeconfig, line)
}

/// The same with another kubeconfig.
fn olm_as(world: &World, kubeconfig: &str, line: &str) -> Result<Ran> {
    let run = Command::new(binary("olm")?)
        .args(line.split_whitespace())
        .current_dir(world.folder())
        .env("KUBECONFIG", kubeconfig)
        .stdin(std::process::Stdio::null())
        .output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ran {
        arguments: line.to_owned(),
        status: run.status.code().context("it was killed")?,
        printed: text(&run.stdout),
        said: text(&run.stderr),
    })
}

/// The options with which bundles can be read from the registry.
fn trusting(world: &World) -> String {
    format!("--ca-dir {}", world.authorities().display())
}
