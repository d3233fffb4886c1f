//! Deletion: the revisions go first, each taking its objects down, then the extension.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, ListParams, PropagationPolicy};
use kube::core::PartialObjectMeta;
use olm_api::conditions::{
    self, AVAILABLE, PROGRESSING, Report, Status, bounded_message, reason, set_condition,
};
use olm_api::names::{label, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_platform::log::chain;
use olm_platform::queue::Outcome;

use super::context::{Context, controller};
use super::reconcile::write_status;
use super::revisions::{Revisions, disturbed};
use super::{account, events, facts, finalizers, losses, write};
use crate::conditions::records;
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
        context.forget(extension.name());
        return Ok(Outcome::Done);
    }
    let sets: Api<ClusterObjectSet> = Api::all(context.client.clone());
    let left = context.revisions(extension.name());
    if left.all().is_empty() {
        // What the watch says may be old; the last step looks at the live list.
        let labelled = ListParams::default().labels(&format!("{}={}", label::OWNER_NAME, extension.name()));
        let uid = extension.metadata.uid.as_deref();
        let ours =
            |set: &PartialObjectMeta<ClusterObjectSet>| uid.is_some() && controller(&set.metadata) == uid;
        if sets.list_metadata(&labelled).await?.items.iter().any(ours) {
            return Ok(Outcome::After(Duration::from_secs(1)));
        }
        remove_secrets(context, extension.name()).await?;
        records::remove(&context.client, extension).await?;
        finalizers::write(&context.client, extension, &rest).await?;
        let told = vec![events::said(events::UNINSTALLED, "Removed all revisions")];
        context.events.publish(extension.object_ref(&()), told);
        context.forget(extension.name());
        return Ok(Outcome::Done);
    }
    let policy = match Policy::read(|key| extension.annotation(key)) {
        Ok(policy) => policy,
        Err(error) => return tell(context, extension, reason::BLOCKED, &error.to_string()).await,
    };
    // What has begun is finished.
    if !left.all().iter().any(|set| set.is_deleting()) {
        let needed = facts::needed_by_others(context, extension, &left, policy.uninstall).await;
        if let Some(held) = needed.unwrap_or_else(|error| Some(chain(&error))) {
            context.memorise(extension.name(), |memory| memory.awaits_others = true);
            return tell(context, extension, reason::BLOCKED, &bounded_message(&held)).await;
        }
        if policy.uninstall == Uninstall::Delete && context.remember(extension.name()).losses.is_none() {
            return announce(context, extension, &left).await;
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
    if policy.uninstall == Uninstall::Orphan && entangled(&left) {
        return tell(context, extension, reason::BLOCKED, &entanglement(extension)).await;
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
    let mut message = waiting(&left);
    if message.contains(losses::CLEANUP)
        && let Some(held) = losses::held(context, extension, &left).await
    {
        message.push('\n');
        message.push_str(&held);
    }
    if let Some(losses) = context
        .remember(extension.name())
        .losses
        .filter(|text| !text.is_empty())
    {
        message.push('\n');
        message.push_str(&losses);
    }
    tell(context, extension, reason::RETRYING, &bounded_message(&message)).await
}

/// Tells what the deletion will take away, before it does. The change of the status brings the next run.
async fn announce(
    context: &Context,
    extension: &ClusterExtension,
    left: &Revisions,
) -> Result<Outcome, kube::Error> {
    let losses = losses::count(context, extension, left).await;
    if let Some(losses) = &losses {
        tell(context, extension, reason::RETRYING, &bounded_message(losses)).await?;
    }
    let note = losses
        .clone()
        .unwrap_or_else(|| "Removing all objects".to_owned());
    let told = vec![events::said(events::UNINSTALLING, note)];
    context.events.publish(extension.object_ref(&()), told);
    context.memorise(extension.name(), |memory| {
        memory.losses = Some(losses.unwrap_or_default());
    });
    Ok(Outcome::After(STALE))
}

/// Whether objects of a Helm release still belong to the extension itself: Kubernetes would delete them with it. The
/// revision that was made from the release has them once it was worked on, which gives it the condition.
fn entangled(left: &Revisions) -> bool {
    let mut migrated = left
        .active()
        .filter(|set| set.label(label::MIGRATED_FROM_HELM).is_some());
    migrated.any(|set| conditions::find(set.conditions(), AVAILABLE).is_none())
}

fn entanglement(extension: &ClusterExtension) -> String {
    format!(
        "the objects came from a Helm release and belong to the ClusterExtension itself, so that Kubernetes would delete them with \
         it: name an account in spec.serviceAccount that may take them over, or leave them behind with `kubectl delete \
         clusterextension {} --cascade=orphan`",
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

/// Says what keeps an extension from being worked on, and when it is looked at again; the rest of the status stays.
pub(super) async fn tell(
    context: &Context,
    extension: &ClusterExtension,
    reason: &str,
    message: &str,
) -> Result<Outcome, kube::Error> {
    let mut status = extension.status.clone().unwrap_or_default();
    let report = Report {
        condition_type: PROGRESSING,
        status: if reason == reason::BLOCKED {
            Status::False
        } else {
            Status::True
        },
        reason,
        message,
        observed_generation: extension.generation(),
    };
    set_condition(&mut status.conditions, report, Timestamp::now());
    write_status(context, extension, status).await?;
    Ok(Outcome::After(AGAIN))
}

fn waiting(left: &Revisions) -> String {
    let names: Vec<&str> = left.all().iter().map(|set| set.name()).collect();
    let told: Vec<String> = left
        .all()
        .iter()
        .filter(|set| set.is_deleting() && disturbed(set))
        .filter_map(|set| {
            let progressing = conditions::find(set.conditions(), PROGRESSING)?;
            Some(format!("{}: {}", set.name(), progressing.message))
        })
        .collect();
    let mut message = format!(
        "uninstalling: waiting for revisions to be taken down: {}",
        names.join(", ")
    );
    for line in &told {
        message.push('\n');
        message.push_str(line);
    }
    if !told.is_empty() {
        message.push_str("\nTo leave what remains on the cluster, set the annotation ");
        message.push_str(user::UNINSTALL);
        message.push_str(" to \"orphan\".");
    }
    bounded_message(&message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::revisions::tests::revision;
    use super::*;

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
            waiting(&left),
            "uninstalling: waiting for revisions to be taken down: ext-1, ext-2\next-2: account gone\nTo leave what \
             remains on the cluster, set the annotation olm.operatorframework.io/uninstall to \"orphan\"."
        );
    }
}
