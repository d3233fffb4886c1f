//! Stores the content of a catalog image: layers are streamed to files, and these blob by blob into the store.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use olm_api::text::escape;
use olm_fbc::{CatalogFinding, Checker};
use olm_image::{Access, Images, Limits, Node, Pinned, PullError, Resolved, Selection, Storage, Tree};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::ingest::{IngestError, ingest};
use crate::store::{Commit, Findings, Origin, Snapshot, Store, StoreError};

/// The label of an image with the directory of the catalog.
pub const CONFIGS_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// The most findings with a text.
const MAX_FINDINGS: usize = 25;
/// Catalogs parsed at the same time; pulls have no limit, so that a slow registry delays no other catalog.
const MAX_PARSING: usize = 2;
/// Memory for the facts that the check compares between blobs, in bytes.
const CHECK_BYTES: usize = 40 << 20;

/// The kind of an image that is not a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A bundle.
    Bundle,
    /// A catalog as a database.
    Database,
    /// Any other image.
    Unknown,
}

impl ImageKind {
    fn of(labels: &BTreeMap<String, String>) -> Self {
        let has = |start: &str| labels.keys().any(|label| label.starts_with(start));
        if has("operators.operatorframework.io.bundle.") {
            Self::Bundle
        } else if has("operators.operatorframework.io.index.database.") {
            Self::Database
        } else {
            Self::Unknown
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Bundle => ": it is a bundle image; `olm catalog render` makes catalog entries of it",
            Self::Database => {
                ": it is a database image, which is not supported; ask its publisher for a file-based catalog"
            }
            Self::Unknown => "; `olm catalog push` and `olm catalog build` set it",
        }
    }
}

/// A failure to fetch or store the content of a catalog image.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The image cannot be pulled.
    #[error(transparent)]
    Pull(Box<PullError>),
    /// The image lacks the label with the directory of its catalog.
    #[error("catalog image is missing the required label {CONFIGS_LABEL:?}{}", .0.as_str())]
    Label(ImageKind),
    /// The image has no such directory.
    #[error("catalog image has no directory {0:?}, which its label {CONFIGS_LABEL:?} names")]
    Directory(String),
    /// The image has no such directory, which the destination names.
    #[error("catalog image has no directory {0:?}")]
    GivenDirectory(String),
    /// The catalog cannot be loaded.
    #[error("error walking FBC root")]
    Load(#[source] IngestError),
    /// The store refuses the content.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The caller has cancelled the work.
    #[error("given up")]
    Stopped,
}

impl From<PullError> for UnpackError {
    fn from(error: PullError) -> Self {
        Self::Pull(Box::new(error))
    }
}

impl UnpackError {
    /// Whether storage failed instead of the pull.
    pub fn is_about_storing(&self) -> bool {
        matches!(self, Self::Load(_) | Self::Store(_))
    }

    /// Whether the image itself is faulty: the same digest always fails in the same way.
    pub fn is_about_content(&self) -> bool {
        match self {
            Self::Label(_) | Self::Directory(_) | Self::GivenDirectory(_) => true,
            Self::Pull(error) => !error.is_retryable(),
            Self::Load(error) => match error {
                IngestError::Blob { .. } => true,
                IngestError::Read { source, .. } => {
                    matches!(
                        source.kind(),
                        io::ErrorKind::IsADirectory | io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge
                    )
                }
                IngestError::Store(error) => exceeds(error),
                IngestError::Stopped => false,
            },
            Self::Store(error) => exceeds(error),
            Self::Stopped => false,
        }
    }
}

/// Whether the catalog exceeds a bound of the store.
fn exceeds(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::TooLarge(_) | StoreError::TooMany(_) | StoreError::IndexTooLarge(_)
    )
}

/// The cost of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pull {
    /// The time.
    pub took: Duration,
    /// Transferred bytes of the layers.
    pub bytes: u64,
}

/// The destination of the content.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The name in the store.
    pub catalog: String,
    /// The origin of the content.
    pub origin: Origin,
    /// The time when this content appeared; now if unknown.
    pub modified: Option<Timestamp>,
    /// The directory of the catalog in the image; `None` for the one that the label of the image names.
    pub directory: Option<String>,
}

/// Fetches catalog images into a store.
pub struct CatalogImages {
    store: Arc<Store>,
    images: Images,
    limits: Limits,
    /// The directory for files that wait for the parser.
    spool: PathBuf,
    parsing: Semaphore,
}

impl CatalogImages {
    /// An unpacker. `spool` is an existing directory for files that wait for the parser.
    pub fn new(store: Arc<Store>, images: Images, limits: Limits, spool: PathBuf) -> Self {
        Self {
            store,
            images,
            limits,
            spool,
            parsing: Semaphore::new(MAX_PARSING),
        }
    }

    /// The images.
    pub const fn images(&self) -> &Images {
        &self.images
    }

