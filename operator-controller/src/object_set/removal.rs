//! The teardown of a revision that is archived or being deleted.

mod abandon;
mod remaining;
mod successor;

use std::{collections::BTreeSet, time::Duration};

use kube::{Api, core::ObjectMeta};
use olm_api::text::counted;
use olm_api::{
    ClusterExtension, ClusterObjectSet,
    cluster_extension::controlling_extension,
    cluster_object_set::LifecycleState,
    command::{Annotated, annotate},
    names,
};
use olm_cluster::watch::Freshness;
use olm_platform::log::chain;
use olm_platform::queue::Outcome;
use olm_rollout::{
    engine::teardown::{RetainedObjects, TeardownEnd},
    failure::{FailureKind, RequestFailure},
    object::ObjectId,
    outline::{Outline, Owner},
    policy::{Policy, Uninstall},
    report,
    status::{self, RevisionState},
    teardown_record::{TeardownRecord, kept},
};

use super::{
    acting::{AccountFailure, Actor, account, identify_for_removal},
    conclusion::{RESYNC, RIGHTS, RunConclusion},
    context::Context,
    executor::Executor,
    observe::load::{check_observed, load, outline},
    records, rights,
    state::SetState,
};
use abandon::{Abandoned, abandoned};
use remaining::left;
use successor::{Successor, successor};

/// The pause until objects that are being deleted are checked again. Watches are quicker.
const LOOK: Duration = Duration::from_secs(5);
/// The consequence of a foreground deletion.
const IN_FOREGROUND: &str =
    "foreground deletion: Kubernetes deletes the owned objects at the same time, in its own order";

/// The inputs of a teardown.
struct Teardown<'a> {
    context: &'a Context,
    set: &'a ClusterObjectSet,
    actor: &'a Actor,
    outline: &'a Outline,
    /// The objects that are not deleted.
    retained: RetainedObjects,
}

/// A run over an archived set that still has objects.
pub(super) async fn archive(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
    policy: Policy,
) -> RunConclusion {
    let (actor, outline) = match prepare(context, set, set_state).await {
        Ok((Ok(actor), outline)) => (actor, outline),
        Ok((Err(no_actor), outline)) => {
            let left = left(context, set, set_state, &outline).await;
            let reported =
                |message: &str| format!("error archiving revision: {message}{}", may_be_left(&left));
            let mut conclusion = no_actor.conclusion().reworded(reported);
            if policy.uninstall == Uninstall::Orphan && no_actor.is_gone() {
                // All objects stay anyway. Only our references must be removed, which is not urgent.
                conclusion.outcome = Outcome::After(RESYNC);
            }
            return conclusion;
        }
        Err(conclusion) => return conclusion,
    };
    if let Err(error) = check_observed(set, set_state) {
        return RunConclusion::blocked(error, Outcome::Done);
    }
    let work = Teardown {
        context,
        set,
        actor: &actor,
        outline: &outline,
        retained: RetainedObjects {
            kept: kept(policy.uninstall, &outline),
            held: BTreeSet::new(),
        },
    };
    match take_down(work, set_state).await {
        TeardownEnd::Complete => RunConclusion::new(RevisionState::Archived, Outcome::After(Duration::ZERO)),
        TeardownEnd::Waiting { .. } | TeardownEnd::Held(_) => {
            RunConclusion::new(RevisionState::Archiving, Outcome::After(LOOK))
        }
        TeardownEnd::Failed { phase, failures } => {
            let failed = report::failures(outline.phase(phase), &failures);
            let message = format!("error archiving revision: {failed}");
            RunConclusion::failed(context, &actor.account, &failures, message)
        }
    }
}

/// The account of the teardown and the content of the set, which is known even if the account cannot be used.
async fn prepare(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
) -> Result<(Result<Actor, AccountFailure>, Outline), RunConclusion> {
    let actor = identify_for_removal(context, set).await;
    let client = actor.as_ref().ok().map(|actor| &actor.client);
    match load(context, set, set_state, client).await {
        Ok(phases) => Ok((actor, outline(context, set, &phases))),
        Err(conclusion) => Err(match actor {
            Err(no_actor) if !conclusion.lost => no_actor.conclusion(),
            _ => conclusion,
        }),
    }
}

async fn take_down(work: Teardown<'_>, set_state: &mut SetState) -> TeardownEnd {
    let Teardown {
        context,
        set,
        actor,
        outline,
        retained,
    } = work;
    // Without watches the teardown only takes longer.
    let coverage = rights::watch(context, set.name(), Some(actor), outline, Freshness::Live)
        .await
        .unwrap_or_default();
    let discovery = &context.discovery;
    let mut executor = Executor::new(&actor.client, discovery, &coverage, outline, set_state);
    executor.take_down(retained).await
}

