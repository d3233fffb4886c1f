//! The manifests of OLM classic on a real API server: the values that it takes, fills in, refuses and shows of each
//! kind, and the objects that the programs may write.
#![expect(
    clippy::unwrap_used,
    reason = "a cluster that cannot be started fails the test, wherever it is asked"
)]

mod changes;
mod deployments;
mod programs;
mod refusals;
mod rights;
mod tables;
mod valid;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use kube::api::{DynamicObject, PostParams};
use kube::core::Status;
use olm_test::cluster::{Cluster, Mode};
use olm_test::objects::api;
use olm_test::shared::Shared;
use olm_test::world::{kubectl, repository};
use serde_json::{Value, json};

/// Time limit for a policy to be in force.
const LIMIT: Duration = Duration::from_secs(60);

static SERVER: Shared<Server> = Shared::new(|| Box::pin(Server::start()));

/// An API server with the manifests.
struct Server {
    cluster: Cluster,
    client: Client,
}

impl Server {
    /// The manifests are applied as they say.
    async fn start() -> Result<Self> {
        let cluster = Cluster::start(Mode::ApiServer).await?;
        let folder = |path: &str| {
            repository()
                .join("manifests/classic")
                .join(path)
                .display()
                .to_string()
        };
        let (definitions, everything) = (folder("crds"), folder(""));
        for arguments in [
            ["apply", "--server-side", "-k", &definitions],
            ["wait", "--for=condition=Established", "crd", "--all"],
            ["apply", "--server-side", "-k", &everything],
        ] {
            kubectl(&cluster, &arguments, None)?;
        }
        let client = cluster.client().await?;
        let server = Self { cluster, client };
        server.policies_in_force().await?;
        Ok(server)
    }

    /// Waits until the policies of the manifests are in force. The API server reads policies and bindings in the order
    /// in which they were made, so they are once it refuses what a later policy forbids.
    async fn policies_in_force(&self) -> Result<()> {
        const API: &str = "admissionregistration.k8s.io/v1";
        const NAME: &str = "last-policy";
        let create = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        });
        self.create(&json!({
            "apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": NAME},
            "spec": {
                "matchConstraints": {"resourceRules": [create]},
                "validations": [{
                    "expression": format!("object.metadata.name != '{NAME}'"), "message": "the last policy is in force",
                }],
            },
        }))
        .await?;
        self.create(&json!({
            "apiVersion": API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": NAME},
            "spec": {"policyName": NAME, "validationActions": ["Deny"]},
        }))
        .await?;
        let forbidden = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "default"},
        });
        let end = Instant::now() + LIMIT;
        loop {
            match self.dry_run(&forbidden).await {
                Err(kube::Error::Api(status)) if status.message.contains("the last policy is in force") => {
                    return Ok(());
                }
                Ok(_) if Instant::now() < end => tokio::time::sleep(Duration::from_millis(500)).await,
                answer => bail!("the policies are not in force after {LIMIT:?}: {answer:?}"),
            }
        }
    }

    /// The object as the server would store it.
    async fn dry_run(&self, object: &Value) -> Result<Value, kube::Error> {
        self.post(object, true).await
    }

    /// Creates the object.
    async fn create(&self, object: &Value) -> Result<Value> {
        let created = self.post(object, false).await;
        created.with_context(|| format!("cannot create {} {}", object["kind"], object["metadata"]["name"]))
    }

    async fn post(&self, object: &Value, dry_run: bool) -> Result<Value, kube::Error> {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let typed: DynamicObject = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        let created = api(&self.client, object).create(&params, &typed).await?;
        serde_json::to_value(created).map_err(kube::Error::SerdeError)
    }

    /// Answer of the server at a path.
    async fn get(&self, path: &str, accept: &str) -> Result<Value> {
        let request = http::Request::get(path)
            .header("Accept", accept)
            .body(Vec::new())?;
        Ok(self.client.request(request).await?)
    }
}

/// An object of the API group; `version` is that of the group.
fn object(version: &str, kind: &str, name: &str, content: Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("operators.coreos.com/{version}"),
        "kind": kind,
        "metadata": {"name": name},
    });
    if !["Operator", "OLMConfig"].contains(&kind) {
        object["metadata"]["namespace"] = json!("default");
    }
    if let (Some(object), Value::Object(content)) = (object.as_object_mut(), content) {
        object.extend(content);
    }
    object
}

/// A small ClusterServiceVersion.
fn csv(name: &str) -> Value {
    let spec = json!({
        "displayName": "Greeter", "version": "1.0.0", "release": "2", "replaces": "greeter.v0.9.0",
        "install": {"strategy": "deployment", "spec": {"deployments": []}},
    });
    object("v1alpha1", "ClusterServiceVersion", name, json!({"spec": spec}))
}

/// The object with another value at a pointer, whose parents are there; without it when the value is null.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    let parent = parent.as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(key);
    } else {
        parent.insert(key.to_owned(), value);
    }
    object
}

/// The fields that the server finds wrong.
fn wrong_fields(error: &kube::Error) -> Result<Vec<String>> {
    let kube::Error::Api(status) = error else {
        anyhow::bail!("no answer of the server: {error}");
    };
    let status: &Status = status;
    ensure!(status.code == 422, "{status:?}");
    let details = status.details.as_ref().context("an answer without details")?;
    let fields = details.causes.iter().map(|cause| cause.field.clone());
    // The server's word that it left rules out, since the object is wrong already.
    Ok(fields.filter(|field| field != "<nil>").collect())
}
