//! One run over a ClusterObjectSet: from its spec to its status.

mod causes;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kube::{Api, Client};
use olm_api::{
    ClusterObjectSet,
    cluster_extension::controlling_extension,
    cluster_object_set::{LifecycleState, ObservedPhase},
    command::{Annotated, annotate},
    conditions, names,
};
use olm_cluster::watch::{Coverage, Freshness, number};
use olm_platform::queue::Outcome;
use olm_rollout::{
    engine::{
        decide::Reclaims,
        rollout::{Mode, Report, RolloutEnd, Settings},
    },
    failure::FailureKind,
    outline::Outline,
    policy::{Policy, Uninstall},
    probe, report,
    status::{self, Deadline, RevisionState, StatusInputs},
    validate,
};

use super::{
    acting::{Actor, identify},
    conclusion::{LATER, RESYNC, RIGHTS, RunConclusion, Stop},
    context::Context,
    executor::Executor,
    observe::load::{bodies, check_observed, drop_replaced_content, load, outline},
    records, removal, rights,
    state::SetState,
};

/// The pause if no watch covers some of its objects: while it rolls out, and later.
const UNWATCHED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(110)];

/// Runs once with the set in the cache.
pub(crate) async fn reconcile(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
) -> Outcome {
    let mut set = set.clone();
    set_state.renew(set.metadata.uid.as_deref().unwrap_or_default(), probes_mark(&set));
    if number(set.metadata.resource_version.as_deref().unwrap_or_default()) < set_state.cache.written {
        // The cache does not contain our own last write yet.
        return Outcome::After(set_state.cache.lag());
    }
    set_state.cache.behind = 0;
    if set_state.teardown.ended {
        // The cache is stale.
        return Outcome::Done;
    }
    let conclusion = if set.is_deleting() {
        removal::delete(context, &mut set, set_state).await
    } else {
        keep(context, &mut set, set_state).await.or_else(Stop::conclusion)
    };
    let outcome = match conclusion {
        Ok(RunConclusion {
            state: None, outcome, ..
        }) => outcome,
        Ok(RunConclusion {
            state: Some(state),
            outcome,
            ..
        }) => match write_status(context, &mut set, set_state, &state, outcome).await {
            Ok(outcome) => outcome,
            Err(error) => own_error(&set, &error),
        },
        Err(error) => own_error(&set, &error),
    };
    set_state.cache.written = set_state.cache.written.max(number(
        set.metadata.resource_version.as_deref().unwrap_or_default(),
    ));
    outcome
}

