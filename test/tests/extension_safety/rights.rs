//! Objects that cannot be checked or applied, and lost permissions: the status explains the fix.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DeleteParams;
use olm_api::conditions::{self, reason};
use olm_api::names::{annotation, user};
use olm_test::extensions::{
    SOON, await_progressing, await_version, extensions, grant, is_settled, patch_source, rbac, rbac_subject,
    revisions,
};
use olm_test::objects::silent_webhook;
use olm_test::world::World;
use serde_json::{Value, json};

use super::{CLUSTER, account_file, annotate, await_event, file};

/// An object of a kind that the cluster lacks.
pub(crate) fn monitor() -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "lost-rights"},
        "spec": {"endpoints": [], "selector": {}},
    })
}

/// Has a webhook asked about Deployments of a namespace that can take no part in a dry run.
async fn hinder_dry_runs(world: &World, namespace: &str) -> Result<()> {
    let name = format!("{namespace}-without-dry-run");
    world.apply(&[silent_webhook(&name, namespace, "apps", "deployments")])?;
    world.cluster.give_side_effects(&name).await?;
    let probe = "create deployment probe --image=probe --dry-run=server -n".split(' ');
    let probe: Vec<&str> = probe.chain([namespace]).collect();
    world
        .eventually("no dry run can be made", SOON, async || {
            let refused = world.kubectl(&probe).err();
            Ok(refused
                .filter(|error| format!("{error:#}").contains("does not support dry run"))
                .map(drop))
        })
        .await
}

#[test]
fn lost_rights_and_skipped_kinds_are_reported_with_the_fix() -> Result<()> {
    CLUSTER.with(async |world| {
    world.kubectl(&["apply", "--server-side", "-f", &account_file(world, "lost-rights")?])?;
    hinder_dry_runs(world, "lost-rights").await?;
    world.kubectl(&["apply", "--server-side", "-f", &file(world, "lost-rights", "1.0.0")?])?;
    // A first installation has a dry run, too. A dry run that is not possible is not a missing right, and does not
    // block the installation.
    let unchecked = "not checked, because a dry run of them is not possible yet: \
                     Deployment lost-rights/lost-rights-operator, ServiceMonitor lost-rights/lost-rights";
    await_event(world, "lost-rights", "Warned", unchecked).await?;
    let lacks = "the cluster has no kind ServiceMonitor in version v1 of group monitoring.coreos.com;";
    let message = await_progressing(world, "lost-rights", reason::RETRYING, lacks).await?;
    ensure!(
        message.contains("(publish) error: ") && message.contains(user::MISSING_KINDS),
        "{message}"
    );
    annotate(world, "lost-rights", user::MISSING_KINDS, Some("skip")).await?;
    await_version(world, "lost-rights", "1.0.0").await?;
    let left_out = "because the cluster lacks their kinds: ServiceMonitor.monitoring.coreos.com/v1 lost-rights/lost-rights";
    await_progressing(world, "lost-rights", reason::SUCCEEDED, left_out).await?;

    // Rights are lost while it is installed: drift is not repaired until they are restored.
    world.kubectl(&["delete", "clusterrolebinding", "lost-rights-installer"])?;
    until_powerless(world, "lost-rights").await?;
    let deployments = Api::<Deployment>::namespaced(world.client.clone(), "lost-rights");
    deployments
        .delete("lost-rights-operator", &DeleteParams::default())
        .await?;
    let given = given_until(world, "nothing is applied", async || {
        let present = deployments.get_opt("lost-rights-operator").await?;
        let is_there = present.is_some_and(|found| found.metadata.deletion_timestamp.is_none());
        Ok(is_there && is_settled(&extensions(world).get("lost-rights").await?))
    })
    .await?;

    // Rights are lost while it is being removed.
    for path in given {
        world.kubectl(&["delete", "--ignore-not-found", "-f", &path])?;
    }
    until_powerless(world, "lost-rights").await?;
    extensions(world).delete("lost-rights", &DeleteParams::default()).await?;
    await_progressing(world, "lost-rights", reason::RETRYING, " may be left: ").await?;
    let extension = extensions(world).get("lost-rights").await?;
    ensure!(
        !conditions::is_true(extension.conditions(), conditions::AVAILABLE),
        "the availability of objects that are being removed is unknown"
    );
    given_until(world, "nothing more is removed", async || {
        Ok(extensions(world).get_opt("lost-rights").await?.is_none())
    })
    .await
    .map(drop)
    })
}

