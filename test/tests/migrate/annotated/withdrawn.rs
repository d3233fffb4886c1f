//! Requests that are withdrawn in the middle of a return, and values that are no request.

use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, PostParams};
use olm_test::extensions::await_version;
use olm_test::objects::api;
use olm_test::world::{World, eventually};
use serde_json::{Value, json};

use super::{
    LIMIT, MIGRATE, MIGRATE_BACK, annotate, condition, has_moved, install, is_still, operator, serve,
};
use crate::course::{pods, unchanged};
use crate::running::{CLUSTER, Operator, Stage};

const FICKLE: Operator = operator("fickle", "fickle.v1.0.0", "greetings.fickle.olm.example");
const EXTENSION: &str = "clusterextension/fickle";
/// Prefix of the annotations.
const OURS: &str = "olm.operatorframework.io/";

/// Keeps an object of OLM classic from being created.
fn deny(world: &World, object: &Value) -> Result<()> {
    let plural = match object["kind"].as_str() {
        Some("Subscription") => "subscriptions",
        _ => "clusterserviceversions",
    };
    let metadata = json!({"name": "fickle"});
    let place = json!({"matchLabels": {"kubernetes.io/metadata.name": "fickle"}});
    let expression = format!("object.metadata.name != {}", object["metadata"]["name"]);
    world.apply(&[
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"namespaceSelector": place, "resourceRules": [{
                    "apiGroups": ["operators.coreos.com"], "apiVersions": ["*"], "operations": ["CREATE"],
                    "resources": [plural],
                }]},
                "validations": [{"expression": expression, "message": "not now"}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata, "spec": {"policyName": "fickle", "validationActions": ["Deny"]},
        }),
    ])
}

fn allow(world: &World) -> Result<()> {
    let policies = "validatingadmissionpolicybinding,validatingadmissionpolicy";
    world.kubectl(&["delete", policies, "fickle"]).map(drop)
}

/// Waits until the API server refuses or accepts a creation.
async fn can_be_created(world: &World, object: &Value, expected: bool) -> Result<()> {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| ["name", "namespace"].contains(&key.as_str()));
    }
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the policy has its effect", LIMIT, async || {
        let created = api(&world.client, &object).create(&dry_run, &typed).await;
        Ok((created.is_ok() == expected).then_some(()))
    })
    .await
}

/// The annotations of the ClusterExtension, once they are as wanted.
async fn annotated(stage: &Stage, what: &str, is_meant: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut last = Value::Null;
    let found = eventually(what, LIMIT, async || {
        last = stage.json(&[EXTENSION])?["metadata"]["annotations"].clone();
        Ok(is_meant(&last).then(|| last.clone()))
    });
    let found = found.await;
    found.with_context(|| format!("{last:#}\n{}", stage.logs()))
}

fn of<'a>(annotations: &'a Value, name: &str) -> Option<&'a str> {
    annotations[format!("{OURS}{name}")].as_str()
}

/// Waits until the status of the return has all of these parts.
async fn says(stage: &Stage, parts: &[&str]) -> Result<Value> {
    let what = format!("the status of the return has {parts:?}");
    annotated(stage, &what, |annotations| {
        let status = of(annotations, "migrate-back-status").unwrap_or_default();
        parts.iter().all(|part| status.contains(part))
    })
    .await
}

/// Requests the return, which stops with this message, and withdraws the request.
async fn withdraws(stage: &Stage, message: &str) -> Result<()> {
    annotate(&stage.world, EXTENSION, FICKLE, MIGRATE_BACK)?;
    let stopped = says(stage, &[message, "not now"]).await?;
    ensure!(of(&stopped, "paused") == Some("true"), "{stopped:#}");
    annotate(
        &stage.world,
        EXTENSION,
        FICKLE,
        "olm.operatorframework.io/migrate-back-",
    )
}

fn events(world: &World, namespace: &str) -> Result<String> {
    let form = "jsonpath={range .items[*]}{.type} {.reason} {.involvedObject.name}{\"\\n\"}{end}";
    world.kubectl(&["get", "events", "-n", namespace, "-o", form])
}

async fn has_event(world: &World, namespace: &str, line: &str) -> Result<()> {
    let mut last = String::new();
    let what = format!("there is an event {line:?}");
    let found = eventually(&what, LIMIT, async || {
        last = events(world, namespace)?;
        Ok(last.lines().any(|found| found == line).then_some(()))
    });
    let found = found.await;
    found.with_context(|| last)
}

