//! One run of a workload, with or without faults.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use olm_api::names::{API_VERSION, CHANGE_POLICY, label};
use olm_api::{ClusterCatalog, PendingChange, conditions};
use olm_test::extensions::{catalog, extensions, installed_version, is_settled, merge, own_name, revisions};
use olm_test::faults::{Call, Fault, Plan};
use olm_test::samples;
use olm_test::world::World;
use serde_json::json;

use super::identity::strangers;
use super::stage::Stage;
use super::state::{Revisions, State};
use super::workloads::{Step, Target, Workload};

/// The time in which a run must reach the state of a run without faults.
const LIMIT: Duration = Duration::from_secs(90);
/// The time without writes after which a run counts as over.
const STILL: Duration = Duration::from_millis(1000);
/// The same for the run that the others are compared with.
const STILL_FIRST: Duration = Duration::from_secs(5);
/// The time after which no further change is expected.
const SETTLED: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(100);

/// The place of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// One fault at one call.
    At(usize, Fault),
    /// One fault at the first call with a method about a kind.
    First(&'static str, &'static str, Fault),
    /// Several, from a seed.
    Seed(u64),
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(call, fault) => write!(f, "{call}: {fault}"),
            Self::First(method, resource, fault) => write!(f, "{method} {resource}: {fault}"),
            Self::Seed(seed) => write!(f, "seed {seed}"),
        }
    }
}

/// The result of a run without faults.
#[derive(Debug)]
pub(crate) struct Reference {
    /// The number of its mutating calls.
    pub(crate) calls: usize,
    end: State,
}

/// A run that is over.
pub(crate) struct Done {
    pub(crate) name: String,
    /// The time after which nothing should be written any more.
    pub(crate) since: Instant,
    /// The number of planned faults that happened.
    pub(crate) met: usize,
    pub(crate) problems: Vec<String>,
}

/// Runs a workload without faults.
pub(crate) async fn undisturbed(stage: &mut Stage, workload: &Workload) -> Result<(Reference, Done)> {
    let name = name_for(stage, workload).await?;
    let before = begin(stage, workload, &name).await?;
    stage.proxy(workload.target).follow(Plan::undisturbed(&name));
    follow(stage, workload.steps, &name).await?;
    await_silence(stage, &name, STILL_FIRST).await?;
    let mut end = State::of(&stage.world, &name, revisions_of(workload)).await?;
    end.keep(&before);
    let (calls, met) = stage.proxy(workload.target).progress();
    let problems = problems_of(stage, &name);
    let done = Done {
        name,
        since: Instant::now(),
        met,
        problems,
    };
    Ok((Reference { calls, end }, done))
}

/// Runs a workload with faults.
pub(crate) async fn disturbed(
    stage: &mut Stage,
    workload: &Workload,
    reference: &Reference,
    point: Point,
) -> Result<Done> {
    let name = name_for(stage, workload).await?;
    let before = begin(stage, workload, &name).await?;
    stage.proxy(workload.target).follow(match point {
        Point::At(call, fault) => Plan::at(&name, call, fault),
        Point::First(method, resource, fault) => Plan::first(&name, (method, resource), fault),
        Point::Seed(seed) => Plan::seeded(&name, seed, reference.calls),
    });
    let mut problems = Vec::new();
    let ended = match follow(stage, workload.steps, &name).await {
        Ok(()) => await_end(stage, workload, reference, &before, &name).await,
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        let log = match workload.target {
            Target::OperatorController => stage.world.operator_controller.log_end(),
            Target::Catalogd => stage.world.catalogd.log_end(),
        };
        let mut calls = stage.proxy(workload.target).calls(&name);
        calls.retain(|call| !call.dry_run);
        let lines: Vec<String> = calls.iter().map(Call::line).collect();
        problems.push(format!("{error:#}\ncalls:\n{}\nlog:\n{log}", lines.join("\n")));
    }
    let (_, met) = stage.proxy(workload.target).progress();
    stage.calm();
    problems.extend(problems_of(stage, &name));
    Ok(Done {
        name,
        since: Instant::now(),
        met,
        problems,
    })
}

