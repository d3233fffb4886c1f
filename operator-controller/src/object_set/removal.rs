//! Taking a revision down: because it is archived, or because it is being deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::PartialObjectMeta;
use olm_api::{
    ClusterExtension, ClusterObjectSet,
    cluster_object_set::LifecycleState,
    command::{Annotated, annotate},
    conditions, names,
};
use olm_platform::log::chain;

use olm_rollout::{
    engine::teardown::{Lasting, TeardownEnd},
    failure::{Failure, FailureKind},
    object::ObjectId,
    outline::{Outline, Owner},
    policy::{Policy, Uninstall},
    report,
    status::{self, Verdict},
    teardown_record::{TeardownRecord, kept},
};

use super::{
    acting::{Actor, account, identify_for_removal},
    controller::{Context, extension_uid},
    executor::Executor,
    memory::Memory,
    reconcile::{Again, Conclusion, RESYNC, check_observed, load, outline, retry},
    records, rights,
};
use olm_cluster::{discover::Scope, identity::is_name};

/// When objects that are being deleted are looked at again; watches are quicker.
const LOOK: Duration = Duration::from_secs(5);
/// What a foreground deletion means.
const IN_FOREGROUND: &str =
    "the deletion is in the foreground: Kubernetes deletes what is owned at the same time, in its own order";

/// What is taken down, and how.
struct Work<'a> {
    context: &'a Context,
    set: &'a ClusterObjectSet,
    actor: &'a Actor,
    outline: &'a Outline,
    /// The objects that are not deleted.
    lasting: Lasting,
}

/// A run over an archived set that still has objects.
pub(super) async fn archive(
    context: &Context,
    set: &ClusterObjectSet,
    memory: &mut Memory,
    policy: Policy,
) -> Conclusion {
    let (actor, outline) = match prepare(context, set, memory).await {
        Ok((Ok(actor), outline)) => (actor, outline),
        Ok((Err(nobody), outline)) => {
            let left = left(context, set, memory, &outline).await;
            let told = |message: &str| format!("error archiving revision: {message}{}", may_be_left(&left));
            let mut conclusion = nobody.conclusion().reworded(told);
            if policy.uninstall == Uninstall::Orphan && nobody.is_gone() {
                // All objects stay anyway; only our references are to be taken off, and that may take its time.
                conclusion.again = Again::After(RESYNC);
            }
            return conclusion;
        }
        Err(conclusion) => return conclusion,
    };
    if let Err(error) = check_observed(set, memory) {
        return Conclusion::new(Verdict::Blocked(error), Again::OnChange);
    }
    let work = Work {
        context,
        set,
        actor: &actor,
        outline: &outline,
        lasting: Lasting {
            kept: kept(policy.uninstall, &outline),
            held: BTreeSet::new(),
        },
    };
    match take_down(work, memory).await {
        TeardownEnd::Complete => Conclusion::new(Verdict::Archived, Again::After(Duration::ZERO)),
        TeardownEnd::Waiting { .. } | TeardownEnd::Held(_) => {
            Conclusion::new(Verdict::Archiving, Again::After(LOOK))
        }
        TeardownEnd::Failed { phase, failures } => {
            let failed = report::failures(outline.phase(phase), &failures);
            let message = format!("error archiving revision: {failed}");
            Conclusion::retrying(message, retry(context, &actor.account, &failures))
        }
    }
}

/// As whom the set is taken down, and what it holds; which is known also when nobody can be acted as.
async fn prepare(
    context: &Context,
    set: &ClusterObjectSet,
    memory: &mut Memory,
) -> Result<(Result<Actor, super::acting::Nobody>, Outline), Conclusion> {
    let actor = identify_for_removal(context, set).await;
    let client = actor.as_ref().ok().map(|actor| &actor.client);
    match load(context, set, memory, client).await {
        Ok(phases) => Ok((actor, outline(context, set, &phases))),
        Err(conclusion) => Err(match actor {
            Err(nobody) if !conclusion.lost => nobody.conclusion(),
            _ => conclusion,
        }),
    }
}

