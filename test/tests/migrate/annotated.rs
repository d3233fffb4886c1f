//! Moves by annotation, there and back, while the programs of OLM classic run.

mod faults;
mod tokens;
mod withdrawn;

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use olm_test::docs::page;
use olm_test::extensions::{administrator, await_version, catalog};
use olm_test::world::{World, eventually, repository};
use serde_json::{Value, json};

use super::course::{pods, unchanged};
use super::running::{CLUSTER, Operator, Stage, subscription};

const MIGRATE: &str = "olm.operatorframework.io/migrate=true";
const MIGRATE_BACK: &str = "olm.operatorframework.io/migrate-back=true";
/// Time limit for a move.
const LIMIT: Duration = Duration::from_secs(180);
/// Time in which a program that writes again and again would have written.
const STILL: Duration = Duration::from_secs(6);

const fn operator(name: &'static str, version: &'static str, definition: &'static str) -> Operator {
    Operator {
        package: name,
        namespace: name,
        version,
        definition,
    }
}

/// Publishes an operator and subscribes to it with these annotations, in a namespace of its name and under the account
/// `installer` if the OperatorGroup names it. Returns the image of its catalog.
async fn subscribe(stage: &Stage, operator: Operator, is_named: bool, annotations: Value) -> Result<String> {
    let image = stage
        .world
        .publish(operator.package, &["1.0.0"], "sample-operator:v1")
        .await?;
    subscribe_to(stage, operator, &image, is_named, annotations)?;
    Ok(image)
}

/// The same for an operator that is published.
fn subscribe_to(
    stage: &Stage,
    operator: Operator,
    image: &str,
    is_named: bool,
    annotations: Value,
) -> Result<()> {
    let (world, name) = (&stage.world, operator.package);
    world.apply(&administrator(name, "installer"))?;
    let [mut group, source, mut subscription] = subscription(name, name, "stable", image);
    if is_named {
        group["spec"] = json!({"serviceAccountName": "installer"});
    }
    subscription["metadata"]["annotations"] = annotations;
    world.apply(&[group, source, subscription])
}

/// Subscribes to an operator, and has OLM classic install it.
async fn install(stage: &Stage, operator: Operator, is_named: bool) -> Result<String> {
    let image = subscribe(stage, operator, is_named, json!({})).await?;
    stage.installs(operator).await?;
    Ok(image)
}

/// Creates the ClusterCatalog, and waits until it is served.
fn serve(world: &World, name: &str, image: &str) -> Result<()> {
    let name = format!("{name}-catalog");
    world.apply(&[catalog(&name, image)])?;
    let name = format!("ccat/{name}");
    world
        .kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", &name])
        .map(drop)
}

fn annotate(world: &World, object: &str, operator: Operator, annotation: &str) -> Result<()> {
    let place = ["-n", operator.namespace];
    world
        .kubectl(&[&["annotate", "--overwrite", object, annotation][..], &place].concat())
        .map(drop)
}

/// The commands of the page about it, for this operator: the rights, the move, its condition, the ClusterExtension, and
/// the way back.
fn commands(operator: Operator) -> Result<[String; 5]> {
    let blocks = page("how-to/move-from-classic.md")?.marked("sh annotated");
    let namespace = format!("-n {}", operator.namespace);
    let own = blocks.iter().map(|block| {
        block
            .replace("greeter", operator.package)
            .replace("-n operators", &namespace)
    });
    let own: Vec<String> = own.collect();
    own.try_into().map_err(|found| anyhow!("the page has {found:?}"))
}

/// Runs a command of the page, and returns its output.
fn run(world: &World, command: &str) -> Result<String> {
    let mut shell = world.cluster.exec("bash");
    let ran = shell.args(["-ec", command]).current_dir(repository()).output()?;
    let printed = String::from_utf8([ran.stdout, ran.stderr].concat())?;
    ensure!(ran.status.success(), "{command}\n{printed}");
    Ok(printed)
}

/// Waits until the Subscription and the ClusterServiceVersion are gone and the ClusterExtension works.
async fn has_moved(stage: &Stage, operator: Operator) -> Result<()> {
    let moved = eventually("the Subscription has moved", LIMIT, async || {
        let left = stage.left(operator, "name")?;
        let found = [
            "get",
            "cext",
            operator.package,
            "--ignore-not-found",
            "-o",
            "json",
        ];
        let found = stage.world.kubectl(&found)?;
        let is_resumed = !found.is_empty() && !found.contains("olm.operatorframework.io/paused");
        Ok((left.is_empty() && is_resumed).then_some(()))
    });
    if let Err(error) = moved.await {
        let found = stage.left(operator, "yaml")?;
        return Err(error.context(format!("{found}\n{}", stage.logs())));
    }
    await_version(&stage.world, operator.package, "1.0.0")
        .await
        .map(drop)
}

