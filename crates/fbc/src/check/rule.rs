//! The rules by name.

/// The severity of a finding; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The bundle or catalog is invalid.
    Error,
    /// The bundle or catalog is valid, but should be improved.
    Warning,
}

impl Severity {
    /// The name, as reports show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The stage at which a fault is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The blob cannot be loaded by type.
    Load,
    /// The catalog breaks a rule.
    Validate,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident, $id:literal;)+) => {
        /// A rule that a catalog can break.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name of the rule in reports; it never changes its meaning.
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)+ }
            }
        }
    };
}

rules! {
    /// A file is a stream of JSON or YAML objects with unique keys.
    Syntax, "syntax";
    /// The catalog is not empty.
    CatalogEmpty, "catalog-empty";
    /// The names and edges of a catalog fit into the memory of the process that compares them.
    CatalogSize, "catalog-size";
    /// The keys of an object are unique.
    KeyRepeated, "key-repeated";
    /// A schema is one that is read, or has a prefix of its own.
    SchemaUnknown, "schema-unknown";
    /// The fields of a blob are known.
    FieldUnknown, "field-unknown";
    /// A blob has a schema.
    Schema, "schema";
    /// The fields of a blob have the types of its schema.
    Shape, "shape";
    /// A package that is given is not empty.
    BlobPackage, "blob-package";
    /// Properties are a list.
    Properties, "properties";
    /// A property has a type.
    PropertyType, "property-type";
    /// The value of a property is not null.
    PropertyNull, "property-null";
    /// The value of a property exists and matches its type.
    PropertyValue, "property-value";
    /// A package has a name.
    PackageName, "package-name";
    /// The name of a package is an RFC 1123 label.
    PackageLabel, "package-label";
    /// The data of an icon match its media type.
    PackageIcon, "package-icon";
    /// A package is defined once.
    PackageDuplicate, "package-duplicate";
    /// A package has a default channel.
    DefaultChannel, "default-channel";
    /// The default channel is one of the package's channels.
    DefaultChannelUnknown, "default-channel-unknown";
    /// A package has channels.
    PackageWithoutChannel, "package-without-channel";
    /// A package has bundles.
    PackageWithoutBundle, "package-without-bundle";
    /// A channel belongs to a package of the catalog.
    ChannelPackage, "channel-package";
    /// A channel has a name.
    ChannelName, "channel-name";
    /// A channel is defined once.
    ChannelDuplicate, "channel-duplicate";
    /// A channel has entries.
    ChannelEmpty, "channel-empty";
    /// An entry has a name.
    EntryName, "entry-name";
    /// A bundle occurs once in a channel.
    EntryDuplicate, "entry-duplicate";
    /// The bundle of an entry is in the catalog.
    EntryBundle, "entry-bundle";
    /// `replaces` and `skipRange` are not empty if present.
    EntryEdge, "entry-edge";
    /// The names in `skips` are not empty.
    EntrySkip, "entry-skip";
    /// `skipRange` is a range of versions.
    EntrySkipRange, "entry-skip-range";
    /// A channel has one head, no circles, and no stranded entries.
    ChannelGraph, "channel-graph";
    /// A bundle names its package.
    BundlePackage, "bundle-package";
    /// A bundle belongs to a package of the catalog.
    BundlePackageUnknown, "bundle-package-unknown";
    /// A bundle is defined once.
    BundleDuplicate, "bundle-duplicate";
    /// A bundle is in some channel.
    BundleOrphan, "bundle-orphan";
    /// A bundle has an image, or at least manifests.
    BundleImage, "bundle-image";
    /// A bundle has an image, even when it carries its manifests.
    BundleImageOnly, "bundle-image-only";
    /// Image references can be parsed.
    ImageReference, "image-reference";
    /// A related image names an image.
    RelatedImage, "related-image";
    /// A bundle has exactly one `olm.package` property.
    PackageProperty, "package-property";
    /// The `olm.package` property names the bundle's package.
    PackagePropertyName, "package-property-name";
    /// The version is a semantic version.
    Version, "version";
    /// The release is a release.
    Release, "release";
    /// A bundle with a release is named after its package, version and release.
    ReleaseName, "release-name";
    /// A version with a release has no build metadata.
    ReleaseBuild, "release-build";
    /// A version and release occurs once in a package.
    VersionDuplicate, "version-duplicate";
    /// A provided API is a valid group, version and kind.
    Gvk, "gvk";
    /// A required package is named with a valid range.
    PackageRequired, "package-required";
    /// A required API is a valid group, version and kind.
    GvkRequired, "gvk-required";
    /// A constraint is one, and no longer than it may be.
    Constraint, "constraint";
    /// Deprecations belong to a package of the catalog.
    DeprecationPackage, "deprecation-package";
    /// A package has its deprecations in one blob.
    DeprecationDuplicate, "deprecation-duplicate";
    /// Deprecations have no name of their own.
    DeprecationName, "deprecation-name";
    /// Deprecations have entries.
    DeprecationEmpty, "deprecation-empty";
    /// A deprecated object exists, is deprecated once, and has a schema that can be deprecated.
    DeprecationReference, "deprecation-reference";
    /// A deprecation has a message.
    DeprecationMessage, "deprecation-message";
}

impl Rule {
    /// The severity of a violation of the rule.
    pub fn severity(self) -> Severity {
        match self {
            Self::CatalogEmpty
            | Self::KeyRepeated
            | Self::SchemaUnknown
            | Self::FieldUnknown
            | Self::DeprecationEmpty
            | Self::PackageIcon => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The stage at which a violation of the rule is found.
    pub fn stage(self) -> Stage {
        match self {
            Self::Syntax | Self::Schema | Self::Shape => Stage::Load,
            _ => Stage::Validate,
        }
    }

    /// The remedy for a violation of the rule, unless the fault implies it.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::Syntax => "list files that do not belong to the catalog in .indexignore",
            Self::CatalogEmpty => {
                "name the directory that holds the catalog, and look into its .indexignore; a new catalog begins with `olm \
                 catalog init`, and needs an olm.channel and an olm.bundle beside the olm.package: `olm catalog template` \
                 and `olm bundle convert` make them of bundles"
            }
            Self::Schema => "give the object a schema, or remove the empty document",
            Self::BundleOrphan => "add an entry for the bundle to a channel, or remove the bundle",
            Self::BundleImage | Self::BundleImageOnly => {
                "push the bundle and give its reference as image; templates and `olm catalog render` take it from \
                 --image-ref-template"
            }
            Self::EntryBundle => "add the olm.bundle blob, or remove the entry",
            Self::DefaultChannelUnknown => "add the channel, or name another one in defaultChannel",
            Self::ChannelGraph => "let another entry of the channel replace or skip every entry but one",
            Self::EntrySkipRange | Self::PackageRequired => {
                "use a range such as `>=1.0.0 <2.0.0`: spaces between its parts, no commas, full versions"
            }
            Self::Constraint => {
                "use exactly one of all, any, not, cel, package and gvk; clusters refuse a bundle with any other constraint"
            }
            Self::PackageIcon => "`olm catalog init --icon FILE` writes an icon with its media type",
            Self::VersionDuplicate => "give each bundle of a package its own version",
            Self::PackageDuplicate | Self::BundleDuplicate | Self::ChannelDuplicate => {
                "remove one of them; a copy of a directory inside the catalog repeats its blobs"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Rule;

    #[test]
    fn every_rule_has_a_name_of_its_own() {
        let ids: HashSet<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
    }
}
