//! The descriptive part of a bundle's `ClusterServiceVersion`.

use olm_fbc::blob::metadata_of_csv;
use olm_fbc::property::TYPE_CSV_METADATA;
use olm_fbc::{Bundle, Property};
use serde_json::Value;

/// The texts of a `ClusterServiceVersion` in the form of the property `olm.csv.metadata`. Fields of another type than
/// expected are as good as absent.
#[derive(Debug, Clone, Default)]
pub(crate) struct CsvMetadata(Value);

impl CsvMetadata {
    /// The metadata of the bundle: from its property `olm.csv.metadata`, otherwise from its manifests.
    pub(crate) fn of(bundle: &Bundle) -> Option<Self> {
        match property(bundle) {
            Some(property) => Self::of_property(property),
            None => Some(Self::of_csv(&bundle.csv()?)),
        }
    }

    /// The metadata of the bundle, like [`Self::of`], with a `ClusterServiceVersion` that is already parsed.
    pub(crate) fn beside_csv(bundle: &Bundle, csv: Option<&Value>) -> Option<Self> {
        match property(bundle) {
            Some(property) => Self::of_property(property),
            None => csv.map(Self::of_csv),
        }
    }

    fn of_property(property: &Property) -> Option<Self> {
        serde_json::from_str(&property.value).ok().map(Self)
    }

    /// The metadata of a `ClusterServiceVersion`.
    pub(crate) fn of_csv(csv: &Value) -> Self {
        Self(metadata_of_csv(csv))
    }

    /// The text at a JSON pointer; empty if there is none.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.0
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The elements of the list at a JSON pointer.
    pub(crate) fn items(&self, pointer: &str) -> impl Iterator<Item = &Value> {
        let list = self.0.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten()
    }

    /// An annotation; empty if there is none.
    pub(crate) fn annotation(&self, name: &str) -> &str {
        let annotations = self.0.get("annotations");
        let value = annotations.and_then(|annotations| annotations.get(name));
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// The values of an annotation that contains a comma-separated list.
    pub(crate) fn listed(&self, annotation: &str) -> impl Iterator<Item = &str> {
        let words = self.annotation(annotation).split(',').map(str::trim);
        words.filter(|word| !word.is_empty())
    }

    /// The install modes that are supported.
    pub(crate) fn install_modes(&self) -> impl Iterator<Item = &str> {
        self.items("/installModes")
            .filter(|mode| mode.get("supported").and_then(Value::as_bool) == Some(true))
            .filter_map(|mode| mode.get("type").and_then(Value::as_str))
    }
}

/// The property with the metadata of a bundle, if any.
fn property(bundle: &Bundle) -> Option<&Property> {
    bundle
        .properties
        .iter()
        .find(|property| property.kind == TYPE_CSV_METADATA)
}
