//! Releases of the reference implementation's Helm runtime: a JSON text, compressed and split into Secrets. Pure.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use flate2::read::GzDecoder;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use olm_api::ObjectMeta;
use olm_api::cluster_extension::BundleMetadata;
use olm_api::names::{annotation, release};
use serde::Deserialize;
use serde_json::Value;

use crate::extension::failure::{Severity, StageError};
use crate::extension::revisions::BundleIdentity;
use olm_rollout::content::MAX_TOTAL;

/// The most Secrets of a release.
const MOST_CHUNKS: usize = 11;

/// The reason why a release cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// A Secret that the index names is gone.
    #[error("Secret {0:?} does not exist")]
    Missing(String),
    /// A Secret has another type.
    #[error("Secret {name:?} is of type {found:?}, not {wanted:?}")]
    Type {
        /// The Secret.
        name: String,
        /// The type.
        found: String,
        /// The expected type.
        wanted: &'static str,
    },
    /// A Secret has no chunk.
    #[error("Secret {0:?} has no key {key:?}", key = release::CHUNK)]
    Empty(String),
    /// The index with the names of the other Secrets is invalid.
    #[error("key {key:?} of Secret {name:?} is not a list of names", key = release::EXTRA_CHUNKS)]
    Names {
        /// The Secret.
        name: String,
        source: serde_json::Error,
    },
    /// The release has too many Secrets.
    #[error("it has {0} Secrets, more than {MOST_CHUNKS}")]
    Chunks(usize),
    /// The release is too large.
    #[error("it holds more than {MAX_TOTAL} bytes")]
    TooLarge,
    /// The content of the Secrets is not a release.
    #[error("its Secrets hold no compressed release")]
    Content(#[source] serde_json::Error),
    /// The release belongs to another extension.
    #[error("it is the release {0:?}")]
    Foreign(String),
    /// The objects cannot be read.
    #[error("its manifest cannot be read")]
    Manifest(#[source] olm_yaml::Error),
    /// Neither the release nor the status names its bundle.
    #[error("it names no bundle")]
    Unnamed,
}

impl StageError for ReleaseError {
    fn severity(&self) -> Severity {
        // Its Secrets can be restored or deleted.
        Severity::Waiting
    }
}

/// A deployed release, according to the labels of its first Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub number: u64,
    /// The Secret's name.
    pub secret: String,
    /// The UIDs of the Secret's owners.
    pub owners: Vec<String>,
    /// The time at which the Secret was created.
    pub made: Option<Timestamp>,
}

/// The ClusterExtension's name and the release of a first Secret; `None` if it is not deployed.
pub(crate) fn entry(secret: &ObjectMeta) -> Option<(String, Entry)> {
    let label = |key: &str| secret.labels.as_ref()?.get(key);
    if label(release::STATUS)? != release::DEPLOYED || secret.deletion_timestamp.is_some() {
        return None;
    }
    let owners = secret.owner_references.iter().flatten();
    let entry = Entry {
        number: label(release::VERSION)?.parse().ok()?,
        secret: secret.name.clone()?,
        owners: owners.map(|owner| owner.uid.clone()).collect(),
        made: secret.creation_timestamp.as_ref().map(|time| time.0),
    };
    Some((label(release::NAME)?.clone(), entry))
}

/// The extension that continues from a release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleaseOwner<'a> {
    pub uid: &'a str,
    /// The time at which it was created.
    pub created: Option<Timestamp>,
    /// Whether an earlier extension of its name left revisions.
    pub has_earlier_revisions: bool,
}

/// The releases of that extension. A release whose Secret has another owner was left by an earlier extension of the
/// same name. So was one without owners, which remains if an extension is deleted without its dependents, that is older
/// than the extension, or beside which revisions exist: its content may have been replaced long ago.
pub(crate) fn ours<'a>(entries: &'a [Entry], us: ReleaseOwner<'_>) -> impl Iterator<Item = &'a Entry> {
    entries.iter().filter(move |entry| {
        if entry.owners.is_empty() {
            !us.has_earlier_revisions && entry.made >= us.created
        } else {
            entry.owners.iter().any(|owner| owner == us.uid)
        }
    })
}

/// The first chunk of a release, and the names of the other Secrets.
pub(crate) fn index(secret: &Secret) -> Result<(Vec<u8>, Vec<String>), ReleaseError> {
    let first = part(secret, release::INDEX_SECRET_TYPE)?;
    let names = secret
        .data
        .as_ref()
        .and_then(|data| data.get(release::EXTRA_CHUNKS));
    let names: Vec<String> = match names {
        Some(names) if !names.0.is_empty() => {
            serde_json::from_slice(&names.0).map_err(|source| ReleaseError::Names {
                name: name(secret),
                source,
            })?
        }
        _ => Vec::new(),
    };
    match names.len() {
        more if more < MOST_CHUNKS => Ok((first, names)),
        more => Err(ReleaseError::Chunks(more + 1)),
    }
}

/// Another chunk of a release.
pub(crate) fn chunk(secret: &Secret) -> Result<Vec<u8>, ReleaseError> {
    part(secret, release::CHUNK_SECRET_TYPE)
}

