//! An operator that the API server calls, by webhooks or an aggregated API, with the programs of OLM classic. A server
//! on this machine has the certificate of its Secret, and is called all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use olm_api::names::annotation;
use olm_test::extensions::{administrator, await_version, catalog, content, patch_source, revisions};
use olm_test::samples;
use olm_test::world::World;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::course::pods;
use super::olm;
use super::running::{KINDS, Operator, Stage, subscription};

/// An operator that the API server calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    pub(crate) operator: Operator,
    /// Its channel.
    pub(crate) channel: &'static str,
    /// The version that moves, and the one after it.
    pub(crate) versions: [&'static str; 2],
    /// The check that must be acknowledged.
    pub(crate) check: &'static str,
    /// The port in its bundle that stands for the one of the server, with its field.
    pub(crate) port: &'static str,
}

impl Called {
    fn package(&self) -> &'static str {
        self.operator.package
    }

    fn catalog(&self) -> String {
        format!("{}-catalog", self.package())
    }

    /// The name of its Secret with the certificate.
    fn secret_name(&self) -> String {
        format!("{}-operator-service-cert", self.package())
    }

    /// Pushes these versions, which are called at a port; returns the image of their catalog.
    async fn publish(&self, world: &World, versions: &[&str], port: u16) -> Result<String> {
        let package = self.package();
        let mut images = BTreeMap::new();
        for version in versions {
            let mut files = samples::renamed_bundle(package, version, "sample-operator:v1");
            for file in files.values_mut() {
                let called = match self.port {
                    field if field.starts_with("containerPort") => format!("containerPort: {port}"),
                    field => format!("containerPort: {port}\n      {field}"),
                };
                let text = String::from_utf8_lossy(file).replace(self.port, &called);
                *file = text.into_bytes();
            }
            let image = world
                .push_bundle(&format!("{package}-bundle:v{version}"), &files)
                .await?;
            images.insert(*version, image);
        }
        let blobs = samples::catalog(versions, |version| {
            images.get(version).cloned().unwrap_or_default()
        });
        let name = format!("{package}-catalog:of-{}", versions.len());
        world
            .push_catalog(&name, &samples::renamed(package, &blobs))
            .await
    }

    /// The Secret with the certificate.
    pub(crate) fn secret(&self, stage: &Stage) -> Result<Value> {
        stage.json(&["secret", &self.secret_name(), "-n", self.operator.namespace])
    }

    /// The bookkeeping of each object: labels, annotations, and names of owners.
    pub(crate) fn marks(&self, stage: &Stage, objects: &[[String; 2]]) -> Result<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        for [kind, name] in objects {
            let live = stage.json(&[kind, name, "-n", self.operator.namespace])?;
            let metadata = &live["metadata"];
            let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
            let owners: Vec<Value> = owners
                .map(|owner| json!([owner["kind"], owner["name"]]))
                .collect();
            all.insert(
                format!("{kind} {name}"),
                json!([metadata["labels"], metadata["annotations"], owners]),
            );
        }
        Ok(all)
    }

    /// The binding in `kube-system`, which has no owner with OLM classic.
    pub(crate) fn reader(&self, stage: &Stage) -> Result<Value> {
        let name = format!("{}-operator-service-auth-reader", self.package());
        let found = stage.json(&["rolebinding", &name, "-n", "kube-system"])?;
        let metadata = &found["metadata"];
        Ok(json!([
            metadata["uid"],
            metadata["labels"],
            metadata["ownerReferences"],
            found["subjects"]
        ]))
    }

    /// Installs the operator by OLM classic without waiting. Its Service leads to this machine: no proxy leads to
    /// simulated Pods.
    pub(crate) async fn subscribe(&self, stage: &Stage, port: u16) -> Result<()> {
        let (world, place) = (&stage.world, self.operator.namespace);
        let image = self.publish(world, &["1.0.0", self.versions[0]], port).await?;
        world.apply(&administrator(place, "installer"))?;
        let at = |name: &str| json!({"namespace": place, "name": name});
        let service = format!("{}-operator-service", self.package());
        world.apply(&[
            catalog(&self.catalog(), &image),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": at(&service),
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }),
        ])?;
        world.apply(&subscription(place, self.package(), self.channel, &image))?;
        let served = format!("ccat/{}", self.catalog());
        world.kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", &served])?;
        Ok(())
    }

    /// The content of the revision holds the private key, and no object that more people may read does.
    pub(crate) async fn hides_the_key(&self, stage: &Stage, key: &str) -> Result<()> {
        let world = &stage.world;
        let set = revisions(world).get(&format!("{}-1", self.package())).await?;
        ensure!(
            set.metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(annotation::CERTIFICATE_PROVIDER))
                .is_some_and(|provider| provider == "self-signed"),
            "{:?}",
            set.metadata.annotations
        );
        let objects = content(&world.client, &set).await?;
        let secret = self.secret_name();
        let recorded = objects
            .iter()
            .find(|object| object["metadata"]["name"] == *secret && object["kind"] == "Secret");
        ensure!(
            recorded.is_some_and(|recorded| recorded["data"]["tls.key"] == key),
            "the revision does not hold the Secret"
        );
        let readable = world.kubectl(&["get", "cos,cext,configmaps", "-A", "-o", "json"])?;
        ensure!(!readable.contains(key), "a private key stands in clear");
        Ok(())
    }

    /// Moves the operator, and sees that nothing has changed but its owner.
    pub(crate) async fn moves(
        &self,
        stage: &Stage,
        objects: &[[String; 2]],
        before: &BTreeMap<String, Value>,
        running: &str,
    ) -> Result<()> {
        let (world, package, place) = (&stage.world, self.package(), self.operator.namespace);
        let line =
            format!("migrate {package} -n {place} --service-account installer --yes --wait --timeout 2m");
        olm(world, &format!("{line} --acknowledge {}", self.check))?.ended(0)?;
        await_version(world, package, self.versions[0]).await?;
        // Whatever OLM classic still wants to do, it does within that time.
        tokio::time::sleep(Duration::from_secs(5)).await;
        unchanged(before, &stage.seen(self.operator, objects)?)?;
        ensure!(pods(world, place)? == running, "Pods are made anew");
        let left = stage.left(self.operator, "name")?;
        ensure!(left.is_empty(), "{left}");
        let owner = format!("olm.owner={}", self.operator.version);
        for label in [&owner, "olm.webhook-description-hash"] {
            let labelled = world.kubectl(&["get", KINDS, "-A", "-l", label, "-o", "name"])?;
            let package = format!("/{package}");
            let back = labelled.lines().find(|line| line.contains(&package));
            ensure!(back.is_none(), "labels of OLM classic are back: {labelled}");
        }
        let set = format!("{package}-1");
        for (name, mark) in self.marks(stage, objects)? {
            ensure!(mark[2] == json!([["ClusterObjectSet", set]]), "{name}: {mark}");
        }
        ensure!(
            self.reader(stage)?[2][0]["name"] == *set,
            "the binding in kube-system has no owner"
        );
        Ok(())
    }

    /// Returns the operator to OLM classic, and sees that everything is as before the move.
    pub(crate) async fn returns(
        &self,
        stage: &Stage,
        objects: &[[String; 2]],
        before: &Before,
    ) -> Result<()> {
        let (world, package, place) = (&stage.world, self.package(), self.operator.namespace);
        olm(world, &format!("migrate {package} -n {place} --back --yes"))?.ended(0)?;
        stage.rests(self.operator).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        unchanged(&before.seen, &stage.seen(self.operator, objects)?)?;
        ensure!(pods(world, place)? == before.running, "Pods are made anew");
        for (name, mark) in self.marks(stage, objects)? {
            ensure!(
                before.marked.get(&name) == Some(&mark),
                "{name}: was {:?}, is {mark}",
                before.marked.get(&name)
            );
        }
        ensure!(
            self.reader(stage)? == before.reading,
            "the binding in kube-system is another one"
        );
        let now = stage.json(&["csv", self.operator.version, "-n", place])?;
        for field in ["phase", "lastTransitionTime", "certsLastUpdated", "certsRotateAt"] {
            ensure!(
                now["status"][field] == before.status[field],
                "was {}, is {}",
                before.status,
                now["status"]
            );
        }
        ensure!(
            now["metadata"]["annotations"]["olm.operatorframework.io/uninstall"].is_null(),
            "{}",
            now["metadata"]
        );
        Ok(())
    }

    /// Upgrades the operator while it is called. The certificate stays, and gets an authority that can renew it.
    /// Returns the Secret.
    pub(crate) async fn upgraded(
        &self,
        stage: &Stage,
        made: &Value,
        port: u16,
        (calls, tolerated): (Calls, usize),
    ) -> Result<Value> {
        let (world, package) = (&stage.world, self.package());
        let [first, second] = self.versions;
        let image = self.publish(world, &["1.0.0", first, second], port).await?;
        world.apply(&[catalog(&self.catalog(), &image)])?;
        // A Subscription with manual approval is pinned to its version.
        patch_source(world, package, json!({"version": second})).await?;
        await_version(world, package, second).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        calls.end(tolerated).await?;
        let renewed = self.secret(stage)?;
        for key in ["tls.crt", "tls.key"] {
            ensure!(renewed["data"][key] == made["data"][key], "{key} is another one");
        }
        ensure!(
            renewed["data"]["olmCAKey"].is_null(),
            "a key of OLM classic is left"
        );
        ensure!(
            renewed["metadata"]["uid"] == made["metadata"]["uid"],
            "it is another Secret"
        );
        let owners = renewed["metadata"]["ownerReferences"]
            .as_array()
            .context("no owner")?;
        ensure!(
            owners.len() == 1 && owners[0]["name"] == format!("{package}-2"),
            "{owners:?}"
        );
        let authorities = decoded(&renewed, "ca.crt")?;
        let old = decoded(made, "olmCAKey")?;
        ensure!(
            authorities.trim_end().ends_with(old.trim_end()),
            "the old authority is not trusted"
        );
        ensure!(authorities.matches("BEGIN").count() == 2, "{authorities}");
        Ok(renewed)
    }
}

