//! A move that stops at any of its steps changes nothing that runs, and goes on when it is run again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use kube::config::{Kubeconfig, NamedAuthInfo};
use olm_test::extensions::await_version;
use olm_test::world::World;
use serde_json::{Value, json};

use super::back::record_is_gone;
use super::course::{is_ours, pods, seen, settled, unchanged};
use super::{CLUSTER, STOPPED, olm_as};

/// User that moves the operator, with fewer rights than the move needs.
const MOVER: &str = "mover";
/// Verb, group and resource that a step needs, and the error without that right.
type Step = ([&'static str; 3], &'static str);

/// The steps of the move, in their order.
const STEPS: [Step; 11] = [
    (
        ["create", "olm.operatorframework.io", "clusterextensions"],
        "cannot create ClusterExtension",
    ),
    (
        ["create", "", "configmaps"],
        "cannot create ConfigMap stopped/stopped-migration",
    ),
    (
        ["patch", "operators.coreos.com", "subscriptions"],
        "cannot pause Subscription stopped/stopped",
    ),
    (
        ["create", "", "secrets"],
        "cannot create Secret olmv1-system/stopped-1-",
    ),
    (
        ["create", "olm.operatorframework.io", "clusterobjectsets"],
        "cannot create ClusterObjectSet",
    ),
    (
        ["patch", "", "secrets"],
        "cannot give Secret olmv1-system/stopped-1-",
    ),
    (
        ["patch", "rbac.authorization.k8s.io", "clusterrolebindings"],
        "cannot hand over ClusterRoleBinding",
    ),
    (["patch", "apps", "deployments"], "cannot hand over Deployment"),
    (
        ["delete", "operators.coreos.com", "subscriptions"],
        "cannot delete Subscription stopped/stopped",
    ),
    (
        ["delete", "operators.coreos.com", "clusterserviceversions"],
        "cannot delete ClusterServiceVersion stopped/",
    ),
    (
        ["patch", "olm.operatorframework.io", "clusterextensions"],
        "cannot resume ClusterExtension",
    ),
];

/// The steps of the way back.
const BACK: [Step; 9] = [
    (
        ["patch", "olm.operatorframework.io", "clusterextensions"],
        "cannot pause ClusterExtension",
    ),
    (
        ["create", "operators.coreos.com", "clusterserviceversions"],
        "cannot create ClusterServiceVersion stopped/",
    ),
    (
        ["patch", "operators.coreos.com", "clusterserviceversions/status"],
        "cannot write the status of ClusterServiceVersion stopped/",
    ),
    (["patch", "apps", "deployments"], "cannot hand back Deployment"),
    (
        ["patch", "rbac.authorization.k8s.io", "clusterrolebindings"],
        "cannot hand back ClusterRoleBinding",
    ),
    (
        ["create", "operators.coreos.com", "subscriptions"],
        "cannot create Subscription stopped/stopped",
    ),
    (
        ["patch", "operators.coreos.com", "subscriptions/status"],
        "cannot write the status of Subscription stopped/stopped",
    ),
    (
        ["patch", "operators.coreos.com", "subscriptions"],
        "cannot resume Subscription stopped/stopped",
    ),
    (
        ["delete", "olm.operatorframework.io", "clusterextensions"],
        "cannot delete ClusterExtension",
    ),
];

/// Gives the mover the rights for these steps, but for one.
fn allow(world: &World, steps: &[Step], without: Option<[&str; 3]>) -> Result<()> {
    let steps = steps.iter().map(|(right, _)| *right);
    let steps = steps.filter(|right| Some(*right) != without);
    let mut rules: Vec<Value> = steps
        .map(
            |[verb, group, resource]| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]}),
        )
        .collect();
    rules.extend([
        json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "impersonate"]}),
        json!({
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles"],
            "verbs": ["patch"],
        }),
        json!({
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "clusterroles"],
            "verbs": ["bind", "escalate"],
        }),
        // The owner of an object may delete it: setting an owner requires that right.
        json!({
            "apiGroups": ["", "apps", "rbac.authorization.k8s.io", "apiextensions.k8s.io"],
            "resources": [
                "serviceaccounts", "secrets", "deployments", "roles", "rolebindings", "clusterroles", "clusterrolebindings",
                "customresourcedefinitions",
            ],
            "verbs": ["delete"],
        }),
        // Only an account that acts as the controller gives a ClusterObjectSet to a ClusterExtension.
        json!({"apiGroups": ["identity.olm.operatorframework.io"], "resources": ["controllers"], "verbs": ["act"]}),
        // Owners that block the deletion of their owner.
        json!({
            "apiGroups": ["olm.operatorframework.io"],
            "resources": ["clusterextensions/finalizers", "clusterobjectsets/finalizers"], "verbs": ["update"],
        }),
        json!({
            "apiGroups": ["", "apiextensions.k8s.io", "operators.coreos.com"],
            "resources": [
                "serviceaccounts", "customresourcedefinitions", "clusterserviceversions",
                "clusterserviceversions/finalizers",
            ],
            "verbs": ["patch", "update"],
        }),
    ]);
    world.apply(&[
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": MOVER}, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": MOVER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": MOVER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": MOVER}],
        }),
    ])
}

