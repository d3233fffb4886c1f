//! What is known of a catalog: possibly stale, never guessed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use olm_api::ClusterCatalog;
use olm_serve::{Findings, Lookup, Record};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::template::{self, KubernetesVersion};

/// Everything that a plan follows from.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) catalog: Arc<ClusterCatalog>,
    /// The content that this process serves.
    pub(super) stored: Option<Stored>,
    /// Whether requests for it are answered with anything but 404.
    pub(super) known: bool,
    pub(super) memory: Memory,
    pub(super) role: Role,
    /// The cluster's version, when the catalog's image depends on it.
    pub(super) kubernetes: Option<KubernetesVersion>,
    pub(super) now: Timestamp,
}

/// Whether this process writes to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It does: it follows the spec and reports.
    Leader,
    /// It does not: it follows what the leader reports.
    Follower,
}

/// Content that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// The reference that was asked for; empty when only its digest was known.
    pub(super) requested: String,
    /// The reference by digest.
    pub(super) resolved: String,
    pub(super) since: Timestamp,
    pub(super) findings: Findings,
}

impl From<&Record> for Stored {
    fn from(record: &Record) -> Self {
        Self {
            requested: record.origin.requested.clone(),
            resolved: record.origin.resolved.clone(),
            since: record.stored,
            findings: record.findings.clone(),
        }
    }
}

/// What is remembered of earlier passes. Losing it costs a question to the registry, nothing else.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// The reference that was last found to mean the stored content, when it is not the one it was stored for.
    pub(super) confirmed: Option<String>,
    /// When the registry last said what the reference means.
    pub(super) polled: Option<Timestamp>,
    /// The annotation that asked for that, as it was then.
    pub(super) asked: Option<String>,
    /// What only another spec helps against.
    pub(super) blocked: Option<Blocked>,
    /// Content that cannot be served, and why.
    pub(super) refused: Option<Refused>,
    /// The object as we last wrote it, until the watch has seen it.
    pub(super) written: Option<Written>,
    /// The work on content that is under way.
    pub(super) running: Option<Running>,
}

impl Memory {
    /// What is remembered of content goes with it.
    pub(super) fn forget_content(&mut self) {
        *self = Self {
            written: self.written.take(),
            ..Self::default()
        };
    }
}

/// A generation of the object, and the image it named then, that cannot succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) generation: i64,
    pub(super) reference: String,
}

/// Content that cannot be served: the same digest fails in the same way again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) resolved: String,
    pub(super) message: String,
}

/// An object that we wrote, and the versions it replaced.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) object: Arc<ClusterCatalog>,
    pub(super) replaced: BTreeSet<String>,
}

/// Work that is given up when its generation is.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) generation: i64,
    pub(super) stop: CancellationToken,
}

/// Gathers the facts; nothing when the object is gone.
pub(super) async fn observe(context: &Context, name: &str) -> Option<Observed> {
    let seen = context.catalogs.get(&ObjectRef::new(name))?;
    let memory = context.memories.of(name);
    let catalog = match &memory.written {
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
    // Only who leads resolves references.
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
        memory,
        role,
        now: Timestamp::now(),
    })
}

/// Whether the watch has not yet seen what we wrote.
fn is_outdated(seen: &ClusterCatalog, written: &Written) -> bool {
    seen.metadata.uid == written.object.metadata.uid
        && seen
            .metadata
            .resource_version
            .as_ref()
            .is_some_and(|version| written.replaced.contains(version))
}

/// How long a catalog may keep this process from counting as ready: a registry that hangs must not stop a rollout.
const PATIENCE: Duration = Duration::from_secs(45);

/// The catalogs that have to be here, or to have been tried, before this process counts as ready.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starting(Arc<Mutex<Option<Awaited>>>);

#[derive(Debug)]
struct Awaited {
    names: BTreeSet<String>,
    since: Instant,
}

impl Starting {
    fn lock(&self) -> MutexGuard<'_, Option<Awaited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names what has to be tried; called once, when the catalogs are known.
    pub(crate) fn begin(&self, names: impl IntoIterator<Item = String>) {
        *self.lock() = Some(Awaited {
            names: names.into_iter().collect(),
            since: Instant::now(),
        });
    }

    /// One of them is here or was tried.
    pub(super) fn tried(&self, name: &str) {
        if let Some(awaited) = self.lock().as_mut() {
            awaited.names.remove(name);
        }
    }

    /// Whether the catalogs are known.
    pub(super) fn is_known(&self) -> bool {
        self.lock().is_some()
    }

    /// What is missing for readiness.
    ///
    /// # Errors
    /// The text says what.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.lock().as_ref() {
            None => Err("the ClusterCatalogs are not known yet".to_owned()),
            Some(awaited) if awaited.names.is_empty() || awaited.since.elapsed() > PATIENCE => Ok(()),
            Some(awaited) => {
                let names: Vec<&str> = awaited.names.iter().map(String::as_str).collect();
                Err(format!("not here yet: {}", names.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_waits_for_what_is_served_elsewhere() {
        let starting = Starting::default();
        assert!(starting.check().is_err());
        starting.begin(["a".to_owned(), "b".to_owned()]);
        assert_eq!(starting.check(), Err("not here yet: a, b".to_owned()));
        starting.tried("a");
        starting.tried("c");
        assert_eq!(starting.check(), Err("not here yet: b".to_owned()));
        starting.tried("b");
        assert_eq!(starting.check(), Ok(()));
    }

    #[test]
    fn what_the_watch_has_not_seen_yet_is_told_by_the_versions_that_were_replaced() {
        let at = |version: &str| {
            let mut catalog = ClusterCatalog::default();
            catalog.metadata.resource_version = Some(version.to_owned());
            catalog.metadata.uid = Some("one".to_owned());
            catalog
        };
        let written = Written {
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
