//! Deletion: the revisions go first, each taking its objects down, then the extension.

pub mod data_loss;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, ListParams, PropagationPolicy};
use kube::core::PartialObjectMeta;
use olm_api::cluster_extension::{ClusterExtensionStatus, controlling_extension};
use olm_api::command::{Annotated, annotate};
use olm_api::conditions::{
    self, AVAILABLE, PROGRESSING, Report, Status, bounded_message, reason, set_condition,
};
use olm_api::names::{label, user};
use olm_api::{ClusterExtension, ClusterObjectSet, Condition};
use olm_platform::log::chain;
use olm_platform::queue::Outcome;

use crate::conditions::records;
use crate::extension::act::adopt;
use crate::extension::act::finalizers;
use crate::extension::act::write;
use crate::extension::context::Context;
use crate::extension::failure::StageError as _;
use crate::extension::observe::account;
use crate::extension::observe::revisions::{Revisions, disturbed, removing};
use crate::extension::reconcile::write_status;
use crate::extension::report::events;
use crate::extension::report::events::Tone;
use crate::extension::report::status::mirror;
use crate::extension::resolve::inventory;
use crate::object_set::engine::{ObjectId, report};
use crate::object_set::fate::Fate;
use crate::object_set::policy::{Policy, Uninstall};
use crate::object_set::records::{ORPHAN, has_finalizer};

/// How long until it is looked again whether the revisions are gone; their deletion is also watched.
const AGAIN: Duration = Duration::from_secs(10);
/// How long until a newer version of the extension is here.
const STALE: Duration = Duration::from_millis(200);

/// Takes an extension down.
pub async fn uninstall(context: &Context, extension: &ClusterExtension) -> Outcome {
    match take_down(context, extension).await {
        Ok(outcome) => outcome,
        // The extension changed meanwhile, perhaps by our own last write.
        Err(kube::Error::Api(status)) if status.code == 409 => Outcome::After(STALE),
        Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Done,
        Err(error) => {
            tracing::warn!(
                extension = extension.name(),
                error = &error as &dyn std::error::Error,
                "cannot uninstall yet"
            );
            Outcome::Failed
        }
    }
}

