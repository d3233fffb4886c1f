//! `olm-test run`: the main job, to look at and to type along with.

pub mod classic;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Api;
use olm_api::cluster_extension::ClusterExtension;
use olm_api::conditions;
use serde_json::json;

use crate::samples;
use crate::world::{Lab, Options, World};

/// Starts all parts, installs the sample operator, prints the next steps, and runs until SIGINT or SIGTERM.
///
/// # Errors
/// When a part does not start or the extension is not installed within two minutes.
pub async fn run() -> Result<()> {
    let mut out = std::io::stderr();
    let begin = Instant::now();
    writeln!(
        out,
        "starting a cluster, a registry, catalogd and operator-controller …"
    )?;
    let world = World::start(Options::default()).await?;
    writeln!(
        out,
        "all up after {:.1} s; pushing the sample catalog",
        begin.elapsed().as_secs_f64()
    )?;
    let catalog = world
        .publish_greeter(samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    world.apply(&[json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterCatalog",
        "metadata": { "name": "samples" },
        "spec": { "source": { "type": "Image", "image": { "ref": catalog, "pollIntervalMinutes": 1 } } },
    })])?;
    world.apply_file("manifests/samples/greeter.yaml")?;
    let extensions = Api::<ClusterExtension>::all(world.client.clone());
    world
        .eventually(
            "the sample operator is installed",
            Duration::from_mins(2),
            async || {
                let extension = extensions.get("greeter").await?;
                Ok(conditions::is_true(extension.conditions(), conditions::INSTALLED).then_some(()))
            },
        )
        .await?;
    writeln!(out, "installed after {:.1} s\n", begin.elapsed().as_secs_f64())?;
    writeln!(
        out,
        "{}",
        world.kubectl(&["get", "clusterextensions,clusterobjectsets,clustercatalogs"])?
    )?;
    writeln!(out, "In another terminal:\n\n  {}", Shell::of(&world)?.export())?;
    writeln!(out, "  olm get\n  olm explain greeter\n  olm ui")?;
    writeln!(
        out,
        "  curl -k '{0}/catalogs/samples/api/v1/metas?schema=olm.channel'\n\ncatalogs to browse   {0}/",
        world.catalogs
    )?;
    writeln!(
        out,
        "registry            {0}\n  \
         olm bundle push DIRECTORY {0}/NAME-bundle:vVERSION\n  \
         olm catalog push DIRECTORY {0}/NAME:TAG",
        world.registry()?
    )?;
    writeln!(out, "catalogd logs       {}", world.catalogd.log.display())?;
    writeln!(
        out,
        "controller logs     {}",
        world.operator_controller.log.display()
    )?;
    until_interrupted().await
}

/// The settings for another terminal that uses a cluster.
pub struct Shell {
    /// The kubeconfig of an administrator.
    pub kubeconfig: String,
    /// The folders of `kubectl` and `olm`, separated by colons.
    pub path: String,
    /// The address of the registry.
    pub registry: String,
    /// The folder with the authority of the registry.
    pub authorities: String,
}

impl Shell {
    fn of(lab: &Lab) -> Result<Self> {
        let info = lab.cluster.info();
        let programs = info
            .path
            .split(':')
            .next()
            .context("the cluster has no programs")?;
        // `olm` is in the folder of this program.
        let here = std::env::current_exe()?;
        let here = here.parent().context("this program lies nowhere")?;
        Ok(Self {
            kubeconfig: info.kubeconfig.display().to_string(),
            path: format!("{programs}:{}", here.display()),
            registry: lab.registry()?.to_owned(),
            authorities: lab.authorities().display().to_string(),
        })
    }

    /// The line that sets all variables that the pages use.
    pub fn export(&self) -> String {
        format!(
            "export KUBECONFIG={} PATH={}:$PATH REGISTRY={} CA_DIR={authorities} SSL_CERT_FILE={authorities}/ca.crt",
            self.kubeconfig,
            self.path,
            self.registry,
            authorities = self.authorities
        )
    }
}

/// Waits for SIGINT or SIGTERM.
async fn until_interrupted() -> Result<()> {
    let mut out = std::io::stderr();
    writeln!(out, "\nUp until Ctrl-C.")?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! { _ = tokio::signal::ctrl_c() => {}, _ = terminate.recv() => {} }
    writeln!(out, "stopping")?;
    Ok(())
}