/// A hash of the probes.
fn probes_mark(set: &ClusterObjectSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(&set.spec.progression_probes)
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

/// The outcome of a failed write of our own records.
fn own_error(set: &ClusterObjectSet, error: &kube::Error) -> Outcome {
    Outcome::overtaken(error).unwrap_or_else(|| {
        tracing::warn!(set = set.name(), %error, "cannot write the record");
        Outcome::Failed
    })
}

/// Writes the status. Returns the time of the next run, which may be sooner because of the deadline.
async fn write_status(
    context: &Context,
    set: &mut ClusterObjectSet,
    set_state: &SetState,
    state: &RevisionState,
    outcome: Outcome,
) -> Result<Outcome, kube::Error> {
    let now = (context.options.clock)();
    let active = set.spec.lifecycle_state == LifecycleState::Active && !set.is_deleting();
    let minutes = set
        .spec
        .progress_deadline_minutes
        .filter(|minutes| active && *minutes > 0);
    let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let deadline = created
        .zip(minutes)
        .and_then(|(created, minutes)| Deadline::after(created, minutes));
    let inputs = StatusInputs {
        generation: set.generation(),
        version: set
            .annotation(names::annotation::BUNDLE_VERSION)
            .unwrap_or_default()
            .to_owned(),
        deadline,
    };
    let conditions = status::after(set.conditions(), state, &inputs, now);
    let succeeded = conditions::is_true(&conditions, conditions::SUCCEEDED);
    let before = set
        .status
        .as_ref()
        .map(|status| status.observed_phases.clone())
        .unwrap_or_default();
    let observed: Vec<ObservedPhase> = match &set_state.loaded.phases {
        Some(phases) if before.is_empty() => phases.observed.clone(),
        _ => before,
    };
    records::status(&context.own, set, conditions, observed).await?;
    let left = deadline
        .filter(|_| !succeeded)
        .map(|deadline| deadline.remaining(now))
        .filter(|left| !left.is_zero());
    Ok(match (outcome, left) {
        (Outcome::After(delay), Some(left)) => Outcome::After(delay.min(left)),
        (Outcome::Done, Some(left)) => Outcome::After(left),
        (outcome, _) => outcome,
    })
}

/// A run over a set that is not being deleted.
async fn keep(
    context: &Context,
    set: &mut ClusterObjectSet,
    set_state: &mut SetState,
) -> Result<RunConclusion, Stop> {
    let archived = set.spec.lifecycle_state == LifecycleState::Archived;
    if archived && status::is_archived(set.conditions()) {
        context.watches.forget(set.name());
        finalizers(context, set, &[], &[names::finalizer::TEARDOWN, records::ORPHAN]).await?;
        return Ok(RunConclusion::silent(Outcome::Done));
    }
    let policy = Policy::of(set).map_err(|error| {
        let message =
            format!("{error}; nothing is applied, repaired or removed until the annotation is fixed");
        RunConclusion::blocked(message, Outcome::Done)
    })?;
    if let Some(unreadable) = context.sets.unreadable_sibling(set) {
        let message = format!("{unreadable}; nothing is applied or removed until it can be read");
        return Ok(RunConclusion::waiting(message, Outcome::Done));
    }
    if archived {
        return Ok(removal::archive(context, set, set_state, policy).await);
    }
    let actor = identify(context, set).await;
    let actor = actor.map_err(|no_actor| no_actor.conclusion())?;
    drop_replaced_content(context, set_state, &actor.client).await?;
    let phases = load(context, set, set_state, Some(&actor.client)).await?;
    check_observed(set, set_state).map_err(|error| RunConclusion::blocked(error, Outcome::After(RIGHTS)))?;
    let outline = outline(context, set, &phases);
    let bodies = set_state.loaded.content.as_deref();
    let faults = bodies.and_then(|bodies| validate::faults(set.name(), set.spec.revision, bodies));
    if let Some(faults) = faults {
        let message = format!("revision validation error: {faults}");
        return Ok(RunConclusion::waiting(message, Outcome::After(LATER)));
    }
    probe::check(&set.spec.progression_probes)
        .map_err(|error| RunConclusion::waiting(error.to_string(), Outcome::Done))?;
    let (add, remove): (&[&str], &[&str]) = match policy.uninstall {
        Uninstall::Orphan => (&[names::finalizer::TEARDOWN, records::ORPHAN], &[]),
        Uninstall::Delete | Uninstall::KeepCrds => (&[names::finalizer::TEARDOWN], &[records::ORPHAN]),
    };
    if records::has_finalizer(set, names::finalizer::TEARDOWN) {
        finalizers(context, set, add, remove).await?;
    }
    let missing = rights::missing(context, set.name(), &actor, &outline, bodies).await;
    let missing = missing.map_err(|error| RunConclusion::retrying(error.to_string(), Outcome::Failed))?;
    if let Some(missing) = missing {
        return Ok(RunConclusion::waiting(missing, Outcome::After(RIGHTS)));
    }
    // Until now nothing was written, so a set that never had the rights can be deleted without them.
    finalizers(context, set, add, remove).await?;
    let freshness = if conditions::is_true(set.conditions(), conditions::SUCCEEDED) {
        Freshness::Recent
    } else {
        Freshness::Live
    };
    let coverage = rights::watch(context, set.name(), Some(&actor), &outline, freshness).await;
    let coverage = coverage
        .map_err(|error| RunConclusion::retrying(format!("establish watch: {error}"), Outcome::Failed))?;
    let client = &actor.client;
    let report = roll_out(context, set, set_state, policy, client, &outline, &coverage).await?;
    let conclusion = conclude(context, set, set_state, &actor, &outline, report).await;
    conclusion.map_err(Stop::Unwritten)
}

/// Adds and removes finalizers of the set.
async fn finalizers(
    context: &Context,
    set: &mut ClusterObjectSet,
    add: &[&str],
    remove: &[&str],
) -> Result<(), Stop> {
    let written = records::finalizers(&context.own, set, add, remove).await;
    written.map_err(Stop::Unwritten)
}

async fn roll_out(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
    policy: Policy,
    client: &Client,
    outline: &Outline,
    coverage: &Coverage,
) -> Result<Report, RunConclusion> {
    let succeeded = conditions::is_true(set.conditions(), conditions::SUCCEEDED);
    if succeeded && let Some(wait) = set_state.rollout.repair_delay(Instant::now()) {
        return Err(RunConclusion::silent(Outcome::After(wait)));
    }
    let mut settings = Settings {
        mode: if succeeded { Mode::KeepUp } else { Mode::RollOut },
        writes: policy.writes,
        missing_kinds: policy.missing_kinds,
        accepted: set_state.objects.accepted.clone(),
        reclaims: Reclaims::Nothing,
    };
    let may_reclaim = if succeeded {
        Reclaims::Applied
    } else if set.annotation(names::annotation::RESTORED) == Some("true") {
        Reclaims::Named
    } else {
        Reclaims::Nothing
    };
    let mut at_hand = set_state.loaded.content.clone();
    let report = loop {
        let mut executor = Executor {
            content: at_hand.as_deref(),
            probes: &set.spec.progression_probes,
            freshness: if succeeded {
                Freshness::Recent
            } else {
                Freshness::Live
            },
            ..Executor::new(client, &context.discovery, coverage, outline, set_state)
        };
        let report = executor.roll_out(settings.clone()).await;
        let (starved, unwatched) = (executor.starved.into_inner(), executor.unwatched.into_inner());
        set_state.rollout.unwatched = unwatched;
        // Orphaning a revision removes these references, too, and the cache may not show that yet.
        if settings.reclaims != may_reclaim
            && is_stripped(&report, outline)
            && is_there_to_stay(context, set).await?
        {
            settings.reclaims = may_reclaim;
            continue;
        }
        // Usually nothing has changed, and the bodies are not needed.
        if at_hand.is_some() || !starved {
            break report;
        }
        at_hand = Some(bodies(context, set, set_state, client).await?);
    };
    if succeeded && report.written > 0 {
        tracing::info!(set = set.name(), objects = report.written, "repaired");
        set_state.rollout.repaired(Instant::now());
        let owner = set.label(names::label::OWNER_NAME);
        if let (Some(extension), Some(_)) = (owner, controlling_extension(&set.metadata)) {
            let objects = u64::try_from(report.written).unwrap_or(u64::MAX);
            context.options.counters.repaired(extension, objects);
        }
    }
    set_state.objects.accepted.clone_from(&report.accepted);
    Ok(report)
}

/// Whether objects look like another owner's because they only lack the owner reference.
fn is_stripped(report: &Report, outline: &Outline) -> bool {
    let RolloutEnd::Collisions { objects, .. } = &report.end else {
        return false;
    };
    objects
        .iter()
        .any(|(_, seen)| seen.ownership.is_stripped_of(&outline.owner))
}

/// Whether the API server has the set and it is not being deleted.
async fn is_there_to_stay(context: &Context, set: &ClusterObjectSet) -> Result<bool, RunConclusion> {
    let sets: Api<ClusterObjectSet> = Api::all(context.own.clone());
    let found = sets.get_metadata_opt(set.name()).await;
    let found = found.map_err(|error| {
        RunConclusion::retrying(
            format!("cannot read the revision again: {error}"),
            Outcome::Failed,
        )
    })?;
    Ok(found.is_some_and(|live| {
        live.metadata.uid == set.metadata.uid && live.metadata.deletion_timestamp.is_none()
    }))
}

/// The time for which the set has been reported as unavailable; zero if it is available.
fn unavailable_for(set: &ClusterObjectSet, now: Timestamp) -> Duration {
    let available = conditions::find(set.conditions(), conditions::AVAILABLE);
    let since = available.filter(|condition| condition.status == "False");
    let waited = since.map(|condition| now.duration_since(condition.last_transition_time.0));
    waited
        .and_then(|waited| Duration::try_from(waited).ok())
        .unwrap_or_default()
}

/// The conclusion of a rollout.
async fn conclude(
    context: &Context,
    set: &mut ClusterObjectSet,
    set_state: &mut SetState,
    actor: &Actor,
    outline: &Outline,
    report: Report,
) -> Result<RunConclusion, kube::Error> {
    set_state.rollout.misses_kinds = !report.skipped.is_empty();
    let skipped = report::skipped(&report.skipped);
    let [soon, later] = if set_state.rollout.unwatched {
        UNWATCHED
    } else {
        [RESYNC, RESYNC]
    };
    Ok(match report.end {
        RolloutEnd::Complete if report.handed_over > 0 => {
            set_state.loaded.content = None;
            RunConclusion::new(RevisionState::HandingOver, Outcome::After(later))
        }
        RolloutEnd::Complete => {
            set_state.loaded.content = None;
            let complete = RevisionState::Complete { skipped };
            let mut older = context.sets.siblings(set);
            older.retain(|sibling| {
                sibling.spec.revision < set.spec.revision
                    && sibling.spec.lifecycle_state == LifecycleState::Active
                    && !sibling.is_deleting()
            });
            if !older.is_empty() {
                // Readers must see this revision complete before the previous ones are archived.
                write_status(context, set, set_state, &complete, Outcome::Done).await?;
            }
            for sibling in older {
                if let Err(error) = records::archive(&context.own, &sibling).await {
                    return Ok(RunConclusion::retrying(
                        format!("archive previous Revision: {error}"),
                        Outcome::Failed,
                    ));
                }
            }
            RunConclusion::new(complete, Outcome::After(later))
        }
        RolloutEnd::Incomplete(not_ready) => {
            let mut pods = Vec::new();
            let mut due = soon;
            if causes::concerns(&not_ready) {
                let waited = unavailable_for(set, (context.options.clock)());
                match causes::PATIENCE.checked_sub(waited) {
                    Some(left) if !left.is_zero() => due = due.min(left),
                    _ => {
                        pods = causes::causes(context, set_state, actor, &not_ready).await;
                        due = due.min(causes::AGAIN);
                    }
                }
            }
            let waits_for = not_ready.iter().map(report::waits_for).chain(pods).collect();
            let rolling = RevisionState::RollingOut {
                phase: report::current_phase(outline, &not_ready),
                not_ready: not_ready.iter().map(report::not_ready).collect(),
                waits_for,
            };
            RunConclusion::new(rolling, Outcome::After(due))
        }
        RolloutEnd::Collisions { phase, objects } => RunConclusion::waiting(
            report::collisions(outline.phase(phase), outline, &objects),
            Outcome::After(LATER),
        ),
        RolloutEnd::Paused(objects) => {
            let list: Vec<String> = objects.iter().map(ToString::to_string).collect();
            let message = format!(
                "paused by the annotation {} (to resume: `{}`); to be applied: {}",
                names::user::PAUSED,
                annotate(Annotated::of(set), names::user::PAUSED, None),
                list.join(", ")
            );
            RunConclusion::new(RevisionState::Paused(message), Outcome::After(RESYNC))
        }
        RolloutEnd::Failed { phase, failures } => {
            set_state.rollout.misses_kinds |= failures
                .iter()
                .any(|(_, failure)| failure.kind == FailureKind::UnknownKind);
            let message = report::failures(outline.phase(phase), &failures);
            RunConclusion::failed(context, &actor.account, &failures, message)
        }
    })
}
