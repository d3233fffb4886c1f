//! The request and the installed bundle.

use olm_api::cluster_extension::{self, BundleMetadata, CatalogFilter};
use olm_version::{BuildMetadata, VersionRelease, VersionReleaseError};

use crate::package::{Candidate, ReleaseField};
use crate::selector::Selector;

/// Whether the catalog's update edges are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpgradeConstraintPolicy {
    /// Only a bundle that an edge leads to may follow the installed one.
    #[default]
    CatalogProvided,
    /// Any bundle may follow. The user is responsible.
    SelfCertified,
}

/// The request of an extension. A bundle must pass all filters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The package.
    pub package: &'a str,
    /// A version or a range of versions; `None` for any.
    pub version: Option<&'a str>,
    /// The channels that supply bundles and edges; empty for all.
    pub channels: &'a [String],
    /// The catalogs to choose from; `None` for all.
    pub selector: Option<&'a Selector>,
    /// Whether edges are enforced.
    pub policy: UpgradeConstraintPolicy,
}

impl<'a> Request<'a> {
    /// The request of an extension. An empty version is ignored.
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

/// The installed bundle.
#[derive(Clone, Copy, Debug)]
pub struct Installed<'a> {
    /// The name, to which `replaces` and `skips` refer.
    pub name: &'a str,
    /// The recorded version.
    pub version: &'a str,
    /// The recorded release; `None` if it is the build metadata of the version.
    pub release: Option<&'a str>,
}

impl Installed<'_> {
    /// The version and release.
    ///
    /// # Errors
    /// The recorded version or release is invalid.
    pub fn version_release(&self) -> Result<VersionRelease, VersionReleaseError> {
        match self.release {
            Some(release) => VersionRelease::explicit(self.version, release),
            None => VersionRelease::parse(self.version, BuildMetadata::Release),
        }
    }
}

impl Candidate {
    /// The bundle as it is recorded after an installation. An unreadable version, which resolution refuses, is left
    /// empty.
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