async fn name_for(stage: &mut Stage, workload: &Workload) -> Result<String> {
    if workload.has_catalog() {
        Ok(stage.name())
    } else {
        stage.package().await
    }
}

fn revisions_of(workload: &Workload) -> Revisions {
    if workload.any_revisions {
        Revisions::Last
    } else {
        Revisions::Numbered
    }
}

/// Takes the steps before the faults.
async fn begin(stage: &mut Stage, workload: &Workload, name: &str) -> Result<State> {
    stage.calm();
    follow(stage, workload.before, name).await?;
    await_silence(stage, name, STILL).await?;
    State::of(&stage.world, name, revisions_of(workload)).await
}

/// The writes by wrong users, and the false statuses.
fn problems_of(stage: &Stage, name: &str) -> Vec<String> {
    let calls = stage.proxies().map(|proxy| proxy.calls(name)).concat();
    let mut problems = strangers(&calls, name);
    problems.extend(
        stage
            .truth
            .lies()
            .into_iter()
            .map(|lie| format!("a false status: {lie}")),
    );
    problems
}

/// The time since the last write about a name.
fn silent_for(stage: &Stage, name: &str) -> Duration {
    let changes = stage.proxies().map(|proxy| proxy.last_change(name));
    let last = changes.into_iter().flatten().max();
    last.map_or(Duration::MAX, |last| last.elapsed())
}

async fn await_silence(stage: &mut Stage, name: &str, time: Duration) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while silent_for(stage, name) < time {
        stage.revive()?;
        if Instant::now() > end {
            bail!("{name} is written again and again");
        }
        stage.pause(LOOK).await;
    }
    Ok(())
}

/// Waits until the state equals that of a run without faults, and nothing is written.
async fn await_end(
    stage: &mut Stage,
    workload: &Workload,
    reference: &Reference,
    before: &State,
    name: &str,
) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let mut differences = vec!["it was never at rest".to_owned()];
    while Instant::now() < deadline {
        stage.revive()?;
        if silent_for(stage, name) >= STILL {
            let mut end = State::of(&stage.world, name, revisions_of(workload)).await?;
            end.keep(before);
            differences = end.difference(&reference.end);
            if differences.is_empty() {
                return Ok(());
            }
            if silent_for(stage, name) >= SETTLED {
                break;
            }
        }
        stage.pause(LOOK * 3).await;
    }
    let count = differences.len();
    differences.truncate(25);
    bail!(
        "it does not end as without faults; {count} difference(s):\n{}",
        differences.join("\n")
    )
}

/// Takes the steps, each after the one before is complete.
async fn follow(stage: &mut Stage, steps: &[Step], name: &str) -> Result<()> {
    for step in steps {
        take(stage, step, name)
            .await
            .with_context(|| format!("{step:?}"))?;
        let end = Instant::now() + LIMIT;
        loop {
            stage.revive()?;
            if is_done(&stage.world, step, name)
                .await
                .with_context(|| format!("{step:?}"))?
            {
                break;
            }
            if Instant::now() > end {
                let extension = extensions(&stage.world).get_opt(name).await?;
                let status = extension.and_then(|extension| extension.status);
                bail!(
                    "{step:?} is not done after {} s; the status is {}",
                    LIMIT.as_secs(),
                    serde_json::to_string(&status)?
                );
            }
            stage.pause(LOOK).await;
        }
    }
    Ok(())
}

