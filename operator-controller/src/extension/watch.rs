//! Watches that start runs of an extension: of itself, its revisions, and catalogs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, pin_mut};
use kube::Resource;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{PROGRESSING, SERVING, SUCCEEDED, find, is_true};
use olm_api::names::{CLUSTER_EXTENSION, annotation, label, user};
use olm_api::{ChangePolicy, ClusterCatalog, ClusterExtension, ClusterObjectSet, PendingChange};
use olm_platform::queue::{Outcome, Queue};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::extension::context::Context;
use crate::extension::report::policy;
use crate::object_set::store::Change;
use olm_cluster::follow::follow;
use olm_cluster::followed::{Followed, ObjectChange};

/// The time for which changes of an extension's revisions are collected.
const GATHER: Duration = Duration::from_millis(100);

/// The writers of the stores.
pub(crate) struct Writers {
    /// The store of ClusterExtensions.
    pub extensions: Writer<ClusterExtension>,
    /// The store of ClusterCatalogs.
    pub catalogs: Writer<ClusterCatalog>,
    /// The store of ChangePolicies.
    pub policies: Writer<ChangePolicy>,
    /// The store of PendingChanges.
    pub changes: Writer<PendingChange>,
}

/// Fills the stores and adds changed extensions to the queue. `revisions` is notified of changes of revisions. Never
/// returns.
pub(crate) async fn watch(
    context: Arc<Context>,
    writers: Writers,
    queue: Queue<String>,
    revisions: Arc<Notify>,
) {
    let client = &context.client;
    let extensions = async {
        let events = objects(&context, writers.extensions);
        pin_mut!(events);
        let mut followed = Followed::default();
        while let Some(event) = events.next().await {
            for ObjectChange { name, before, now } in
                followed.take(&event, |extension| joint_update_digest(&context, extension))
            {
                if before.is_some() && before != now {
                    for waiting in context.joint_updates.awaiting() {
                        queue.add_after(waiting, GATHER);
                    }
                }
                queue.add(name);
            }
        }
    };
    let mut changes = context.sets.subscribe();
    let sets = async {
        while let Some(change) = changes.recv().await {
            revisions.notify_one();
            let Change {
                before,
                now,
                unreadable,
                ..
            } = change;
            if before.as_deref().map(presence) != now.as_deref().map(presence) {
                for waiting in context.joint_updates.awaiting() {
                    queue.add_after(waiting, GATHER);
                }
            }
            if let Some(owner) = unreadable.and_then(|unreadable| unreadable.owner_name) {
                queue.add(owner);
            }
            let Some(set) = now.or(before) else { continue };
            match owner(&set) {
                Some(owner) if is_true(set.conditions(), SUCCEEDED) => queue.add(owner),
                // A revision changes often while it rolls out. A few changes start one run.
                Some(owner) => queue.add_after(owner, GATHER),
                None => {}
            }
        }
    };
    let catalogs = async {
        let events = objects(&context, writers.catalogs);
        pin_mut!(events);
        let mut followed = Followed::default();
        while let Some(event) = events.next().await {
            let changes = followed.take(&event, mark);
            if changes.iter().any(|change| change.before != change.now) {
                context
                    .extensions
                    .state()
                    .iter()
                    .for_each(|extension| queue.add(extension.name().to_owned()));
            }
        }
    };
    let approvals = approvals(&context, &queue, writers.policies, writers.changes);
    futures::join!(extensions, sets, context.sets.follow(client), catalogs, approvals);
}

