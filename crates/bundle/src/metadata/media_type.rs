//! The formats of bundles, by media type.
//!
//! Further formats belong here: [`parse`](crate::parse) reads a format into a bundle, and everything after it is the
//! same.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::annotations::{REGISTRY_V1, annotation_keys};
use crate::files::{ANNOTATIONS, BundleFiles};

/// The format of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// A ClusterServiceVersion and its objects; also the default.
    RegistryV1,
    /// Plain objects.
    Plain,
    /// A Helm chart.
    Helm,
    /// Any other format.
    Other(String),
}

impl Format {
    /// The format with that media type.
    #[must_use]
    pub fn of(media_type: Option<&str>) -> Self {
        let Some(media_type) = media_type else {
            return Self::RegistryV1;
        };
        let family = media_type
            .split(['+', '.', '/'])
            .find(|part| matches!(*part, "plain" | "helm"));
        match (media_type, family) {
            (REGISTRY_V1, _) => Self::RegistryV1,
            (_, Some("plain")) => Self::Plain,
            (_, Some(_)) => Self::Helm,
            (other, None) => Self::Other(other.to_owned()),
        }
    }
}

/// The labels of a bundle's image. If neither labels nor annotations name a media type, the type of the artifact does:
/// a chart pushed by Helm has no labels and annotations.
#[must_use]
pub fn labels_of<'a>(
    labels: &'a BTreeMap<String, String>,
    artifact_type: Option<&str>,
    files: &BundleFiles,
) -> Cow<'a, BTreeMap<String, String>> {
    let says = labels.contains_key(annotation_keys::MEDIA_TYPE) || files.contains_key(ANNOTATIONS);
    match artifact_type {
        Some(artifact_type) if !says => {
            let mut labels = labels.clone();
            labels.insert(annotation_keys::MEDIA_TYPE.to_owned(), artifact_type.to_owned());
            Cow::Owned(labels)
        }
        _ => Cow::Borrowed(labels),
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegistryV1 => f.write_str("registry+v1 bundles"),
            Self::Plain => f.write_str("bundles of plain manifests"),
            Self::Helm => f.write_str("Helm charts"),
            Self::Other(other) => write!(f, "bundles of media type {other:?}"),
        }
    }
}
