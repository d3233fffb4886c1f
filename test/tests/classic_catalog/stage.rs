//! The cluster that all scenarios share, and their actions on it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::ListParams;
use olm_test::classic;
use olm_test::objects;
use olm_test::shared::Shared;
use olm_test::world::{Lab, Manager};
use serde_json::{Value, json};

/// The cluster with the running programs.
pub(crate) static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// Time limit for steps that take a second.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// The apiVersion of most kinds of OLM classic.
pub(crate) const V1ALPHA1: &str = "operators.coreos.com/v1alpha1";
/// The image that Deployments run; simulated nodes run anything.
pub(crate) const OPERATOR: &str = "operator.example/operator:v1";

/// The running programs.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) catalog: Manager,
    pub(crate) operator: Manager,
}

impl Stage {
    async fn start() -> Result<Self> {
        let lab = Lab::empty().await?;
        classic::prepare(&lab)?;
        let account = format!("--classic-account={}", classic::ACCOUNT);
        let cache = format!("--cache-dir={}", lab.folder().join("catalogs").display());
        // No test waits a minute for a plan to fail.
        let retry = "--install-plan-retry-timeout=3s".to_owned();
        let arguments = vec![account.clone(), cache, retry, "-v=4".to_owned()];
        let catalog = Manager::classic(&lab, "catalog-operator", "catalog-operator", arguments).await?;
        let operator = Manager::classic(&lab, "olm-operator", "olm-operator", vec![account]).await?;
        let mut stage = Self {
            lab,
            catalog,
            operator,
        };
        stage.catalog.start(&stage.lab.cluster)?;
        stage.operator.start(&stage.lab.cluster)?;
        stage.catalog.ready().await?;
        stage.operator.ready().await?;
        Ok(stage)
    }

    /// Publishes versions of a sample operator, and makes a namespace called like it with an OperatorGroup and a
    /// CatalogSource `catalog`.
    pub(crate) async fn offer(&self, package: &str, versions: &[&str]) -> Result<()> {
        let image = self.lab.publish(package, versions, OPERATOR).await?;
        self.group(package, json!({}))?;
        self.lab.apply(&[catalog_source(package, &image)])
    }

    /// Makes a namespace with an OperatorGroup of this spec.
    pub(crate) fn group(&self, namespace: &str, spec: Value) -> Result<()> {
        let mut group = named("operators.coreos.com/v1", "OperatorGroup", namespace, "group");
        group["spec"] = spec;
        self.lab.apply(&[named("v1", "Namespace", "", namespace), group])
    }

    /// Subscribes to the package of the namespace, with more fields in the spec.
    pub(crate) fn subscribe(&self, namespace: &str, more: &Value) -> Result<()> {
        self.lab.apply(&[subscription(namespace, more)])
    }

    /// The object as it is now.
    pub(crate) async fn get(&self, object: &Value) -> Result<Option<Value>> {
        objects::find(&self.lab.client, object).await
    }

    /// All objects of the kind and in the namespace of this one.
    pub(crate) async fn list(&self, object: &Value) -> Result<Vec<Value>> {
        let found = objects::api(&self.lab.client, object)
            .list(&ListParams::default())
            .await?;
        found
            .items
            .into_iter()
            .map(|found| Ok(serde_json::to_value(found)?))
            .collect()
    }

    /// Waits until an object is as wanted, and returns it.
    pub(crate) async fn becomes(
        &self,
        what: &str,
        object: &Value,
        is_meant: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let found = classic::becomes(&self.lab.client, what, SOON, object, is_meant).await;
        self.explained(object, found).await
    }

    /// Waits until an object is gone.
    pub(crate) async fn goes(&self, object: &Value) -> Result<()> {
        let gone = classic::goes(&self.lab.client, SOON, object).await;
        self.explained(object, gone).await
    }

    /// Adds the objects of the namespace and the ends of the logs to a failure.
    async fn explained<T>(&self, object: &Value, result: Result<T>) -> Result<T> {
        let Err(error) = result else { return result };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let content = self
            .content(namespace)
            .await
            .unwrap_or_else(|error| format!("{error:#}"));
        Err(error.context(format!("--- {namespace}\n{content}{}", self.logs())))
    }

    /// The operators, plans, Deployments and Pods of a namespace, a line for each.
    async fn content(&self, namespace: &str) -> Result<String> {
        let mut lines = String::new();
        for (api_version, kind) in [
            (V1ALPHA1, "ClusterServiceVersion"),
            (V1ALPHA1, "InstallPlan"),
            ("apps/v1", "Deployment"),
            ("v1", "Pod"),
        ] {
            for found in self.list(&named(api_version, kind, namespace, "")).await? {
                let (name, status) = (&found["metadata"]["name"], &found["status"]);
                let state = [&status["phase"], &status["reason"], &status["message"]];
                let conditions = &status["conditions"];
                writeln!(lines, "{kind} {name}: {state:?} {conditions}")?;
            }
        }
        Ok(lines)
    }

