//! One run over a ClusterExtension.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use olm_api::ClusterExtension;
use olm_api::command::{Annotated, annotate};
use olm_api::conditions::reason;
use olm_api::names::user;
use olm_api::updates::held_back;
use olm_platform::queue::Outcome;
use parking_lot::Mutex;

use super::act::{self, ActError, Applied, act};
use super::approval;
use super::approval::pending::{DesiredChange, records, void_without_bundle};
use super::bundle::fetch::retry_if_tagged;
use super::bundle::{self, render};
use super::context::Context;
use super::delete;
use super::failure::{Severity, StageFailure};
use super::observe::{Observed, claim_package, observe};
use super::plan::action::Action;
use super::plan::revision::RevisionPlan;
use super::plan::{plan, prepare};
use super::preflight::{Checked, check};
use super::report::inputs::{DECIDE_AGAIN, Progress};
use super::report::retry::{self, AT_ONCE, UNANNOUNCED, unless_stale};
use super::report::{self, Report, report};
use super::resolve::{Origin, Resolution, Resolved, Target, resolve};
use crate::metrics::counters::ResolutionOutcome;
use crate::object_set::store::Unreadable;

/// The reason why PendingChanges are void when the extension matches its spec.
const NOTHING_WAITS: &str = "the ClusterExtension needs no change that requires an approval";

/// Runs over extensions, one at a time over each.
pub(crate) struct Controller {
    /// The shared parts of all runs.
    pub context: Arc<Context>,
    states: Mutex<HashMap<String, StageStates>>,
}

/// State of the stages between runs. A run takes each stage's own part at its beginning and returns it at its end.
#[derive(Debug, Clone, Default)]
struct StageStates {
    /// The extension's UID. Another extension of the same name starts with empty state.
    uid: Option<String>,
    bundle: bundle::BundleCache,
    act: act::ActCache,
    retry: retry::RetryCache,
    delete: delete::DeleteCache,
}

impl Controller {
    /// A controller without state.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            states: Mutex::default(),
        }
    }
}

/// Runs once: creates the revision that the extension asks for, and updates the status from its revisions.
pub(crate) async fn reconcile(controller: Arc<Controller>, name: String) -> Outcome {
    let context = &controller.context;
    let Some(extension) = context.extension(&name) else {
        controller.states.lock().remove(&name);
        context.forget(&name);
        return Outcome::Done;
    };
    if context.unreadable.contains::<ClusterExtension>(&name) {
        // Its last read version may not be what the user wants now. The log names the fault.
        return Outcome::Done;
    }
    context.counters.begin(&name);
    let states = controller.states.lock().remove(&name);
    let uid = &extension.metadata.uid;
    let mut states = states.filter(|states| states.uid == *uid).unwrap_or_default();
    states.uid.clone_from(uid);
    let unreadable = uid.as_deref().and_then(|uid| context.sets.unreadable_of(uid));
    let outcome = if let Some(unreadable) = unreadable {
        wait_for(context, &extension, &unreadable).await
    } else if extension.is_deleting() {
        context.bundles.forget(&name);
        delete::delete(context, &extension, &mut states.delete).await
    } else {
        install(context, extension, &mut states).await
    };
    controller.states.lock().insert(name, states);
    outcome
}

/// Reports a revision that cannot be read. Nothing is planned until it can be read; its change starts another run.
async fn wait_for(context: &Context, extension: &Arc<ClusterExtension>, unreadable: &Unreadable) -> Outcome {
    let failure = StageFailure {
        severity: Severity::Waiting,
        reason: reason::RETRYING,
        message: format!("{unreadable}; nothing is installed, updated or removed until it can be read"),
        help: None,
        held_back_by: held_back::OTHER,
    };
    context
        .joint_updates
        .conclude(extension.name(), Some(failure.first_line()));
    let written = report::failed(context, extension, &failure).await;
    unless_stale("write the status", extension.name(), written, Outcome::Done)
}

