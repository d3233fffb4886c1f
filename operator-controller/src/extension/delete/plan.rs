//! The next step of a deletion: first the revisions, each of which deletes its objects, then the extension. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::PropagationPolicy;
use olm_api::command::{Annotated, annotate};
use olm_api::conditions::{self, AVAILABLE, PROGRESSING, Report, Status, reason, set_condition};
use olm_api::names::{label, user};
use olm_api::{ClusterExtension, ClusterObjectSet, Condition};

use crate::extension::events::{self, EventKind};
use crate::extension::plan::action::Action;
use crate::extension::plan::prepare::{FINALIZERS, name_account};
use crate::extension::plan::revision::inherit;
use crate::extension::report::status::mirror;
use crate::extension::revisions::{Revisions, is_blocked, removing};
use crate::object_set::records::{ORPHAN, has_finalizer};
use olm_cluster::identity::AccountName;
use olm_rollout::object::ObjectId;
use olm_rollout::policy::{Policy, PolicyError, Uninstall};
use olm_rollout::report;
use olm_rollout::teardown_record::TeardownRecord;

/// The pause until the watch shows our own write.
pub(crate) const STALE: Duration = Duration::from_millis(200);
/// The pause until revisions are listed again after the watch has lost them.
const LISTED: Duration = Duration::from_secs(1);

/// An extension that is being deleted.
pub struct DeletionState<'a> {
    /// The extension.
    pub extension: &'a ClusterExtension,
    /// The uninstall policy.
    pub policy: Result<Policy, PolicyError>,
    /// The announced policy.
    pub announced: Option<Uninstall>,
    /// The remaining parts of the extension.
    pub left: Remaining,
}

/// The remaining parts of an extension that is being deleted.
pub enum Remaining {
    /// Any objects. They stay: the deletion orphans them.
    Orphans,
    /// No revisions.
    Nothing {
        /// Whether the API server still lists revisions.
        is_listed: bool,
        /// Whether there is a Helm release that never became a revision. Read if objects are kept.
        release: Result<bool, String>,
        /// The teardown records of its revisions.
        records: Vec<TeardownRecord>,
    },
    /// Revisions.
    Revisions {
        /// The revisions.
        revisions: Revisions,
        /// The reason and message if the extension cannot be deleted because others depend on it. Read before the
        /// deletion begins.
        dependents: Option<(&'static str, String)>,
        /// The account that deletes their objects.
        account: Option<AccountName>,
        /// The Secrets of its Helm releases. Read if objects are kept.
        releases: Result<Vec<String>, String>,
        /// The custom resources that will be deleted. Counted before the deletion begins.
        data_loss: Option<String>,
        /// The finalizers that block objects of its kinds. Searched for once revisions wait for them.
        finalizers: Option<String>,
    },
}

/// The next step and its report.
pub struct DeletionPlan {
    /// The actions.
    pub actions: Vec<Action>,
    /// The report.
    pub report: DeletionReport,
}

/// The report of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionReport {
    /// Nothing yet. The next run continues after this time.
    Later(Duration),
    /// The condition `Progressing`.
    Progressing {
        /// The reason.
        reason: &'static str,
        /// The message.
        message: String,
        /// The event that reports it.
        kind: EventKind,
    },
    /// The announced policy. The deletion begins with the next run.
    Announce(Uninstall),
    /// The extension is gone, with a message about its objects.
    Gone(String),
}

fn blocked(reason: &'static str, message: String) -> DeletionPlan {
    DeletionPlan {
        actions: Vec::new(),
        report: DeletionReport::Progressing {
            reason,
            message,
            kind: EventKind::Warning,
        },
    }
}

/// Plans the next step. `rest` are the finalizers that stay when the controller releases the extension.
pub fn plan(observed: &DeletionState<'_>, rest: Vec<String>) -> DeletionPlan {
    match &observed.left {
        Remaining::Orphans => DeletionPlan {
            actions: vec![Action::SetFinalizers(rest)],
            report: DeletionReport::Gone("Kept all revisions on the cluster, with their objects".to_owned()),
        },
        Remaining::Nothing { is_listed: true, .. } => DeletionPlan {
            actions: Vec::new(),
            report: DeletionReport::Later(LISTED),
        },
        Remaining::Nothing {
            release: Err(error), ..
        } => blocked(reason::BLOCKED, error.clone()),
        Remaining::Nothing {
            release: Ok(true), ..
        } => {
            let why = observed.policy.as_ref().err().map(ToString::to_string);
            blocked(
                reason::BLOCKED,
                why.unwrap_or_else(|| release_objects_advice(observed.extension)),
            )
        }
        Remaining::Nothing { records, .. } => DeletionPlan {
            actions: vec![
                Action::RemoveSecrets,
                Action::RemoveAllOperatorConditions,
                Action::SetFinalizers(rest),
            ],
            report: DeletionReport::Gone(gone(observed.extension, observed.announced, records)),
        },
        Remaining::Revisions { .. } => match &observed.policy {
            Ok(policy) => take_down(observed, policy.uninstall),
            Err(error) => blocked(reason::BLOCKED, error.to_string()),
        },
    }
}

