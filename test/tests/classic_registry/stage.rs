//! The cluster that all scenarios share, and their actions on it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use classic::registry::client::RegistryClient;
use classic::registry::trust::Trust;
use olm_test::classic as prepared;
use olm_test::objects;
use olm_test::shared::Shared;
use olm_test::world::{Lab, Manager};
use serde_json::{Value, json};

/// The cluster with the running program.
pub(crate) static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// Time limit for steps that take a second.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The running program.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) program: Manager,
}

impl Stage {
    async fn start() -> Result<Self> {
        let lab = Lab::empty().await?;
        prepared::prepare(&lab)?;
        for file in ["rbac", "own-writes-policy"] {
            lab.apply_file(&format!("manifests/classic/{file}.yaml"))?;
        }
        let arguments = vec![
            format!("--classic-account={}", prepared::ACCOUNT),
            format!("--cache-dir={}", lab.folder().join("catalogs").display()),
            format!("--advertise-address={}", prepared::own_address()?),
        ];
        let program = Manager::classic(&lab, "catalog-operator", "catalog-operator", arguments).await?;
        let mut stage = Self { lab, program };
        stage.program.start(&stage.lab.cluster)?;
        stage.program.ready().await?;
        Ok(stage)
    }

    /// Makes a namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        self.lab
            .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})])
    }

    /// Makes or changes a CatalogSource, and returns it as it was applied.
    pub(crate) fn source(&self, namespace: &str, name: &str, spec: Value) -> Result<Value> {
        let source = source(namespace, name, spec);
        self.lab.apply(std::slice::from_ref(&source))?;
        Ok(source)
    }

    /// The object as it is now.
    pub(crate) async fn get(&self, object: &Value) -> Result<Option<Value>> {
        objects::find(&self.lab.client, object).await
    }

    /// Waits until an object is as wanted, and returns it.
    pub(crate) async fn becomes(
        &self,
        what: &str,
        object: &Value,
        is_meant: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        prepared::becomes(&self.lab.client, what, SOON, object, is_meant)
            .await
            .with_context(|| self.program.log_end())
    }

    /// Waits until the registry of a source is in this state, and returns the source.
    pub(crate) async fn connected(&self, source: &Value, state: &str) -> Result<Value> {
        let what = format!("{} is {state}", source["metadata"]["name"]);
        self.becomes(&what, source, |found| {
            found["status"]["connectionState"]["lastObservedState"] == state
        })
        .await
    }

    /// Waits until an object is gone.
    pub(crate) async fn goes(&self, object: &Value) -> Result<()> {
        prepared::goes(&self.lab.client, SOON, object)
            .await
            .with_context(|| self.program.log_end())
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, object: &Value) -> Result<()> {
        objects::delete(&self.lab.client, object).await
    }

    /// Address in the EndpointSlice of a source, as `HOST:PORT`.
    pub(crate) async fn endpoint(&self, namespace: &str, service: &str) -> Result<String> {
        let slice = self
            .get(&slice(namespace, service))
            .await?
            .context("no EndpointSlice")?;
        let address = slice["endpoints"][0]["addresses"][0]
            .as_str()
            .context("no address")?;
        Ok(format!("{address}:{}", slice["ports"][0]["port"]))
    }

    /// A connection to the registry of a source.
    pub(crate) async fn client(&self, namespace: &str, service: &str) -> Result<RegistryClient> {
        let address = self.endpoint(namespace, service).await?;
        Ok(RegistryClient::connect(&address, &Trust::default()).await?)
    }
}

pub(crate) fn source(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec,
    })
}

pub(crate) fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}})
}

pub(crate) fn slice(namespace: &str, service: &str) -> Value {
    named("discovery.k8s.io/v1", "EndpointSlice", namespace, service)
}

/// A catalog of one file whose packages are named; each has one bundle without an image in its channel `stable`.
pub(crate) fn blobs(packages: &[&str]) -> String {
    let lines = packages.iter().flat_map(|package| {
        let name = format!("{package}.v1.0.0");
        [
            json!({"schema": "olm.package", "name": package, "defaultChannel": "stable"}),
            json!({
                "schema": "olm.channel", "package": package, "name": "stable", "entries": [{"name": name}],
            }),
            json!({
                "schema": "olm.bundle", "package": package, "name": name,
                "image": format!("registry.example/{package}@sha256:{}", "a".repeat(64)),
                "properties": [{
                    "type": "olm.package", "value": {"packageName": package, "version": "1.0.0"},
                }],
            }),
        ]
    });
    lines.map(|line| format!("{line}\n")).collect()
}

impl Stage {
    /// Metrics of the program.
    pub(crate) async fn metrics(&self) -> Result<String> {
        let answer = reqwest::get(format!("http://{}/metrics", self.program.metrics)).await?;
        let status = answer.status();
        let text = answer.text().await?;
        anyhow::ensure!(status.is_success(), "{status}: {text}");
        Ok(text)
    }
}