async fn take_down(context: &Context, extension: &ClusterExtension) -> Result<Outcome, kube::Error> {
    let Some(rest) = finalizers::without_ours(extension) else {
        return Ok(Outcome::Done);
    };
    let orphaned = extension
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|name| name == ORPHAN);
    if orphaned {
        finalizers::write(&context.client, extension, &rest).await?;
        tell_gone(
            context,
            extension,
            "Left all revisions on the cluster, with their objects",
        );
        return Ok(Outcome::Done);
    }
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let left = context.revisions(extension.name());
    if left.all().is_empty() {
        return finish(context, extension, &sets, &rest).await;
    }
    let policy = match Policy::read(|key| extension.annotation(key)) {
        Ok(policy) => policy,
        Err(error) => {
            let why = error.to_string();
            return tell_of(context, extension, &left, (reason::BLOCKED, &why, Tone::Fault)).await;
        }
    };
    // What has begun is finished; a revision that was deleted before the extension is no part of that.
    let since = extension.metadata.deletion_timestamp.as_ref();
    let has_begun = |set: &ClusterObjectSet| set.metadata.deletion_timestamp.as_ref() >= since;
    if !left.all().iter().any(|set| set.is_deleting() && has_begun(set)) {
        let needed = inventory::needed_by_others(context, extension, &left, policy.uninstall).await;
        let held = match needed {
            Ok(held) => held.map(|held| (reason::BLOCKED, held)),
            Err(error) => Some((error.reason(), chain(&error))),
        };
        if let Some((reason, held)) = held {
            context.memorise(extension.name(), |memory| memory.awaits_others = true);
            return tell_of(context, extension, &left, (reason, &held, Tone::Fault)).await;
        }
        if context.remember(extension.name()).announced != Some(policy.uninstall) {
            return announce(context, extension, &left, policy.uninstall).await;
        }
    }
    if let Ok(account) = account::choose(extension, context.default_account.as_ref())
        && let Err(error) = write::name_account(&context.client, &account, &left).await
    {
        tracing::debug!(
            extension = extension.name(),
            error = chain(&error),
            "cannot name the account"
        );
    }
    if policy.uninstall != Uninstall::Delete && entangled(&left) {
        let why = entanglement(extension);
        return tell_of(context, extension, &left, (reason::BLOCKED, &why, Tone::Fault)).await;
    }
    if policy.uninstall != Uninstall::Delete
        && !left.all().iter().any(|set| is_untouched(set))
        && let Err(error) = adopt::forget(context, extension).await
    {
        let why = bounded_message(&chain(&error));
        return tell_of(context, extension, &left, (reason::RETRYING, &why, Tone::Fault)).await;
    }
    for set in left.all() {
        // An account that is gone for good: what the user decides late must count, too.
        let changed = write::inherit(&sets, extension, set).await?;
        let set = changed.as_ref().unwrap_or(set);
        let orphan = policy.uninstall == Uninstall::Orphan;
        if !set.is_deleting() || (orphan && !has_finalizer(set, ORPHAN)) {
            let propagation = if orphan {
                PropagationPolicy::Orphan
            } else {
                PropagationPolicy::Background
            };
            write::delete(&sets, set, propagation).await?;
        }
    }
    let mut more = Vec::new();
    let told = told(&left);
    if told.iter().any(|line| line.contains(data_loss::CLEANUP)) {
        more.extend(data_loss::held(context, extension, &left).await);
    }
    if policy.uninstall == Uninstall::Delete {
        more.extend(context.remember(extension.name()).losses);
    }
    let message = waiting(extension.name(), &left, &told, more);
    let tone = if told.is_empty() {
        Tone::Silent
    } else if left.all().iter().any(|set| in_trouble(set)) {
        Tone::Fault
    } else {
        Tone::Part(events::UNINSTALLING)
    };
    tell_of(context, extension, &left, (reason::RETRYING, &message, tone)).await
}

/// Lets an extension go that has no revisions any more.
async fn finish(
    context: &Context,
    extension: &ClusterExtension,
    sets: &Api<ClusterObjectSet>,
    rest: &[String],
) -> Result<Outcome, kube::Error> {
    // What the watch says may be old; the last step looks at the live list.
    let labelled = ListParams::default().labels(&format!("{}={}", label::OWNER_NAME, extension.name()));
    let uid = extension.metadata.uid.as_deref();
    let ours = |set: &PartialObjectMeta<ClusterObjectSet>| {
        uid.is_some() && controlling_extension(&set.metadata) == uid
    };
    if sets.list_metadata(&labelled).await?.items.iter().any(ours) {
        return Ok(Outcome::After(Duration::from_secs(1)));
    }
    if let Some(why) = unrevised(context, extension).await {
        return tell(context, extension, (reason::BLOCKED, &why, Tone::Fault)).await;
    }
    remove_secrets(context, extension.name()).await?;
    records::remove(&context.client, extension).await?;
    finalizers::write(&context.client, extension, rest).await?;
    let fates = uid.map(|uid| context.fates.take(uid)).unwrap_or_default();
    let announced = context.remember(extension.name()).announced;
    tell_gone(context, extension, &gone(extension, announced, &fates));
    Ok(Outcome::Done)
}

/// Says as the last word on an extension what became of its objects.
fn tell_gone(context: &Context, extension: &ClusterExtension, note: &str) {
    let told = vec![events::said(events::UNINSTALLED, note)];
    context.events.publish(extension.object_ref(&()), told);
    context.forget(extension.name());
}

