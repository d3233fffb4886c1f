//! From an image reference to stored content.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
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
/// How many findings are kept as text.
const FINDINGS_KEPT: usize = 25;
/// Catalogs that are parsed at once; pulling is not limited, so that a slow registry holds nobody up.
const PARSED_AT_ONCE: usize = 2;

/// What an image is in the place of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    Bundle,
    Database,
    Unknown,
}

impl Instead {
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
            Self::Bundle => {
                ": it is the image of a bundle, which becomes part of a catalog by `olm catalog render`"
            }
            Self::Database => {
                ": it holds a database, which is no longer supported; ask its publisher for a file-based catalog"
            }
            Self::Unknown => "; `olm catalog push` and `olm catalog build` set it",
        }
    }
}

/// Why there is no content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    /// The reference is no fully qualified image reference.
    #[error("error parsing image reference {reference:?}")]
    Reference {
        reference: String,
        #[source]
        source: ReferenceError,
    },
    /// A tag and a digest contradict each other sooner or later.
    #[error("error creating reference: {0:?} has both a tag and a digest")]
    TagAndDigest(String),
    /// A pull secret cannot be read.
    #[error(transparent)]
    Secret(#[from] ReadError),
    /// A pull secret is none.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// What says where images come from, and which may be used, cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The image cannot be pulled.
    #[error(transparent)]
    Pull(Box<PullError>),
    /// The image does not say where its catalog lies.
    #[error("catalog image is missing the required label {CONFIGS_LABEL:?}{}", .0.as_str())]
    Label(Instead),
    /// The image has no such directory.
    #[error("catalog image has no directory {0:?}, which its label {CONFIGS_LABEL:?} names")]
    Directory(String),
    /// The catalog cannot be loaded.
    #[error("error walking FBC root")]
    Load(#[source] IngestError),
    /// The store cannot take it now.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody wants it any more.
    #[error("given up, because something else is wanted now")]
    Stopped,
}

impl ContentError {
    /// Whether the stage that failed is storing, not pulling.
    pub(crate) fn is_about_storing(&self) -> bool {
        matches!(self, Self::Load(_) | Self::Store(_))
    }

    /// Whether the image itself is at fault: the same digest fails in the same way again.
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
                IngestError::Store(error) => {
                    matches!(error, StoreError::TooLarge(_) | StoreError::TooMany(_))
                }
                IngestError::Stopped => false,
            },
            Self::Store(error) => matches!(error, StoreError::TooLarge(_) | StoreError::TooMany(_)),
            Self::Reference { .. }
            | Self::TagAndDigest(_)
            | Self::Secret(_)
            | Self::Credentials(_)
            | Self::Settings(_)
            | Self::Stopped => false,
        }
    }

    /// A word for metrics, of [`FAILURES`].
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

/// The words for metrics.
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

/// What getting an image cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pull {
    pub(crate) took: Duration,
    /// Of the layers, as they are transferred.
    pub(crate) bytes: u64,
}

impl From<PullError> for ContentError {
    fn from(error: PullError) -> Self {
        Self::Pull(Box::new(error))
    }
}

/// A catalog image by tag or digest, checked.
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

/// What to do with content once it is here.
pub(crate) struct Destination {
    pub(crate) catalog: String,
    pub(crate) origin: Origin,
    /// When this content appeared, when the leader says so already.
    pub(crate) modified: Option<Timestamp>,
}

/// Fetches and stores content.
pub(crate) struct Contents {
    store: Arc<Store>,
    images: Images,
    secrets: PullSecrets,
    settings: Settings,
    limits: Limits,
    /// Where the files of an image wait to be parsed.
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
            parsing: Semaphore::new(PARSED_AT_ONCE),
        }
    }

    /// With what rights images are fetched now.
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

    /// What a reference means now.
    pub(crate) async fn resolve(&self, image: &CatalogImage) -> Result<Pinned, ContentError> {
        if let Some(pinned) = image.0.pinned() {
            return Ok(pinned);
        }
        Ok(self.images.resolve(&image.0, &self.access().await?).await?)
    }

    /// Pulls an image, checks its catalog and puts it in place of what is served. What was served stays when
    /// anything fails, `stop` being cancelled among it.
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
        // Not raced against `stop`: content must not appear after the catalog was given up.
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
            .ok_or_else(|| ContentError::Label(Instead::of(image.labels())))?
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

/// The files of an image and where its catalog lies among them.
struct Pulled {
    tree: Tree,
    directory: String,
    /// Of the layers, as they were transferred.
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
                "it is a link that leads out of the catalog, or nowhere",
            )),
        }
    }
}

/// Parses, checks and stores a catalog. One blob at a time is in memory, and what the check remembers of each.
fn put(
    store: &Arc<Store>,
    pulled: &Pulled,
    destination: Destination,
    stop: &CancellationToken,
) -> Result<Arc<Snapshot>, ContentError> {
    let mut writer = store.begin(&destination.catalog)?;
    let mut checker = Checker::new().with_constraints(olm_constraint::fault);
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
        format!("{object}{separator}{}{place}", finding.message)
    };
    Findings {
        total: (report.errors().count() + report.omitted) as u64,
        first: report.errors().take(FINDINGS_KEPT).map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_catalog_is_called_what_it_is() {
        let check = |label: &str, expected: &str| {
            let labels = BTreeMap::from([(label.to_owned(), String::new())]);
            let error = ContentError::Label(Instead::of(&labels)).to_string();
            let wire = "catalog image is missing the required label \
                        \"operators.operatorframework.io.index.configs.v1\"";
            assert!(error.starts_with(wire) && error.contains(expected), "{error}");
        };
        check(
            "operators.operatorframework.io.bundle.package.v1",
            "the image of a bundle",
        );
        check(
            "operators.operatorframework.io.index.database.v1",
            "holds a database",
        );
        check("maintainer", "`olm catalog push`");
    }
}
