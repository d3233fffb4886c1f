//! Changes that are not safe, on real parts: refused before anything is written, told, and possible when the user says so.
//! One cluster for all.

mod accounts;
mod authors;
mod by_hand;
mod content;
mod definitions;
mod events;
mod many;
mod migration;
mod rights;
mod rollback;
mod stuck;
mod uninstall;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::{SOON, await_version, catalog, merge};
use olm_test::samples;
use olm_test::world::{Options, World, repository};
use serde_json::{Value, json};

/// The sample operator under another name, with kinds of its own.
fn renamed(text: &str, name: &str) -> String {
    text.replace("greeter", name)
        .replace("samples.olm.example", &format!("{name}.olm.example"))
}

/// Publishes versions of the sample operator under another name, each file changed; gives the catalog's blobs.
async fn publish(
    world: &World,
    name: &str,
    versions: &[&str],
    change: impl Fn(&str, String) -> String,
) -> Result<String> {
    publish_with(world, name, versions, change, &[]).await
}

/// The same with more files.
async fn publish_with(
    world: &World,
    name: &str,
    versions: &[&str],
    change: impl Fn(&str, String) -> String,
    more: &[(&str, Value)],
) -> Result<String> {
    let mut images = BTreeMap::new();
    for version in versions {
        let mut files: BTreeMap<String, Vec<u8>> = samples::bundle(version, "sample-operator:v1")
            .into_iter()
            .map(|(path, content)| {
                let text = change(version, renamed(&String::from_utf8_lossy(&content), name));
                (path, text.into_bytes())
            })
            .collect();
        for (path, object) in more {
            let text = change(version, object.to_string());
            files.insert((*path).to_owned(), text.into_bytes());
        }
        let image = world
            .push_bundle(&format!("{name}-bundle:v{version}"), &files)
            .await?;
        images.insert(*version, image);
    }
    let blobs = samples::catalog(versions, |version| {
        images.get(version).cloned().unwrap_or_default()
    });
    Ok(renamed(&blobs, name))
}

/// The extension's file, with its namespace, account and rights.
fn file(world: &World, name: &str, version: &str) -> Result<String> {
    let text = std::fs::read_to_string(repository().join("manifests/samples/greeter.yaml"))?;
    let path = world.folder().join(format!("{name}.yaml"));
    std::fs::write(&path, renamed(&text, name).replace("1.0.x", version))?;
    Ok(path.display().to_string())
}

/// The same without the extension.
fn account_file(world: &World, name: &str) -> Result<String> {
    let text = std::fs::read_to_string(file(world, name, "1.0.0")?)?;
    let extension = text.rfind("---").context("the extension comes last")?;
    let path = world.folder().join(format!("{name}-account.yaml"));
    std::fs::write(&path, text.get(..extension).unwrap_or_default())?;
    Ok(path.display().to_string())
}

/// A custom resource of the operator in its namespace.
fn greeting(operator: &str, version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{operator}.olm.example/{version}"),
        "kind": "Greeting",
        "metadata": { "name": name, "namespace": operator },
        "spec": spec,
    })
}

/// Type, reason and note of each event of an extension.
fn events_of(world: &World, name: &str) -> Result<Vec<String>> {
    let selector = format!("involvedObject.name={name}");
    let lines = "jsonpath={range .items[*]}{.type} {.reason} {.message}{\"\\x00\"}{end}";
    let arguments = [
        "get",
        "events",
        "-n",
        "default",
        "--field-selector",
        &selector,
        "-o",
        lines,
    ];
    let text = world.kubectl(&arguments)?;
    let events = text.split('\0').filter(|event| !event.is_empty());
    Ok(events.map(str::to_owned).collect())
}

/// Waits for an event of an extension.
async fn await_event(world: &World, name: &str, reason: &str, part: &str) -> Result<()> {
    world
        .eventually(
            &format!("event {reason} of {name} with {part:?}"),
            SOON,
            async || {
                let found = events_of(world, name)?;
                let is_it = |event: &String| event.split(' ').nth(1) == Some(reason) && event.contains(part);
                let is_there = found.iter().any(is_it);
                ensure!(is_there, "there is {found:?}");
                Ok(Some(()))
            },
        )
        .await
}

async fn install(world: &World, name: &str, version: &str) -> Result<()> {
    world.kubectl(&["apply", "--server-side", "-f", &file(world, name, version)?])?;
    await_version(world, name, version).await.map(drop)
}

async fn annotate(world: &World, name: &str, key: &str, value: Option<&str>) -> Result<()> {
    merge(
        world,
        name,
        json!({ "metadata": { "annotations": { key: value } } }),
    )
    .await
}