async fn take_down(work: Work<'_>, memory: &mut Memory) -> TeardownEnd {
    let Work {
        context,
        set,
        actor,
        outline,
        lasting,
    } = work;
    // Without watches it only takes longer.
    let coverage = rights::watch(context, set.name(), Some(actor), outline)
        .await
        .unwrap_or_default();
    let mut executor = Executor {
        client: &actor.client,
        discovery: &context.discovery,
        coverage: &coverage,
        outline,
        content: None,
        probes: &[],
        memory,
        starved: AtomicBool::new(false),
        unwatched: AtomicBool::new(false),
    };
    executor.take_down(lasting).await
}

/// How far a removal has come.
enum Removal {
    /// Nothing that is ours is left.
    Done,
    /// The user wants everything left behind, and nobody but Kubernetes itself can take our references off the objects.
    LetGo,
    /// Objects are left.
    NotYet(Conclusion),
}

/// A run over a set that is being deleted.
pub(super) async fn delete(
    context: &Context,
    set: &mut ClusterObjectSet,
    memory: &mut Memory,
) -> Result<Conclusion, kube::Error> {
    if !records::has_finalizer(set, names::finalizer::TEARDOWN) {
        context.watches.forget(set.name());
        return Ok(Conclusion::silent(Again::OnChange));
    }
    memory.in_foreground |= records::has_finalizer(set, records::FOREGROUND);
    // Nothing was left to take down, or Kubernetes itself lets the objects go.
    let ended = set.spec.lifecycle_state == LifecycleState::Archived && status::is_archived(set.conditions());
    if !ended && !records::has_finalizer(set, records::ORPHAN) {
        match remove(context, set, memory).await {
            Removal::Done => {}
            Removal::LetGo => {
                tracing::info!(set = set.name(), "leaving the objects behind");
                records::orphan(&context.own, set).await?;
                if !records::has_finalizer(set, records::ORPHAN) {
                    // Without it, the objects would be collected.
                    let message = "the API server does not let the objects be left behind";
                    return Ok(Conclusion::retrying(message, Again::Backoff));
                }
            }
            Removal::NotYet(conclusion) if records::has_finalizer(set, records::FOREGROUND) => {
                // What is said may end with roles to be applied.
                return Ok(conclusion.reworded(|message| format!("{IN_FOREGROUND}; {message}")));
            }
            Removal::NotYet(conclusion) => return Ok(conclusion),
        }
    }
    context.watches.forget(set.name());
    if !ended {
        note_fate(context, set, memory);
    }
    records::finalizers(&context.own, set, &[], &[names::finalizer::TEARDOWN]).await?;
    memory.ended = true;
    Ok(Conclusion::silent(Again::OnChange))
}

/// Notes what became of the objects of an extension's revision.
fn note_fate(context: &Context, set: &ClusterObjectSet, memory: &Memory) {
    let policy = if records::has_finalizer(set, records::ORPHAN) {
        Uninstall::Orphan
    } else {
        Policy::of(set).unwrap_or_default().uninstall
    };
    if let (Some(extension), Some(phases)) = (extension_uid(set), &memory.phases) {
        let outline = phases.outline(Owner::default(), Vec::new());
        let going = |place| {
            let known = memory.known.get(&place);
            known.is_some_and(|known| known.seen.ownership.deleting.is_some())
        };
        let mut record = TeardownRecord::of(&outline, policy, &memory.gone, going);
        record.in_foreground = memory.in_foreground;
        context.fates.note(extension, set.name(), record);
    }
}

