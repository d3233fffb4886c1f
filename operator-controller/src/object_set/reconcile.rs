//! One run over one ClusterObjectSet: from what it says to what its status says.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use kube::Client;
use olm_api::{
    ClusterObjectSet,
    cluster_object_set::{LifecycleState, ObservedPhase},
    command::{Annotated, annotate},
    conditions, names,
};

use olm_rollout::{
    certificates::layout,
    content::{self, Content, ContentError},
    engine::rollout::{Mode, Report, RolloutEnd, Settings},
    failure::{Failure, FailureKind},
    object::ObjectId,
    outline::{Outline, Owner, Sibling},
    phases::Phases,
    policy::{Policy, Uninstall},
    probe, report,
    status::{self, Deadline, Facts, Verdict},
    validate,
};

use super::{
    acting::identify,
    controller::{Context, extension_uid},
    executor::Executor,
    gather::{self, GatherError},
    memory::Memory,
    records, removal, rights,
};
use crate::certificates::choose;
use olm_cluster::{
    identity::AccountName,
    watch::{Coverage, number},
};

/// When an error that a user must mend is looked at again.
const LATER: Duration = Duration::from_secs(10);
/// When missing rights and accounts are looked at again.
pub(super) const RIGHTS: Duration = Duration::from_secs(15);
/// When the record itself has changed under our hands.
const STALE: Duration = Duration::from_millis(200);
/// When a set is looked at again of which nobody may watch some objects: while it rolls out, and later.
const UNWATCHED: [Duration; 2] = [Duration::from_secs(5), Duration::from_mins(2)];
/// When a set that nothing happens to is looked at again: rights may be gone, and some objects nobody may watch.
pub(super) const RESYNC: Duration = Duration::from_mins(10);

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// When something changes.
    OnChange,
    /// After this time, or when something changes.
    After(Duration),
    /// Soon, and each time later.
    Backoff,
}

/// What a run came to.
#[derive(Debug)]
pub(super) struct Conclusion {
    /// What the conditions are to say; `None` leaves the status alone.
    pub(super) verdict: Option<Verdict>,
    pub(super) again: Again,
    /// A Secret with content does not exist.
    pub(super) lost: bool,
}

impl Conclusion {
    pub(super) fn new(verdict: Verdict, again: Again) -> Self {
        Self {
            verdict: Some(verdict),
            again,
            lost: false,
        }
    }

    pub(super) fn retrying(message: impl Into<String>, again: Again) -> Self {
        Self::new(Verdict::Retrying(message.into()), again)
    }

    /// The same with another message, where the verdict has one.
    pub(super) fn reworded(mut self, reword: impl Fn(&str) -> String) -> Self {
        self.verdict = self.verdict.map(|verdict| match verdict {
            Verdict::Blocked(message) => Verdict::Blocked(reword(&message)),
            Verdict::Paused(message) => Verdict::Paused(reword(&message)),
            Verdict::Retrying(message) => Verdict::Retrying(reword(&message)),
            Verdict::Removing(message) => Verdict::Removing(reword(&message)),
            other => other,
        });
        self
    }

    pub(super) fn silent(again: Again) -> Self {
        Self {
            verdict: None,
            again,
            lost: false,
        }
    }
}

/// Runs once. The set is as the cache holds it.
pub async fn reconcile(context: &Context, set: &ClusterObjectSet, memory: &mut Memory) -> Again {
    let mut set = set.clone();
    memory.renew(set.metadata.uid.as_deref().unwrap_or_default(), probes_mark(&set));
    if number(set.metadata.resource_version.as_deref().unwrap_or_default()) < memory.written {
        // The cache has not seen our own last write yet.
        return Again::After(memory.lag());
    }
    memory.behind = 0;
    if memory.ended {
        // The cache still shows what is gone, or what others hold.
        return Again::OnChange;
    }
    let conclusion = if set.is_deleting() {
        removal::delete(context, &mut set, memory).await
    } else {
        keep(context, &mut set, memory).await
    };
    let again = match conclusion {
        Ok(Conclusion {
            verdict: None, again, ..
        }) => again,
        Ok(Conclusion {
            verdict: Some(verdict),
            again,
            ..
        }) => match tell(context, &mut set, memory, &verdict, again).await {
            Ok(again) => again,
            Err(error) => own_error(&set, &error),
        },
        Err(error) => own_error(&set, &error),
    };
    memory.written = memory.written.max(number(
        set.metadata.resource_version.as_deref().unwrap_or_default(),
    ));
    again
}

