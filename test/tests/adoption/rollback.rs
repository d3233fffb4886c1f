//! Going back to a version that is kept.

use anyhow::{Result, ensure};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::names::user;
use olm_test::extensions::{self, SOON, await_version, extensions, patch_source};
use olm_test::world::World;
use serde_json::json;

use crate::{NAME, sets, to_1_1_0};

fn rollback(world: &World, arguments: &[&str]) -> Result<(bool, String)> {
    extensions::rollback(world, NAME, arguments)
}

pub(crate) async fn a_rollback_names_the_losses_before_it_begins(world: &World) -> Result<()> {
    let refused = |arguments: &[&str], part: &str| {
        let (done, text) = rollback(world, arguments)?;
        ensure!(!done && text.contains(part), "{arguments:?}: {text}");
        anyhow::Ok(())
    };
    refused(
        &[],
        "refused: \"greeter\" has no earlier revision with another version than 1.0.0",
    )?;
    to_1_1_0(world).await?;
    patch_source(
        world,
        NAME,
        json!({"version": "1.x", "upgradeConstraintPolicy": "CatalogProvided"}),
    )
    .await?;

    // The definition of 1.1.0 has a field more.
    refused(
        &["--to-revision", "7"],
        "revision 7 of \"greeter\" not found; earlier revisions: 1 (1.0.0), 2 (1.0.0)",
    )?;
    let loss = "    field spec.salutation (v1) goes away\n";
    let (done, text) = rollback(world, &["--dry-run"])?;
    let none = format!("  greetings.samples.olm.example: no objects, so that nothing is lost\n{loss}");
    ensure!(done && text.contains(&none), "{text}");
    let greeting = json!({
        "apiVersion": "samples.olm.example/v1", "kind": "Greeting",
        "metadata": { "name": "ada", "namespace": NAME }, "spec": { "name": "Ada" },
    });
    world.apply(std::slice::from_ref(&greeting))?;
    refused(&[], &format!("! greetings.samples.olm.example: 1 object\n{loss}"))?;
    refused(&[], "--accept-data-loss")?;
    world.kubectl(&["delete", "greetings.samples.olm.example", "ada", "-n", NAME])?;
    let before = extensions(world).get(NAME).await?;
    let (done, text) = rollback(world, &["--accept-data-loss", "--dry-run"])?;
    ensure!(
        done && text.contains("greeter pinned to 1.0.0, SelfCertified (dry run)"),
        "{text}"
    );
    ensure!(extensions(world).get(NAME).await?.spec == before.spec);

    let (done, text) = rollback(world, &["--accept-data-loss"])?;
    ensure!(
        done && text.contains("greeter is at 1.1.0 (revision 3) and rolls back to 1.0.0 (revision 2)"),
        "{text}"
    );
    await_version(world, NAME, "1.0.0").await?;
    let archived = LifecycleState::Archived;
    let expected = [
        (1, archived),
        (2, archived),
        (3, archived),
        (4, LifecycleState::Active),
    ];
    world
        .eventually("what is no longer wanted is archived", SOON, async || {
            let sets = sets(world).await?;
            let states: Vec<(i64, LifecycleState)> = sets
                .iter()
                .map(|set| (set.spec.revision, set.spec.lifecycle_state))
                .collect();
            ensure!(states == expected, "{states:?}");
            Ok(Some(()))
        })
        .await?;

    // The printed command removes the pin.
    ensure!(text.contains(": olm unpin greeter\n"), "{text}");
    let (done, text) = extensions::unpin(world, NAME)?;
    ensure!(done, "{text}");
    await_version(world, NAME, "1.1.0").await?;
    let after = extensions(world).get(NAME).await?;
    ensure!(after.spec == before.spec && after.annotation(user::CRD_POLICY).is_none());
    Ok(())
}
