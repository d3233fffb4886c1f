//! The bundles that may follow the installed one.

use std::collections::HashMap;

use olm_version::VersionRelease;

use crate::channels;
use crate::package::{Candidate, Entry, Package};
use crate::refusal::{InstalledError, Reason, Refusal};
use crate::request::{Installed, Request};

/// The edge from the installed bundle to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// The version and release are installed already.
    Current,
    /// The bundle replaces the installed one by name.
    Replaces,
    /// The bundle skips the installed one by name.
    Skips,
    /// The `skipRange` holds the installed version.
    SkipRange,
}

impl Edge {
    /// The name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Replaces => "replaces",
            Self::Skips => "skips",
            Self::SkipRange => "skipRange",
        }
    }
}

/// The installed bundle with its parsed version.
#[derive(Clone, Debug)]
pub(crate) struct Current<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: VersionRelease,
}

impl<'a> Current<'a> {
    pub(crate) fn read(installed: &Installed<'a>) -> Result<Self, Refusal> {
        match installed.version_release() {
            Ok(version) => Ok(Self {
                name: installed.name,
                version,
            }),
            Err(fault) => Err(Refusal::new(Reason::Installed(match installed.release {
                Some(_) => InstalledError::Apart(fault),
                None => InstalledError::Folded(fault),
            }))),
        }
    }
}

/// The edges that lead from the installed bundle to bundles of one package.
///
/// Edges do not form a chain: every entry of the considered channels counts, whether or not the installed bundle is in
/// the channel and whether or not another entry skips it. An unreadable `skipRange` has no edge.
pub(crate) struct Successors<'a, 'c> {
    current: &'c Current<'c>,
    edges: HashMap<&'a str, Edge>,
}

impl<'a, 'c> Successors<'a, 'c> {
    pub(crate) fn new(package: &'a Package, request: &Request<'_>, current: &'c Current<'c>) -> Self {
        let mut edges = HashMap::new();
        for entry in channels::considered(package, request).flat_map(|channel| &channel.entries) {
            if let Some(edge) = edge(entry, current) {
                let known = edges.entry(entry.name.as_str()).or_insert(edge);
                *known = edge.min(*known);
            }
        }
        Self { current, edges }
    }

    /// The edge to a bundle; `None` if it may not follow.
    pub(crate) fn to(&self, candidate: &Candidate) -> Option<Edge> {
        let is_current = candidate
            .version
            .as_ref()
            .is_ok_and(|version| version.is_same(&self.current.version));
        if is_current {
            Some(Edge::Current)
        } else {
            self.edges.get(candidate.name.as_str()).copied()
        }
    }
}

/// The bundles in a considered channel that may follow, in the order of the catalog.
pub(crate) fn within<'a>(
    package: &'a Package,
    request: &Request<'_>,
    current: &Current<'_>,
) -> Vec<(&'a Candidate, Edge)> {
    let members = channels::members(package, request);
    let successors = Successors::new(package, request, current);
    let candidates = package.candidates().iter();
    candidates
        .filter(|candidate| {
            members
                .as_ref()
                .is_none_or(|members| members.contains(candidate.name.as_str()))
        })
        .filter_map(|candidate| Some((candidate, successors.to(candidate)?)))
        .collect()
}

/// The bundles in a considered channel between two others, which an update skips, oldest first.
pub(crate) fn between<'a>(
    package: &'a Package,
    request: &Request<'_>,
    current: &Current<'_>,
    chosen: &Candidate,
) -> Vec<&'a Candidate> {
    let members = channels::members(package, request);
    let is_passed = |candidate: &&Candidate| {
        let is_newer = candidate
            .version
            .as_ref()
            .is_ok_and(|version| version.compare(&current.version).is_gt());
        is_newer
            && candidate.compare_versions(chosen).is_lt()
            && members
                .as_ref()
                .is_none_or(|members| members.contains(candidate.name.as_str()))
    };
    let newest_first = package.newest_first().into_iter();
    newest_first.rev().filter(is_passed).collect()
}

fn edge(entry: &Entry, current: &Current<'_>) -> Option<Edge> {
    if entry.replaces.as_deref() == Some(current.name) {
        return Some(Edge::Replaces);
    }
    if entry.skips.iter().any(|name| name == current.name) {
        return Some(Edge::Skips);
    }
    match &entry.skip_range {
        Some(Ok(range)) if range.contains(&current.version.version) => Some(Edge::SkipRange),
        _ => None,
    }
}