/// A kubeconfig of the mover.
fn kubeconfig(world: &World) -> Result<PathBuf> {
    let mut config = Kubeconfig::read_from(world.cluster.kubeconfig())?;
    for NamedAuthInfo { auth_info, .. } in &mut config.auth_infos {
        if let Some(user) = auth_info {
            user.impersonate = Some(MOVER.to_owned());
        }
    }
    let path = world.folder().join("mover.kubeconfig");
    std::fs::write(&path, serde_json::to_string(&config)?)?;
    Ok(path)
}

#[test]
fn a_move_that_stops_at_any_step_changes_nothing_that_runs_and_continues() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        settled(world, STOPPED)?;
        let (before, running) = (seen(world, STOPPED).await?, pods(world, STOPPED)?);
        ensure!(!running.is_empty(), "no Pod runs");
        let kubeconfig = kubeconfig(world)?;
        let line = "migrate stopped -n stopped --service-account cook --yes";
        let subscribed = subscription(world)?;
        for (index, (right, message)) in STEPS.into_iter().enumerate() {
            allow(world, &STEPS, Some(right))?;
            olm_as(world, &kubeconfig, line)?
                .ended(1)?
                .shows(&[message, "forbidden"])?;
            unchanged(&before, &seen(world, STOPPED).await?)?;
            if ABANDONED.contains(&index) {
                abandoned(world, &kubeconfig, &subscribed)?;
                unchanged(&before, &seen(world, STOPPED).await?)?;
                allow(world, &STEPS, Some(right))?;
                olm_as(world, &kubeconfig, line)?
                    .ended(1)?
                    .shows(&[message, "forbidden"])?;
            }
        }
        allow(world, &STEPS, None)?;
        olm_as(world, &kubeconfig, &format!("{line} --wait --timeout 2m"))?.ended(0)?;
        unchanged(&before, &seen(world, STOPPED).await?)?;
        ensure!(pods(world, STOPPED)? == running, "Pods are made anew");
        is_ours(world, STOPPED).await?;
        await_version(world, STOPPED, "1.0.0").await?;
        let left = world.kubectl(&["get", "subscriptions,csv", "-n", STOPPED, "-o", "name"])?;
        ensure!(left.is_empty(), "{left}");
        goes_back(world, &kubeconfig, &before, &subscribed).await?;
        ensure!(pods(world, STOPPED)? == running, "Pods are made anew");
        Ok(())
    })
}

/// The steps that have stopped, by their place in [`STEPS`], from which the operator goes back: after the Subscription
/// was paused, and with some of the objects handed over.
const ABANDONED: [usize; 3] = [4, 7, 8];

/// The spec, the annotations and the installed version of the Subscription.
fn subscription(world: &World) -> Result<Value> {
    let found = world.kubectl(&["get", "subscription", STOPPED, "-n", STOPPED, "-o", "json"])?;
    let found: Value = serde_json::from_str(&found)?;
    let annotations = found["metadata"]["annotations"].as_object();
    let annotations: BTreeMap<_, _> = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| !key.contains("bundle"))
        .collect();
    Ok(json!([
        found["spec"],
        annotations,
        found["status"]["installedCSV"]
    ]))
}

/// Gives the operator back in the middle of the move.
fn abandoned(world: &World, kubeconfig: &Path, subscribed: &Value) -> Result<()> {
    allow(world, &[&STEPS[..], &BACK[..]].concat(), None)?;
    olm_as(world, kubeconfig, "migrate stopped -n stopped --back --yes")?.ended(0)?;
    let now = subscription(world)?;
    ensure!(now == *subscribed, "was {subscribed}, is {now}");
    record_is_gone(world, STOPPED)
}

/// Gives the operator back, stopped at every step.
async fn goes_back(
    world: &World,
    kubeconfig: &Path,
    before: &BTreeMap<String, Value>,
    subscribed: &Value,
) -> Result<()> {
    let line = "migrate stopped -n stopped --back --yes";
    for (right, message) in BACK {
        allow(world, &BACK, Some(right))?;
        olm_as(world, kubeconfig, line)?
            .ended(1)?
            .shows(&[message, "forbidden"])?;
        unchanged(before, &seen(world, STOPPED).await?)?;
    }
    allow(world, &BACK, None)?;
    olm_as(world, kubeconfig, line)?.ended(0)?;
    unchanged(before, &seen(world, STOPPED).await?)?;
    record_is_gone(world, STOPPED)?;
    let left = world.kubectl(&["get", "cext,cos", "-o", "name"])?;
    ensure!(!left.contains("/stopped"), "{left}");
    let there = world.kubectl(&["get", "subscriptions,csv", "-n", STOPPED, "-o", "name"])?;
    ensure!(there.lines().count() == 2, "{there}");
    let now = subscription(world)?;
    ensure!(now == *subscribed, "was {subscribed}, is {now}");
    Ok(())
}
