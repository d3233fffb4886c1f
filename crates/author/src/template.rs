//! Catalog templates: short texts from which catalogs are rendered.
//!
//! A template names bundle images; the caller supplies their content ([`Bundles`]), so that nothing here accesses a
//! registry. There are three kinds, with different values of `schema`:
//!
//! - [`Basic`]: blobs of a catalog in which a bundle consists only of its image.
//! - [`Semver`](semver::Semver): lists of bundles from which channels and their edges follow by version.
//! - [`Substitutes`]: a catalog, and bundles that substitute for others in it.

pub mod convert;
pub mod semver;

pub(crate) mod kind;

mod basic;
mod substitutes;

use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::Bundle;
use olm_fbc::catalog::{Catalog, LoadError};
use olm_fbc::decode::{RawText, ShapeError, decode, members};
use olm_fbc::meta::{json_text, limits, metas};
use olm_yaml::DocumentContent;

pub use basic::Basic;
pub use kind::Kind;
pub use substitutes::{Substitute, Substitutes, SubstitutionError};

/// The content of bundle images: the bundles, or the reason why they are unknown.
pub type Bundles = BTreeMap<String, Result<Vec<Bundle>, String>>;

/// The reason why a template cannot be read or rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The text is neither YAML nor JSON.
    #[error("decoding template input: {0}")]
    Syntax(olm_yaml::Error),
    /// The template has no schema.
    #[error("template input missing required 'schema' field")]
    NoSchema,
    /// The schema is unknown.
    #[error("unknown template schema: {0}")]
    UnknownSchema(String),
    /// A field has the wrong type or is unknown.
    #[error("unmarshalling template: {0}")]
    Shape(ShapeError),
    /// The preference cannot be met, because there are no channels of that kind.
    #[error(
        "schema attribute mismatch: DefaultChannelTypePreference set to '{0}' doesn't make sense if not generating \
         {0}-version channels"
    )]
    Preference(&'static str),
    /// The preference is not a kind of channel.
    #[error(
        "unknown DefaultChannelTypePreference: {}\nValid values are 'major' or 'minor'",
        olm_version::quoted(.0)
    )]
    UnknownPreference(String),
    /// An entry is not a blob of a catalog.
    #[error("entries[{index}]: {error}")]
    Entry {
        /// The index of the entry, from 0.
        index: usize,
        /// The fault.
        error: LoadError,
    },
    /// A bundle of a basic template has more fields than its image.
    #[error("unexpected fields present in basic template bundle: entries may only hold schema and image{}", named(.0))]
    BundleFields(String),
    /// A bundle image could not be rendered.
    #[error("failed to render bundle image reference {}: {error}", olm_version::quoted(.image))]
    Bundle {
        /// The image.
        image: String,
        /// The reason.
        error: String,
    },
    /// A bundle image does not contain exactly one bundle.
    #[error("bundle reference {} resulted in {count} bundles, expected 1", olm_version::quoted(.image))]
    BundleCount {
        /// The image.
        image: String,
        /// The number of bundles in the image.
        count: usize,
    },
    /// A semver template names no bundle.
    #[error("render: no bundles specified or no bundles could be rendered")]
    NoBundles,
    /// The bundles of a semver template do not fit together.
    #[error("render: unable to post-process bundle info: {0}")]
    Versions(#[from] semver::VersionsError),
    /// The catalog that substitutions change is not valid; one line for each fault.
    #[error("render: entries are not valid FBC: {0}")]
    Catalog(String),
    /// A substitution is not possible.
    #[error("render: {0}")]
    Substitution(Box<SubstitutionError>),
}

impl From<SubstitutionError> for TemplateError {
    fn from(error: SubstitutionError) -> Self {
        Self::Substitution(Box::new(error))
    }
}

fn named(name: &str) -> String {
    if name.is_empty() {
        String::new()
    } else {
        format!(" (bundle {})", olm_version::quoted(name))
    }
}

/// A template that has been read.
#[derive(Debug, Clone)]
pub enum Template {
    /// A template of the kind [`Kind::Basic`].
    Basic(Basic),
    /// A template of the kind [`Kind::Semver`].
    Semver(semver::Semver),
    /// A template of the kind [`Kind::Substitutes`].
    Substitutes(Substitutes),
}

impl Template {
    /// Reads the first document of `text`.
    ///
    /// # Errors
    /// When it is not a template of a known kind.
    pub fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let json = first_document(text)?;
        let mut schema = String::new();
        members(&json, |key, value| {
            if key == "schema" {
                schema = decode(value)?;
            }
            Ok(())
        })
        .map_err(TemplateError::Shape)?;
        if schema.is_empty() {
            return Err(TemplateError::NoSchema);
        }
        match Kind::ALL.into_iter().find(|kind| kind.schema() == schema) {
            Some(Kind::Basic) => Basic::from_json(&json).map(Self::Basic),
            Some(Kind::Semver) => semver::Semver::from_json(&json).map(Self::Semver),
            Some(Kind::Substitutes) => Substitutes::from_json(&json).map(Self::Substitutes),
            None => Err(TemplateError::UnknownSchema(schema)),
        }
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Basic(_) => Kind::Basic,
            Self::Semver(_) => Kind::Semver,
            Self::Substitutes(_) => Kind::Substitutes,
        }
    }

    /// The bundle images that rendering needs, each once, in the order of the template.
    pub fn images(&self) -> Vec<&str> {
        let named = match self {
            Self::Basic(basic) => basic.images(),
            Self::Semver(semver) => semver.images(),
            Self::Substitutes(substitutes) => substitutes.images(),
        };
        let mut seen = BTreeSet::new();
        named.into_iter().filter(|image| seen.insert(*image)).collect()
    }

    /// The catalog that the template renders.
    ///
    /// # Errors
    /// When a bundle is unknown or does not match.
    pub fn render(&self, bundles: &Bundles) -> Result<Catalog, TemplateError> {
        match self {
            Self::Basic(basic) => basic.render(bundles),
            Self::Semver(semver) => semver.render(bundles),
            Self::Substitutes(substitutes) => substitutes.render(bundles),
        }
    }
}

/// The JSON text of the first document with content.
fn first_document(text: &[u8]) -> Result<String, TemplateError> {
    for document in olm_yaml::documents(text, &limits()) {
        let json = match document.map_err(TemplateError::Syntax)?.content {
            DocumentContent::Json(text) => text,
            DocumentContent::Yaml(value) => json_text(&value),
        };
        if json.trim() != "null" {
            return Ok(json);
        }
    }
    Err(TemplateError::NoSchema)
}

/// The blobs in the texts of `entries`.
fn load(entries: &[RawText]) -> Result<Catalog, TemplateError> {
    let mut catalog = Catalog::default();
    for (index, entry) in entries.iter().enumerate() {
        for meta in metas(entry.0.as_bytes(), &limits()) {
            meta.map_err(LoadError::from)
                .and_then(|meta| catalog.add(meta))
                .map_err(|error| TemplateError::Entry { index, error })?;
        }
    }
    Ok(catalog)
}

/// The bundles of an image.
fn rendered<'a>(image: &str, bundles: &'a Bundles) -> Result<&'a [Bundle], String> {
    match bundles.get(image) {
        Some(Ok(bundles)) => Ok(bundles),
        Some(Err(error)) => Err(error.clone()),
        None => Err("the image is not known".to_owned()),
    }
}