/// Differs when the probes differ.
fn probes_mark(set: &ClusterObjectSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(&set.spec.progression_probes)
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

/// A record of ours could not be written.
fn own_error(set: &ClusterObjectSet, error: &kube::Error) -> Again {
    match error {
        kube::Error::Api(status) if status.code == 409 => Again::After(STALE),
        kube::Error::Api(status) if status.code == 404 => Again::OnChange,
        _ => {
            tracing::warn!(set = set.name(), %error, "cannot write the record");
            Again::Backoff
        }
    }
}

/// Writes the status and says when to look again, which may be sooner because of the deadline.
async fn tell(
    context: &Context,
    set: &mut ClusterObjectSet,
    memory: &Memory,
    verdict: &Verdict,
    again: Again,
) -> Result<Again, kube::Error> {
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
    let facts = Facts {
        generation: set.generation(),
        version: set
            .annotation(names::annotation::BUNDLE_VERSION)
            .unwrap_or_default()
            .to_owned(),
        deadline,
    };
    let conditions = status::after(set.conditions(), verdict, &facts, now);
    let succeeded = conditions::is_true(&conditions, conditions::SUCCEEDED);
    let before = set
        .status
        .as_ref()
        .map(|status| status.observed_phases.clone())
        .unwrap_or_default();
    let observed: Vec<ObservedPhase> = match &memory.phases {
        Some(phases) if before.is_empty() => phases.observed.clone(),
        _ => before,
    };
    records::status(&context.own, set, conditions, observed).await?;
    let left = deadline
        .filter(|_| !succeeded)
        .map(|deadline| deadline.remaining(now))
        .filter(|left| !left.is_zero());
    Ok(match (again, left) {
        (Again::After(delay), Some(left)) => Again::After(delay.min(left)),
        (Again::OnChange, Some(left)) => Again::After(left),
        (again, _) => again,
    })
}

/// A run over a set that is to exist.
async fn keep(
    context: &Context,
    set: &mut ClusterObjectSet,
    memory: &mut Memory,
) -> Result<Conclusion, kube::Error> {
    let archived = set.spec.lifecycle_state == LifecycleState::Archived;
    if archived && status::is_archived(set.conditions()) {
        context.watches.forget(set.name());
        records::finalizers(
            &context.own,
            set,
            &[],
            &[names::finalizer::TEARDOWN, records::ORPHAN],
        )
        .await?;
        return Ok(Conclusion::silent(Again::OnChange));
    }
    let policy = match Policy::of(set) {
        Ok(policy) => policy,
        Err(error) => {
            let message = format!("{error}; nothing is applied, repaired or removed until that is mended");
            return Ok(Conclusion::new(Verdict::Blocked(message), Again::OnChange));
        }
    };
    if let Some(unreadable) = context.sets.unreadable_sibling(set) {
        let message = format!("{unreadable}; nothing is applied or removed until it can be read");
        return Ok(Conclusion::retrying(message, Again::OnChange));
    }
    if archived {
        return Ok(removal::archive(context, set, memory, policy).await);
    }
    let actor = match identify(context, set).await {
        Ok(actor) => actor,
        Err(nobody) => return Ok(nobody.conclusion()),
    };
    let phases = match load(context, set, memory, Some(&actor.client)).await {
        Ok(phases) => phases,
        Err(conclusion) => return Ok(conclusion),
    };
    if let Err(error) = check_observed(set, memory) {
        return Ok(Conclusion::new(Verdict::Blocked(error), Again::OnChange));
    }
    let outline = outline(context, set, &phases);
    let faults = memory
        .content
        .as_ref()
        .and_then(|c| validate::faults(set.name(), set.spec.revision, c));
    if let Some(faults) = faults {
        return Ok(Conclusion::retrying(
            format!("revision validation error: {faults}"),
            Again::After(LATER),
        ));
    }
    if let Err(error) = probe::check(&set.spec.progression_probes) {
        return Ok(Conclusion::retrying(error.to_string(), Again::OnChange));
    }
    let (add, remove): (&[&str], &[&str]) = match policy.uninstall {
        Uninstall::Orphan => (&[names::finalizer::TEARDOWN, records::ORPHAN], &[]),
        Uninstall::Delete | Uninstall::KeepCrds => (&[names::finalizer::TEARDOWN], &[records::ORPHAN]),
    };
    if records::has_finalizer(set, names::finalizer::TEARDOWN) {
        records::finalizers(&context.own, set, add, remove).await?;
    }
    let rights = rights::missing(context, &actor, &outline, memory.content.as_deref()).await;
    match rights {
        Ok(None) => {}
        Ok(Some(missing)) => return Ok(Conclusion::retrying(missing, Again::After(RIGHTS))),
        Err(error) => return Ok(Conclusion::retrying(error.to_string(), Again::Backoff)),
    }
    // Until now nothing was written: a set that never had the rights is deleted without them.
    records::finalizers(&context.own, set, add, remove).await?;
    let coverage = match rights::watch(context, set.name(), Some(&actor), &outline).await {
        Ok(coverage) => coverage,
        Err(error) => {
            return Ok(Conclusion::retrying(
                format!("establish watch: {error}"),
                Again::Backoff,
            ));
        }
    };
    let report = match roll_out(context, set, memory, policy, &actor.client, &outline, &coverage).await {
        Ok(report) => report,
        Err(conclusion) => return Ok(conclusion),
    };
    conclude(context, set, memory, &actor.account, &outline, report).await
}

/// The phases, with their bodies in the memory when they had to be read.
pub(super) async fn load(
    context: &Context,
    set: &ClusterObjectSet,
    memory: &mut Memory,
    account: Option<&Client>,
) -> Result<Arc<Phases>, Conclusion> {
    if let Some(phases) = &memory.phases {
        return Ok(Arc::clone(phases));
    }
    let all = read(context, set, account).await?;
    let phases = Arc::new(Phases::of(&all));
    memory.phases = Some(Arc::clone(&phases));
    memory.content = Some(Arc::new(all));
    Ok(phases)
}

/// The bodies.
async fn read(
    context: &Context,
    set: &ClusterObjectSet,
    account: Option<&Client>,
) -> Result<Content, Conclusion> {
    let system_namespace = &context.options.system_namespace;
    let secrets = match gather::secrets(set, system_namespace, &context.own, account).await {
        Ok(secrets) => secrets,
        Err(error @ GatherError::TooMuch(_)) => {
            return Err(Conclusion::retrying(error.to_string(), Again::After(RESYNC)));
        }
        Err(error) => return Err(Conclusion::retrying(error.to_string(), Again::Backoff)),
    };
    let resolved = content::resolve(&set.spec, &secrets, system_namespace).map(|mut content| {
        if choose::are_ours(set) {
            layout::complete(set.spec.collision_protection, &mut content);
        }
        content
    });
    resolved.map_err(|error| match &error {
        ContentError::Mutable(_) => {
            Conclusion::new(Verdict::Blocked(error.to_string()), Again::After(RIGHTS))
        }
        ContentError::TooMuch { .. } => Conclusion::retrying(error.to_string(), Again::After(RESYNC)),
        _ => Conclusion {
            lost: matches!(error, ContentError::MissingSecret { .. }),
            ..Conclusion::retrying(error.to_string(), Again::After(LATER))
        },
    })
}

/// Whether the phases that were read are those that were first seen.
pub(super) fn check_observed(set: &ClusterObjectSet, memory: &Memory) -> Result<(), String> {
    let Some(phases) = &memory.phases else {
        return Ok(());
    };
    let observed = set
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.observed_phases);
    content::check_observed(observed, &phases.observed).map_err(|error| error.to_string())
}

