//! The bundle that a revision is made from, and what of the newest revision the next one inherits.

use olm_api::ClusterObjectSet;
use olm_api::cluster_extension::BundleMetadata;
use olm_api::names::{annotation, is_name};
use olm_version::Release;

/// The bundle that a revision was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleIdentity {
    /// The package.
    pub package: String,
    /// Its name, version and release.
    pub metadata: BundleMetadata,
    /// Its image.
    pub image: String,
}

impl BundleIdentity {
    /// What a revision's annotations say.
    pub fn of(set: &ClusterObjectSet) -> Self {
        let text = |key: &str| set.annotation(key).unwrap_or_default().to_owned();
        Self {
            package: text(annotation::PACKAGE_NAME),
            metadata: BundleMetadata {
                name: text(annotation::BUNDLE_NAME),
                version: text(annotation::BUNDLE_VERSION),
                release: set.annotation(annotation::BUNDLE_RELEASE).map(str::to_owned),
            },
            image: text(annotation::BUNDLE_REFERENCE),
        }
    }

    /// Whether the API server takes it in a status: it does not take a bundle without a name, a version that does not
    /// begin with a number, or a release that is none.
    pub fn can_be_told(&self) -> bool {
        let BundleMetadata {
            name,
            version,
            release,
        } = &self.metadata;
        !name.is_empty()
            && version.starts_with(|first: char| first.is_ascii_digit())
            && release
                .as_deref()
                .is_none_or(|release| Release::parse(release).is_ok())
    }
}

/// The bundle after which the roles of the wanted bundle are named, when it is another one: that of the first revision of
/// a line of upgrades. An account that holds rights to these roles by name has them in the next version, too.
pub fn roles_named_after<'a>(
    latest: Option<&'a ClusterObjectSet>,
    wanted: &BundleIdentity,
) -> Option<&'a str> {
    let latest =
        latest.filter(|set| set.annotation(annotation::PACKAGE_NAME) == Some(wanted.package.as_str()))?;
    let inherited = latest.annotation(annotation::ROLES_NAMED_AFTER);
    let named = inherited.or_else(|| latest.annotation(annotation::BUNDLE_NAME));
    named.filter(|name| !name.is_empty() && (inherited.is_some() || *name != wanted.metadata.name))
}

/// The name of the OperatorCondition that the operator of a bundle reads, given the newest revision: content of a bundle
/// that is there already stays as it is.
pub fn operator_condition<'a>(
    latest: Option<&'a ClusterObjectSet>,
    bundle: &'a BundleIdentity,
) -> Option<&'a str> {
    match latest {
        Some(set) if BundleIdentity::of(set).metadata == bundle.metadata => {
            set.annotation(annotation::OPERATOR_CONDITION)
        }
        _ => Some(bundle.metadata.name.as_str()).filter(|name| is_name(name)),
    }
}
