//! A Prometheus that is configured as the Prometheus operator would do it from the shipped ServiceMonitors.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result};
use olm_api::names;
use olm_test::cluster::Binaries;
use olm_test::world::{Manager, World, free_address};
use serde_json::{Value, json};

use crate::rules;

/// The account that the shipped rights are for.
const ACCOUNT: &str = "prometheus-k8s";
const NAMESPACE: &str = "monitoring";

/// A running Prometheus.
pub(crate) struct Prometheus {
    child: Child,
    address: String,
    client: reqwest::Client,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself; in both cases nothing remains to be done.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Applies the shipped manifests and starts a Prometheus that scrapes both managers with the rights that they give.
    pub(crate) fn start(world: &World) -> Result<Self> {
        let folder = world.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        world.kubectl(&["create", "namespace", NAMESPACE])?;
        world.kubectl(&["create", "serviceaccount", ACCOUNT, "-n", NAMESPACE])?;
        world.apply_file("test/samples/definitions/monitoring.yaml")?;
        let established = "--for=condition=Established";
        world.kubectl(&["wait", established, "--timeout=60s", "crd", "--all"])?;
        let shipped = olm_test::world::repository().join("manifests/prometheus");
        world.kubectl(&["apply", "--server-side", "-k", &shipped.display().to_string()])?;

        std::fs::write(folder.join("rules.yaml"), rules()?.to_string())?;
        let token = world.kubectl(&["create", "token", ACCOUNT, "-n", NAMESPACE])?;
        std::fs::write(folder.join("token"), token.trim())?;
        let jobs = [
            job(world, &folder, "catalogd", &world.catalogd)?,
            job(world, &folder, "operator-controller", &world.operator_controller)?,
        ];
        let config = json!({
            "global": { "evaluation_interval": "15s" },
            "rule_files": ["rules.yaml"],
            "scrape_configs": jobs,
        });
        std::fs::write(folder.join("prometheus.yaml"), config.to_string())?;
        let address = free_address()?;
        let log = File::create(folder.join("log"))?;
        let program = Binaries::ensure_prometheus()?.path("prometheus");
        let child = world.cluster.spawn(program, |command| {
            command
                .arg(format!(
                    "--config.file={}",
                    folder.join("prometheus.yaml").display()
                ))
                .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
        })?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self {
            child,
            address,
            client,
        })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let url = format!("http://{}/api/v1/{path}", self.address);
        let answer = self.client.get(url).send().await?.error_for_status()?;
        let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
        Ok(answer["data"].clone())
    }

    /// The targets that cannot be scraped, with the error of the last scrape.
    pub(crate) async fn unhealthy(&self) -> Result<Vec<String>> {
        let data = self.get("targets?state=active").await?;
        let targets = data["activeTargets"].as_array().context("targets")?;
        let unhealthy = targets.iter().filter(|target| target["health"] != "up");
        Ok(unhealthy
            .map(|target| format!("{}: {}", target["scrapePool"], target["lastError"]))
            .collect())
    }

    /// The names of all metrics that were scraped.
    pub(crate) async fn names(&self) -> Result<Vec<String>> {
        Ok(serde_json::from_value(self.get("label/__name__/values").await?)?)
    }

    /// The labels of the alerts that fire.
    pub(crate) async fn firing(&self) -> Result<Vec<Value>> {
        let data = self.get("alerts").await?;
        let alerts = data["alerts"].as_array().context("alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing.map(|alert| alert["labels"].clone()).collect())
    }
}

/// The job that the Prometheus operator makes of a ServiceMonitor; the manager runs on this machine and not in a Pod.
fn job(world: &World, folder: &Path, monitor: &str, manager: &Manager) -> Result<Value> {
    let system = names::SYSTEM_NAMESPACE;
    let read = |arguments: &[&str]| -> Result<Value> {
        let fixed = ["get", "-n", system, "-o", "json"];
        Ok(serde_json::from_str(
            &world.kubectl(&[&fixed[..], arguments].concat())?,
        )?)
    };
    let spec = read(&["servicemonitor", monitor])?["spec"].take();
    let text = |value: &Value| {
        value
            .as_str()
            .map(str::to_owned)
            .with_context(|| format!("{spec}"))
    };
    let selector = spec["selector"]["matchLabels"]
        .as_object()
        .context("a selector")?;
    let selector: Vec<String> = selector
        .iter()
        .map(|(key, value)| Ok(format!("{key}={}", text(value)?)))
        .collect::<Result<_>>()?;
    let services = read(&["services", "-l", &selector.join(",")])?;
    let service = services["items"].get(0).context("no Service is selected")?;
    let endpoint = &spec["endpoints"][0];
    let ports = service["spec"]["ports"].as_array().context("ports")?;
    ports
        .iter()
        .find(|port| port["name"] == endpoint["port"])
        .context("the Service has no such port")?;
    let authority = &endpoint["tlsConfig"]["ca"]["configMap"];
    let map = read(&["configmap", &text(&authority["name"])?])?;
    let file = folder.join(format!("{monitor}.crt"));
    std::fs::write(&file, text(&map["data"][&text(&authority["key"])?])?)?;
    Ok(json!({
        "job_name": service["metadata"]["labels"][&text(&spec["jobLabel"])?],
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["scrapeTimeout"],
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "authorization": { "credentials_file": folder.join("token") },
        "tls_config": { "ca_file": file, "server_name": endpoint["tlsConfig"]["serverName"] },
        "static_configs": [{ "targets": [manager.metrics] }],
    }))
}
