//! The move and the way back while the programs of OLM classic run: they leave paused objects alone. The commands are
//! those of the page about it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use olm_test::classic::{ACCOUNT, prepare};
use olm_test::docs::page;
use olm_test::extensions::{administrator, await_version, catalog};
use olm_test::shared::Shared;
use olm_test::world::{Manager, Options, World, eventually};
use serde_json::{Value, json};

use super::course::pods;
use super::olm;

static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

const PACKAGE: &str = "greeter";
/// The namespace with an OperatorGroup for all namespaces, which the manifests of OLM classic bring.
const NAMESPACE: &str = "operators";
/// Time limit for steps that take a second.
const SOON: Duration = Duration::from_secs(180);
/// The kinds of objects that the operator consists of.
const KINDS: &str = "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,deployments,customresourcedefinitions";

/// The managers of OLM v1 and the programs of OLM classic on one cluster.
struct Stage {
    world: World,
    programs: Vec<Manager>,
}

impl Stage {
    async fn start() -> Result<Self> {
        let world = World::start(Options::default()).await?;
        prepare(&world)?;
        let account = format!("--classic-account={ACCOUNT}");
        let cache = format!("--cache-dir={}", world.folder().join("catalogs").display());
        let arguments = vec![account.clone(), cache, "-v=4".to_owned()];
        let mut programs = vec![
            Manager::classic(&world, "catalog-operator", "catalog-operator", arguments).await?,
            Manager::classic(
                &world,
                "olm-operator",
                "olm-operator",
                vec![account, "-v=4".to_owned()],
            )
            .await?,
        ];
        for program in &mut programs {
            program.start(&world.cluster)?;
            program.ready().await?;
        }
        Ok(Self { world, programs })
    }

    /// Waits until kubectl prints this about an object of the namespace.
    async fn shows(&self, object: &str, pointer: &str, expected: &str) -> Result<()> {
        let form = format!("jsonpath={{{pointer}}}");
        let mut last = String::new();
        let shown = eventually(&format!("{object} shows {expected}"), SOON, async || {
            last = self
                .world
                .kubectl(&["get", object, "-n", NAMESPACE, "-o", &form])?;
            Ok((last == expected).then_some(()))
        })
        .await;
        shown.with_context(|| {
            let logs: Vec<String> = self.programs.iter().map(Manager::log_end).collect();
            format!("it shows {last:?}\n{}", logs.join("\n---\n"))
        })
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let printed = self
            .world
            .kubectl(&[&["get"], arguments, &["-o", "json"]].concat())?;
        Ok(serde_json::from_str(&printed)?)
    }

    /// The objects of the operator, as kind and name.
    fn objects(&self) -> Result<Vec<[String; 2]>> {
        let listed = self.json(&[KINDS, "-A"])?;
        let items = listed["items"].as_array().context("no list")?;
        let is_of_operator = |object: &&Value| {
            let metadata = &object["metadata"];
            let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
            metadata["labels"]["olm.owner"] == "greeter.v1.0.0"
                || owners.any(|owner| owner["kind"] == "ClusterServiceVersion")
                || metadata["name"] == "greetings.samples.olm.example"
        };
        let found = items.iter().filter(is_of_operator).map(|object| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            [text(&object["kind"]), text(&object["metadata"]["name"])]
        });
        Ok(found.collect())
    }

    /// Parts of the objects that must not change: identity, generation and content.
    fn seen(&self, objects: &[[String; 2]]) -> Result<BTreeMap<String, Value>> {
        let mut seen = BTreeMap::new();
        for [kind, name] in objects {
            let mut object = self.json(&[kind, name, "-n", NAMESPACE])?;
            let metadata = &object["metadata"];
            // Annotations count for the generation of a Deployment.
            let generation = match kind.as_str() {
                "Deployment" => {
                    let sets = self.json(&["replicasets", "-n", NAMESPACE])?;
                    let sets = sets["items"].as_array().context("no list")?;
                    sets.iter().map(|set| set["metadata"]["uid"].clone()).collect()
                }
                _ => metadata["generation"].clone(),
            };
            let identity = json!([metadata["uid"], generation]);
            object["metadata"] = identity;
            object["status"] = Value::Null;
            seen.insert(format!("{kind} {name}"), object);
        }
        Ok(seen)
    }
}

