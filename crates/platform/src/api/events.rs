//! Events about an object.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use olm_text::escape_lines;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

/// The maximum length of an event's note in bytes.
const NOTE_BYTES: usize = 1000;
/// Stands for the rest of a truncated note.
const MORE: &str = " …";

/// One line for an object's events.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Whether it is a warning.
    pub is_fault: bool,
    /// The reason: one word in camel case.
    pub reason: String,
    /// A sentence.
    pub note: String,
}

/// The number of attempts to record an event.
const ATTEMPTS: usize = 3;
/// The pause between attempts.
const PAUSE: Duration = Duration::from_secs(2);
/// The time for which a repetition counts as the same event.
const SERIES: SignedDuration = SignedDuration::from_mins(6);
/// The number of events that are remembered to recognise repetitions.
const MAX_KNOWN: usize = 5000;
/// The namespace of events of objects without one.
const NAMESPACE: &str = "default";

/// Records events of objects.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
    instance: String,
    known: Arc<Recent>,
}

/// Recent events.
///
/// The recorder of the client library merges events with the same reason, keeps the first note, and stores the whole
/// event of some 7 KiB.
#[derive(Default)]
struct Recent {
    hasher: RandomState,
    events: Mutex<HashMap<u64, Recorded>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded {
    /// The event's name.
    name: String,
    /// The number of repetitions.
    count: i32,
    /// Last.
    at: Timestamp,
}

impl Recent {
    /// The key of a note about an object.
    fn key(&self, object: &ObjectReference, notice: &Notice) -> u64 {
        let object = (
            &object.api_version,
            &object.kind,
            &object.namespace,
            &object.name,
            &object.uid,
            &object.field_path,
        );
        self.hasher.hash_one((object, notice))
    }

    fn get(&self, key: u64, now: Timestamp) -> Option<Recorded> {
        let mut events = self.events();
        events.retain(|_, recorded| recorded.at + SERIES > now);
        events.get(&key).cloned()
    }

    fn insert(&self, key: u64, recorded: Recorded) {
        let mut events = self.events();
        if events.len() >= MAX_KNOWN {
            events.clear();
        }
        events.insert(key, recorded);
    }

    fn events(&self) -> MutexGuard<'_, HashMap<u64, Recorded>> {
        self.events.lock()
    }
}

impl Events {
    /// A recorder. `controller` is the reporting controller, `instance` this process among its replicas.
    pub fn new(client: Client, controller: &str, instance: String) -> Self {
        Self {
            client,
            controller: controller.to_owned(),
            instance,
            known: Arc::default(),
        }
    }

