//! Lost content is restored, and annotations take effect.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use olm_api::conditions::reason;
use olm_api::names::{self, label, user};
use olm_test::extensions::{
    SOON, await_progressing, await_version, extensions, grant, installed_version, patch_source, revisions,
};
use olm_test::world::World;
use serde_json::json;

use super::rights::until_powerless;
use super::{CLUSTER, annotate, install};

#[test]
fn lost_content_secrets_are_recreated_and_annotations_are_obeyed() -> Result<()> {
    CLUSTER.with(async |world| {
        install(world, "lost-content", "1.0.0").await?;
        let secrets = Api::<Secret>::namespaced(world.client.clone(), names::SYSTEM_NAMESPACE);
        let content = ListParams::default().labels(&format!("{}=lost-content-1", label::REVISION_NAME));
        let before: Vec<_> = secrets
            .list(&content)
            .await?
            .items
            .into_iter()
            .map(|s| s.data)
            .collect();
        ensure!(!before.is_empty());
        secrets
            .delete_collection(&DeleteParams::default(), &content)
            .await?;
        // Its content is needed now.
        let deployments = Api::<Deployment>::namespaced(world.client.clone(), "lost-content");
        deployments
            .delete("lost-content-operator", &DeleteParams::default())
            .await?;
        world
            .eventually(
                "the lost content and the deleted Deployment are back",
                SOON,
                async || {
                    let present = deployments.get_opt("lost-content-operator").await?;
                    let there = present.is_some_and(|found| found.metadata.deletion_timestamp.is_none());
                    let after: Vec<_> = secrets.list(&content).await?.items;
                    let owned = after
                        .iter()
                        .all(|secret| secret.metadata.owner_references.is_some());
                    let after: Vec<_> = after.into_iter().map(|s| s.data).collect();
                    Ok((there && owned && after == before).then_some(()))
                },
            )
            .await?;
        // A name in use is skipped.
        world.apply(&[json!({
            "apiVersion": names::API_VERSION,
            "kind": "ClusterObjectSet",
            "metadata": { "name": "lost-content-2" },
            "spec": { "revision": 1, "lifecycleState": "Active", "collisionProtection": "Prevent" },
        })])?;
        for (key, part) in [
            (user::ADOPT, "(known are never, unowned, all)"),
            (user::UPGRADEABLE_OVERRIDE, "(known are true, false)"),
        ] {
            annotate(world, "lost-content", key, Some("perhaps")).await?;
            let message = await_progressing(world, "lost-content", reason::BLOCKED, part).await?;
            ensure!(message.contains(key), "{message}");
            annotate(world, "lost-content", key, None).await?;
        }
        annotate(world, "lost-content", user::PAUSED, Some("true")).await?;
        patch_source(world, "lost-content", json!({ "version": "1.0.1" })).await?;
        await_progressing(world, "lost-content", reason::BLOCKED, user::PAUSED).await?;
        world
            .eventually("the revision stands still, too", SOON, async || {
                let set = revisions(world).get("lost-content-1").await?;
                Ok((set.annotation(user::PAUSED) == Some("true")).then_some(()))
            })
            .await?;
        ensure!(installed_version(&extensions(world).get("lost-content").await?) == Some("1.0.0"));
        annotate(world, "lost-content", user::PAUSED, None).await?;
        await_version(world, "lost-content", "1.0.1").await?;
        let set = revisions(world).get("lost-content-3").await?;
        ensure!(set.label(label::OWNER_NAME) == Some("lost-content"));
        a_lost_permission_is_reported_with_the_role_that_grants_it(world).await
    })
}

/// The permission existed when the controller last asked for it.
async fn a_lost_permission_is_reported_with_the_role_that_grants_it(world: &World) -> Result<()> {
    let none =
        r#"[{"op":"test","path":"/rules/1/apiGroups","value":["apps"]},{"op":"remove","path":"/rules/1"}]"#;
    world.kubectl(&[
        "patch",
        "clusterrole",
        "lost-content-installer",
        "--type=json",
        "-p",
        none,
    ])?;
    until_powerless(world, "lost-content").await?;
    let back = json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" });
    patch_source(world, "lost-content", back).await?;
    let expected = "service account lost-content/lost-content-installer lacks permissions: create deployments.apps in namespace lost-content";
    await_progressing(world, "lost-content", reason::RETRYING, expected).await?;
    grant(world, "lost-content")?;
    await_version(world, "lost-content", "1.0.0").await.map(drop)
}
