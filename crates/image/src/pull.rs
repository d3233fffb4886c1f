//! From a reference to an image's files: resolve, choose the platform, transfer, unpack.

pub(crate) mod contents;
mod error;
mod flight;
pub(crate) mod permits;
mod places;
mod signatures;
mod verification;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oci_distribution::manifest::{OciImageManifest, OciManifest};

use contents::{Contents, ContentsStore};
pub use error::PullError;
use flight::Flights;
use places::{no_place, places};
use signatures::LargeAttestations;
use verification::Nodes;

use crate::access::Access;
use crate::access::policy::{self, Approval, PolicyRejection};
use crate::access::tally::Tally;
use crate::digest::Digest;
use crate::layer::tree::{Storage, Tree};
use crate::layer::{Selection, Unpacker};
use crate::limits::Limits;
use crate::manifest::{Blob, ConfigFile, artifact_type, blob, choose_platform, layers, parse_manifest};
use crate::platform::Platform;
use crate::reference::{LATEST, Pinned, Reference};
use crate::registry::auth::Tokens;
use crate::registry::clients::Clients;
use crate::registry::error::RegistryError;
use crate::registry::fetch::FetchTarget;
use crate::registry::session::Shared;
use crate::registry::transfer::{pipe, transfer};

/// Time limit for a registry to resolve a tag and to return its signatures.
const RESOLVE_TIME: Duration = Duration::from_mins(3);

/// Options for fetching images.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory of PEM files with authorities to trust beside those of the system. It is read again when it changes.
    pub authorities: Option<PathBuf>,
    /// Name of the setting for `authorities`, for messages: the flag `--pull-cas-dir`, for example.
    pub authorities_setting: &'static str,
    /// Hosts of token services that registries of other sites may name. A registry's own site needs no entry.
    pub token_services: Vec<String>,
    /// `User-Agent` header of requests.
    pub user_agent: String,
    /// The platform to choose from an index.
    pub platform: Platform,
    /// The part of an image that [`Images::contents`] fetches.
    pub selection: Selection,
    /// A directory in which it keeps them by digest.
    pub cache: Option<PathBuf>,
}

impl Options {
    /// Options without extra authorities and without a cache, for this machine's platform.
    pub fn new(user_agent: impl Into<String>) -> Self {
        Self {
            authorities: None,
            authorities_setting: "the trusted certificate authorities",
            token_services: Vec::new(),
            user_agent: user_agent.into(),
            platform: Platform::host(),
            selection: Selection::Everything,
            cache: None,
        }
    }
}

/// An image whose manifest and configuration are here, and whose layers are not yet.
#[derive(Clone, Debug)]
pub struct Image {
    pinned: Pinned,
    manifest: Digest,
    layers: Vec<Blob>,
    labels: BTreeMap<String, String>,
    artifact_type: Option<String>,
}

impl Image {
    /// The requested image: it has the digest of the index, when there is one.
    pub const fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    /// The digest of the manifest that was chosen for the platform.
    pub const fn manifest(&self) -> &Digest {
        &self.manifest
    }

    /// The labels of the configuration.
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Artifact type in the manifest, such as that of a Helm chart; `None` for a container image.
    pub fn artifact_type(&self) -> Option<&str> {
        self.artifact_type.as_deref()
    }

    /// The layers, lowest first.
    pub fn layers(&self) -> &[Blob] {
        &self.layers
    }

    /// The size of all layers as they are transferred, in bytes.
    pub fn transfer_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size).sum()
    }
}

/// An image that the signature policy lets through.
#[derive(Clone, Debug)]
pub struct AcceptedImage {
    /// The image.
    pub pinned: Pinned,
    /// One approval per requirement.
    pub approvals: Vec<Approval>,
}

/// Fetches images. Cheap to clone; clones share connections, tokens and pulls under way.
#[derive(Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Shared,
    platform: Platform,
    store: Option<ContentsStore>,
    selection: Selection,
    contents: Flights<(Pinned, Limits), Result<Arc<Contents>, Arc<PullError>>>,
    checks: Tally,
    large_attestations: LargeAttestations,
}

impl Images {
    /// Sets up fetching. Nothing is read or sent yet.
    pub fn new(options: Options) -> Self {
        Self {
            inner: Arc::new(Inner {
                shared: Shared {
                    clients: Arc::new(Clients::new(
                        options.authorities,
                        options.authorities_setting,
                        options.user_agent,
                    )),
                    tokens: Tokens::new(options.token_services),
                },
                platform: options.platform,
                store: options.cache.map(ContentsStore::new),
                selection: options.selection,
                contents: Flights::default(),
                checks: Tally::default(),
                large_attestations: LargeAttestations::default(),
            }),
        }
    }

