//! The PendingChanges of an extension: creates the wanted one, and updates the state of the others. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use olm_api::conditions::{Change, Report, Status, reason, set_condition};
use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, annotation, label};
use olm_api::pending_change::{self, APPLIED, PendingChangeSpec, text};
use olm_api::text::counted;
use olm_api::{ClusterExtension, PendingChange};
use olm_plan::ChangePlan;
use olm_plan::approval::{ChangeClass, widens_rights};
use olm_version::quoted;

use super::{HeldChange, Proposal};
use crate::extension::plan::action::Action;
use crate::extension::revisions::Revisions;

/// The number of applied or void PendingChanges that are kept for an extension.
const KEPT: usize = 5;
/// The most lines of a summary.
const MAX_LINES: usize = 99;

/// The change of an extension that is still to be applied.
pub(crate) enum DesiredChange<'a> {
    /// This change, which is free or held.
    Change(&'a Proposal, Option<&'a HeldChange>),
    /// No change, with the reason.
    Nothing(&'a str),
}

/// Whether a PendingChange is about this change of this extension, and its decision has not been used.
pub(crate) fn counts(
    pending: &PendingChange,
    extension: &ClusterExtension,
    plan: &ChangePlan,
    revisions: &Revisions,
) -> bool {
    Some(&pending.spec.extension_uid) == extension.metadata.uid.as_ref()
        && pending.spec.digest == plan.digest
        && pending.metadata.deletion_timestamp.is_none()
        && !pending.is_void()
        && !pending.is_applied()
        && !used(revisions).contains(pending.metadata.uid.as_deref().unwrap_or_default())
}

/// The writes that make these PendingChanges void: no catalog has their bundle any more.
pub(crate) fn void_without_bundle(
    changes: &[Arc<PendingChange>],
    revisions: &Revisions,
    now: Timestamp,
) -> Vec<Action> {
    let used = used(revisions);
    let is_open = |pending: &&Arc<PendingChange>| {
        let uid = pending.metadata.uid.as_deref().unwrap_or_default();
        !pending.is_void() && !pending.is_applied() && !used.contains(uid)
    };
    let void = |pending: &Arc<PendingChange>| {
        let why = format!(
            "no selected catalog has bundle {} any more",
            quoted(&pending.spec.bundle)
        );
        record(pending, Status::False, reason::VOID, &why, now)
    };
    changes.iter().filter(is_open).filter_map(void).collect()
}

/// The UIDs of the PendingChanges that revisions have used.
fn used(revisions: &Revisions) -> BTreeSet<&str> {
    let sets = revisions.all().iter();
    sets.filter_map(|set| set.annotation(annotation::PENDING_CHANGE))
        .collect()
}

/// The writes that make the PendingChanges of an extension true. `all` are those with its name.
pub(crate) fn records(
    extension: &ClusterExtension,
    all: &[Arc<PendingChange>],
    revisions: &Revisions,
    wanted: &DesiredChange<'_>,
    now: Timestamp,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let name = match wanted {
        DesiredChange::Change(proposal, _) => pending_change::name(extension.name(), &proposal.plan.digest),
        DesiredChange::Nothing(_) => String::new(),
    };
    let mut is_offered = false;
    let mut over: Vec<&Arc<PendingChange>> = Vec::new();
    let used = used(revisions);
    for pending in all {
        let is_used = used.contains(pending.metadata.uid.as_deref().unwrap_or_default());
        let is_wanted = pending.name() == name;
        if let (DesiredChange::Change(proposal, held), true) = (wanted, is_wanted) {
            if !counts(pending, extension, &proposal.plan, revisions) {
                // Its decision was used, or was about another change: a new one is needed.
                if proposal.gate.needs_approval {
                    actions.push(Action::RemovePendingChange(Arc::clone(pending)));
                }
                continue;
            }
            is_offered = true;
            if let Some(held) = held {
                actions.extend(record(
                    pending,
                    Status::False,
                    held.cause.reason(),
                    &held.message,
                    now,
                ));
            }
        } else if is_used {
            if !pending.is_applied() {
                let made = revisions.all().iter().find(|set| {
                    set.annotation(annotation::PENDING_CHANGE) == pending.metadata.uid.as_deref()
                });
                let made = made.map_or("", |set| set.name());
                actions.extend(record(pending, Status::True, reason::SUCCEEDED, made, now));
            }
            over.push(pending);
        } else if pending.is_applied() || pending.is_void() {
            over.push(pending);
        } else {
            let why = match wanted {
                DesiredChange::Change(..) => format!("{name} replaces it"),
                DesiredChange::Nothing(why) => (*why).to_owned(),
            };
            actions.extend(record(pending, Status::False, reason::VOID, &why, now));
        }
    }
    over.sort_by_key(|pending| pending.metadata.creation_timestamp.clone().map(|time| time.0));
    let superfluous = over.len().saturating_sub(KEPT);
    let removed = over.into_iter().take(superfluous);
    actions.extend(removed.map(|pending| Action::RemovePendingChange(Arc::clone(pending))));
    if let DesiredChange::Change(proposal, Some(held)) = wanted
        && proposal.gate.needs_approval
        && !is_offered
    {
        actions.push(Action::OfferChange(Box::new(offer(
            extension, &name, proposal, held, now,
        ))));
    }
    actions
}

