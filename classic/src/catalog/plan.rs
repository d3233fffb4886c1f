//! One pass over an InstallPlan: its account, its approval, then its steps.

mod findings;
mod gather;
mod preview;
mod repair;
mod write;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use olm_classic::cluster::{Cluster, annotation, items, text};
use olm_classic::install_plan::{
    InstallPlanDecision, PassInput, RetryLimit, approval, edited, given_up, interrupted, is_empty, is_repair,
    look_up_account, pass, plan_digest, refused, resumed, time_left,
};
use olm_classic::names;
use olm_classic::subscription::is_namespace_paused;
use olm_platform::queue::Outcome;
use olm_rollout::failure::{FailureKind, RequestFailure};
use serde_json::{Value, json};

use self::findings::{Findings, noted};
use self::gather::gather;
use self::preview::preview;
use self::repair::{repair, repair_later};
use super::context::Context;
use super::write::write_status;
use crate::objects::account::{NoAccountError, account};
use crate::objects::write::Actor;

/// Delay between a pass that moved a plan forward and the next one.
const AT_ONCE: Duration = Duration::ZERO;

/// Delay before a pass whose plan changed meanwhile is repeated.
const SOON: Duration = Duration::from_millis(200);

/// The pause between the passes of a failing plan while its time runs.
const PACE: Duration = Duration::from_secs(2);

/// Works on an InstallPlan.
pub async fn work(context: Arc<Context>, (namespace, name): (String, String)) -> Outcome {
    let cluster = context.base.store.snapshot();
    let key = (namespace.clone(), name.clone());
    let plan = cluster.get(names::INSTALL_PLAN_KIND, &namespace, &name);
    if plan.is_none_or(|plan| text(plan, "/status/phase") != "RequiresApproval") {
        context.previews.lock().remove(&key);
    }
    let Some(plan) = plan else {
        context.repairs.lock().remove(&key);
        return Outcome::Done;
    };
    let until_repair = repair::time_left(&mut context.repairs.lock(), &key, Instant::now());
    if text(plan, "/status/phase") == "Complete" {
        return match until_repair {
            None => Outcome::Done,
            Some(Duration::ZERO) => repair(&context, key, plan, &cluster).await,
            Some(left) => Outcome::After(left),
        };
    }
    let is_resumed = context.resumed.lock().remove(&key);
    let phase = text(plan, "/status/phase");
    let is_live = matches!(phase, "RequiresApproval" | "Installing") || (is_resumed && phase == "Failed");
    if !is_live || is_empty(plan) {
        return Outcome::Done;
    }
    if is_namespace_paused(&cluster, &namespace) {
        // The change of the Subscription wakes the plan.
        return Outcome::Done;
    }
    let passed = match is_resumed.then(|| resumed(plan)).flatten() {
        Some(resumed) => write_status(&context.base, &resumed)
            .await
            .map(|()| Outcome::After(AT_ONCE)),
        None => pass_over(&context, plan, &cluster).await,
    };
    match passed {
        Ok(outcome) => outcome,
        // The watch shows what has changed.
        Err(failure) if failure.kind == FailureKind::Conflict => {
            remember(&context, key, is_resumed);
            Outcome::After(SOON)
        }
        Err(failure) => {
            tracing::warn!(
                namespace,
                name,
                error = failure.message,
                "cannot reconcile an InstallPlan; retrying"
            );
            remember(&context, key, is_resumed);
            Outcome::Failed
        }
    }
}

/// Keeps it in mind that rights have changed, for a plan whose phase was not written.
fn remember(context: &Context, key: (String, String), is_resumed: bool) {
    if is_resumed {
        context.resumed.lock().insert(key);
    }
}

