//! The cluster that all scenarios share: all three programs of OLM classic, and the calls of clients.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use olm_test::classic::{ACCOUNT, aggregated, becomes, own_address, packageserver_rights, prepare};
use olm_test::objects;
use olm_test::shared::Shared;
use olm_test::world::{CLASSIC_NAMESPACE, Lab, Manager, free_address};
use serde_json::{Value, json};

/// The cluster with the running programs.
pub(crate) static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// Time limit for steps that take a second; on a busy machine all of them take much longer.
pub(crate) const SOON: Duration = Duration::from_secs(180);
/// The apiVersion of most kinds of OLM classic.
pub(crate) const V1ALPHA1: &str = "operators.coreos.com/v1alpha1";
/// The image that Deployments run; simulated nodes run anything.
pub(crate) const OPERATOR: &str = "operator.example/operator:v1";

/// The running programs.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    programs: Vec<Manager>,
}

impl Stage {
    async fn start() -> Result<Self> {
        let lab = Lab::empty().await?;
        prepare(&lab)?;
        lab.apply(&packageserver_rights())?;
        // opm pulls nothing without a policy.
        let configuration = lab.folder().join(".config/containers");
        std::fs::create_dir_all(&configuration)?;
        let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
        std::fs::write(configuration.join("policy.json"), policy)?;
        let served = free_address()?;
        let (host, port) = served.split_once(':').context("no port")?;
        lab.apply(&aggregated(port.parse()?))?;
        let account = format!("--classic-account={ACCOUNT}");
        let catalog = vec![
            account.clone(),
            format!("--cache-dir={}", lab.folder().join("catalogs").display()),
            format!("--advertise-address={}", own_address()?),
        ];
        let packages = vec![
            format!("--bind-address={host}"),
            format!("--secure-port={port}"),
            format!("--global-namespace={CLASSIC_NAMESPACE}"),
        ];
        let mut programs = vec![
            Manager::classic(&lab, "catalog-operator", "catalog-operator", catalog).await?,
            Manager::classic(&lab, "olm-operator", "olm-operator", vec![account]).await?,
            Manager::classic(&lab, "packageserver", "packageserver", packages).await?,
        ];
        for program in &mut programs {
            program.start(&lab.cluster)?;
            program.ready().await?;
        }
        Ok(Self { lab, programs })
    }

    /// Makes a namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        self.lab.apply(&[named("v1", "Namespace", "", name)])
    }

    /// Runs a client as an administrator who trusts the registry, and returns its output.
    pub(crate) async fn run(&self, program: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("KUBECONFIG", self.lab.cluster.kubeconfig())
            .env("HOME", self.lab.folder())
            .env("SSL_CERT_FILE", self.lab.authorities().join("ca.crt"))
            .current_dir(self.lab.folder());
        let what = format!("{command:?}");
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(
            output.status.success(),
            "{what}: {}{}\n{}",
            text(&output.stdout),
            text(&output.stderr),
            self.logs()
        );
        Ok(text(&output.stdout))
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
        becomes(&self.lab.client, what, SOON, object, is_meant)
            .await
            .with_context(|| self.logs())
    }

    /// Address of the registry of a CatalogSource, `HOST:PORT`.
    pub(crate) async fn registry(&self, namespace: &str, service: &str) -> Result<String> {
        let slice = named("discovery.k8s.io/v1", "EndpointSlice", namespace, service);
        let slice = self.get(&slice).await?.context("no EndpointSlice")?;
        let address = slice["endpoints"][0]["addresses"][0].as_str();
        let address = address.context("no address")?;
        Ok(format!("{address}:{}", slice["ports"][0]["port"]))
    }

    fn logs(&self) -> String {
        self.programs
            .iter()
            .map(Manager::log_end)
            .collect::<Vec<_>>()
            .join("\n---\n")
    }
}

/// An object without content.
pub(crate) fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}