    /// The digest of a reference: its own when it has one, without a request, else that of its tag
    /// (`latest` when there is none).
    pub async fn resolve(&self, reference: &Reference, access: &Access) -> Result<Pinned, PullError> {
        if let Some(pinned) = reference.pinned() {
            return Ok(pinned);
        }
        let signed = self.admitted(access, reference)?;
        let tag = reference.tag().unwrap_or(LATEST);
        let asking = async {
            let wanted = FetchTarget::Tag(tag);
            let (_, digest) = self.fetch(reference, access, "the digest", wanted).await?;
            let pinned = reference.pin(digest);
            self.check_signatures(&signed, &pinned, &[pinned.digest().clone()], access)
                .await?;
            Ok(pinned)
        };
        let late = |_| PullError::Time {
            reference: reference.to_string(),
            seconds: RESOLVE_TIME.as_secs(),
        };
        tokio::time::timeout(RESOLVE_TIME, asking).await.map_err(late)?
    }

    /// Fetches the manifest and the configuration, and chooses the platform from an index. An image that the signature
    /// policy rejects is not fetched.
    pub async fn image(&self, pinned: &Pinned, access: &Access, limits: &Limits) -> Result<Image, PullError> {
        let signed = self.admitted(access, &pinned.requested())?;
        let fetching = Box::pin(self.fetch_image(pinned, access, limits, &signed));
        in_time(pinned, limits, fetching).await
    }