/// The condition about the move, once it has this reason.
async fn condition(stage: &Stage, operator: Operator, reason: &str) -> Result<Value> {
    let mut last = Value::Null;
    let what = format!("Migrated has reason {reason}");
    let found = eventually(&what, LIMIT, async || {
        last = stage.json(&["subscription", operator.package, "-n", operator.namespace])?;
        let conditions = last["status"]["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|found| found["type"] == "Migrated");
        Ok(conditions.find(|found| found["reason"] == reason).cloned())
    });
    let found = found.await;
    found.with_context(|| format!("{last:#}\n{}", stage.logs()))
}

/// The resourceVersions of what a move writes.
fn written(stage: &Stage, operator: Operator) -> Result<Vec<String>> {
    let kinds =
        "subscriptions,csv,operatorgroups,installplans,configmaps,serviceaccounts,roles,rolebindings,secrets";
    let near = stage.json(&[kinds, "-n", operator.namespace])?;
    let wide = stage.json(&["cext,cos,crds,clusterroles"])?;
    let lists = [near, wide].map(|list| list["items"].as_array().cloned().unwrap_or_default());
    let all = lists.concat();
    let named = all.iter().map(|object| &object["metadata"]);
    // Copies come and go with the ClusterServiceVersions of other operators.
    let own = named.filter(|metadata| metadata["labels"]["olm.copiedFrom"].is_null());
    let of_operator = own.filter(|metadata| {
        metadata["namespace"] == operator.namespace
            || metadata["name"]
                .as_str()
                .is_some_and(|name| name.contains(operator.package))
    });
    Ok(of_operator
        .map(|metadata| format!("{} {}", metadata["name"], metadata["resourceVersion"]))
        .collect())
}

/// Sees that nothing is written for a while.
async fn is_still(stage: &Stage, operator: Operator) -> Result<()> {
    tokio::time::sleep(STILL).await;
    let before = written(stage, operator)?;
    tokio::time::sleep(STILL).await;
    let after = written(stage, operator)?;
    ensure!(before == after, "was {before:#?}, is {after:#?}");
    Ok(())
}

#[test]
fn annotations_move_an_operator_there_and_back_without_a_change_of_what_runs() -> Result<()> {
    const NOTED: Operator = operator("noted", "noted.v1.0.0", "greetings.noted.olm.example");
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let image = install(stage, NOTED, true).await?;
        serve(world, "noted", &image)?;
        let objects = stage.objects(NOTED)?;
        ensure!(objects.len() >= 7, "{objects:?}");
        let (before, running) = (stage.seen(NOTED, &objects)?, pods(world, "noted")?);
        ensure!(!running.is_empty(), "no Pod runs");

        let [rights, there, describe, extension, back] = commands(NOTED)?;
        run(world, &rights)?;
        run(world, &there)?;
        has_moved(stage, NOTED).await?;
        is_still(stage, NOTED).await?;
        unchanged(&before, &stage.seen(NOTED, &objects)?)?;
        ensure!(pods(world, "noted")? == running, "Pods are made anew");
        let replacement = run(world, &extension)?;
        ensure!(replacement.contains("kind: ClusterExtension"), "{replacement}");
        let extension = stage.json(&["cext", "noted"])?;
        ensure!(
            extension["spec"]["serviceAccount"]["name"] == "installer",
            "{extension:#}"
        );
        ensure!(
            extension["metadata"]["annotations"]["olm.operatorframework.io/migrate"].is_null(),
            "{extension:#}"
        );
        let told = world.kubectl(&[
            "get",
            "events",
            "-n",
            "noted",
            "-o",
            "jsonpath={.items[*].reason}",
        ])?;
        ensure!(told.contains("MigrationStep"), "{told}");

        // A tool that applies its manifests again.
        let [_, _, mut again] = subscription("noted", "noted", "stable", &image);
        again["metadata"]["annotations"] = json!({"olm.operatorframework.io/migrate": "true"});
        again["spec"]["installPlanApproval"] = json!("Automatic");
        world.apply(&[again])?;
        let condition = condition(stage, NOTED, "Moved").await?;
        ensure!(condition["status"] == "True", "{condition}");
        let described = run(world, &describe)?;
        ensure!(described.contains("Moved"), "{described}");
        is_still(stage, NOTED).await?;
        let made = world.kubectl(&[
            "get",
            "installplans,csv",
            "-n",
            "noted",
            "-l",
            "!olm.copiedFrom",
            "-o",
            "name",
        ])?;
        ensure!(made.is_empty(), "the operator is installed once more: {made}");
        unchanged(&before, &stage.seen(NOTED, &objects)?)?;
        world.kubectl(&["delete", "subscription", "noted", "-n", "noted"])?;

        run(world, &back)?;
        stage.rests(NOTED).await.with_context(|| stage.logs())?;
        let gone = ["wait", "--for=delete", "--timeout=120s", "clusterextension/noted"];
        world.kubectl(&gone)?;
        is_still(stage, NOTED).await?;
        unchanged(&before, &stage.seen(NOTED, &objects)?)?;
        ensure!(pods(world, "noted")? == running, "Pods are made anew");
        ensure!(
            stage.objects(NOTED)? == objects,
            "OLM classic does not have all objects again"
        );
        let left = stage.left(NOTED, "yaml")?;
        for mark in [
            "olm.operatorframework.io/migrate",
            "olm.operatorframework.io/paused",
            "Migrated",
        ] {
            ensure!(!left.contains(mark), "{mark} is left: {left}");
        }
        Ok(())
    })
}