/// What became of the objects of an extension without revisions: what was done counts, not only what was asked for in the
/// end. `announced` is what was to be left when the deletion began, as far as that is known.
fn gone(extension: &ClusterExtension, announced: Option<Uninstall>, fates: &[Fate]) -> String {
    let was_there = extension
        .status
        .as_ref()
        .is_some_and(|status| status.install.is_some() || !status.active_revisions.is_empty());
    let policy = Policy::read(|key| extension.annotation(key)).unwrap_or_default();
    let policy = policy.uninstall;
    let changed = announced.is_some_and(|first| first != policy)
        || fates.iter().any(|fate| fate.policy != policy)
        || policy == Uninstall::Orphan;
    let all = Fate::together(fates);
    let told = match policy {
        _ if !was_there => "Nothing was installed",
        Uninstall::KeepCrds | Uninstall::Orphan if all.in_foreground => IN_FOREGROUND,
        _ if changed && !all.left.is_empty() && !all.gone.is_empty() => return partly(&all),
        _ if changed && !all.left.is_empty() => LEFT,
        _ if changed && !all.gone.is_empty() => REMOVED,
        Uninstall::Delete => REMOVED,
        Uninstall::KeepCrds => {
            "Removed all objects but custom resource definitions and custom resources, which are left"
        }
        Uninstall::Orphan => LEFT,
    };
    told.to_owned()
}

const REMOVED: &str = "Removed all objects";
const IN_FOREGROUND: &str = "Deleted in the foreground: Kubernetes itself took what the revisions owned, whatever the annotation \
                             uninstall says; look what is left";
const LEFT: &str = "Left all objects on the cluster";

/// What became of objects of which some were gone when the others were let go.
fn partly(all: &Fate) -> String {
    let named = |ids: &BTreeSet<ObjectId>| {
        let list: Vec<ObjectId> = ids.iter().cloned().collect();
        format!("{} object(s): {}", ids.len(), report::short_names(&list))
    };
    let going = if all.going.is_empty() {
        String::new()
    } else {
        format!(
            " Of these, being deleted already and gone once nothing holds them, {}.",
            named(&all.going)
        )
    };
    format!(
        "Left on the cluster {}.{going} Gone before that {}.",
        named(&all.left),
        named(&all.gone)
    )
}

/// Tells what the deletion will take away, before it does. The change of the status brings the next run.
async fn announce(
    context: &Context,
    extension: &ClusterExtension,
    left: &Revisions,
    uninstall: Uninstall,
) -> Result<Outcome, kube::Error> {
    let (note, losses) = match uninstall {
        Uninstall::Delete => (
            "Removing all objects",
            data_loss::count(context, extension, left).await,
        ),
        Uninstall::KeepCrds => (
            "Removing all objects but custom resource definitions and custom resources",
            None,
        ),
        Uninstall::Orphan => ("Leaving all objects on the cluster", None),
    };
    if let Some(losses) = &losses {
        let said = (reason::RETRYING, losses.as_str(), Tone::Silent);
        tell_of(context, extension, left, said).await?;
    }
    let told = vec![events::said(
        events::UNINSTALLING,
        losses.as_deref().unwrap_or(note),
    )];
    context.events.publish(extension.object_ref(&()), told);
    context.memorise(extension.name(), |memory| {
        memory.announced = Some(uninstall);
        memory.losses = losses;
    });
    Ok(Outcome::After(STALE))
}

/// Whether objects of a Helm release still belong to the extension itself: Kubernetes would delete them with it. The
/// revision that was made from the release has them once it was worked on, which gives it the condition.
fn entangled(left: &Revisions) -> bool {
    left.active().any(is_untouched)
}

/// Whether a revision was made from a release and not worked on yet.
fn is_untouched(set: &ClusterObjectSet) -> bool {
    set.label(label::MIGRATED_FROM_HELM).is_some() && conditions::find(set.conditions(), AVAILABLE).is_none()
}

