//! Bundle images: from a reference to the files of a bundle.

pub(crate) mod credentials;
pub(crate) mod operands;
pub(crate) mod pulls;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use olm_image::{
    Access, Approval, Bounds, CachedVerification, CurrentPolicy, Digest, Images, Limits, Options, Pinned,
    PolicyRejection, PullError, Reference, ReferenceError, RequestPermits, Rules, Selection, SettingsError,
    SignatureStatus,
};
use parking_lot::Mutex;

use credentials::{CredentialsError, PullSecrets};
use olm_platform::log::chain;
use olm_platform::metrics::Metrics;
use olm_platform::queue::Queue;
use operands::{OperandVerdicts, Operands};
use pulls::{Pending, Pulled, Pulls};

/// An error while fetching a bundle.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The catalog has an invalid image reference.
    #[error("error parsing image reference {reference:?}")]
    Reference {
        reference: String,
        source: ReferenceError,
    },
    /// The pull secrets cannot be read.
    #[error("cannot read pull secrets")]
    Credentials(#[from] CredentialsError),
    /// The configuration of registries or the signature policy cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The tag cannot be resolved to a digest.
    #[error(transparent)]
    Resolve(Box<PullError>),
    /// The image cannot be pulled.
    #[error(transparent)]
    Pull(Arc<PullError>),
    /// The registry has not answered yet. The extension is reconciled when it does.
    #[error("{}", pending(reference, registry, *.state))]
    Pending {
        /// The image.
        reference: String,
        registry: String,
        /// The state of the request.
        state: Pending,
    },
}

impl FetchError {
    /// The verdict of the signature policy, if it refuses the image.
    pub(crate) fn rejection(&self) -> Option<&PolicyRejection> {
        match self {
            Self::Resolve(error) => error.policy_rejection(),
            Self::Pull(error) => error.policy_rejection(),
            Self::Reference { .. } | Self::Credentials(_) | Self::Settings(_) | Self::Pending { .. } => None,
        }
    }
}

fn pending(reference: &str, registry: &str, state: Pending) -> String {
    match state {
        Pending::UnderWay => format!("pulling image {reference}"),
        Pending::Queued => format!(
            "waiting to pull image {reference}: --pulls or --pulls-per-registry limits concurrent pulls from {registry}"
        ),
    }
}

/// The labels and files of a bundle, and what satisfies each rule about its image.
pub(crate) type Verified = (Arc<olm_image::Contents>, Vec<Approval>);

/// Fetches bundles and caches them by digest. No call waits for a slow registry; see [`Pulls`].
pub(crate) struct Bundles {
    registries: Arc<Registries>,
    pins: Pulls<Result<Pinned, FetchError>>,
    pulls: Pulls<Result<Verified, FetchError>>,
    policy: CurrentPolicy,
    checks: Pulls<Result<Option<SignatureStatus>, FetchError>>,
    operands: Operands,
    /// Those of installed bundles. An extension may have an installed and a new bundle with other images.
    installed_operands: Operands,
}

/// The clients of registries.
struct Registries {
    images: Images,
    places: olm_image::Settings,
    limits: Limits,
    secrets: PullSecrets,
    /// Images fetched since the last [`Bundles::prune`].
    recent: Mutex<BTreeSet<Digest>>,
}

/// The settings of bundle fetches.
pub(crate) struct BundleSettings {
    /// A directory of PEM files with authorities of registries.
    pub authorities: Option<PathBuf>,
    /// Hosts of token services that registries of other sites may use.
    pub token_services: Vec<String>,
    /// The cache of bundles.
    pub cache: PathBuf,
    /// The configuration of registries and the signature policy.
    pub places: olm_image::Settings,
    /// The limits of a bundle's image.
    pub limits: Limits,
    /// The source of credentials.
    pub secrets: PullSecrets,
    /// The limits for concurrent pulls.
    pub bounds: Bounds,
    /// The queue of extensions, to wake those that wait for an image.
    pub wake: Queue<String>,
}

