//! Catalogs that move, edits, decisions and changes of the leader at once, by a seeded generator: no change is applied
//! that was not approved as applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, pin_mut};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use olm_api::cluster_extension::controlling_extension;
use olm_api::cluster_object_set::CollisionProtection;
use olm_api::names::{annotation, label};
use olm_api::{ClusterObjectSet, PendingChange};
use olm_plan::{BundleIdentity, Change, ChangePlan};
use olm_rollout::policy::Uninstall;
use olm_test::extensions::{catalog, content, merge, patch_source, revisions};
use olm_test::faults::Numbers;
use olm_test::samples;
use olm_test::world::{Manager, Options, World};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{apply, changes, own_name, policy};

/// The extensions that change at once.
const EXTENSIONS: [&str; 4] = ["race-a", "race-b", "race-c", "race-d"];
const VERSIONS: [&str; 4] = ["1.0.0", "1.0.1", "1.0.2", "1.0.3"];
/// Rounds between two changes of the leader.
const REIGN: u32 = 60;

fn number(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text}")),
        Err(_) => Ok(default),
    }
}

/// The approved PendingChanges by their UIDs, recorded before the approval is sent.
type Approved = BTreeMap<String, PendingChange>;

/// A revision as it was created, with its objects.
struct RecordedRevision {
    set: ClusterObjectSet,
    objects: Vec<Value>,
}

