//! Taking a revision down: because it is archived, or because it is being deleted.

use std::{collections::BTreeSet, sync::atomic::AtomicBool, time::Duration};

use kube::Client;
use olm_api::{ClusterObjectSet, cluster_object_set::LifecycleState, names};

use super::{
    controller::Context,
    engine::{Outline, Place, report, teardown::TeardownEnd},
    executor::Executor,
    memory::Memory,
    policy::{Policy, Uninstall},
    reconcile::{Again, Conclusion, identify, load, outline, retry},
    records, rights,
    status::{self, Verdict},
};
use crate::cluster::identity::AccountName;

/// When objects that are being deleted are looked at again; watches are quicker.
const REMOVING: Duration = Duration::from_secs(5);

/// What is taken down, and how.
pub(super) struct Work<'a> {
    pub(super) context: &'a Context,
    pub(super) set: &'a ClusterObjectSet,
    pub(super) account: &'a AccountName,
    pub(super) client: &'a Client,
    pub(super) outline: &'a Outline,
    /// The objects that are let go instead of deleted.
    pub(super) kept: BTreeSet<Place>,
}

/// The objects that the user wants to keep.
pub(super) fn kept(policy: Policy, outline: &Outline) -> BTreeSet<Place> {
    match policy.uninstall {
        Uninstall::Delete => BTreeSet::new(),
        Uninstall::KeepCrds => outline.custom_resources(),
        Uninstall::Orphan => outline.all_places().collect(),
    }
}

/// A run over an archived set that still has objects.
pub(super) async fn archive(work: Work<'_>, memory: &mut Memory) -> Conclusion {
    let (context, account) = (work.context, work.account);
    match take_down(work, memory).await {
        TeardownEnd::Complete => Conclusion::new(Verdict::Archived, Again::After(Duration::ZERO)),
        TeardownEnd::Waiting { .. } => Conclusion::new(Verdict::Archiving, Again::After(REMOVING)),
        TeardownEnd::Failed { phase, failures } => {
            let message = format!("error archiving revision: {}", report::failures(phase, &failures));
            Conclusion::retrying(message, retry(context, account, &failures))
        }
    }
}

async fn take_down(work: Work<'_>, memory: &mut Memory) -> TeardownEnd {
    let Work {
        context,
        set,
        account,
        client,
        outline,
        kept,
    } = work;
    // Without watches it only takes longer.
    let coverage = rights::watch(context, set.name(), account, client, outline)
        .await
        .unwrap_or_default();
    let mut executor = Executor {
        client,
        discovery: &context.discovery,
        coverage: &coverage,
        outline,
        content: None,
        probes: &[],
        memory,
        starved: AtomicBool::new(false),
        unwatched: AtomicBool::new(false),
    };
    executor.take_down(kept).await
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
    // Kubernetes itself lets the objects go, or nothing was left to take down.
    let done = records::has_finalizer(set, records::ORPHAN)
        || (set.spec.lifecycle_state == LifecycleState::Archived && status::is_archived(set.conditions()));
    if !done && let Some(conclusion) = remove(context, set, memory).await {
        return Ok(conclusion);
    }
    context.watches.forget(set.name());
    records::finalizers(&context.own, set, &[], &[names::finalizer::TEARDOWN]).await?;
    memory.ended = true;
    Ok(Conclusion::silent(Again::OnChange))
}

/// Removes the objects; `None` when nothing that is ours is left.
async fn remove(context: &Context, set: &ClusterObjectSet, memory: &mut Memory) -> Option<Conclusion> {
    let policy = match Policy::of(set) {
        Ok(policy) => policy,
        Err(error) => {
            return Some(Conclusion::new(
                Verdict::Blocked(error.to_string()),
                Again::OnChange,
            ));
        }
    };
    let (account, client) = match identify(context, set).await {
        Ok(identified) => identified,
        Err(conclusion) => return Some(explain(conclusion, set)),
    };
    let phases = match load(context, set, memory, &client).await {
        Ok(phases) => phases,
        Err(conclusion) if conclusion.lost && policy.uninstall == Uninstall::Delete => {
            // A foreground deletion takes the Secrets first. Kubernetes deletes the objects too, in its own order.
            tracing::warn!(
                set = set.name(),
                "the content is gone; leaving the objects to the garbage collector"
            );
            return None;
        }
        Err(conclusion) => return Some(explain(conclusion, set)),
    };
    let outline = outline(context, set, &phases);
    let work = Work {
        context,
        set,
        account: &account,
        client: &client,
        outline: &outline,
        kept: kept(policy, &outline),
    };
    match take_down(work, memory).await {
        TeardownEnd::Complete => None,
        TeardownEnd::Waiting { objects, .. } => {
            let message = format!("removing objects; waiting for {}", report::remaining(&objects));
            Some(Conclusion::retrying(message, Again::After(REMOVING)))
        }
        TeardownEnd::Failed { phase, failures } => {
            let message = format!("error removing objects: {}", report::failures(phase, &failures));
            Some(Conclusion::retrying(message, retry(context, &account, &failures)))
        }
    }
}

/// Says what remains when a set that is being deleted cannot be taken down.
fn explain(mut conclusion: Conclusion, set: &ClusterObjectSet) -> Conclusion {
    let count: usize = set.spec.phases.iter().map(|phase| phase.objects.len()).sum();
    let explained = |message: &str| {
        format!(
            "cannot remove the {count} object(s) of this revision: {message}; removal goes on once that is mended"
        )
    };
    conclusion.verdict = conclusion.verdict.map(|verdict| match verdict {
        Verdict::Blocked(message) => Verdict::Blocked(explained(&message)),
        Verdict::Retrying(message) => Verdict::Retrying(explained(&message)),
        other => other,
    });
    conclusion
}