/// Waits until the API server knows that the account of an extension has no rights to Deployments any more.
pub(crate) async fn until_powerless(world: &World, name: &str) -> Result<()> {
    let account = format!("--as=system:serviceaccount:{name}:{name}-installer");
    world
        .eventually("the rights are gone", SOON, async || {
            let may = ["create", "patch", "delete"].map(|verb| {
                let asked = world.kubectl(&["auth", "can-i", verb, "deployments", "-n", name, &account]);
                asked.is_ok()
            });
            Ok((may == [false; 3]).then_some(()))
        })
        .await
}

/// Applies what the command in the condition prints until `is_well` returns true. Returns the files.
async fn given_until(
    world: &World,
    consequence: &str,
    is_well: impl AsyncFn() -> Result<bool>,
) -> Result<Vec<String>> {
    let mut given: Vec<(String, String)> = Vec::new();
    let deadline = tokio::time::Instant::now() + 2 * SOON;
    loop {
        if is_well().await? {
            ensure!(!given.is_empty(), "the message names no command");
            return Ok(given.into_iter().map(|(path, _)| path).collect());
        }
        let extension = extensions(world).get_opt("lost-rights").await?;
        let message = extension
            .as_ref()
            .and_then(|found| conditions::find(found.conditions(), conditions::READY))
            .map(|found| found.message.clone())
            .unwrap_or_default();
        ensure!(
            !message.contains("kind: "),
            "roles stand in the message: {message}"
        );
        // Rights that were just granted may be all that was missing.
        if message.contains(consequence)
            && let Some(subject) = rbac_subject(&message)
            && let Ok(roles) = rbac(world, &[subject])
            && given.iter().all(|(_, known)| *known != roles)
        {
            let path = world
                .folder()
                .join(format!("lost-rights-roles-{}.yaml", given.len()));
            std::fs::write(&path, &roles)?;
            let path = path.display().to_string();
            world.kubectl(&["apply", "--server-side", "-f", &path])?;
            given.push((path, roles));
        }
        ensure!(tokio::time::Instant::now() < deadline, "still {message:?}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// The names of the ClusterRoles that an extension has installed.
fn cluster_roles(world: &World, name: &str) -> Result<String> {
    let selector = format!("olm.operatorframework.io/owner-name={name}");
    world.kubectl(&[
        "get",
        "clusterroles",
        "-l",
        &selector,
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ])
}

/// The names that a bundle's roles have by themselves carry its version, and rights are granted by name.
#[test]
fn one_grant_carries_through_an_upgrade_that_needs_nothing_new() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "one-grant";
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "one-grant-installer", "namespace": name },
        });
        world.apply(&[
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            account,
        ])?;
        let text = std::fs::read_to_string(file(world, name, "1.0.0")?)?;
        let path = world.folder().join("one-grant-extension.yaml");
        std::fs::write(&path, text.rsplit("---").next().unwrap_or_default())?;
        world.kubectl(&["apply", "--server-side", "-f", &path.display().to_string()])?;
        await_progressing(world, name, reason::RETRYING, "lacks permissions: ").await?;
        grant(world, name)?;
        await_version(world, name, "1.0.0").await?;
        let roles = cluster_roles(world, name)?;
        ensure!(roles.contains("one-grant.v1.0.0-"), "{roles}");

        let newer = format!("{}/{name}-bundle:v1.0.1", world.registry()?);
        let needed = rbac(world, &[name, "--all", "--bundle", &newer])?;
        ensure!(
            needed.contains("one-grant.v1.0.0-") && !needed.contains("one-grant.v1.0.1-"),
            "{needed}"
        );

        patch_source(world, name, json!({ "version": "1.0.1" })).await?;
        await_version(world, name, "1.0.1").await?;
        ensure!(cluster_roles(world, name)? == roles, "the roles keep their names");
        let set = revisions(world).get("one-grant-2").await?;
        ensure!(set.annotation(annotation::ROLES_NAMED_AFTER) == Some("one-grant.v1.0.0"));
        // Back to the old version, with the same roles.
        let back = json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" });
        patch_source(world, name, back).await?;
        await_version(world, name, "1.0.0").await?;
        ensure!(cluster_roles(world, name)? == roles, "the roles keep their names");
        Ok(())
    })
}
