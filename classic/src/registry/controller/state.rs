//! The state of each source between passes, and the part of it that outlives the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use olm_image::Pinned;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::config_map::WatchedMap;
use super::remote::{Remote, State};
use crate::registry::Key;
use crate::registry::catalog::StoredCatalog;
use crate::registry::pull::CatalogImage;
use crate::registry::server::Listener;

/// The file with the state that outlives the process.
const FILE: &str = "sources.json";

/// The catalog that a source serves.
#[derive(Debug, Clone)]
pub(super) struct ServedCatalog {
    /// The requested image; none for a ConfigMap.
    pub(super) wanted: CatalogImage,
    /// The pull secrets that the registry accepted for it.
    pub(super) secrets: Vec<String>,
    /// The content.
    pub(super) content: Arc<StoredCatalog>,
    /// Its name in the store.
    pub(super) name: String,
    /// The number of the policies that accepted it, once the registry named it in this process.
    pub(super) accepted_by: Option<u64>,
}

impl ServedCatalog {
    /// Whether the registry named it for this image, and the policies with this number accepted it.
    pub(super) fn is_accepted(&self, wanted: &CatalogImage, policy: u64) -> bool {
        self.wanted == *wanted && self.accepted_by == Some(policy)
    }
}

/// An image that the signature policies accepted for registry Pods.
#[derive(Debug, Clone)]
pub(super) struct AcceptedImage {
    /// The image as the source names it.
    pub(super) reference: String,
    /// The pull secrets with which its signatures were read.
    pub(super) secrets: Vec<String>,
    /// The number of the policies.
    pub(super) policy: u64,
    /// The image that the reference led to last.
    pub(super) newest: Pinned,
    /// The image that it led to before.
    pub(super) earlier: Option<Pinned>,
    /// Why it could not be verified again since.
    pub(super) fault: Option<String>,
}

impl AcceptedImage {
    /// The image before the newest one.
    pub(super) fn before(self, newest: &Pinned) -> Option<Pinned> {
        if self.newest == *newest {
            self.earlier
        } else {
            Some(self.newest)
        }
    }
}

/// The state of a source.
#[derive(Default)]
pub(super) struct TrackedSource {
    /// The UID of the source; another object of the same name starts anew.
    pub(super) uid: String,
    /// The port on which it is served.
    pub(super) listener: Option<Listener>,
    /// The served content.
    pub(super) served: Option<ServedCatalog>,
    /// The registry elsewhere.
    pub(super) remote: Option<Arc<Remote>>,
    /// The image that its registry Pod runs, where a policy asks about it.
    pub(super) pod_image: Option<AcceptedImage>,
    /// The ConfigMap with its content.
    pub(super) map: Option<WatchedMap>,
    /// The reason why it does not serve the requested content.
    pub(super) fault: Option<String>,
    /// Content that cannot be used, by its name in the store, and the reason.
    pub(super) refused: Option<(String, String)>,
    /// The time of the last request to its registry.
    pub(super) asked: Option<Timestamp>,
    /// The state of the connection that was published last.
    pub(super) connection: String,
}

impl TrackedSource {
    /// Closes the port and lets go of the content that was served.
    pub(super) fn serve_nothing(&mut self) {
        self.listener = None;
        self.served = None;
        self.map = None;
        self.fault = None;
    }

    /// The content, where there is some.
    pub(super) fn content(&self) -> Option<Content> {
        let stored = self.served.as_ref().map(|served| Arc::clone(&served.content));
        let remote = self.remote.as_ref().map(Arc::clone);
        remote.map(Content::Remote).or(stored.map(Content::Stored))
    }

    /// Content that can be read now, or why there is none where that is known.
    pub(super) fn readable(&self) -> Result<Content, Option<String>> {
        match self.content() {
            Some(Content::Remote(remote)) if matches!(remote.state(), State::Connecting) => Err(None),
            Some(content) => Ok(content),
            None => Err(self.fault.clone()),
        }
    }
}

/// Source of the content of a CatalogSource.
#[derive(Clone)]
pub(in crate::registry) enum Content {
    /// On the disk.
    Stored(Arc<StoredCatalog>),
    /// From a registry elsewhere.
    Remote(Arc<Remote>),
}

/// The reason why the content of a CatalogSource is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::registry) struct NoContent {
    /// The reason.
    pub(in crate::registry) message: String,
    /// Whether the content is on its way: nothing is known to be wrong.
    pub(in crate::registry) is_coming: bool,
}

/// State of a source that outlives the process: the content that its credentials were accepted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PersistedSource {
    pub(super) uid: String,
    pub(super) wanted: String,
    #[serde(default)]
    pub(super) directory: Option<String>,
    pub(super) secrets: Vec<String>,
    pub(super) name: String,
}

impl PersistedSource {
    /// Whether it is the content of this image.
    pub(super) fn is_of(&self, wanted: &CatalogImage) -> bool {
        self.wanted == wanted.reference && self.directory == wanted.directory
    }
}

/// The states of all sources.
#[derive(Default)]
pub(in crate::registry) struct SourceStates {
    known: Mutex<BTreeMap<Key, TrackedSource>>,
    kept: Mutex<BTreeMap<String, PersistedSource>>,
    file: Option<PathBuf>,
}

impl SourceStates {
    /// Reads the state that outlived the process in the cache directory.
    pub(super) fn open(directory: &Path) -> Self {
        let file = directory.join(FILE);
        let text = std::fs::read(&file).unwrap_or_default();
        Self {
            known: Mutex::default(),
            // A file that cannot be read costs a pull.
            kept: Mutex::new(serde_json::from_slice(&text).unwrap_or_default()),
            file: Some(file),
        }
    }

    /// Reads or changes the state of a source, without waiting.
    pub(super) fn with<T>(&self, key: &Key, change: impl FnOnce(&mut TrackedSource) -> T) -> T {
        change(self.known.lock().entry(key.clone()).or_default())
    }

    /// The state of a source, if the program has one.
    pub(super) fn read<T>(&self, key: &Key, read: impl FnOnce(&TrackedSource) -> T) -> Option<T> {
        self.known.lock().get(key).map(read)
    }

    /// Forgets a source; whether it was known.
    pub(super) fn forget(&self, key: &Key) -> bool {
        let forgotten = self.known.lock().remove(key);
        self.kept.lock().remove(&name(key));
        forgotten.is_some()
    }

    /// The content of all sources.
    pub(in crate::registry) fn contents(&self) -> Vec<Content> {
        self.known
            .lock()
            .values()
            .filter_map(TrackedSource::content)
            .collect()
    }

    /// The kept state of a source.
    pub(super) fn kept(&self, key: &Key) -> Option<PersistedSource> {
        self.kept.lock().get(&name(key)).cloned()
    }

    /// Keeps the content of a source.
    pub(super) fn keep(&self, key: &Key, kept: PersistedSource) {
        let text = {
            let mut all = self.kept.lock();
            if all.get(&name(key)) == Some(&kept) {
                return;
            }
            all.insert(name(key), kept);
            serde_json::to_vec(&*all).unwrap_or_default()
        };
        let Some(file) = self.file.clone() else { return };
        tokio::task::spawn_blocking(move || {
            let new = file.with_extension("new");
            let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file));
            if let Err(error) = written {
                tracing::warn!(%error, "cannot save the images of CatalogSources; a restart pulls them again");
            }
        });
    }
}

fn name((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}