/// Installs the extension's bundle and reports the progress.
async fn install(context: &Context, extension: Arc<ClusterExtension>, states: &mut StageStates) -> Outcome {
    let begun = Instant::now();
    // Teardown records of earlier revisions do not belong to a later deletion.
    if let Some(uid) = &extension.metadata.uid {
        context.teardown_records.take(uid);
    }
    if let Some(action) = prepare::finalizers(&extension) {
        let checked = Checked::preparation(vec![action]);
        let written = act(context, &extension, checked, &mut states.act).await;
        let written = written.map(drop).map_err(ActError::into_api);
        return match written {
            Err(Ok(error)) => unless_stale("add finalizers", extension.name(), Err(error), Outcome::Done),
            Ok(()) => Outcome::Done,
            Err(Err(_)) => Outcome::Failed,
        };
    }
    let observed = match prepared(context, &extension, states).await {
        Ok(Some(observed)) => observed,
        Ok(None) => return Outcome::After(AT_ONCE),
        Err(failure) => {
            let awaits_others = failure.severity == Severity::Waiting;
            context
                .joint_updates
                .awaits_others(extension.name(), awaits_others);
            context.joint_updates.conclude(extension.name(), None);
            let outcome = states.retry.after(Some(failure.severity), false, begun.elapsed());
            let written = report::failed(context, &extension, &failure).await;
            return unless_stale("write the status", extension.name(), written, outcome);
        }
    };
    let run = match run(context, &observed, states).await {
        Ok(run) => run,
        Err(pause) => return Outcome::After(pause),
    };
    let severity = run.progress.severity();
    if let Some(outcome) = states.retry.brief(severity, Instant::now()) {
        return outcome;
    }
    let awaits_others = run.held.is_some() || severity == Some(Severity::Waiting);
    context
        .joint_updates
        .awaits_others(extension.name(), awaits_others);
    let again = run.verification.again();
    let is_unannounced = run.held.is_some()
        || run.warnings.is_some()
        || run.waits.is_some()
        || again.is_some_and(|pause| pause < UNANNOUNCED);
    let outcome = match (
        states.retry.after(severity, is_unannounced, begun.elapsed()),
        again,
    ) {
        (Outcome::Done, Some(pause)) => Outcome::After(pause),
        (outcome, _) => outcome,
    };
    let outcome = run.opens.map_or(outcome, |opens| {
        let left = opens.duration_since(Timestamp::now());
        retry::at_the_latest(outcome, left.try_into().unwrap_or(AT_ONCE))
    });
    let has_failed = states.act.take_failed_write();
    let outcome = states.retry.unless_written(has_failed, outcome, begun.elapsed());
    let written = report(context, &observed, &run).await;
    // After the status, which requires the extension as it was seen.
    states.act.record(context, &extension).await;
    unless_stale("write the status", extension.name(), written, outcome)
}

/// Reads the state of the extension; `None` after a preparation. Then the next run continues.
async fn prepared(
    context: &Context,
    extension: &Arc<ClusterExtension>,
    states: &mut StageStates,
) -> Result<Option<Observed>, StageFailure> {
    let observed = observe(context, Arc::clone(extension)).await?;
    let release = observed.release.as_ref();
    let others = release.map(|_| context.others(extension)).unwrap_or_default();
    let actions = prepare::prepare(&observed, &others, &context.system_namespace)?;
    if actions.is_empty() {
        return Ok(Some(observed));
    }
    act(context, extension, Checked::preparation(actions), &mut states.act).await?;
    Ok(None)
}

