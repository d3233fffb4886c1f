//! OLM classic on the same node: the three programs as Pods, and the sample operator by a Subscription.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use super::{SOON, Story};
use crate::docs::page;
use crate::samples;
use crate::world::{CLASSIC_NAMESPACE, eventually, repository};

impl Story {
    /// Applies the shipped manifests, and waits for all three programs: `packageserver` is installed by `olm-operator`.
    pub(super) async fn deploy_classic(&mut self) -> Result<()> {
        let lab = &self.lab;
        let authority = std::fs::read_to_string(lab.authorities().join("ca.crt"))?;
        lab.apply(&[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": CLASSIC_NAMESPACE } }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "registry-ca", "namespace": CLASSIC_NAMESPACE },
                "data": { "ca.crt": authority },
            }),
        ])?;
        self.documented(0)?;
        for program in ["olm-operator", "catalog-operator", "packageserver"] {
            self.available(CLASSIC_NAMESPACE, program).await?;
        }
        self.csv(CLASSIC_NAMESPACE, "packageserver").await
    }

    /// Installs the sample operator by a Subscription, and checks its package and its function.
    pub(super) async fn subscribe(&mut self) -> Result<()> {
        let catalog = self
            .lab
            .publish_greeter(samples::VERSIONS, samples::OPERATOR_IMAGE)
            .await?;
        let sample = std::fs::read_to_string(repository().join("manifests/samples/greeter-classic.yaml"))?;
        let applied = self.lab.folder().join("greeter-classic.yaml");
        std::fs::write(&applied, sample.replace("IMAGE", &catalog))?;
        self.lab
            .kubectl(&["apply", "-f", &applied.display().to_string()])?;
        self.csv("greeter", "greeter.v1.1.0").await?;
        self.available("greeter", "greeter-operator").await?;
        self.greets("Hedy", None, "Hello, Hedy!", "1.1.0").await?;
        eventually("the package is listed", SOON, async || {
            let listed = self
                .lab
                .kubectl(&["get", "packagemanifests", "-n", "greeter", "-o", "name"])?;
            if listed.contains("packagemanifest.packages.operators.coreos.com/greeter") {
                return Ok(Some(()));
            }
            bail!("the packages are {listed:?}")
        })
        .await?;
        let checked = self.documented(1)?;
        ensure!(
            ["READY", "greeter.v1.1.0"]
                .iter()
                .all(|part| checked.contains(part)),
            "{checked}"
        );
        Ok(())
    }

    /// Deletes the Subscription and the ClusterServiceVersion, as clients do.
    pub(super) async fn unsubscribe(&mut self) -> Result<()> {
        self.lab
            .kubectl(&["delete", "subscription,csv", "--all", "-n", "greeter"])?;
        let owned = "olm.owner=greeter.v1.1.0";
        eventually("what was installed is gone", SOON, async || {
            let kinds = "deployments,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";
            let left = self
                .lab
                .kubectl(&["get", kinds, "-A", "-l", owned, "-o", "name"])?;
            if left.trim().is_empty() {
                return Ok(Some(()));
            }
            bail!("{left} is left")
        })
        .await?;
        let crd = self
            .lab
            .kubectl(&["get", "crd", "greetings.samples.olm.example", "-o", "name"])?;
        ensure!(
            !crd.is_empty(),
            "the CustomResourceDefinition is gone, and with it the data"
        );
        self.documented(2)?;
        let label = "app.kubernetes.io/part-of=olm-classic";
        let policies =
            self.lab
                .kubectl(&["get", "validatingadmissionpolicies", "-l", label, "-o", "name"])?;
        ensure!(policies.is_empty(), "the way back leaves {policies}");
        Ok(())
    }

    /// Runs a block of the page about replacing OLM classic, with the overlay of the tests over the manifests, and
    /// returns its output.
    fn documented(&self, number: usize) -> Result<String> {
        let blocks = page("how-to/replace-olm-classic.md")?.marked("sh node");
        let block = blocks.get(number).context("the page lacks a block")?;
        let commands = block.replace("-k manifests/classic\n", "-k test/e2e/classic\n");
        let mut shell = self.lab.cluster.exec("bash");
        let run = shell
            .args(["-euc", &commands])
            .current_dir(repository())
            .output()?;
        let printed = String::from_utf8_lossy(&run.stdout).into_owned();
        ensure!(
            run.status.success(),
            "{commands}\n{printed}{}",
            String::from_utf8_lossy(&run.stderr)
        );
        Ok(printed)
    }

    /// Waits until a ClusterServiceVersion has succeeded.
    async fn csv(&self, namespace: &str, name: &str) -> Result<()> {
        eventually(&format!("{namespace}/{name} has succeeded"), SOON, async || {
            let format = "jsonpath={.status.phase} {.status.reason}: {.status.message}";
            let status = self
                .lab
                .kubectl(&["get", "csv", name, "-n", namespace, "-o", format])?;
            if status.starts_with("Succeeded ") {
                return Ok(Some(()));
            }
            let plans =
                self.lab
                    .kubectl(&["get", "installplans,subscriptions", "-n", namespace, "-o", "yaml"])?;
            bail!("its status is {status}\n{plans}")
        })
        .await
    }
}
