//! `olm approve` and `olm reject`: decide about a change of a ClusterExtension that waits for an approval.

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use olm_api::conditions::{find, reason};
use olm_api::names::{CHANGE_POLICY, CLUSTER_EXTENSION, PENDING_CHANGE, label};
use olm_api::pending_change::{APPLIED, Decision, DecisionOutcome};
use olm_api::{ClusterExtension, PendingChange};
use serde_json::json;

use super::access::ClusterArguments;
use super::change::ask::agreed;
use super::change::wait::{Goal, WaitArguments, wait};
use super::change::{ChangeArguments, MANAGER, report};
use super::cluster::Cluster;
use crate::hint::Hint;
use crate::output::{CommandResult, ObjectFormat, Status, note, print_text};

#[derive(Debug, Args)]
#[command(
    after_help = "The decision holds for exactly the change that is shown: for its digest, as `olm plan` prints it. Another \
                  change needs another decision. Without --yes or --digest the command asks.\n\nTo decide, a user needs the \
                  verb `approve` on the ClusterExtension, and the right to patch PendingChanges.\n\nExamples:\n  olm approve \
                  greeter --wait\n  olm reject greeter --note \"not before the audit\"\n\nExit status: 0 on success, 1 when you decline or \
                  the command fails; with --wait 4 when a person must change something, 5 when the time is over."
)]
pub(crate) struct ApproveArguments {
    #[command(flatten)]
    decision: DecisionArguments,
    #[command(flatten)]
    wait: WaitArguments,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The decision holds for exactly the change that is shown: for its digest, as `olm plan` prints it. You can still \
                  approve the change later. Without --yes or --digest the command asks.\n\nTo decide, a user needs the verb \
                  `approve` on the ClusterExtension, and the right to patch PendingChanges.\n\nExamples:\n  olm reject greeter \
                  --note \"not before the audit\""
)]
pub(crate) struct RejectArguments {
    #[command(flatten)]
    decision: DecisionArguments,
}