/// Watches ChangePolicies and PendingChanges. A changed policy starts a run of every extension, because its previous
/// selection is unknown.
async fn approvals(
    context: &Context,
    queue: &Queue<String>,
    policies: Writer<ChangePolicy>,
    pending: Writer<PendingChange>,
) {
    let client = &context.client;
    let to_report = Queue::<String>::default();
    let reports = to_report.run(1, CancellationToken::new(), async |name| {
        let Some(policy) = context.policy(&name) else {
            return Outcome::Done;
        };
        match policy::report(client, &policy).await {
            Ok(()) => Outcome::Done,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(policy = name, error, "cannot write the status of a ChangePolicy");
                Outcome::Failed
            }
        }
    });
    let policies = async {
        let events = objects(context, policies);
        pin_mut!(events);
        let mut followed = Followed::default();
        while let Some(event) = events.next().await {
            match &event {
                Event::Apply(policy) => to_report.add(policy.name().to_owned()),
                Event::InitDone => {
                    for policy in context.policies.state() {
                        to_report.add(policy.name().to_owned());
                    }
                }
                _ => {}
            }
            let found = followed.take(&event, ChangePolicy::generation);
            if found.iter().any(|policy| policy.before != policy.now) {
                for extension in context.extensions.state() {
                    queue.add(extension.name().to_owned());
                }
            }
        }
    };
    let pending = async {
        let events = objects(context, pending);
        pin_mut!(events);
        let mut followed = Followed::default();
        while let Some(event) = events.next().await {
            let mark = |change: &PendingChange| (change.spec.extension.clone(), change.generation());
            for ObjectChange { before, now, .. } in followed.take(&event, mark) {
                if before != now {
                    let extensions = before.into_iter().chain(now).map(|(extension, _)| extension);
                    extensions.for_each(|extension| queue.add(extension));
                }
            }
        }
    };
    futures::join!(reports, policies, pending);
}

/// Watches all objects of a kind into a store.
fn objects<K>(context: &Context, writer: Writer<K>) -> impl Stream<Item = Event<K>> + use<'_, K>
where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Default
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    follow(&context.client, &context.unreadable, writer, |object, notice| {
        context.events.publish(object, vec![notice]);
    })
}

/// A hash that changes when other extensions may be updated along with this one or install its package, or no longer
/// may.
fn joint_update_digest(context: &Context, extension: &ClusterExtension) -> u64 {
    let mut hasher = DefaultHasher::new();
    let progressing = find(extension.conditions(), PROGRESSING);
    progressing.map(|condition| &condition.reason).hash(&mut hasher);
    extension.annotation(user::PAUSED).hash(&mut hasher);
    context.joint_updates.digest(extension.name()).hash(&mut hasher);
    context.claims.stage(extension.name()).hash(&mut hasher);
    hasher.finish()
}

/// The extension of a revision.
fn owner(set: &ClusterObjectSet) -> Option<String> {
    let owner = set.label(label::OWNER_NAME)?;
    (set.label(label::OWNER_KIND) == Some(CLUSTER_EXTENSION)).then(|| owner.to_owned())
}

/// A hash of everything that a revision provides or requires.
fn presence(set: &ClusterObjectSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    let is_wanted = set.spec.lifecycle_state == LifecycleState::Active && !set.is_deleting();
    (is_wanted, is_true(set.conditions(), SUCCEEDED)).hash(&mut hasher);
    set.annotation(annotation::PROPERTIES).hash(&mut hasher);
    set.annotation(annotation::FURTHER_PROPERTIES).hash(&mut hasher);
    hasher.finish()
}

/// A hash that changes when a catalog may change a resolution.
fn mark(catalog: &ClusterCatalog) -> u64 {
    let mut hasher = DefaultHasher::new();
    let status = catalog.status.as_ref();
    let image = status
        .and_then(|s| s.resolved_source.as_ref()?.image.as_ref())
        .map(|image| &image.reference);
    let base = status.and_then(|s| s.urls.as_ref()).map(|urls| &urls.base);
    let unavailable =
        catalog.spec.availability_mode == olm_api::cluster_catalog::AvailabilityMode::Unavailable;
    (image, base, is_true(catalog.conditions(), SERVING)).hash(&mut hasher);
    (
        unavailable,
        catalog.spec.priority,
        &catalog.metadata.labels,
        &catalog.metadata.uid,
    )
        .hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_resolution_reads_trigger_a_new_run() {
        let catalog = ClusterCatalog::new("c", olm_api::cluster_catalog::ClusterCatalogSpec::default());
        let mut polled = catalog.clone();
        polled.status = Some(olm_api::cluster_catalog::ClusterCatalogStatus {
            last_unpacked: Some(olm_api::Time(jiff::Timestamp::UNIX_EPOCH)),
            ..Default::default()
        });
        assert_eq!(mark(&catalog), mark(&polled));
        let mut preferred = catalog.clone();
        preferred.spec.priority = 1;
        assert_ne!(mark(&catalog), mark(&preferred));
    }
}
