//! Watches: events of packages, line by line.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::stream;
use http::StatusCode;
use jiff::Timestamp;
use olm_classic::names;
use serde_json::json as value;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::index::{ChangeType, Packages};
use super::super::item::Item;
use super::super::scope::Scope;
use super::accept::Representation;
use super::answer::{bad_request, expired, json, status};
use super::read::{bare_event, event};
use super::request::Options;
use super::table::Include;

/// Shortest duration of a watch without a timeout, in seconds. It lasts up to twice as long, so that not all end
/// together.
const LASTS: u64 = 1800;
/// Interval of bookmarks with the resourceVersion, for clients that want them.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The annotation of the bookmark after the initial objects.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A watch under way.
struct Watch {
    packages: Receiver<Arc<Packages>>,
    scope: Scope,
    representation: Representation,
    include: Include,
    /// The events that are sent next.
    waiting: VecDeque<QueuedEvent>,
    /// The resourceVersion up to which the client knows everything once that is sent.
    known: u64,
    sends_bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    is_over: bool,
    stop: CancellationToken,
}

enum QueuedEvent {
    Event(ChangeType, Arc<Item>),
    /// The bookmark after the initial objects.
    AllIsSent,
}

/// Options of the answer to a watch.
pub(super) struct WatchOptions {
    pub(super) representation: Representation,
    pub(super) include: Include,
    pub(super) stop: CancellationToken,
}

/// Answers a watch: from a resourceVersion, else with the initial objects first.
pub(super) fn watch(
    mut packages: Receiver<Arc<Packages>>,
    scope: Scope,
    options: &Options,
    how: WatchOptions,
) -> Response {
    let now = Arc::clone(&packages.borrow_and_update());
    let (from_start, since) = match options.resource_version.as_str() {
        "" | "0" => (true, now.version),
        text => match text.parse() {
            Ok(since) => (options.sends_initial_events, since),
            Err(_) => return bad_request(&format!("resourceVersion: Invalid value: {text:?}")),
        },
    };
    let mut waiting: VecDeque<QueuedEvent> = if from_start {
        let seen = now.seen(&scope).into_iter();
        seen.map(|item| QueuedEvent::Event(ChangeType::Added, item))
            .collect()
    } else {
        match now.changes(since, &scope) {
            Ok(changes) => changes
                .into_iter()
                .map(|(change_type, item)| QueuedEvent::Event(change_type, item))
                .collect(),
            Err(error) => return expired(&error.to_string()),
        }
    };
    if options.sends_initial_events && options.sends_bookmarks {
        waiting.push_back(QueuedEvent::AllIsSent);
    }
    let begin = Instant::now();
    let lasts = options.timeout_seconds.filter(|seconds| *seconds > 0);
    let lasts = lasts.unwrap_or_else(|| LASTS + now.version % LASTS);
    let watch = Watch {
        known: now.version,
        packages,
        scope,
        representation: how.representation,
        include: how.include,
        waiting,
        sends_bookmarks: options.sends_bookmarks,
        next_bookmark: begin + BOOKMARK_EVERY,
        // No client waits longer than that.
        end: begin + Duration::from_secs(lasts.min(24 * 3600)),
        is_over: false,
        stop: how.stop,
    };
    let lines = stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, Infallible>(line), watch))
    });
    json(Body::from_stream(lines))
}