#[test]
fn a_move_that_is_refused_says_why_and_continues_when_the_cause_is_gone() -> Result<()> {
    const HELD: Operator = operator("held", "held.v1.0.0", "greetings.held.olm.example");
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let image = install(stage, HELD, false).await?;
        let objects = stage.objects(HELD)?;
        let (before, running) = (stage.seen(HELD, &objects)?, pods(world, "held")?);
        annotate(world, "subscription/held", HELD, MIGRATE)?;
        let blocked = condition(stage, HELD, "Blocked").await?;
        let message = blocked["message"].as_str().unwrap_or_default();
        for part in [
            "service-account: OLM classic installs under an account of another namespace",
            "spec.serviceAccountName of the OperatorGroup",
            "catalog: no ClusterCatalog has the image",
        ] {
            ensure!(message.contains(part), "{message}");
        }
        ensure!(blocked["status"] == "False", "{blocked}");
        is_still(stage, HELD).await?;
        // Whoever annotates the Subscription cannot name an account.
        annotate(
            world,
            "subscription/held",
            HELD,
            "olm.operatorframework.io/acknowledged-service-account=true",
        )?;
        is_still(stage, HELD).await?;
        let still = condition(stage, HELD, "Blocked").await?;
        ensure!(still == blocked, "{still}");

        serve(world, "held", &image)?;
        let name = r#"{"spec":{"serviceAccountName":"installer"}}"#;
        world.kubectl(&[
            "patch",
            "operatorgroup",
            "all",
            "-n",
            "held",
            "--type=merge",
            "-p",
            name,
        ])?;
        has_moved(stage, HELD).await?;
        unchanged(&before, &stage.seen(HELD, &objects)?)?;
        ensure!(pods(world, "held")? == running, "Pods are made anew");
        Ok(())
    })
}

#[test]
fn a_request_before_the_first_installation_moves_the_operator_after_it() -> Result<()> {
    const EAGER: Operator = operator("eager", "eager.v1.0.0", "greetings.eager.olm.example");
    CLUSTER.with(async |stage| {
        let annotations = json!({"olm.operatorframework.io/migrate": "true"});
        let image = subscribe(stage, EAGER, true, annotations).await?;
        serve(&stage.world, "eager", &image)?;
        stage.approves(EAGER).await.with_context(|| stage.logs())?;
        has_moved(stage, EAGER).await
    })
}

#[test]
fn a_request_that_is_withdrawn_leaves_no_condition() -> Result<()> {
    const SHY: Operator = operator("shy", "shy.v1.0.0", "greetings.shy.olm.example");
    CLUSTER.with(async |stage| {
        install(stage, SHY, false).await?;
        annotate(&stage.world, "subscription/shy", SHY, MIGRATE)?;
        condition(stage, SHY, "Blocked").await?;
        annotate(
            &stage.world,
            "subscription/shy",
            SHY,
            "olm.operatorframework.io/migrate-",
        )?;
        eventually("the condition is gone", LIMIT, async || {
            let found = stage.left(SHY, "yaml")?;
            Ok((!found.contains("Migrated")).then_some(()))
        })
        .await
    })
}
