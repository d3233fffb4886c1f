//! Decides whether a change may begin, from the ChangePolicies that select the extension and the decision.

pub(crate) mod pending;
pub(crate) mod policies;

use std::sync::Arc;

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::api::{Api, PartialObjectMeta};
use olm_api::names::{CLUSTER_EXTENSION, PENDING_CHANGE, annotation};
use olm_api::pending_change::{self, Decision};
use olm_api::updates::held_back;
use olm_api::{ChangePolicy, ClusterExtension, ClusterObjectSet, PendingChange};
use olm_plan::approval::{Cause, Gate, gate};
use olm_plan::{BundleIdentity, Change, ChangePlan};
use olm_resolve::Request;
use olm_resolve::fallback::{Fallback, without_catalogs};
use olm_rollout::policy::Policy;
use serde_json::Value;

use self::policies::PoliciesError;
use super::bundle::images;
use super::context::Context;
use super::context::joint_updates::JointChange;
use super::failure::{Severity, StageError, StageFailure};
use super::observe::Observed;
use super::plan::Plan;
use super::plan::revision::{Creation, RevisionPlan};
use super::resolve::Target;
use super::revisions::{Revisions, as_installed, config_digest};
use crate::object_set::gather::{self, GatherError};

/// The reason why it is unknown whether a change may begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApprovalError {
    /// The policies are unknown.
    #[error(transparent)]
    Policies(#[from] PoliciesError),
    /// The objects of the newest revision are unknown.
    #[error("cannot plan the change of {revision}: its objects cannot be read")]
    Before { revision: String, source: GatherError },
    /// The extension or the decision is unknown.
    #[error("cannot read {kind} {name:?}")]
    Read {
        kind: &'static str,
        name: String,
        source: kube::Error,
    },
}

impl StageError for ApprovalError {
    fn severity(&self) -> Severity {
        match self {
            Self::Policies(error) => error.severity(),
            Self::Before { .. } | Self::Read { .. } => Severity::Transient,
        }
    }

    fn held_back_by(&self) -> &'static str {
        held_back::APPROVAL
    }
}

/// A new revision of an extension that policies select.
pub(crate) struct Proposal {
    /// The planned change.
    pub plan: Arc<ChangePlan>,
    /// The policies that select the extension.
    pub policies: Vec<Arc<ChangePolicy>>,
    /// The decision.
    pub gate: Gate,
    /// The PendingChange of the plan, if one counts.
    pub pending: Option<PendingChange>,
}

/// A change that has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldChange {
    /// The first cause that holds it back.
    pub cause: Cause,
    /// The message: the change, the causes, and a hint.
    pub message: String,
    /// The time when a window opens.
    pub opens: Option<Timestamp>,
}

impl HeldChange {
    /// The failure to report if the extension is not as its spec asks.
    pub(crate) fn failure(&self) -> StageFailure {
        StageFailure {
            severity: Severity::Terminal,
            reason: self.cause.reason(),
            message: self.message.clone(),
            help: None,
            held_back_by: self.cause.held_back_by(),
        }
    }
}

impl Proposal {
    /// Whether the change has to wait.
    pub(crate) fn is_held(&self) -> bool {
        !self.gate.causes.is_empty()
    }

    /// The held change, if anything holds it back.
    pub(crate) fn held(&self, extension: &str) -> Option<HeldChange> {
        let cause = self.gate.causes.first()?.clone();
        let texts: Vec<String> = self.gate.causes.iter().map(Cause::text).collect();
        let wanted = &self.plan.wanted.version;
        let what = match &self.plan.installed {
            None => format!("the installation of {wanted}"),
            Some(installed) if installed.version == *wanted => format!("the change of {wanted}"),
            Some(installed) => format!("the change from {} to {wanted}", installed.version),
        };
        let advice = match cause {
            Cause::Approval | Cause::Rejected(_) => format!("; to decide: `olm approve {extension}`"),
            _ => String::new(),
        };
        let opens = self.gate.causes.iter().find_map(|cause| match cause {
            Cause::Window { opens, .. } => *opens,
            _ => None,
        });
        Some(HeldChange {
            cause,
            message: format!("{what} waits: {}{advice}", texts.join("; ")),
            opens,
        })
    }

    /// Records the digest and the approval on a new revision.
    pub(crate) fn record(&self, creation: &mut Creation) {
        let annotations = creation.set.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::CHANGE_DIGEST.to_owned(), self.plan.digest.clone());
        let uid = self
            .pending
            .as_ref()
            .and_then(|pending| pending.metadata.uid.clone());
        if let (Some(approver), Some(uid)) = (&self.gate.approver, uid) {
            annotations.insert(annotation::APPROVED_BY.to_owned(), approver.clone());
            annotations.insert(annotation::PENDING_CHANGE.to_owned(), uid);
        }
    }
}

