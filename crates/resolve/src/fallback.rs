//! The decision whether the installed bundle may stay after a failed resolution.

use olm_version::masterminds::Constraint;

use crate::catalog::{Catalog, PackageAnswer, is_asked};
use crate::request::{Installed, Request};

/// The treatment of the installed bundle while resolution fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The known facts agree with the request: keep the bundle and repair it.
    KeepInstalled,
    /// A catalog answers, but no bundle results: the refusal remains.
    CatalogsAnswer,
    /// The request asks for another version than the installed one.
    AnotherVersion,
}

/// Whether the installed bundle is kept and repaired while no catalog answers.
///
/// It is kept if no selected catalog answers about the package, or none is selected, and the installed version
/// satisfies the range of the request. Every version satisfies an absent range, and a recorded version also satisfies
/// an equal text.
pub fn without_catalogs(
    catalogs: &[Catalog<'_>],
    request: &Request<'_>,
    installed: &Installed<'_>,
) -> Fallback {
    let answers = catalogs.iter().any(|catalog| {
        is_asked(catalog.labels, catalog.availability, request).unwrap_or(true)
            && matches!(catalog.answer, PackageAnswer::Absent | PackageAnswer::Package(_))
    });
    if answers {
        return Fallback::CatalogsAnswer;
    }
    let satisfied = request.version.is_none_or(|range| {
        range == installed.version
            || match (Constraint::parse(range), installed.version_release()) {
                (Ok(range), Ok(version)) => range.check(&version.version),
                _ => false,
            }
    });
    if satisfied {
        Fallback::KeepInstalled
    } else {
        Fallback::AnotherVersion
    }
}