/// Runs the commands of a block, a line each.
fn run(world: &World, block: &str, status: Option<i32>) -> Result<()> {
    for line in block.lines() {
        let arguments = line.strip_prefix("olm ").context("it is no command of olm")?;
        let ran = olm(world, arguments)?.shows(&[PACKAGE])?;
        if let Some(status) = status {
            ran.ended(status)?;
        }
    }
    Ok(())
}

#[test]
fn an_operator_moves_there_and_back_while_olm_classic_runs() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let blocks = page("how-to/move-from-classic.md")?.marked("sh classic");
        let blocks: Result<[String; 4], _> = blocks.try_into();
        let [report, manifests, there, back] = blocks.map_err(|found| anyhow!("the page has {found:?}"))?;
        let image = world.publish(PACKAGE, &["1.0.0"], "sample-operator:v1").await?;
        world.apply(&[
            catalog("greeter-catalog", &image),
        ])?;
        world.kubectl(&[
            "wait",
            "--for=condition=Serving",
            "--timeout=120s",
            "ccat/greeter-catalog",
        ])?;
        let at = |name: &str| json!({"namespace": NAMESPACE, "name": name});
        let subscription = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": at(PACKAGE),
            "spec": {
                "name": PACKAGE, "source": "shop", "sourceNamespace": NAMESPACE, "channel": "stable",
                "installPlanApproval": "Manual",
            },
        });
        world.apply(&[
            json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": at("shop"),
                "spec": {"sourceType": "grpc", "image": image},
            }),
            subscription,
        ])?;
        world.apply(&administrator(NAMESPACE, "greeter-installer"))?;
        stage
            .shows("subscription/greeter", ".status.state", "UpgradePending")
            .await?;
        let plan = ["get", "subscription/greeter", "-n", NAMESPACE, "-o"];
        let plan = world.kubectl(&[&plan[..], &["jsonpath={.status.installPlanRef.name}"]].concat())?;
        let approve = ["--type=merge", r#"--patch={"spec":{"approved":true}}"#];
        world.kubectl(&[&["patch", "installplan", &plan, "-n", NAMESPACE][..], &approve].concat())?;
        stage
            .shows("csv/greeter.v1.0.0", ".status.phase", "Succeeded")
            .await?;
        stage
            .shows("subscription/greeter", ".status.state", "AtLatestKnown")
            .await?;
        let objects = stage.objects()?;
        ensure!(objects.len() >= 7, "{objects:?}");
        let (before, running) = (stage.seen(&objects)?, pods(world, NAMESPACE)?);
        ensure!(!running.is_empty(), "no Pod runs");

        // The report about the whole cluster ends with 1 where something cannot move as it is.
        run(world, &report, None)?;
        run(world, &manifests, Some(0))?;
        run(world, &there, Some(0))?;
        await_version(world, PACKAGE, "1.0.0").await?;
        // Whatever OLM classic still wants to do, it does within that time.
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(stage.seen(&objects)? == before, "the move has changed an object");
        ensure!(pods(world, NAMESPACE)? == running, "Pods are made anew");
        let left = world.kubectl(&["get", "subscriptions,csv", "-n", NAMESPACE, "-o", "name"])?;
        ensure!(left.is_empty(), "{left}");
        let labelled = world.kubectl(&["get", KINDS, "-A", "-l", "olm.owner=greeter.v1.0.0", "-o", "name"])?;
        ensure!(labelled.is_empty(), "labels of OLM classic are back: {labelled}");

        run(world, &back, Some(0))?;
        stage
            .shows("csv/greeter.v1.0.0", ".status.phase", "Succeeded")
            .await?;
        stage
            .shows("subscription/greeter", ".status.state", "AtLatestKnown")
            .await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(
            stage.seen(&objects)? == before,
            "the way back has changed an object"
        );
        ensure!(pods(world, NAMESPACE)? == running, "Pods are made anew");
        ensure!(
            stage.objects()? == objects,
            "OLM classic does not have all objects again"
        );
        let plans = world.kubectl(&["get", "installplans", "-n", NAMESPACE, "-o", "name"])?;
        ensure!(plans.is_empty(), "{plans}");
        let paused = world.kubectl(&["get", "subscriptions,csv", "-n", NAMESPACE, "-o", "yaml"])?;
        ensure!(
            !paused.contains("olm.operatorframework.io/paused"),
            "it is paused: {paused}"
        );
        Ok(())
    })
}
