//! Chains of replacement: of the entries of a channel, and of installed ClusterServiceVersions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::entry::Entry;
use crate::cluster::text;

/// A member of a channel.
pub(super) trait Member: Copy {
    /// Its entry.
    fn entry(&self) -> &Entry;
}

impl Member for &Entry {
    fn entry(&self) -> &Entry {
        self
    }
}

/// The members of one channel, from its head along `replaces`. Those that another one skips are left out.
///
/// # Errors
/// When there is not exactly one chain.
pub(super) fn sorted<M: Member>(members: &[M]) -> Result<Vec<M>, String> {
    let entries: Vec<&Entry> = members.iter().map(Member::entry).collect();
    let Some(first) = entries.first() else {
        return Ok(Vec::new());
    };
    let place = format!("in channel {:?} of package {:?}", first.channel, first.package);
    let edges = Edges::new(&entries);
    let mut chains = Vec::new();
    let skipped: BTreeSet<&str> = entries
        .iter()
        .flat_map(|entry| entry.skips.iter().map(String::as_str))
        .collect();
    for (index, head) in entries.iter().enumerate() {
        if edges.replaced.contains(&index) {
            continue;
        }
        let (mut chain, mut seen, mut next) = (Vec::new(), BTreeSet::new(), Some(index));
        while let Some(index) = next {
            if !seen.insert(index) {
                return Err(format!(
                    "a cycle exists in the chain of replacement beginning with {:?} {place}",
                    head.name
                ));
            }
            let member = members.get(index).copied();
            chain.extend(member.filter(|member| !skipped.contains(member.entry().name.as_str())));
            next = edges.replaces.get(&index).copied();
        }
        chains.push(chain);
    }
    if chains.len() > 1 {
        let texts: Vec<String> = chains.iter().map(|chain| ends(chain)).collect();
        return Err(format!(
            "a unique replacement chain within a channel is required to determine the relative order between channel \
             entries, but {} replacement chains were found {place}: {}",
            texts.len(),
            texts.join(", ")
        ));
    }
    chains
        .pop()
        .ok_or_else(|| format!("no channel heads (entries not replaced by another entry) found {place}"))
}

/// The edges between the entries of a channel, by their positions.
#[derive(Default)]
struct Edges {
    /// The entry that each replaces.
    replaces: BTreeMap<usize, usize>,
    /// The entries that another one replaces or skips.
    replaced: BTreeSet<usize>,
}

impl Edges {
    fn new(entries: &[&Entry]) -> Self {
        let named: BTreeMap<&str, usize> = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (entry.name.as_str(), index))
            .collect();
        let mut edges = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            if let Some(replaced) = named.get(entry.replaces.as_str()) {
                edges.replaced.insert(*replaced);
                edges.replaces.insert(index, *replaced);
            }
            let skipped = entry.skips.iter().filter_map(|name| named.get(name.as_str()));
            edges.replaced.extend(skipped.copied());
        }
        edges
    }
}

fn ends<M: Member>(chain: &[M]) -> String {
    match chain {
        [first, .., last] => format!("{}...{}", first.entry().name, last.entry().name),
        [] => "[]".to_owned(),
        _ => chain.iter().map(|member| member.entry().name.as_str()).collect(),
    }
}

/// Whether the chain of ClusterServiceVersions that replace this one ends in a failed one.
///
/// # Errors
/// When there is no such object, one in the middle is not being replaced, or the chain is a cycle.
pub fn ends_in_failure(name: &str, csvs: &[&Value]) -> Result<bool, String> {
    let named: BTreeMap<&str, &Value> = csvs
        .iter()
        .map(|csv| (text(csv, "/metadata/name"), *csv))
        .collect();
    let successors: BTreeMap<&str, &Value> = csvs
        .iter()
        .map(|csv| (text(csv, "/spec/replaces"), *csv))
        .filter(|(replaced, _)| !replaced.is_empty())
        .collect();
    let mut seen = BTreeSet::new();
    let mut csv = *named.get(name).ok_or("csv cannot be nil")?;
    loop {
        let (namespace, name) = (text(csv, "/metadata/namespace"), text(csv, "/metadata/name"));
        let phase = text(csv, "/status/phase");
        if !seen.insert(name) {
            return Err(format!("csv {namespace}/{name} has already been seen"));
        }
        let Some(next) = successors.get(name) else {
            return Ok(phase == "Failed");
        };
        if phase != "Replacing" {
            return Err(format!(
                "csv {namespace}/{name} in phase {phase} instead of Replacing"
            ));
        }
        csv = next;
    }
}