/// The planned change, and whether it may begin; `None` if no revision is created or no policy selects the extension.
///
/// # Errors
/// That is not known.
pub(crate) async fn propose(context: &Context, plan: &Plan<'_>) -> Result<Option<Proposal>, ApprovalError> {
    let observed = plan.rendered.resolved.observed;
    if !matches!(plan.revision, RevisionPlan::Create(_)) {
        return Ok(None);
    }
    // Before the watch has listed the policies, read them from the API server.
    let is_known = context.policies.wait_until_ready().now_or_never().is_some();
    if is_known && context.policies.is_empty() {
        return Ok(None);
    }
    let extension = &observed.extension;
    let policies = policies::read(context, extension).await?;
    if policies.is_empty() {
        return Ok(None);
    }
    let change = change(context, plan).await?;
    let (gate, pending) = evaluate(context, extension, &observed.revisions, &change, &policies).await?;
    Ok(Some(Proposal {
        plan: Arc::new(change),
        policies,
        gate,
        pending,
    }))
}

/// Whether a change is still free: reads extension, policies and decision from the API server right before the revision
/// is created, even if no policy was known.
///
/// # Errors
/// The answer is unknown.
pub(crate) async fn confirm(
    context: &Context,
    observed: &Observed,
    proposal: Option<&Proposal>,
) -> Result<bool, ApprovalError> {
    if !is_as_seen(context, &observed.extension).await? {
        return Ok(false);
    }
    let now = policies::read(context, &observed.extension).await?;
    let known = proposal.map_or(&[][..], |proposal| &proposal.policies);
    if !policies::are_same(known, &now) {
        return Ok(false);
    }
    let Some(proposal) = proposal else {
        return Ok(true);
    };
    let (gate, pending) = evaluate(
        context,
        &observed.extension,
        &observed.revisions,
        &proposal.plan,
        &now,
    )
    .await?;
    let uid = |pending: &Option<PendingChange>| pending.as_ref().and_then(|found| found.metadata.uid.clone());
    Ok(gate.causes.is_empty()
        && gate.approver == proposal.gate.approver
        && uid(&pending) == uid(&proposal.pending))
}

