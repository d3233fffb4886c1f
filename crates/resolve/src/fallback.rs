//! When the installed bundle may stay although resolution failed.

use olm_version::masterminds::Constraint;

use crate::catalog::{Catalog, Content, is_asked};
use crate::request::{Installed, Request};

/// What becomes of the installed bundle while nothing can be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It is what the request asks for as far as is known: keep it and repair it.
    KeepInstalled,
    /// A catalog answers, and what it says does not lead to a bundle: the refusal stands.
    CatalogsAnswer,
    /// The request asks for another version than the installed one.
    AnotherVersion,
}

/// Whether the installed bundle is kept and repaired while no catalog answers.
///
/// It is when no selected catalog answers about the package, be there none or be they silent, and the installed
/// version satisfies the request's range (no range is satisfied by every version). The version exactly as recorded
/// counts as satisfied too.
pub fn without_catalogs(
    catalogs: &[Catalog<'_>],
    request: &Request<'_>,
    installed: &Installed<'_>,
) -> Fallback {
    let answers = catalogs.iter().any(|catalog| {
        is_asked(catalog.labels, catalog.availability, request).unwrap_or(true)
            && matches!(catalog.content, Content::Absent | Content::Package(_))
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
