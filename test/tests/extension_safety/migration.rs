//! A migration of stored versions that a change of the leader interrupts.

use anyhow::{Context as _, Result, ensure};
use kube::api::PostParams;
use olm_api::conditions::reason;
use olm_api::names::annotation;
use olm_test::extensions::{SOON, administrator, await_progressing, await_version, extensions, patch_source};
use olm_test::objects::api;
use olm_test::world::{Manager, World};
use serde_json::{Value, json};

use super::definitions::{Frozen, NOT_TODAY, freeze, thaw};
use super::{CLUSTER, await_event, definition, greeting, install};

/// The setting that ends a run after one page of objects.
pub(crate) fn one_page_a_run() -> Vec<String> {
    vec!["--storage-migration-seconds=0".to_owned()]
}

/// One more than the size of a page of objects.
const OBJECTS: usize = 101;
/// The one that comes last.
const LAST: &str = "guest-100";

/// No account may write the objects on the second page.
const REST: Frozen = Frozen {
    group: "interrupted-migration.olm.example",
    resource: "greetings",
    operations: &["UPDATE"],
    expression: "object.metadata.name < 'guest-100'",
    probe: &[
        "annotate",
        "greetings.interrupted-migration.olm.example",
        LAST,
        "--overwrite",
        "a=b",
    ],
};
/// No account may write the objects on the first page.
const FIRST: Frozen = Frozen {
    expression: "object.metadata.name >= 'guest-100'",
    probe: &[
        "annotate",
        "greetings.interrupted-migration.olm.example",
        "guest-000",
        "--overwrite",
        "a=b",
    ],
    ..REST
};

fn stored(world: &World) -> Result<Value> {
    let definition = definition(world, "interrupted-migration")?.context("the definition")?;
    let stored = definition.pointer("/status/storedVersions").cloned();
    stored.context("stored versions")
}

/// The progress of the migration in the extension's annotation.
async fn recorded(world: &World) -> Result<Option<Value>> {
    let extension = extensions(world).get("interrupted-migration").await?;
    let text = extension.annotation(annotation::STORAGE_MIGRATION);
    Ok(text.map(serde_json::from_str).transpose()?)
}

/// The number of times that the account has rewritten an object.
fn writes(world: &World, name: &str) -> Result<usize> {
    let log = std::fs::read_to_string(world.cluster.audit_log())?;
    let entries = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let path = format!("/greetings/{name}?");
    let of_account = entries.filter(|entry| {
        entry["verb"] == "patch"
            && entry["user"]["username"]
                == "system:serviceaccount:interrupted-migration:interrupted-migration-installer"
            && entry["requestURI"]
                .as_str()
                .is_some_and(|uri| uri.contains(&path))
    });
    Ok(of_account.count())
}

#[test]
fn an_interrupted_migration_is_recorded_and_continued_by_the_next_leader() -> Result<()> {
    CLUSTER.with(a_migration_that_stops_half_way_is_recorded)?;
    CLUSTER.alone(the_next_leader_continues_where_the_last_one_stopped)
}

/// All objects but the last are rewritten: the first run ends because of its time limit, and the second continues after
/// it.
async fn a_migration_that_stops_half_way_is_recorded(world: &World) -> Result<()> {
    world.apply(&administrator(
        "interrupted-migration",
        "interrupted-migration-installer",
    ))?;
    install(world, "interrupted-migration", "1.0.0").await?;
    for number in 0..OBJECTS {
        let guest = greeting(
            "interrupted-migration",
            "v1",
            &format!("guest-{number:03}"),
            json!({ "name": "a" }),
        );
        let guests = api(&world.client, &guest);
        guests
            .create(&PostParams::default(), &serde_json::from_value(guest)?)
            .await?;
    }
    patch_source(world, "interrupted-migration", json!({ "version": "1.0.1" })).await?;
    await_version(world, "interrupted-migration", "1.0.1").await?;
    freeze(world, "interrupted-migration", &REST).await?;
    patch_source(world, "interrupted-migration", json!({ "version": "1.1.0" })).await?;
    let unfinished = "migrating the stored objects of CRD \"greetings.interrupted-migration.olm.example\"";
    await_event(world, "interrupted-migration", "Migrating", unfinished).await?;
    let refused = format!("cannot write its objects: interrupted-migration/{LAST}: ");
    let message = await_progressing(world, "interrupted-migration", reason::RETRYING, &refused).await?;
    ensure!(message.contains(NOT_TODAY), "{message}");
    world
        .eventually("how far it came is recorded", SOON, async || {
            let found = recorded(world).await?.context("nothing is recorded")?;
            ensure!(
                found["last"] == "interrupted-migration/guest-099" && found["written"] == 100,
                "{found}"
            );
            Ok(Some(()))
        })
        .await?;
    ensure!(stored(world)? == json!(["v1", "v2"]), "{}", stored(world)?);
    for written in ["guest-000", "guest-099"] {
        ensure!(
            writes(world, written)? == 1,
            "{written} was written more than once"
        );
    }
    Ok(())
}

/// Objects that are already rewritten need not, and cannot, be rewritten again.
async fn the_next_leader_continues_where_the_last_one_stopped(world: &mut World) -> Result<()> {
    world.operator_controller.stop().await?;
    ensure!(
        recorded(world).await?.is_some(),
        "the record goes with its writer"
    );
    let frozen = freeze(world, "interrupted-migration", &FIRST).await?;
    let last = ["-n", "interrupted-migration", "--dry-run=server"];
    world
        .eventually("the rest may be written", SOON, async || {
            world.kubectl(&[REST.probe, &last].concat()).map(|_| Some(()))
        })
        .await?;
    let mut next = Manager::operator_controller(world, "operator-controller-next", Vec::new()).await?;
    next.start(&world.cluster)?;
    next.ready().await?;
    await_version(world, "interrupted-migration", "1.1.0")
        .await
        .with_context(|| next.log_end())?;
    ensure!(stored(world)? == json!(["v2"]), "{}", stored(world)?);
    world
        .eventually("the record is gone", SOON, async || {
            Ok(recorded(world).await?.is_none().then_some(()))
        })
        .await?;
    thaw(world, &frozen)?;
    next.stop().await?;
    world.start_operator_controller()?;
    world.operator_controller.ready().await
}
