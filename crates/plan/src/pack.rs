//! The objects of a revision in immutable Secrets, so that a ClusterObjectSet stays small.
//!
//! Names and keys are derived from the content: equal content in the same revision has equal Secrets, and two revisions
//! are compared by their references.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use olm_api::ClusterObjectSet;
use olm_api::cluster_extension::controlling_extension;
use olm_api::cluster_object_set::{ObjectReference, Phase, PhaseObject};
use olm_api::names::{API_VERSION, CLUSTER_OBJECT_SET, OBJECT_DATA_SECRET_TYPE, annotation, label};
use olm_rollout::canonical;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::phases::Group;

/// The most bytes of content that a Secret holds.
const SECRET_BYTES: usize = 921_600;

/// A Secret to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentSecret {
    /// The name.
    pub name: String,
    /// The data.
    pub data: BTreeMap<String, Vec<u8>>,
}

/// Phases that refer to secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// The phases.
    pub phases: Vec<Phase>,
    /// The Secrets to which they refer.
    pub secrets: Vec<ContentSecret>,
}

/// The reason why content does not fit into Secrets.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// An object is too large.
    #[error(
        "object in phase {phase} index {index} exceeds maximum Secret data size ({size} bytes > {SECRET_BYTES} bytes) even after compression"
    )]
    TooLarge {
        /// The phase, from 0.
        phase: usize,
        /// The object in it, from 0.
        index: usize,
        /// The compressed size in bytes.
        size: usize,
    },
    /// An object cannot be compressed.
    #[error("cannot compress an object")]
    Compress(#[source] std::io::Error),
}

