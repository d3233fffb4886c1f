//! The image of a bundle: pulled with the rights of its CatalogSource, kept by digest.

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use olm_classic::cluster::{items, text};
use olm_classic::install_plan::{BundleContent, FilesError, read_bundle};
use olm_image::{
    Access, Credentials, CredentialsError, Images, Limits, Options, Pinned, PullError, Reference,
    ReferenceError, Selection, Settings, SettingsError,
};
use olm_platform::pull_secrets::{PullSecrets, ReadError};
use serde_json::Value;

use crate::args::CatalogArgs;

/// The service account of a namespace whose pull secrets its CatalogSources use, too.
const DEFAULT_ACCOUNT: &str = "default";

/// A failure to unpack a bundle.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The catalog names something that is no image reference.
    #[error("error parsing image reference {reference:?}")]
    Reference {
        /// What the catalog names.
        reference: String,
        /// Why it is none.
        #[source]
        source: ReferenceError,
    },
    /// A pull secret cannot be read.
    #[error(transparent)]
    Secret(#[from] ReadError),
    /// A Secret is no pull secret.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// What says where images come from, and which may be used, cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The registry does not give the image.
    #[error(transparent)]
    Image(Box<PullError>),
    /// The image cannot be pulled.
    #[error(transparent)]
    Pull(Arc<PullError>),
    /// The image is no bundle.
    #[error(transparent)]
    Content(#[from] FilesError),
    /// The work was cut off.
    #[error("the work was interrupted")]
    CutOff,
}

impl UnpackError {
    /// Whether another try may succeed without another image.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Reference { .. } | Self::Content(_) => false,
            Self::Image(error) => error.is_retryable(),
            Self::Pull(error) => error.is_retryable(),
            Self::Secret(_) | Self::Credentials(_) | Self::Settings(_) | Self::CutOff => true,
        }
    }
}

/// The rights with which images of a CatalogSource are pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Puller {
    /// The namespace of the CatalogSource.
    pub namespace: String,
    /// The names of its pull secrets.
    pub secrets: Vec<String>,
}

impl Puller {
    /// Those of a CatalogSource as it is on the wire.
    pub fn of(source: &Value) -> Self {
        let secrets = items(source, "/spec/secrets").filter_map(Value::as_str);
        Self {
            namespace: text(source, "/metadata/namespace").to_owned(),
            secrets: secrets.map(str::to_owned).collect(),
        }
    }
}

/// An unpacked bundle.
#[derive(Debug)]
pub struct UnpackedBundle {
    /// Its objects.
    pub content: BundleContent,
    /// Its image by digest.
    pub image: String,
}

/// Pulls images of bundles.
pub struct BundleImages {
    client: Client,
    images: Images,
    settings: Settings,
    limits: Limits,
    global_secret: Option<(String, String)>,
}

impl BundleImages {
    /// Nothing is read or fetched yet.
    ///
    /// # Errors
    /// When a flag cannot be read.
    pub fn new(client: Client, args: &CatalogArgs) -> anyhow::Result<Self> {
        let (common, registry) = (&args.classic.common, &args.registry);
        let mut options = Options::new(concat!("catalog-operator/", env!("CARGO_PKG_VERSION")));
        options.authorities = (!common.pull_cas_dir.is_empty()).then(|| PathBuf::from(&common.pull_cas_dir));
        options.authorities_setting = "--pull-cas-dir";
        options.token_services.clone_from(&common.registry_token_services);
        options.selection = Selection::Below(olm_bundle::DIRECTORIES.map(str::to_owned).to_vec());
        options.cache = Some(registry.cache_dir.join("bundles"));
        Ok(Self {
            client,
            images: Images::new(options),
            settings: Settings {
                registries: common.registries_file(),
                policy: common.policy_file(),
                plain_http: registry.plain_http_registries.clone(),
            },
            limits: Limits::bundle().with(registry.limits.given()),
            global_secret: common.pull_secret()?,
        })
    }

    /// Pulls and reads a bundle. What another CatalogSource has pulled already is used once the registry has shown the image
    /// to this one's own credentials.
    ///
    /// # Errors
    /// When the image cannot be pulled, or is no bundle.
    pub async fn unpack(&self, reference: &str, puller: &Puller) -> Result<UnpackedBundle, UnpackError> {
        let parsed = Reference::parse(reference).map_err(|source| UnpackError::Reference {
            reference: reference.to_owned(),
            source,
        })?;
        let access = self.access(puller).await?;
        let pinned = self.images.resolve(&parsed, &access).await.map_err(refused)?;
        if self.images.keeps(&pinned).await {
            let shown = self.images.image(&pinned, &access, &self.limits).await;
            shown.map_err(refused)?;
        }
        self.read(&pinned, &access).await
    }

    async fn read(&self, pinned: &Pinned, access: &Access) -> Result<UnpackedBundle, UnpackError> {
        let contents = self.images.contents(pinned, access, &self.limits).await;
        let contents = contents.map_err(UnpackError::Pull)?;
        let image = pinned.to_string();
        let reading = tokio::task::spawn_blocking(move || {
            let files = contents.files.iter();
            read_bundle(files.map(|(path, file)| (path.as_str(), file.as_ref())))
        });
        let content = reading.await.map_err(|_| UnpackError::CutOff)??;
        Ok(UnpackedBundle { content, image })
    }

    /// The credentials and settings for pulls, as they are now.
    async fn access(&self, puller: &Puller) -> Result<Access, UnpackError> {
        let account = (puller.namespace.clone(), DEFAULT_ACCOUNT.to_owned());
        let named = puller
            .secrets
            .iter()
            .map(|name| (puller.namespace.clone(), name.clone()));
        let global = self.global_secret.clone();
        let secrets = PullSecrets::new(self.client.clone(), global, Some(account)).and(named);
        let secrets = secrets.read().await?;
        let secrets = secrets.iter().map(|secret| (secret.name.as_str(), &secret.data));
        let credentials = Arc::new(Credentials::from_secrets(secrets)?);
        let settings = self.settings.clone();
        let reading = tokio::task::spawn_blocking(move || settings.read());
        let (registries, policy) = reading.await.map_err(|_| UnpackError::CutOff)??;
        Ok(Access {
            credentials,
            registries,
            policy,
        })
    }
}

fn refused(error: PullError) -> UnpackError {
    UnpackError::Image(Box::new(error))
}