pub(super) fn outline(context: &Context, set: &ClusterObjectSet, phases: &Phases) -> Outline {
    let owner = Owner {
        name: set.name().to_owned(),
        uid: set.metadata.uid.clone().unwrap_or_default(),
        revision: set.spec.revision,
        owner_name: set.label(names::label::OWNER_NAME).unwrap_or_default().to_owned(),
        extension: extension_uid(set).unwrap_or_default().to_owned(),
        migrated: set.label(names::label::MIGRATED_FROM_HELM).is_some(),
    };
    let others = context.sets.siblings(set);
    let siblings = others.iter().map(|sibling| Sibling {
        name: sibling.name().to_owned(),
        uid: sibling.metadata.uid.clone().unwrap_or_default(),
        revision: sibling.spec.revision,
    });
    let mut outline = phases.outline(owner, siblings.collect());
    let provider = |set: &ClusterObjectSet| {
        set.annotation(names::annotation::CERTIFICATE_PROVIDER)
            .map(str::to_owned)
    };
    // What another provider issued for a revision before lies under the same name, and nobody deletes it before this one
    // works.
    let own = provider(set);
    if others
        .iter()
        .filter_map(|other| provider(other))
        .any(|other| Some(other) != own)
    {
        let secrets = phases.certificates.secrets();
        secrets.for_each(|place| outline.inherit(place));
    }
    outline
}

/// The bodies, read again when they were dropped.
async fn bodies(
    context: &Context,
    set: &ClusterObjectSet,
    memory: &mut Memory,
    client: &Client,
) -> Result<Arc<Content>, Conclusion> {
    if let Some(content) = &memory.content {
        return Ok(Arc::clone(content));
    }
    let all = Arc::new(read(context, set, Some(client)).await?);
    let changed = memory
        .phases
        .as_ref()
        .is_some_and(|phases| phases.observed != all.observed_phases());
    if changed {
        // The next run finds out what has changed, and says so.
        memory.phases = None;
        return Err(Conclusion::silent(Again::After(Duration::ZERO)));
    }
    memory.content = Some(Arc::clone(&all));
    Ok(all)
}