/// The metadata of the extension that controls a set, if it exists.
async fn live_extension(
    context: &Context,
    set: &ClusterObjectSet,
) -> Result<Option<ObjectMeta>, kube::Error> {
    let Some(uid) = controlling_extension(&set.metadata) else {
        return Ok(None);
    };
    let mut owners = set.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.find(|owner| owner.uid == uid) else {
        return Ok(None);
    };
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let found = extensions.get_metadata_opt(&owner.name).await?;
    let found = found.filter(|found| found.metadata.uid.as_deref() == Some(uid));
    Ok(found.map(|found| found.metadata))
}

/// The progress of a teardown.
enum Removal {
    /// No object of ours is left.
    Done,
    /// The user wants to keep everything, and only Kubernetes itself can remove our references from the objects.
    LetGo,
    /// No account can delete these objects. The set owns them, and Kubernetes collects objects without an owner.
    Collected(Vec<ObjectId>),
    /// Objects are left.
    NotYet(RunConclusion),
}

/// A run over a set that is being deleted.
pub(super) async fn delete(
    context: &Context,
    set: &mut ClusterObjectSet,
    set_state: &mut SetState,
) -> Result<RunConclusion, kube::Error> {
    if !records::has_finalizer(set, names::finalizer::TEARDOWN) {
        context.watches.forget(set.name());
        return Ok(RunConclusion::silent(Outcome::Done));
    }
    set_state.teardown.in_foreground |= records::has_finalizer(set, records::FOREGROUND);
    // Nothing was left to tear down, or Kubernetes itself releases the objects.
    let ended = set.spec.lifecycle_state == LifecycleState::Archived && status::is_archived(set.conditions());
    let mut collected = Vec::new();
    if !ended && !records::has_finalizer(set, records::ORPHAN) {
        match remove(context, set, set_state).await {
            Removal::Done => {}
            Removal::Collected(objects) => {
                let objects_left = report::short_names(&objects);
                tracing::warn!(
                    set = set.name(),
                    objects_left,
                    "leaving objects to the garbage collector"
                );
                collected = objects;
            }
            Removal::LetGo => {
                tracing::info!(set = set.name(), "leaving the objects behind");
                records::orphan(&context.own, set).await?;
                if !records::has_finalizer(set, records::ORPHAN) {
                    // Without orphaning, the objects would be collected.
                    let message = "the API server refuses to orphan the objects";
                    return Ok(RunConclusion::retrying(message, Outcome::Failed));
                }
            }
            Removal::NotYet(conclusion) if records::has_finalizer(set, records::FOREGROUND) => {
                // The message may have several lines.
                return Ok(conclusion.reworded(|message| format!("{IN_FOREGROUND}; {message}")));
            }
            Removal::NotYet(conclusion) => return Ok(conclusion),
        }
    }
    context.watches.forget(set.name());
    if !ended {
        record_teardown(context, set, set_state, collected);
    }
    records::finalizers(&context.own, set, &[], &[names::finalizer::TEARDOWN]).await?;
    set_state.teardown.ended = true;
    Ok(RunConclusion::silent(Outcome::Done))
}

/// Records the teardown of an extension's revision.
fn record_teardown(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &SetState,
    collected: Vec<ObjectId>,
) {
    let policy = if records::has_finalizer(set, records::ORPHAN) {
        Uninstall::Orphan
    } else {
        Policy::of(set).unwrap_or_default().uninstall
    };
    if let (Some(extension), Some(phases)) = (controlling_extension(&set.metadata), &set_state.loaded.phases)
    {
        let outline = phases.outline(Owner::default(), Vec::new());
        let going = |position| {
            let known = set_state.objects.known.get(&position);
            known.is_some_and(|known| known.seen.ownership.deleting.is_some())
        };
        let mut record = TeardownRecord::of(&outline, policy, &set_state.teardown.gone, going);
        record.in_foreground = set_state.teardown.in_foreground;
        record.collect(collected);
        context.teardown_records.note(extension, set.name(), record);
    }
}

