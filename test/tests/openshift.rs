//! The OpenShift gate on a real API server: installed bundles decide whether the cluster may be updated.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_api::{ClusterExtension, conditions};
use olm_test::samples;
use olm_test::world::{Options, World};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(90);

/// The latest OpenShift that each version supports; one has no limit, one an unreadable one.
const GREETER: &[(&str, Option<&str>)] = &[
    ("1.0.0", Some("4.18")),
    ("1.0.1", Some("4.19")),
    ("1.1.0", Some("latest")),
    ("2.0.0", None),
];
const HERALD: &[(&str, Option<&str>)] = &[
    ("1.0.0", Some("4.20")),
    ("1.0.1", Some("4.18.7")),
    ("1.1.0", Some("4.10")),
];

struct Gate {
    world: World,
}

impl Gate {
    /// Publishes a package whose versions have these limits, as a separate catalog.
    async fn publish(&self, package: &str, versions: &[(&str, Option<&str>)]) -> Result<()> {
        let mut images = BTreeMap::new();
        for (version, limit) in versions {
            let mut files = samples::renamed_bundle(package, version, samples::OPERATOR_IMAGE);
            if let Some(limit) = limit {
                let properties = json!({"properties": [{"type": "olm.maxOpenShiftVersion", "value": limit}]});
                files.insert(
                    "metadata/properties.yaml".to_owned(),
                    properties.to_string().into_bytes(),
                );
            }
            let image = self
                .world
                .push_bundle(&format!("{package}-bundle:v{version}"), &files)
                .await?;
            images.insert((*version).to_owned(), image);
        }
        let versions: Vec<&str> = versions.iter().map(|(version, _)| *version).collect();
        let catalog = samples::catalog(&versions, |version| {
            images.get(version).cloned().unwrap_or_default()
        });
        let name = format!("{package}-catalog:latest");
        let reference = self
            .world
            .push_catalog(&name, &samples::renamed(package, &catalog))
            .await?;
        self.world.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterCatalog",
            "metadata": { "name": package },
            "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
        })])
    }

    /// Installs the first version, with an account of its own.
    async fn install(&self, package: &str) -> Result<()> {
        let path = self
            .world
            .sample_file("manifests/samples/greeter.yaml", package, |text| {
                text.replace("channels: [stable]", "channels: [stable, candidate]")
                    .replace("version: 1.0.x", "version: 1.0.0")
            })?;
        self.world.kubectl(&["apply", "--server-side", "-f", &path])?;
        self.installed(package, "1.0.0").await
    }

    async fn upgrade(&self, package: &str, version: &str) -> Result<()> {
        let patch = json!({ "spec": { "source": { "catalog": { "version": version } } } });
        self.extensions()
            .patch(package, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.installed(package, version).await
    }

    async fn installed(&self, package: &str, version: &str) -> Result<()> {
        let what = format!("{package} is at {version}");
        self.world
            .eventually(&what, SOON, async || {
                let extension = self.extensions().get(package).await?;
                let status = extension.status.clone().unwrap_or_default();
                let there = status
                    .install
                    .as_ref()
                    .is_some_and(|install| install.bundle.version == version);
                ensure!(
                    there && conditions::is_true(extension.conditions(), conditions::INSTALLED),
                    "status is {}",
                    serde_json::to_string(&status)?
                );
                Ok(Some(()))
            })
            .await
    }

    fn extensions(&self) -> Api<ClusterExtension> {
        Api::all(self.world.client.clone())
    }

    fn api(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
        Api::all_with(
            self.world.client.clone(),
            &ApiResource::from_gvk_with_plural(&kind, plural),
        )
    }

    /// Has the cluster be at a version.
    async fn cluster_is_at(&self, version: &str) -> Result<()> {
        let patch = json!({ "status": { "desired": { "version": version } } });
        self.api("ClusterVersion", "clusterversions")
            .patch_status("version", &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    async fn conditions(&self) -> Result<Vec<Value>> {
        let operators = self.api("ClusterOperator", "clusteroperators");
        let operator = operators.get("olm").await?;
        let conditions = operator
            .data
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        Ok(conditions.cloned().unwrap_or_default())
    }

    /// Waits until the condition has this status and reason and its message these parts, and returns it.
    async fn upgradeable(&self, status: &str, reason: &str, parts: &[&str]) -> Result<Value> {
        self.world
            .eventually(
                &format!("Upgradeable is {status} with {parts:?}"),
                SOON,
                async || {
                    let conditions = self.conditions().await?;
                    let found = conditions
                        .iter()
                        .find(|condition| condition["type"] == "Upgradeable")
                        .with_context(|| format!("there is none among {conditions:?}"))?;
                    let message = found["message"].as_str().unwrap_or_default();
                    ensure!(
                        found["status"] == status
                            && found["reason"] == reason
                            && parts.iter().all(|part| message.contains(part)),
                        "it is {found}"
                    );
                    Ok(Some(found.clone()))
                },
            )
            .await
    }

    async fn allowed(&self, next: &str) -> Result<Value> {
        self.upgradeable("True", "AsExpected", &[next]).await
    }

    /// Waits until exactly these packages, at these versions, are said to block the update.
    async fn blocked(&self, next: &str, by: &[(&str, &str)]) -> Result<Value> {
        let blockers: Vec<String> = by
            .iter()
            .map(|(package, version)| {
                format!("bundle \"{package}.v{version}\" for ClusterExtension \"{package}\"")
            })
            .collect();
        let part = format!("version {next}: {}. ", blockers.join(","));
        self.upgradeable("False", "IncompatibleOperatorsInstalled", &[&part])
            .await
    }

    /// The condition of another program in the same object.
    async fn another_program_reports(&self) -> Result<()> {
        let operators = self.api("ClusterOperator", "clusteroperators");
        self.world
            .eventually("the other program has reported", SOON, async || {
                let mut operator = operators.get("olm").await?;
                let mut conditions = self.conditions().await?;
                conditions.push(foreign());
                let versions = json!([{ "name": "operator", "version": "4.18.0" }]);
                operator.data["status"] = json!({ "conditions": conditions, "versions": versions });
                operators
                    .replace_status("olm", &PostParams::default(), &operator)
                    .await?;
                Ok(Some(()))
            })
            .await
    }
}

fn foreign() -> Value {
    json!({
        "type": "Available", "status": "True", "reason": "Fine", "message": "All is well",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_bundles_decide_whether_openshift_may_be_updated() -> Result<()> {
    let gate = Gate {
        world: World::start(Options::default()).await?,
    };
    gate.publish("greeter", GREETER).await?;
    gate.publish("herald", HERALD).await?;
    gate.install("greeter").await?;

    // Without OpenShift, the log has no message about it and there are no requests.
    let log = std::fs::read_to_string(&gate.world.operator_controller.log)?;
    ensure!(
        !log.contains("OpenShift") && !log.contains("may be updated"),
        "{log}"
    );

    // OpenShift is installed later; the gate needs no restart.
    gate.world.apply_file("test/samples/definitions/openshift.yaml")?;
    gate.world.kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd/clusterversions.config.openshift.io",
        "crd/clusteroperators.config.openshift.io",
    ])?;
    gate.world.apply(&[json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": { "name": "version" }, "spec": { "clusterID": "test" },
    })])?;
    gate.cluster_is_at("4.17.9").await?;
    let first = gate.allowed("4.18").await?;
    gate.another_program_reports().await?;

    gate.cluster_is_at("4.18.0").await?;
    let condition = gate.blocked("4.19", &[("greeter", "1.0.0")]).await?;
    ensure!(
        condition["lastTransitionTime"].as_str() >= first["lastTransitionTime"].as_str(),
        "{condition}"
    );
    gate.cluster_is_at("4.19.2").await?;
    let later = gate.blocked("4.20", &[("greeter", "1.0.0")]).await?;
    ensure!(
        condition["lastTransitionTime"] == later["lastTransitionTime"],
        "the status did not change: {condition} {later}"
    );
    gate.cluster_is_at("4.18.0-rc1").await?;
    gate.blocked("4.19", &[("greeter", "1.0.0")]).await?;

    gate.install("herald").await?; // its maximum is 4.20
    gate.blocked("4.19", &[("greeter", "1.0.0")]).await?;
    gate.upgrade("herald", "1.0.1").await?; // its maximum is 4.18.7
    gate.blocked("4.19", &[("greeter", "1.0.0"), ("herald", "1.0.1")])
        .await?;
    gate.upgrade("greeter", "1.0.1").await?; // its maximum is 4.19
    gate.blocked("4.19", &[("herald", "1.0.1")]).await?;
    gate.upgrade("herald", "1.1.0").await?; // with 4.10
    gate.cluster_is_at("4.9.3").await?;
    gate.allowed("4.10").await?;
    gate.cluster_is_at("4.18.5").await?;
    gate.blocked("4.19", &[("herald", "1.1.0")]).await?;
    gate.extensions()
        .delete("herald", &kube::api::DeleteParams::default())
        .await?;
    gate.allowed("4.19").await?; // the blocker was removed

    // 4.23 and 5.0 are followed by 5.1.
    gate.cluster_is_at("4.23.1").await?;
    gate.blocked("5.1", &[("greeter", "1.0.1")]).await?;
    // An unreadable limit is reported and never treated as no limit.
    gate.upgrade("greeter", "1.1.0").await?;
    gate.upgradeable(
        "False",
        "FailureGettingExtensionMetadata",
        &["greeter.v1.1.0", "latest"],
    )
    .await?;
    // A bundle without a limit does not block, and neither does a limit that only the catalog contains.
    gate.upgrade("greeter", "2.0.0").await?;
    gate.allowed("5.1").await?;

    let conditions = gate.conditions().await?;
    ensure!(
        conditions.len() == 2 && conditions.contains(&foreign()),
        "{conditions:?}"
    );
    let operator = gate.api("ClusterOperator", "clusteroperators").get("olm").await?;
    ensure!(
        operator.data["status"]["versions"][0]["version"] == "4.18.0",
        "{:?}",
        operator.data
    );
    Ok(())
}
