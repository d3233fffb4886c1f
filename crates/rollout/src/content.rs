//! The content of a ClusterObjectSet, with its references to Secrets resolved.

pub mod outline;
pub mod phases;
pub mod validate;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Read,
};

use flate2::read::GzDecoder;
use olm_api::cluster_object_set::{
    ClusterObjectSetSpec, CollisionProtection, ObjectReference, ObservedPhase,
};
use serde_json::Value;

use crate::canonical;

/// The largest object after decompression, in bytes.
const MAX_DECOMPRESSED: u64 = 10 * 1024 * 1024;
/// The most bytes of all objects of a set in Secrets together, compressed and decompressed.
pub const MAX_TOTAL: u64 = 64 * 1024 * 1024;

/// Names a Secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The relevant parts of a Secret with objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretContent {
    /// Whether the API server refuses changes of the Secret.
    pub immutable: bool,
    /// The data, decoded.
    pub data: BTreeMap<String, Vec<u8>>,
}

/// The content of a revision: all its objects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RevisionContent {
    /// The phases in order.
    pub phases: Vec<ContentPhase>,
}

/// One phase of a revision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContentPhase {
    /// The name.
    pub name: String,
    /// The digest of its objects as the API server stores them; empty for a phase that OLM adds.
    pub digest: String,
    /// The objects.
    pub objects: Vec<ContentObject>,
}

/// One object of a revision.
#[derive(Debug, Clone, PartialEq)]
pub struct ContentObject {
    /// The object as the API server stores it.
    pub object: Value,
    /// The action when it exists already: that of the object, otherwise of the phase, otherwise of the set.
    pub collision_protection: CollisionProtection,
}

/// The reason why the content of a revision cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ContentError {
    /// Secrets with objects are not immutable.
    #[error(
        "the following secrets are not immutable (referenced secrets must have immutable set to true): {}",
        list(.0)
    )]
    Mutable(Vec<SecretName>),
    /// A Secret does not exist.
    #[error("resolving ref in phase \"{phase}\": Secret {secret} not found")]
    MissingSecret {
        /// The phase of the reference.
        phase: String,
        /// The Secret.
        secret: SecretName,
    },
    /// A Secret lacks a key.
    #[error("resolving ref in phase \"{phase}\": key \"{key}\" not found in Secret {secret}")]
    MissingKey {
        /// The phase of the reference.
        phase: String,
        /// The Secret.
        secret: SecretName,
        /// The key.
        key: String,
    },
    /// An object is too large.
    #[error(
        "resolving ref in phase \"{phase}\": decompressed data for key \"{key}\" in Secret {secret} exceeds maximum size ({MAX_DECOMPRESSED} bytes)"
    )]
    TooLarge {
        /// The phase of the reference.
        phase: String,
        /// The Secret.
        secret: SecretName,
        /// The key.
        key: String,
    },
    /// All objects together are too large.
    #[error(
        "resolving ref in phase \"{phase}\": the objects that lie in Secrets exceed the maximum size of all of them ({MAX_TOTAL} bytes)"
    )]
    TooMuch {
        /// The phase of the reference that exceeds the limit.
        phase: String,
    },
    /// An object cannot be read.
    #[error(
        "resolving ref in phase \"{phase}\": unmarshaling object from key \"{key}\" in Secret {secret}: {problem}"
    )]
    Unreadable {
        /// The phase of the reference.
        phase: String,
        /// The Secret.
        secret: SecretName,
        /// The key.
        key: String,
        /// The fault of the content.
        problem: String,
    },
    /// The phases differ from the recorded ones.
    #[error("{0}")]
    Changed(String),
}

