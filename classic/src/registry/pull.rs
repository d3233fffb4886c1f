//! From the image of a CatalogSource to stored content, which sources with the same digest share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use kube::Client;
use olm_classic::cluster::text;
use olm_image::{Access, Images, Pinned, PullError};
use olm_serve::{
    CatalogImages, Commit, Destination, Findings, ImageKind, Origin, Store, StoreError, StoreLimits,
    UnpackError,
};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::access::{AccessError, Accesses, Puller, options, parse};
use super::catalog::StoredCatalog;
use crate::args::CatalogArgs;

/// A failure to fetch or store content.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The image cannot be asked for.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The registry does not say what the reference is.
    #[error(transparent)]
    Pull(Box<PullError>),
    /// It cannot be pulled, is no catalog, or is not stored.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The store refuses the content of a ConfigMap.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The same content was refused before.
    #[error("{0}")]
    Refused(String),
    /// The process ends.
    #[error("the program stops")]
    Stopped,
}

impl ContentError {
    /// Whether the image itself is at fault: the same digest always fails in the same way.
    pub fn is_about_content(&self) -> bool {
        matches!(self, Self::Unpack(error) if error.is_about_content())
    }

    /// Whether the image lacks the directory that [`CatalogImage`] names.
    pub fn is_about_directory(&self) -> bool {
        matches!(self, Self::Unpack(UnpackError::GivenDirectory(_)))
    }

    /// Whether it is an image with a database, which only its own program can serve.
    pub fn is_about_database(&self) -> bool {
        matches!(self, Self::Unpack(UnpackError::Label(ImageKind::Database)))
    }
}

impl From<PullError> for ContentError {
    fn from(error: PullError) -> Self {
        Self::Pull(Box::new(error))
    }
}

/// The catalog that an image holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogImage {
    /// The reference of the image.
    pub reference: String,
    /// The directory of the catalog; `None` for the one that the label of the image names.
    pub directory: Option<String>,
}

impl CatalogImage {
    /// The image of a CatalogSource as it is on the wire.
    pub fn of(source: &Value) -> Self {
        let directory = text(source, "/spec/grpcPodConfig/extractContent/catalogDir");
        Self {
            reference: text(source, "/spec/image").to_owned(),
            directory: (!directory.is_empty()).then(|| directory.to_owned()),
        }
    }

    /// The name in the store of this catalog in an image with a digest.
    pub fn store_name(&self, pinned: &Pinned) -> String {
        let digest = pinned.digest().to_string().replace(':', "-");
        match &self.directory {
            None => digest,
            Some(directory) => format!("{digest}-{}", hex::encode(Sha256::digest(directory))),
        }
    }
}

/// The content of all sources.
pub struct Contents {
    store: Arc<Store>,
    images: CatalogImages,
    accesses: Accesses,
    /// Open catalogs by their name in the store. Sources hold them.
    open: Mutex<BTreeMap<String, Weak<StoredCatalog>>>,
    /// Names that are being fetched.
    fetching: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
    stop: CancellationToken,
}

impl Contents {
    /// Opens the cache directory.
    ///
    /// # Errors
    /// When it cannot be opened, or a flag cannot be read.
    pub fn open(client: Client, args: &CatalogArgs, stop: CancellationToken) -> anyhow::Result<Self> {
        let registry = &args.registry;
        let store = Arc::new(Store::open(
            &registry.cache_dir.join("catalogs"),
            StoreLimits::default(),
        )?);
        let spool: PathBuf = registry.cache_dir.join("unpack");
        std::fs::create_dir_all(&spool)?;
        let accesses = Accesses::new(client, args)?;
        accesses.announce();
        let images = Images::new(options(args));
        let limits = olm_image::Limits::catalog().with(registry.limits.given());
        Ok(Self {
            images: CatalogImages::new(Arc::clone(&store), images, limits, spool),
            store,
            accesses,
            open: Mutex::default(),
            fetching: Mutex::default(),
            stop,
        })
    }

    /// The client for images of catalogs.
    pub fn images(&self) -> &Images {
        self.images.images()
    }

    /// The digest of a reference now, pulled with these rights.
    ///
    /// # Errors
    /// The registry does not say, or what it needs cannot be read.
    pub async fn resolve(&self, reference: &str, puller: &Puller) -> Result<Resolved, ContentError> {
        let parsed = parse(reference)?;
        let access = self.accesses.of(puller).await?;
        let pinned = self.images.images().resolve(&parsed, &access).await?;
        Ok(Resolved { pinned, access })
    }

    /// The image of a reference now, which nodes of any platform may run, if the policies accept it.
    ///
    /// # Errors
    /// They do not accept it, or its signatures cannot be read.
    pub async fn verify_for_pods(&self, reference: &str, puller: &Puller) -> Result<Pinned, ContentError> {
        let parsed = parse(reference)?;
        let access = self.accesses.of(puller).await?;
        let images = self.images.images();
        Ok(images.verify_for_all_nodes(&parsed, &access).await?.pinned)
    }

