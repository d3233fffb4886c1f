//! Catalogs of an older form in the newer one.

use olm_fbc::property::{TYPE_BUNDLE_OBJECT, TYPE_CSV_METADATA};
use olm_fbc::{Bundle, Catalog, Property};

/// The level of a migration; a level includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No migration.
    #[default]
    None,
    /// Bundles contain the metadata of their `ClusterServiceVersion` instead of all their manifests.
    BundleObjectToCsvMetadata,
}

impl Level {
    /// Every level, in order.
    pub const ALL: [Self; 2] = [Self::None, Self::BundleObjectToCsvMetadata];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BundleObjectToCsvMetadata => "bundle-object-to-csv-metadata",
        }
    }
}

/// Brings every bundle to the level.
pub fn migrate(catalog: &mut Catalog, level: Level) {
    if level >= Level::BundleObjectToCsvMetadata {
        for bundle in &mut catalog.bundles {
            describe(bundle);
        }
    }
}

/// Replaces all manifests by the metadata of the `ClusterServiceVersion`. Bundles without an image need their
/// manifests; those that already have metadata, or no `ClusterServiceVersion`, stay unchanged.
fn describe(bundle: &mut Bundle) {
    let described = bundle
        .properties
        .iter()
        .any(|property| property.kind == TYPE_CSV_METADATA);
    if bundle.image.is_empty() || described {
        return;
    }
    let Some(description) = bundle.csv_metadata() else {
        return;
    };
    let properties = std::mem::take(&mut bundle.properties).into_vec();
    bundle.properties = properties
        .into_iter()
        .filter(|property| property.kind != TYPE_BUNDLE_OBJECT)
        .chain([Property::new(TYPE_CSV_METADATA, description)])
        .collect();
}

#[cfg(test)]
mod tests {
    use olm_fbc::meta::limits;
    use olm_fbc::{Catalog, Property};

    use super::{Level, migrate};
    use crate::write;

    fn check(image: &str, extra: &str, level: Level, expected: &str) {
        let manifest = "kind: ClusterServiceVersion\nspec:\n  displayName: D\n  icon: [{base64data: eA==}]\n";
        let object = Property::for_object(manifest.as_bytes()).value;
        let blob = format!(
            "{{\"schema\":\"olm.bundle\",\"name\":\"b\",\"package\":\"p\",\"image\":\"{image}\",\"properties\":[\
             {{\"type\":\"olm.bundle.object\",\"value\":{object}}},{{\"type\":\"x\",\"value\":1}}{extra}]}}"
        );
        let mut catalog = Catalog::default();
        catalog.load(blob.as_bytes(), &limits()).expect("the blob loads");
        migrate(&mut catalog, level);
        let rendered = write::json_lines(&catalog);
        assert!(rendered.contains(expected), "{rendered}");
        assert_eq!(
            rendered.contains("olm.bundle.object"),
            !expected.contains("displayName"),
            "{rendered}"
        );
    }

    #[test]
    fn one_description_takes_the_place_of_all_manifests() {
        let described = "{\"type\":\"x\",\"value\":1},{\"type\":\"olm.csv.metadata\",\"value\":\
                         {\"apiServiceDefinitions\":{},\"crdDescriptions\":{},\"displayName\":\"D\",\"provider\":{}}}]";
        check("i", "", Level::BundleObjectToCsvMetadata, described);
        check("i", "", Level::None, "olm.bundle.object");
    }

    #[test]
    fn a_bundle_that_needs_its_manifests_keeps_them() {
        check("", "", Level::BundleObjectToCsvMetadata, "olm.bundle.object");
        let extra = ",{\"type\":\"olm.csv.metadata\",\"value\":{}}";
        check("i", extra, Level::BundleObjectToCsvMetadata, "olm.bundle.object");
    }
}
