//! Bundle images: from a reference to the files of a bundle.

pub mod credentials;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use olm_image::{
    Access, Digest, Images, Limits, Options, Pinned, PullError, Reference, ReferenceError, Selection,
    SettingsError,
};

use credentials::{CredentialsError, PullSecrets};

/// Why a bundle could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The catalog names something that is no image reference.
    #[error("error parsing image reference {reference:?}")]
    Reference {
        /// What the catalog names.
        reference: String,
        /// Why it is none.
        #[source]
        source: ReferenceError,
    },
    /// The pull secrets cannot be read.
    #[error("cannot read pull secrets")]
    Credentials(#[from] CredentialsError),
    /// What says where images come from, and which may be used, cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The tag does not lead to a digest.
    #[error(transparent)]
    Resolve(PullError),
    /// The image cannot be pulled.
    #[error(transparent)]
    Pull(Arc<PullError>),
}

/// Fetches bundles and keeps them by digest.
pub struct Bundles {
    images: Images,
    places: olm_image::Settings,
    limits: Limits,
    secrets: PullSecrets,
    /// Fetched since bundles were forgotten last.
    recent: Mutex<BTreeSet<Digest>>,
}

/// How bundles are fetched.
pub struct Settings {
    /// A directory of PEM files with authorities of registries.
    pub authorities: Option<PathBuf>,
    /// Hosts of token services that registries of other sites may use.
    pub token_services: Vec<String>,
    /// Where bundles are kept.
    pub cache: PathBuf,
    /// Where images come from, and which may be used.
    pub places: olm_image::Settings,
    /// What a bundle's image may cost.
    pub limits: Limits,
    /// Where credentials come from.
    pub secrets: PullSecrets,
}

impl Bundles {
    /// Nothing is read or fetched yet.
    pub fn new(settings: Settings) -> Self {
        let mut options = Options::new(concat!("operator-controller/", env!("CARGO_PKG_VERSION")));
        options.authorities = settings.authorities;
        options.authorities_setting = "--pull-cas-dir";
        options.token_services = settings.token_services;
        options.selection = Selection::Below(olm_bundle::DIRECTORIES.map(str::to_owned).to_vec());
        options.cache = Some(settings.cache);
        settings.places.announce();
        Self {
            images: Images::new(options),
            places: settings.places,
            limits: settings.limits,
            secrets: settings.secrets,
            recent: Mutex::default(),
        }
    }

    /// The image by digest. A reference by digest is not asked for.
    pub async fn pin(&self, reference: &str) -> Result<Pinned, FetchError> {
        let parsed = Reference::parse(reference).map_err(|source| FetchError::Reference {
            reference: reference.to_owned(),
            source,
        })?;
        let resolved = self.images.resolve(&parsed, &self.access().await?).await;
        self.forget_after_refusal(resolved.as_ref().err()).await;
        resolved.map_err(FetchError::Resolve)
    }

    /// The bundle's labels and files.
    pub async fn fetch(&self, pinned: &Pinned) -> Result<Arc<olm_image::Contents>, FetchError> {
        self.recent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(pinned.digest().clone());
        let access = self.access().await?;
        let pulled = self.images.contents(pinned, &access, &self.limits).await;
        self.forget_after_refusal(pulled.as_ref().err().map(Arc::as_ref))
            .await;
        pulled.map_err(FetchError::Pull)
    }

    /// Drops the kept credentials after a refusal: the pull secrets may have changed since they were kept.
    async fn forget_after_refusal(&self, error: Option<&PullError>) {
        if error.is_some_and(PullError::is_refusal) {
            self.secrets.forget().await;
        }
    }

    /// Forgets kept bundles but those named here, by reference, and those fetched since the last time.
    pub async fn prune<'a>(&self, used: impl Iterator<Item = &'a str>) {
        let mut keep = std::mem::take(&mut *self.recent.lock().unwrap_or_else(PoisonError::into_inner));
        keep.extend(used.filter_map(|text| Reference::parse(text).ok()?.digest().cloned()));
        match self.images.prune_contents(&keep).await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "forgot bundles that nothing uses"),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "cannot forget bundles"),
        }
    }

    async fn access(&self) -> Result<Access, FetchError> {
        let credentials = self.secrets.read().await?;
        let places = self.places.clone();
        let read = tokio::task::spawn_blocking(move || places.read()).await;
        // Reading is only prevented when everything ends.
        let (registries, policy) = read.unwrap_or_else(|_| self.places.read())?;
        Ok(Access {
            credentials,
            registries,
            policy,
        })
    }
}