/// What keeps an extension without revisions: a release that was never made one, whose objects are not to be deleted.
async fn unrevised(context: &Context, extension: &ClusterExtension) -> Option<String> {
    let policy = Policy::read(|key| extension.annotation(key));
    if matches!(&policy, Ok(policy) if policy.uninstall == Uninstall::Delete) {
        return None;
    }
    match adopt::newest(context, extension).await {
        Ok(None) => None,
        Ok(Some(_)) => Some(policy.map_or_else(|error| error.to_string(), |_| entanglement(extension))),
        Err(error) => Some(bounded_message(&chain(&error))),
    }
}

fn entanglement(extension: &ClusterExtension) -> String {
    format!(
        "the objects came from a Helm release and belong to the ClusterExtension itself, so that Kubernetes would delete them with \
         it, whatever the annotation {} says: let the account in spec.serviceAccount take them over before the deletion, leave \
         all of them behind with `kubectl delete clusterextension {} --cascade=orphan`, or take the annotation away to have all \
         of them deleted",
        user::UNINSTALL,
        extension.name()
    )
}

/// Removes the Secrets of all revisions. They would be collected once their revisions are gone; but who sees the
/// extension gone is to find nothing of it, and one that an interrupted run left has no revision.
async fn remove_secrets(context: &Context, extension: &str) -> Result<(), kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.system_namespace);
    let ours = ListParams::default().labels(&format!(
        "{}={extension},{}",
        label::OWNER_NAME,
        label::REVISION_NAME
    ));
    secrets
        .delete_collection(&DeleteParams::background(), &ours)
        .await
        .map(drop)
}

/// The reason and the message of the condition `Progressing`, and how an event tells them.
type Sentence<'a> = (&'a str, &'a str, Tone);

/// Says what keeps an extension from being worked on, and when it is looked at again; the rest of the status stays.
pub(super) async fn tell(
    context: &Context,
    extension: &ClusterExtension,
    said: Sentence<'_>,
) -> Result<Outcome, kube::Error> {
    let status = extension.status.clone().unwrap_or_default();
    tell_with(context, extension, status, said).await
}

/// The same of an extension that is being deleted, with what is true of its objects.
async fn tell_of(
    context: &Context,
    extension: &ClusterExtension,
    left: &Revisions,
    said: Sentence<'_>,
) -> Result<Outcome, kube::Error> {
    let mut status = extension.status.clone().unwrap_or_default();
    availability(
        &mut status.conditions,
        left,
        extension.generation(),
        Timestamp::now(),
    );
    tell_with(context, extension, status, said).await
}

async fn tell_with(
    context: &Context,
    extension: &ClusterExtension,
    mut status: ClusterExtensionStatus,
    (reason, message, tone): Sentence<'_>,
) -> Result<Outcome, kube::Error> {
    let report = Report {
        condition_type: PROGRESSING,
        status: if reason == reason::BLOCKED {
            Status::False
        } else {
            Status::True
        },
        reason,
        message: &bounded_message(message),
        observed_generation: extension.generation(),
    };
    set_condition(&mut status.conditions, report, Timestamp::now());
    write_status(context, extension, status, tone).await?;
    Ok(Outcome::After(AGAIN))
}

/// Nobody says any more that all is well with objects that are being removed; until then, their revision says how they
/// are.
fn availability(list: &mut Vec<Condition>, left: &Revisions, generation: i64, now: Timestamp) {
    if left.all().iter().any(|set| set.is_deleting()) {
        if conditions::find(list, AVAILABLE).is_some() {
            let report = Report {
                condition_type: AVAILABLE,
                status: Status::Unknown,
                reason: reason::RECONCILING,
                message: "uninstalling: the objects are being removed",
                observed_generation: generation,
            };
            set_condition(list, report, now);
        }
    } else if let Some(set) = left.installed() {
        mirror(list, set, AVAILABLE, generation);
    }
}

/// What the revisions say that are not taken down yet.
fn told(left: &Revisions) -> Vec<String> {
    let unfinished = left.all().iter().filter(|set| removing(set));
    unfinished
        .filter_map(|set| {
            let progressing = conditions::find(set.conditions(), PROGRESSING)?;
            Some(format!("{}: {}", set.name(), progressing.message))
        })
        .collect()
}

