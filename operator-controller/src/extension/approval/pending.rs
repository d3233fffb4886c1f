//! The PendingChanges of an extension: which one is offered, and what became of the others. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use olm_api::conditions::{Change, Report, Status, prefix, reason, set_condition};
use olm_api::names::{API_VERSION, CLUSTER_EXTENSION, annotation, label};
use olm_api::pending_change::{self, APPLIED, PendingChangeSpec};
use olm_api::{ClusterExtension, PendingChange};
use olm_plan::ChangePlan;
use olm_plan::approval::{ChangeClass, widens_rights};
use olm_text::escape;

use super::{Held, Proposal};
use crate::extension::plan::action::Action;
use crate::extension::revisions::Revisions;

/// How many PendingChanges of an extension stay that are applied or void.
const KEPT: usize = 5;
/// The most lines of a summary.
const MAX_LINES: usize = 99;
/// The longest text, in bytes.
const MAX_TEXT: usize = 1024;

/// What an extension wants at the moment.
pub enum Wanted<'a> {
    /// This change, which is free or has to wait.
    Change(&'a Proposal, Option<&'a Held>),
    /// No change, for this reason.
    Nothing(&'a str),
}

/// Whether a PendingChange is about this change of this extension, and its decision was not used already.
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

/// The UIDs of the PendingChanges by which revisions were made.
fn used(revisions: &Revisions) -> BTreeSet<&str> {
    let sets = revisions.all().iter();
    sets.filter_map(|set| set.annotation(annotation::PENDING_CHANGE))
        .collect()
}

/// What is written so that the PendingChanges of an extension say what is true: `all` are those of its name.
pub(crate) fn records(
    extension: &ClusterExtension,
    all: &[Arc<PendingChange>],
    revisions: &Revisions,
    wanted: &Wanted<'_>,
    now: Timestamp,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let name = match wanted {
        Wanted::Change(proposal, _) => pending_change::name(extension.name(), &proposal.plan.digest),
        Wanted::Nothing(_) => String::new(),
    };
    let mut is_offered = false;
    let mut over: Vec<&Arc<PendingChange>> = Vec::new();
    let used = used(revisions);
    for pending in all {
        let is_used = used.contains(pending.metadata.uid.as_deref().unwrap_or_default());
        let is_wanted = pending.name() == name;
        if let (Wanted::Change(proposal, held), true) = (wanted, is_wanted) {
            if !counts(pending, extension, &proposal.plan, revisions) {
                // Its decision was used, or was about something else: another one is needed.
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
                Wanted::Change(..) => format!("{name} takes its place"),
                Wanted::Nothing(why) => (*why).to_owned(),
            };
            actions.extend(record(pending, Status::False, reason::VOID, &why, now));
        }
    }
    over.sort_by_key(|pending| pending.metadata.creation_timestamp.clone().map(|time| time.0));
    let superfluous = over.len().saturating_sub(KEPT);
    let removed = over.into_iter().take(superfluous);
    actions.extend(removed.map(|pending| Action::RemovePendingChange(Arc::clone(pending))));
    if let Wanted::Change(proposal, Some(held)) = wanted
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

/// A new PendingChange, with the status that it has from the beginning.
fn offer(
    extension: &ClusterExtension,
    name: &str,
    proposal: &Proposal,
    held: &Held,
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

fn text(text: &str) -> String {
    prefix(&escape(text), MAX_TEXT).to_owned()
}

/// What changes, a line each.
fn summary(plan: &ChangePlan) -> Vec<String> {
    let objects = &plan.objects;
    let added = objects.added.iter().map(|object| format!("adds {}", object.id.0));
    let changed = objects.changed.iter().map(|object| {
        let fields = object.fields.len();
        format!("changes {} ({fields} fields)", object.id.0)
    });
    let removed = objects.removed.iter().map(|id| format!("removes {}", id.0));
    let gained = plan.rights.gained.iter().map(|grant| {
        let place = grant.namespace.as_deref().unwrap_or("the cluster");
        format!("gives rights to {} in {place}", grant.subject)
    });
    let definitions = plan.definitions.iter().flat_map(|definition| {
        let findings = definition.findings.iter();
        findings.map(|finding| format!("CustomResourceDefinition {}: {finding}", definition.name))
    });
    // What is grave comes first: the list may be cut.
    let lines: Vec<String> = gained
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