fn definition(world: &World, name: &str) -> Result<Option<Value>> {
    let text = world.kubectl(&[
        "get",
        "crd",
        &format!("greetings.{name}.olm.example"),
        "-o",
        "json",
        "--ignore-not-found",
    ])?;
    Ok(if text.trim().is_empty() {
        None
    } else {
        Some(serde_json::from_str(&text)?)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_safe_is_refused_told_and_done_when_the_user_says_so() -> Result<()> {
    let mut world = World::start(Options {
        operator_controller: migration::one_page_a_run(),
        ..Options::default()
    })
    .await?;
    // Before the others: for a moment its catalog is not served, for which every extension without selector waits.
    authors::an_extension_of_ones_own_is_made_as_the_readme_says(&world)
        .await
        .context("an extension of one's own")?;
    let same = |_: &str, text: String| text;
    let mut blobs = publish(
        &world,
        "kettle",
        &["1.0.0", "1.0.1", "1.1.0"],
        definitions::kettle,
    )
    .await?;
    for name in ["pot", "pan", "bowl", "jar", "dish"] {
        blobs.push_str(&publish(&world, name, &["1.0.0"], same).await?);
    }
    for name in ["cup", "lid"] {
        blobs.push_str(&publish(&world, name, &["1.0.0", "1.0.1"], same).await?);
    }
    blobs.push_str(&publish(&world, "urn", &["1.0.0", "1.0.1", "1.1.0"], definitions::urn).await?);
    for name in ["jug", "keg"] {
        blobs.push_str(&publish(&world, name, &["1.0.0", "1.0.1", "1.1.0"], definitions::jug).await?);
    }
    blobs.push_str(&publish(&world, "vat", &["1.1.0"], definitions::jug).await?);
    blobs.push_str(&publish(&world, "ladle", &["1.0.0"], same).await?);
    let monitor = [("manifests/monitor.yaml", rights::monitor())];
    blobs.push_str(&publish_with(&world, "mug", &["1.0.0"], same, &monitor).await?);
    blobs.push_str(&publish_with(&world, "vase", &["1.0.0", "2.0.0"], stuck::vase, &monitor).await?);
    blobs.push_str(&publish(&world, "tub", &["1.0.0", "1.1.0", "2.0.0"], stuck::tub).await?);
    let settings = [("manifests/settings.yaml", rollback::settings())];
    blobs.push_str(&publish_with(&world, "tin", &["1.0.0", "1.0.1"], rollback::tin, &settings).await?);
    let maps = many::maps();
    let maps: Vec<(&str, Value)> = maps
        .iter()
        .map(|(path, map)| (path.as_str(), map.clone()))
        .collect();
    blobs.push_str(&publish_with(&world, "rack", &["1.0.0", "1.0.1"], same, &maps).await?);
    let reference = world.push_catalog("safety-catalog:latest", &blobs).await?;
    world.apply(&[catalog("samples", &reference)])?;
    let done = tokio::join!(
        definitions::definitions_that_break_what_is_stored(&world),
        definitions::t_5c_04_an_object_that_the_new_schema_refuses_holds_the_upgrade(&world),
        definitions::t_5c_06_stored_versions_are_migrated_when_their_definition_goes(&world),
        definitions::stored_versions_of_a_definition_of_somebody_else_are_not_migrated_unasked(&world),
        uninstall::a_deletion_without_account_is_explained_and_orphaning_ends_it(&world),
        uninstall::a_deletion_goes_on_when_the_account_is_back(&world),
        uninstall::what_goes_is_counted_before_and_nothing_of_ours_is_left(&world),
        content::lost_content_is_made_again_and_annotations_are_obeyed(&world),
        accounts::an_account_is_named_only_by_those_who_may_impersonate_it(&world),
        rights::what_is_lost_or_left_out_is_told_with_what_mends_it(&world),
        migration::a_migration_that_stops_half_way_is_recorded(&world),
        rollback::a_field_that_never_changes_stops_a_rollback_before_and_after_it_is_pinned(&world),
        by_hand::a_revision_of_no_bundle_and_a_definition_of_nobody_are_told_and_replaced(&world),
        events::a_life_without_trouble_is_told_without_warnings(&world),
        uninstall::what_was_gone_before_the_rest_was_left_is_told(&world),
        many::phases_are_split_and_five_archived_revisions_are_kept(&world),
        stuck::a_stuck_rollout_gives_way_to_another_configuration_channel_and_version(&world),
        uninstall::a_revision_deleted_by_hand_hears_what_is_to_stay(&world),
        stuck::what_is_an_update_of_what_rolls_out_follows_by_itself(&world),
    );
    let outcomes = [
        ("definitions", done.0),
        ("existing objects", done.1),
        ("stored versions", done.2),
        ("definitions of others", done.3),
        ("orphaning", done.4),
        ("the account is back", done.5),
        ("nothing is left", done.6),
        ("content and annotations", done.7),
        ("accounts", done.8),
        ("rights", done.9),
        ("a migration that stops", done.10),
        ("rollback", done.11),
        ("by hand", done.12),
        ("events", done.13),
        ("gone before the rest was left", done.14),
        ("many objects and revisions", done.15),
        ("stuck rollouts", done.16),
        ("deleted by hand before the extension", done.17),
        ("the update of what rolls out", done.18),
    ];
    let failed = outcomes.into_iter().filter_map(|(name, outcome)| {
        let error = outcome.err()?;
        Some(format!("{name}: {error:#}"))
    });
    let failed: Vec<String> = failed.collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    migration::the_next_leader_goes_on_where_the_last_one_stopped(&mut world)
        .await
        .context("another leader")
}