fn list(names: &[SecretName]) -> String {
    names
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The Secret of a reference. An empty namespace means that of the managers.
pub fn secret_of(reference: &ObjectReference, system_namespace: &str) -> SecretName {
    let namespace = if reference.namespace.is_empty() {
        system_namespace
    } else {
        &reference.namespace
    };
    SecretName {
        namespace: namespace.to_owned(),
        name: reference.name.clone(),
    }
}

/// Every Secret that the phases refer to, with the keys.
pub fn secrets_of(
    spec: &ClusterObjectSetSpec,
    system_namespace: &str,
) -> BTreeMap<SecretName, BTreeSet<String>> {
    let objects = spec.phases.iter().flat_map(|phase| &phase.objects);
    let mut found: BTreeMap<SecretName, BTreeSet<String>> = BTreeMap::new();
    for reference in objects.filter_map(|object| object.reference.as_ref()) {
        let keys = found.entry(secret_of(reference, system_namespace)).or_default();
        keys.insert(reference.key.clone());
    }
    found
}

/// Resolves all references. `secrets` contains the existing Secrets among those that [`secrets_of`] returns.
///
/// # Errors
/// A Secret is not immutable (all of them are named, before any other check), missing, or malformed.
pub fn resolve(
    spec: &ClusterObjectSetSpec,
    secrets: &BTreeMap<SecretName, SecretContent>,
    system_namespace: &str,
) -> Result<RevisionContent, ContentError> {
    let mutable: Vec<_> = secrets
        .iter()
        .filter(|(_, s)| !s.immutable)
        .map(|(name, _)| name.clone())
        .collect();
    if !mutable.is_empty() {
        return Err(ContentError::Mutable(mutable));
    }
    let mut resolved: BTreeMap<(SecretName, &str), Referenced> = BTreeMap::new();
    let mut total = 0;
    let mut phases = Vec::with_capacity(spec.phases.len());
    for phase in &spec.phases {
        let mut objects = Vec::with_capacity(phase.objects.len());
        for item in &phase.objects {
            let object = match (&item.object, &item.reference) {
                (Some(object), _) => Value::Object(object.clone()),
                (None, Some(reference)) => {
                    let secret = secret_of(reference, system_namespace);
                    let key = (secret.clone(), reference.key.as_str());
                    let referenced = match resolved.get(&key) {
                        Some(known) => known.clone(),
                        None => referenced(&phase.name, secrets.get(&secret), secret, &reference.key)?,
                    };
                    total += referenced.size;
                    if total > MAX_TOTAL {
                        return Err(ContentError::TooMuch {
                            phase: phase.name.clone(),
                        });
                    }
                    resolved.entry(key).or_insert(referenced).object.clone()
                }
                (None, None) => Value::Null,
            };
            let collision_protection = item
                .collision_protection
                .or(phase.collision_protection)
                .unwrap_or(spec.collision_protection);
            objects.push(ContentObject {
                object,
                collision_protection,
            });
        }
        let digest = canonical::phase_digest(&phase.name, objects.iter().map(|o| &o.object));
        phases.push(ContentPhase {
            name: phase.name.clone(),
            digest,
            objects,
        });
    }
    Ok(RevisionContent { phases })
}

/// An object from a Secret.
#[derive(Debug, Clone)]
struct Referenced {
    object: Value,
    /// The size in bytes.
    size: u64,
}

fn referenced(
    phase: &str,
    content: Option<&SecretContent>,
    secret: SecretName,
    key: &str,
) -> Result<Referenced, ContentError> {
    let (phase, key) = (phase.to_owned(), key.to_owned());
    let Some(content) = content else {
        return Err(ContentError::MissingSecret { phase, secret });
    };
    let Some(bytes) = content.data.get(&key) else {
        return Err(ContentError::MissingKey { phase, secret, key });
    };
    let parsed = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        match GzDecoder::new(bytes.as_slice())
            .take(MAX_DECOMPRESSED + 1)
            .read_to_end(&mut plain)
        {
            Ok(length) if length as u64 > MAX_DECOMPRESSED => {
                return Err(ContentError::TooLarge { phase, secret, key });
            }
            Ok(_) => parse(&plain),
            Err(error) => Err(error.to_string()),
        }
    } else {
        parse(bytes)
    };
    match parsed {
        Ok(referenced) if referenced.object.is_object() => Ok(referenced),
        Ok(_) => Err(ContentError::Unreadable {
            phase,
            secret,
            key,
            problem: "not an object".to_owned(),
        }),
        Err(problem) => Err(ContentError::Unreadable {
            phase,
            secret,
            key,
            problem,
        }),
    }
}