impl Watch {
    /// The next line; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(waiting) = self.waiting.pop_front() {
                return Some(self.line(&waiting));
            }
            if self.is_over {
                return None;
            }
            let stop = self.stop.clone();
            tokio::select! {
                () = stop.cancelled() => return None,
                () = sleep_until(self.end) => {
                    self.is_over = true;
                    if self.sends_bookmarks {
                        return Some(self.bookmark(None));
                    }
                }
                () = sleep_until(self.next_bookmark), if self.sends_bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    return Some(self.bookmark(None));
                }
                changed = self.packages.changed() => {
                    changed.ok()?;
                    if let Some(failure) = self.look() {
                        return Some(failure);
                    }
                }
            }
        }
    }

    /// Takes over the changes; returns a line with an error when they are no longer known.
    fn look(&mut self) -> Option<Bytes> {
        let now = Arc::clone(&self.packages.borrow_and_update());
        match now.changes(self.known, &self.scope) {
            Ok(changes) => {
                self.known = now.version;
                let events = changes.into_iter();
                self.waiting
                    .extend(events.map(|(change_type, item)| QueuedEvent::Event(change_type, item)));
                None
            }
            Err(error) => {
                self.is_over = true;
                let failure = status(StatusCode::GONE, "Expired", &error.to_string(), None);
                Some(bare_event("ERROR", &failure))
            }
        }
    }

    fn line(&self, waiting: &QueuedEvent) -> Bytes {
        match waiting {
            QueuedEvent::AllIsSent => self.bookmark(Some(INITIAL_EVENTS_END)),
            QueuedEvent::Event(change_type, item) => {
                let change_type = match change_type {
                    ChangeType::Added => "ADDED",
                    ChangeType::Modified => "MODIFIED",
                    ChangeType::Deleted => "DELETED",
                };
                let namespace = self.scope.shown_in(item);
                event(
                    change_type,
                    item,
                    namespace,
                    self.representation,
                    self.include,
                    Timestamp::now(),
                )
            }
        }
    }

    fn bookmark(&self, annotation: Option<&str>) -> Bytes {
        let version = self.known.to_string();
        let metadata = match annotation {
            Some(annotation) => value!({"resourceVersion": version, "annotations": {annotation: "true"}}),
            None => value!({"resourceVersion": version}),
        };
        let object = match self.representation {
            Representation::Table => {
                value!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": [],
                    "rows": [],
                })
            }
            Representation::Partial => {
                value!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Representation::Object | Representation::Discovery => value!({
                "kind": names::PACKAGE_MANIFEST_KIND, "apiVersion": names::PACKAGE_API_VERSION,
                "metadata": metadata, "spec": {}, "status": {},
            }),
        };
        bare_event("BOOKMARK", &object)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::BodyDataStream;
    use futures::StreamExt as _;
    use serde_json::Value;

    use super::super::super::index::PackageIndex;
    use super::super::super::item::tests::{item, source};
    use super::*;

    fn put(index: &PackageIndex, packages: &[(&str, &str)]) {
        let source = source("olm", "c");
        let items = packages
            .iter()
            .map(|(name, label)| item(&source, name, &value!({"l": label}), ""));
        let object = value!({"metadata": {"namespace": "olm", "name": "c"}});
        index.put(&object, items.collect());
    }

    fn start(index: &PackageIndex, query: &str) -> Response {
        let uri = format!("/?{query}").parse().unwrap();
        let options = Options::read(&uri);
        let scope = Scope::new("n", "olm", &options.field_selector, &options.label_selector).unwrap();
        let how = WatchOptions {
            representation: Representation::Object,
            include: Include::Metadata,
            stop: CancellationToken::new(),
        };
        watch(index.subscribe(), scope, &options, how)
    }

    async fn next(lines: &mut BodyDataStream) -> String {
        let line = lines.next().await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(&line).unwrap();
        let metadata = &event["object"]["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_tells_what_is_there_and_then_what_happens() {
        let index = PackageIndex::new(100);
        put(&index, &[("a", "1"), ("b", "2")]);
        let mut all = start(&index, "").into_body().into_data_stream();
        let query = format!("resourceVersion={}&labelSelector=l%3D1", index.now().version);
        let mut later = start(&index, &query).into_body().into_data_stream();
        assert_eq!(next(&mut all).await, "ADDED a");
        assert_eq!(next(&mut all).await, "ADDED b");
        put(&index, &[("b", "3"), ("c", "1")]);
        for expected in ["MODIFIED b", "ADDED c", "DELETED a"] {
            assert_eq!(next(&mut all).await, expected);
        }
        for expected in ["DELETED b", "ADDED c", "DELETED a"] {
            assert_eq!(next(&mut later).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bookmarks_come_every_minute_and_at_the_end() {
        let index = PackageIndex::new(100);
        put(&index, &[("a", "1")]);
        let query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=70";
        let mut lines = start(&index, query).into_body().into_data_stream();
        assert_eq!(next(&mut lines).await, "ADDED a");
        let line = lines.next().await.unwrap().unwrap();
        let end: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            end["object"]["metadata"]["annotations"][INITIAL_EVENTS_END],
            "true"
        );
        assert_eq!(end["object"]["metadata"]["resourceVersion"], "101");
        assert_eq!(next(&mut lines).await, "BOOKMARK ");
        assert_eq!(next(&mut lines).await, "BOOKMARK ");
        assert!(lines.next().await.is_none());
    }

    #[tokio::test]
    async fn a_version_of_another_process_is_expired() {
        let index = PackageIndex::new(100);
        assert_eq!(start(&index, "resourceVersion=7").status(), StatusCode::GONE);
        assert_eq!(
            start(&index, "resourceVersion=x").status(),
            StatusCode::BAD_REQUEST
        );
    }
}
