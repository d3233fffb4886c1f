//! `clustercatalog-admission`: the ClusterCatalogs that the API server accepts, and the messages of the rules for
//! others.
//!
//! All cases of a run share one API server: that of `KUBECONFIG`, otherwise one that is started for them. Every case is
//! a dry run. On a given server, the definitions and one object remain.
//!
//! The recorded messages are those of the rules alone. A server evaluates no rule if a required field is absent. So the
//! verdict comes from the shipped definition, and the messages come from a copy without required fields.

use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Mode, apply_definitions};
use crate::conformance::Outcome;

const GROUP: &str = "olm.operatorframework.io";
/// The group of the copy.
const RULES_GROUP: &str = "rules.olm.operatorframework.io";
/// The object that status cases are written to.
const BASE: &str = "conformance-base";

/// An API server that serves the definition and its copy.
struct Server {
    runtime: tokio::runtime::Runtime,
    shipped: Kind,
    rules: Kind,
    /// A static is never dropped: the cluster ends when this process does.
    _cluster: Option<Cluster>,
}

/// One of the two served definitions.
struct Kind {
    group: &'static str,
    catalogs: Api<DynamicObject>,
    /// The object in the stored form.
    base: DynamicObject,
}

/// Writes the case's value and compares the verdict and the messages of the rules.
pub fn run(case: &Value) -> Outcome {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    let server = match SERVER.get_or_init(|| Server::start().map_err(|e| format!("{e:#}"))) {
        Ok(server) => server,
        Err(e) => return Outcome::Fail(format!("no API server: {e}")),
    };
    match server.verdict(case) {
        Ok(messages) => compare(case, messages.as_deref()),
        Err(e) => Outcome::Fail(format!("{e:#}")),
    }
}

impl Server {
    fn start() -> Result<Self> {
        // An error means that the provider is chosen already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let (shipped, rules, cluster) = runtime.block_on(async {
            let given = Kubeconfig::from_env()?.is_some();
            let cluster = if given {
                None
            } else {
                Some(Cluster::start(Mode::ApiServer).await?)
            };
            let client = match &cluster {
                Some(cluster) => cluster.client().await?,
                None => kube::Client::try_default().await?,
            };
            let definition = olm_api::crd::definitions()
                .into_iter()
                .find(|d| d.pointer("/spec/names/kind").and_then(Value::as_str) == Some("ClusterCatalog"))
                .context("no definition of ClusterCatalog")?;
            let mut copy = definition.clone();
            put(
                &mut copy,
                "metadata.name",
                json!(format!("clustercatalogs.{RULES_GROUP}")),
            )?;
            put(&mut copy, "spec.group", json!(RULES_GROUP))?;
            for version in copy
                .pointer_mut("/spec/versions")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
                    require_nothing(schema);
                }
            }
            apply_definitions(&client, &[definition, copy]).await?;
            anyhow::Ok((
                Kind::of(&client, GROUP).await?,
                Kind::of(&client, RULES_GROUP).await?,
                cluster,
            ))
        })?;
        Ok(Self {
            runtime,
            shipped,
            rules,
            _cluster: cluster,
        })
    }

    /// `None` if the server accepts the value, otherwise the faults that the rules report.
    fn verdict(&self, case: &Value) -> Result<Option<Vec<String>>> {
        let path = case
            .get("object_path")
            .and_then(Value::as_str)
            .context("no object_path")?;
        let value = case.get("value").context("no value")?;
        self.runtime.block_on(async {
            if self.shipped.refusals(path, value).await?.is_empty() {
                return Ok(None);
            }
            self.rules.refusals(path, value).await.map(Some)
        })
    }
}

impl Kind {
    async fn of(client: &kube::Client, group: &'static str) -> Result<Self> {
        let kind = GroupVersionKind::gvk(group, "v1", "ClusterCatalog");
        let catalogs: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let base = serde_json::from_value(catalog(group, BASE))?;
        let base = match catalogs.create(&PostParams::default(), &base).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => catalogs.get(BASE).await?,
            other => other?,
        };
        Ok(Self {
            group,
            catalogs,
            base,
        })
    }

    /// The server's errors for a catalog with the value at the path.
    async fn refusals(&self, path: &str, value: &Value) -> Result<Vec<String>> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let answer = if path.split('.').next() == Some("status") {
            let mut object = serde_json::to_value(&self.base)?;
            let image = format!("registry.example.com/catalog@sha256:{}", "0".repeat(64));
            let status = json!({
                "urls": {"base": "https://catalogs.example.com"},
                "resolvedSource": {"type": "Image", "image": {"ref": image}},
            });
            put(&mut object, "status", status)?;
            put(&mut object, path, value.clone())?;
            let object: DynamicObject = serde_json::from_value(object)?;
            self.catalogs.replace_status(BASE, &dry_run, &object).await
        } else {
            let mut object = catalog(self.group, "conformance-case");
            put(&mut object, path, value.clone())?;
            let object: DynamicObject = serde_json::from_value(object)?;
            self.catalogs.create(&dry_run, &object).await
        };
        match answer {
            Ok(_) => Ok(Vec::new()),
            Err(kube::Error::Api(status)) if status.reason == "Invalid" => {
                let causes = status.details.map(|details| details.causes).unwrap_or_default();
                Ok(causes.into_iter().map(|cause| cause.message).collect())
            }
            Err(e) => Err(e).context("the API server did not judge the value"),
        }
    }
}

/// Takes every list of required fields out of a schema.
fn require_nothing(schema: &mut Value) {
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        let Some(fields) = schema.as_object_mut() else {
            continue;
        };
        fields.remove("required");
        for (name, inner) in fields {
            match name.as_str() {
                "properties" => open.extend(
                    inner
                        .as_object_mut()
                        .into_iter()
                        .flat_map(serde_json::Map::values_mut),
                ),
                "additionalProperties" => open.push(inner),
                // The keys of list entries must stay required.
                _ => {}
            }
        }
    }
}

/// A `ClusterCatalog` that is right.
fn catalog(group: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "ClusterCatalog",
        "metadata": {"name": name},
        "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/catalog:v1"}}},
    })
}

/// Sets the value at a path of names joined by dots.
fn put(object: &mut Value, path: &str, value: Value) -> Result<()> {
    let mut place = object;
    for name in path.split('.') {
        let fields = place
            .as_object_mut()
            .with_context(|| format!("nothing lies below a part of {path}"))?;
        place = fields.entry(name).or_insert_with(|| json!({}));
    }
    *place = value;
    Ok(())
}

fn compare(case: &Value, messages: Option<&[String]>) -> Outcome {
    let expect = case.get("expect");
    let accepted = expect.and_then(|e| e.get("accepted")).and_then(Value::as_bool);
    let rules = expect
        .and_then(|e| e.get("rule_messages"))
        .and_then(Value::as_array);
    let rules: Vec<&str> = rules.into_iter().flatten().filter_map(Value::as_str).collect();
    Outcome::compare("accepted", &accepted, &Some(messages.is_none())).and(|| {
        let said = messages.unwrap_or_default();
        // A schema's own refusals have no rule behind them; only cases that name none may end with those.
        let spoken = |message: &str, rule: &str| message == rule || message.ends_with(&format!(": {rule}"));
        let same = said.len() == rules.len()
            && said
                .iter()
                .zip(&rules)
                .all(|(message, rule)| spoken(message, rule));
        if same || (rules.is_empty() && accepted == Some(false)) {
            Outcome::Pass
        } else {
            Outcome::Fail(format!("rules: expected {rules:?}, got {said:?}"))
        }
    })
}