async fn remove(context: &Context, set: &ClusterObjectSet, set_state: &mut SetState) -> Removal {
    let policy = match Policy::of(set) {
        Ok(policy) => policy,
        Err(error) => {
            let message = format!("{error}; nothing is removed until the annotation is fixed");
            return Removal::NotYet(RunConclusion::blocked(message, Outcome::Done));
        }
    };
    let orphan = policy.uninstall == Uninstall::Orphan;
    let successor = match successor(context, set).await {
        Ok(Successor::None) => None,
        Ok(Successor::NextRevision(extension)) => Some(extension),
        Ok(Successor::Undecided(extension)) => {
            let state = RevisionState::Removing(undecided(&extension));
            return Removal::NotYet(RunConclusion::new(state, Outcome::After(LOOK)));
        }
        Err(error) => {
            let message = format!(
                "cannot determine whether the ClusterExtension exists: {}",
                chain(&error)
            );
            return Removal::NotYet(RunConclusion::retrying(message, Outcome::Failed));
        }
    };
    let (actor, outline) = match prepare(context, set, set_state).await {
        Ok((Ok(actor), outline)) => (actor, outline),
        Ok((Err(no_actor), _)) if orphan && !no_actor.is_transient() => return Removal::LetGo,
        Err(_) if orphan => return Removal::LetGo,
        Ok((Err(no_actor), outline)) => {
            let has_successor = successor.is_some();
            return without_account(context, set, set_state, &outline, &no_actor, has_successor).await;
        }
        Err(conclusion)
            if conclusion.lost && successor.is_none() && policy.uninstall == Uninstall::Delete =>
        {
            // A foreground deletion deletes the Secrets first. Kubernetes deletes the objects too, in its own order.
            tracing::warn!(
                set = set.name(),
                "the content is gone; leaving the objects to the garbage collector"
            );
            return Removal::Done;
        }
        Err(conclusion) => return Removal::NotYet(explain(conclusion, set, &[])),
    };
    let work = Teardown {
        context,
        set,
        actor: &actor,
        outline: &outline,
        retained: retained(policy.uninstall, successor.is_some(), &outline),
    };
    match take_down(work, set_state).await {
        TeardownEnd::Complete => Removal::Done,
        TeardownEnd::Held(objects) => {
            let message = held(&successor.unwrap_or_default(), &objects);
            let state = RevisionState::Removing(message);
            Removal::NotYet(RunConclusion::new(state, Outcome::After(LOOK)))
        }
        TeardownEnd::Waiting { objects, .. } => {
            let message = format!("removing objects; waiting for {}", report::remaining(&objects));
            let state = RevisionState::Removing(message);
            Removal::NotYet(RunConclusion::new(state, Outcome::After(LOOK)))
        }
        TeardownEnd::Failed { failures, .. } if orphan && refused(&failures) => Removal::LetGo,
        TeardownEnd::Failed { phase, failures } => {
            let message = report::failures(outline.phase(phase), &failures);
            let conclusion = RunConclusion::failed(context, &actor.account, &failures, message);
            let left: Vec<ObjectId> = outline
                .all_positions()
                .filter(|position| !set_state.teardown.gone.contains(position))
                .map(|position| outline.id(position))
                .collect();
            let forbidden = failures
                .iter()
                .any(|(_, failure)| failure.kind == FailureKind::Forbidden);
            let lacking = if forbidden {
                rights::missing_for_removal(context, set.name(), &actor, &outline).await
            } else {
                None
            };
            Removal::NotYet(with(explain(conclusion, set, &left), lacking))
        }
    }
}

/// A run over a set whose account cannot be used.
async fn without_account(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
    outline: &Outline,
    no_actor: &AccountFailure,
    has_successor: bool,
) -> Removal {
    let left = left(context, set, set_state, outline).await;
    if left.is_empty() {
        return Removal::Done;
    }
    let abandoned = if no_actor.is_gone() && !has_successor {
        abandoned(context, set).await
    } else {
        Abandoned::No
    };
    if let Abandoned::Now(uninstall) = abandoned {
        return abandon(context, set, set_state, outline, left, uninstall);
    }
    let mut reported = explain(no_actor.conclusion(), set, &left);
    if let Abandoned::After(rest, _) = abandoned {
        reported = with(reported, abandoned.text());
        reported.outcome = Outcome::After(rest.min(RIGHTS));
    }
    let gone = account(context, set).ok().filter(|_| no_actor.is_gone());
    let needed = gone.map(|account| rights::needed_for_removal(context, &account, set.name()));
    Removal::NotYet(with(reported, needed))
}

/// Abandons objects that no account can delete. Objects in the account's namespace are deleted with it.
fn abandon(
    context: &Context,
    set: &ClusterObjectSet,
    set_state: &mut SetState,
    outline: &Outline,
    mut left: Vec<ObjectId>,
    uninstall: Uninstall,
) -> Removal {
    if let Ok(account) = account(context, set) {
        left.retain(|id| id.namespace != account.namespace);
    }
    let gone = outline
        .all_positions()
        .filter(|position| !left.contains(&outline.id(*position)));
    set_state.teardown.gone.extend(gone);
    match uninstall {
        Uninstall::Delete => Removal::Collected(left),
        // Kubernetes would collect CRDs, too.
        Uninstall::KeepCrds | Uninstall::Orphan => Removal::LetGo,
    }
}