    /// The limits of an image.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Pulls an image, checks its catalog and replaces the stored content. The old content stays if a step fails or
    /// `stop` is cancelled.
    ///
    /// # Errors
    /// The image cannot be pulled, is not a catalog, or cannot be stored.
    pub async fn fetch(
        &self,
        pinned: &Pinned,
        access: &Access,
        destination: Destination,
        stop: &CancellationToken,
    ) -> Result<(Arc<Snapshot>, Pull), UnpackError> {
        let began = Instant::now();
        let pulled = tokio::select! {
            pulled = self.pull(pinned, access, destination.directory.as_deref()) => pulled?,
            () = stop.cancelled() => return Err(UnpackError::Stopped),
        };
        let pull = Pull {
            took: began.elapsed(),
            bytes: pulled.bytes,
        };
        let _turn = tokio::select! {
            turn = self.parsing.acquire() => turn.map_err(|_| UnpackError::Stopped)?,
            () = stop.cancelled() => return Err(UnpackError::Stopped),
        };
        let (store, stop) = (Arc::clone(&self.store), stop.clone());
        // `stop` does not abort this: content must not appear after the work was cancelled.
        tokio::task::spawn_blocking(move || put(&store, &pulled, destination, &stop))
            .await
            .map_err(|_| UnpackError::Stopped)?
            .map(|snapshot| (snapshot, pull))
    }

    async fn pull(
        &self,
        pinned: &Pinned,
        access: &Access,
        given: Option<&str>,
    ) -> Result<Pulled, UnpackError> {
        let image = self.images.image(pinned, access, &self.limits).await?;
        let directory = given
            .or_else(|| image.labels().get(CONFIGS_LABEL).map(String::as_str))
            .ok_or_else(|| UnpackError::Label(ImageKind::of(image.labels())))?
            .to_owned();
        let selection = match directory.trim_matches('/') {
            "" | "." => Selection::Everything,
            below => Selection::Below(vec![below.to_owned()]),
        };
        let storage = Storage::Directory(self.spool.clone());
        let tree = self
            .images
            .unpack(&image, &selection, &storage, access, &self.limits)
            .await?;
        match tree.resolve(&directory) {
            Resolved::Directory => Ok(Pulled {
                tree,
                directory,
                bytes: image.transfer_bytes(),
            }),
            Resolved::File(_) | Resolved::Missing if given.is_some() => {
                Err(UnpackError::GivenDirectory(directory))
            }
            Resolved::File(_) | Resolved::Missing => Err(UnpackError::Directory(directory)),
        }
    }
}

/// The files of an image and the directory of its catalog.
struct Pulled {
    tree: Tree,
    directory: String,
    /// Transferred bytes of the layers.
    bytes: u64,
}

impl Pulled {
    /// The files and links of the catalog in the order of a walk, relative to its root.
    fn paths(&self) -> Vec<String> {
        let files = self
            .tree
            .below(&self.directory)
            .filter(|(_, node)| !matches!(node, Node::Directory));
        files.map(|(path, _)| path.into_owned()).collect()
    }

    fn open(&self, path: &str) -> io::Result<impl io::Read + use<>> {
        match self.tree.resolve(&format!("{}/{path}", self.directory)) {
            Resolved::File(content) => Ok(content.reader()),
            Resolved::Directory => Err(io::ErrorKind::IsADirectory.into()),
            Resolved::Missing => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the link leads out of the catalog or to a missing file",
            )),
        }
    }
}

/// Parses, checks and stores a catalog. Memory holds one blob at a time, and the state of the check.
fn put(
    store: &Arc<Store>,
    pulled: &Pulled,
    destination: Destination,
    stop: &CancellationToken,
) -> Result<Arc<Snapshot>, UnpackError> {
    let mut writer = store.begin(&destination.catalog)?;
    let mut checker = Checker::new()
        .with_constraints(olm_constraint::fault)
        .within(CHECK_BYTES);
    let paths = pulled.paths();
    let read = ingest(
        &mut writer,
        paths.iter().map(String::as_str),
        |path| pulled.open(path),
        |path, blob| {
            checker.add(path, blob);
            if stop.is_cancelled() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    );
    match read {
        Err(IngestError::Stopped) => return Err(UnpackError::Stopped),
        Err(IngestError::Store(error)) => return Err(error.into()),
        other => other.map_err(UnpackError::Load)?,
    }
    let findings = summary(checker);
    if stop.is_cancelled() {
        return Err(UnpackError::Stopped);
    }
    let now = Timestamp::now();
    let modified = destination.modified.unwrap_or(now);
    Ok(writer.commit(Commit {
        origin: destination.origin,
        findings,
        modified,
        now,
    })?)
}

fn summary(checker: Checker) -> Findings {
    let report = checker.finish();
    let line = |finding: &CatalogFinding| {
        let place = finding
            .place
            .as_ref()
            .map(|place| format!(" ({place})"))
            .unwrap_or_default();
        let object = finding.object.to_string();
        let separator = if object.is_empty() { "" } else { ": " };
        escape(&format!("{object}{separator}{}{place}", finding.message)).into_owned()
    };
    Findings {
        total: (report.errors().count() + report.omitted) as u64,
        first: report.errors().take(MAX_FINDINGS).map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_kind_of_an_image_that_is_no_catalog() {
        let check = |label: &str, expected: &str| {
            let labels = BTreeMap::from([(label.to_owned(), String::new())]);
            let error = UnpackError::Label(ImageKind::of(&labels)).to_string();
            let wire = "catalog image is missing the required label \
                        \"operators.operatorframework.io.index.configs.v1\"";
            assert!(error.starts_with(wire) && error.contains(expected), "{error}");
        };
        check(
            "operators.operatorframework.io.bundle.package.v1",
            "a bundle image",
        );
        check(
            "operators.operatorframework.io.index.database.v1",
            "a database image",
        );
        check("maintainer", "`olm catalog push`");
    }
}
