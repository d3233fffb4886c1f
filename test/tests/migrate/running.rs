//! The move and the way back while the programs of OLM classic run: they leave paused objects alone. The commands are
//! those of the page about it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use olm_test::classic::{ACCOUNT, prepare, prepare_migration};
use olm_test::docs::page;
use olm_test::extensions::{administrator, await_version, catalog};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Manager, Options, World, eventually};
use serde_json::{Value, json};

use super::course::pods;
use super::olm;

pub(crate) static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

const PACKAGE: &str = "greeter";
/// The namespace with an OperatorGroup for all namespaces, which the manifests of OLM classic bring.
const NAMESPACE: &str = "operators";
/// The Secret in its bundle, for which InstallPlans have a kind of its own.
const SECRET: &str = "greeter-words";
/// Time limit for steps that take a second.
const SOON: Duration = Duration::from_secs(180);
/// The kinds of objects that an operator consists of.
pub(crate) const KINDS: &str = "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,deployments,services,secrets,\
                                customresourcedefinitions,validatingwebhookconfigurations,mutatingwebhookconfigurations,\
                                apiservices";

/// An operator that OLM classic installs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operator {
    pub(crate) package: &'static str,
    pub(crate) namespace: &'static str,
    /// The ClusterServiceVersion.
    pub(crate) version: &'static str,
    /// The CustomResourceDefinition.
    pub(crate) definition: &'static str,
}

/// The operator of the page.
const GREETER: Operator = Operator {
    package: PACKAGE,
    namespace: NAMESPACE,
    version: "greeter.v1.0.0",
    definition: "greetings.samples.olm.example",
};

/// The managers of OLM v1 and the programs of OLM classic on one cluster.
pub(crate) struct Stage {
    pub(crate) world: World,
    programs: Vec<Manager>,
}

impl Stage {
    async fn start() -> Result<Self> {
        Self::behind(World::start(Options::default()).await?, None).await
    }

    /// The programs on this cluster; catalog-operator reaches the API server at that address.
    pub(crate) async fn behind(world: World, server: Option<&str>) -> Result<Self> {
        prepare(&world)?;
        prepare_migration(&world)?;
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
        if let (Some(server), Some(catalogs)) = (server, programs.first_mut()) {
            catalogs.go_through(server)?;
        }
        for program in &mut programs {
            program.start(&world.cluster)?;
            program.ready().await?;
        }
        Ok(Self { world, programs })
    }

    /// Ends catalog-operator and starts it again; in between, `recover` is called.
    pub(crate) fn restart_catalogs(&mut self, recover: impl FnOnce()) -> Result<()> {
        let program = self.programs.first_mut().context("it was started")?;
        program.kill();
        recover();
        program.start(&self.world.cluster)
    }

    /// Waits until kubectl prints this about an object of the operator's namespace.
    pub(crate) async fn shows(
        &self,
        operator: Operator,
        object: &str,
        pointer: &str,
        expected: &str,
    ) -> Result<()> {
        let form = format!("jsonpath={{{pointer}}}");
        let mut last = String::new();
        let shown = eventually(&format!("{object} shows {expected}"), SOON, async || {
            last = self
                .world
                .kubectl(&["get", object, "-n", operator.namespace, "-o", &form])?;
            Ok((last == expected).then_some(()))
        })
        .await;
        shown.with_context(|| format!("it shows {last:?}\n{}", self.logs()))
    }

    /// The ends of the programs' logs.
    pub(crate) fn logs(&self) -> String {
        let logs: Vec<String> = self.programs.iter().map(Manager::log_end).collect();
        logs.join("\n---\n")
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let printed = self
            .world
            .kubectl(&[&["get"], arguments, &["-o", "json"]].concat())?;
        Ok(serde_json::from_str(&printed)?)
    }

