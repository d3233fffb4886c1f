//! The request and the installed bundle.

use olm_api::cluster_extension::{self, BundleMetadata, CatalogFilter};
use olm_version::{BuildMetadata, VersionRelease, VersionReleaseError};

use crate::package::{Candidate, ReleaseField};
use crate::selector::Selector;

/// Whether the catalog's update edges bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpgradeConstraintPolicy {
    /// Only a bundle that an edge leads to may follow the installed one.
    #[default]
    CatalogProvided,
    /// Any bundle may; the user answers for it.
    SelfCertified,
}

/// What an extension asks for. All given filters hold together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The package.
    pub package: &'a str,
    /// A version or a range of versions; none means any.
    pub version: Option<&'a str>,
    /// The channels that supply bundles and edges; none means all.
    pub channels: &'a [String],
    /// The catalogs to choose from; none means all.
    pub selector: Option<&'a Selector>,
    /// Whether edges bind.
    pub policy: UpgradeConstraintPolicy,
}

impl<'a> Request<'a> {
    /// What an extension asks for. An empty version is none.
    pub fn of(filter: &'a CatalogFilter, selector: Option<&'a Selector>) -> Self {
        Self {
            package: &filter.package_name,
            version: filter.version.as_deref().filter(|version| !version.is_empty()),
            channels: &filter.channels,
            selector,
            policy: match filter.upgrade_constraint_policy {
                cluster_extension::UpgradeConstraintPolicy::CatalogProvided => {
                    UpgradeConstraintPolicy::CatalogProvided
                }
                cluster_extension::UpgradeConstraintPolicy::SelfCertified => {
                    UpgradeConstraintPolicy::SelfCertified
                }
            },
        }
    }
}

/// The bundle that is installed.
#[derive(Clone, Copy, Debug)]
pub struct Installed<'a> {
    /// The bundle's name, which `replaces` and `skips` refer to.
    pub name: &'a str,
    /// The version as it was recorded.
    pub version: &'a str,
    /// The release as it was recorded; none when it is folded into the version as build metadata.
    pub release: Option<&'a str>,
}

impl Installed<'_> {
    /// The version and release.
    ///
    /// # Errors
    /// When what was recorded is no version or no release.
    pub fn version_release(&self) -> Result<VersionRelease, VersionReleaseError> {
        match self.release {
            Some(release) => VersionRelease::explicit(self.version, release),
            None => VersionRelease::parse(self.version, BuildMetadata::Release),
        }
    }
}

impl Candidate {
    /// The bundle as it is recorded once it is installed. Without a readable version, which resolution refuses, it has none.
    pub fn recorded(&self, releases: ReleaseField) -> BundleMetadata {
        let (version, release) = match (&self.version, releases) {
            (Ok(version), ReleaseField::Counts) => (
                version.version.to_string(),
                version
                    .release
                    .as_ref()
                    .map(|release| release.as_str().to_owned()),
            ),
            (Ok(version), ReleaseField::Ignored) => (version.to_string(), None),
            (Err(_), _) => (String::new(), None),
        };
        BundleMetadata {
            name: self.name.clone(),
            version,
            release,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicitly_empty_version_is_no_restriction() {
        let filter = CatalogFilter {
            version: Some(String::new()),
            ..CatalogFilter::default()
        };
        assert_eq!(Request::of(&filter, None).version, None);
    }
}
