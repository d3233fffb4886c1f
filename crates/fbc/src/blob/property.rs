//! Properties: typed facts about a package, channel or bundle.

use crate::canonical::write_string;
use crate::decode::{Decode, RawText, ShapeError, decode, decode_object};

/// The type of the property that names a bundle's package and version.
pub const TYPE_PACKAGE: &str = "olm.package";
/// The type of the property that requires another package.
pub const TYPE_PACKAGE_REQUIRED: &str = "olm.package.required";
/// The type of the property that names a provided API.
pub const TYPE_GVK: &str = "olm.gvk";
/// The type of the property that requires an API.
pub const TYPE_GVK_REQUIRED: &str = "olm.gvk.required";
/// The type of the property that carries a manifest of the bundle.
pub const TYPE_BUNDLE_OBJECT: &str = "olm.bundle.object";
/// The type of the property that carries the descriptive part of the bundle's `ClusterServiceVersion`.
pub const TYPE_CSV_METADATA: &str = "olm.csv.metadata";
/// The type of the property that carries a generic constraint.
pub const TYPE_CONSTRAINT: &str = "olm.constraint";

/// One property: a type, and a value whose meaning the type defines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Property {
    /// The type; not empty in a valid catalog.
    pub kind: String,
    /// The JSON text of the value; empty when the property has none.
    pub value: Box<str>,
}

impl Property {
    /// A property of `kind` whose value is the JSON text `value`.
    pub fn new(kind: impl Into<String>, value: impl Into<Box<str>>) -> Self {
        Self {
            kind: kind.into(),
            value: value.into(),
        }
    }

    /// A property of the type [`TYPE_BUNDLE_OBJECT`] that carries a manifest.
    pub fn for_object(manifest: &[u8]) -> Self {
        let data = crate::base64_text::encode(manifest);
        Self::new(TYPE_BUNDLE_OBJECT, format!("{{\"data\":\"{data}\"}}"))
    }

    /// A property of the type [`TYPE_PACKAGE`]; an empty release is left out.
    pub fn for_package(package: &PackageProperty) -> Self {
        let mut members = vec![
            ("packageName", package.package_name.as_str()),
            ("version", &package.version),
        ];
        if !package.release.is_empty() {
            members.push(("release", &package.release));
        }
        Self::new(TYPE_PACKAGE, text_object(&members))
    }

    /// A property of the type [`TYPE_PACKAGE_REQUIRED`].
    pub fn for_package_required(required: &PackageRequired) -> Self {
        let members = [
            ("packageName", required.package_name.as_str()),
            ("versionRange", &required.version_range),
        ];
        Self::new(TYPE_PACKAGE_REQUIRED, text_object(&members))
    }

    /// A property of the type `kind`, [`TYPE_GVK`] or [`TYPE_GVK_REQUIRED`].
    pub fn for_gvk(kind: &str, gvk: &Gvk) -> Self {
        let members = [
            ("group", gvk.group.as_str()),
            ("kind", &gvk.kind),
            ("version", &gvk.version),
        ];
        Self::new(kind, text_object(&members))
    }

    /// The value as a [`PackageProperty`], regardless of the property's type.
    pub fn package(&self) -> Result<PackageProperty, ShapeError> {
        self.parse()
    }

    /// The value as a [`PackageRequired`], regardless of the property's type.
    pub(crate) fn package_required(&self) -> Result<PackageRequired, ShapeError> {
        self.parse()
    }

    /// The value as a [`PackageRequired`]. Its fields may also have the names in `metadata/dependencies.yaml`: `name`
    /// and `version`.
    pub fn package_required_in_any_spelling(&self) -> Result<PackageRequired, ShapeError> {
        self.parse::<AnySpelling>().map(|found| found.0)
    }

    /// The value as a [`Gvk`], regardless of the property's type.
    pub fn gvk(&self) -> Result<Gvk, ShapeError> {
        self.parse()
    }

    /// The manifest in the value of a [`TYPE_BUNDLE_OBJECT`] property, as JSON or YAML text.
    pub(crate) fn bundle_object(&self) -> Result<Vec<u8>, ShapeError> {
        let object: BundleObject = self.parse()?;
        crate::base64_text::decode(&object.data)
            .map_err(|error| ShapeError::new(format!("must be base64: {error}")).within("data"))
    }

    pub(crate) fn parse<T: Decode>(&self) -> Result<T, ShapeError> {
        self.well_formed()?;
        decode(&self.value)
    }

    /// Refuses a value that is missing or not JSON.
    pub fn well_formed(&self) -> Result<(), ShapeError> {
        if self.value.is_empty() {
            return Err(ShapeError::new("has no value"));
        }
        serde_json::from_str::<&serde_json::value::RawValue>(&self.value)
            .map(drop)
            .map_err(|error| ShapeError::new(format!("is not JSON: {error}")))
    }
}

/// The JSON text of an object of texts.
fn text_object(members: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    for (key, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        write_string(key, &mut text);
        text.push(':');
        write_string(value, &mut text);
    }
    text.push('}');
    text
}

impl Decode for Property {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut property = Self::default();
        crate::decode::members(raw, |key, value| {
            match key {
                "type" => property.kind = decode(value)?,
                // Only here, null is a value.
                "value" => property.value = RawText::decode(value)?.0,
                _ => {}
            }
            Ok(())
        })?;
        Ok(property)
    }
}

/// The value of an [`TYPE_PACKAGE`] property.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageProperty {
    /// The package that the bundle belongs to.
    pub package_name: String,
    /// The version of the bundle, strictly semver in a valid catalog.
    pub version: String,
    /// The release of that version; empty if there is none.
    pub release: String,
}
decode_object!(PackageProperty { "packagename" => package_name, "version" => version, "release" => release });

/// The value of an [`TYPE_PACKAGE_REQUIRED`] property.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageRequired {
    /// The package that must be installed.
    pub package_name: String,
    /// The accepted versions, in the grammar of `skipRange`.
    pub version_range: String,
}
decode_object!(PackageRequired { "packagename" => package_name, "versionrange" => version_range });

#[derive(Default)]
struct AnySpelling(PackageRequired);

impl Decode for AnySpelling {
    fn decode(raw: &str) -> Result<Self, ShapeError> {
        let mut required = PackageRequired::default();
        crate::decode::members(raw, |key, value| {
            match key {
                "packagename" | "name" => required.package_name = decode(value)?,
                "versionrange" | "version" => required.version_range = decode(value)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(Self(required))
    }
}

/// The value of an [`TYPE_GVK`] or [`TYPE_GVK_REQUIRED`] property.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The API version.
    pub version: String,
}
decode_object!(Gvk { "group" => group, "kind" => kind, "version" => version });

#[derive(Default)]
struct BundleObject {
    data: String,
}
decode_object!(BundleObject { "data" => data });
