//! Manifests, indexes and configurations from a registry: fetched whole, and verified.

use std::time::Duration;

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use super::error::{Missing, RegistryError};
use super::referrers;
use super::session::Session;
use crate::digest::{Digest, Hasher};
use crate::limits::Limits;
use crate::manifest::Blob;
use crate::reference::is_tag;

/// The media types of manifests that are understood.
const MANIFEST_TYPES: [&str; 4] = [
    OCI_IMAGE_MEDIA_TYPE,
    OCI_IMAGE_INDEX_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE,
];

/// The header with the digest of a manifest.
const DIGEST_HEADER: &str = "docker-content-digest";
/// The longest wait for the digest of a tag that the caller can do without.
const CURRENT_DIGEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a list of tags that are read.
const TAGS_BYTES: u64 = 256 << 10;
/// The most tags that are named where another one is wanted.
const TAGS_SHOWN: usize = 5;

/// The target of a request: something small that is fetched whole.
#[derive(Clone, Copy)]
pub(crate) enum FetchTarget<'target> {
    /// The digest behind a tag; no bytes.
    Tag(&'target str),
    Manifest {
        digest: &'target Digest,
        limit: u64,
    },
    /// The manifest that a tag means now.
    TaggedManifest {
        tag: &'target str,
        limit: u64,
    },
    /// An index of the manifests that refer to one.
    Referrers {
        digest: &'target Digest,
        limit: u64,
    },
    Blob {
        blob: &'target Blob,
        limit: u64,
    },
}

impl FetchTarget<'_> {
    pub(crate) async fn fetch(self, session: &Session<'_>) -> Result<(Bytes, Digest), RegistryError> {
        match self {
            Self::Tag(tag) => resolve_tag(session, tag)
                .await
                .map(|digest| (Bytes::new(), digest)),
            Self::Manifest { digest, limit } => {
                let what = format!("manifest {digest}");
                let url = session.url(&format!("manifests/{digest}"))?;
                let accept = Session::accept(&MANIFEST_TYPES);
                let response = session.send(Method::GET, &url, accept, None, &what).await?;
                let bytes = session.read(response, limit, &what).await?;
                verify(bytes, digest, what)
            }
            Self::TaggedManifest { tag, limit } => {
                let what = format!("manifest {tag}");
                let url = session.url(&format!("manifests/{tag}"))?;
                let accept = Session::accept(&MANIFEST_TYPES);
                let response = session.send(Method::GET, &url, accept, None, &what).await?;
                let bytes = session.read(response, limit, &what).await?;
                let digest = Digest::of(&bytes);
                Ok((bytes, digest))
            }
            Self::Referrers { digest, limit } => referrers::fetch(session, digest, limit).await,
            Self::Blob { blob, limit } => {
                let what = format!("blob {}", blob.digest);
                let url = session.url(&format!("blobs/{}", blob.digest))?;
                let response = session
                    .send(Method::GET, &url, HeaderMap::new(), None, &what)
                    .await?;
                let bytes = session.read(response, limit, &what).await?;
                verify(bytes, &blob.digest, what)
            }
        }
    }
}

fn verify(bytes: Bytes, expected: &Digest, what: String) -> Result<(Bytes, Digest), RegistryError> {
    let mut hasher = Hasher::like(expected);
    hasher.update(&bytes);
    let actual = hasher.finish();
    if actual == *expected {
        Ok((bytes, actual))
    } else {
        Err(RegistryError::Mismatch {
            what,
            expected: expected.clone(),
            actual,
        })
    }
}

/// Asks for the head of a manifest; registries that do not name its digest there are asked for the manifest itself.
async fn resolve_tag(session: &Session<'_>, tag: &str) -> Result<Digest, RegistryError> {
    let what = format!("tag {tag}");
    let url = session.url(&format!("manifests/{tag}"))?;
    let accept = Session::accept(&MANIFEST_TYPES);
    let head = match session
        .send(Method::HEAD, &url, accept.clone(), None, &what)
        .await
    {
        Ok(response) => response.headers().get(DIGEST_HEADER).cloned(),
        Err(RegistryError::Status { status: 405, .. }) => None,
        Err(error) => return Err(describe_missing(session, tag, error).await),
    };
    if let Some(text) = head.as_ref().and_then(|value| value.to_str().ok()) {
        let registry = session.registry().to_owned();
        return Digest::parse(text).map_err(|source| RegistryError::Digest { registry, source });
    }
    let response = session.send(Method::GET, &url, accept, None, &what).await?;
    Ok(Digest::of(
        &session
            .read(response, Limits::catalog().manifest_bytes, &what)
            .await?,
    ))
}