async fn pass_over(context: &Context, read: &Value, cluster: &Cluster) -> Result<Outcome, RequestFailure> {
    let now = Timestamp::now();
    let namespace = text(read, "/metadata/namespace");
    let groups: Vec<&Value> = cluster
        .in_namespace(names::OPERATOR_GROUP_KIND, namespace)
        .collect();
    let lookup = look_up_account(read, &groups, cluster, now);
    let key = || (namespace.to_owned(), text(read, "/metadata/name").to_owned());
    if is_repair(read)
        && let Some(why) = lookup.error.clone().or_else(|| edited(read))
    {
        let (plan, event) = given_up(read, &why);
        write_status(&context.base, &plan).await?;
        context.warn(&plan, [event]);
        return Ok(repair_later(context, key()));
    }
    if lookup.error.is_some() {
        // A change of the OperatorGroups or of the account wakes the plan.
        write_status(&context.base, &lookup.plan).await?;
        return Ok(Outcome::Done);
    }
    let plan = &lookup.plan;
    if let Some(why) = edited(plan) {
        let (namespace, name) = (namespace, text(plan, "/metadata/name"));
        tracing::warn!(namespace, name, why, "an InstallPlan is refused");
        let refused = refused(plan, &why, now);
        write_status(&context.base, &refused).await?;
        context.warn(&refused, [("PlanEdited".to_owned(), why)]);
        return Ok(Outcome::Done);
    }
    if text(plan, "/status/phase") == "RequiresApproval" {
        let approved = pass(plan, &Gathered::default().facts(context), now);
        let is_approved = text(&approved.plan, "/status/phase") == "Installing";
        if is_approved {
            bind(context, plan).await?;
        } else if annotation(plan, names::PLAN_DIGEST_ANNOTATION).is_empty() {
            note(
                context,
                plan,
                names::PLAN_DIGEST_ANNOTATION,
                plan_digest(plan).into(),
            )
            .await?;
        }
        // An edit of the plan meanwhile must not be written over by a pass that changes nothing.
        if approved.plan != *read {
            write_status(&context.base, &approved.plan).await?;
        }
        return if is_approved {
            Ok(Outcome::After(AT_ONCE))
        } else {
            preview(context, plan, cluster).await
        };
    }
    let decision = install(context, plan, cluster, now).await;
    write_status(&context.base, &decision.plan).await?;
    context.warn(&decision.plan, decision.events);
    match text(&decision.plan, "/status/phase") {
        "Installing" if decision.error.is_none() => {
            // A definition that is served wakes the plan; one that is gone is created again.
            let is_gone = |step: &Value| text(step, "/status") == "NotPresent";
            let is_gone = items(&decision.plan, "/status/plan").any(is_gone);
            Ok(if is_gone {
                Outcome::After(AT_ONCE)
            } else {
                Outcome::Done
            })
        }
        "Installing" => {
            // At a fixed pace, so that the pass that ends the plan comes in time, however often the plan is woken.
            let left = time_left(&decision.plan, context.retry_for, now);
            let left = left.and_then(|left| Duration::try_from(left).ok());
            Ok(left.map_or(Outcome::Failed, |left| Outcome::After(left.clamp(SOON, PACE))))
        }
        "Complete" if decision.error.is_some() => Ok(repair_later(context, key())),
        phase => {
            tracing::info!(
                namespace,
                name = text(plan, "/metadata/name"),
                phase,
                "an InstallPlan ended"
            );
            Ok(Outcome::Done)
        }
    }
}

/// Binds the approval of a plan to its UID and to its content as it was read.
async fn bind(context: &Context, plan: &Value) -> Result<(), RequestFailure> {
    let approval = approval(plan);
    if annotation(plan, names::APPROVED_PLAN_ANNOTATION) == approval {
        return Ok(());
    }
    note(context, plan, names::APPROVED_PLAN_ANNOTATION, approval.into()).await
}

/// Sets an annotation of a plan that is still as it was read; null removes it.
async fn note(context: &Context, plan: &Value, key: &str, value: Value) -> Result<(), RequestFailure> {
    let version = text(plan, "/metadata/resourceVersion");
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {key: value}}});
    context.base.writer.merge(&Actor::Own, plan, &patch).await?;
    Ok(())
}

/// The accounts that apply the objects of a plan.
pub(super) struct Actors {
    /// CustomResourceDefinitions.
    definitions: Actor,
    /// ClusterServiceVersions and Subscriptions.
    operators: Actor,
    /// The other content.
    content: Actor,
}