    /// Records events in the background. A lost event does not affect the caller.
    pub fn publish(&self, object: ObjectReference, notices: Vec<Notice>) {
        if notices.is_empty() {
            return;
        }
        let events = self.clone();
        tokio::spawn(async move {
            for notice in notices.into_iter().map(bounded) {
                let mut attempts = 1;
                while let Err(error) = events.record(&object, &notice, Timestamp::now()).await {
                    if attempts == ATTEMPTS {
                        tracing::warn!(%error, reason = notice.reason, "an event was not recorded");
                        break;
                    }
                    attempts += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
    }

    /// Creates an event, or increases the count of one with the same note that is recent.
    async fn record(
        &self,
        object: &ObjectReference,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let namespace = object.namespace.as_deref().unwrap_or(NAMESPACE);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let key = self.known.key(object, notice);
        let counted = match self.known.get(key, now) {
            Some(recorded) => count_up(&api, recorded, now).await?,
            None => None,
        };
        let recorded = if let Some(recorded) = counted {
            recorded
        } else {
            let event = self.event(object, notice, now);
            api.create(&PostParams::default(), &event).await?;
            let name = event.metadata.name.unwrap_or_default();
            Recorded {
                name,
                count: 1,
                at: now,
            }
        };
        self.known.insert(key, recorded);
        Ok(())
    }

    fn event(&self, object: &ObjectReference, notice: &Notice, now: Timestamp) -> Event {
        let about = object.name.as_deref().unwrap_or(&self.controller);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{about}.{:x}", now.as_nanosecond())),
                namespace: object.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(if notice.is_fault { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(notice.reason.clone()),
            note: Some(notice.note.clone()),
            action: Some("Reconcile".to_owned()),
            regarding: Some(object.clone()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// Increases the count of an event; does nothing if the event was deleted.
async fn count_up(
    api: &Api<Event>,
    recorded: Recorded,
    now: Timestamp,
) -> Result<Option<Recorded>, kube::Error> {
    let count = recorded.count.saturating_add(1);
    let series = json!({ "series": { "count": count, "lastObservedTime": MicroTime(now) } });
    let params = PatchParams::default();
    match api.patch(&recorded.name, &params, &Patch::Merge(series)).await {
        Ok(_) => Ok(Some(Recorded {
            count,
            at: now,
            ..recorded
        })),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The notice within the limits of the API server, without hidden characters. A longer note is cut after a line or a
/// word and ends with a mark.
fn bounded(mut notice: Notice) -> Notice {
    if let Cow::Owned(escaped) = escape_lines(&notice.note) {
        notice.note = escaped;
    }
    if notice.note.len() <= NOTE_BYTES {
        return notice;
    }
    notice
        .note
        .truncate(notice.note.floor_char_boundary(NOTE_BYTES - MORE.len()));
    let whole = |ends: &[char]| notice.note.rfind(ends).filter(|at| *at > NOTE_BYTES / 2);
    if let Some(end) = whole(&['\n']).or_else(|| whole(&[' '])) {
        notice.note.truncate(end);
    }
    notice.note.push_str(MORE);
    notice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(note: &str) -> Notice {
        Notice {
            is_fault: true,
            reason: "Blocked".to_owned(),
            note: note.to_owned(),
        }
    }

    #[test]
    fn a_note_is_as_long_as_the_api_server_takes_it() {
        let check = |note: &str, expected: &str| {
            let bounded = bounded(notice(note)).note;
            assert!(bounded.len() <= NOTE_BYTES);
            assert_eq!(bounded, expected);
        };
        check("ä", "ä");
        check("a\u{1b}[2J\nb\u{202e}", "a\\u001b[2J\nb\\u202e");
        check(&"x".repeat(NOTE_BYTES), &"x".repeat(NOTE_BYTES));
        // The text has no better place to cut.
        check(&"ä".repeat(NOTE_BYTES), &format!("{} …", "ä".repeat(498)));
        check(
            &format!("a {}", "ä".repeat(NOTE_BYTES)),
            &format!("a {} …", "ä".repeat(497)),
        );
        let head = "word ".repeat(150);
        check(
            &format!("{head}{}", "x".repeat(NOTE_BYTES)),
            &format!("{} …", head.trim_end()),
        );
        check(
            &format!("{head}\nlong words {}", "x ".repeat(NOTE_BYTES)),
            &format!("{head} …"),
        );
    }

    #[test]
    fn notes_that_differ_only_behind_the_bound_are_one_event() {
        let note = |end: &str| bounded(notice(&format!("{}{end}", "x".repeat(NOTE_BYTES)))).note;
        assert_eq!(note("1"), note("2"));
    }

    #[tokio::test]
    async fn a_repeated_event_raises_the_count_of_the_first() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&log);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (parts, body) = request.into_parts();
            let asked = Arc::clone(&asked);
            async move {
                let body = body.collect_bytes().await?;
                let sent: serde_json::Value = serde_json::from_slice(&body)?;
                let notice = match parts.method.as_str() {
                    "POST" => sent["note"].to_string(),
                    _ => sent["series"]["count"].to_string(),
                };
                asked.lock().push(format!("{} {notice}", parts.method));
                let answer = json!({ "metadata": {}, "eventTime": null }).to_string();
                Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(answer.into_bytes())))
            }
        });
        let events = Events::new(
            Client::new(service, "default"),
            "controller",
            "instance".to_owned(),
        );
        let object = |name: &str| ObjectReference {
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        let start = Timestamp::UNIX_EPOCH;
        for (name, note, minutes) in [
            ("a", "first", 0),
            ("a", "first", 1),
            ("a", "second", 2),
            ("b", "first", 3),
            ("a", "first", 6),
            ("a", "first", 13),
        ] {
            let now = start + SignedDuration::from_mins(minutes);
            events.record(&object(name), &notice(note), now).await.unwrap();
        }
        assert_eq!(
            log.lock().as_slice(),
            [
                "POST \"first\"",
                "PATCH 2",
                "POST \"second\"",
                "POST \"first\"",
                "PATCH 3",
                "POST \"first\""
            ]
        );
    }
}