fn record(
    pending: &Arc<PendingChange>,
    status: Status,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Option<Action> {
    let mut change = (**pending).clone();
    let generation = change.generation();
    let next = change.status.get_or_insert_default();
    let report = Report {
        condition_type: APPLIED,
        status,
        reason,
        message,
        observed_generation: generation,
    };
    let changed = set_condition(&mut next.conditions, report, now) == Change::Changed;
    let is_seen = next.observed_generation.replace(generation) == Some(generation);
    (changed || !is_seen).then(|| Action::RecordPendingChange(Box::new(change)))
}

/// A new PendingChange with its initial status.
fn offer(
    extension: &ClusterExtension,
    name: &str,
    proposal: &Proposal,
    held: &HeldChange,
    now: Timestamp,
) -> PendingChange {
    let plan = &proposal.plan;
    let uid = extension.metadata.uid.clone().unwrap_or_default();
    let spec = PendingChangeSpec {
        extension: extension.name().to_owned(),
        extension_uid: uid.clone(),
        digest: plan.digest.clone(),
        from: plan.installed.as_ref().map(|bundle| text(&bundle.version)),
        to: text(&plan.wanted.version),
        bundle: text(&plan.wanted.name),
        image: text(&plan.wanted.image),
        account: text(&plan.account),
        class: ChangeClass::of(plan).as_str().to_owned(),
        widens_rights: widens_rights(plan),
        definitions: plan.definitions_class.as_str().to_owned(),
        summary: summary(plan),
        decision: None,
    };
    let mut pending = PendingChange::new(name, spec);
    let labels = pending.metadata.labels.get_or_insert_default();
    labels.insert(label::OWNER_NAME.to_owned(), extension.name().to_owned());
    pending.metadata.owner_references = Some(vec![OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: CLUSTER_EXTENSION.to_owned(),
        name: extension.name().to_owned(),
        uid,
        ..OwnerReference::default()
    }]);
    let status = pending.status.get_or_insert_default();
    let report = Report {
        condition_type: APPLIED,
        status: Status::False,
        reason: held.cause.reason(),
        message: &held.message,
        observed_generation: 1,
    };
    set_condition(&mut status.conditions, report, now);
    status.observed_generation = Some(1);
    pending
}

