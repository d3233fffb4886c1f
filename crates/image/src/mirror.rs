//! Whole images from one place to another: an index with all its platforms, signatures, and all other referrers.
//! Every byte keeps its digest. Blobs and manifests that are there already are not sent again.

pub(crate) mod layout;

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use oci_distribution::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciManifest};
use reqwest::Method;
use serde::Deserialize;

use self::layout::Layout;
use crate::access::Access;
use crate::access::registries::PlaceError;
use crate::build::{BuiltImage, Source};
use crate::digest::Digest;
use crate::layout::{LayoutError, blob_path, read_blob};
use crate::limits::Limits;
use crate::manifest::{Blob, blob, layers, parse_manifest};
use crate::pull::{Images, PullError};
use crate::push::{BlobError, has_blob, push_blob, push_manifest};
use crate::reference::{LATEST, Reference};
use crate::registry::auth::Action;
use crate::registry::error::RegistryError;
use crate::registry::fetch::FetchTarget;
use crate::registry::referrers::lists_some;
use crate::registry::session::{RetryPolicy, Session};
use crate::registry::transfer::{pipe, transfer};

/// Manifests of one image, attached ones included, beyond which it is refused.
const MOST_MANIFESTS: usize = 1000;
/// The endings of the tags at which signatures and attestations lie.
const ATTACHED: [&str; 3] = ["sig", "att", "sbom"];

/// Error of copying an image.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The source does not give it.
    #[error(transparent)]
    Pull(#[from] Box<PullError>),
    /// A layout does not give or take it.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A layout does not have it.
    #[error("{path} has no image {reference}")]
    Absent {
        /// The layout.
        path: PathBuf,
        /// The image.
        reference: String,
    },
    /// Its manifest cannot be used.
    #[error("cannot copy {reference}: {message}")]
    Manifest {
        /// The image.
        reference: String,
        /// The reason.
        message: String,
    },
    /// The configuration of registries keeps it from there.
    #[error("cannot push to {reference}")]
    Place {
        /// The target.
        reference: String,
        /// The cause.
        source: PlaceError,
    },
    /// A registry does not give or take a part of it.
    #[error("cannot copy {what} to {reference}")]
    Transfer {
        /// The part.
        what: String,
        /// The target.
        reference: String,
        /// The cause.
        source: Box<RegistryError>,
    },
    /// A file cannot be read or written.
    #[error("cannot keep {what}")]
    File {
        /// The content of the file.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
}

/// Source of images.
#[derive(Clone, Copy)]
pub enum Origin<'a> {
    /// The registry that a reference names, or its mirrors.
    Registry(&'a Access),
    /// A directory.
    Layout(&'a Layout),
}

/// Target of an image.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The repository of a reference. Its tag or digest does not matter.
    Registry(&'a Reference, &'a Access),
    /// A directory.
    Layout(&'a Layout),
}

/// Everything that belongs to an image.
#[derive(Clone, Debug)]
pub struct Outline {
    digest: Digest,
    /// Those that others name before those that name them.
    manifests: Vec<Manifest>,
    blobs: Vec<Blob>,
    tags: Vec<(String, Digest)>,
}

#[derive(Clone, Debug)]
struct Manifest {
    digest: Digest,
    media_type: String,
    bytes: Bytes,
}

impl Outline {
    /// The parts of an image that was built here, to be known by a tag.
    pub fn of(image: &BuiltImage, tag: &str) -> Self {
        let digest = image.digest();
        Self {
            manifests: vec![Manifest {
                digest: digest.clone(),
                media_type: OCI_IMAGE_MEDIA_TYPE.to_owned(),
                bytes: image.manifest.clone(),
            }],
            blobs: image.blobs().cloned().collect(),
            tags: vec![(tag.to_owned(), digest.clone())],
            digest,
        }
    }

    /// The digest of the image.
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The digest and the media type of the image and of everything that is attached to it, with the tag of each.
    pub fn named(&self) -> impl Iterator<Item = (Option<&str>, &Digest, &str, usize)> {
        let media = |digest: &Digest| self.manifests.iter().find(|one| one.digest == *digest);
        let top = std::iter::once((None, &self.digest));
        let tags = self.tags.iter().map(|(tag, digest)| (Some(tag.as_str()), digest));
        let all = top.chain(tags);
        all.filter_map(move |(tag, digest)| {
            let manifest = media(digest)?;
            Some((tag, digest, manifest.media_type.as_str(), manifest.bytes.len()))
        })
    }

    /// Number of signatures, attestations and lists of referrers that are copied with the image.
    pub fn attached(&self) -> usize {
        self.tags
            .iter()
            .filter(|(_, digest)| *digest != self.digest)
            .count()
    }

    /// The bytes of all blobs.
    pub fn bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.size).sum()
    }
}