/// All stages after the observation. The error is the pause before the next run, with nothing to report yet.
async fn run(context: &Context, observed: &Observed, states: &mut StageStates) -> Result<Report, Duration> {
    let Resolution {
        target,
        deprecations,
        problem,
        silent,
        held,
        updates,
        vanished,
    } = resolve_and_count(context, observed).await;
    let vanished = void_without_bundle(&vanished, &observed.revisions, Timestamp::now());
    let what = "write the status of a PendingChange";
    if attempt(context, &observed.extension, vanished, what, states).await {
        return Err(DECIDE_AGAIN);
    }
    let former = prepare::tidy(&observed.revisions, states.act.operator_conditions());
    let what = "remove OperatorConditions of former bundles";
    attempt(
        context,
        &observed.extension,
        former.into_iter().collect(),
        what,
        states,
    )
    .await;
    if let Err(failure) = &target
        && ends_changes(failure)
    {
        settle_changes(context, observed, &failure.first_line(), states).await;
    }
    let chosen = target.as_ref().ok();
    let is_update = chosen.is_some_and(|target| approval::is_satisfied(observed, target));
    let origin = chosen.map(|target| target.origin);
    let applied = apply_unless_paused(context, observed, target, states).await;
    // While an image is pulled, nothing has been tried.
    let was_tried = match &applied {
        Ok(applied) => applied.is_complete(),
        Err(failure) => failure.severity != Severity::Pulling,
    };
    if was_tried {
        // If a revision has changed meanwhile, its event starts another run.
        let paused = prepare::resumed(&observed.extension, &context.revisions(observed.extension.name()));
        attempt(
            context,
            &observed.extension,
            paused,
            "lift the pause of a revision",
            states,
        )
        .await;
    }
    let (opens, waits) = match &applied {
        Ok(Applied::Held(held)) => (held.opens, is_update.then(|| held.clone())),
        _ => (None, None),
    };
    conclude(context, observed, origin, &applied, waits.as_ref());
    if let Ok(Applied::ConditionRefused(name)) = &applied {
        states.bundle.refuse_condition(name.clone());
    }
    let progress = Progress::of(applied, problem, silent, waits.is_some())?;
    let warnings = match &progress {
        Progress::Applied { .. } | Progress::Silent(_) => states.bundle.warnings(context).await,
        Progress::Failed(_) => None,
    };
    let verification = states.bundle.verify(context, observed).await;
    Ok(Report {
        kind: progress.event_kind(observed.is_paused()),
        is_paused: observed.is_paused(),
        progress,
        deprecations,
        held,
        updates,
        waits,
        opens,
        warnings,
        verification,
    })
}

/// Resolves, and counts the resolution.
async fn resolve_and_count(context: &Context, observed: &Observed) -> Resolution {
    let begun = Instant::now();
    let resolution = resolve(context, observed).await;
    let outcome = match &resolution.target {
        Ok(_) => ResolutionOutcome::Succeeded,
        Err(_) => ResolutionOutcome::Failed,
    };
    context.counters.resolved(outcome, begun.elapsed());
    resolution
}

/// Executes actions on which nothing else depends. The next run retries what failed. Returns whether there were any, and
/// all were executed.
async fn attempt(
    context: &Context,
    extension: &Arc<ClusterExtension>,
    actions: Vec<Action>,
    what: &'static str,
    states: &mut StageStates,
) -> bool {
    if actions.is_empty() {
        return false;
    }
    let result = act(context, extension, Checked::preparation(actions), &mut states.act).await;
    if let Err(error) = &result {
        states.act.note_failed_write(extension, error, what);
    }
    result.is_ok()
}

/// Applies the target, unless the settings are invalid or the extension is paused.
async fn apply_unless_paused(
    context: &Context,
    observed: &Observed,
    target: Result<Target, StageFailure>,
    states: &mut StageStates,
) -> Result<Applied, StageFailure> {
    let settings = match &observed.settings {
        Err(failure) => return Err(failure.clone().and(target.err())),
        Ok(_) if observed.is_paused() => return Err(paused(observed.extension.name())),
        Ok(settings) => settings,
    };
    let target = target?;
    let chosen = target.clone();
    let resolved = Resolved {
        observed,
        settings,
        target,
    };
    let applied = Box::pin(apply(context, resolved, states)).await;
    applied.map_err(|failure| {
        if failure.severity == Severity::Pulling {
            return failure;
        }
        let bundle = &chosen.bundle.metadata;
        retry_if_tagged(failure, &chosen).with_bundle(&bundle.name, &bundle.version)
    })
}

/// Records how the run ended for other extensions: those with the same package, and those that are updated along.
/// `waits` is an update that has to wait.
fn conclude(
    context: &Context,
    observed: &Observed,
    origin: Option<Origin>,
    applied: &Result<Applied, StageFailure>,
    waits: Option<&approval::HeldChange>,
) {
    let extension = observed.extension.name();
    let blocker = applied.as_ref().err();
    let waiting = match applied {
        Ok(Applied::Held(held)) if waits.is_none() => Some(held.failure()),
        _ => None,
    };
    context.claims.conclude(extension, waiting.as_ref().or(blocker));
    // The result is unknown until the image is here.
    if blocker.is_none_or(|failure| failure.severity != Severity::Pulling) {
        let is_candidate = origin == Some(Origin::Catalog) && !observed.is_paused();
        let blocker = blocker.filter(|_| is_candidate || observed.settings.is_err());
        context
            .joint_updates
            .conclude(extension, blocker.map(StageFailure::first_line));
    }
}