impl Bundles {
    /// A fetcher that has not read anything yet.
    pub(crate) fn new(settings: BundleSettings) -> Self {
        let mut options = Options::new(concat!("operator-controller/", env!("CARGO_PKG_VERSION")));
        options.authorities = settings.authorities;
        options.authorities_setting = "--pull-cas-dir";
        options.token_services = settings.token_services;
        options.selection = Selection::Below(olm_bundle::DIRECTORIES.map(str::to_owned).to_vec());
        options.cache = Some(settings.cache);
        settings.places.announce();
        let permits = Arc::new(RequestPermits::new(settings.bounds));
        Self {
            policy: CurrentPolicy::new(settings.places.clone()),
            registries: Arc::new(Registries {
                images: Images::new(options),
                places: settings.places,
                limits: settings.limits,
                secrets: settings.secrets,
                recent: Mutex::default(),
            }),
            pins: Pulls::new(Arc::clone(&permits), settings.wake.clone()),
            checks: Pulls::new(Arc::clone(&permits), settings.wake.clone()),
            operands: Operands::new(Arc::clone(&permits), settings.wake.clone()),
            installed_operands: Operands::new(Arc::clone(&permits), settings.wake.clone()),
            pulls: Pulls::new(permits, settings.wake),
        }
    }

    /// Shows how often images were checked against the signature policy.
    pub(crate) fn report_to(&self, metrics: &Metrics) {
        let images = self.registries.images.clone();
        metrics.outcomes(
            "operator_controller_signature_checks",
            "Images that were checked against the signature policy, by outcome",
            move || images.signature_checks(),
        );
    }

    /// The image of an extension by digest, if it satisfies the policy and these rules. A reference by digest needs no
    /// request.
    pub(crate) async fn pin(
        &self,
        extension: &str,
        reference: &str,
        rules: &Rules,
    ) -> Result<Pinned, FetchError> {
        let parsed = Reference::parse(reference).map_err(|source| FetchError::Reference {
            reference: reference.to_owned(),
            source,
        })?;
        if let Some(pinned) = parsed.pinned() {
            return Ok(pinned);
        }
        let registry = parsed.registry().to_owned();
        let registries = Arc::clone(&self.registries);
        // An answer by an earlier policy does not count.
        let what = format!("{reference} {}", self.policy.number(rules).await);
        let rules = rules.clone();
        let work = async move { registries.pin(&parsed, rules).await };
        let answer = self.pins.ask(extension, &what, Some(&registry), work).await;
        unless_pending(answer, reference, registry)
    }

    /// An extension's bundle, if its image satisfies the policy and these rules.
    pub(crate) async fn fetch(
        &self,
        extension: &str,
        pinned: &Pinned,
        rules: &Rules,
    ) -> Result<Verified, FetchError> {
        let registry = pinned.reference().registry().to_owned();
        let is_kept = self.registries.images.keeps(pinned).await;
        let (registries, image) = (Arc::clone(&self.registries), pinned.clone());
        let what = format!("{pinned} {}", self.policy.number(rules).await);
        let rules = rules.clone();
        let work = async move { registries.fetch(&image, rules).await };
        let contacted = Some(registry.as_str()).filter(|_| !is_kept);
        let answer = self.pulls.ask(extension, &what, contacted, work).await;
        unless_pending(answer, &pinned.to_string(), registry)
    }

    /// The signature policy.
    pub(crate) fn policy(&self) -> &CurrentPolicy {
        &self.policy
    }

    /// The verdict of the signature policy and these rules about the image of an extension's installed bundle.
    pub(crate) async fn signature_status(
        &self,
        extension: &str,
        image: &Pinned,
        rules: &Rules,
    ) -> Pulled<CachedVerification> {
        let asked = Instant::now();
        let (number, known) = self.policy.without_signatures(image, rules).await;
        let answer = |status| Pulled::Done(CachedVerification::new(number, image.clone(), status, asked));
        if let Some(known) = known {
            return answer(known);
        }
        let registry = image.reference().registry().to_owned();
        let (registries, pinned, rules) = (Arc::clone(&self.registries), image.clone(), rules.clone());
        let work = async move { registries.signature_status(&pinned, rules).await };
        let what = format!("{image} {number}");
        match self.checks.ask(extension, &what, Some(&registry), work).await {
            Pulled::Done(Ok(status)) => answer(status),
            Pulled::Done(Err(error)) => answer(Some(SignatureStatus::unknown(image, &chain(&error)))),
            Pulled::Pending(state) => Pulled::Pending(state),
        }
    }

    /// The verdicts of the signature policy and these rules about the images of a bundle's Pods. Images for which no
    /// rule asks for anything need no request.
    pub(crate) async fn verify_images(
        &self,
        extension: &str,
        images: BTreeSet<String>,
        rules: &Rules,
    ) -> Pulled<Result<OperandVerdicts, FetchError>> {
        self.verified(&self.operands, extension, images, rules).await
    }