async fn roll_out(
    context: &Context,
    set: &ClusterObjectSet,
    memory: &mut Memory,
    policy: Policy,
    client: &Client,
    outline: &Outline,
    coverage: &Coverage,
) -> Result<Report, Conclusion> {
    let succeeded = conditions::is_true(set.conditions(), conditions::SUCCEEDED);
    if succeeded && let Some(wait) = memory.calming(Instant::now()) {
        return Err(Conclusion::silent(Again::After(wait)));
    }
    let settings = Settings {
        mode: if succeeded { Mode::KeepUp } else { Mode::RollOut },
        writes: policy.writes,
        missing_kinds: policy.missing_kinds,
        accepted: memory.accepted.clone(),
    };
    let mut at_hand = memory.content.clone();
    let report = loop {
        let mut executor = Executor {
            client,
            discovery: &context.discovery,
            coverage,
            outline,
            content: at_hand.as_deref(),
            probes: &set.spec.progression_probes,
            memory,
            starved: AtomicBool::new(false),
            unwatched: AtomicBool::new(false),
        };
        let report = executor.roll_out(settings.clone()).await;
        let (starved, unwatched) = (executor.starved.into_inner(), executor.unwatched.into_inner());
        memory.unwatched = unwatched;
        // Usually nothing has changed, and the bodies were not needed.
        if at_hand.is_some() || !starved {
            break report;
        }
        at_hand = Some(bodies(context, set, memory, client).await?);
    };
    if succeeded && report.written > 0 {
        tracing::info!(set = set.name(), objects = report.written, "repaired");
        memory.repaired(Instant::now());
    }
    memory.accepted.clone_from(&report.accepted);
    Ok(report)
}

/// What the end of a rollout means.
async fn conclude(
    context: &Context,
    set: &mut ClusterObjectSet,
    memory: &mut Memory,
    account: &AccountName,
    outline: &Outline,
    report: Report,
) -> Result<Conclusion, kube::Error> {
    memory.misses_kinds = !report.skipped.is_empty();
    let skipped = report::skipped(&report.skipped);
    let [soon, later] = if memory.unwatched {
        UNWATCHED
    } else {
        [RESYNC, RESYNC]
    };
    Ok(match report.end {
        RolloutEnd::Complete if report.handed_over > 0 => {
            memory.content = None;
            Conclusion::new(Verdict::HandingOver, Again::After(later))
        }
        RolloutEnd::Complete => {
            memory.content = None;
            let complete = Verdict::Complete { skipped };
            let mut older = context.sets.siblings(set);
            older.retain(|sibling| {
                sibling.spec.revision < set.spec.revision
                    && sibling.spec.lifecycle_state == LifecycleState::Active
                    && !sibling.is_deleting()
            });
            if !older.is_empty() {
                // Whoever looks must find this one complete before none is active that was.
                tell(context, set, memory, &complete, Again::OnChange).await?;
            }
            for sibling in older {
                if let Err(error) = records::archive(&context.own, &sibling).await {
                    return Ok(Conclusion::retrying(
                        format!("archive previous Revision: {error}"),
                        Again::Backoff,
                    ));
                }
            }
            Conclusion::new(complete, Again::After(later))
        }
        RolloutEnd::Incomplete(not_ready) => {
            let lines = not_ready.iter().map(report::not_ready).collect();
            Conclusion::new(Verdict::RollingOut(lines), Again::After(soon))
        }
        RolloutEnd::Collisions { phase, objects } => Conclusion::retrying(
            report::collisions(outline.phase(phase), outline, &objects),
            Again::After(LATER),
        ),
        RolloutEnd::Paused(objects) => {
            let list: Vec<String> = objects.iter().map(ToString::to_string).collect();
            let message = format!(
                "paused by the annotation {} (to go on: `{}`); to be applied: {}",
                names::user::PAUSED,
                annotate(Annotated::of(set), names::user::PAUSED, None),
                list.join(", ")
            );
            Conclusion::new(Verdict::Paused(message), Again::After(RESYNC))
        }
        RolloutEnd::Failed { phase, failures } => {
            memory.misses_kinds |= failures
                .iter()
                .any(|(_, failure)| failure.kind == FailureKind::UnknownKind);
            let again = retry(context, account, &failures);
            Conclusion::retrying(report::failures(outline.phase(phase), &failures), again)
        }
    })
}

pub(super) fn retry(context: &Context, account: &AccountName, failures: &[(ObjectId, Failure)]) -> Again {
    match report::gravest(failures) {
        Some(FailureKind::Forbidden) => {
            context.reviews.forget(account);
            Again::After(RIGHTS)
        }
        Some(FailureKind::UnknownKind | FailureKind::MissingNamespace | FailureKind::Invalid) => {
            Again::After(LATER)
        }
        Some(FailureKind::Conflict) => Again::After(Duration::from_secs(1)),
        Some(FailureKind::Transient) | None => Again::Backoff,
    }
}