    /// The objects of the operator, as kind and name.
    pub(crate) fn objects(&self, operator: Operator) -> Result<Vec<[String; 2]>> {
        let listed = self.json(&[KINDS, "-A"])?;
        let items = listed["items"].as_array().context("no list")?;
        let is_of_operator = |object: &&Value| {
            let metadata = &object["metadata"];
            let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
            let is_version =
                |owner: &Value| owner["kind"] == "ClusterServiceVersion" && owner["name"] == operator.version;
            metadata["labels"]["olm.owner"] == operator.version
                || owners.any(is_version)
                || metadata["name"] == operator.definition
        };
        let found = items.iter().filter(is_of_operator).map(|object| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            [text(&object["kind"]), text(&object["metadata"]["name"])]
        });
        Ok(found.collect())
    }

    /// Parts of the objects that must not change: identity, generation and content.
    pub(crate) fn seen(
        &self,
        operator: Operator,
        objects: &[[String; 2]],
    ) -> Result<BTreeMap<String, Value>> {
        let mut seen = BTreeMap::new();
        for [kind, name] in objects {
            let mut object = self.json(&[kind, name, "-n", operator.namespace])?;
            let metadata = &object["metadata"];
            // Annotations count for the generation of a Deployment.
            let generation = match kind.as_str() {
                "Deployment" => {
                    let sets = self.json(&["replicasets", "-n", operator.namespace])?;
                    let sets = sets["items"].as_array().context("no list")?;
                    sets.iter().map(|set| set["metadata"]["uid"].clone()).collect()
                }
                _ => metadata["generation"].clone(),
            };
            // The hash of an authority counts as content.
            let identity = json!([metadata["uid"], generation, metadata["annotations"]["olmcahash"]]);
            object["metadata"] = identity;
            object["status"] = Value::Null;
            seen.insert(format!("{kind} {name}"), object);
        }
        Ok(seen)
    }

    /// Approves the InstallPlan of the operator's Subscription and waits until it is at rest.
    pub(crate) async fn installs(&self, operator: Operator) -> Result<()> {
        self.approves(operator).await?;
        self.rests(operator).await
    }

    /// Approves the InstallPlan of the operator's Subscription.
    pub(crate) async fn approves(&self, operator: Operator) -> Result<()> {
        let subscription = format!("subscription/{}", operator.package);
        self.shows(operator, &subscription, ".status.state", "UpgradePending")
            .await?;
        let at = ["-n", operator.namespace];
        let form = ["-o", "jsonpath={.status.installPlanRef.name}"];
        let plan = self
            .world
            .kubectl(&[&["get", &subscription][..], &at, &form].concat())?;
        let approve = ["--type=merge", r#"--patch={"spec":{"approved":true}}"#];
        self.world
            .kubectl(&[&["patch", "installplan", &plan][..], &at, &approve].concat())?;
        Ok(())
    }

    /// The Subscriptions and ClusterServiceVersions in the operator's namespace, without copies of others, as kubectl
    /// prints them in this form.
    pub(crate) fn left(&self, operator: Operator, form: &str) -> Result<String> {
        let kinds = ["get", "subscriptions,csv", "-n", operator.namespace];
        let chosen = ["-l", "!olm.copiedFrom", "-o", form];
        self.world.kubectl(&[kinds, chosen].concat())
    }

    /// Waits until OLM classic is done with the operator.
    pub(crate) async fn rests(&self, operator: Operator) -> Result<()> {
        let version = format!("csv/{}", operator.version);
        self.shows(operator, &version, ".status.phase", "Succeeded")
            .await?;
        let subscription = format!("subscription/{}", operator.package);
        self.shows(operator, &subscription, ".status.state", "AtLatestKnown")
            .await
    }
}