impl Actors {
    /// The accounts for a plan whose account is looked up.
    fn new(context: &Context, plan: &Value, cluster: &Cluster) -> Result<Self, NoAccountError> {
        let namespace = text(plan, "/metadata/namespace");
        let installer = account(cluster, namespace, context.base.account.as_ref())?;
        let definitions = context
            .definitions
            .clone()
            .map_or_else(|| installer.clone(), Actor::Account);
        // An account that the OperatorGroup names needs the right to create these.
        let is_named = plan.pointer("/status/attenuatedServiceAccountRef").is_some();
        let operators = if is_named { installer.clone() } else { Actor::Own };
        Ok(Self {
            definitions,
            operators,
            content: installer,
        })
    }

    fn of(&self, kind: &str) -> &Actor {
        match kind {
            names::CSV_KIND | names::SUBSCRIPTION_KIND => &self.operators,
            names::CRD_KIND => &self.definitions,
            _ => &self.content,
        }
    }
}

/// Input of a pass, owned.
#[derive(Default)]
pub(super) struct Gathered {
    cluster: Cluster,
    bundles: olm_classic::install_plan::UnpackedBundles,
    served: olm_classic::install_plan::ServedKinds,
    /// What may break when CustomResourceDefinitions are replaced.
    findings: Findings,
}

impl Gathered {
    fn facts<'a>(&'a self, context: &'a Context) -> PassInput<'a> {
        PassInput {
            cluster: &self.cluster,
            bundles: &self.bundles,
            served: &self.served,
            global_namespace: &context.global,
            retry_for: context.retry_for,
        }
    }
}

/// Carries out the steps as far as it gets.
async fn install(context: &Context, plan: &Value, cluster: &Cluster, now: Timestamp) -> InstallPlanDecision {
    let unchanged = || InstallPlanDecision {
        plan: plan.clone(),
        ..InstallPlanDecision::default()
    };
    let stop = |decision: &InstallPlanDecision, position: usize, error: &str, patience: RetryLimit| {
        interrupted(plan, decision, position, error, patience, context.retry_for, now)
    };
    let actors = match Actors::new(context, plan, cluster) {
        Ok(actors) => actors,
        Err(error) => return stop(&unchanged(), 0, &error.to_string(), RetryLimit::Endless),
    };
    let gathered = match gather(context, plan, cluster, &actors).await {
        Ok(gathered) => gathered,
        Err(failure) => return stop(&unchanged(), 0, &failure.message, patience(&failure)),
    };
    let decision = pass(plan, &gathered.facts(context), now);
    let decision = match write::write(context, plan, &decision, &gathered.cluster, &actors).await {
        Ok(()) => decision,
        Err((position, failure)) => stop(&decision, position, &failure.message, patience(&failure)),
    };
    warn_of_findings(context, plan, &decision, &gathered.findings);
    decision
}

/// Warns of the findings about the CustomResourceDefinitions that are written, but for those that the approver was told.
/// Their steps are done then, so that a plan that is retried does not repeat it.
fn warn_of_findings(context: &Context, plan: &Value, decision: &InstallPlanDecision, findings: &Findings) {
    let told = noted(plan);
    let definitions = decision.written.iter();
    for write in definitions.filter(|write| text(&write.object, "/kind") == names::CRD_KIND) {
        let name = text(&write.object, "/metadata/name");
        let found = findings.get(name);
        if let Some(found) = found.filter(|found| told.get(name) != Some(*found)) {
            warn_of_finding(context, plan, write.step, found);
        }
    }
}

/// Warns of what may break when the CustomResourceDefinition of a step replaces the one on the cluster.
fn warn_of_finding(context: &Context, plan: &Value, step: usize, finding: &str) {
    let part = format!("status.plan[{step}]");
    context.warn_about(plan, part, ("CRDUpgradeFindings".to_owned(), finding.to_owned()));
}

/// Time limit of retries: failures that others can fix are retried until they end.
fn patience(failure: &RequestFailure) -> RetryLimit {
    match failure.kind {
        FailureKind::Forbidden | FailureKind::Transient | FailureKind::Conflict => RetryLimit::Endless,
        _ => RetryLimit::Limited,
    }
}