/// Whether the changes of all companions may begin, according to the API server, because they may have become ready
/// some time ago. A companion that already has its bundle counts as begun; one that has to wait is no longer ready.
///
/// # Errors
/// The answer is unknown.
pub(crate) async fn confirm_companions(
    context: &Context,
    companions: &[JointChange],
) -> Result<bool, ApprovalError> {
    for JointChange { extension, bundle } in companions {
        if context.newest_bundle(extension).as_ref() == Some(bundle) {
            continue;
        }
        let (Some(found), Some(ready)) = (
            context.extension(extension),
            context.joint_updates.readiness(extension),
        ) else {
            return Ok(false);
        };
        if !is_as_seen(context, &found).await? {
            return Ok(false);
        }
        let policies = policies::read(context, &found).await?;
        let is_free = match &ready.plan {
            _ if policies.is_empty() => true,
            None => false,
            Some(plan) => {
                let revisions = context.revisions(extension);
                let (gate, _) = evaluate(context, &found, &revisions, plan, &policies).await?;
                gate.causes.is_empty()
            }
        };
        if !is_free {
            context.joint_updates.withdraw(extension);
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the extension is unchanged since it was read. Policies select it by its labels.
async fn is_as_seen(context: &Context, extension: &ClusterExtension) -> Result<bool, ApprovalError> {
    let extensions: Api<ClusterExtension> = Api::all(context.client.clone());
    let found = extensions.get_metadata_opt(extension.name()).await;
    let found = found.map_err(|source| ApprovalError::Read {
        kind: CLUSTER_EXTENSION,
        name: extension.name().to_owned(),
        source,
    })?;
    let seen = &extension.metadata;
    Ok(found.is_some_and(|PartialObjectMeta { metadata: now, .. }| {
        now.uid == seen.uid
            && now.generation == seen.generation
            && now.labels == seen.labels
            && now.annotations == seen.annotations
    }))
}

async fn evaluate(
    context: &Context,
    extension: &ClusterExtension,
    revisions: &Revisions,
    plan: &ChangePlan,
    policies: &[Arc<ChangePolicy>],
) -> Result<(Gate, Option<PendingChange>), ApprovalError> {
    let name = pending_change::name(extension.name(), &plan.digest);
    let changes: Api<PendingChange> = Api::all(context.client.clone());
    let found = changes.get_opt(&name).await;
    let found = found.map_err(|source| ApprovalError::Read {
        kind: PENDING_CHANGE,
        name,
        source,
    })?;
    let pending = found.filter(|found| pending::counts(found, extension, plan, revisions));
    let decision: Option<&Decision> = pending
        .as_ref()
        .and_then(|pending| pending.spec.decision.as_ref());
    let now = Timestamp::now();
    let mut gate = gate(plan, policies.iter().map(AsRef::as_ref), decision, now);
    if context
        .joint_updates
        .has_begun(extension.name(), &plan.wanted.name, now)
    {
        // A companion's change began while all windows were open, so the changes count as one.
        gate.causes.retain(|cause| !matches!(cause, Cause::Window { .. }));
    }
    let faults = policies.iter().filter_map(|policy| policies::fault(policy));
    gate.causes.extend(faults);
    Ok((gate, pending))
}

/// The plan of a new revision, the same as that of `olm plan`.
async fn change(context: &Context, plan: &Plan<'_>) -> Result<ChangePlan, ApprovalError> {
    let resolved = &plan.rendered.resolved;
    let extension = &resolved.observed.extension;
    // A revision that is being deleted is still the one to replace: its deletion does not make the change a first
    // installation.
    let newest = resolved.observed.revisions.newest_standing();
    let before = match newest {
        Some(newest) => before(context, newest).await?,
        None => Vec::new(),
    };
    let before: Vec<&Value> = before.iter().collect();
    let after: Vec<&Value> = plan
        .rendered
        .groups
        .iter()
        .flat_map(|group| &group.objects)
        .collect();
    let installed = newest.map(BundleIdentity::of);
    let uninstall = Policy::read(|key| extension.annotation(key)).map(|policy| policy.uninstall);
    let mut change = ChangePlan::new(&Change {
        extension: extension.name(),
        account: &resolved.settings.account.to_string(),
        installed_account: newest.and_then(|set| set.annotation(annotation::SERVICE_ACCOUNT)),
        installed: installed.as_ref(),
        wanted: &BundleIdentity {
            image: plan.rendered.image.clone(),
            ..resolved.target.bundle.clone()
        },
        catalog: &resolved.target.catalog,
        passed: &[],
        uninstall: uninstall.unwrap_or_default(),
        adopt: resolved.settings.options.adopt,
        before: &before,
        after: &after,
        needs: None,
    });
    change.observed.verified.clone_from(&plan.rendered.verified);
    change.observed.verified_images = images::signed(context, resolved, &after).await;
    Ok(change)
}

/// The objects of a revision. If its content is missing or invalid, there are none, so all objects of the new revision
/// count as added.
async fn before(context: &Context, set: &ClusterObjectSet) -> Result<Vec<Value>, ApprovalError> {
    match gather::objects(set, &context.system_namespace, &context.client).await {
        Ok(objects) => Ok(objects),
        Err(source @ GatherError::Unread { .. }) => Err(ApprovalError::Before {
            revision: set.name().to_owned(),
            source,
        }),
        Err(error) => {
            tracing::warn!(
                revision = set.name(),
                error = &error as &dyn std::error::Error,
                "cannot compare the new revision with this one"
            );
            Ok(Vec::new())
        }
    }
}

/// Whether the newest revision matches the spec in package, version, account and configuration. Then a held change is
/// an update.
pub(crate) fn is_satisfied(observed: &Observed, target: &Target) -> bool {
    let (extension, revisions) = (&observed.extension, &observed.revisions);
    let Some(newest) = revisions.newest_active() else {
        return false;
    };
    let bundle = BundleIdentity::of(newest);
    bundle.package == target.bundle.package
        && fits(extension, &bundle)
        && observed.settings.as_ref().is_ok_and(|settings| {
            newest.annotation(annotation::SERVICE_ACCOUNT) == Some(settings.account.to_string().as_str())
        })
        && newest.annotation(annotation::CONFIG_DIGEST) == config_digest(extension).as_deref()
}

/// Whether the spec allows the version of a bundle.
fn fits(extension: &ClusterExtension, bundle: &BundleIdentity) -> bool {
    extension.spec.source.catalog.as_ref().is_some_and(|filter| {
        let installed = as_installed(&bundle.metadata);
        without_catalogs(&[], &Request::of(filter, None), &installed) == Fallback::KeepInstalled
    })
}

#[cfg(test)]
mod tests;
