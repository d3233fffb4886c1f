//! Watches all objects of a kind into a store. An object that cannot be read, such as one of a later version of the
//! API, blocks no other, and stays as it was last read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::ready;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{DeserializeGuard, ObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use olm_platform::events::Notice;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

/// The reason of the event of an object that cannot be read.
const UNREADABLE: &str = "Unreadable";

/// The objects that cannot be read at the moment, by kind and name, and whether the list that is arriving has them.
/// Stores have them as they were last read.
#[derive(Debug, Default)]
pub struct UnreadableObjects(Mutex<HashMap<(Cow<'static, str>, String), bool>>);

impl UnreadableObjects {
    /// Whether an object cannot be read.
    pub fn contains<K: Resource<DynamicType = ()>>(&self, name: &str) -> bool {
        let objects = self.0.lock();
        // Usually there is none.
        !objects.is_empty() && objects.contains_key(&(K::kind(&()), name.to_owned()))
    }

    /// Notes whether an object can be read. Returns whether that is new.
    fn set<K: Resource<DynamicType = ()>>(&self, metadata: &ObjectMeta, is_unreadable: bool) -> bool {
        let mut objects = self.0.lock();
        if !is_unreadable && objects.is_empty() {
            return false;
        }
        let object = (K::kind(&()), metadata.name.clone().unwrap_or_default());
        if is_unreadable {
            objects.insert(object, true).is_none()
        } else {
            objects.remove(&object).is_some()
        }
    }

    /// A list begins to arrive.
    fn begin_list<K: Resource<DynamicType = ()>>(&self) {
        let mut objects = self.0.lock();
        let of_kind = objects.iter_mut().filter(|((kind, _), _)| *kind == K::kind(&()));
        of_kind.for_each(|(_, is_listed)| *is_listed = false);
    }

    /// The list is complete: objects that it lacks are gone.
    fn end_list<K: Resource<DynamicType = ()>>(&self) {
        let mut objects = self.0.lock();
        objects.retain(|(kind, _), is_listed| *is_listed || *kind != K::kind(&()));
    }
}

/// Watches all objects of a kind into a store, without managed fields. An object that cannot be read is logged;
/// `report` gets a notice about it once, for a caller that may record events.
pub fn follow<'a, K, Report>(
    client: &Client,
    unreadable: &'a UnreadableObjects,
    writer: Writer<K>,
    report: Report,
) -> impl Stream<Item = Event<K>> + use<'a, K, Report>
where
    K: Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Default
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
    Report: Fn(ObjectReference, Notice) + 'a,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let known = writer.as_reader();
    let report = move |metadata: &ObjectMeta, error: &str| {
        let object = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let note = format!("cannot read this object: {error}; OLM ignores the change until you correct it");
        let notice = Notice {
            is_fault: true,
            reason: UNREADABLE.to_owned(),
            note,
        };
        report(object, notice);
    };
    watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::warn!(kind = %K::kind(&()), error, "the watch is interrupted; reconnecting");
        })
        .try_filter_map(move |event| ready(Ok(readable(event, &known, unreadable, &report))))
        .reflect(writer)
        .filter_map(async |event| event.ok())
}

