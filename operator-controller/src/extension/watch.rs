//! Watches that start runs of an extension: of itself, its revisions, and catalogs.

use std::future::ready;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{DeserializeGuard, ObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt as _};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{PROGRESSING, SERVING, SUCCEEDED, find, is_true};
use olm_api::names::{CLUSTER_EXTENSION, annotation, label, user};
use olm_api::{ChangePolicy, ClusterCatalog, ClusterExtension, ClusterObjectSet, PendingChange};
use olm_platform::queue::{Outcome, Queue};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::extension::context::Context;
use crate::extension::context::unreadable::UnreadableObjects;
use crate::extension::events;
use crate::extension::report::policy;
use crate::object_set::store::Change;
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
        let events = follow(&context, writers.extensions);
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
        let events = follow(&context, writers.catalogs);
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
        let events = follow(context, policies);
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
        let events = follow(context, pending);
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

/// Watches all objects of a kind into a store. An object that cannot be read has an event, and stays as it was last read.
fn follow<K>(context: &Context, writer: Writer<K>) -> impl Stream<Item = Event<K>> + use<'_, K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::all(context.client.clone());
    let known = writer.as_reader();
    let report = |metadata: &ObjectMeta, error: &str| {
        let object = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        };
        context.events.publish(object, vec![events::unreadable(error)]);
    };
    watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .inspect_err(|error| tracing::debug!(kind = %K::kind(&()), error = error as &dyn std::error::Error, "watch is interrupted"))
        .try_filter_map(move |event| ready(Ok(readable(event, &known, &context.unreadable, &report))))
        .reflect(writer)
        .filter_map(async |event| event.ok())
}

/// The event with readable objects. In a list and in a deletion, the last read version takes the place of an object that
/// cannot be read. Without one, and after a change, the event is left out.
fn readable<K>(
    event: Event<DeserializeGuard<K>>,
    known: &Store<K>,
    unreadable: &UnreadableObjects,
    report: &impl Fn(&ObjectMeta, &str),
) -> Option<Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let read = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(mut object) => {
            unreadable.set::<K>(object.meta(), false);
            // Managed fields are not used here and are larger than the rest.
            object.managed_fields_mut().clear();
            Ok(object)
        }
        Err(error) => {
            let name = error.metadata.name.as_deref();
            tracing::error!(kind = %K::kind(&()), name, %error, "an object cannot be read");
            if unreadable.set::<K>(&error.metadata, true) {
                report(&error.metadata, &error.error);
            }
            Err(Box::new(error.metadata))
        }
    };
    let last = |metadata: Box<ObjectMeta>| {
        let object = known.get(&ObjectRef::new(metadata.name.as_deref()?))?;
        (object.meta().uid == metadata.uid).then(|| (*object).clone())
    };
    Some(match event {
        Event::Apply(guard) => Event::Apply(read(guard).ok()?),
        Event::Delete(guard) => {
            let object = read(guard).map_or_else(last, Some)?;
            unreadable.set::<K>(object.meta(), false);
            Event::Delete(object)
        }
        Event::InitApply(guard) => Event::InitApply(read(guard).map_or_else(last, Some)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
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
    use std::cell::RefCell;

    use kube::runtime::reflector;
    use serde_json::{Value, json};

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

    #[test]
    fn an_unreadable_object_stays_as_it_was_last_read_until_it_is_deleted() {
        type Guard = DeserializeGuard<ClusterCatalog>;
        let (known, mut writer) = reflector::store();
        let unreadable = UnreadableObjects::default();
        let object = |name: &str, uid: &str, spec: Value| -> Guard {
            let metadata = json!({"name": name, "uid": uid});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let good = || {
            object(
                "c",
                "1",
                json!({"source": {"type": "Image", "image": {"ref": "r"}}}),
            )
        };
        let bad = |name, uid| object(name, uid, json!(1));
        let reports = RefCell::new(0);
        let mut is_taken = |event: Event<Guard>| {
            let report = |_: &ObjectMeta, _: &str| *reports.borrow_mut() += 1;
            let event = readable(event, &known, &unreadable, &report);
            event.inspect(|event| writer.apply_watcher_event(event)).is_some()
        };
        let read = || -> Vec<String> {
            let objects = known.state();
            objects
                .iter()
                .map(|catalog| catalog.spec.source.image.clone().unwrap().reference)
                .collect()
        };
        let is_unreadable = || unreadable.contains::<ClusterCatalog>("c");

        for event in [Event::Init, Event::InitApply(good()), Event::InitDone] {
            assert!(is_taken(event));
        }
        assert!(!is_taken(Event::Apply(bad("c", "1"))));
        assert_eq!((read(), is_unreadable()), (vec!["r".to_owned()], true));
        assert!(!unreadable.contains::<ClusterExtension>("c"));
        // A list without a readable version, or of another object of that name, has nothing to show.
        assert!(is_taken(Event::Init));
        assert!(is_taken(Event::InitApply(bad("c", "1"))));
        assert!(!is_taken(Event::InitApply(bad("c", "2"))));
        assert!(!is_taken(Event::InitApply(bad("d", "1"))));
        assert!(is_taken(Event::InitDone));
        assert_eq!((read(), is_unreadable()), (vec!["r".to_owned()], true));
        assert!(is_taken(Event::Apply(good())));
        assert!(!is_unreadable());
        assert!(!is_taken(Event::Apply(bad("c", "1"))));
        assert!(is_taken(Event::Delete(bad("c", "1"))));
        assert_eq!((read(), is_unreadable()), (Vec::new(), false));
        // Once for each time that it became unreadable, and for the two others.
        assert_eq!(reports.into_inner(), 3);
    }
}