fn parse(bytes: &[u8]) -> Result<Referenced, String> {
    let object = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let size = bytes.len() as u64;
    Ok(Referenced { object, size })
}

impl RevisionContent {
    /// The value of `status.observedPhases`.
    pub fn observed_phases(&self) -> Vec<ObservedPhase> {
        self.phases
            .iter()
            .filter(|p| !p.digest.is_empty())
            .map(|p| ObservedPhase {
                name: p.name.clone(),
                digest: p.digest.clone(),
            })
            .collect()
    }
}

/// Compares the phases with the recorded ones. Phases without a record do not differ.
///
/// # Errors
/// [`ContentError::Changed`]
pub fn check_observed(seen: &[ObservedPhase], now: &[ObservedPhase]) -> Result<(), ContentError> {
    if seen.is_empty() {
        return Ok(());
    }
    if seen.len() != now.len() {
        return Err(ContentError::Changed(format!(
            "number of phases has changed (expected {} phases, got {})",
            seen.len(),
            now.len()
        )));
    }
    let changed: Vec<String> = seen
        .iter()
        .filter_map(|seen| {
            let digest = now
                .iter()
                .find(|phase| phase.name == seen.name)
                .map_or("none", |phase| &phase.digest);
            (digest != seen.digest).then(|| {
                format!(
                    "phase \"{}\" (expected digest {}, got {digest})",
                    seen.name, seen.digest
                )
            })
        })
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(ContentError::Changed(format!(
        "resolved content of {} phase(s) has changed: {}; a referenced object source may have been deleted and recreated with different content",
        changed.len(),
        changed.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use olm_api::cluster_object_set::{Phase, PhaseObject};
    use serde_json::json;

    use super::*;

    fn spec(references: &[(&str, &str)]) -> ClusterObjectSetSpec {
        let objects = references
            .iter()
            .map(|(name, key)| PhaseObject {
                reference: Some(ObjectReference {
                    name: (*name).to_owned(),
                    namespace: String::new(),
                    key: (*key).to_owned(),
                }),
                ..PhaseObject::default()
            })
            .collect();
        ClusterObjectSetSpec {
            phases: vec![Phase {
                name: "deploy".to_owned(),
                objects,
                ..Phase::default()
            }],
            ..ClusterObjectSetSpec::default()
        }
    }

    fn secret(immutable: bool, data: &[(&str, &[u8])]) -> SecretContent {
        SecretContent {
            immutable,
            data: data.iter().map(|(k, v)| ((*k).to_owned(), v.to_vec())).collect(),
        }
    }

    fn named(name: &str) -> SecretName {
        SecretName {
            namespace: "system".to_owned(),
            name: name.to_owned(),
        }
    }

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn references_are_resolved_plain_and_compressed_in_the_managers_namespace() {
        let packed = zipped(br#"{"kind":"B"}"#);
        let secrets = BTreeMap::from([(
            named("s"),
            secret(true, &[("a", br#"{"kind":"A"}"#), ("b", &packed)]),
        )]);
        let spec = spec(&[("s", "a"), ("s", "b")]);
        assert_eq!(
            secrets_of(&spec, "system"),
            BTreeMap::from([(named("s"), BTreeSet::from(["a".to_owned(), "b".to_owned()]))])
        );
        let content = resolve(&spec, &secrets, "system").unwrap();
        let objects: Vec<_> = content.phases[0]
            .objects
            .iter()
            .map(|o| o.object.clone())
            .collect();
        assert_eq!(objects, [json!({"kind": "A"}), json!({"kind": "B"})]);
    }

    #[test]
    fn unresolved_content_is_an_error() {
        let bomb = zipped(&vec![b' '; usize::try_from(MAX_DECOMPRESSED).unwrap() + 1]);
        for (content, expected) in [
            (
                None,
                "resolving ref in phase \"deploy\": Secret system/s not found",
            ),
            (
                Some(secret(false, &[])),
                "the following secrets are not immutable (referenced secrets must have immutable set to true): system/s",
            ),
            (
                Some(secret(true, &[])),
                "resolving ref in phase \"deploy\": key \"k\" not found in Secret system/s",
            ),
            (
                Some(secret(true, &[("k", b"[]")])),
                "resolving ref in phase \"deploy\": unmarshaling object from key \"k\" in Secret system/s: not an object",
            ),
            (
                Some(secret(true, &[("k", &bomb)])),
                "resolving ref in phase \"deploy\": decompressed data for key \"k\" in Secret system/s exceeds maximum size (10485760 bytes)",
            ),
        ] {
            let secrets = content.map(|content| (named("s"), content)).into_iter().collect();
            assert_eq!(
                resolve(&spec(&[("s", "k")]), &secrets, "system")
                    .unwrap_err()
                    .to_string(),
                expected
            );
        }
    }

    #[test]
    fn all_objects_together_are_bounded_however_often_one_is_referred_to() {
        let mut large = br#"{"kind":"A"}"#.to_vec();
        large.resize(usize::try_from(MAX_DECOMPRESSED).unwrap(), b' ');
        let secrets = BTreeMap::from([(named("s"), secret(true, &[("a", &zipped(&large))]))]);
        let fitting = usize::try_from(MAX_TOTAL / MAX_DECOMPRESSED).unwrap();
        let outcome = |count: usize| resolve(&spec(&vec![("s", "a"); count]), &secrets, "system").map(drop);
        assert_eq!(outcome(fitting), Ok(()));
        let phase = "deploy".to_owned();
        assert_eq!(outcome(fitting + 1), Err(ContentError::TooMuch { phase }));
    }

    #[test]
    fn collision_protection_is_taken_from_the_nearest() {
        let mut spec = spec(&[]);
        let object = |own| PhaseObject {
            object: Some(serde_json::Map::new()),
            collision_protection: own,
            ..PhaseObject::default()
        };
        spec.collision_protection = CollisionProtection::None;
        spec.phases[0].objects = vec![object(None), object(Some(CollisionProtection::Prevent))];
        spec.phases.push(Phase {
            name: "publish".to_owned(),
            objects: vec![object(None)],
            collision_protection: Some(CollisionProtection::IfNoController),
        });
        let content = resolve(&spec, &BTreeMap::new(), "system").unwrap();
        let found: Vec<_> = content
            .phases
            .iter()
            .flat_map(|p| &p.objects)
            .map(|o| o.collision_protection)
            .collect();
        assert_eq!(
            found,
            [
                CollisionProtection::None,
                CollisionProtection::Prevent,
                CollisionProtection::IfNoController
            ]
        );
    }

    #[test]
    fn content_that_differs_from_the_first_observation_is_detected() {
        let mut spec = spec(&[]);
        spec.phases[0].objects = vec![PhaseObject {
            object: json!({"a": 1}).as_object().cloned(),
            ..PhaseObject::default()
        }];
        let content = resolve(&spec, &BTreeMap::new(), "system").unwrap();
        let seen = content.observed_phases();
        assert_eq!(check_observed(&seen, &seen), Ok(()));
        assert_eq!(check_observed(&[], &seen), Ok(()));
        spec.phases[0].objects[0].object = json!({"a": 2}).as_object().cloned();
        let changed = resolve(&spec, &BTreeMap::new(), "system").unwrap();
        let text = check_observed(&seen, &changed.observed_phases())
            .unwrap_err()
            .to_string();
        assert!(text.starts_with(
            "resolved content of 1 phase(s) has changed: phase \"deploy\" (expected digest sha256:"
        ));
        let text = check_observed(&seen, &[]).unwrap_err().to_string();
        assert_eq!(text, "number of phases has changed (expected 1 phases, got 0)");
    }
}