/// Reads every revision as soon as it exists, before it is archived and removed.
async fn follow(
    world: &World,
    seen: &mut BTreeMap<String, RecordedRevision>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let sets: Api<ClusterObjectSet> = Api::all(world.client.clone());
    let events = watcher(sets, watcher::Config::default());
    pin_mut!(events);
    loop {
        let event = tokio::select! {
            event = events.next() => event.context("the watch ended")?,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        let (Event::Apply(set) | Event::InitApply(set)) = event? else {
            continue;
        };
        let uid = set.metadata.uid.clone().unwrap_or_default();
        if let std::collections::btree_map::Entry::Vacant(place) = seen.entry(uid) {
            let objects = content(&world.client, &set).await?;
            place.insert(RecordedRevision { set, objects });
        }
    }
}

/// The catalogs with the first, the first two … versions of a package.
async fn catalogs(world: &World, name: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for count in 1..=VERSIONS.len() {
        let versions = VERSIONS.get(..count).unwrap_or_default();
        let blobs = world
            .push_bundles(name, versions, samples::OPERATOR_IMAGE)
            .await?;
        let reference = world
            .push_catalog(&format!("{name}-catalog:v{count}"), &blobs)
            .await?;
        all.push(catalog(name, &reference));
    }
    Ok(all)
}

/// One random step.
async fn step(
    world: &World,
    numbers: &mut Numbers,
    catalogs: &BTreeMap<&str, Vec<Value>>,
    approver: &str,
    approved: &mut Approved,
) -> Result<()> {
    let name = *numbers.pick(&EXTENSIONS).context("an extension")?;
    match numbers.below(10) {
        0 => {
            let all = catalogs.get(name).context("its catalogs")?;
            world.apply(&[numbers.pick(all).context("a catalog")?.clone()])
        }
        1 | 2 => {
            let versions = ["1.0.x", "1.0.0", "1.0.1", "1.0.2", "<1.0.3"];
            let version = *numbers.pick(&versions).context("a version")?;
            patch_source(world, name, json!({ "version": version })).await
        }
        3 => {
            let level = numbers.below(3).to_string();
            let env = json!([{ "name": "LEVEL", "value": level }]);
            let inline = json!({ "deploymentConfig": { "env": env } });
            let config = json!({ "spec": { "config": { "configType": "Inline", "inline": inline } } });
            merge(world, name, config).await
        }
        _ => decide(world, numbers, (name, approver), approved).await,
    }
}

/// Approves, or now and then rejects, a PendingChange as it was seen, be it void by now or not.
async fn decide(
    world: &World,
    numbers: &mut Numbers,
    (name, approver): (&str, &str),
    approved: &mut Approved,
) -> Result<()> {
    let all = changes(world).list(&ListParams::default()).await?.items;
    let undecided = |change: &&PendingChange| change.spec.extension == name && change.spec.decision.is_none();
    let undecided: Vec<&PendingChange> = all.iter().filter(undecided).collect();
    if undecided.is_empty() {
        return Ok(());
    }
    let change = *numbers.pick(&undecided).context("a change")?;
    let verdict = if numbers.below(8) == 0 {
        "Rejected"
    } else {
        "Approved"
    };
    // The approver takes time to decide, and the world changes meanwhile.
    tokio::time::sleep(Duration::from_millis(numbers.below(60))).await;
    if verdict == "Approved" {
        let uid = change.metadata.uid.clone().unwrap_or_default();
        approved.insert(uid, change.clone());
    }
    let patch = json!({
        "metadata": { "uid": change.metadata.uid },
        "spec": { "decision": { "verdict": verdict, "approver": approver } },
    });
    let patched = changes(world)
        .patch(change.name(), &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    match patched {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Compares every revision with the approved changes; returns the number of revisions.
fn judge(seen: &BTreeMap<String, RecordedRevision>, approved: &Approved) -> Result<usize> {
    let mut used = BTreeSet::new();
    let mut lines: BTreeMap<(&str, i64), &RecordedRevision> = BTreeMap::new();
    for seen in seen.values() {
        let extension = seen.set.label(label::OWNER_NAME).context("an extension")?;
        let before = lines.insert((extension, seen.set.spec.revision), seen);
        ensure!(
            before.is_none(),
            "two revisions {} of {extension}",
            seen.set.spec.revision
        );
    }
    for ((extension, number), RecordedRevision { set, objects }) in &lines {
        let name = set.name();
        let uid = set.annotation(annotation::PENDING_CHANGE);
        let uid = uid.with_context(|| format!("{name} names no approval"))?;
        let change = approved
            .get(uid)
            .with_context(|| format!("{name} was not approved"))?;
        ensure!(used.insert(uid.to_owned()), "{name}: an approval was used twice");
        ensure!(
            Some(change.spec.extension_uid.as_str()) == controlling_extension(&set.metadata),
            "{name} is of another extension"
        );
        let before = lines
            .range((*extension, 0)..(*extension, *number))
            .next_back()
            .map(|(_, seen)| *seen);
        let old: Vec<&Value> = before.iter().flat_map(|seen| &seen.objects).collect();
        let new: Vec<&Value> = objects.iter().collect();
        let wanted = BundleIdentity {
            image: change.spec.image.clone(),
            ..BundleIdentity::of(set)
        };
        let installed = before.map(|seen| BundleIdentity::of(&seen.set));
        let applied = ChangePlan::new(&Change {
            extension,
            account: set.annotation(annotation::SERVICE_ACCOUNT).unwrap_or_default(),
            installed_account: None,
            installed: installed.as_ref(),
            wanted: &wanted,
            catalog: "",
            passed: &[],
            uninstall: Uninstall::Delete,
            adopt: CollisionProtection::Prevent,
            before: &old,
            after: &new,
            needs: None,
        });
        ensure!(
            applied.digest == change.spec.digest
                && set.annotation(annotation::CHANGE_DIGEST) == Some(applied.digest.as_str()),
            "{name} holds {}, and {} was approved",
            applied.digest,
            change.spec.digest
        );
    }
    Ok(lines.len())
}

/// `RACE_ROUNDS` and `RACE_SEED` set the duration and the random sequence.
#[test]
fn nothing_is_applied_that_was_not_approved_as_applied() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (rounds, seed) = (
        u32::try_from(number("RACE_ROUNDS", 300)?)?,
        number("RACE_SEED", 20_261_123)?,
    );
    let options = Options {
        operator_controller: vec!["--leader-elect".to_owned()],
        ..Options::default()
    };
    runtime.block_on(async {
        let world = World::start(options).await?;
        let approver = own_name(&world)?;
        let mut numbers = Numbers::from_seed(seed);
        let mut all = BTreeMap::new();
        for name in EXTENSIONS {
            let published = catalogs(&world, name).await?;
            world.apply(published.get(1..2).unwrap_or_default())?;
            all.insert(name, published);
            policy(&world, name, &json!({ "approval": { "default": "Manual" } }))?;
            apply(&world, name, "1.0.x")?;
        }
        let address = world.catalogs.trim_start_matches("https://").to_owned();
        let arguments = vec![format!("--catalogd-address={address}"), "--leader-elect".to_owned()];
        let mut rival = Manager::operator_controller(&world, "rival", arguments).await?;
        rival.start(&world.cluster)?;
        let mut world = world;
        let mut approved = Approved::new();
        let begun = Instant::now();
        let mut leaders = 0;
        let mut seen = BTreeMap::new();
        let mut round = 0;
        while round < rounds {
            // The watch borrows the world, and a change of the leader changes it: one stretch at a time.
            let (halt, halted) = watch::channel(false);
            let running = async {
                let end = (round + REIGN).min(rounds);
                let mut outcome = Ok(());
                while round < end && outcome.is_ok() {
                    outcome = step(&world, &mut numbers, &all, &approver, &mut approved).await;
                    tokio::time::sleep(Duration::from_millis(numbers.below(30))).await;
                    round += 1;
                }
                halt.send_replace(true);
                outcome
            };
            let (found, outcome) = tokio::join!(follow(&world, &mut seen, halted), running);
            found.and(outcome)?;
            leaders += 1;
            if leaders % 2 == 1 {
                world.operator_controller.stop().await?;
                world.start_operator_controller()?;
            } else {
                rival.stop().await?;
                rival.start(&world.cluster)?;
            }
        }
        let count = judge(&seen, &approved)?;
        let listed = revisions(&world).list(&ListParams::default()).await?.items.len();
        println!(
            "{rounds} rounds in {:.0} s from seed {seed}: {} approvals, {count} revisions ({listed} are left), {leaders} changes of the leader",
            begun.elapsed().as_secs_f64(),
            approved.len()
        );
        if count < usize::try_from(rounds / 50)? {
            bail!("only {count} revisions came of {rounds} rounds: nothing was tried");
        }
        Ok(())
    })
}
