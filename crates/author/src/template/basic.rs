//! Blobs of a catalog in which a bundle consists only of its image.

use olm_fbc::catalog::Catalog;
use olm_fbc::decode::{RawText, decode};

use super::{Bundles, TemplateError, load, rendered};

#[derive(Default)]
struct BasicTemplate {
    entries: Vec<RawText>,
}
olm_fbc::decode_object!(BasicTemplate { "entries" => entries });

/// A template of the kind [`Kind::Basic`](super::Kind::Basic).
#[derive(Debug, Clone)]
pub struct Basic {
    /// The entries; bundles have an image and at most a name.
    catalog: Catalog,
}

impl Basic {
    pub(super) fn from_json(json: &str) -> Result<Self, TemplateError> {
        let document: BasicTemplate = decode(json).map_err(TemplateError::Shape)?;
        let catalog = load(&document.entries)?;
        let fault = catalog.bundles.iter().find(|bundle| {
            bundle.image.is_empty()
                || !bundle.package.is_empty()
                || !bundle.properties.is_empty()
                || !bundle.related_images.is_empty()
        });
        match fault {
            Some(bundle) => Err(TemplateError::BundleFields(bundle.name.clone())),
            None => Ok(Self { catalog }),
        }
    }

    pub(super) fn images(&self) -> Vec<&str> {
        let bundles = self.catalog.bundles.iter();
        bundles.map(|bundle| bundle.image.as_str()).collect()
    }

    pub(super) fn render(&self, bundles: &Bundles) -> Result<Catalog, TemplateError> {
        let mut catalog = self.catalog.clone();
        catalog.bundles.clear();
        for entry in &self.catalog.bundles {
            let found = rendered(&entry.image, bundles).map_err(|error| TemplateError::Bundle {
                image: entry.image.clone(),
                error,
            })?;
            catalog.bundles.extend_from_slice(found);
        }
        Ok(catalog)
    }
}