/// The event with readable objects. In a list, the last read version takes the place of an object that cannot be read.
/// Without one, and after a change, the event is left out. A deleted object need not be readable.
fn readable<K>(
    event: Event<DeserializeGuard<K>>,
    known: &Store<K>,
    unreadable: &UnreadableObjects,
    report: &impl Fn(&ObjectMeta, &str),
) -> Option<Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + Default + 'static,
{
    let read = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(mut object) => {
            unreadable.set::<K>(object.meta(), false);
            // Managed fields are not used and are larger than the rest.
            object.meta_mut().managed_fields = None;
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
    let last = |metadata: &ObjectMeta| {
        let object = known.get(&ObjectRef::new(metadata.name.as_deref()?))?;
        (object.meta().uid == metadata.uid).then(|| (*object).clone())
    };
    Some(match event {
        Event::Apply(guard) => Event::Apply(read(guard).ok()?),
        Event::InitApply(guard) => {
            Event::InitApply(read(guard).map_or_else(|metadata| last(&metadata), Some)?)
        }
        Event::Delete(DeserializeGuard(found)) => {
            let object = found.unwrap_or_else(|error| {
                last(&error.metadata).unwrap_or_else(|| {
                    let mut object = K::default();
                    *object.meta_mut() = error.metadata;
                    object
                })
            });
            unreadable.set::<K>(object.meta(), false);
            Event::Delete(object)
        }
        Event::Init => {
            unreadable.begin_list::<K>();
            Event::Init
        }
        Event::InitDone => {
            unreadable.end_list::<K>();
            Event::InitDone
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::runtime::reflector;
    use serde_json::{Value, json};

    use super::*;

    type Guard = DeserializeGuard<ConfigMap>;

    fn object(name: &str, uid: &str, data: &Value) -> Guard {
        let metadata = json!({"name": name, "uid": uid});
        serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
    }

    fn good(name: &str) -> Guard {
        object(name, "1", &json!({"key": "value"}))
    }

    fn bad(name: &str, uid: &str) -> Guard {
        object(name, uid, &json!(1))
    }

    #[test]
    fn an_unreadable_object_stays_as_it_was_last_read_until_it_is_deleted() {
        let (known, mut writer) = reflector::store();
        let unreadable = UnreadableObjects::default();
        let reports = RefCell::new(0);
        let mut is_taken = |event: Event<Guard>| {
            let report = |_: &ObjectMeta, _: &str| *reports.borrow_mut() += 1;
            let event = readable(event, &known, &unreadable, &report);
            event.inspect(|event| writer.apply_watcher_event(event)).is_some()
        };
        let state = || {
            let objects = known.state();
            let data = objects
                .iter()
                .map(|map| map.data.clone().unwrap_or_default().len());
            (
                data.collect::<Vec<usize>>(),
                unreadable.contains::<ConfigMap>("c"),
            )
        };

        for event in [Event::Init, Event::InitApply(good("c")), Event::InitDone] {
            assert!(is_taken(event));
        }
        assert!(!is_taken(Event::Apply(bad("c", "1"))));
        assert_eq!(state(), (vec![1], true));
        assert!(!unreadable.contains::<Secret>("c"));
        // A list without a readable version, or of another object of that name, has nothing to show.
        assert!(is_taken(Event::Init));
        assert!(
            unreadable.contains::<ConfigMap>("c"),
            "an arriving list forgets nothing"
        );
        assert!(is_taken(Event::InitApply(bad("c", "1"))));
        assert!(!is_taken(Event::InitApply(bad("c", "2"))));
        assert!(!is_taken(Event::InitApply(bad("d", "1"))));
        assert!(is_taken(Event::InitDone));
        assert_eq!(state(), (vec![1], true));
        assert!(is_taken(Event::Apply(good("c"))));
        assert_eq!(state(), (vec![1], false));
        assert!(!is_taken(Event::Apply(bad("c", "1"))));
        assert!(is_taken(Event::Delete(bad("c", "1"))));
        assert_eq!(state(), (Vec::new(), false));
        // Once for each time that it became unreadable, and for the other.
        assert_eq!(reports.into_inner(), 3);
    }

    #[test]
    fn a_deletion_is_seen_although_the_object_was_never_read_or_the_watch_was_interrupted() {
        let (known, mut writer) = reflector::store();
        let unreadable = UnreadableObjects::default();
        let mut take = |event: Event<Guard>| {
            let event = readable(event, &known, &unreadable, &|_, _| {});
            event.inspect(|event| writer.apply_watcher_event(event))
        };
        for event in [
            Event::Init,
            Event::InitApply(bad("a", "1")),
            Event::InitApply(bad("b", "1")),
            Event::InitDone,
        ] {
            take(event);
        }
        let deleted = take(Event::Delete(bad("a", "1")));
        let is_a = |event: Option<Event<ConfigMap>>| matches!(event, Some(Event::Delete(map)) if map.metadata.name.as_deref() == Some("a"));
        assert!(is_a(deleted));
        assert!(!unreadable.contains::<ConfigMap>("a") && unreadable.contains::<ConfigMap>("b"));
        take(Event::Init);
        take(Event::InitDone);
        assert!(!unreadable.contains::<ConfigMap>("b"));
    }
}