/// Whether a revision cannot be taken down for another reason than that it takes its time.
fn in_trouble(set: &ClusterObjectSet) -> bool {
    set.is_deleting() && disturbed(set)
}

/// What is waited for. What the revisions say comes last, since it may end with roles to be applied.
fn waiting(extension: &str, left: &Revisions, told: &[String], more: Vec<String>) -> String {
    let names: Vec<&str> = left.all().iter().map(|set| set.name()).collect();
    let names = names.join(", ");
    let mut lines = vec![format!(
        "uninstalling: waiting for revisions to be taken down: {names}"
    )];
    lines.extend(more);
    if !told.is_empty() {
        let command = annotate(Annotated::Extension(extension), user::UNINSTALL, Some("orphan"));
        lines.push(format!("To leave what remains on the cluster: {command}"));
    }
    lines.extend_from_slice(told);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::cluster_extension::{ClusterExtensionSpec, InstallStatus};
    use olm_api::conditions::SUCCEEDED;

    use super::*;
    use crate::extension::observe::revisions::tests::revision;

    #[test]
    fn objects_of_a_helm_release_are_left_behind_only_when_they_are_the_revisions() {
        let made = |migrated: bool, reports: &[(&str, Status, &str)]| {
            let mut set = (*revision(1, reports)).clone();
            let mark = (label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
            set.metadata.labels = migrated.then(|| [mark].into());
            Revisions::new(vec![Arc::new(set)])
        };
        let worked_on = [(AVAILABLE, Status::False, "")];
        assert!(entangled(&made(
            true,
            &[(PROGRESSING, Status::False, "no account")]
        )));
        assert!(!entangled(&made(true, &worked_on)));
        assert!(!entangled(&made(false, &[])));
    }

    #[test]
    fn a_deletion_says_what_it_waits_for() {
        let mut stuck = (*revision(2, &[(PROGRESSING, Status::True, "account gone")])).clone();
        stuck.metadata.deletion_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
        let left = Revisions::new(vec![Arc::new(stuck), revision(1, &[])]);
        assert_eq!(
            waiting("ext", &left, &told(&left), vec!["2 pots are lost".to_owned()]),
            "uninstalling: waiting for revisions to be taken down: ext-1, ext-2\n2 pots are lost\nTo leave what remains on \
             the cluster: kubectl annotate clusterextension ext --overwrite olm.operatorframework.io/uninstall=orphan\n\
             ext-2: account gone"
        );
    }

    #[test]
    fn an_uninstallation_that_only_takes_its_time_is_no_trouble() {
        for (why, is_deleting, expected) in [
            (reason::REMOVING, true, (true, false)),
            (reason::RETRYING, true, (true, true)),
            (reason::BLOCKED, true, (true, true)),
            (reason::ROLLING_OUT, true, (false, false)),
            (reason::RETRYING, false, (false, false)),
        ] {
            let mut set = (*revision(2, &[(PROGRESSING, Status::True, "why")])).clone();
            let report = Report {
                condition_type: PROGRESSING,
                status: Status::True,
                reason: why,
                message: "why",
                observed_generation: 1,
            };
            let status = set.status.get_or_insert_default();
            set_condition(&mut status.conditions, report, Timestamp::UNIX_EPOCH);
            set.metadata.deletion_timestamp = is_deleting.then_some(olm_api::Time(Timestamp::UNIX_EPOCH));
            assert_eq!(
                (removing(&set), in_trouble(&set)),
                expected,
                "{why} {is_deleting}"
            );
        }
    }

    #[test]
    fn the_last_word_says_what_became_of_the_objects() {
        let mut extension = ClusterExtension::new("a", ClusterExtensionSpec::default());
        assert_eq!(gone(&extension, None, &[]), "Nothing was installed");
        extension.status = Some(ClusterExtensionStatus {
            install: Some(InstallStatus::default()),
            ..ClusterExtensionStatus::default()
        });
        let ids = |names: &[&str]| -> BTreeSet<ObjectId> {
            let id = |name: &&str| ObjectId {
                kind: "Pot".to_owned(),
                name: (*name).to_owned(),
                ..ObjectId::default()
            };
            names.iter().map(id).collect()
        };
        let fate = |policy, gone: &[&str], left: &[&str], going: &[&str]| Fate {
            policy,
            gone: ids(gone),
            seen_gone: ids(gone),
            left: ids(left),
            going: ids(going),
            in_foreground: false,
        };
        let by_kubernetes = |policy| Fate {
            in_foreground: true,
            ..fate(policy, &["a"], &["b"], &[])
        };
        let but_definitions =
            "Removed all objects but custom resource definitions and custom resources, which are left";
        let (delete, keep, orphan) = (Uninstall::Delete, Uninstall::KeepCrds, Uninstall::Orphan);
        for (policy, announced, fates, expected) in [
            (None, None, vec![], REMOVED),
            (None, Some(delete), vec![fate(delete, &["a"], &[], &[])], REMOVED),
            (Some("keep-crds"), None, vec![], but_definitions),
            (
                Some("keep-crds"),
                Some(keep),
                vec![fate(keep, &["a"], &["b"], &[])],
                but_definitions,
            ),
            (
                Some("keep-crds"),
                Some(keep),
                vec![by_kubernetes(keep)],
                IN_FOREGROUND,
            ),
            (None, Some(delete), vec![by_kubernetes(delete)], REMOVED),
            (Some("orphan"), None, vec![], LEFT),
            (
                Some("orphan"),
                Some(delete),
                vec![fate(orphan, &[], &["a"], &[])],
                LEFT,
            ),
            (
                Some("orphan"),
                Some(delete),
                vec![fate(orphan, &["a", "b"], &["c", "d"], &["d"])],
                "Left on the cluster 2 object(s): Pot c, Pot d. Of these, being deleted already and gone once nothing holds \
                 them, 1 object(s): Pot d. Gone before that 2 object(s): Pot a, Pot b.",
            ),
            (
                Some("keep-crds"),
                Some(delete),
                vec![fate(keep, &["a"], &["b"], &[])],
                "Left on the cluster 1 object(s): Pot b. Gone before that 1 object(s): Pot a.",
            ),
            // What is asked for when all is done changes nothing any more.
            (None, Some(orphan), vec![fate(orphan, &[], &["a"], &[])], LEFT),
            (
                Some("orphan"),
                Some(delete),
                vec![fate(delete, &["a"], &[], &[])],
                REMOVED,
            ),
        ] {
            let entry = |value: &str| [(user::UNINSTALL.to_owned(), value.to_owned())].into();
            extension.metadata.annotations = policy.map(entry);
            assert_eq!(
                gone(&extension, announced, &fates),
                expected,
                "{policy:?} {fates:?}"
            );
        }
    }

    #[test]
    fn nothing_is_available_for_sure_once_it_is_being_removed() {
        let now = Timestamp::UNIX_EPOCH;
        let well = [(SUCCEEDED, Status::True, ""), (AVAILABLE, Status::True, "")];
        let present = revision(1, &well);
        let mut going = (*present).clone();
        going.metadata.deletion_timestamp = Some(olm_api::Time(now));
        let told = |before: &[Condition], set: &ClusterObjectSet| {
            let mut list = before.to_vec();
            availability(&mut list, &Revisions::new(vec![Arc::new(set.clone())]), 1, now);
            list
        };
        let status = |list: &[Condition]| conditions::find(list, AVAILABLE).map(|found| found.status.clone());
        assert_eq!(status(&told(&[], &going)), None, "it never was");
        let before = told(&[], &present);
        assert_eq!(status(&before).as_deref(), Some("True"));
        assert_eq!(status(&told(&before, &going)).as_deref(), Some("Unknown"));
    }
}
