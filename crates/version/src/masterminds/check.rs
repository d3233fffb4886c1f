//! The versions that each operator admits. The caller decides before whether pre-releases are candidates.

use std::cmp::Ordering;

use semver::Version;

use super::{Operator, Term, Wild};

pub(super) fn satisfies(version: &Version, term: &Term) -> bool {
    let order = version.cmp_precedence(&term.version);
    match term.operator {
        Operator::Equal if term.wild != Wild::None => tilde(version, term),
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => not_equal(version, term),
        Operator::Greater => greater(version, term),
        Operator::GreaterOrEqual => order != Ordering::Less,
        Operator::Less => order == Ordering::Less,
        Operator::LessOrEqual => less_or_equal(version, term),
        Operator::Tilde => tilde(version, term),
        Operator::Caret => caret(version, term),
    }
}

/// `!=1` excludes all of 1, `!=1.2` all of 1.2 that has the same pre-release.
fn not_equal(version: &Version, term: &Term) -> bool {
    let bound = &term.version;
    match term.wild {
        Wild::Minor => version.major != bound.major,
        Wild::Patch => {
            (version.major, version.minor) != (bound.major, bound.minor) || version.pre != bound.pre
        }
        // `!=*` reads as `!=0.0.0`.
        Wild::None | Wild::Major => version.cmp_precedence(bound) != Ordering::Equal,
    }
}

/// `>1` begins at 2.0.0, `>1.2` at 1.3.0.
fn greater(version: &Version, term: &Term) -> bool {
    let bound = &term.version;
    match term.wild {
        Wild::Minor => version.major > bound.major,
        Wild::Patch => (version.major, version.minor) > (bound.major, bound.minor),
        Wild::None => version.cmp_precedence(bound) == Ordering::Greater,
        Wild::Major => version.major > bound.major || version.cmp_precedence(bound) == Ordering::Greater,
    }
}

/// `<=1` ends before 2.0.0, `<=1.2` before 1.3.0.
fn less_or_equal(version: &Version, term: &Term) -> bool {
    let bound = &term.version;
    match term.wild {
        Wild::None => version.cmp_precedence(bound) != Ordering::Greater,
        Wild::Minor => version.major <= bound.major,
        Wild::Patch | Wild::Major => (version.major, version.minor) <= (bound.major, bound.minor),
    }
}

/// Up to the next minor version; up to the next major one when no minor is given.
fn tilde(version: &Version, term: &Term) -> bool {
    let bound = &term.version;
    if version.cmp_precedence(bound) == Ordering::Less {
        return false;
    }
    // `~0.0.0` has always matched all versions.
    let is_zero = (bound.major, bound.minor, bound.patch) == (0, 0, 0);
    if is_zero && !matches!(term.wild, Wild::Minor | Wild::Patch) {
        return true;
    }
    version.major == bound.major && (term.wild == Wild::Minor || version.minor == bound.minor)
}

/// Up to the next version of the first number that is not 0.
fn caret(version: &Version, term: &Term) -> bool {
    let bound = &term.version;
    if version.cmp_precedence(bound) == Ordering::Less {
        return false;
    }
    if bound.major > 0 || term.wild == Wild::Minor {
        version.major == bound.major
    } else if version.major > 0 {
        false
    } else if bound.minor > 0 || term.wild == Wild::Patch {
        version.minor == bound.minor
    } else {
        version.minor == 0 && version.patch == bound.patch
    }
}