/// The finalizers of others; `None` for an extension that the controller has released.
pub fn other_finalizers(extension: &ClusterExtension) -> Option<Vec<String>> {
    let list = extension.metadata.finalizers.clone().unwrap_or_default();
    let is_ours = |name: &String| FINALIZERS.contains(&name.as_str());
    let rest: Vec<String> = list.iter().filter(|name| !is_ours(name)).cloned().collect();
    (rest.len() < list.len()).then_some(rest)
}

/// Whether the deletion has begun. Then it is completed. A revision that was deleted before the extension does not
/// count.
pub(crate) fn has_begun(extension: &ClusterExtension, revisions: &Revisions) -> bool {
    let since = extension.metadata.deletion_timestamp.as_ref();
    let mut sets = revisions.all().iter();
    sets.any(|set| set.is_deleting() && set.metadata.deletion_timestamp.as_ref() >= since)
}

fn take_down(observed: &DeletionState<'_>, uninstall: Uninstall) -> DeletionPlan {
    let extension = observed.extension;
    let Remaining::Revisions {
        revisions,
        dependents,
        account,
        releases,
        data_loss,
        finalizers,
    } = &observed.left
    else {
        return blocked(reason::BLOCKED, String::new());
    };
    if !has_begun(extension, revisions) {
        if let Some((reason, message)) = dependents {
            return blocked(reason, message.clone());
        }
        if observed.announced != Some(uninstall) {
            return DeletionPlan {
                actions: Vec::new(),
                report: DeletionReport::Announce(uninstall),
            };
        }
    }
    let unnamed = account.as_ref().map(|account| name_account(account, revisions));
    if let Some(actions) = unnamed.filter(|actions| !actions.is_empty()) {
        return DeletionPlan {
            actions,
            report: DeletionReport::Later(STALE),
        };
    }
    if uninstall != Uninstall::Delete && owns_release_objects(revisions) {
        return blocked(reason::BLOCKED, release_objects_advice(extension));
    }
    let mut actions = Vec::new();
    match releases {
        Ok(secrets) if secrets.is_empty() => {}
        Ok(secrets) => actions.push(Action::RemoveReleases(secrets.clone())),
        Err(error) => return blocked(reason::RETRYING, error.clone()),
    }
    actions.extend(revisions.all().iter().filter_map(|set| {
        let patch = inherit(extension, set);
        let delete = propagation(set, uninstall);
        (patch.is_some() || delete.is_some()).then(|| Action::TakeDown {
            set: set.clone(),
            patch,
            delete,
        })
    }));
    let reported = revision_messages(revisions);
    let kind = if reported.is_empty() {
        EventKind::None
    } else if revisions.all().iter().any(|set| is_teardown_blocked(set)) {
        EventKind::Warning
    } else {
        EventKind::Normal(events::UNINSTALLING)
    };
    let data_loss = data_loss.iter().filter(|_| uninstall == Uninstall::Delete);
    let more = finalizers.iter().chain(data_loss).cloned().collect();
    DeletionPlan {
        actions,
        report: DeletionReport::Progressing {
            reason: reason::RETRYING,
            message: waiting(extension.name(), revisions, &reported, more),
            kind,
        },
    }
}

/// The propagation of a deletion; `None` if it is under way. If the account is permanently gone, a late choice of
/// the user counts, too.
fn propagation(set: &ClusterObjectSet, uninstall: Uninstall) -> Option<PropagationPolicy> {
    let orphan = uninstall == Uninstall::Orphan;
    if set.is_deleting() && (!orphan || has_finalizer(set, ORPHAN)) {
        return None;
    }
    Some(if orphan {
        PropagationPolicy::Orphan
    } else {
        PropagationPolicy::Background
    })
}

