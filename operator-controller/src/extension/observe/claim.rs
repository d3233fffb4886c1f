//! The rule that at most one extension owns a package.

use olm_api::ClusterExtension;
use olm_api::conditions::reason;

use crate::extension::failure::{Severity, StageError};

/// Another extension has the better claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "package {package:?} belongs to ClusterExtension {owner:?}: a package is installed once on a cluster; {}",
    next_step(.owner, *.precedence)
)]
pub(crate) struct ClaimError {
    pub(crate) package: String,
    /// The other extension.
    pub(crate) owner: String,
    /// Whether the other extension has revisions.
    pub(crate) precedence: ClaimPrecedence,
}

fn next_step(owner: &str, precedence: ClaimPrecedence) -> String {
    match precedence {
        ClaimPrecedence::Established => format!(
            "change ClusterExtension {owner} and delete this one. To free the package instead, run \
             `kubectl delete clusterextension {owner}`; that removes everything that it installed, including custom \
             resource definitions with all their objects"
        ),
        ClaimPrecedence::New => format!(
            "ClusterExtension {owner} has not installed anything yet; `kubectl describe clusterextension {owner}` says why. \
             Delete the one that you do not need"
        ),
    }
}

impl StageError for ClaimError {
    fn severity(&self) -> Severity {
        Severity::Waiting
    }

    fn reason(&self) -> &'static str {
        reason::RETRYING
    }
}

/// An extension that claims a package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub extension: &'a ClusterExtension,
    /// Whether it has revisions.
    pub precedence: ClaimPrecedence,
}

/// The precedence of a claim: whether the extension has revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimPrecedence {
    /// The extension has revisions.
    Established,
    /// The extension has no revisions.
    New,
}

/// The package that an extension claims.
pub(crate) fn wanted(extension: &ClusterExtension) -> Option<&str> {
    let catalog = extension.spec.source.catalog.as_ref();
    catalog.map(|catalog| catalog.package_name.as_str())
}

/// Checks whether another extension has a better claim to the package: one with revisions has precedence over one
/// without, then the older one, then the name.
pub(crate) fn package(ours: Claim<'_>, others: &[Claim<'_>]) -> Result<(), ClaimError> {
    let rank = |claim: &Claim<'_>| {
        let created = claim
            .extension
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        (claim.precedence, created, claim.extension.name().to_owned())
    };
    let Some(package) = wanted(ours.extension) else {
        return Ok(());
    };
    let rival = others
        .iter()
        .filter(|other| {
            other.extension.name() != ours.extension.name() && wanted(other.extension) == Some(package)
        })
        .min_by_key(|other| rank(other));
    match rival {
        Some(rival) if rank(rival) < rank(&ours) => Err(ClaimError {
            package: package.to_owned(),
            owner: rival.extension.name().to_owned(),
            precedence: rival.precedence,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::Time;
    use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec};

    use super::*;

    fn extension(name: &str, package: &str, second: i64) -> ClusterExtension {
        let mut spec = ClusterExtensionSpec::default();
        spec.source.catalog = Some(CatalogFilter {
            package_name: package.to_owned(),
            ..CatalogFilter::default()
        });
        let mut extension = ClusterExtension::new(name, spec);
        extension.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        extension
    }

    #[test]
    fn a_package_belongs_to_the_first_extension() {
        let (old, new, other) = (
            extension("b", "p", 1),
            extension("a", "p", 2),
            extension("c", "q", 0),
        );
        let claim = |extension, precedence| Claim {
            extension,
            precedence,
        };
        let all = [
            claim(&old, ClaimPrecedence::New),
            claim(&new, ClaimPrecedence::New),
            claim(&other, ClaimPrecedence::Established),
        ];
        assert_eq!(package(all[0], &all), Ok(()));
        assert_eq!(package(all[2], &all), Ok(()));
        let refused = ClaimError {
            package: "p".to_owned(),
            owner: "b".to_owned(),
            precedence: ClaimPrecedence::New,
        };
        assert!(
            refused.to_string().ends_with(
                "`kubectl describe clusterextension b` says why. Delete the one that you do not need"
            ),
            "{refused}"
        );
        assert_eq!(package(all[1], &all), Err(refused));
        let all = [
            claim(&old, ClaimPrecedence::New),
            claim(&new, ClaimPrecedence::Established),
        ];
        assert_eq!(
            package(all[1], &all),
            Ok(()),
            "the installed package keeps its claim"
        );
        let refused = package(all[0], &all).unwrap_err().to_string();
        assert!(
            refused.contains("`kubectl delete clusterextension a`"),
            "{refused}"
        );
    }
}