    /// [`Bundles::verify_images`] of an extension's installed bundle.
    pub(crate) async fn verify_installed_images(
        &self,
        extension: &str,
        images: BTreeSet<String>,
        rules: &Rules,
    ) -> Pulled<Result<OperandVerdicts, FetchError>> {
        self.verified(&self.installed_operands, extension, images, rules)
            .await
    }

    async fn verified(
        &self,
        operands: &Operands,
        extension: &str,
        images: BTreeSet<String>,
        rules: &Rules,
    ) -> Pulled<Result<OperandVerdicts, FetchError>> {
        let mut asked = BTreeSet::new();
        for image in images {
            let reference = Reference::parse_familiar(&image);
            let is_asked = match &reference {
                Ok(reference) => self.policy.asks_about(reference, rules).await,
                Err(_) => true,
            };
            if is_asked {
                asked.insert(image);
            }
        }
        if asked.is_empty() {
            return Pulled::Done(Ok(OperandVerdicts::default()));
        }
        let policy = self.policy.number(rules).await;
        operands
            .verify(&self.registries, extension, asked, policy, rules)
            .await
    }

    /// Drops the requests of an extension.
    pub(crate) fn forget(&self, extension: &str) {
        self.operands.forget(extension);
        self.installed_operands.forget(extension);
        self.checks.forget(extension);
        self.pins.forget(extension);
        self.pulls.forget(extension);
    }

    /// Drops answers that no caller collected, and cached bundles except those named here, by reference, and those
    /// fetched since the last call.
    pub(crate) async fn prune<'a>(&self, used: impl Iterator<Item = &'a str>) {
        self.operands.tidy();
        self.installed_operands.tidy();
        self.checks.tidy();
        self.pins.tidy();
        self.pulls.tidy();
        self.registries.prune(used).await;
    }
}

fn unless_pending<T>(
    answer: Pulled<Result<T, FetchError>>,
    reference: &str,
    registry: String,
) -> Result<T, FetchError> {
    match answer {
        Pulled::Done(answer) => answer,
        Pulled::Pending(state) => Err(FetchError::Pending {
            reference: reference.to_owned(),
            registry,
            state,
        }),
    }
}

impl Registries {
    async fn pin(&self, reference: &Reference, rules: Rules) -> Result<Pinned, FetchError> {
        let resolved = self.images.resolve(reference, &self.access(rules).await?).await;
        self.forget_after_refusal(resolved.as_ref().err());
        resolved.map_err(|error| FetchError::Resolve(Box::new(error)))
    }

    async fn fetch(&self, pinned: &Pinned, rules: Rules) -> Result<Verified, FetchError> {
        self.recent.lock().insert(pinned.digest().clone());
        let access = self.access(rules).await?;
        let pulled = self.images.verified_contents(pinned, &access, &self.limits).await;
        self.forget_after_refusal(pulled.as_ref().err().map(Arc::as_ref));
        pulled.map_err(FetchError::Pull)
    }

    async fn signature_status(
        &self,
        image: &Pinned,
        rules: Rules,
    ) -> Result<Option<SignatureStatus>, FetchError> {
        let status = self
            .images
            .signature_status(image, &self.access(rules).await?)
            .await;
        if status.as_ref().is_some_and(|status| status.accepted.is_none()) {
            // The registry may have refused old credentials.
            self.secrets.forget();
        }
        Ok(status)
    }

    /// Drops the cached credentials after a refusal, because the pull secrets may have changed.
    fn forget_after_refusal(&self, error: Option<&PullError>) {
        if error.is_some_and(PullError::is_refusal) {
            self.secrets.forget();
        }
    }

    async fn prune<'a>(&self, used: impl Iterator<Item = &'a str>) {
        let mut keep = std::mem::take(&mut *self.recent.lock());
        keep.extend(used.filter_map(|text| Reference::parse(text).ok()?.digest().cloned()));
        match self.images.prune_contents(&keep).await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "removed unused bundles"),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot remove unused bundles"
            ),
        }
    }

    async fn access(&self, rules: Rules) -> Result<Access, FetchError> {
        let credentials = self.secrets.read().await?;
        let places = self.places.clone();
        let read = tokio::task::spawn_blocking(move || places.read()).await;
        // Reading fails only at shutdown.
        let (registries, policy) = read.unwrap_or_else(|_| self.places.read())?;
        Ok(Access {
            credentials,
            registries,
            policy,
            rules,
        })
    }
}