impl ContentSecret {
    /// The Secret to create for a revision, which does not own it yet.
    #[must_use]
    pub fn object(&self, set: &ClusterObjectSet) -> Secret {
        let owner = set.label(label::OWNER_NAME).unwrap_or_default();
        let labels = [(label::REVISION_NAME, set.name()), (label::OWNER_NAME, owner)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let data = self.data.iter();
        Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels.into()),
                annotations: controlling_extension(&set.metadata)
                    .map(|uid| [(annotation::OWNER_UID.to_owned(), uid.to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(OBJECT_DATA_SECRET_TYPE.to_owned()),
            immutable: Some(true),
            data: Some(
                data.map(|(key, bytes)| (key.clone(), ByteString(bytes.clone())))
                    .collect(),
            ),
            ..Secret::default()
        }
    }
}

/// A merge patch that makes a revision the owner of its Secrets, so that they are deleted together, and records the
/// extension.
#[must_use]
pub fn ownership(set: &ClusterObjectSet) -> Value {
    let owner = json!({
        "apiVersion": API_VERSION,
        "kind": CLUSTER_OBJECT_SET,
        "name": set.name(),
        "uid": set.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    });
    let annotations = json!({annotation::OWNER_UID: controlling_extension(&set.metadata)});
    json!({"metadata": {"ownerReferences": [owner], "annotations": annotations}})
}

/// Packs the phases of the revision called `revision` into Secrets of `namespace`.
///
/// # Errors
/// An object is too large.
pub fn pack(revision: &str, namespace: &str, groups: &[Group]) -> Result<Packed, PackError> {
    let mut open: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut size = 0;
    let mut secrets = Vec::new();
    // The index of the Secret and the key of each object. The name of a Secret is known when it is full.
    let mut places: Vec<(usize, String)> = Vec::new();
    for (phase, group) in groups.iter().enumerate() {
        for (index, object) in group.objects.iter().enumerate() {
            let stored = stored(canonical::to_vec(object)).map_err(PackError::Compress)?;
            if stored.len() > SECRET_BYTES {
                return Err(PackError::TooLarge {
                    phase,
                    index,
                    size: stored.len(),
                });
            }
            let key = URL_SAFE_NO_PAD.encode(Sha256::digest(&stored));
            if !open.contains_key(&key) {
                if size + stored.len() > SECRET_BYTES {
                    secrets.push(secret(revision, std::mem::take(&mut open)));
                    size = 0;
                }
                size += stored.len();
                open.insert(key.clone(), stored);
            }
            places.push((secrets.len(), key));
        }
    }
    if !open.is_empty() {
        secrets.push(secret(revision, open));
    }
    let mut places = places.into_iter();
    let phases = groups
        .iter()
        .map(|group| {
            let objects = places.by_ref().take(group.objects.len()).map(|(secret, key)| {
                let name = secrets
                    .get(secret)
                    .map(|p: &ContentSecret| p.name.clone())
                    .unwrap_or_default();
                let reference = ObjectReference {
                    name,
                    namespace: namespace.to_owned(),
                    key,
                };
                PhaseObject {
                    reference: Some(reference),
                    ..PhaseObject::default()
                }
            });
            Phase {
                name: group.name.clone(),
                objects: objects.collect(),
                collision_protection: None,
            }
        })
        .collect();
    Ok(Packed { phases, secrets })
}

/// The bytes as stored: compressed only if they would not fit otherwise.
fn stored(bytes: Vec<u8>) -> std::io::Result<Vec<u8>> {
    if bytes.len() <= SECRET_BYTES {
        return Ok(bytes);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    encoder.finish()
}

fn secret(revision: &str, data: BTreeMap<String, Vec<u8>>) -> ContentSecret {
    let mut hash = Sha256::new();
    for (key, value) in &data {
        hash.update(key.as_bytes());
        hash.update(value);
    }
    let digest = hex::encode(hash.finalize());
    let name = format!("{revision}-{}", digest.get(..16).unwrap_or(&digest));
    ContentSecret { name, data }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn group(name: &str, objects: Vec<serde_json::Value>) -> Group {
        Group {
            name: name.to_owned(),
            objects,
        }
    }

    #[test]
    fn the_same_content_gives_the_same_names() {
        let groups = [
            group("a", vec![json!({"x": "<1>"}), json!({"y": 2})]),
            group("b", vec![json!({"y": 2})]),
        ];
        let packed = pack("ext-1", "system", &groups).unwrap();
        assert_eq!(packed, pack("ext-1", "system", &groups).unwrap());
        assert_eq!(packed.secrets.len(), 1);
        assert_eq!(packed.secrets[0].data.len(), 2, "equal objects are stored once");
        assert!(
            packed.secrets[0]
                .data
                .values()
                .any(|v| v == br#"{"x":"\u003c1\u003e"}"#)
        );
        let first = packed.phases[0].objects[0].reference.clone().unwrap();
        assert_eq!(
            (first.name.len(), first.key.len(), first.namespace.as_str()),
            ("ext-1-".len() + 16, 43, "system")
        );
        assert_eq!(
            packed.phases[0].objects[1].reference,
            packed.phases[1].objects[0].reference
        );
        assert_ne!(
            packed.secrets[0].name,
            pack("ext-2", "system", &groups).unwrap().secrets[0].name
        );
    }

    #[test]
    fn content_is_spread_over_secrets_and_large_objects_are_compressed() {
        let text = |letter: &str, size: usize| json!({"t": letter.repeat(size)});
        let groups = [
            group("a", vec![text("a", 600_000), text("b", 600_000)]),
            group("b", vec![text("c", 5_000_000)]),
        ];
        let packed = pack("r", "s", &groups).unwrap();
        assert_eq!(packed.secrets.len(), 2);
        let large = packed.phases[1].objects[0].reference.clone().unwrap();
        let bytes = &packed.secrets.iter().find(|p| p.name == large.name).unwrap().data[&large.key];
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
    }

    #[test]
    fn an_object_that_does_not_fit_is_named() {
        let mut state = 1u64;
        let noise: String = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from((state >> 33) % 90).unwrap())
        })
        .take(1_500_000)
        .collect();
        let error = pack("r", "s", &[group("a", vec![json!({}), json!(noise)])]).unwrap_err();
        assert!(
            matches!(
                error,
                PackError::TooLarge {
                    phase: 0,
                    index: 1,
                    ..
                }
            ),
            "{error}"
        );
    }
}
