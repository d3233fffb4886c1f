//! An operator with webhooks that the Go implementation has installed: its objects have other field managers, names
//! with a random part, and a Role without an owner.

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::{await_version, patch_source};
use olm_test::objects::api;
use olm_test::world::World;
use serde_json::{Value, json};

use super::back::{marks, record_is_gone};
use super::course::{are_ours, pods, seen_of, settled, unchanged};
use super::{CLUSTER, HOOKS, olm};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The objects of the operator.
fn objects() -> Vec<Value> {
    let cluster = [
        (
            ADMISSION,
            "ValidatingWebhookConfiguration",
            "greetings.hooks.olm.example-x7k2p",
        ),
        (
            ADMISSION,
            "MutatingWebhookConfiguration",
            "salutations.hooks.olm.example-x7k2p",
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "greetings.hooks.olm.example",
        ),
        (
            RBAC,
            "ClusterRoleBinding",
            "hooks-operator-service-system:auth-delegator",
        ),
        (RBAC, "ClusterRole", "hooks.v1.4.0-7b6c9d"),
        (RBAC, "ClusterRoleBinding", "hooks.v1.4.0-7b6c9d"),
    ];
    let near = [
        ("v1", "Secret", "hooks-operator-service-cert"),
        ("v1", "Service", "hooks-operator-service"),
        ("v1", "ServiceAccount", "hooks-operator"),
        (RBAC, "Role", "hooks-operator-service-cert"),
        (RBAC, "RoleBinding", "hooks-operator-service-cert"),
        ("apps/v1", "Deployment", "hooks-operator"),
    ];
    let object = |(api_version, kind, name): (&str, &str, &str), place: Option<&str>| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": place}});
    let mut objects: Vec<Value> = cluster.map(|entry| object(entry, None)).to_vec();
    objects.extend(near.map(|entry| object(entry, Some(HOOKS))));
    let reader = (RBAC, "RoleBinding", "hooks-operator-service-auth-reader");
    objects.push(object(reader, Some("kube-system")));
    objects
}

/// The field managers of the CustomResourceDefinition, but for those of its status.
async fn writers(world: &World) -> Result<Vec<String>> {
    let definition = objects()
        .into_iter()
        .find(|object| object["kind"] == "CustomResourceDefinition");
    let definition = definition.context("there is one")?;
    let live = api(&world.client, &definition)
        .get("greetings.hooks.olm.example")
        .await?;
    let entries = live.metadata.managed_fields.into_iter().flatten();
    let entries = entries.filter(|entry| entry.subresource.is_none());
    let mut writers: Vec<String> = entries.filter_map(|entry| entry.manager).collect();
    writers.sort();
    Ok(writers)
}

#[test]
fn webhooks_that_the_go_implementation_has_made_move_there_and_back_and_are_upgraded() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let (world, objects) = (&stage.world, objects());
        settled(world, HOOKS)?;
        let (before, running) = (seen_of(world, HOOKS, &objects).await?, pods(world, HOOKS)?);
        let (marked, writing) = (marks(world, &objects).await?, writers(world).await?);
        ensure!(writing == ["catalog", "olm"], "{writing:?}");
        let line = "migrate hooks -n hooks --service-account cook --yes";
        olm(world, line)?.ended(1)?.shows(&[
            "after 2 to acknowledge",
            "to acknowledge (webhooks): the certificate of the webhooks is valid until",
            "to acknowledge (conversion)",
        ])?;
        let there = format!("{line} --acknowledge webhooks --acknowledge conversion --wait --timeout 2m");
        olm(world, &there)?.ended(0)?;
        unchanged(&before, &seen_of(world, HOOKS, &objects).await?)?;
        ensure!(pods(world, HOOKS)? == running, "Pods are made anew");
        are_ours(world, HOOKS, &objects).await?;

        olm(world, "migrate hooks -n hooks --back --yes")?
            .ended(0)?
            .shows(&["17 objects handed back"])?;
        unchanged(&before, &seen_of(world, HOOKS, &objects).await?)?;
        unchanged(&marked, &marks(world, &objects).await?)?;
        ensure!(pods(world, HOOKS)? == running, "Pods are made anew");
        ensure!(writers(world).await? == writing, "{:?}", writers(world).await?);
        record_is_gone(world, HOOKS)?;
        let left = world.kubectl(&["get", "secrets", "-n", "olmv1-system", "-o", "name"])?;
        ensure!(!left.contains("/hooks-1-"), "{left}");

        olm(world, &there)?.ended(0)?;
        unchanged(&before, &seen_of(world, HOOKS, &objects).await?)?;
        patch_source(world, HOOKS, json!({"version": "1.4.1"})).await?;
        await_version(world, HOOKS, "1.4.1").await?;
        for object in &objects {
            let (kind, name) = (&object["metadata"]["namespace"], &object["metadata"]["name"]);
            let is_dropped = name
                .as_str()
                .is_some_and(|name| name.ends_with("x7k2p") || name.ends_with("auth-reader"));
            if is_dropped {
                let name = name.as_str().unwrap_or_default();
                world
                    .eventually(
                        &format!("{kind} {name} is gone"),
                        std::time::Duration::from_secs(60),
                        async || {
                            let found = api(&world.client, object).get_opt(name).await?;
                            Ok(found.is_none().then_some(()))
                        },
                    )
                    .await?;
            }
        }
        Ok(())
    })
}