    /// Asks the policies about an image whose content is stored already, and was shown to these credentials.
    ///
    /// # Errors
    /// They do not accept it, or its signatures cannot be read.
    pub async fn verify(&self, resolved: &Resolved) -> Result<(), ContentError> {
        let reference = resolved.pinned.reference();
        let verified = self.images.images().verify(&reference, &resolved.access).await;
        Ok(verified.map(drop)?)
    }

    /// The content of an image. What another source has stored already is shared once the registry has shown the image
    /// to this source's own credentials.
    ///
    /// # Errors
    /// The image cannot be pulled, is no catalog, or is not stored.
    pub async fn fetch(
        &self,
        image: &CatalogImage,
        resolved: &Resolved,
    ) -> Result<Arc<StoredCatalog>, ContentError> {
        let name = image.store_name(&resolved.pinned);
        let turn = {
            let mut fetching = self.fetching.lock();
            fetching.retain(|_, turn| turn.strong_count() > 0);
            let known = fetching.get(&name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::default();
                fetching.insert(name.clone(), Arc::downgrade(&turn));
                turn
            })
        };
        let _turn = turn.lock().await;
        if let Some(found) = self.stored(&name) {
            let images = &self.images;
            images
                .images()
                .image(&resolved.pinned, &resolved.access, images.limits())
                .await?;
            return Ok(found);
        }
        let destination = Destination {
            catalog: name.clone(),
            origin: Origin {
                requested: image.reference.clone(),
                resolved: resolved.pinned.to_string(),
            },
            modified: None,
            directory: image.directory.clone(),
        };
        let (snapshot, pull) = self
            .images
            .fetch(&resolved.pinned, &resolved.access, destination, &self.stop)
            .await?;
        let record = snapshot.record();
        tracing::info!(
            image = record.origin.resolved,
            bytes = record.bytes,
            blobs = record.blobs,
            findings = record.findings.total,
            took = ?pull.took,
            "pulled a catalog"
        );
        self.stored(&name).ok_or(ContentError::Stopped)
    }

    /// The content that was stored under this name before, for a source that was allowed to have it.
    pub fn stored(&self, name: &str) -> Option<Arc<StoredCatalog>> {
        let mut open = self.open.lock();
        open.retain(|_, catalog| catalog.strong_count() > 0);
        if let Some(found) = open.get(name).and_then(Weak::upgrade) {
            return Some(found);
        }
        let found = Arc::new(StoredCatalog::new(self.store.snapshot(name)?));
        open.insert(name.to_owned(), Arc::downgrade(&found));
        Some(found)
    }

    /// Stores the blobs of a ConfigMap.
    ///
    /// # Errors
    /// The store refuses them.
    pub async fn put(&self, name: &str, blobs: Vec<Value>) -> Result<Arc<StoredCatalog>, ContentError> {
        if let Some(found) = self.stored(name) {
            return Ok(found);
        }
        let (store, stored) = (Arc::clone(&self.store), name.to_owned());
        let writing = tokio::task::spawn_blocking(move || write(&store, &stored, &blobs));
        writing.await.map_err(|_| ContentError::Stopped)??;
        self.stored(name).ok_or(ContentError::Stopped)
    }

    /// Removes what no source holds.
    pub async fn sweep(self: &Arc<Self>) {
        let contents = Arc::clone(self);
        let sweeping = tokio::task::spawn_blocking(move || {
            let is_held = |name: &str| {
                let held =
                    |map: &BTreeMap<String, Weak<_>>| map.get(name).is_some_and(|of| of.strong_count() > 0);
                held(&contents.open.lock()) || {
                    let fetching = contents.fetching.lock();
                    fetching.get(name).is_some_and(|of| of.strong_count() > 0)
                }
            };
            contents.store.retain(is_held)
        });
        for catalog in sweeping.await.unwrap_or_default() {
            tracing::info!(catalog, "content that no CatalogSource uses is removed");
        }
    }
}

/// An image by digest, and the rights that it was asked for with.
#[derive(Debug)]
pub struct Resolved {
    /// The image.
    pub pinned: Pinned,
    access: Access,
}

fn write(store: &Arc<Store>, name: &str, blobs: &[Value]) -> Result<(), StoreError> {
    let key_of = |blob: &Value, key: &str| {
        let found = blob.get(key).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let mut writer = store.begin(name)?;
    for blob in blobs {
        let keys = ["schema", "package", "name"].map(|key| key_of(blob, key));
        let [schema, package, name] = &keys;
        writer.push(schema, package, name, blob.to_string().as_bytes())?;
    }
    let now = Timestamp::now();
    writer.commit(Commit {
        origin: Origin::default(),
        findings: Findings::default(),
        modified: now,
        now,
    })?;
    Ok(())
}
