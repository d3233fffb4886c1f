//! Manifests, indexes and configurations: fetched whole, verified, and checked before they are used.

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_DOCKER_CONFIG_MEDIA_TYPE, IMAGE_MANIFEST_LIST_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE, ImageIndexEntry, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
    OciDescriptor, OciImageManifest, OciManifest,
};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::digest::{Digest, Hasher};
use crate::limits::Limits;
use crate::pull::Platform;
use crate::reference::is_tag;
use crate::registry::{Missing, RegistryError, Session};
use crate::transfer::Blob;

/// The media types of manifests that are understood.
const MANIFEST_TYPES: [&str; 4] = [
    OCI_IMAGE_MEDIA_TYPE,
    OCI_IMAGE_INDEX_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE,
];

/// What the configuration of a container image is called.
const CONFIG_TYPES: [&str; 2] = [IMAGE_CONFIG_MEDIA_TYPE, IMAGE_DOCKER_CONFIG_MEDIA_TYPE];
/// What stands for a configuration where there is none.
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// The most bytes of a list of tags that are read.
const TAGS_BYTES: u64 = 256 << 10;
/// The most tags that are named where another one is wanted.
const TAGS_SHOWN: usize = 5;

/// What a manifest says it is, where it is no container image.
pub(crate) fn artifact_type(manifest: &OciImageManifest) -> Option<String> {
    let config = manifest.config.media_type.as_str();
    let named = manifest
        .artifact_type
        .as_deref()
        .filter(|named| !named.is_empty());
    let by_config = (config != EMPTY_TYPE).then_some(config);
    let is_image = config.is_empty() || CONFIG_TYPES.contains(&config);
    (!is_image).then(|| named.or(by_config).unwrap_or(EMPTY_TYPE).to_owned())
}

/// Something small to fetch whole.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'wanted> {
    /// The digest behind a tag; no bytes.
    Tag(&'wanted str),
    Manifest {
        digest: &'wanted Digest,
        limit: u64,
    },
    /// The manifest that a tag means now.
    TaggedManifest {
        tag: &'wanted str,
        limit: u64,
    },
    Blob {
        blob: &'wanted Blob,
        limit: u64,
    },
}

impl Wanted<'_> {
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
        Ok(response) => response.headers().get("docker-content-digest").cloned(),
        Err(RegistryError::Status { status: 405, .. }) => None,
        Err(error) => return Err(tell_missing(session, tag, error).await),
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

/// An answer to HEAD has no words. Where it says that a tag is not there, the list of the repository's tags tells whether
/// there is a repository, and what is meant perhaps.
async fn tell_missing(session: &Session<'_>, tag: &str, error: RegistryError) -> RegistryError {
    let RegistryError::NotFound {
        registry,
        what,
        message,
        missing: Missing::Unsaid,
    } = error
    else {
        return error;
    };
    let unsaid = |what, message| RegistryError::NotFound {
        registry: registry.clone(),
        what,
        message,
        missing: Missing::Unsaid,
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

/// The tags that there are: those that look most like the one that is wanted.
fn listed(wanted: &str, mut tags: Vec<String>) -> String {
    // What is no tag is not repeated: it may hold anything.
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

pub(crate) fn parse_manifest(text: &[u8]) -> Result<OciManifest, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        schema_version: u32,
    }
    serde_json::from_slice(text).map_err(|_| match serde_json::from_slice(text) {
        Ok(Version { schema_version: 1 }) => {
            "it has Docker's old format, schema 1, which is not supported: push the image again with a current tool"
                .to_owned()
        }
        _ => "it is no image manifest and no index of version 2".to_owned(),
    })
}

/// The entry for the platform, the one that any machine of that kind runs before more particular ones; else one that does
/// not say what it is for.
pub(crate) fn choose_platform<'index>(
    entries: &'index [ImageIndexEntry],
    wanted: &Platform,
) -> Option<&'index ImageIndexEntry> {
    let fits = |entry: &&ImageIndexEntry| {
        entry.platform.as_ref().is_some_and(|platform| {
            platform.os.to_string() == wanted.os && platform.architecture.to_string() == wanted.architecture
        })
    };
    let particular = |entry: &&ImageIndexEntry| {
        let variant = entry
            .platform
            .as_ref()
            .and_then(|platform| platform.variant.as_deref());
        match (variant.unwrap_or_default(), wanted.architecture.as_str()) {
            ("", _) | ("v1", "amd64") | ("v8", "arm64") => String::new(),
            (variant, _) => variant.to_owned(),
        }
    };
    entries
        .iter()
        .filter(fits)
        .min_by_key(particular)
        .or_else(|| entries.iter().find(|entry| entry.platform.is_none()))
}

pub(crate) fn layers(manifest: &OciImageManifest) -> Result<Vec<Blob>, String> {
    manifest.layers.iter().map(blob).collect()
}

pub(crate) fn blob(descriptor: &OciDescriptor) -> Result<Blob, String> {
    Ok(Blob {
        digest: Digest::parse(&descriptor.digest).map_err(|error| error.to_string())?,
        size: u64::try_from(descriptor.size).map_err(|_| "a size is negative".to_owned())?,
        media_type: descriptor.media_type.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tags_that_there_are_begin_with_what_is_most_alike() {
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

    #[test]
    fn the_least_particular_image_of_a_platform_is_chosen() {
        let check = |architecture: &str, variants: &[Option<&str>], expected: Option<usize>| {
            let entries: Vec<ImageIndexEntry> = variants
                .iter()
                .enumerate()
                .map(|(number, variant)| {
                    let mut platform = serde_json::json!({ "os": "linux", "architecture": architecture });
                    if let (Some(variant), Some(fields)) = (variant, platform.as_object_mut()) {
                        fields.insert("variant".to_owned(), (*variant).into());
                    }
                    let entry = serde_json::json!({
                        "mediaType": "x", "digest": number.to_string(), "size": 1, "platform": platform,
                    });
                    serde_json::from_value(entry).unwrap()
                })
                .collect();
            let wanted = Platform {
                os: "linux".to_owned(),
                architecture: architecture.to_owned(),
            };
            let found = choose_platform(&entries, &wanted).map(|entry| entry.digest.clone());
            assert_eq!(found, expected.map(|number| number.to_string()), "{variants:?}");
        };
        check("amd64", &[Some("v3"), Some("v2"), None], Some(2));
        check("amd64", &[Some("v3"), Some("v1"), None], Some(1));
        check("arm64", &[Some("v9"), Some("v8")], Some(1));
        check("arm", &[Some("v7"), Some("v6")], Some(1));
        check("amd64", &[None, None], Some(0));
        check("amd64", &[], None);
    }
}