async fn remove(context: &Context, set: &ClusterObjectSet, memory: &mut Memory) -> Removal {
    let policy = match Policy::of(set) {
        Ok(policy) => policy,
        Err(error) => {
            let verdict = Verdict::Blocked(format!("{error}; nothing is removed until that is mended"));
            return Removal::NotYet(Conclusion::new(verdict, Again::OnChange));
        }
    };
    let orphan = policy.uninstall == Uninstall::Orphan;
    let heir = match heir(context, set).await {
        Ok(Heir::Nobody) => None,
        Ok(Heir::GoesOn(extension)) => Some(extension),
        Ok(Heir::Undecided(extension)) => {
            let message = format!(
                "ClusterExtension {extension} is being deleted, too, and has not begun to remove anything; what keeps it from \
                 that is said there"
            );
            return Removal::NotYet(Conclusion::new(Verdict::Removing(message), Again::After(LOOK)));
        }
        Err(error) => {
            let message = format!(
                "cannot tell whether the ClusterExtension is there: {}",
                chain(&error)
            );
            return Removal::NotYet(Conclusion::retrying(message, Again::Backoff));
        }
    };
    let (actor, outline) = match prepare(context, set, memory).await {
        Ok((Ok(actor), outline)) => (actor, outline),
        Ok((Err(nobody), _)) if orphan && !nobody.is_transient() => return Removal::LetGo,
        Err(_) if orphan => return Removal::LetGo,
        Ok((Err(nobody), outline)) => {
            let left = left(context, set, memory, &outline).await;
            if left.is_empty() {
                return Removal::Done;
            }
            let told = explain(nobody.conclusion(), set, &left);
            let needed = if nobody.is_gone() {
                needed(context, set, memory, &outline).await
            } else {
                None
            };
            return Removal::NotYet(with(told, needed));
        }
        Err(conclusion) if conclusion.lost && heir.is_none() && policy.uninstall == Uninstall::Delete => {
            // A foreground deletion takes the Secrets first. Kubernetes deletes the objects too, in its own order.
            tracing::warn!(
                set = set.name(),
                "the content is gone; leaving the objects to the garbage collector"
            );
            return Removal::Done;
        }
        Err(conclusion) => return Removal::NotYet(explain(conclusion, set, &[])),
    };
    let work = Work {
        context,
        set,
        actor: &actor,
        outline: &outline,
        lasting: lasting(policy.uninstall, heir.is_some(), &outline),
    };
    match take_down(work, memory).await {
        TeardownEnd::Complete => Removal::Done,
        TeardownEnd::Held(objects) => {
            let message = held(heir.unwrap_or_default(), &objects);
            let verdict = Verdict::Removing(message);
            Removal::NotYet(Conclusion::new(verdict, Again::After(LOOK)))
        }
        TeardownEnd::Waiting { objects, .. } => {
            let message = format!("removing objects; waiting for {}", report::remaining(&objects));
            let verdict = Verdict::Removing(message);
            Removal::NotYet(Conclusion::new(verdict, Again::After(LOOK)))
        }
        TeardownEnd::Failed { failures, .. } if orphan && refused(&failures) => Removal::LetGo,
        TeardownEnd::Failed { phase, failures } => {
            let message = report::failures(outline.phase(phase), &failures);
            let again = retry(context, &actor.account, &failures);
            let conclusion = Conclusion::retrying(message, again);
            let left: Vec<ObjectId> = outline
                .all_places()
                .filter(|place| !memory.gone.contains(place))
                .map(|place| outline.id(place))
                .collect();
            let forbidden = failures
                .iter()
                .any(|(_, failure)| failure.kind == FailureKind::Forbidden);
            let lacking = if forbidden {
                rights::missing_for_removal(context, &actor, &outline).await
            } else {
                None
            };
            Removal::NotYet(with(explain(conclusion, set, &left), lacking))
        }
    }
}

/// The extension of a revision that is being deleted.
enum Heir<'a> {
    /// It is gone, or has all it needs, or takes the revision down.
    Nobody,
    /// It goes on without this revision.
    GoesOn(&'a str),
    /// It is being deleted, but may be held, and what is to stay may still be said.
    Undecided(&'a str),
}

/// Who needs what a revision holds, as long as no later one is complete: with the definitions that this one brought would go
/// everything that users have stored, and the extension's next revision needs them anyway.
async fn heir<'a>(context: &Context, set: &'a ClusterObjectSet) -> Result<Heir<'a>, kube::Error> {
    let owners = set.metadata.owner_references.iter().flatten();
    let Some(owner) = extension_uid(set).and_then(|uid| owners.into_iter().find(|owner| owner.uid == uid))
    else {
        return Ok(Heir::Nobody);
    };
    if set.spec.lifecycle_state == LifecycleState::Archived
        || set.annotation(names::annotation::UNINSTALLING).is_some()
        || context
            .sets
            .siblings(set)
            .iter()
            .any(|other| supersedes(other, set))
    {
        return Ok(Heir::Nobody);
    }
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let found = extensions.get_metadata_opt(&owner.name).await?;
    let same =
        |found: &PartialObjectMeta<ClusterExtension>| found.metadata.uid.as_deref() == Some(&owner.uid);
    let Some(found) = found.filter(same) else {
        return Ok(Heir::Nobody);
    };
    let to_be_taken_down = |finalizer: &String| finalizer == names::finalizer::CLEANUP_CONTENT_MANAGER_CACHE;
    Ok(if found.metadata.deletion_timestamp.is_none() {
        Heir::GoesOn(&owner.name)
    } else if found.metadata.finalizers.iter().flatten().any(to_be_taken_down) {
        Heir::Undecided(&owner.name)
    } else {
        Heir::Nobody
    })
}