fn part(secret: &Secret, wanted: &'static str) -> Result<Vec<u8>, ReleaseError> {
    let found = secret.type_.as_deref().unwrap_or_default();
    if found != wanted {
        return Err(ReleaseError::Type {
            name: name(secret),
            found: found.to_owned(),
            wanted,
        });
    }
    let part = secret.data.as_ref().and_then(|data| data.get(release::CHUNK));
    part.map(|part| part.0.clone())
        .ok_or_else(|| ReleaseError::Empty(name(secret)))
}

fn name(secret: &Secret) -> String {
    secret.metadata.name.clone().unwrap_or_default()
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Release {
    /// The labels about its bundle, under the keys of the annotations of revisions.
    pub labels: BTreeMap<String, String>,
    pub objects: Vec<Value>,
}

/// The fields of a release that are read. Its chart, the largest part, is skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Payload {
    name: String,
    manifest: String,
    labels: BTreeMap<String, String>,
}

/// Reads a release with this name from all chunks.
pub(crate) fn decode(name: &str, parts: &[Vec<u8>]) -> Result<Release, ReleaseError> {
    let compressed = parts.concat();
    let mut plain = GzDecoder::new(compressed.as_slice()).take(MAX_TOTAL + 1);
    let payload: Result<Payload, _> = serde_json::from_reader(BufReader::new(&mut plain));
    if plain.limit() == 0 {
        return Err(ReleaseError::TooLarge);
    }
    let payload = payload.map_err(ReleaseError::Content)?;
    if payload.name != name {
        return Err(ReleaseError::Foreign(payload.name));
    }
    let documents = olm_yaml::documents(payload.manifest.as_bytes(), &olm_yaml::Limits::default());
    let mut objects = Vec::new();
    for document in documents {
        let value = document.and_then(olm_yaml::Document::into_value);
        match value.map_err(ReleaseError::Manifest)? {
            Value::Null => {}
            object => objects.push(object),
        }
    }
    Ok(Release {
        labels: payload.labels,
        objects,
    })
}

