//! The cluster that all scenarios share, and their actions on it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams};
use olm_test::classic;
use olm_test::objects;
use olm_test::shared::Shared;
use olm_test::world::{Lab, Manager, eventually};
use serde_json::{Value, json};

/// The cluster with the running program.
pub(crate) static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// Time limit for steps that take a second.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The running program.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    pub(crate) operator: Manager,
}

impl Stage {
    async fn start() -> Result<Self> {
        let lab = Lab::empty().await?;
        classic::prepare(&lab)?;
        let arguments = vec![
            format!("--classic-account={}", classic::ACCOUNT),
            "--protectedCopiedCSVNamespaces=kept".to_owned(),
        ];
        let operator = Manager::classic(&lab, "olm-operator", "olm-operator", arguments).await?;
        let mut stage = Self { lab, operator };
        stage.operator.start(&stage.lab.cluster)?;
        stage.operator.ready().await?;
        Ok(stage)
    }

    /// Makes a namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        self.lab
            .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})])
    }

    /// Makes a namespace with an OperatorGroup of this spec.
    pub(crate) fn group(&self, namespace: &str, spec: Value) -> Result<()> {
        self.namespace(namespace)?;
        self.lab.apply(&[group(namespace, "group", spec)])
    }

    /// The object as it is now.
    pub(crate) async fn get(&self, object: &Value) -> Result<Option<Value>> {
        objects::find(&self.lab.client, object).await
    }

    /// The ClusterServiceVersion as it is now.
    pub(crate) async fn csv(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        self.get(&named(
            "operators.coreos.com/v1alpha1",
            "ClusterServiceVersion",
            namespace,
            name,
        ))
        .await
    }

    /// Waits until a ClusterServiceVersion is in this phase for this reason, and returns it.
    pub(crate) async fn phase(
        &self,
        namespace: &str,
        name: &str,
        phase: &str,
        reason: &str,
    ) -> Result<Value> {
        let what = format!("{namespace}/{name} is {phase}/{reason}");
        let mut last = Value::Null;
        let found = eventually(&what, SOON, async || {
            let csv = self.csv(namespace, name).await?.unwrap_or_default();
            last = csv["status"].clone();
            let is_there = csv["status"]["phase"] == phase && csv["status"]["reason"] == reason;
            Ok(is_there.then_some(csv))
        })
        .await;
        found.with_context(|| format!("its status is {last}\n{}", self.operator.log_end()))
    }

    /// Waits until an object is as wanted, and returns it.
    pub(crate) async fn becomes(
        &self,
        what: &str,
        object: &Value,
        is_meant: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        classic::becomes(&self.lab.client, what, SOON, object, is_meant)
            .await
            .with_context(|| self.operator.log_end())
    }

    /// Waits until an object is gone.
    pub(crate) async fn goes(&self, object: &Value) -> Result<()> {
        classic::goes(&self.lab.client, SOON, object)
            .await
            .with_context(|| self.operator.log_end())
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, object: &Value) -> Result<()> {
        objects::delete(&self.lab.client, object).await
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, object: &Value, patch: &Value) -> Result<()> {
        objects::merge(&self.lab.client, object, patch).await
    }

    /// Changes the status of an object by a merge patch.
    pub(crate) async fn patch_status(&self, object: &Value, patch: &Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().context("no name")?;
        objects::api(&self.lab.client, object)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// The lines of the metrics port.
    pub(crate) async fn metrics(&self) -> Result<Vec<String>> {
        let url = format!("http://{}/metrics", self.operator.metrics);
        let answer = reqwest::get(&url).await?.error_for_status()?.text().await?;
        Ok(answer.lines().map(str::to_owned).collect())
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

/// An OperatorGroup.
pub(crate) fn group(namespace: &str, name: &str, spec: Value) -> Value {
    let mut group = named("operators.coreos.com/v1", "OperatorGroup", namespace, name);
    group["spec"] = spec;
    group
}

/// A ClusterServiceVersion of one Deployment `NAME-operator`, for all install modes; `more` is added to its spec.
pub(crate) fn csv(namespace: &str, name: &str, more: &Value) -> Value {
    let package = name.split('.').next().unwrap_or(name);
    let mut csv = named(
        "operators.coreos.com/v1alpha1",
        "ClusterServiceVersion",
        namespace,
        name,
    );
    let modes = [
        "OwnNamespace",
        "SingleNamespace",
        "MultiNamespace",
        "AllNamespaces",
    ];
    let modes = modes.map(|mode| json!({"type": mode, "supported": true}));
    csv["spec"] = json!({
        "displayName": package, "version": "1.0.0", "installModes": modes,
        "install": {"strategy": "deployment", "spec": {"deployments": [deployment(&format!("{package}-operator"))]}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        csv["spec"][key] = value.clone();
    }
    csv
}

/// A Deployment of an install strategy.
pub(crate) fn deployment(name: &str) -> Value {
    json!({"name": name, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "operator", "image": "operator.example/operator:v1"}]},
        },
    }})
}

/// A definition of a kind with this plural in the group `GROUP.example`.
pub(crate) fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let group = format!("{group}.example");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}