#[derive(Debug, Args)]
struct DecisionArguments {
    /// ClusterExtension whose change waits
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    extension: String,
    /// Decide only if the digest of the change is this one
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Reason of the decision
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    #[command(flatten)]
    change: ChangeArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Approves, and waits for the result if the command line requests it.
pub(crate) fn approve(arguments: &ApproveArguments) -> CommandResult {
    let decision = &arguments.decision;
    let cluster = Cluster::reach(&decision.cluster)?;
    let extension = cluster.extension(&decision.extension)?;
    match decide(&cluster, &extension, decision, DecisionOutcome::Approved)? {
        Status::Success if arguments.wait.wait && !decision.change.dry_run => {
            wait(&cluster, &arguments.wait, &extension, Goal::Revision)
        }
        ended => Ok(ended),
    }
}

/// Rejects.
pub(crate) fn reject(arguments: &RejectArguments) -> CommandResult {
    let decision = &arguments.decision;
    let cluster = Cluster::reach(&decision.cluster)?;
    let extension = cluster.extension(&decision.extension)?;
    decide(&cluster, &extension, decision, DecisionOutcome::Rejected)
}

fn decide(
    cluster: &Cluster,
    extension: &ClusterExtension,
    arguments: &DecisionArguments,
    verdict: DecisionOutcome,
) -> CommandResult {
    let name = extension.name();
    let changes: Api<PendingChange> = Api::all(cluster.client.clone());
    let mut waiting = waiting(cluster, extension)?;
    waiting.retain(|change| {
        let digest = arguments.digest.as_ref();
        digest.is_none_or(|digest| *digest == change.spec.digest)
    });
    let Some(change) = waiting.pop() else {
        return Err(nothing(arguments, name));
    };
    if !waiting.is_empty() {
        bail!(
            "several changes of {CLUSTER_EXTENSION} {name:?} wait; set --digest to one of: {}, {}",
            change.spec.digest,
            waiting
                .iter()
                .map(|change| change.spec.digest.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    match arguments.change.output {
        ObjectFormat::Table => print_text(&text(&change))?,
        ObjectFormat::Json | ObjectFormat::Yaml | ObjectFormat::Name => note(text(&change).trim_end()),
    }
    let question = match verdict {
        DecisionOutcome::Approved => "Approve this change?",
        DecisionOutcome::Rejected => "Reject this change?",
    };
    let is_named = arguments.yes || arguments.change.dry_run || arguments.digest.is_some();
    if !agreed(question, is_named)? {
        return Ok(Status::Failure);
    }
    let approver = cluster.runtime.block_on(own_name(cluster))?;
    let decision = Decision {
        verdict,
        approver,
        note: arguments.note.clone(),
    };
    // The version protects a decision that another user makes meanwhile.
    let patch = json!({
        "metadata": { "resourceVersion": change.metadata.resource_version },
        "spec": { "decision": decision },
    });
    let params = PatchParams {
        dry_run: arguments.change.dry_run,
        ..PatchParams::apply(MANAGER)
    };
    let patch = Patch::Merge(&patch);
    let patched = changes.patch(change.name(), &params, &patch);
    let patched = cluster
        .runtime
        .block_on(patched)
        .with_context(|| format!("cannot write {PENDING_CHANGE} {:?}", change.name()))?;
    let done = match verdict {
        DecisionOutcome::Approved => "approved",
        DecisionOutcome::Rejected => "rejected",
    };
    let done = format!("{done} by {}", decision.approver);
    report(&arguments.change, "pendingchange", change.name(), &patched, &done)?;
    Ok(Status::Success)
}

/// The changes of an extension that wait for a decision or for their time.
pub(crate) fn waiting(cluster: &Cluster, extension: &ClusterExtension) -> anyhow::Result<Vec<PendingChange>> {
    let changes: Api<PendingChange> = Api::all(cluster.client.clone());
    let Some(selector) = label::selector(label::OWNER_NAME, extension.name()) else {
        return Ok(Vec::new());
    };
    let listed = cluster
        .runtime
        .block_on(changes.list(&ListParams::default().labels(&selector)));
    let waits = |change: &PendingChange| {
        change.metadata.deletion_timestamp.is_none()
            && !change.is_void()
            && !change.is_applied()
            && Some(&change.spec.extension_uid) == extension.metadata.uid.as_ref()
    };
    let all = listed.context("cannot list the PendingChanges")?.items;
    Ok(all.into_iter().filter(waits).collect())
}

fn nothing(arguments: &DecisionArguments, name: &str) -> anyhow::Error {
    let error = match &arguments.digest {
        Some(digest) => anyhow!(
            "no change of {CLUSTER_EXTENSION} {name:?} with the digest {digest} waits for an approval"
        ),
        None => anyhow!("no change of {CLUSTER_EXTENSION} {name:?} waits for an approval"),
    };
    error.context(Hint(format!(
        "see what waits with `kubectl get pendingchanges`; which changes need an approval is what every {CHANGE_POLICY} says"
    )))
}

/// The user as the API server knows them.
async fn own_name(cluster: &Cluster) -> anyhow::Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .context("cannot determine who decides")?;
    let info = review.status.and_then(|status| status.user_info);
    info.and_then(|info| info.username)
        .context("the API server does not say who decides")
}

/// The change to decide on.
fn text(change: &PendingChange) -> String {
    let spec = &change.spec;
    let from = spec.from.as_deref().unwrap_or("nothing");
    let mut text = format!(
        "{}: {from} -> {} ({}), {}\n",
        spec.extension, spec.to, spec.bundle, spec.class
    );
    for line in &spec.summary {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "{:<9}{}", "digest", spec.digest);
    // That it needs an approval is known to who runs the command.
    let applied = find(change.conditions(), APPLIED);
    if let Some(applied) = applied.filter(|applied| applied.reason != reason::AWAITING_APPROVAL) {
        let _ = writeln!(text, "{:<9}{}", "status", applied.message);
    }
    text
}