#[test]
fn a_return_without_its_request_is_undone_or_says_how_to_go_on() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let image = install(stage, FICKLE, true).await?;
        serve(world, "fickle", &image)?;
        let objects = stage.objects(FICKLE)?;
        let (before, running) = (stage.seen(FICKLE, &objects)?, pods(world, "fickle")?);
        let version = stage.json(&["csv", FICKLE.version, "-n", "fickle"])?;
        let subscription = stage.json(&["subscription", "fickle", "-n", "fickle"])?;
        let is_same = || -> Result<()> {
            unchanged(&before, &stage.seen(FICKLE, &objects)?)?;
            ensure!(pods(world, "fickle")? == running, "Pods are made anew");
            Ok(())
        };
        annotate(world, "subscription/fickle", FICKLE, MIGRATE)?;
        has_moved(stage, FICKLE).await?;

        // Nothing has gone back.
        for former in ["keep-crds", "orphan"] {
            let kept = format!("olm.operatorframework.io/uninstall={former}");
            annotate(world, EXTENSION, FICKLE, &kept)?;
            deny(world, &version)?;
            can_be_created(world, &version, false).await?;
            withdraws(stage, "cannot create ClusterServiceVersion fickle/fickle.v1.0.0").await?;
            annotated(stage, "the extension is resumed", |annotations| {
                let is_unset = |name| of(annotations, name).is_none();
                ["paused", "migrate-back-status", "migration-uninstall-backup"]
                    .into_iter()
                    .all(is_unset)
                    && of(annotations, "uninstall") == Some(former)
            })
            .await?;
            await_version(world, "fickle", "1.0.0").await?;
            is_still(stage, FICKLE).await?;
            is_same()?;
            allow(world)?;
            can_be_created(world, &version, true).await?;
        }
        has_event(world, "default", "Normal MigrationBackWithdrawn fickle").await?;

        // Objects have gone back: the operator moves once more.
        deny(world, &subscription)?;
        can_be_created(world, &subscription, false).await?;
        withdraws(stage, "cannot create Subscription fickle/fickle").await?;
        let parts = [
            "the return has stopped because annotation olm.operatorframework.io/migrate-back no longer requests it",
            "ClusterServiceVersion fickle/fickle.v1.0.0 is back, and this ClusterExtension is paused",
            "`kubectl annotate --overwrite clusterextension fickle olm.operatorframework.io/migrate-back=true`",
        ];
        let stopped = says(stage, &parts).await?;
        ensure!(of(&stopped, "paused") == Some("true"), "{stopped:#}");
        has_event(world, "default", "Warning MigrationBackStopped fickle").await?;
        is_still(stage, FICKLE).await?;
        let status = of(&stopped, "migrate-back-status").unwrap_or_default();
        let (_, stay) = status
            .split_once("which repeats the move: `kubectl ")
            .context("no advice")?;
        let (now, later) = stay
            .split_once("`, and after the move `kubectl ")
            .context("no advice for later")?;
        let run = |command: &str| {
            let arguments: Vec<&str> = command.trim_end_matches('`').split(' ').collect();
            world.kubectl(&arguments)
        };
        run(now)?;
        has_moved(stage, FICKLE).await?;
        run(later)?;
        is_same()?;

        // The same, and the return goes on.
        withdraws(stage, "cannot create Subscription fickle/fickle").await?;
        says(stage, &parts).await?;
        allow(world)?;
        can_be_created(world, &subscription, true).await?;
        annotate(world, EXTENSION, FICKLE, MIGRATE_BACK)?;
        stage.rests(FICKLE).await.with_context(|| stage.logs())?;
        world.kubectl(&["wait", "--for=delete", "--timeout=120s", EXTENSION])?;
        is_same()?;
        ensure!(
            stage.objects(FICKLE)? == objects,
            "OLM classic does not have all objects again"
        );
        Ok(())
    })
}

#[test]
fn a_value_that_is_no_request_is_reported_once() -> Result<()> {
    const VAGUE: Operator = operator("vague", "vague.v1.0.0", "greetings.vague.olm.example");
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let image = install(stage, VAGUE, true).await?;
        serve(world, "vague", &image)?;
        let set = |object: &str, annotation: &str| {
            let name = format!("{OURS}{annotation}");
            let overwrite = ["annotate", "--overwrite", object, &name, "-n", "vague"];
            world.kubectl(&overwrite).map(drop)
        };
        set("subscription/vague", "migrate=yes")?;
        let invalid = condition(stage, VAGUE, "Invalid").await?;
        let message =
            r#"annotation olm.operatorframework.io/migrate has the value "yes", which requests nothing"#;
        ensure!(
            invalid["status"] == "False"
                && invalid["message"]
                    .as_str()
                    .is_some_and(|found| found.starts_with(message)),
            "{invalid}"
        );
        has_event(world, "vague", "Warning MigrationInvalid vague").await?;
        is_still(stage, VAGUE).await?;
        set("subscription/vague", "migrate=false")?;
        eventually("the condition is gone", LIMIT, async || {
            Ok((!stage.left(VAGUE, "yaml")?.contains("Migrated")).then_some(()))
        })
        .await?;

        set("subscription/vague", "migrate=true")?;
        has_moved(stage, VAGUE).await?;
        set("clusterextension/vague", "migrate-back=soon")?;
        let status = |expected: &'static str| async move {
            let form = r"jsonpath={.metadata.annotations.olm\.operatorframework\.io/migrate-back-status}";
            let found = eventually("the status of the return changes", LIMIT, async || {
                let found = world.kubectl(&["get", "cext", "vague", "-o", form])?;
                let is_meant = match expected {
                    "" => found.is_empty(),
                    expected => found.contains(expected),
                };
                Ok(is_meant.then_some(()))
            });
            found.await.with_context(|| stage.logs())
        };
        status(r#"migrate-back has the value "soon", which requests nothing"#).await?;
        has_event(world, "default", "Warning MigrationBackInvalid vague").await?;
        is_still(stage, VAGUE).await?;
        set("clusterextension/vague", "migrate-back=false")?;
        status("").await
    })
}