/// The changes, a line each.
fn summary(plan: &ChangePlan) -> Vec<String> {
    let objects = &plan.objects;
    let observed = &plan.observed;
    let verified = observed.verified.iter().chain(&observed.verified_images).cloned();
    let added = objects.added.iter().map(|object| format!("adds {}", object.id));
    let changed = objects.changed.iter().map(|object| {
        let fields = counted(object.fields.len(), "field");
        format!("changes {} ({fields})", object.id)
    });
    let removed = objects.removed.iter().map(|id| format!("removes {id}"));
    let gained = plan.rights.gained.iter().map(|grant| {
        let place = grant.namespace.as_deref().unwrap_or("the cluster");
        format!("grants rights to {} in {place}", grant.subject)
    });
    let definitions = plan.definitions.iter().flat_map(|definition| {
        let findings = definition.findings.iter();
        findings.map(|finding| format!("CustomResourceDefinition {}: {finding}", definition.name))
    });
    // Serious changes come first, because the list may be truncated.
    let lines: Vec<String> = verified
        .chain(gained)
        .chain(definitions)
        .chain(removed)
        .chain(changed)
        .chain(added)
        .collect();
    let more = lines.len().saturating_sub(MAX_LINES);
    let shown = lines.iter().take(MAX_LINES).map(|line| text(line));
    let rest = (more > 0).then(|| format!("and {more} more"));
    shown.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use olm_api::ClusterObjectSet;
    use olm_api::cluster_extension::{BundleMetadata, ClusterExtensionSpec};
    use olm_api::cluster_object_set::CollisionProtection;
    use olm_api::conditions::find;
    use olm_plan::approval::{Cause, Gate};
    use olm_plan::{BundleIdentity, Change as PlannedChange};
    use olm_rollout::policy::Uninstall;

    use super::*;
    use crate::extension::revisions::tests::revision;

    fn extension() -> ClusterExtension {
        let mut extension = ClusterExtension::new("ext", ClusterExtensionSpec::default());
        extension.metadata.uid = Some("u".to_owned());
        extension
    }

    fn proposal(version: &str, causes: Vec<Cause>) -> Proposal {
        let wanted = BundleIdentity {
            package: "p".to_owned(),
            metadata: BundleMetadata {
                name: format!("p.v{version}"),
                version: version.to_owned(),
                release: None,
            },
            image: "i".to_owned(),
        };
        Proposal {
            plan: Arc::new(ChangePlan::new(&PlannedChange {
                extension: "ext",
                account: "n/a",
                installed_account: None,
                installed: None,
                wanted: &wanted,
                catalog: "",
                passed: &[],
                uninstall: Uninstall::Delete,
                adopt: CollisionProtection::Prevent,
                before: &[],
                after: &[],
                needs: None,
            })),
            policies: Vec::new(),
            gate: Gate {
                needs_approval: true,
                approver: None,
                causes,
            },
            pending: None,
        }
    }

    fn run(
        all: &[PendingChange],
        sets: Vec<Arc<ClusterObjectSet>>,
        wanted: &DesiredChange<'_>,
    ) -> Vec<Action> {
        let all: Vec<Arc<PendingChange>> = all.iter().cloned().map(Arc::new).collect();
        let now = Timestamp::UNIX_EPOCH;
        records(&extension(), &all, &Revisions::new(sets), wanted, now)
    }

    fn offered(version: &str, uid: &str) -> PendingChange {
        let proposal = proposal(version, vec![Cause::Approval]);
        let held = proposal.held("ext");
        let actions = run(&[], Vec::new(), &DesiredChange::Change(&proposal, held.as_ref()));
        let [Action::OfferChange(change)] = &actions[..] else {
            panic!("{actions:?}");
        };
        let mut change = (**change).clone();
        change.metadata.uid = Some(uid.to_owned());
        change.metadata.generation = Some(1);
        change
    }

    fn reason_of(action: &Action) -> String {
        match action {
            Action::RecordPendingChange(change) => {
                find(change.conditions(), APPLIED).map_or_else(String::new, |applied| applied.reason.clone())
            }
            Action::RemovePendingChange(_) => "removed".to_owned(),
            Action::OfferChange(_) => "offered".to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn reasons(
        all: &[PendingChange],
        sets: Vec<Arc<ClusterObjectSet>>,
        wanted: &DesiredChange<'_>,
    ) -> Vec<String> {
        run(all, sets, wanted).iter().map(reason_of).collect()
    }

    #[test]
    fn a_change_is_offered_once_and_is_void_when_it_is_not_wanted() {
        let first = offered("1.0.0", "a");
        assert_eq!(first.spec.class, "Install");
        let (one, other) = (
            proposal("1.0.0", vec![Cause::Approval]),
            proposal("1.0.1", vec![Cause::Approval]),
        );
        let held = one.held("ext");
        let wanted = DesiredChange::Change(&one, held.as_ref());
        assert!(
            run(from_ref(&first), Vec::new(), &wanted).is_empty(),
            "again: nothing"
        );
        let held = other.held("ext");
        let wanted = DesiredChange::Change(&other, held.as_ref());
        assert_eq!(
            reasons(from_ref(&first), Vec::new(), &wanted),
            ["Void", "offered"]
        );
        let nothing = DesiredChange::Nothing("the catalog lost it");
        assert_eq!(reasons(from_ref(&first), Vec::new(), &nothing), ["Void"]);
        let Some(Action::RecordPendingChange(void)) = run(&[first], Vec::new(), &nothing).pop() else {
            panic!("it is not void");
        };
        assert!(run(&[(*void).clone()], Vec::new(), &nothing).is_empty());
        // A void one is created again, so that an old decision does not count.
        let held = one.held("ext");
        let wanted = DesiredChange::Change(&one, held.as_ref());
        assert_eq!(reasons(&[*void], Vec::new(), &wanted), ["removed", "offered"]);
    }

    #[test]
    fn a_change_whose_bundle_is_gone_says_so_unless_it_is_over() {
        let first = Arc::new(offered("1.0.0", "a"));
        assert!(first.is_of(&first.spec.bundle) && !first.is_of("other.v1.0.0"));
        let void = |change: &Arc<PendingChange>, sets| {
            let all = [Arc::clone(change)];
            void_without_bundle(&all, &Revisions::new(sets), Timestamp::UNIX_EPOCH)
        };
        let Some(Action::RecordPendingChange(change)) = void(&first, Vec::new()).pop() else {
            panic!("it is not void");
        };
        let applied = find(change.conditions(), APPLIED).unwrap();
        assert_eq!(applied.reason, "Void");
        let expected = format!("no selected catalog has bundle {:?} any more", first.spec.bundle);
        assert_eq!(applied.message, expected);
        assert!(void(&Arc::new(*change), Vec::new()).is_empty());
        let mut set = (*revision(1, &[])).clone();
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::PENDING_CHANGE.to_owned(), "a".to_owned());
        assert!(void(&first, vec![Arc::new(set)]).is_empty());
    }

    #[test]
    fn a_change_names_the_signer_first_and_the_same_change_by_another_signer_is_no_other() {
        let unsigned = proposal("1.0.0", vec![Cause::Approval]);
        let mut plan = (*unsigned.plan).clone();
        plan.observed.verified = Some("i is signed by key 1".to_owned());
        assert_eq!(plan.digest(), unsigned.plan.digest);
        plan.observed.verified_images = vec!["o is signed by key 2".to_owned()];
        assert_eq!(plan.digest(), unsigned.plan.digest);
        assert_eq!(summary(&plan), ["i is signed by key 1", "o is signed by key 2"]);
        assert_eq!(summary(&unsigned.plan), <[&str; 0]>::default());
    }

    #[test]
    fn a_decision_is_used_once() {
        let change = offered("1.0.0", "a");
        let mut set = (*revision(1, &[])).clone();
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::PENDING_CHANGE.to_owned(), "a".to_owned());
        let sets = vec![Arc::new(set)];
        let wanted = proposal("1.0.0", vec![Cause::Approval]);
        let revisions = Revisions::new(sets.clone());
        assert!(!counts(&change, &extension(), &wanted.plan, &revisions));
        assert!(counts(&change, &extension(), &wanted.plan, &Revisions::default()));
        let nothing = DesiredChange::Nothing("");
        assert_eq!(reasons(from_ref(&change), sets.clone(), &nothing), ["Succeeded"]);
        let held = wanted.held("ext");
        let again = DesiredChange::Change(&wanted, held.as_ref());
        assert_eq!(reasons(&[change], sets, &again), ["removed", "offered"]);
    }

    #[test]
    fn a_namesake_of_the_extension_needs_decisions_of_its_own() {
        let mut change = offered("1.0.0", "a");
        change.spec.extension_uid = "another".to_owned();
        let wanted = proposal("1.0.0", vec![Cause::Approval]);
        assert!(!counts(
            &change,
            &extension(),
            &wanted.plan,
            &Revisions::default()
        ));
        change.spec.extension_uid = "u".to_owned();
        change.spec.digest = "sha256:0".to_owned();
        assert!(!counts(
            &change,
            &extension(),
            &wanted.plan,
            &Revisions::default()
        ));
    }

    #[test]
    fn only_the_newest_finished_changes_are_kept() {
        let over: Vec<PendingChange> = (0..8)
            .map(|number| {
                let change = offered(&format!("1.0.{number}"), &number.to_string());
                let mut actions = run(&[change], Vec::new(), &DesiredChange::Nothing("over"));
                let Some(Action::RecordPendingChange(mut void)) = actions.pop() else {
                    panic!("it is not void");
                };
                let second = Timestamp::from_second(number).unwrap();
                void.metadata.creation_timestamp = Some(olm_api::Time(second));
                *void
            })
            .collect();
        let removed: Vec<String> = run(&over, Vec::new(), &DesiredChange::Nothing("over"))
            .iter()
            .map(|action| match action {
                Action::RemovePendingChange(change) => change.spec.to.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(removed, ["1.0.0", "1.0.1", "1.0.2"]);
    }
}