async fn take(stage: &Stage, step: &Step, name: &str) -> Result<()> {
    let world = &stage.world;
    match step {
        Step::Publish(versions) => {
            let blobs = world
                .push_bundles(name, versions, samples::OPERATOR_IMAGE)
                .await?;
            let tag = format!("{name}-catalog:v{}", versions.len());
            let reference = world.push_catalog(&tag, &blobs).await?;
            world.apply(&[catalog(name, &reference)])
        }
        Step::DeleteCatalog => {
            catalogs(world).delete(name, &DeleteParams::default()).await?;
            Ok(())
        }
        Step::Apply(version) => {
            let file = "manifests/samples/greeter.yaml";
            let selected = json!({ "matchLabels": { label::METADATA_NAME: stage.catalog_of(name) } });
            let version = format!("{version:?}\n      selector: {selected}");
            let path = world.sample_file(file, name, |text| text.replace("1.0.x", &version))?;
            world.kubectl(&["apply", "--server-side", "-f", &path]).map(drop)
        }
        Step::Merge(patch) => merge(world, name, serde_json::from_str(patch)?).await,
        Step::AskForApproval => {
            world.apply(&[json!({
                "apiVersion": API_VERSION, "kind": CHANGE_POLICY, "metadata": { "name": name },
                "spec": {
                    "selector": { "matchLabels": { "example.com/policy": name } },
                    "approval": { "default": "Manual" },
                },
            })])?;
            let labels = json!({ "metadata": { "labels": { "example.com/policy": name } } });
            merge(world, name, labels).await
        }
        Step::StoreObject => world.apply(&[json!({
            "apiVersion": format!("{name}.olm.example/v1"), "kind": "Greeting",
            "metadata": { "name": "stored", "namespace": name }, "spec": { "name": "whoever" },
        })]),
        Step::Delete => {
            extensions(world).delete(name, &DeleteParams::default()).await?;
            Ok(())
        }
        Step::Approve
        | Step::Serving
        | Step::CatalogGone
        | Step::Installed(_)
        | Step::Revision(_)
        | Step::Gone => Ok(()),
    }
}

async fn is_done(world: &World, step: &Step, name: &str) -> Result<bool> {
    Ok(match step {
        Step::Publish(_)
        | Step::DeleteCatalog
        | Step::Apply(_)
        | Step::Merge(_)
        | Step::AskForApproval
        | Step::StoreObject
        | Step::Delete => true,
        Step::Approve => approve(world, name).await?,
        Step::Serving => {
            let catalog = catalogs(world).get(name).await?;
            let list = catalog.conditions();
            let progressing = conditions::find(list, conditions::PROGRESSING);
            conditions::is_true(list, conditions::SERVING)
                && progressing.is_some_and(|progressing| {
                    progressing.reason == conditions::reason::SUCCEEDED
                        && progressing.observed_generation == catalog.metadata.generation
                })
        }
        Step::CatalogGone => catalogs(world).get_opt(name).await?.is_none(),
        Step::Installed(version) => {
            let extension = extensions(world).get(name).await?;
            let progressing = conditions::find(extension.conditions(), conditions::PROGRESSING);
            installed_version(&extension) == Some(version)
                && is_settled(&extension)
                && progressing.is_some_and(|it| it.observed_generation == extension.metadata.generation)
        }
        Step::Revision(number) => {
            let owned = format!("{}={name}", label::OWNER_NAME);
            let sets = revisions(world)
                .list(&ListParams::default().labels(&owned))
                .await?;
            sets.iter().any(|set| set.spec.revision >= *number)
        }
        Step::Gone => is_gone(world, name).await?,
    })
}

/// Approves the open change of an extension. Returns whether there was one.
async fn approve(world: &World, name: &str) -> Result<bool> {
    let changes: Api<PendingChange> = Api::all(world.client.clone());
    let all = changes.list(&ListParams::default()).await?;
    let open = all
        .into_iter()
        .find(|change| change.spec.extension == name && change.spec.decision.is_none() && !change.is_void());
    let Some(change) = open else {
        return Ok(false);
    };
    let patch = json!({
        "metadata": { "uid": change.metadata.uid },
        "spec": { "decision": { "verdict": "Approved", "approver": own_name(world)? } },
    });
    let patched = changes
        .patch(change.name(), &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    match patched {
        Ok(_) => Ok(true),
        // Another change takes its place.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether an extension and its revisions are gone.
pub(crate) async fn is_gone(world: &World, name: &str) -> Result<bool> {
    let owned = format!("{}={name}", label::OWNER_NAME);
    let sets = revisions(world)
        .list(&ListParams::default().labels(&owned))
        .await?;
    Ok(sets.items.is_empty() && extensions(world).get_opt(name).await?.is_none())
}

/// All ClusterCatalogs.
pub(crate) fn catalogs(world: &World) -> Api<ClusterCatalog> {
    Api::all(world.client.clone())
}
