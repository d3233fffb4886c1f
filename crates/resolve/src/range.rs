//! The version range of a request.

use olm_version::masterminds::{Constraint, Prereleases};

use crate::package::Candidate;

/// Whether a bundle's version is in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Inside,
    /// The range would hold the version if it admitted pre-releases.
    Prerelease,
    Outside,
    /// The bundle's version is unknown.
    Unknown,
}

/// Whether a version is in the range. Its release does not matter.
pub(crate) fn fit(candidate: &Candidate, range: Option<&Constraint>) -> Fit {
    let Some(range) = range else { return Fit::Inside };
    let Ok(version) = &candidate.version else {
        return Fit::Unknown;
    };
    if range.check(&version.version) {
        Fit::Inside
    } else if !version.version.pre.is_empty() && range.check_with(&version.version, Prereleases::Everywhere) {
        Fit::Prerelease
    } else {
        Fit::Outside
    }
}
