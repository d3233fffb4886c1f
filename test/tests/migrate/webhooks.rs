//! An operator with webhooks of all kinds moves there and back while the programs of OLM classic run, and is upgraded
//! afterwards. The API server calls its webhooks all the time: a server on this machine has the certificate of the
//! Secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::api::{DynamicObject, PostParams};
use olm_api::names::annotation;
use olm_test::cluster::webhook::AllowingWebhook;
use olm_test::extensions::{administrator, await_version, catalog, content, patch_source, revisions};
use olm_test::objects::api;
use olm_test::samples;
use olm_test::world::{World, eventually, free_address};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::course::pods;
use super::olm;
use super::running::{CLUSTER, KINDS, Operator, Stage};

const FIRST: &str = samples::WITH_WEBHOOKS_ALONE[0];
const SECOND: &str = samples::WITH_WEBHOOKS_ALONE[1];
const HOOKED: Operator = Operator {
    package: "hooked",
    namespace: "hooked",
    version: "hooked.v1.4.0",
    definition: "greetings.hooked.olm.example",
};
const SECRET: &str = "hooked-operator-service-cert";
/// The field manager of conversions that OLM classic writes.
const CONVERSIONS: &str = "olm.operatorframework.io/classic-conversion";

/// Pushes these versions, whose webhooks are called at a port; returns the image of their catalog.
async fn publish(world: &World, versions: &[&str], port: u16) -> Result<String> {
    let package = HOOKED.package;
    let mut images = BTreeMap::new();
    for version in versions {
        let mut files = samples::renamed_bundle(package, version, "sample-operator:v1");
        for file in files.values_mut() {
            let called = format!("containerPort: {port}\n      targetPort: 9443");
            let text = String::from_utf8_lossy(file).replace("targetPort: 9443", &called);
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

/// The most calls that fail during the upgrade: a new configuration has no authority for a moment.
const AT_START: usize = 3;

/// Calls of the webhooks, one after the other, until it is stopped.
struct Calls {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<(usize, Vec<String>)>,
}

impl Calls {
    fn start(client: Client) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_over);
        let task = tokio::spawn(async move {
            let (mut count, mut failed) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                match call(&client).await {
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
    async fn end(self, tolerated: usize) -> Result<()> {
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

/// Creates a custom resource in a dry run, which the validating and the mutating webhook are asked about.
async fn call(client: &Client) -> Result<()> {
    let greeting = json!({
        "apiVersion": "hooked.olm.example/v1", "kind": "Greeting",
        "metadata": {"generateName": "asked-", "namespace": HOOKED.namespace}, "spec": {"name": "Ada"},
    });
    let typed: DynamicObject = serde_json::from_value(greeting.clone())?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api(client, &greeting).create(&dry, &typed).await?;
    Ok(())
}

fn secret(stage: &Stage) -> Result<Value> {
    stage.json(&["secret", SECRET, "-n", HOOKED.namespace])
}

fn decoded(secret: &Value, key: &str) -> Result<String> {
    let coded = secret["data"][key]
        .as_str()
        .with_context(|| format!("no {key}"))?;
    Ok(String::from_utf8(STANDARD.decode(coded)?)?)
}

/// The bookkeeping of each object: labels, annotations, and names of owners.
fn marks(stage: &Stage, objects: &[[String; 2]]) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for [kind, name] in objects {
        let live = stage.json(&[kind, name, "-n", HOOKED.namespace])?;
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
fn reader(stage: &Stage) -> Result<Value> {
    let found = stage.json(&[
        "rolebinding",
        "hooked-operator-service-auth-reader",
        "-n",
        "kube-system",
    ])?;
    let metadata = &found["metadata"];
    Ok(json!([
        metadata["uid"],
        metadata["labels"],
        metadata["ownerReferences"],
        found["subjects"]
    ]))
}

/// Installs the operator by OLM classic. Its Service leads to this machine: no proxy leads to simulated Pods.
async fn install(stage: &Stage, port: u16) -> Result<()> {
    let (world, place) = (&stage.world, HOOKED.namespace);
    let image = publish(world, &["1.0.0", FIRST], port).await?;
    world.apply(&administrator(place, "installer"))?;
    let at = |name: &str| json!({"namespace": place, "name": name});
    world.apply(&[
        catalog("hooked-catalog", &image),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": at("hooked-operator-service"),
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
        json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": at("all"), "spec": {},
        }),
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": at("shop"),
            "spec": {"sourceType": "grpc", "image": image},
        }),
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": at(HOOKED.package),
            "spec": {
                "name": HOOKED.package, "source": "shop", "sourceNamespace": place, "channel": "converted",
                "installPlanApproval": "Manual",
            },
        }),
    ])?;
    let serving = ["--for=condition=Serving", "--timeout=120s", "ccat/hooked-catalog"];
    world.kubectl(&[&["wait"][..], &serving].concat())?;
    stage.installs(HOOKED).await
}

/// The content of the revision holds the private key, and no object that more people may read does.
async fn hides_the_key(stage: &Stage, key: &str) -> Result<()> {
    let world = &stage.world;
    let set = revisions(world).get("hooked-1").await?;
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
    let recorded = objects
        .iter()
        .find(|object| object["metadata"]["name"] == SECRET && object["kind"] == "Secret");
    ensure!(
        recorded.is_some_and(|recorded| recorded["data"]["tls.key"] == key),
        "the revision does not hold the Secret"
    );
    let readable = world.kubectl(&["get", "cos,cext,configmaps", "-A", "-o", "json"])?;
    ensure!(!readable.contains(key), "a private key stands in clear");
    Ok(())
}

/// Moves the operator, and sees that nothing has changed but its owner.
async fn moves(
    stage: &Stage,
    objects: &[[String; 2]],
    before: &BTreeMap<String, Value>,
    running: &str,
) -> Result<()> {
    let (world, place) = (&stage.world, HOOKED.namespace);
    let line = "migrate hooked -n hooked --service-account installer --yes --wait --timeout 2m";
    olm(world, &format!("{line} --acknowledge webhooks"))?.ended(0)?;
    await_version(world, HOOKED.package, FIRST).await?;
    // Whatever OLM classic still wants to do, it does within that time.
    tokio::time::sleep(Duration::from_secs(5)).await;
    unchanged(before, &stage.seen(HOOKED, objects)?)?;
    ensure!(pods(world, place)? == running, "Pods are made anew");
    let left = stage.left(HOOKED, "name")?;
    ensure!(left.is_empty(), "{left}");
    for label in ["olm.owner=hooked.v1.4.0", "olm.webhook-description-hash"] {
        let labelled = world.kubectl(&["get", KINDS, "-A", "-l", label, "-o", "name"])?;
        ensure!(labelled.is_empty(), "labels of OLM classic are back: {labelled}");
    }
    for (name, mark) in marks(stage, objects)? {
        ensure!(
            mark[2] == json!([["ClusterObjectSet", "hooked-1"]]),
            "{name}: {mark}"
        );
    }
    ensure!(
        reader(stage)?[2][0]["name"] == "hooked-1",
        "the binding in kube-system has no owner"
    );
    Ok(())
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

#[test]
fn an_operator_with_webhooks_moves_there_and_back_and_is_upgraded_while_they_are_called() -> Result<()> {
    CLUSTER.with(async |stage| {
        let (world, place) = (&stage.world, HOOKED.namespace);
        let port: u16 = free_address()?.rsplit(':').next().context("no port")?.parse()?;
        install(stage, port).await?;
        let made = secret(stage)?;
        let key = made["data"]["tls.key"].as_str().context("no key")?.to_owned();
        let _server =
            AllowingWebhook::start(port, &decoded(&made, "tls.crt")?, &decoded(&made, "tls.key")?).await?;
        eventually("webhooks are called", Duration::from_secs(60), async || {
            Ok(call(&world.client).await.is_ok().then_some(()))
        })
        .await?;
        let objects = stage.objects(HOOKED)?;
        for kind in [
            "Secret",
            "Service",
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
        ] {
            ensure!(objects.iter().any(|[found, _]| found == kind), "{objects:?}");
        }
        let (before, running) = (stage.seen(HOOKED, &objects)?, pods(world, place)?);
        let (marked, reading) = (marks(stage, &objects)?, reader(stage)?);
        let version = ["csv", HOOKED.version, "-n", place];
        let status = stage.json(&version)?["status"].clone();
        ensure!(!running.is_empty(), "no Pod runs");
        let calls = Calls::start(world.client.clone());

        olm(
            world,
            "migrate hooked -n hooked --service-account installer --yes",
        )?
        .ended(1)?
        .shows(&["to acknowledge (webhooks): the certificate of the webhooks is valid until 20"])?;
        moves(stage, &objects, &before, &running).await?;
        hides_the_key(stage, &key).await?;

        olm(world, "migrate hooked -n hooked --back --yes")?.ended(0)?;
        stage.rests(HOOKED).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        unchanged(&before, &stage.seen(HOOKED, &objects)?)?;
        ensure!(pods(world, place)? == running, "Pods are made anew");
        for (name, mark) in marks(stage, &objects)? {
            ensure!(
                marked.get(&name) == Some(&mark),
                "{name}: was {:?}, is {mark}",
                marked.get(&name)
            );
        }
        ensure!(
            reader(stage)? == reading,
            "the binding in kube-system is another one"
        );
        let now = stage.json(&version)?;
        for field in ["phase", "lastTransitionTime", "certsLastUpdated", "certsRotateAt"] {
            ensure!(
                now["status"][field] == status[field],
                "was {status}, is {}",
                now["status"]
            );
        }
        ensure!(
            now["metadata"]["annotations"]["olm.operatorframework.io/uninstall"].is_null(),
            "{}",
            now["metadata"]
        );
        let shown = [
            "get",
            "crd",
            HOOKED.definition,
            "--show-managed-fields",
            "-o",
            "yaml",
        ];
        ensure!(
            world.kubectl(&shown)?.contains(CONVERSIONS),
            "the conversion has another manager"
        );

        moves(stage, &objects, &before, &running).await?;
        calls.end(0).await?;
        upgraded(stage, &made, port).await
    })
}

/// Upgrades the operator. The new configurations have other names; the certificate stays, and gets an authority that
/// can renew it.
async fn upgraded(stage: &Stage, made: &Value, port: u16) -> Result<()> {
    let world = &stage.world;
    let image = publish(world, &["1.0.0", FIRST, SECOND], port).await?;
    let calls = Calls::start(world.client.clone());
    world.apply(&[catalog("hooked-catalog", &image)])?;
    // A Subscription with manual approval is pinned to its version.
    patch_source(world, HOOKED.package, json!({"version": SECOND})).await?;
    await_version(world, HOOKED.package, SECOND).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    calls.end(AT_START).await?;
    let renewed = secret(stage)?;
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
    ensure!(owners.len() == 1 && owners[0]["name"] == "hooked-2", "{owners:?}");
    let authorities = decoded(&renewed, "ca.crt")?;
    let old = decoded(made, "olmCAKey")?;
    ensure!(
        authorities.trim_end().ends_with(old.trim_end()),
        "the old authority is not trusted"
    );
    ensure!(authorities.matches("BEGIN").count() == 2, "{authorities}");
    let trusted = &renewed["data"]["ca.crt"];
    for (kind, name) in [
        ("validatingwebhookconfigurations", "greetings.hooked.olm.example"),
        ("mutatingwebhookconfigurations", "salutations.hooked.olm.example"),
    ] {
        let found = stage.json(&[kind, name])?;
        ensure!(
            found["webhooks"][0]["clientConfig"]["caBundle"] == *trusted,
            "{kind} trusts another authority"
        );
        eventually(
            "the old configuration is gone",
            Duration::from_secs(60),
            async || {
                let all = world.kubectl(&["get", kind, "-o", "name"])?;
                Ok((all
                    .lines()
                    .filter(|line| line.contains("hooked.olm.example"))
                    .count()
                    == 1)
                    .then_some(()))
            },
        )
        .await?;
    }
    let definition = stage.json(&["crd", HOOKED.definition])?;
    ensure!(
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == *trusted,
        "the conversion trusts another authority"
    );
    call(&world.client).await
}