/// Whether a later revision is complete, so that it has everything that it wants.
fn supersedes(other: &ClusterObjectSet, set: &ClusterObjectSet) -> bool {
    other.spec.revision > set.spec.revision
        && other.spec.lifecycle_state == LifecycleState::Active
        && !other.is_deleting()
        && conditions::is_true(other.conditions(), conditions::SUCCEEDED)
}

/// The objects of a revision that are not deleted with it.
fn lasting(uninstall: Uninstall, has_heir: bool, outline: &Outline) -> Lasting {
    if has_heir && uninstall != Uninstall::Orphan {
        return Lasting {
            held: outline.custom_resources(),
            ..Lasting::default()
        };
    }
    Lasting {
        kept: kept(uninstall, outline),
        ..Lasting::default()
    }
}

/// What is said of objects that the next revision of an extension is to take over.
fn held(extension: &str, objects: &[ObjectId]) -> String {
    format!(
        "removed all objects but custom resource definitions and custom resources, which stay with all that users have stored \
         until the next revision of ClusterExtension {extension} has taken them over; what keeps that from being made is said \
         there; left are {}",
        report::names(objects)
    )
}

/// The same, and what else is to be told.
fn with(conclusion: Conclusion, more: Option<String>) -> Conclusion {
    match more {
        Some(more) => conclusion.reworded(|message| format!("{message}\n{more}")),
        None => conclusion,
    }
}

/// What the account needs beside itself, for all that will be asked about under it: it reads what was in its own namespace,
/// which comes back with it, and what is elsewhere unless that is gone for good.
async fn needed(
    context: &Context,
    set: &ClusterObjectSet,
    memory: &Memory,
    outline: &Outline,
) -> Option<String> {
    let account = account(context, set).ok()?;
    let mut namespaces = Namespaces::default();
    let mut ids = Vec::new();
    for place in outline.all_places().filter(|place| !memory.gone.contains(place)) {
        let id = outline.id(place);
        if id.namespace.is_empty()
            || id.namespace == account.namespace
            || namespaces.has(context, &id.namespace).await
        {
            ids.push(id);
        }
    }
    rights::needed_for_removal(context, &account, outline.owner.extension_name(), &ids).await
}

/// Which namespaces there are; each is asked about once.
#[derive(Default)]
struct Namespaces(BTreeMap<String, bool>);

impl Namespaces {
    /// Whether a namespace may exist.
    async fn has(&mut self, context: &Context, namespace: &str) -> bool {
        if let Some(known) = self.0.get(namespace) {
            return *known;
        }
        let api: Api<Namespace> = Api::all(context.own.clone());
        let found = !is_name(namespace) || !matches!(api.get_metadata_opt(namespace).await, Ok(None));
        self.0.insert(namespace.to_owned(), found);
        found
    }
}

/// Whether the account will not get further by trying again.
fn refused(failures: &[(ObjectId, Failure)]) -> bool {
    failures
        .iter()
        .any(|(_, failure)| matches!(failure.kind, FailureKind::Forbidden | FailureKind::Invalid))
}

