//! The update graph of one channel, and [pictures](svg) of the graph of a [package](PackageGraph).

mod mermaid;
mod package;
mod svg;

use std::collections::{HashMap, HashSet};

use crate::blob::channel::ChannelEntry;

pub use mermaid::mermaid;
pub use package::{ChannelGraph, Edge, EdgeKind, Node, PackageGraph};
pub use svg::svg;

/// A fault in the graph of a channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Every entry is replaced or skipped by another one.
    #[error("no channel head found in graph")]
    NoHead,
    /// Several entries are neither replaced nor skipped.
    #[error("multiple channel heads found in graph: {}", .0.join(", "))]
    ManyHeads(Vec<String>),
    /// The chain of `replaces` from the head contains a bundle twice.
    #[error("detected cycle in replaces chain of upgrade graph: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Entries that are neither on the `replaces` chain from the head nor skipped.
    #[error("channel contains one or more stranded bundles: {}", .0.join(", "))]
    Stranded(Vec<String>),
}

/// The one entry that no entry of the channel replaces or skips. Ranges do not count.
///
/// # Errors
/// When there is none, or more than one.
pub fn head(entries: &[ChannelEntry]) -> Result<&ChannelEntry, GraphError> {
    let replaced: HashSet<&str> = entries
        .iter()
        .flat_map(|entry| entry.replaces().into_iter().chain(skips(entry)))
        .collect();
    let mut heads: Vec<&ChannelEntry> = entries
        .iter()
        .filter(|entry| !replaced.contains(entry.name.as_str()))
        .collect();
    heads.sort_by(|left, right| left.name.cmp(&right.name));
    heads.dedup_by(|left, right| left.name == right.name);
    match heads.as_slice() {
        [] => Err(GraphError::NoHead),
        [head] => Ok(head),
        heads => Err(GraphError::ManyHeads(
            heads.iter().map(|entry| entry.name.clone()).collect(),
        )),
    }
}

/// The entries from the head on, each replacing the next. The chain ends before an entry that another one skips, and at
/// the end of the channel.
///
/// # Errors
/// When the head is not unique, the chain has a cycle, or entries are neither in it nor skipped.
pub fn replaces_chain(entries: &[ChannelEntry]) -> Result<Vec<&ChannelEntry>, GraphError> {
    let by_name: HashMap<&str, &ChannelEntry> =
        entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let skipped: HashSet<&str> = entries.iter().flat_map(skips).collect();
    let mut chain: Vec<&ChannelEntry> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    let mut next = Some(head(entries)?);
    while let Some(entry) = next {
        if let Some(first) = positions.insert(&entry.name, chain.len()) {
            let names = chain
                .iter()
                .skip(first)
                .chain([&entry])
                .map(|entry| entry.name.clone());
            return Err(GraphError::Cycle(names.collect()));
        }
        chain.push(entry);
        next = entry
            .replaces()
            .filter(|replaced| !skipped.contains(replaced))
            .and_then(|replaced| by_name.get(replaced).copied());
    }
    let mut stranded: Vec<String> = by_name
        .keys()
        .filter(|name| !positions.contains_key(*name) && !skipped.contains(*name))
        .map(|name| (*name).to_owned())
        .collect();
    if stranded.is_empty() {
        return Ok(chain);
    }
    stranded.sort();
    Err(GraphError::Stranded(stranded))
}

fn skips(entry: &ChannelEntry) -> impl Iterator<Item = &str> {
    entry.skips.iter().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::{head, replaces_chain};
    use crate::blob::channel::ChannelEntry;

    /// Reads `b>a!c,d`: b replaces a and skips c and d.
    fn entries(text: &str) -> Vec<ChannelEntry> {
        text.split_whitespace()
            .map(|entry| {
                let (edges, skips) = entry.split_once('!').unwrap_or((entry, ""));
                let (name, replaces) = edges
                    .split_once('>')
                    .map_or((edges, None), |(name, replaced)| (name, Some(replaced)));
                ChannelEntry {
                    name: name.to_owned(),
                    replaces: replaces.map(str::to_owned),
                    skips: skips
                        .split(',')
                        .filter(|name| !name.is_empty())
                        .map(str::to_owned)
                        .collect(),
                    skip_range: None,
                }
            })
            .collect()
    }

    fn check_head(text: &str, expected: &str) {
        let entries = entries(text);
        let found = head(&entries).map_or_else(|error| error.to_string(), |entry| entry.name.clone());
        assert_eq!(found, expected, "{text}");
    }

    fn check_chain(text: &str, expected: &str) {
        let entries = entries(text);
        let found = replaces_chain(&entries).map_or_else(
            |error| error.to_string(),
            |chain| {
                chain
                    .iter()
                    .map(|entry| entry.name.as_str())
                    .collect::<Vec<_>>()
                    .join(" ")
            },
        );
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn the_head_is_the_entry_without_a_successor() {
        check_head("a b>a", "b");
        check_head("a b!a c>b", "c");
        check_head("a b", "multiple channel heads found in graph: a, b");
        check_head("a>b b>a", "no channel head found in graph");
        check_head("a>a", "no channel head found in graph");
        check_head("", "no channel head found in graph");
    }

    #[test]
    fn the_chain_ends_where_it_leaves_the_channel() {
        check_chain("a>z b>a", "b a");
    }

    #[test]
    fn the_chain_ends_before_a_skipped_entry() {
        check_chain("a b>a c>b!b", "channel contains one or more stranded bundles: a");
        check_chain("a b!a c>a!b", "c");
        check_chain("a b!a c!b", "c");
    }

    #[test]
    fn a_circle_below_the_head_is_shown_from_where_it_closes() {
        check_chain(
            "a>b b>a c>b",
            "detected cycle in replaces chain of upgrade graph: b -> a -> b",
        );
        check_chain(
            "a>a b>a",
            "detected cycle in replaces chain of upgrade graph: a -> a",
        );
    }

    #[test]
    fn entries_beside_the_chain_are_stranded_unless_skipped() {
        check_chain("a b c!b,a", "c");
        check_chain("a b>a c!b", "channel contains one or more stranded bundles: a");
    }
}
