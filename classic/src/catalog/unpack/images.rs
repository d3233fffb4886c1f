//! The image of a bundle: pulled with the rights of its CatalogSource, kept by digest.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use olm_classic::install_plan::{BundleContent, FilesError, read_bundle};
use olm_image::{
    Access, Digest, Images, Limits, Options, Pinned, PullError, Reference, Selection, SignatureStatus,
};
use olm_platform::log::chain;
use parking_lot::Mutex;

use crate::args::CatalogArgs;
use crate::registry::access::{AccessError, Accesses, Puller, options, parse};

/// A failure to unpack a bundle.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The image cannot be asked for.
    #[error(transparent)]
    Access(#[from] AccessError),
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
            Self::Access(AccessError::Reference { .. }) | Self::Content(_) => false,
            Self::Image(error) => error.is_retryable(),
            Self::Pull(error) => error.is_retryable(),
            Self::Access(_) | Self::CutOff => true,
        }
    }
}

/// An image by digest, with the tag of the reference from which the digest is: signatures may be about the tag.
fn requested(image: &str, reference: &str) -> Result<Reference, AccessError> {
    let image = parse(image)?;
    let reference = parse(reference)?;
    Ok(match image.pinned() {
        Some(pinned) if image.name() == reference.name() => pinned.of_tag(&reference).reference(),
        _ => image,
    })
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
    accesses: Accesses,
    images: Images,
    limits: Limits,
    /// Images unpacked since the last [`BundleImages::prune`].
    recent: Mutex<BTreeSet<Digest>>,
}

impl BundleImages {
    /// Nothing is read or fetched yet.
    ///
    /// # Errors
    /// When a flag cannot be read.
    pub fn new(client: Client, args: &CatalogArgs) -> anyhow::Result<Self> {
        let registry = &args.registry;
        let images = Images::new(Options {
            selection: Selection::Below(olm_bundle::DIRECTORIES.map(str::to_owned).to_vec()),
            cache: Some(registry.cache_dir.join("bundles")),
            ..options(args)
        });
        Ok(Self {
            accesses: Accesses::new(client, args)?,
            images,
            limits: Limits::bundle().with(registry.limits.given()),
            recent: Mutex::default(),
        })
    }

    /// The client for images of bundles.
    pub const fn images(&self) -> &Images {
        &self.images
    }

    /// Pulls and reads a bundle: `image`, which the catalog has as `reference`, maybe with a tag. Content that another
    /// CatalogSource has pulled already is used once the registry has shown the image to this one's own credentials.
    ///
    /// # Errors
    /// When the image cannot be pulled, or is no bundle.
    pub async fn unpack(
        &self,
        image: &str,
        reference: &str,
        puller: &Puller,
    ) -> Result<UnpackedBundle, UnpackError> {
        let parsed = requested(image, reference)?;
        let access = self.accesses.of(puller).await?;
        let pinned = self.images.resolve(&parsed, &access).await.map_err(refused)?;
        self.recent.lock().insert(pinned.digest().clone());
        if self.images.keeps(&pinned).await {
            let shown = self.images.image(&pinned, &access, &self.limits).await;
            shown.map_err(refused)?;
        }
        self.read(&pinned, &access).await
    }

    /// What the signature policies say about an image in use; `None` if they ask for no signature.
    pub async fn signature_status(&self, image: &Pinned, puller: &Puller) -> Option<SignatureStatus> {
        match self.accesses.of(puller).await {
            Ok(access) => self.images.signature_status(image, &access).await,
            Err(error) => Some(SignatureStatus::unknown(image, &chain(&error))),
        }
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

    /// Removes the files of bundles but of those unpacked since the last call and of `used`, references by digest.
    pub async fn prune<'a>(&self, used: impl Iterator<Item = &'a str>) {
        let mut keep = std::mem::take(&mut *self.recent.lock());
        keep.extend(used.filter_map(|image| Reference::parse(image).ok()?.digest().cloned()));
        match self.images.prune_contents(&keep).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed bundles that no InstallPlan needs"),
            Err(error) => tracing::warn!(%error, "cannot remove bundles that no InstallPlan needs"),
        }
    }
}

fn refused(error: PullError) -> UnpackError {
    UnpackError::Image(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_keeps_the_tag_that_it_is_from() {
        let digest = format!("quay.io/a/b@sha256:{}", "0".repeat(64));
        let of = |image: &str, reference: &str| requested(image, reference).unwrap();
        let by_tag = parse("quay.io/a/b:v1").unwrap();
        let resolved = by_tag.pin(parse(&digest).unwrap().digest().unwrap().clone());
        assert_eq!(of(&digest, "quay.io/a/b:v1"), resolved.reference());
        assert_ne!(of(&digest, "quay.io/a/b:v1"), of(&digest, &digest));
        assert_eq!(of("quay.io/a/b:v1", "quay.io/a/b:v1"), by_tag);
    }
}
