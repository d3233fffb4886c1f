//! The facts about a catalog: possibly stale, never guessed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use olm_api::ClusterCatalog;
use olm_image::CachedVerification;
use olm_serve::{Findings, Lookup, Record};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::template::{self, KubernetesVersion};

/// The input of the plan.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) catalog: Arc<ClusterCatalog>,
    /// The content that this process serves.
    pub(super) stored: Option<ServedContent>,
    /// Whether requests for it return another status than 404.
    pub(super) known: bool,
    pub(super) state: CatalogState,
    pub(super) role: Role,
    /// The cluster's version, when the catalog's image depends on it.
    pub(super) kubernetes: Option<KubernetesVersion>,
    pub(super) now: Timestamp,
}

/// Whether this process writes to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The process follows the spec and writes status.
    Leader,
    /// The process follows the status that the leader writes.
    Follower,
}

/// Content that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServedContent {
    /// The requested reference; empty when only its digest was known.
    pub(super) requested: String,
    /// The reference by digest.
    pub(super) resolved: String,
    pub(super) since: Timestamp,
    pub(super) findings: Findings,
}

impl From<&Record> for ServedContent {
    fn from(record: &Record) -> Self {
        Self {
            requested: record.origin.requested.clone(),
            resolved: record.origin.resolved.clone(),
            since: record.stored,
            findings: record.findings.clone(),
        }
    }
}

/// The state between two passes. Its loss costs one request to the registry.
#[derive(Debug, Clone, Default)]
pub(super) struct CatalogState {
    /// Another reference that last resolved to the stored content.
    pub(super) confirmed: Option<String>,
    /// The time of the last successful resolution of the reference.
    pub(super) polled: Option<Timestamp>,
    /// The value of the poll annotation at that time.
    pub(super) asked: Option<String>,
    /// A generation that only a change of the spec can fix.
    pub(super) blocked: Option<BlockedGeneration>,
    /// Unusable content, and the reason.
    pub(super) refused: Option<RefusedContent>,
    /// The object as last written, until the watch has seen it.
    pub(super) written: Option<WrittenObject>,
    /// The verdict of the signature policy about the served image.
    pub(super) verified: Option<CachedVerification>,
    /// The running fetch.
    pub(super) running: Option<RunningFetch>,
}

impl CatalogState {
    /// Drops all state about content.
    pub(super) fn forget_content(&mut self) {
        *self = Self {
            written: self.written.take(),
            ..Self::default()
        };
    }
}

/// A generation of the object and its image that cannot succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockedGeneration {
    pub(super) generation: i64,
    pub(super) reference: String,
}

/// Unusable content: the same digest always fails in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedContent {
    pub(super) resolved: String,
    pub(super) message: String,
}

/// A written object, and the resource versions that it replaced.
#[derive(Debug, Clone)]
pub(super) struct WrittenObject {
    pub(super) object: Arc<ClusterCatalog>,
    pub(super) replaced: BTreeSet<String>,
}

/// A fetch that a newer generation cancels.
#[derive(Debug, Clone)]
pub(super) struct RunningFetch {
    pub(super) generation: i64,
    pub(super) stop: CancellationToken,
}

/// Gathers the facts; `None` when the object is gone.
pub(super) async fn observe(context: &Context, name: &str) -> Option<Observed> {
    let seen = context.catalogs.get(&ObjectRef::new(name))?;
    let state = context.states.of(name);
    let catalog = match &state.written {
        Some(written) if is_outdated(&seen, written) => Arc::clone(&written.object),
        _ => seen,
    };
    let stored = context
        .store
        .snapshot(name)
        .map(|snapshot| snapshot.record().into());
    let role = if *context.leading.borrow() {
        Role::Leader
    } else {
        Role::Follower
    };
    let claimed = catalog
        .status
        .as_ref()
        .is_some_and(|status| status.resolved_source.is_some());
    if claimed && stored.is_none() {
        context.store.announce(name);
    }
    let known = !matches!(context.store.get(name), Lookup::Unknown);
    // Only the leader resolves references.
    let kubernetes = if role == Role::Leader && template::is_templated(&catalog) {
        context.versions.read().await
    } else {
        None
    };
    Some(Observed {
        kubernetes,
        catalog,
        stored,
        known,
        state,
        role,
        now: Timestamp::now(),
    })
}

/// Whether the watch has not seen the written object yet.
fn is_outdated(seen: &ClusterCatalog, written: &WrittenObject) -> bool {
    seen.metadata.uid == written.object.metadata.uid
        && seen
            .metadata
            .resource_version
            .as_ref()
            .is_some_and(|version| written.replaced.contains(version))
}

/// The longest time that missing catalogs delay readiness: a hanging registry must not stop a rollout.
const MAX_STARTUP: Duration = Duration::from_secs(45);

/// The catalogs that this process must have fetched, or tried to fetch, before it is ready.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartupReadiness(Arc<Mutex<Option<AwaitedCatalogs>>>);

#[derive(Debug)]
struct AwaitedCatalogs {
    names: BTreeSet<String>,
    since: Instant,
}

impl StartupReadiness {
    /// Sets the catalogs to wait for; called once, when the catalogs are known.
    pub(crate) fn begin(&self, names: impl IntoIterator<Item = String>) {
        *self.0.lock() = Some(AwaitedCatalogs {
            names: names.into_iter().collect(),
            since: Instant::now(),
        });
    }

    /// Marks a catalog as fetched or tried.
    pub(super) fn tried(&self, name: &str) {
        if let Some(awaited) = self.0.lock().as_mut() {
            awaited.names.remove(name);
        }
    }

    /// Whether the catalogs are known.
    pub(super) fn is_known(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Whether the process is ready.
    ///
    /// # Errors
    /// The text names the missing catalogs.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.0.lock().as_ref() {
            None => Err("waiting for the list of ClusterCatalogs".to_owned()),
            Some(awaited) if awaited.names.is_empty() || awaited.since.elapsed() > MAX_STARTUP => Ok(()),
            Some(awaited) => {
                let names: Vec<&str> = awaited.names.iter().map(String::as_str).collect();
                Err(format!("waiting for catalogs: {}", names.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_waits_for_catalogs_that_status_reports_as_served() {
        let startup = StartupReadiness::default();
        assert!(startup.check().is_err());
        startup.begin(["a".to_owned(), "b".to_owned()]);
        assert_eq!(startup.check(), Err("waiting for catalogs: a, b".to_owned()));
        startup.tried("a");
        startup.tried("c");
        assert_eq!(startup.check(), Err("waiting for catalogs: b".to_owned()));
        startup.tried("b");
        assert_eq!(startup.check(), Ok(()));
    }

    #[test]
    fn a_replaced_resource_version_shows_that_the_watch_is_behind() {
        let at = |version: &str| {
            let mut catalog = ClusterCatalog::default();
            catalog.metadata.resource_version = Some(version.to_owned());
            catalog.metadata.uid = Some("one".to_owned());
            catalog
        };
        let written = WrittenObject {
            object: Arc::new(at("7")),
            replaced: ["5".to_owned(), "6".to_owned()].into(),
        };
        let check = |seen: ClusterCatalog, expected: bool| assert_eq!(is_outdated(&seen, &written), expected);
        check(at("5"), true);
        check(at("6"), true);
        check(at("7"), false);
        check(at("8"), false);
        let mut another = at("5");
        another.metadata.uid = Some("two".to_owned());
        check(another, false);
    }
}