    async fn fetch_image(
        &self,
        pinned: &Pinned,
        access: &Access,
        limits: &Limits,
        signed: &[policy::RequiredSignature<'_>],
    ) -> Result<Image, PullError> {
        let reference = pinned.reference();
        let unusable = |message: String| PullError::Manifest {
            reference: pinned.to_string(),
            message,
        };
        let (manifest, digest) = self.platform_manifest(pinned, access, limits).await?;
        let digests = [pinned.digest().clone(), digest.clone()];
        self.check_signatures(signed, pinned, &digests, access).await?;
        if manifest.layers.len() > limits.layers {
            return Err(PullError::Layers {
                reference: pinned.to_string(),
                limit: limits.layers,
            });
        }
        let layers = layers(&manifest).map_err(unusable)?;
        let bytes = layers
            .iter()
            .fold(0, |sum: u64, layer| sum.saturating_add(layer.size));
        if bytes > limits.transfer_bytes {
            let limit = limits.transfer_bytes;
            return Err(PullError::TransferBytes {
                reference: pinned.to_string(),
                bytes,
                limit,
            });
        }
        let config = self.configuration(&reference, &manifest, access, limits).await?;
        Ok(Image {
            pinned: pinned.clone(),
            manifest: digest,
            layers,
            labels: config.into_labels(),
            artifact_type: artifact_type(&manifest),
        })
    }

    /// The platforms that an image is for: those of its index, or the one of its configuration. Entries of an index
    /// that are no image, such as attestations, say `unknown` and are left out.
    pub async fn platforms(
        &self,
        reference: &Reference,
        access: &Access,
    ) -> Result<Vec<Platform>, PullError> {
        let limits = Limits::bundle();
        let pinned = self.resolve(reference, access).await?;
        let reference = pinned.reference();
        self.admitted(access, &reference)?;
        let unusable = |message: String| PullError::Manifest {
            reference: pinned.to_string(),
            message,
        };
        let wanted = FetchTarget::Manifest {
            digest: pinned.digest(),
            limit: limits.manifest_bytes,
        };
        let asking = async {
            let (text, _) = self.fetch(&reference, access, "the manifest", wanted).await?;
            match parse_manifest(&text).map_err(unusable)? {
                OciManifest::ImageIndex(index) => {
                    let platforms = index.manifests.into_iter().filter_map(|entry| entry.platform);
                    let platforms = platforms.map(|platform| Platform {
                        os: platform.os.to_string(),
                        architecture: platform.architecture.to_string(),
                    });
                    Ok(platforms.filter(|platform| platform.os != "unknown").collect())
                }
                OciManifest::Image(manifest) => {
                    let config = self.configuration(&reference, &manifest, access, &limits).await?;
                    Ok(vec![Platform {
                        os: config.os,
                        architecture: config.architecture,
                    }])
                }
            }
        };
        let late = |_| PullError::Time {
            reference: pinned.to_string(),
            seconds: RESOLVE_TIME.as_secs(),
        };
        tokio::time::timeout(RESOLVE_TIME, asking).await.map_err(late)?
    }

    /// Counts of signature checks since the start, by outcome: `verified`, or the fault in one word.
    pub fn signature_checks(&self) -> Vec<(&'static str, u64)> {
        self.inner.checks.read()
    }

    /// Signatures that the policy requires for the image; empty when it accepts the image without any.
    #[expect(clippy::result_large_err, reason = "the error of everything here")]
    fn admitted<'a>(
        &self,
        access: &'a Access,
        reference: &Reference,
    ) -> Result<Vec<policy::RequiredSignature<'a>>, PullError> {
        access.admit(reference).map_err(|source| {
            self.inner.checks.count(source.outcome());
            refused(reference, source)
        })
    }

    /// The manifest for the platform and its digest: that of the image itself, or one that its index names.
    async fn platform_manifest(
        &self,
        pinned: &Pinned,
        access: &Access,
        limits: &Limits,
    ) -> Result<(OciImageManifest, Digest), PullError> {
        let reference = pinned.reference();
        let unusable = |message: String| PullError::Manifest {
            reference: pinned.to_string(),
            message,
        };
        let limit = limits.manifest_bytes;
        let wanted = FetchTarget::Manifest {
            digest: pinned.digest(),
            limit,
        };
        let (text, mut digest) = self.fetch(&reference, access, "the manifest", wanted).await?;
        let mut manifest = parse_manifest(&text).map_err(unusable)?;
        if let OciManifest::ImageIndex(index) = &manifest {
            let platform = &self.inner.platform;
            let entry = choose_platform(&index.manifests, platform).ok_or_else(|| PullError::Platform {
                reference: pinned.to_string(),
                os: platform.os.clone(),
                architecture: platform.architecture.clone(),
            })?;
            let chosen = Digest::parse(&entry.digest).map_err(|error| unusable(error.to_string()))?;
            let wanted = FetchTarget::Manifest {
                digest: &chosen,
                limit,
            };
            let (text, _) = self
                .fetch(&reference, access, "the platform's manifest", wanted)
                .await?;
            manifest = parse_manifest(&text).map_err(unusable)?;
            digest = chosen;
        }
        let OciManifest::Image(manifest) = manifest else {
            return Err(unusable("an index leads to another index".to_owned()));
        };
        Ok((manifest, digest))
    }

    async fn configuration(
        &self,
        reference: &Reference,
        manifest: &OciImageManifest,
        access: &Access,
        limits: &Limits,
    ) -> Result<ConfigFile, PullError> {
        let unusable = |message: String| PullError::Manifest {
            reference: reference.to_string(),
            message,
        };
        let config = blob(&manifest.config).map_err(unusable)?;
        let wanted = FetchTarget::Blob {
            blob: &config,
            limit: limits.config_bytes,
        };
        let (text, _) = self.fetch(reference, access, "the configuration", wanted).await?;
        match serde_json::from_slice(&text) {
            // Any artifact has a configuration of its own kind.
            Err(_) if artifact_type(manifest).is_some() => Ok(ConfigFile::default()),
            read => read.map_err(|error| unusable(format!("configuration: {error}"))),
        }
    }

    /// Transfers the layers and unpacks the selection. Nothing is kept when anything fails, a digest among it.
    pub async fn unpack(
        &self,
        image: &Image,
        selection: &Selection,
        storage: &Storage,
        access: &Access,
        limits: &Limits,
    ) -> Result<Tree, PullError> {
        let seconds = limits.time.as_secs();
        let unpacking = self.unpack_layers(image, selection, storage, access, limits);
        let late = PullError::Time {
            reference: image.pinned.to_string(),
            seconds,
        };
        tokio::time::timeout(limits.time, unpacking)
            .await
            .unwrap_or(Err(late))
    }

    async fn unpack_layers(
        &self,
        image: &Image,
        selection: &Selection,
        storage: &Storage,
        access: &Access,
        limits: &Limits,
    ) -> Result<Tree, PullError> {
        let reference = || image.pinned.to_string();
        let wrong = |layer, source| PullError::Layer {
            reference: reference(),
            layer,
            source,
        };
        let lost = |source| PullError::Fetch {
            what: "a layer",
            reference: reference(),
            source,
        };
        let home = image.pinned.reference();
        let mut sessions = Vec::new();
        let mut broken = None;
        for (endpoint, patience) in places(access, &home).map_err(|source| no_place(&home, source))? {
            match self.session(endpoint, access, patience).await {
                Ok(session) => sessions.push(session),
                Err(error) => broken = Some(error),
            }
        }
        if let (true, Some(error)) = (sessions.is_empty(), broken) {
            return Err(lost(error));
        }
        let mut unpacker = Unpacker::new(selection, storage, limits).map_err(|source| wrong(1, source))?;
        for (index, layer) in image.layers.iter().enumerate() {
            let (sender, reader) = pipe();
            let size = layer.size;
            let unpacking = tokio::task::spawn_blocking(move || {
                let result = unpacker.apply(reader, size);
                (unpacker, result)
            });
            let (transferred, ended) = tokio::join!(transfer(&sessions, layer, sender), unpacking);
            let Ok((next, applied)) = ended else {
                return Err(PullError::CutOff {
                    reference: reference(),
                });
            };
            unpacker = next;
            match (transferred, applied) {
                (Ok(()), Ok(())) => {}
                // The reader stopped on its own account, and the transfer only noticed.
                (Ok(()) | Err(RegistryError::GivenUp), Err(source)) => return Err(wrong(index + 1, source)),
                (Err(source), _) => return Err(lost(source)),
            }
        }
        tokio::task::spawn_blocking(move || unpacker.finish())
            .await
            .map_err(|_| PullError::CutOff {
                reference: reference(),
            })?
            .map_err(|source| wrong(image.layers.len(), source))
    }

    /// Fetches the labels and the selected files of an image. Calls for the same digest share one transfer, and
    /// contents that were fetched before come from the cache directory when there is one.
    pub async fn contents(
        &self,
        pinned: &Pinned,
        access: &Access,
        limits: &Limits,
    ) -> Result<Arc<Contents>, Arc<PullError>> {
        let found = self.verified_contents(pinned, access, limits).await;
        found.map(|(contents, _)| contents)
    }

    /// The same, and what satisfies each rule of the signature policy. Each call is held against rules of its own, also
    /// where the contents were fetched before: they may have been let through by others.
    pub async fn verified_contents(
        &self,
        pinned: &Pinned,
        access: &Access,
        limits: &Limits,
    ) -> Result<(Arc<Contents>, Vec<Approval>), Arc<PullError>> {
        let approvals = self
            .approvals(pinned, Nodes::Own, access)
            .await
            .map_err(Arc::new)?;
        let work = {
            let (images, pinned, access, limits) =
                (self.clone(), pinned.clone(), access.clone(), limits.clone());
            async move {
                images
                    .fetch_contents(&pinned, &access, &limits)
                    .await
                    .map(Arc::new)
                    .map_err(Arc::new)
            }
        };
        let cut_off = || {
            Arc::new(PullError::CutOff {
                reference: pinned.to_string(),
            })
        };
        let contents = self
            .inner
            .contents
            .join((pinned.clone(), limits.clone()), work)
            .await
            .unwrap_or_else(|| Err(cut_off()))?;
        Ok((contents, approvals))
    }

    /// Whether the cache directory has the contents of an image, so that no layer has to be transferred.
    pub async fn keeps(&self, pinned: &Pinned) -> bool {
        match &self.inner.store {
            Some(store) => store.has(pinned.digest()).await,
            None => false,
        }
    }

    async fn fetch_contents(
        &self,
        pinned: &Pinned,
        access: &Access,
        limits: &Limits,
    ) -> Result<Contents, PullError> {
        if let Some(store) = &self.inner.store
            && let Some(contents) = store.load(pinned.digest(), limits).await
        {
            return Ok(contents);
        }
        // Every caller that waits for the contents has verified the image already.
        let fetching = Box::pin(self.fetch_image(pinned, access, limits, &[]));
        let image = in_time(pinned, limits, fetching).await?;
        let tree = self
            .unpack(&image, &self.inner.selection, &Storage::Memory, access, limits)
            .await?;
        let files = Contents::from_tree(image.labels, &tree).map_err(|source| PullError::Link {
            reference: pinned.to_string(),
            source,
        })?;
        let contents = Contents {
            artifact_type: image.artifact_type,
            ..files
        };
        if let Some(store) = &self.inner.store
            && let Err(error) = store.save(pinned.digest(), contents.clone()).await
        {
            // The cache only saves work.
            tracing::warn!(%error, image = %pinned, "cannot keep the contents");
        }
        Ok(contents)
    }

    /// Forgets cached contents but those to keep. Returns how many were removed.
    pub async fn prune_contents(&self, keep: &BTreeSet<Digest>) -> std::io::Result<usize> {
        match &self.inner.store {
            Some(store) => store.prune(keep).await,
            None => Ok(0),
        }
    }
}

/// The result of work on an image, or an error when its time is over.
async fn in_time<T>(
    pinned: &Pinned,
    limits: &Limits,
    work: impl Future<Output = Result<T, PullError>>,
) -> Result<T, PullError> {
    let late = |_| PullError::Time {
        reference: pinned.to_string(),
        seconds: limits.time.as_secs(),
    };
    tokio::time::timeout(limits.time, work).await.map_err(late)?
}

fn refused(reference: &Reference, source: PolicyRejection) -> PullError {
    PullError::Policy {
        reference: reference.to_string(),
        source,
    }
}