/// Pushes the sample operator under this name with a Secret in its bundle; returns the image of its catalog.
pub(super) async fn publish_with_secret(world: &World, package: &str, secret: &Value) -> Result<String> {
    let mut files = samples::renamed_bundle(package, "1.0.0", "sample-operator:v1");
    files.insert(
        "manifests/secret.yaml".to_owned(),
        secret.to_string().into_bytes(),
    );
    let name = format!("{package}-bundle:with-secret");
    let bundle = world.push_bundle(&name, &files).await?;
    let blobs = samples::catalog(&["1.0.0"], |_| bundle.clone());
    let name = format!("{package}-catalog:with-secret");
    world
        .push_catalog(&name, &samples::renamed(package, &blobs))
        .await
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

/// An OperatorGroup for all namespaces, a CatalogSource with this image, and a Subscription with approvals by hand.
pub(super) fn subscription(namespace: &str, package: &str, channel: &str, image: &str) -> [Value; 3] {
    let at = |name: &str| json!({"namespace": namespace, "name": name});
    [
        json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": at("all"), "spec": {},
        }),
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": at("shop"),
            "spec": {"sourceType": "grpc", "image": image},
        }),
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription", "metadata": at(package),
            "spec": {
                "name": package, "source": "shop", "sourceNamespace": namespace, "channel": channel,
                "installPlanApproval": "Manual",
            },
        }),
    ]
}

#[test]
fn an_operator_moves_there_and_back_while_olm_classic_runs() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let blocks = page("how-to/move-from-classic.md")?.marked("sh classic");
        let blocks: Result<[String; 4], _> = blocks.try_into();
        let [report, manifests, there, back] = blocks.map_err(|found| anyhow!("the page has {found:?}"))?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"word": "hello"},
        });
        let image = publish_with_secret(world, PACKAGE, &secret).await?;
        world.apply(&[catalog("greeter-catalog", &image)])?;
        world.kubectl(&[
            "wait",
            "--for=condition=Serving",
            "--timeout=120s",
            "ccat/greeter-catalog",
        ])?;
        // The namespace has an OperatorGroup.
        let [_, source, subscription] = subscription(NAMESPACE, PACKAGE, "stable", &image);
        world.apply(&[source, subscription])?;
        world.apply(&administrator(NAMESPACE, "greeter-installer"))?;
        stage.installs(GREETER).await?;
        let objects = stage.objects(GREETER)?;
        ensure!(objects.len() >= 8, "{objects:?}");
        ensure!(
            objects.contains(&["Secret", SECRET].map(str::to_owned)),
            "{objects:?}"
        );
        let (before, running) = (stage.seen(GREETER, &objects)?, pods(world, NAMESPACE)?);
        ensure!(!running.is_empty(), "no Pod runs");

        // The report about the whole cluster ends with 1 where something cannot move as it is.
        run(world, &report, None)?;
        run(world, &manifests, Some(0))?;
        run(world, &there, Some(0))?;
        // No ClusterServiceVersion owns the OperatorCondition, and garbage collection has nothing to do with it.
        let condition = stage.json(&["operatorcondition", GREETER.version, "-n", NAMESPACE])?;
        ensure!(condition["metadata"]["ownerReferences"].is_null(), "{condition}");
        await_version(world, PACKAGE, "1.0.0").await?;
        // Whatever OLM classic still wants to do, it does within that time.
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(
            stage.seen(GREETER, &objects)? == before,
            "the move has changed an object"
        );
        ensure!(pods(world, NAMESPACE)? == running, "Pods are made anew");
        let left = stage.left(GREETER, "name")?;
        ensure!(left.is_empty(), "{left}");
        let labelled =
            world.kubectl(&["get", KINDS, "-A", "-l", "olm.owner=greeter.v1.0.0", "-o", "name"])?;
        ensure!(labelled.is_empty(), "labels of OLM classic are back: {labelled}");

        run(world, &back, Some(0))?;
        stage.rests(GREETER).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        ensure!(
            stage.seen(GREETER, &objects)? == before,
            "the way back has changed an object"
        );
        ensure!(pods(world, NAMESPACE)? == running, "Pods are made anew");
        ensure!(
            stage.objects(GREETER)? == objects,
            "OLM classic does not have all objects again"
        );
        let plans = world.kubectl(&["get", "installplans", "-n", NAMESPACE, "-o", "name"])?;
        ensure!(plans.is_empty(), "{plans}");
        let paused = stage.left(GREETER, "yaml")?;
        ensure!(
            !paused.contains("olm.operatorframework.io/paused"),
            "it is paused: {paused}"
        );
        Ok(())
    })
}