/// The state of an operator with OLM classic.
pub(crate) struct Before {
    pub(crate) seen: BTreeMap<String, Value>,
    pub(crate) running: String,
    marked: BTreeMap<String, Value>,
    reading: Value,
    status: Value,
}

impl Before {
    pub(crate) fn of(stage: &Stage, called: &Called, objects: &[[String; 2]]) -> Result<Self> {
        let Operator {
            namespace, version, ..
        } = called.operator;
        let before = Self {
            seen: stage.seen(called.operator, objects)?,
            running: pods(&stage.world, namespace)?,
            marked: called.marks(stage, objects)?,
            reading: called.reader(stage)?,
            status: stage.json(&["csv", version, "-n", namespace])?["status"].clone(),
        };
        ensure!(!before.running.is_empty(), "no Pod runs");
        Ok(before)
    }
}

/// The text of a key of a Secret.
pub(crate) fn decoded(secret: &Value, key: &str) -> Result<String> {
    let coded = secret["data"][key]
        .as_str()
        .with_context(|| format!("no {key}"))?;
    Ok(String::from_utf8(STANDARD.decode(coded)?)?)
}

fn unchanged(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Result<()> {
    // The values may hold a private key.
    let changed = before
        .iter()
        .filter(|(key, value)| after.get(*key) != Some(*value));
    let changed: Vec<&String> = changed.map(|(key, _)| key).collect();
    ensure!(changed.is_empty(), "changed: {changed:?}");
    Ok(())
}

/// Calls, one after the other, until they are stopped.
pub(crate) struct Calls {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<(usize, Vec<String>)>,
}

impl Calls {
    pub(crate) fn start<F>(client: Client, call: impl Fn(Client) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let is_over = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_over);
        let task = tokio::spawn(async move {
            let (mut count, mut failed) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                match call(client.clone()).await {
                    Ok(()) => count += 1,
                    Err(error) => failed.push(format!("{error:#}")),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            (count, failed)
        });
        Self { is_over, task }
    }

    /// No more calls have failed than this.
    pub(crate) async fn end(self, tolerated: usize) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let (count, failed) = self.task.await?;
        ensure!(
            failed.len() <= tolerated,
            "{} calls failed and {count} did not: {:?}",
            failed.len(),
            failed.first()
        );
        ensure!(count > 10, "only {count} calls");
        Ok(())
    }
}