/// The objects of a revision that are not deleted with it.
fn retained(uninstall: Uninstall, has_successor: bool, outline: &Outline) -> RetainedObjects {
    if has_successor && uninstall != Uninstall::Orphan {
        return RetainedObjects {
            held: outline.custom_resources(),
            ..RetainedObjects::default()
        };
    }
    RetainedObjects {
        kept: kept(uninstall, outline),
        ..RetainedObjects::default()
    }
}

/// The message while the user may still change the uninstall policy of an extension that is being deleted.
fn undecided(extension: &str) -> String {
    format!(
        "waiting for ClusterExtension {extension}, which is being deleted and has not begun to remove objects; its condition \
         Ready says why"
    )
}

/// The message about objects that the next revision of an extension takes over.
fn held(extension: &str, objects: &[ObjectId]) -> String {
    format!(
        "Removed all objects except custom resource definitions and custom resources. These stay with their data until the next \
         revision of ClusterExtension {extension} takes them over; its condition Ready shows what that waits for. \
         Remaining: {}",
        report::names(objects)
    )
}

/// The conclusion with an additional message.
fn with(conclusion: RunConclusion, more: Option<String>) -> RunConclusion {
    match more {
        Some(more) => conclusion.reworded(|message| format!("{message}\n{more}")),
        None => conclusion,
    }
}

/// Whether a retry under the account is useless.
fn refused(failures: &[(ObjectId, RequestFailure)]) -> bool {
    failures
        .iter()
        .any(|(_, failure)| matches!(failure.kind, FailureKind::Forbidden | FailureKind::Invalid))
}

/// Adds the objects that may be left when a set cannot be torn down and, for a set without an extension, the command
/// that releases them.
fn explain(conclusion: RunConclusion, set: &ClusterObjectSet, left: &[ObjectId]) -> RunConclusion {
    let or = if controlling_extension(&set.metadata).is_some() {
        String::new()
    } else {
        let command = annotate(Annotated::of(set), names::user::UNINSTALL, Some("orphan"));
        format!("; to keep them, run `{command}`")
    };
    let left = may_be_left(left);
    conclusion.reworded(|message| {
        format!(
            "cannot remove the objects of this revision: {message}{left}; removal continues once that is fixed{or}"
        )
    })
}

fn may_be_left(left: &[ObjectId]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let count = counted(left.len(), "object");
    format!("; {count} may be left: {}", report::names(left))
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::ClusterObjectSetSpec;

    use super::*;
    use olm_rollout::outline::{Definition, ObjectPosition, OutlineObject, OutlinePhase};

    #[test]
    fn definitions_stay_for_an_extension_that_continues() {
        let object = |kind: &str| OutlineObject {
            id: ObjectId {
                group: "x.io".to_owned(),
                kind: kind.to_owned(),
                ..ObjectId::default()
            },
            ..OutlineObject::default()
        };
        let position = |object| ObjectPosition { phase: 0, object };
        let outline = Outline {
            phases: vec![OutlinePhase {
                name: "deploy".to_owned(),
                objects: vec![object("Definition"), object("Greeting"), object("Other")],
            }],
            definitions: vec![Definition {
                position: position(0),
                group: "x.io".to_owned(),
                kind: "Greeting".to_owned(),
            }],
            ..Outline::default()
        };
        let custom = [position(0), position(1)];
        for (uninstall, has_successor, kept, held) in [
            (Uninstall::Delete, false, &[][..], &[][..]),
            (Uninstall::Delete, true, &[], &custom),
            (Uninstall::KeepCrds, false, &custom, &[]),
            (Uninstall::KeepCrds, true, &[], &custom),
            (
                Uninstall::Orphan,
                true,
                &[position(0), position(1), position(2)],
                &[],
            ),
        ] {
            let found = retained(uninstall, has_successor, &outline);
            let expected = [kept, held].map(|positions| positions.iter().copied().collect::<BTreeSet<_>>());
            assert_eq!(
                [found.kept, found.held],
                expected,
                "{uninstall:?} {has_successor}"
            );
        }
    }

    #[test]
    fn objects_that_cannot_be_removed_are_named_with_reason_and_remedies() {
        let id = ObjectId {
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            ..ObjectId::default()
        };
        let conclusion = RunConclusion::retrying("no account", Outcome::Done);
        let set = ClusterObjectSet::new("greeter-1", ClusterObjectSetSpec::default());
        assert_eq!(
            explain(conclusion, &set, &[id]).state,
            Some(RevisionState::Retrying(
                "cannot remove the objects of this revision: no account; 1 object may be left: ConfigMap.v1 n/a; \
                 removal continues once that is fixed; to keep them, run `kubectl annotate clusterobjectset \
                 greeter-1 --overwrite olm.operatorframework.io/uninstall=orphan`"
                    .to_owned()
            ))
        );
    }
}
