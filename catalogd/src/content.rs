//! From an image reference to stored content.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use olm_api::text::escape;
use olm_fbc::{CatalogFinding, Checker};
use olm_image::{
    Access, Credentials, CredentialsError, Images, Limits, Node, Pinned, PullError, Reference,
    ReferenceError, Resolved, Selection, Settings, SettingsError, Storage, Tree,
};
use olm_platform::pull_secrets::{PullSecrets, ReadError};
use olm_serve::{Commit, Findings, IngestError, Origin, Snapshot, Store, StoreError, ingest};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The label of an image that names the directory in which the catalog lies.
const CONFIGS_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// The most findings with a text.
const MAX_FINDINGS: usize = 25;
/// Catalogs parsed at the same time; pulls have no limit, so that a slow registry delays no other catalog.
const MAX_PARSING: usize = 2;
/// Memory for what the check compares between blobs, in bytes.
const CHECK_BYTES: usize = 40 << 20;

/// The kind of an image that is no catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageKind {
    Bundle,
    Database,
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

/// A failure to fetch or store content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    /// The reference is no fully qualified image reference.
    #[error("error parsing image reference {reference:?}")]
    Reference {
        reference: String,
        #[source]
        source: ReferenceError,
    },
    /// A tag and a digest may contradict each other.
    #[error("error creating reference: {0:?} has both a tag and a digest")]
    TagAndDigest(String),
    /// A pull secret cannot be read.
    #[error(transparent)]
    Secret(#[from] ReadError),
    /// A pull secret is invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The configuration of registries or signatures cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The image cannot be pulled.
    #[error(transparent)]
    Pull(Box<PullError>),
    /// The image lacks the label with the directory of its catalog.
    #[error("catalog image is missing the required label {CONFIGS_LABEL:?}{}", .0.as_str())]
    Label(ImageKind),
    /// The image has no such directory.
    #[error("catalog image has no directory {0:?}, which its label {CONFIGS_LABEL:?} names")]
    Directory(String),
    /// The catalog cannot be loaded.
    #[error("error walking FBC root")]
    Load(#[source] IngestError),
    /// The store refuses the content.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A newer generation of the object cancelled the work.
    #[error("cancelled by a newer generation of the object")]
    Stopped,
}

impl ContentError {
    /// Whether storing failed, not pulling.
    pub(crate) fn is_about_storing(&self) -> bool {
        matches!(self, Self::Load(_) | Self::Store(_))
    }

    /// Whether the image itself is at fault: the same digest always fails in the same way.
    pub(crate) fn is_about_content(&self) -> bool {
        match self {
            Self::Label(_) | Self::Directory(_) => true,
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
            Self::Reference { .. }
            | Self::TagAndDigest(_)
            | Self::Secret(_)
            | Self::Credentials(_)
            | Self::Settings(_)
            | Self::Stopped => false,
        }
    }

    /// The label in metrics, one of [`FAILURES`].
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Reference { .. } | Self::TagAndDigest(_) => "reference",
            Self::Secret(_) | Self::Credentials(_) => "secret",
            Self::Settings(_) => "settings",
            Self::Pull(error) => match **error {
                PullError::Fetch { .. } | PullError::Time { .. } => "registry",
                PullError::Policy { .. } | PullError::Place { .. } => "policy",
                _ => "image",
            },
            Self::Label(_) | Self::Directory(_) => "image",
            Self::Load(_) => "load",
            Self::Store(_) => "store",
            Self::Stopped => "stopped",
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

/// The labels of failures in metrics.
pub(crate) const FAILURES: [&str; 9] = [
    "reference",
    "secret",
    "settings",
    "registry",
    "policy",
    "image",
    "load",
    "store",
    "stopped",
];

/// The cost of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pull {
    pub(crate) took: Duration,
    /// Transferred bytes of the layers.
    pub(crate) bytes: u64,
}

impl From<PullError> for ContentError {
    fn from(error: PullError) -> Self {
        Self::Pull(Box::new(error))
    }
}

/// A valid catalog image reference, by tag or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatalogImage(Reference);

impl CatalogImage {
    pub(crate) fn parse(text: &str) -> Result<Self, ContentError> {
        let reference = Reference::parse(text).map_err(|source| ContentError::Reference {
            reference: text.to_owned(),
            source,
        })?;
        if reference.has_tag_and_digest() {
            return Err(ContentError::TagAndDigest(text.to_owned()));
        }
        Ok(Self(reference))
    }
}

/// Where the content goes.
pub(crate) struct Destination {
    pub(crate) catalog: String,
    pub(crate) origin: Origin,
    /// When this content appeared, if the leader reports it.
    pub(crate) modified: Option<Timestamp>,
}

/// Fetches and stores content.
pub(crate) struct Contents {
    store: Arc<Store>,
    images: Images,
    secrets: PullSecrets,
    settings: Settings,
    limits: Limits,
    /// The directory for files that wait to be parsed.
    spool: PathBuf,
    parsing: Semaphore,
}

impl Contents {
    pub(crate) fn new(
        store: Arc<Store>,
        images: Images,
        secrets: PullSecrets,
        settings: Settings,
        limits: Limits,
        spool: PathBuf,
    ) -> Self {
        Self {
            store,
            images,
            secrets,
            settings,
            limits,
            spool,
            parsing: Semaphore::new(MAX_PARSING),
        }
    }

    /// The current credentials and settings for pulls.
    async fn access(&self) -> Result<Access, ContentError> {
        let secrets = self.secrets.read().await?;
        let secrets = secrets.iter().map(|secret| (secret.name.as_str(), &secret.data));
        let credentials = Arc::new(Credentials::from_secrets(secrets)?);
        let settings = self.settings.clone();
        let (registries, policy) = tokio::task::spawn_blocking(move || settings.read())
            .await
            .map_err(|_| ContentError::Stopped)??;
        Ok(Access {
            credentials,
            registries,
            policy,
        })
    }

    /// The digest of a reference now.
    pub(crate) async fn resolve(&self, image: &CatalogImage) -> Result<Pinned, ContentError> {
        if let Some(pinned) = image.0.pinned() {
            return Ok(pinned);
        }
        Ok(self.images.resolve(&image.0, &self.access().await?).await?)
    }

    /// Pulls an image, checks its catalog and replaces the served content. The old content stays when anything fails or
    /// `stop` is cancelled.
    pub(crate) async fn fetch(
        &self,
        pinned: &Pinned,
        destination: Destination,
        stop: &CancellationToken,
    ) -> Result<(Arc<Snapshot>, Pull), ContentError> {
        let began = Instant::now();
        let pulled = tokio::select! {
            pulled = self.pull(pinned) => pulled?,
            () = stop.cancelled() => return Err(ContentError::Stopped),
        };
        let pull = Pull {
            took: began.elapsed(),
            bytes: pulled.bytes,
        };
        let _turn = tokio::select! {
            turn = self.parsing.acquire() => turn.map_err(|_| ContentError::Stopped)?,
            () = stop.cancelled() => return Err(ContentError::Stopped),
        };
        let (store, stop) = (Arc::clone(&self.store), stop.clone());
        // Not raced against `stop`: content must not appear after the work was cancelled.
        tokio::task::spawn_blocking(move || put(&store, &pulled, destination, &stop))
            .await
            .map_err(|_| ContentError::Stopped)?
            .map(|snapshot| (snapshot, pull))
    }

    async fn pull(&self, pinned: &Pinned) -> Result<Pulled, ContentError> {
        let access = self.access().await?;
        let image = self.images.image(pinned, &access, &self.limits).await?;
        let directory = image
            .labels()
            .get(CONFIGS_LABEL)
            .ok_or_else(|| ContentError::Label(ImageKind::of(image.labels())))?
            .clone();
        let selection = match directory.trim_matches('/') {
            "" | "." => Selection::Everything,
            below => Selection::Below(vec![below.to_owned()]),
        };
        let storage = Storage::Directory(self.spool.clone());
        let tree = self
            .images
            .unpack(&image, &selection, &storage, &access, &self.limits)
            .await?;
        match tree.resolve(&directory) {
            Resolved::Directory => Ok(Pulled {
                tree,
                directory,
                bytes: image.transfer_bytes(),
            }),
            Resolved::File(_) | Resolved::Missing => Err(ContentError::Directory(directory)),
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
) -> Result<Arc<Snapshot>, ContentError> {
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
        Err(IngestError::Stopped) => return Err(ContentError::Stopped),
        Err(IngestError::Store(error)) => return Err(error.into()),
        other => other.map_err(ContentError::Load)?,
    }
    let findings = summary(checker);
    if stop.is_cancelled() {
        return Err(ContentError::Stopped);
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
            let error = ContentError::Label(ImageKind::of(&labels)).to_string();
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
