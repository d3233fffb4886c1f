//! Images to a registry.

use std::io::Read as _;

use bytes::Bytes;
use futures::StreamExt as _;
use oci_distribution::manifest::OCI_IMAGE_MEDIA_TYPE;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Method, Response, Url};

use crate::access::Access;
use crate::access::registries::PlaceError;
use crate::build::{BuiltImage, Source};
use crate::digest::Digest;
use crate::manifest::Blob;
use crate::pull::Images;
use crate::reference::{LATEST, Pinned, Reference};
use crate::registry::auth::Action;
use crate::registry::error::RegistryError;
use crate::registry::fetch::current_digest;
use crate::registry::session::{RetryPolicy, Session};

/// Blobs larger than this go up in pieces of this size, so that a large layer is never held whole.
const PIECE_BYTES: usize = 8 << 20;

/// Error of pushing an image.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The reference names a digest that the image does not have.
    #[error("{reference} names another digest than that of the image, {digest}")]
    OtherDigest {
        /// The target of the image.
        reference: String,
        /// The image's digest.
        digest: Digest,
    },
    /// The configuration of registries keeps it from there.
    #[error("cannot push to {reference}")]
    Place {
        /// The target of the image.
        reference: String,
        /// The cause.
        source: PlaceError,
    },
    /// The registry did not take it.
    #[error("cannot push {what} to {reference}")]
    Send {
        /// The part that was being sent.
        what: String,
        /// The target of the image.
        reference: String,
        /// The cause.
        source: RegistryError,
    },
    /// The bytes of a layer cannot be read.
    #[error("cannot read {what}")]
    Read {
        /// The part that was being read.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
}

/// A pushed image.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Its reference by digest.
    pub pinned: Pinned,
    /// The digest of the other image that had the tag before. `None` if there was none, or the registry does not say.
    pub replaced: Option<Digest>,
}

impl Images {
    /// Pushes an image: the blobs that the registry does not have, then the manifest under the reference's tag
    /// (`latest` when there is none) or digest. Mirrors are never pushed to.
    pub async fn push(
        &self,
        reference: &Reference,
        image: &BuiltImage,
        access: &Access,
    ) -> Result<Pushed, PushError> {
        let digest = image.digest();
        if reference.digest().is_some_and(|wanted| *wanted != digest) {
            return Err(PushError::OtherDigest {
                reference: reference.to_string(),
                digest,
            });
        }
        let failed = |what: &str, source| PushError::Send {
            what: what.to_owned(),
            reference: reference.to_string(),
            source,
        };
        let endpoint = access
            .registries
            .home(reference)
            .map_err(|source| PushError::Place {
                reference: reference.to_string(),
                source,
            })?;
        let session = self
            .session_for(endpoint, access, Action::Push, RetryPolicy::Some)
            .await
            .map_err(|source| failed("the image", source))?;
        for (blob, source) in &image.blobs {
            let what = format!("blob {}", blob.digest);
            if has_blob(&session, blob)
                .await
                .map_err(|source| failed(&what, source))?
            {
                continue;
            }
            push_blob(&session, blob, source, &what)
                .await
                .map_err(|error| match error {
                    BlobError::Send(source) => failed(&what, source),
                    BlobError::Read(source) => PushError::Read {
                        what: what.clone(),
                        source,
                    },
                })?;
        }
        let digest_text = digest.to_string();
        let (name, before) = if reference.digest().is_some() {
            (digest_text.as_str(), None)
        } else {
            let tag = reference.tag().unwrap_or(LATEST);
            (tag, current_digest(&session, tag).await)
        };
        push_manifest(&session, name, OCI_IMAGE_MEDIA_TYPE, &image.manifest)
            .await
            .map_err(|source| failed("the manifest", source))?;
        Ok(Pushed {
            replaced: before.filter(|before| *before != digest),
            pinned: reference.pin(digest),
        })
    }
}

pub(crate) enum BlobError {
    Send(RegistryError),
    Read(std::io::Error),
}

impl From<RegistryError> for BlobError {
    fn from(error: RegistryError) -> Self {
        Self::Send(error)
    }
}

pub(crate) async fn has_blob(session: &Session<'_>, blob: &Blob) -> Result<bool, RegistryError> {
    let url = session.url(&format!("blobs/{}", blob.digest))?;
    match session
        .send(Method::HEAD, &url, HeaderMap::new(), None, "blob")
        .await
    {
        Ok(_) => Ok(true),
        Err(RegistryError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) async fn push_blob(
    session: &Session<'_>,
    blob: &Blob,
    source: &Source,
    what: &str,
) -> Result<(), BlobError> {
    let start = session.url("blobs/uploads/")?;
    let response = session
        .send(Method::POST, &start, empty(), Some(Bytes::new()), what)
        .await?;
    let mut location = location(session, &start, &response)?;
    let whole = match source {
        Source::Memory(bytes) => Some(bytes.clone()),
        Source::File(_) | Source::Layout { .. } => None,
    };
    let body = if let Some(bytes) = whole {
        bytes
    } else {
        let mut pieces = std::pin::pin!(pieces(source.clone()));
        let (mut sent, mut last) = (0_usize, Bytes::new());
        // All pieces but the last are patches; the last one closes the upload.
        while let Some(piece) = pieces.next().await {
            let piece = std::mem::replace(&mut last, piece.map_err(BlobError::Read)?);
            if piece.is_empty() {
                continue;
            }
            let end = sent + piece.len();
            let mut headers = octets();
            let range = HeaderValue::from_str(&format!("{sent}-{}", end.saturating_sub(1)));
            headers.insert("content-range", range.map_err(|error| session.protocol(&error))?);
            let response = session
                .send(Method::PATCH, &location, headers, Some(piece), what)
                .await?;
            location = self::location(session, &location, &response)?;
            sent = end;
        }
        last
    };
    location
        .query_pairs_mut()
        .append_pair("digest", &blob.digest.to_string());
    session
        .send(Method::PUT, &location, octets(), Some(body), what)
        .await?;
    Ok(())
}

/// A file in pieces, read in threads that may block.
fn pieces(source: Source) -> impl futures::Stream<Item = std::io::Result<Bytes>> {
    futures::stream::try_unfold((source, None), |(source, reader)| async move {
        tokio::task::spawn_blocking(move || {
            let mut reader: Box<dyn std::io::Read + Send> = match reader {
                Some(reader) => reader,
                None => source.open()?,
            };
            let mut piece = Vec::new();
            reader.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            Ok((!piece.is_empty()).then(|| (Bytes::from(piece), (source, Some(reader)))))
        })
        .await
        .map_err(std::io::Error::other)?
    })
}

pub(crate) async fn push_manifest(
    session: &Session<'_>,
    name: &str,
    media_type: &str,
    manifest: &Bytes,
) -> Result<(), RegistryError> {
    let url = session.url(&format!("manifests/{name}"))?;
    let mut headers = HeaderMap::new();
    let media_type = HeaderValue::from_str(media_type).map_err(|error| session.protocol(&error))?;
    headers.insert(CONTENT_TYPE, media_type);
    session
        .send(Method::PUT, &url, headers, Some(manifest.clone()), "repository")
        .await?;
    Ok(())
}

/// Next URL of an upload. Registries may answer with another host; credentials are not sent there.
fn location(session: &Session<'_>, base: &Url, response: &Response) -> Result<Url, RegistryError> {
    let text = response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .ok_or_else(|| session.protocol(&"an upload has no location"))?;
    base.join(text).map_err(|error| session.protocol(&error))
}

fn empty() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    headers
}

fn octets() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers
}