/// The stages from a chosen bundle to a written revision.
async fn apply(
    context: &Context,
    resolved: Resolved<'_>,
    states: &mut StageStates,
) -> Result<Applied, StageFailure> {
    let observed = resolved.observed;
    let extension = &observed.extension;
    let rendered = match render(context, resolved, &mut states.bundle).await {
        Ok(Some(rendered)) => rendered,
        Ok(None) => {
            record_changes(context, observed, &DesiredChange::Nothing(NOTHING_WAITS), states).await?;
            return Ok(Applied::default());
        }
        Err(failure) => {
            if ends_changes(&failure) {
                settle_changes(context, observed, &failure.first_line(), states).await;
            }
            return Err(failure);
        }
    };
    let plan = plan(rendered, &context.others(extension), &context.system_namespace)?;
    let creates = matches!(plan.revision, RevisionPlan::Create(_));
    let companions = plan.rendered.resolved.target.companions.clone();
    let proposal = approval::propose(context, &plan).await?;
    let held = proposal
        .as_ref()
        .and_then(|proposal| proposal.held(extension.name()));
    if let Some(proposal) = &proposal {
        // Whatever the result of the checks, no other change is wanted any more.
        record_changes(context, observed, &DesiredChange::Change(proposal, None), states).await?;
    }
    let mut checked = check(context, plan, states.act.migrated(), proposal.as_ref()).await?;
    if let (Some(proposal), Some(held)) = (&proposal, held) {
        let wanted = DesiredChange::Change(proposal, Some(&held));
        record_changes(context, observed, &wanted, states).await?;
        return Ok(Applied::Held(held));
    }
    if creates
        && !(approval::confirm(context, observed, proposal.as_ref()).await?
            && approval::confirm_companions(context, &companions).await?)
    {
        return Ok(Applied::Outdated);
    }
    match &proposal {
        Some(proposal) => checked.approve(proposal),
        None => record_changes(context, observed, &DesiredChange::Nothing(NOTHING_WAITS), states).await?,
    }
    // The checks take time. Another extension may have the better claim by now.
    claim_package(context, extension)?;
    if checked.creates() {
        context
            .joint_updates
            .begin(extension.name(), &companions, Timestamp::now());
    }
    let applied = act(context, extension, checked, &mut states.act).await?;
    if let Applied::Done(done) = &applied {
        states.bundle.settle(done.settled.clone());
        done.announce(context, extension);
    }
    Ok(applied)
}

/// Updates the PendingChanges of an extension.
async fn record_changes(
    context: &Context,
    observed: &Observed,
    wanted: &DesiredChange<'_>,
    states: &mut StageStates,
) -> Result<(), ActError> {
    let (extension, all) = (
        &observed.extension,
        context.pending_changes(observed.extension.name()),
    );
    if all.is_empty() && matches!(wanted, DesiredChange::Nothing(_)) {
        return Ok(());
    }
    let actions = records(extension, &all, &observed.revisions, wanted, Timestamp::now());
    if actions.is_empty() {
        return Ok(());
    }
    act(context, extension, Checked::preparation(actions), &mut states.act)
        .await
        .map(drop)
}

/// Whether the failure means that the extension wants no change any more. A catalog that does not answer does not.
fn ends_changes(failure: &StageFailure) -> bool {
    matches!(failure.severity, Severity::Waiting | Severity::Terminal)
        && failure.held_back_by != held_back::CATALOG
}

/// Marks PendingChanges as void. The next run retries failed writes.
async fn settle_changes(context: &Context, observed: &Observed, why: &str, states: &mut StageStates) {
    let recorded = record_changes(context, observed, &DesiredChange::Nothing(why), states).await;
    if let Err(error) = recorded {
        let action = "write the status of a PendingChange";
        states.act.note_failed_write(&observed.extension, &error, action);
    }
}

/// The report of a paused extension.
fn paused(extension: &str) -> StageFailure {
    StageFailure {
        severity: Severity::Terminal,
        reason: reason::BLOCKED,
        message: format!(
            "paused by the annotation {}: nothing is applied; to resume: `{}`",
            user::PAUSED,
            annotate(Annotated::Extension(extension), user::PAUSED, None)
        ),
        help: None,
        held_back_by: held_back::PAUSED,
    }
}