    /// The ends of the logs of both programs.
    fn logs(&self) -> String {
        let (catalog, operator) = (self.catalog.log_end(), self.operator.log_end());
        format!("--- catalog-operator\n{catalog}\n--- olm-operator\n{operator}")
    }

    /// Waits until a Subscription has installed this version, and returns it.
    pub(crate) async fn installs(&self, namespace: &str, version: &str) -> Result<Value> {
        let what = format!("{namespace} has installed {version}");
        let wanted = format!("{namespace}.v{version}");
        let object = subscription(namespace, &json!({}));
        self.becomes(&what, &object, |found| {
            found["status"]["installedCSV"] == wanted.as_str() && found["status"]["state"] == "AtLatestKnown"
        })
        .await
    }

    /// Waits until a Subscription has a condition with this type, status and reason, and returns its message.
    pub(crate) async fn says(
        &self,
        namespace: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<String> {
        let object = subscription(namespace, &json!({}));
        let what = format!("the Subscription of {namespace} says {kind}={status} {reason}");
        let is_it = |found: &Value| {
            condition(found, kind).is_some_and(|found| found["status"] == status && found["reason"] == reason)
        };
        let found = self.becomes(&what, &object, is_it).await?;
        let found =
            condition(&found, kind).map(|found| found["message"].as_str().unwrap_or_default().to_owned());
        found.context("the condition is there")
    }

    /// The InstallPlan that the Subscription of a namespace refers to.
    pub(crate) async fn plan(&self, namespace: &str) -> Result<Value> {
        let object = subscription(namespace, &json!({}));
        let has_plan = |found: &Value| found["status"]["installPlanRef"]["name"].is_string();
        let found = self.becomes("there is a plan", &object, has_plan).await?;
        let plan = found["status"]["installPlanRef"]["name"]
            .as_str()
            .unwrap_or_default();
        Ok(named(V1ALPHA1, "InstallPlan", namespace, plan))
    }

    /// Waits until the plan of a namespace is in a phase, and returns it.
    pub(crate) async fn phase(&self, namespace: &str, phase: &str) -> Result<Value> {
        let plan = self.plan(namespace).await?;
        let what = format!("the plan of {namespace} is {phase}");
        self.becomes(&what, &plan, |found| found["status"]["phase"] == phase)
            .await
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, object: &Value) -> Result<()> {
        objects::delete(&self.lab.client, object).await
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, object: &Value, patch: &Value) -> Result<()> {
        objects::merge(&self.lab.client, object, patch).await
    }

    /// The lines of the metrics port of catalog-operator with this text.
    pub(crate) async fn metrics(&self, text: &str) -> Result<Vec<String>> {
        let url = format!("http://{}/metrics", self.catalog.metrics);
        let answer = reqwest::get(&url).await?.error_for_status()?.text().await?;
        let lines = answer.lines().filter(|line| line.contains(text));
        Ok(lines.map(str::to_owned).collect())
    }

    /// Number of requests of catalog-operator that changed something. Requests that create are left out: Leases and
    /// events are no part of the objects.
    pub(crate) async fn writes(&self) -> Result<u64> {
        let lines = self.metrics("rest_client_requests_total{").await?;
        let writes = lines.iter().filter(|line| {
            ["PUT", "PATCH", "DELETE"]
                .iter()
                .any(|method| line.contains(method))
        });
        let counts = writes.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(counts.sum())
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

/// A CatalogSource `catalog` of an image.
pub(crate) fn catalog_source(namespace: &str, image: &str) -> Value {
    let mut source = named(V1ALPHA1, "CatalogSource", namespace, "catalog");
    source["spec"] = json!({"sourceType": "grpc", "image": image});
    source
}

/// A Subscription to the package that is called like its namespace, with more fields in the spec.
pub(crate) fn subscription(namespace: &str, more: &Value) -> Value {
    let mut subscription = named(V1ALPHA1, "Subscription", namespace, namespace);
    subscription["spec"] = json!({
        "name": namespace, "source": "catalog", "sourceNamespace": namespace, "channel": "stable",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        subscription["spec"][key] = value.clone();
    }
    subscription
}

/// A ClusterServiceVersion of a package that is called like its namespace.
pub(crate) fn csv(namespace: &str, version: &str) -> Value {
    named(
        V1ALPHA1,
        "ClusterServiceVersion",
        namespace,
        &format!("{namespace}.v{version}"),
    )
}

/// A condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|found| found["type"] == kind)
}