/// Amount of data that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Blobs and manifests.
    pub parts: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Copied {
    fn add(&mut self, bytes: u64) {
        self.parts += 1;
        self.bytes += bytes;
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MediaType {
    media_type: Option<String>,
}

impl Images {
    /// Everything that belongs to an image; layers are not fetched. Of an image by tag, the tag comes along.
    ///
    /// # Errors
    /// When a manifest of it is missing or cannot be used.
    pub async fn outline(&self, origin: Origin<'_>, reference: &Reference) -> Result<Outline, MirrorError> {
        let digest = match origin {
            Origin::Registry(access) => {
                let pinned = self.resolve(reference, access).await.map_err(Box::new)?;
                pinned.digest().clone()
            }
            Origin::Layout(layout) => layout.digest(reference).ok_or_else(|| MirrorError::Absent {
                path: layout.root().to_owned(),
                reference: reference.to_string(),
            })?,
        };
        let mut walk = Walk {
            images: self,
            origin,
            reference,
            seen: HashSet::new(),
            manifests: Vec::new(),
            blobs: Vec::new(),
        };
        walk.follow(digest.clone()).await?;
        let mut tags = Vec::new();
        if reference.digest().is_none() {
            tags.push((reference.tag().unwrap_or(LATEST).to_owned(), digest.clone()));
        }
        let of_image: Vec<Digest> = walk.manifests.iter().map(|one| one.digest.clone()).collect();
        for subject in of_image {
            tags.extend(walk.signatures(&subject).await?);
        }
        // A referrer may have referrers: the description of an image is signed itself.
        let mut asked = 0;
        while let Some(subject) = walk.manifests.get(asked).map(|one| one.digest.clone()) {
            tags.extend(walk.referring(&subject).await?);
            asked += 1;
        }
        walk.manifests.reverse();
        Ok(Outline {
            digest,
            manifests: walk.manifests,
            blobs: walk.blobs,
            tags,
        })
    }

    /// Parts of an image that its target lacks.
    ///
    /// # Errors
    /// When the target cannot be asked.
    pub async fn lacking(&self, outline: &Outline, target: Target<'_>) -> Result<Copied, MirrorError> {
        let mut lacking = Copied::default();
        match target {
            Target::Layout(layout) => {
                for blob in &outline.blobs {
                    if !layout.has(&blob.digest) {
                        lacking.add(blob.size);
                    }
                }
            }
            Target::Registry(reference, access) => {
                let session = self.pushing(reference, access).await?;
                let failed = |source| MirrorError::Transfer {
                    what: "the image".to_owned(),
                    reference: reference.to_string(),
                    source: Box::new(source),
                };
                for blob in &outline.blobs {
                    if !has_blob(&session, blob).await.map_err(failed)? {
                        lacking.add(blob.size);
                    }
                }
                for manifest in &outline.manifests {
                    let name = manifest.digest.to_string();
                    if !has_manifest(&session, &name, manifest).await.map_err(failed)? {
                        lacking.add(manifest.bytes.len() as u64);
                    }
                }
            }
        }
        Ok(lacking)
    }

    /// Copies an image: the blobs that its target lacks, then the manifests, then the tags.
    ///
    /// # Errors
    /// At the first part that cannot be copied. The parts before it stay, and need not be sent again.
    pub async fn copy(
        &self,
        origin: Origin<'_>,
        reference: &Reference,
        outline: &Outline,
        target: Target<'_>,
    ) -> Result<Copied, MirrorError> {
        match target {
            Target::Registry(to, access) => self.to_registry(origin, reference, outline, to, access).await,
            Target::Layout(layout) => self.to_layout(origin, reference, outline, layout).await,
        }
    }

    async fn pushing(&self, reference: &Reference, access: &Access) -> Result<Session<'_>, MirrorError> {
        let endpoint = access.registries.home(reference);
        let endpoint = endpoint.map_err(|source| MirrorError::Place {
            reference: reference.to_string(),
            source,
        })?;
        let session = self.session_for(endpoint, access, Action::Push, RetryPolicy::Some);
        session.await.map_err(|source| MirrorError::Transfer {
            what: "the image".to_owned(),
            reference: reference.to_string(),
            source: Box::new(source),
        })
    }

    async fn to_registry(
        &self,
        origin: Origin<'_>,
        reference: &Reference,
        outline: &Outline,
        to: &Reference,
        access: &Access,
    ) -> Result<Copied, MirrorError> {
        let session = self.pushing(to, access).await?;
        let mut copied = Copied::default();
        for blob in &outline.blobs {
            let what = format!("blob {}", blob.digest);
            let failed = |source| MirrorError::Transfer {
                what: what.clone(),
                reference: to.to_string(),
                source: Box::new(source),
            };
            if has_blob(&session, blob).await.map_err(failed)? {
                continue;
            }
            let source = match origin {
                Origin::Layout(layout) => Source::Layout {
                    path: blob_path(layout.root(), &blob.digest),
                    _unpacked: None,
                },
                Origin::Registry(_) => {
                    let file = self
                        .download(origin, reference, blob, &std::env::temp_dir())
                        .await?;
                    Source::File(Arc::new(file))
                }
            };
            push_blob(&session, blob, &source, &what)
                .await
                .map_err(|error| match error {
                    BlobError::Send(source) => failed(source),
                    BlobError::Read(source) => MirrorError::File {
                        what: what.clone(),
                        source,
                    },
                })?;
            copied.add(blob.size);
        }
        let names = outline.manifests.iter().map(|one| (one.digest.to_string(), one));
        let tags = outline.tags.iter().filter_map(|(tag, digest)| {
            let manifest = outline.manifests.iter().find(|one| one.digest == *digest);
            Some((tag.clone(), manifest?))
        });
        for (name, manifest) in names.chain(tags) {
            let failed = |source| MirrorError::Transfer {
                what: format!("manifest {name}"),
                reference: to.to_string(),
                source: Box::new(source),
            };
            if has_manifest(&session, &name, manifest).await.map_err(failed)? {
                continue;
            }
            push_manifest(&session, &name, &manifest.media_type, &manifest.bytes)
                .await
                .map_err(failed)?;
            copied.add(manifest.bytes.len() as u64);
        }
        Ok(copied)
    }

    async fn to_layout(
        &self,
        origin: Origin<'_>,
        reference: &Reference,
        outline: &Outline,
        layout: &Layout,
    ) -> Result<Copied, MirrorError> {
        let mut copied = Copied::default();
        for blob in &outline.blobs {
            if layout.has(&blob.digest) {
                continue;
            }
            let file = self.download(origin, reference, blob, layout.root()).await?;
            layout.keep(&blob.digest, file)?;
            copied.add(blob.size);
        }
        for manifest in &outline.manifests {
            if !layout.has(&manifest.digest) {
                layout.write(&manifest.digest, &manifest.bytes)?;
                copied.add(manifest.bytes.len() as u64);
            }
        }
        Ok(copied)
    }

    /// Fetches a blob into a file in a directory, and verifies it.
    async fn download(
        &self,
        origin: Origin<'_>,
        reference: &Reference,
        blob: &Blob,
        directory: &std::path::Path,
    ) -> Result<tempfile::NamedTempFile, MirrorError> {
        let what = format!("blob {}", blob.digest);
        let kept = |source| MirrorError::File {
            what: what.clone(),
            source,
        };
        let lost = |source| MirrorError::Transfer {
            what: what.clone(),
            reference: reference.to_string(),
            source: Box::new(source),
        };
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(kept)?;
        match origin {
            Origin::Layout(layout) => {
                let path = blob_path(layout.root(), &blob.digest);
                let mut from = std::fs::File::open(path).map_err(kept)?;
                std::io::copy(&mut from, &mut file).map_err(kept)?;
                Ok(file)
            }
            Origin::Registry(access) => {
                let sessions = self.sessions(reference, access).await.map_err(lost)?;
                let (sender, mut reader) = pipe();
                let writing = tokio::task::spawn_blocking(move || {
                    let mut piece = vec![0; 64 << 10];
                    loop {
                        let count = reader.read(&mut piece)?;
                        if count == 0 {
                            return file.flush().map(|()| file);
                        }
                        file.write_all(piece.get(..count).unwrap_or_default())?;
                    }
                });
                let (sent, written) = tokio::join!(transfer(&sessions, blob, sender), writing);
                let written = written.map_err(std::io::Error::other);
                match (sent, written.and_then(|written| written)) {
                    (Ok(()), Ok(file)) => Ok(file),
                    (Ok(()) | Err(RegistryError::GivenUp), Err(error)) => Err(kept(error)),
                    (Err(error), _) => Err(lost(error)),
                }
            }
        }
    }
}

/// Whether a registry has this manifest under a name.
async fn has_manifest(session: &Session<'_>, name: &str, manifest: &Manifest) -> Result<bool, RegistryError> {
    let url = session.url(&format!("manifests/{name}"))?;
    let accept = Session::accept(&[&manifest.media_type]);
    match session.send(Method::HEAD, &url, accept, None, "manifest").await {
        Ok(response) => {
            let said = response.headers().get("docker-content-digest");
            let digest = manifest.digest.to_string();
            Ok(said.is_some_and(|said| said.as_bytes() == digest.as_bytes()))
        }
        Err(RegistryError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The way through the manifests of an image.
struct Walk<'w> {
    images: &'w Images,
    origin: Origin<'w>,
    reference: &'w Reference,
    seen: HashSet<Digest>,
    manifests: Vec<Manifest>,
    blobs: Vec<Blob>,
}

impl Walk<'_> {
    fn unusable(&self, message: String) -> MirrorError {
        MirrorError::Manifest {
            reference: self.reference.to_string(),
            message,
        }
    }

    /// Adds a manifest and all that it names.
    async fn follow(&mut self, digest: Digest) -> Result<(), MirrorError> {
        let mut waiting = vec![digest];
        while let Some(digest) = waiting.pop() {
            if self.seen.contains(&digest) {
                continue;
            }
            let bytes = self.by_digest(&digest).await?;
            waiting.extend(self.add(digest, bytes)?);
        }
        Ok(())
    }

    /// Adds a manifest; gives the manifests that it names.
    fn add(&mut self, digest: Digest, bytes: Bytes) -> Result<Vec<Digest>, MirrorError> {
        if self.manifests.len() >= MOST_MANIFESTS {
            return Err(self.unusable(format!("it has more than {MOST_MANIFESTS} manifests")));
        }
        let parsed = parse_manifest(&bytes).map_err(|message| self.unusable(message))?;
        let said: Option<MediaType> = serde_json::from_slice(&bytes).ok();
        let usual = match &parsed {
            OciManifest::ImageIndex(_) => OCI_IMAGE_INDEX_MEDIA_TYPE,
            OciManifest::Image(_) => OCI_IMAGE_MEDIA_TYPE,
        };
        let media_type = said.and_then(|said| said.media_type);
        let mut named = Vec::new();
        match &parsed {
            OciManifest::ImageIndex(index) => {
                for entry in &index.manifests {
                    let digest = Digest::parse(&entry.digest);
                    named.push(digest.map_err(|error| self.unusable(error.to_string()))?);
                }
            }
            OciManifest::Image(manifest) => {
                let config = blob(&manifest.config).map_err(|message| self.unusable(message))?;
                let layers = layers(manifest).map_err(|message| self.unusable(message))?;
                for blob in std::iter::once(config).chain(layers) {
                    // Layers that may not be passed on are fetched from elsewhere.
                    let is_foreign =
                        blob.media_type.contains("foreign") || blob.media_type.contains("nondistributable");
                    if !is_foreign && self.seen.insert(blob.digest.clone()) {
                        self.blobs.push(blob);
                    }
                }
            }
        }
        self.seen.insert(digest.clone());
        self.manifests.push(Manifest {
            digest,
            media_type: media_type.unwrap_or_else(|| usual.to_owned()),
            bytes,
        });
        Ok(named)
    }

    /// Adds the images at tags for a manifest, such as signatures and attestations; returns the tags.
    async fn signatures(&mut self, subject: &Digest) -> Result<Vec<(String, Digest)>, MirrorError> {
        let place = place(subject);
        let mut tags = Vec::new();
        for ending in ATTACHED {
            let tag = format!("{place}.{ending}");
            if let Some((bytes, digest)) = self.by_tag(&tag).await? {
                self.include(digest.clone(), bytes).await?;
                tags.push((tag, digest));
            }
        }
        Ok(tags)
    }

    /// Adds the referrers of a manifest; gives the tag at which they are listed for registries that do not list them by
    /// themselves.
    async fn referring(&mut self, subject: &Digest) -> Result<Option<(String, Digest)>, MirrorError> {
        let tag = place(subject);
        let listed = match self.referrers(subject).await? {
            Some(found) => Some(found),
            None => self.by_tag(&tag).await?.filter(|(bytes, _)| lists_some(bytes)),
        };
        let Some((bytes, digest)) = listed else {
            return Ok(None);
        };
        self.include(digest.clone(), bytes).await?;
        Ok(Some((tag, digest)))
    }

    async fn include(&mut self, digest: Digest, bytes: Bytes) -> Result<(), MirrorError> {
        if self.seen.contains(&digest) {
            return Ok(());
        }
        for named in self.add(digest, bytes)? {
            self.follow(named).await?;
        }
        Ok(())
    }

    async fn by_digest(&self, digest: &Digest) -> Result<Bytes, MirrorError> {
        let limit = Limits::catalog().manifest_bytes;
        match self.origin {
            Origin::Layout(layout) => Ok(read_blob(layout.root(), digest, limit)?.into()),
            Origin::Registry(access) => {
                let pinned = self.reference.pin(digest.clone()).reference();
                let wanted = FetchTarget::Manifest { digest, limit };
                let found = self.images.fetch(&pinned, access, "a manifest", wanted).await;
                Ok(found.map_err(Box::new)?.0)
            }
        }
    }

    async fn by_tag(&self, tag: &str) -> Result<Option<(Bytes, Digest)>, MirrorError> {
        let limit = Limits::catalog().manifest_bytes;
        let reference = self.reference.with_tag(tag);
        match self.origin {
            Origin::Layout(layout) => match layout.digest(&reference) {
                Some(digest) => {
                    let bytes = read_blob(layout.root(), &digest, limit)?;
                    Ok(Some((bytes.into(), digest)))
                }
                None => Ok(None),
            },
            Origin::Registry(access) => {
                let wanted = FetchTarget::TaggedManifest { tag, limit };
                optional(
                    self.images
                        .fetch(&reference, access, "what is attached", wanted)
                        .await,
                )
            }
        }
    }

    async fn referrers(&self, digest: &Digest) -> Result<Option<(Bytes, Digest)>, MirrorError> {
        let Origin::Registry(access) = self.origin else {
            return Ok(None);
        };
        let limit = Limits::catalog().manifest_bytes;
        let wanted = FetchTarget::Referrers { digest, limit };
        let pinned = self.reference.pin(digest.clone()).reference();
        let found = optional(self.images.fetch(&pinned, access, "the referrers", wanted).await)?;
        // Some registries answer with a page for people. An empty list may lack those that were pushed before the
        // registry listed any.
        Ok(found.filter(|(bytes, _)| lists_some(bytes)))
    }
}

/// The tag at which the referrers of a manifest are listed, and with a suffix that of an attached image.
fn place(subject: &Digest) -> String {
    subject.to_string().replace(':', "-")
}

/// The fetched content, or `None` when it is absent. Registries answer an unknown path in different ways.
fn optional(found: Result<(Bytes, Digest), PullError>) -> Result<Option<(Bytes, Digest)>, MirrorError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(PullError::Fetch {
            source:
                RegistryError::NotFound { .. }
                | RegistryError::Status {
                    status: 400..=499, ..
                },
            ..
        }) => Ok(None),
        Err(error) => Err(Box::new(error).into()),
    }
}
