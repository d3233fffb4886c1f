//! Blobs, typed by their schema.

pub mod bundle;
pub mod channel;
mod csv_metadata;
pub mod deprecation;
pub mod package;
pub mod property;
pub mod version;

use crate::decode::ShapeError;
use crate::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE};
use bundle::Bundle;
use channel::Channel;
use deprecation::Deprecations;
use package::{Icon, Package};

pub use csv_metadata::metadata_of_csv;

/// One blob of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blob {
    /// `olm.package`.
    Package(Package),
    /// `olm.channel`.
    Channel(Channel),
    /// `olm.bundle`.
    Bundle(Bundle),
    /// `olm.deprecations`.
    Deprecations(Deprecations),
    /// Any other schema, which is kept and served but not understood.
    Other,
}

/// The reason why a blob does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The schema is missing or empty.
    #[error("object '{0}' is missing root schema field")]
    NoSchema(String),
    /// A field of a package has the wrong type.
    #[error("parse package: {0}")]
    Package(ShapeError),
    /// A field of a channel has the wrong type.
    #[error("parse channel: {0}")]
    Channel(ShapeError),
    /// A field of a bundle has the wrong type.
    #[error("parse bundle: {0}")]
    Bundle(ShapeError),
    /// A field of deprecations has the wrong type.
    #[error("parse deprecation: {0}")]
    Deprecations(ShapeError),
    /// A manifest inside a bundle cannot be read.
    #[error("read bundle objects: package {package:?}, bundle {bundle:?}: {error}")]
    BundleObject {
        /// The bundle's package.
        package: String,
        /// The bundle.
        bundle: String,
        /// The fault.
        error: ShapeError,
    },
}

impl Blob {
    /// Reads the blob `json`, whose schema is `schema`.
    ///
    /// # Errors
    /// When the schema is empty or a field has the wrong type.
    pub fn from_json(schema: &str, json: &str) -> Result<Self, BlobError> {
        match schema {
            "" => Err(BlobError::NoSchema(json.to_owned())),
            SCHEMA_PACKAGE => Package::from_json(json)
                .map(Self::Package)
                .map_err(BlobError::Package),
            SCHEMA_CHANNEL => Channel::from_json(json)
                .map(Self::Channel)
                .map_err(BlobError::Channel),
            SCHEMA_DEPRECATIONS => Deprecations::from_json(json)
                .map(Self::Deprecations)
                .map_err(BlobError::Deprecations),
            SCHEMA_BUNDLE => Bundle::from_json(json)
                .map(Self::Bundle)
                .map_err(BlobError::Bundle),
            _ => Ok(Self::Other),
        }
    }
}

impl Blob {
    /// Decodes the base64 content of the blob: the icon of a package, the manifests of a bundle.
    ///
    /// # Errors
    /// When it is not base64.
    pub(crate) fn check_contents(&self) -> Result<(), BlobError> {
        match self {
            Self::Package(package) => match package.icon.as_ref().map(Icon::data) {
                Some(Err(error)) => Err(BlobError::Package(error.within("icon"))),
                _ => Ok(()),
            },
            Self::Bundle(bundle) => match bundle.objects() {
                Ok(_) => Ok(()),
                Err(error) => Err(BlobError::BundleObject {
                    package: bundle.package.clone(),
                    bundle: bundle.name.clone(),
                    error,
                }),
            },
            Self::Channel(_) | Self::Deprecations(_) | Self::Other => Ok(()),
        }
    }
}
