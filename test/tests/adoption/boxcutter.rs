//! Revisions that the reference made.

use anyhow::{Context as _, Result, ensure};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::annotation;
use olm_api::{ClusterObjectSet, conditions};
use olm_test::extensions::{SOON, await_version, patch_source, revisions};
use olm_test::world::World;
use serde_json::json;

use crate::reference::{self, Installed};
use crate::{
    NAME, OLD, extension, greeter, live, pods, rendered, seen, sets, settled, unchanged, uninstall, upgrade,
};

pub(crate) async fn revisions_of_the_reference_go_on(world: &mut World, image: &str) -> Result<()> {
    world.operator_controller.stop().await?;
    let objects = rendered("1.0.0")?;
    let extension = extension(world, true).await?;
    let installed = greeter(&extension, image, &objects)?;
    installed.by_boxcutter(world).await?;
    installed.write_status(world).await?;
    settled(world, &objects).await?;
    let (before, running, [set]) = (seen(world, &objects).await?, pods(world).await?, {
        let sets = sets(world).await?;
        <[ClusterObjectSet; 1]>::try_from(sets).map_err(|sets| anyhow::anyhow!("{} sets", sets.len()))?
    });
    world.start_operator_controller()?;
    world.operator_controller.ready().await?;
    let world = &*world;
    await_version(world, NAME, "1.0.0").await?;
    world
        .eventually("the revision continues", SOON, async || {
            let found = sets(world).await?;
            let [found] = &found[..] else {
                anyhow::bail!("there are {} revisions", found.len())
            };
            ensure!(found.metadata.uid == set.metadata.uid, "it is another one");
            ensure!(found.spec.phases == set.spec.phases);
            let status = serde_json::to_string(&found.status)?;
            let progressing = conditions::find(found.conditions(), conditions::PROGRESSING);
            ensure!(
                progressing.is_some_and(|it| it.reason == conditions::reason::SUCCEEDED),
                "{status}"
            );
            let account = found.annotation(annotation::SERVICE_ACCOUNT);
            ensure!(account == Some("greeter/greeter-installer"), "{account:?}");
            Ok(Some(()))
        })
        .await?;
    unchanged(&before, &seen(world, &objects).await?)?;
    ensure!(pods(world).await? == running, "Pods were restarted");
    upgrade(world, &objects).await?;
    uninstall(world, &objects).await
}

pub(crate) async fn an_upgrade_that_the_reference_began_is_finished(
    world: &mut World,
    images: [&str; 2],
) -> Result<()> {
    world.operator_controller.stop().await?;
    let (objects, later) = (rendered("1.0.0")?, rendered("1.1.0")?);
    let extension = extension(world, true).await?;
    let first = greeter(&extension, images[0], &objects)?;
    first.by_boxcutter(world).await?;
    first.write_status(world).await?;
    settled(world, &objects).await?;
    patch_source(
        world,
        NAME,
        json!({"version": "1.1.0", "upgradeConstraintPolicy": "SelfCertified"}),
    )
    .await?;
    let made = revisions(world).get("greeter-1").await?;
    let second = Installed {
        version: "1.1.0",
        image: images[1],
        objects: &later,
        ..first
    };
    // The definition is at the new version, the Deployment is not.
    let uid = made.metadata.uid.as_deref().context("a UID")?;
    second
        .begins_by_boxcutter(world, uid, reference::UP_TO_DEFINITIONS)
        .await?;
    let (before, made) = (seen(world, &objects).await?, sets(world).await?);
    world.start_operator_controller()?;
    world.operator_controller.ready().await?;
    let world = &*world;
    await_version(world, NAME, "1.1.0").await?;
    world
        .eventually(
            "the earlier revision is archived, and no other is made",
            SOON,
            async || {
                let found = sets(world).await?;
                let states: Vec<_> = found
                    .iter()
                    .map(|set| (set.metadata.uid.clone(), set.spec.lifecycle_state))
                    .collect();
                let uids: Vec<_> = made.iter().map(|set| set.metadata.uid.clone()).collect();
                let expected: Vec<_> = uids
                    .into_iter()
                    .zip([LifecycleState::Archived, LifecycleState::Active])
                    .collect();
                ensure!(states == expected, "{states:?} is not {expected:?}");
                ensure!(
                    found
                        .iter()
                        .zip(&made)
                        .all(|(found, made)| found.spec.phases == made.spec.phases)
                );
                Ok(Some(()))
            },
        )
        .await?;
    // Roles have other names in each version.
    let after = seen(world, &later).await?;
    let mut kept: Vec<&str> = Vec::new();
    for (key, now) in &after {
        if let Some(before) = before.get(key) {
            ensure!(before.uid == now.uid, "{key} was made anew");
            kept.extend(key.split_whitespace().next());
        }
    }
    let expected = ["CustomResourceDefinition", "Deployment", "ServiceAccount"];
    ensure!(
        kept.iter().map(|kind| kind.trim_matches('"')).eq(expected),
        "{kept:?}"
    );
    let deployment = later.iter().find(|object| object["kind"] == "Deployment");
    let live = live(world, deployment.context("the sample has a Deployment")?).await?;
    ensure!(!live["spec"].to_string().contains(OLD), "{live}");
    ensure!(
        live["metadata"]["ownerReferences"][0]["name"] == "greeter-2",
        "{live}"
    );
    uninstall(world, &later).await
}