/// The result for the objects of an extension without revisions. The actual result counts, not only the last policy.
/// `announced` is the policy when the deletion began, if known.
fn gone(extension: &ClusterExtension, announced: Option<Uninstall>, records: &[TeardownRecord]) -> String {
    let was_there = extension
        .status
        .as_ref()
        .is_some_and(|status| status.install.is_some() || !status.active_revisions.is_empty());
    let policy = Policy::read(|key| extension.annotation(key)).unwrap_or_default();
    let policy = policy.uninstall;
    let changed = announced.is_some_and(|first| first != policy)
        || records.iter().any(|record| record.policy != policy)
        || policy == Uninstall::Orphan;
    let all = TeardownRecord::together(records);
    if !all.collected.is_empty() {
        return collected(&all);
    }
    let text = match policy {
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
    text.to_owned()
}

const REMOVED: &str = "Removed all objects";
const IN_FOREGROUND: &str = "Kubernetes deleted the objects in the foreground and ignored the annotation uninstall. Check the remaining \
                             objects";
const LEFT: &str = "Kept all objects on the cluster";

/// The message about objects that the account did not delete before it was gone.
fn collected(all: &TeardownRecord) -> String {
    let gone = if all.gone.is_empty() {
        String::new()
    } else {
        format!(" Removed earlier: {}.", named(&all.gone))
    };
    format!(
        "The service account was deleted with its namespace. The Kubernetes garbage collector removes {}.{gone}",
        named(&all.collected)
    )
}

fn named(ids: &BTreeSet<ObjectId>) -> String {
    let list: Vec<ObjectId> = ids.iter().cloned().collect();
    report::short_names(&list)
}

/// The message about objects of which some were gone when the others were released.
fn partly(all: &TeardownRecord) -> String {
    let going = if all.going.is_empty() {
        String::new()
    } else {
        format!(" Of these, already being deleted: {}.", named(&all.going))
    };
    format!(
        "Kept on the cluster: {}.{going} Removed earlier: {}.",
        named(&all.left),
        named(&all.gone)
    )
}

/// Whether objects of a Helm release still belong to the extension itself, so that Kubernetes would delete them with
/// it. The revision of the release takes them over at its first run, which sets a condition.
pub(crate) fn owns_release_objects(left: &Revisions) -> bool {
    left.active().any(has_never_run)
}

/// Whether a revision was created from a release and has not run yet.
pub(crate) fn has_never_run(set: &ClusterObjectSet) -> bool {
    set.label(label::MIGRATED_FROM_HELM).is_some() && conditions::find(set.conditions(), AVAILABLE).is_none()
}

fn release_objects_advice(extension: &ClusterExtension) -> String {
    format!(
        "the objects of the Helm release belong to the ClusterExtension, so Kubernetes deletes them with it. To keep them all, run \
         `kubectl delete clusterextension {} --cascade=orphan`. To delete them all, remove the annotation {}. To have OLM apply \
         the annotation, name an account in spec.serviceAccount that takes them over before the deletion",
        extension.name(),
        user::UNINSTALL
    )
}

/// Removes `Available` from the status while objects are being deleted. Until then it is that of the revision.
pub(crate) fn availability(list: &mut Vec<Condition>, left: &Revisions, generation: i64, now: Timestamp) {
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

/// The messages of revisions that are not gone yet.
pub(crate) fn revision_messages(left: &Revisions) -> Vec<String> {
    let unfinished = left.all().iter().filter(|set| removing(set));
    unfinished
        .filter_map(|set| {
            let progressing = conditions::find(set.conditions(), PROGRESSING)?;
            Some(format!("{}: {}", set.name(), progressing.message))
        })
        .collect()
}

/// Whether something blocks the teardown of a revision.
fn is_teardown_blocked(set: &ClusterObjectSet) -> bool {
    set.is_deleting() && is_blocked(set)
}

/// The message while the deletion waits. Messages of revisions come last, because they may have several lines.
fn waiting(extension: &str, left: &Revisions, reported: &[String], more: Vec<String>) -> String {
    let names: Vec<&str> = left.all().iter().map(|set| set.name()).collect();
    let names = names.join(", ");
    let mut lines = vec![format!(
        "uninstalling: waiting for revisions to be taken down: {names}"
    )];
    lines.extend(more);
    if !reported.is_empty() {
        let command = annotate(Annotated::Extension(extension), user::UNINSTALL, Some("orphan"));
        lines.push(format!("To keep the remaining objects, run {command}"));
    }
    lines.extend_from_slice(reported);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::cluster_extension::{ClusterExtensionSpec, ClusterExtensionStatus, InstallStatus};
    use olm_api::conditions::SUCCEEDED;

    use super::*;
    use crate::extension::revisions::tests::revision;

    #[test]
    fn objects_of_a_helm_release_are_left_behind_only_when_they_are_the_revisions() {
        let made = |migrated: bool, reports: &[(&str, Status, &str)]| {
            let mut set = (*revision(1, reports)).clone();
            let mark = (label::MIGRATED_FROM_HELM.to_owned(), "true".to_owned());
            set.metadata.labels = migrated.then(|| [mark].into());
            Revisions::new(vec![Arc::new(set)])
        };
        let worked_on = [(AVAILABLE, Status::False, "")];
        assert!(owns_release_objects(&made(
            true,
            &[(PROGRESSING, Status::False, "no account")]
        )));
        assert!(!owns_release_objects(&made(true, &worked_on)));
        assert!(!owns_release_objects(&made(false, &[])));
    }

    #[test]
    fn a_deletion_names_the_objects_it_waits_for() {
        let mut stuck = (*revision(2, &[(PROGRESSING, Status::True, "account gone")])).clone();
        stuck.metadata.deletion_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
        let left = Revisions::new(vec![Arc::new(stuck), revision(1, &[])]);
        assert_eq!(
            waiting(
                "ext",
                &left,
                &revision_messages(&left),
                vec!["2 greetings are lost".to_owned()]
            ),
            "uninstalling: waiting for revisions to be taken down: ext-1, ext-2\n2 greetings are lost\nTo keep the \
             remaining objects, run kubectl annotate clusterextension ext --overwrite \
             olm.operatorframework.io/uninstall=orphan\n\
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
                (removing(&set), is_teardown_blocked(&set)),
                expected,
                "{why} {is_deleting}"
            );
        }
    }

    #[test]
    fn the_last_event_names_the_objects_that_were_kept() {
        let mut extension = ClusterExtension::new("a", ClusterExtensionSpec::default());
        assert_eq!(gone(&extension, None, &[]), "Nothing was installed");
        extension.status = Some(ClusterExtensionStatus {
            install: Some(InstallStatus::default()),
            ..ClusterExtensionStatus::default()
        });
        let ids = |names: &[&str]| -> BTreeSet<ObjectId> {
            let id = |name: &&str| ObjectId {
                kind: "Greeting".to_owned(),
                name: (*name).to_owned(),
                ..ObjectId::default()
            };
            names.iter().map(id).collect()
        };
        let record = |policy, gone: &[&str], left: &[&str], going: &[&str]| TeardownRecord {
            policy,
            gone: ids(gone),
            seen_gone: ids(gone),
            left: ids(left),
            going: ids(going),
            ..TeardownRecord::default()
        };
        let by_collector = |policy| {
            let mut collected = record(policy, &["a"], &[], &[]);
            collected.gone.extend(ids(&["b"]));
            collected.collect(ids(&["b"]).into_iter().collect());
            collected
        };
        let by_kubernetes = |policy| TeardownRecord {
            in_foreground: true,
            ..record(policy, &["a"], &["b"], &[])
        };
        let but_definitions =
            "Removed all objects but custom resource definitions and custom resources, which are left";
        let (delete, keep, orphan) = (Uninstall::Delete, Uninstall::KeepCrds, Uninstall::Orphan);
        for (policy, announced, records, expected) in [
            (None, None, vec![], REMOVED),
            (
                None,
                Some(delete),
                vec![record(delete, &["a"], &[], &[])],
                REMOVED,
            ),
            (Some("keep-crds"), None, vec![], but_definitions),
            (
                Some("keep-crds"),
                Some(keep),
                vec![record(keep, &["a"], &["b"], &[])],
                but_definitions,
            ),
            (
                Some("keep-crds"),
                Some(keep),
                vec![by_kubernetes(keep)],
                IN_FOREGROUND,
            ),
            (None, Some(delete), vec![by_kubernetes(delete)], REMOVED),
            (
                None,
                Some(delete),
                vec![by_collector(delete)],
                "The service account was deleted with its namespace. The Kubernetes garbage collector removes Greeting b. \
                 Removed earlier: Greeting a.",
            ),
            (Some("orphan"), None, vec![], LEFT),
            (
                Some("orphan"),
                Some(delete),
                vec![record(orphan, &[], &["a"], &[])],
                LEFT,
            ),
            (
                Some("orphan"),
                Some(delete),
                vec![record(orphan, &["a", "b"], &["c", "d"], &["d"])],
                "Kept on the cluster: Greeting c, Greeting d. Of these, already being deleted: Greeting d. Removed earlier: \
                 Greeting a, Greeting b.",
            ),
            (
                Some("keep-crds"),
                Some(delete),
                vec![record(keep, &["a"], &["b"], &[])],
                "Kept on the cluster: Greeting b. Removed earlier: Greeting a.",
            ),
            // A policy set after everything is done changes nothing.
            (None, Some(orphan), vec![record(orphan, &[], &["a"], &[])], LEFT),
            (
                Some("orphan"),
                Some(delete),
                vec![record(delete, &["a"], &[], &[])],
                REMOVED,
            ),
        ] {
            let entry = |value: &str| [(user::UNINSTALL.to_owned(), value.to_owned())].into();
            extension.metadata.annotations = policy.map(entry);
            assert_eq!(
                gone(&extension, announced, &records),
                expected,
                "{policy:?} {records:?}"
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
        let reported = |before: &[Condition], set: &ClusterObjectSet| {
            let mut list = before.to_vec();
            availability(&mut list, &Revisions::new(vec![Arc::new(set.clone())]), 1, now);
            list
        };
        let status = |list: &[Condition]| conditions::find(list, AVAILABLE).map(|found| found.status.clone());
        assert_eq!(status(&reported(&[], &going)), None, "it never was");
        let before = reported(&[], &present);
        assert_eq!(status(&before).as_deref(), Some("True"));
        assert_eq!(status(&reported(&before, &going)).as_deref(), Some("Unknown"));
    }

    fn deleted(left: Remaining) -> (ClusterExtension, Remaining) {
        let mut extension = ClusterExtension::new("ext", ClusterExtensionSpec::default());
        extension.metadata.finalizers = Some(FINALIZERS.map(str::to_owned).to_vec());
        extension.metadata.deletion_timestamp = Some(olm_api::Time(Timestamp::UNIX_EPOCH));
        (extension, left)
    }

    fn with(set: ClusterObjectSet) -> Remaining {
        Remaining::Revisions {
            revisions: Revisions::new(vec![Arc::new(set)]),
            dependents: None,
            account: None,
            releases: Ok(Vec::new()),
            data_loss: None,
            finalizers: None,
        }
    }

    fn planned(
        extension: &ClusterExtension,
        announced: Option<Uninstall>,
        left: Remaining,
    ) -> Option<DeletionPlan> {
        let observed = DeletionState {
            extension,
            policy: Policy::read(|key| extension.annotation(key)),
            announced,
            left,
        };
        Some(plan(&observed, other_finalizers(extension)?))
    }

    #[test]
    fn a_deletion_announces_takes_down_and_lets_go_and_planning_on_the_result_does_nothing_more() {
        let mut set = (*revision(1, &[(SUCCEEDED, Status::True, "")])).clone();
        let (mut extension, left) = deleted(with(set.clone()));
        let first = planned(&extension, None, left).unwrap();
        assert!(first.actions.is_empty());
        assert_eq!(first.report, DeletionReport::Announce(Uninstall::Delete));
        let second = planned(&extension, Some(Uninstall::Delete), with(set.clone())).unwrap();
        assert!(
            matches!(
                &second.actions[..],
                [Action::TakeDown {
                    patch: Some(_),
                    delete: Some(PropagationPolicy::Background),
                    ..
                }]
            ),
            "{:?}",
            second.actions
        );
        set.metadata
            .deletion_timestamp
            .clone_from(&extension.metadata.deletion_timestamp);
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(
            olm_api::names::annotation::UNINSTALLING.to_owned(),
            "true".to_owned(),
        );
        let third = planned(&extension, Some(Uninstall::Delete), with(set)).unwrap();
        assert!(third.actions.is_empty(), "{:?}", third.actions);
        let nothing = || Remaining::Nothing {
            is_listed: false,
            release: Ok(false),
            records: Vec::new(),
        };
        let last = planned(&extension, Some(Uninstall::Delete), nothing()).unwrap();
        assert_eq!(last.actions.len(), 3);
        assert_eq!(
            last.report,
            DeletionReport::Gone("Nothing was installed".to_owned())
        );
        extension.metadata.finalizers = None;
        assert!(planned(&extension, None, nothing()).is_none());
    }

    #[test]
    fn a_blocked_deletion_plans_no_write() {
        let set = (*revision(1, &[(SUCCEEDED, Status::True, "")])).clone();
        let (mut extension, mut left) = deleted(with(set.clone()));
        if let Remaining::Revisions { dependents, .. } = &mut left {
            *dependents = Some((reason::BLOCKED, "others depend on it".to_owned()));
        }
        let is_blocked = |plan: &DeletionPlan| {
            plan.actions.is_empty()
                && matches!(
                    &plan.report,
                    DeletionReport::Progressing {
                        reason: reason::BLOCKED,
                        ..
                    }
                )
        };
        assert!(is_blocked(&planned(&extension, None, left).unwrap()));
        extension.metadata.annotations = Some([(user::UNINSTALL.to_owned(), "x".to_owned())].into());
        assert!(is_blocked(&planned(&extension, None, with(set)).unwrap()));
    }
}