impl Release {
    /// The bundle of the release. Missing fields come from the status of the extension and from the package in its
    /// spec.
    pub fn bundle(
        &self,
        installed: Option<&BundleMetadata>,
        package: &str,
    ) -> Result<BundleIdentity, ReleaseError> {
        let label = |key: &str| self.labels.get(key).filter(|text| !text.is_empty()).cloned();
        let known = |from: fn(&BundleMetadata) -> &String| installed.map(from).cloned();
        let bundle = (
            label(annotation::BUNDLE_NAME).or_else(|| known(|bundle| &bundle.name)),
            label(annotation::BUNDLE_VERSION).or_else(|| known(|bundle| &bundle.version)),
        );
        let (Some(name), Some(version)) = bundle else {
            return Err(ReleaseError::Unnamed);
        };
        Ok(BundleIdentity {
            package: label(annotation::PACKAGE_NAME).unwrap_or_else(|| package.to_owned()),
            metadata: BundleMetadata {
                name,
                version,
                release: self.labels.get(annotation::BUNDLE_RELEASE).cloned(),
            },
            image: label(annotation::BUNDLE_REFERENCE).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    use super::*;

    fn compressed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn payload(manifest: &str) -> String {
        let chart = json!({"files": [{"name": "a", "data": "eA=="}], "templates": null});
        let labels = json!({
            annotation::BUNDLE_NAME: "pkg.v1", annotation::BUNDLE_VERSION: "1.0.0", annotation::PACKAGE_NAME: "pkg",
            annotation::BUNDLE_REFERENCE: "reg/pkg@sha256:0",
        });
        let release = json!({
            "name": "ext", "info": {"status": "deployed"}, "chart": chart, "manifest": manifest, "version": 3,
            "namespace": "n", "labels": labels,
        });
        format!("{release}\n")
    }

    #[test]
    fn a_release_is_put_together_and_its_objects_are_read_line_by_line_or_as_yaml() {
        let [a, b] = [json!({"kind": "A", "x": "<é>"}), json!({"kind": "B"})];
        for manifest in [
            format!("{a}\n{b}\n"),
            format!("\n  {a}\n\n{b}"),
            format!("---\n# Source: a\n{a}\n---\n# Source: b\n{b}\n"),
            "---\nkind: A\nx: <é>\n---\n# nothing\n---\nkind: B\n".to_owned(),
        ] {
            let bytes = compressed(&payload(&manifest));
            let parts: Vec<Vec<u8>> = bytes.chunks(50).map(<[u8]>::to_vec).collect();
            let release = decode("ext", &parts).unwrap();
            assert_eq!(release.objects, [a.clone(), b.clone()], "{manifest}");
            let bundle = release.bundle(None, "").unwrap();
            assert_eq!(
                (
                    bundle.metadata.name.as_str(),
                    bundle.image.as_str(),
                    bundle.metadata.release
                ),
                ("pkg.v1", "reg/pkg@sha256:0", None)
            );
        }
    }

    #[test]
    fn a_release_that_says_nothing_of_its_bundle_leaves_that_to_the_status() {
        let installed = BundleMetadata {
            name: "pkg.v1".to_owned(),
            version: "1.0.0".to_owned(),
            release: None,
        };
        let release = Release::default();
        assert!(matches!(release.bundle(None, "pkg"), Err(ReleaseError::Unnamed)));
        let bundle = release.bundle(Some(&installed), "pkg").unwrap();
        assert_eq!((bundle.metadata, bundle.package.as_str()), (installed, "pkg"));
    }

    #[test]
    fn an_unreadable_release_is_refused_with_the_reason() {
        let cut = |text: &str| {
            let mut bytes = compressed(text);
            bytes.truncate(bytes.len() / 2);
            bytes
        };
        let bomb = format!(
            "{{\"name\": \"{}",
            "a".repeat(usize::try_from(MAX_TOTAL).unwrap())
        );
        for (name, part, expected) in [
            ("ext", b"plain".to_vec(), "its Secrets hold no compressed release"),
            ("ext", Vec::new(), "its Secrets hold no compressed release"),
            (
                "ext",
                cut(&payload("{}")),
                "its Secrets hold no compressed release",
            ),
            ("ext", compressed("1"), "its Secrets hold no compressed release"),
            ("ext", compressed(&bomb), "it holds more than 67108864 bytes"),
            ("other", compressed(&payload("{}")), "it is the release \"ext\""),
            ("ext", compressed(&payload("a: [")), "its manifest cannot be read"),
        ] {
            let error = decode(name, &[part]).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn parts_are_found_by_the_index_and_bounded() {
        let secret = |kind: &str, data: &[(&str, String)]| Secret {
            metadata: ObjectMeta {
                name: Some("s".to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(kind.to_owned()),
            data: Some(
                data.iter()
                    .map(|(key, value)| ((*key).to_owned(), ByteString(value.clone().into_bytes())))
                    .collect(),
            ),
            ..Secret::default()
        };
        let names = |count: usize| serde_json::to_string(&vec!["n"; count]).unwrap();
        let both = |extra: String| {
            secret(
                release::INDEX_SECRET_TYPE,
                &[("chunk", "x".to_owned()), ("extraChunks", extra)],
            )
        };
        assert_eq!(
            index(&both(names(2))).unwrap(),
            (b"x".to_vec(), vec!["n".to_owned(); 2])
        );
        assert_eq!(
            index(&both("null".to_owned())).unwrap_err().to_string(),
            "key \"extraChunks\" of Secret \"s\" is not a list of names"
        );
        assert_eq!(
            index(&both(names(11))).unwrap_err().to_string(),
            "it has 12 Secrets, more than 11"
        );
        let lone = secret(release::INDEX_SECRET_TYPE, &[("chunk", "x".to_owned())]);
        assert_eq!(index(&lone).unwrap().1, [""; 0]);
        let empty = secret(release::CHUNK_SECRET_TYPE, &[]);
        assert_eq!(
            chunk(&empty).unwrap_err().to_string(),
            "Secret \"s\" has no key \"chunk\""
        );
        assert!(matches!(chunk(&lone), Err(ReleaseError::Type { .. })));
    }

    #[test]
    fn the_newest_deployed_release_of_the_very_extension_counts() {
        let secret = |number: &str, status: &str, owner: Option<&str>| ObjectMeta {
            name: Some(format!("sh.helm.release.v1.ext.v{number}")),
            creation_timestamp: Some(olm_api::Time(Timestamp::UNIX_EPOCH)),
            labels: Some(
                [("name", "ext"), ("status", status), ("version", number)]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            owner_references: owner.map(|uid| {
                vec![OwnerReference {
                    uid: uid.to_owned(),
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        };
        let check = |secrets: &[ObjectMeta], expected: Option<u64>| {
            let entries: Vec<Entry> = secrets.iter().filter_map(entry).map(|(_, entry)| entry).collect();
            let us = ReleaseOwner {
                uid: "us",
                created: Some(Timestamp::UNIX_EPOCH),
                has_earlier_revisions: false,
            };
            let newest = |us| ours(&entries, us).map(|entry| entry.number).max();
            assert_eq!(newest(us), expected);
            // A revision that an earlier extension of the name left does not count as installed.
            let later = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1);
            for other in [
                ReleaseOwner {
                    created: Some(later),
                    ..us
                },
                ReleaseOwner {
                    has_earlier_revisions: true,
                    ..us
                },
            ] {
                let owned = entries.iter().any(|entry| entry.owners == ["us"]);
                assert_eq!(newest(other), expected.filter(|_| owned));
            }
        };
        let us = Some("us");
        check(&[], None);
        check(
            &[secret("9", "deployed", us), secret("10", "deployed", us)],
            Some(10),
        );
        check(&[secret("1", "deployed", us), secret("2", "failed", us)], Some(1));
        check(&[secret("1", "pending-install", us)], None);
        check(
            &[
                secret("1", "deployed", None),
                secret("2", "deployed", Some("them")),
            ],
            Some(1),
        );
        check(&[secret("x", "deployed", us)], None);
    }
}
