//! Bundles that would meet a missing requirement, best first.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use olm_constraint::SimpleRequirement;
use olm_constraint::cel::Budget;

use crate::cluster::compatibility::ClusterState;
use crate::package::{Candidate, Package, PreparedChannel};

/// A package in a catalog that may meet a missing requirement.
#[derive(Clone, Copy, Debug)]
pub struct ProviderCandidate<'a> {
    /// The catalog.
    pub catalog: &'a str,
    /// The priority.
    pub priority: i32,
    /// The package's name.
    pub name: &'a str,
    /// The package.
    pub package: &'a Package,
    /// The default channel, if known.
    pub default_channel: Option<&'a str>,
}

/// A bundle that meets a missing requirement.
#[derive(Clone, Copy, Debug)]
pub struct Provider<'a> {
    /// The catalog.
    pub catalog: &'a str,
    /// The package.
    pub package: &'a str,
    /// The channel.
    pub channel: &'a str,
    /// The bundle.
    pub bundle: &'a Candidate,
    /// Whether it is the newest of its channel. Then its version need not be named.
    pub is_newest: bool,
}

/// The best bundle of each package that meets a requirement, best first: the dependent's own catalog, then catalogs by
/// priority; the default channel, then others by name; in a channel the bundle nearest to the head. Bundles beyond the
/// budget are not proposed.
pub fn providers<'a>(
    wanted: &SimpleRequirement,
    candidates: &[ProviderCandidate<'a>],
    own_catalog: Option<&str>,
    facts: &ClusterState<'_>,
    budget: &mut Budget,
) -> Vec<Provider<'a>> {
    let mut candidates: Vec<&ProviderCandidate<'a>> = candidates.iter().collect();
    let is_other = |candidate: &ProviderCandidate<'_>| Some(candidate.catalog) != own_catalog;
    candidates.sort_by(|left, right| {
        is_other(left)
            .cmp(&is_other(right))
            .then(right.priority.cmp(&left.priority))
            .then(left.catalog.cmp(right.catalog))
            .then(left.name.cmp(right.name))
    });
    let mut provides = |candidate: &Candidate| {
        let platform = candidate.platform.as_ref();
        let can_be_there =
            !platform.is_some_and(|platform| platform.is_forbidden(facts.platform, facts.served));
        can_be_there && wanted.is_provided_by(candidate.subject(), budget) == Ok(true)
    };
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let mut channels: Vec<&PreparedChannel> = candidate.package.prepared_channels().iter().collect();
            let is_side =
                |channel: &PreparedChannel| Some(channel.name.as_str()) != candidate.default_channel;
            channels.sort_by(|left, right| {
                is_side(left)
                    .cmp(&is_side(right))
                    .then(left.name.cmp(&right.name))
            });
            channels.into_iter().find_map(|channel| {
                let entries = from_head(channel, candidate.package);
                let newest = entries
                    .iter()
                    .max_by(|left, right| left.compare_versions(right))
                    .copied();
                let bundle = entries.iter().copied().find(|bundle| provides(bundle))?;
                Some(Provider {
                    catalog: candidate.catalog,
                    package: candidate.name,
                    channel: &channel.name,
                    bundle,
                    is_newest: newest.is_some_and(|newest| newest.name == bundle.name),
                })
            })
        })
        .collect()
}

/// The bundles of a channel: from the head along `replaces`, then the others, newest first.
fn from_head<'a>(channel: &'a PreparedChannel, package: &'a Package) -> Vec<&'a Candidate> {
    let candidates: HashMap<&str, &Candidate> = package
        .candidates()
        .iter()
        .rev()
        .map(|candidate| (candidate.name.as_str(), candidate))
        .collect();
    let find = |name: &str| candidates.get(name).copied();
    let gone: HashSet<&str> = channel
        .entries
        .iter()
        .flat_map(|entry| entry.replaces.iter().chain(&entry.skips))
        .map(String::as_str)
        .collect();
    let newest_first = |mut names: Vec<&'a str>| {
        let order = |left: &&str, right: &&str| match (find(left), find(right)) {
            (Some(left), Some(right)) => right.compare_versions(left),
            _ => Ordering::Equal,
        };
        names.sort_by(order);
        names
    };
    let names: Vec<&str> = channel.entries.iter().map(|entry| entry.name.as_str()).collect();
    let heads = newest_first(
        names
            .iter()
            .copied()
            .filter(|name| !gone.contains(name))
            .collect(),
    );
    let replaces: HashMap<&str, Option<&str>> = channel
        .entries
        .iter()
        .rev()
        .map(|entry| (entry.name.as_str(), entry.replaces.as_deref()))
        .collect();
    let mut order: Vec<&str> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    let mut next = heads.first().copied();
    // Each name once, so that a cycle of edges ends.
    while let Some(name) = next.filter(|name| seen.insert(name)) {
        order.push(name);
        next = replaces.get(name).copied().flatten();
    }
    let others = names.into_iter().filter(|name| !seen.contains(name)).collect();
    let others = newest_first(others);
    order.extend(others);
    order.into_iter().filter_map(find).collect()
}