/// The objects that may be left when nobody can be acted as, so far as the controller sees that by itself: an object
/// whose namespace is gone is not, nor is one that a watch does not show as ours.
async fn left(
    context: &Context,
    set: &ClusterObjectSet,
    memory: &Memory,
    outline: &Outline,
) -> Vec<ObjectId> {
    let coverage = rights::watch(context, set.name(), None, outline)
        .await
        .unwrap_or_default();
    let asked = Instant::now();
    let mut namespaces = Namespaces::default();
    let mut left = Vec::new();
    for place in outline.all_places().filter(|place| !memory.gone.contains(place)) {
        let id = outline.id(place);
        let found = context
            .discovery
            .find_since(&id.group, &id.version, &id.kind, asked);
        match found.await {
            Ok(None) => continue,
            Ok(Some(resource)) => {
                if coverage.owns(set.name(), &resource, &id.namespace, &id.name) == Some(false) {
                    continue;
                }
                if resource.scope == Scope::Namespaced && !namespaces.has(context, &id.namespace).await {
                    continue;
                }
            }
            Err(error) => tracing::debug!(%error, object = %id, "cannot tell whether its kind is served"),
        }
        left.push(id);
    }
    left
}

/// Says what may be left when a set cannot be taken down, and what the user can do; of a set that something controls,
/// that is said there.
fn explain(conclusion: Conclusion, set: &ClusterObjectSet, left: &[ObjectId]) -> Conclusion {
    let or = if extension_uid(set).is_some() {
        String::new()
    } else {
        let command = annotate(Annotated::of(set), names::user::UNINSTALL, Some("orphan"));
        format!("; to leave them behind: {command}")
    };
    let left = may_be_left(left);
    conclusion.reworded(|message| {
        format!(
            "cannot remove the objects of this revision: {message}{left}; removal goes on once that is mended{or}"
        )
    })
}

fn may_be_left(left: &[ObjectId]) -> String {
    if left.is_empty() {
        return String::new();
    }
    format!("; {} object(s) may be left: {}", left.len(), report::names(left))
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::ClusterObjectSetSpec;

    use super::*;
    use olm_rollout::outline::{Definition, OutlineObject, OutlinePhase, Place};

    #[test]
    fn definitions_stay_for_an_extension_that_goes_on() {
        let object = |kind: &str| OutlineObject {
            id: ObjectId {
                group: "x.io".to_owned(),
                kind: kind.to_owned(),
                ..ObjectId::default()
            },
            ..OutlineObject::default()
        };
        let place = |object| Place { phase: 0, object };
        let outline = Outline {
            phases: vec![OutlinePhase {
                name: "deploy".to_owned(),
                objects: vec![object("Definition"), object("Pot"), object("Other")],
            }],
            definitions: vec![Definition {
                place: place(0),
                group: "x.io".to_owned(),
                kind: "Pot".to_owned(),
            }],
            ..Outline::default()
        };
        let custom = [place(0), place(1)];
        for (uninstall, has_heir, kept, held) in [
            (Uninstall::Delete, false, &[][..], &[][..]),
            (Uninstall::Delete, true, &[], &custom),
            (Uninstall::KeepCrds, false, &custom, &[]),
            (Uninstall::KeepCrds, true, &[], &custom),
            (Uninstall::Orphan, true, &[place(0), place(1), place(2)], &[]),
        ] {
            let found = lasting(uninstall, has_heir, &outline);
            let expected = [kept, held].map(|places| places.iter().copied().collect::<BTreeSet<_>>());
            assert_eq!([found.kept, found.held], expected, "{uninstall:?} {has_heir}");
        }
    }

    #[test]
    fn what_cannot_be_removed_is_named_with_the_reason_and_the_ways_out() {
        let id = ObjectId {
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            ..ObjectId::default()
        };
        let conclusion = Conclusion::retrying("no account", Again::OnChange);
        let set = ClusterObjectSet::new("pot", ClusterObjectSetSpec::default());
        assert_eq!(
            explain(conclusion, &set, &[id]).verdict,
            Some(Verdict::Retrying(
                "cannot remove the objects of this revision: no account; 1 object(s) may be left: ConfigMap.v1 n/a; \
                 removal goes on once that is mended; to leave them behind: kubectl annotate clusterobjectset pot --overwrite \
                 olm.operatorframework.io/uninstall=orphan"
                    .to_owned()
            ))
        );
    }
}