/// The digest behind a tag according to one request, which is not repeated. `None` if the tag does not exist or the
/// registry does not say in time: for callers that can do without.
pub(crate) async fn current_digest(session: &Session<'_>, tag: &str) -> Option<Digest> {
    let url = session.url(&format!("manifests/{tag}")).ok()?;
    let accept = Session::accept(&MANIFEST_TYPES);
    let request = session.send_once(Method::HEAD, &url, &accept, "tag");
    let response = tokio::time::timeout(CURRENT_DIGEST_TIMEOUT, request)
        .await
        .ok()?
        .ok()?;
    let text = response.headers().get(DIGEST_HEADER)?.to_str().ok()?;
    Digest::parse(text).ok()
}

/// An answer to HEAD has no body. When a tag is missing, the list of the repository's tags shows whether there is a
/// repository, and which tags it has.
async fn describe_missing(session: &Session<'_>, tag: &str, error: RegistryError) -> RegistryError {
    let RegistryError::NotFound {
        registry,
        what,
        message,
        missing: Missing::Unspecified,
    } = error
    else {
        return error;
    };
    let unsaid = |what, message| RegistryError::NotFound {
        registry: registry.clone(),
        what,
        message,
        missing: Missing::Unspecified,
    };
    if !session.is_patient() {
        return unsaid(what, message);
    }
    let asked = async {
        let url = session.url("tags/list?n=1000")?;
        let response = session
            .send_once(Method::GET, &url, &HeaderMap::new(), &what)
            .await?;
        session.read(response, TAGS_BYTES, "list of tags").await
    };
    match asked.await {
        Ok(list) => match serde_json::from_slice::<Tags>(&list) {
            Ok(list) => RegistryError::NotFound {
                what: format!("{what} in repository {}", session.reference.repository()),
                message: listed(tag, list.tags.unwrap_or_default()),
                registry,
                missing: Missing::Content,
            },
            Err(_) => unsaid(what, message),
        },
        Err(RegistryError::NotFound {
            what,
            message,
            missing: Missing::Repository,
            ..
        }) => RegistryError::NotFound {
            registry,
            what,
            message,
            missing: Missing::Repository,
        },
        Err(_) => unsaid(what, message),
    }
}

#[derive(Deserialize)]
struct Tags {
    /// Some registries say `null` where there are none.
    tags: Option<Vec<String>>,
}

/// The existing tags: those that look most like the requested one.
fn listed(wanted: &str, mut tags: Vec<String>) -> String {
    // Text that is no tag is not repeated: it may hold anything.
    tags.retain(|tag| is_tag(tag));
    if tags.is_empty() {
        return "it has no tags".to_owned();
    }
    let alike = |tag: &str| {
        tag.chars()
            .zip(wanted.chars())
            .take_while(|(left, right)| left == right)
            .count()
    };
    tags.sort_by_cached_key(|tag| (std::cmp::Reverse(alike(tag)), tag.clone()));
    let more = tags.len().saturating_sub(TAGS_SHOWN);
    let shown = tags.iter().take(TAGS_SHOWN).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        format!("it has {shown} and {more} more")
    } else {
        format!("it has {shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_tags_are_listed_first() {
        let check = |wanted: &str, tags: &[&str], expected: &str| {
            let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
            assert_eq!(listed(wanted, tags), expected);
        };
        check("v1", &[], "it has no tags");
        check("v1", &["v2", "v3\napiVersion: v1"], "it has v2");
        check("latest", &["v2", "v1"], "it has v1, v2");
        check(
            "v1.2",
            &["a", "b", "c", "d", "v1.1", "v2", "v1.20"],
            "it has v1.20, v1.1, v2, a, b and 2 more",
        );
    }
}
