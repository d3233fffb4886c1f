//! The update graph of a package: the updates between bundles, and the state of each bundle.

use std::collections::{BTreeMap, HashMap, HashSet};

use olm_version::{VersionRelease, blang};

use super::replaces_chain;
use crate::blob::channel::{Channel, ChannelEntry};
use crate::catalog::Catalog;
use crate::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

/// Bundles of a channel beyond which the oldest are left out.
const MAX_NODES: usize = 2_000;
/// Edges of a channel beyond which the rest is left out.
const MAX_EDGES: usize = 50_000;

/// The update graph of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageGraph {
    /// The package.
    pub package: String,
    /// The deprecation of the package, if any.
    pub deprecated: Option<String>,
    /// The channels: the default channel first, the others by name.
    pub channels: Vec<ChannelGraph>,
    /// The number of channels that are left out because of the size limit of the graph.
    pub omitted: usize,
}

/// The update graph of one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelGraph {
    /// The channel.
    pub name: String,
    /// Whether it is the package's default channel.
    pub is_default: bool,
    /// The deprecation of the channel, if any.
    pub deprecated: Option<String>,
    /// The fault of the channel's graph, if any.
    pub fault: Option<String>,
    /// The bundles, the newest first.
    pub nodes: Vec<Node>,
    /// The updates between them, each once.
    pub edges: Vec<Edge>,
    /// The number of older bundles that are left out because there are too many to draw.
    pub omitted: usize,
}

/// A bundle in a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The bundle.
    pub name: String,
    /// The version and release; empty if they are unknown.
    pub version: String,
    /// The range of versions that update to it, when it names one.
    pub skip_range: Option<String>,
    /// Whether no other bundle of the channel replaces or skips it.
    pub is_head: bool,
    /// Whether another bundle of the channel skips it, so that updates do not install it.
    pub is_skipped: bool,
    /// The deprecation of the bundle, if any.
    pub deprecated: Option<String>,
    /// Whether no update leads to it although there are older bundles: it can only be newly installed.
    pub is_unreachable: bool,
    /// Updates from it never arrive at the head of the channel.
    pub is_dead_end: bool,
    /// The catalog has no bundle of this name.
    pub is_missing: bool,
}

/// The field that makes an update possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// The newer bundle names the older one in `replaces`.
    Replaces,
    /// The newer bundle names the older one in `skips`.
    Skips,
    /// The version of the older bundle is in the `skipRange` of the newer one.
    SkipRange,
}

impl EdgeKind {
    /// The field of the channel entry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replaces => "replaces",
            Self::Skips => "skips",
            Self::SkipRange => "skipRange",
        }
    }
}

/// An update from one bundle of a channel to another one. Both are positions in [`ChannelGraph::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The present bundle.
    pub from: usize,
    /// The bundle after the update.
    pub to: usize,
    /// The field that makes the update possible; the first of the kinds if there are several.
    pub kind: EdgeKind,
}

impl PackageGraph {
    /// The graph of a package of the catalog; `None` if the catalog has no blob of it.
    pub fn new(catalog: &Catalog, package: &str) -> Option<Self> {
        Self::within(catalog, package, usize::MAX)
    }

    /// Like [`PackageGraph::new`], with at most `most` bundles and updates in all channels. A channel that exceeds the
    /// limit is left out, and so are those after it.
    pub fn within(catalog: &Catalog, package: &str, most: usize) -> Option<Self> {
        let described = catalog.packages.iter().find(|found| found.name == package);
        let mut channels: Vec<&Channel> = catalog
            .channels
            .iter()
            .filter(|channel| channel.package == package)
            .collect();
        if described.is_none() && channels.is_empty() {
            return None;
        }
        let default_channel = described.map_or("", |package| package.default_channel.as_str());
        channels.sort_by_key(|channel| (channel.name != default_channel, channel.name.as_str()));
        let versions: HashMap<&str, Option<VersionRelease>> = catalog
            .bundles
            .iter()
            .filter(|bundle| bundle.package == package)
            .map(|bundle| (bundle.name.as_str(), bundle.version_release().ok()))
            .collect();
        let deprecated: BTreeMap<(&str, &str), &str> = catalog
            .deprecations
            .iter()
            .filter(|deprecations| deprecations.package == package)
            .flat_map(|deprecations| &deprecations.entries)
            .map(|entry| {
                let reference = &entry.reference;
                let key = (reference.schema.as_str(), reference.name.as_str());
                (key, entry.message.as_str())
            })
            .collect();
        let known = CatalogNotes { versions, deprecated };
        let (all, mut left) = (channels.len(), most);
        let mut graphs = Vec::new();
        for channel in channels {
            let graph = known.channel(channel, channel.name == default_channel);
            let Some(rest) = left.checked_sub(graph.nodes.len() + graph.edges.len()) else {
                break;
            };
            left = rest;
            graphs.push(graph);
        }
        Some(Self {
            package: package.to_owned(),
            deprecated: known.why(SCHEMA_PACKAGE, ""),
            omitted: all - graphs.len(),
            channels: graphs,
        })
    }

    /// The graph with only the channels of this name.
    #[must_use]
    pub fn only(mut self, channel: &str) -> Self {
        self.channels.retain(|found| found.name == channel);
        self
    }
}

/// The catalog's facts about the bundles and channels of a package.
struct CatalogNotes<'a> {
    versions: HashMap<&'a str, Option<VersionRelease>>,
    deprecated: BTreeMap<(&'a str, &'a str), &'a str>,
}

impl CatalogNotes<'_> {
    fn why(&self, schema: &str, name: &str) -> Option<String> {
        self.deprecated
            .get(&(schema, name))
            .map(|message| (*message).to_owned())
    }

    fn version(&self, name: &str) -> Option<&VersionRelease> {
        self.versions.get(name).and_then(Option::as_ref)
    }

    fn channel(&self, channel: &Channel, is_default: bool) -> ChannelGraph {
        let mut entries: Vec<&ChannelEntry> = channel.entries.iter().collect();
        // The newest first; bundles without a version last.
        entries.sort_by(|left, right| {
            match (self.version(&left.name), self.version(&right.name)) {
                (Some(left), Some(right)) => right.compare(left),
                (left, right) => left.is_none().cmp(&right.is_none()),
            }
            .then_with(|| left.name.cmp(&right.name))
        });
        entries.dedup_by(|left, right| left.name == right.name);
        let omitted = entries.len().saturating_sub(MAX_NODES);
        entries.truncate(MAX_NODES);
        let edges = self.edges(&entries);
        let replaced: HashSet<usize> = edges
            .iter()
            .filter(|edge| edge.kind != EdgeKind::SkipRange)
            .map(|edge| edge.from)
            .collect();
        let skipped: HashSet<&str> = entries
            .iter()
            .flat_map(|entry| &entry.skips)
            .map(String::as_str)
            .collect();
        let reached: HashSet<usize> = edges.iter().map(|edge| edge.to).collect();
        let head = (0..entries.len()).find(|node| !replaced.contains(node));
        let arriving = arriving(&edges, head);
        // No update leads to the oldest bundle, and none has to.
        let last = entries
            .iter()
            .rposition(|entry| self.version(&entry.name).is_some())
            .unwrap_or(0);
        let nodes = entries.iter().enumerate().map(|(at, entry)| {
            let version = self.version(&entry.name);
            Node {
                name: entry.name.clone(),
                version: version.map(ToString::to_string).unwrap_or_default(),
                skip_range: entry.skip_range().map(str::to_owned),
                is_head: !replaced.contains(&at),
                is_skipped: skipped.contains(entry.name.as_str()),
                deprecated: self.why(SCHEMA_BUNDLE, &entry.name),
                is_unreachable: at < last && !reached.contains(&at) && version.is_some(),
                is_dead_end: head.is_some() && !arriving.contains(&at),
                is_missing: !self.versions.contains_key(entry.name.as_str()),
            }
        });
        ChannelGraph {
            name: channel.name.clone(),
            is_default,
            deprecated: self.why(SCHEMA_CHANNEL, &channel.name),
            fault: replaces_chain(&channel.entries)
                .err()
                .map(|error| error.to_string()),
            nodes: nodes.collect(),
            edges,
            omitted,
        }
    }

    fn edges(&self, entries: &[&ChannelEntry]) -> Vec<Edge> {
        let positions: HashMap<&str, usize> = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.name.as_str(), at))
            .collect();
        let mut edges = Vec::new();
        for (to, entry) in entries.iter().enumerate() {
            let mut from_here: BTreeMap<usize, EdgeKind> = BTreeMap::new();
            let mut add = |from: usize, kind: EdgeKind| {
                from_here.entry(from).or_insert(kind);
            };
            if let Some(from) = entry.replaces().and_then(|name| positions.get(name)) {
                add(*from, EdgeKind::Replaces);
            }
            let skips = entry.skips.iter().filter_map(|name| positions.get(name.as_str()));
            skips.for_each(|from| add(*from, EdgeKind::Skips));
            let range = entry
                .skip_range()
                .and_then(|range| blang::Range::parse(range).ok());
            if let Some(range) = range {
                for (from, older) in entries.iter().enumerate().filter(|(from, _)| *from != to) {
                    if self
                        .version(&older.name)
                        .is_some_and(|version| range.contains(&version.version))
                    {
                        add(from, EdgeKind::SkipRange);
                    }
                }
            }
            let room = MAX_EDGES.saturating_sub(edges.len());
            let from_here = from_here.into_iter().take(room);
            edges.extend(from_here.map(|(from, kind)| Edge { from, to, kind }));
        }
        edges
    }
}

/// The bundles from which updates arrive at `head`, itself included.
fn arriving(edges: &[Edge], head: Option<usize>) -> HashSet<usize> {
    let mut into: HashMap<usize, Vec<usize>> = HashMap::new();
    for edge in edges {
        into.entry(edge.to).or_default().push(edge.from);
    }
    let mut found: HashSet<usize> = head.into_iter().collect();
    let mut open: Vec<usize> = head.into_iter().collect();
    while let Some(node) = open.pop() {
        for from in into.get(&node).into_iter().flatten() {
            if found.insert(*from) {
                open.push(*from);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::PackageGraph;
    use crate::{Catalog, meta::limits};

    /// Reads `2>1!0 1 0`: entries of a channel by version, `>` replaces, `!` skips, `~` skips a range.
    fn graph(entries: &str) -> PackageGraph {
        let mut text = "schema: olm.package\nname: p\ndefaultChannel: c\n---\nschema: olm.channel\npackage: p\nname: c\n\
                        entries:\n"
            .to_owned();
        let mut bundles = String::new();
        for entry in entries.split_whitespace() {
            let end = entry.find(['>', '!', '~']).unwrap_or(entry.len());
            let (name, mut rest) = entry.split_at(end);
            let _ = writeln!(text, "- name: p.v{name}");
            while let Some(mark) = rest.chars().next() {
                let end = rest[1..].find(['>', '!', '~']).map_or(rest.len(), |at| at + 1);
                let value = &rest[1..end];
                let line = match mark {
                    '>' => format!("  replaces: p.v{value}\n"),
                    '!' => format!("  skips: [p.v{value}]\n"),
                    _ => format!("  skipRange: '<{value}.0.0'\n"),
                };
                text.push_str(&line);
                rest = &rest[end..];
            }
            let _ = write!(
                bundles,
                "---\nschema: olm.bundle\npackage: p\nname: p.v{name}\nimage: i\nproperties:\n- type: olm.package\n  \
                 value: {{packageName: p, version: {name}.0.0}}\n"
            );
        }
        let mut catalog = Catalog::default();
        catalog
            .load((text + &bundles).as_bytes(), &limits())
            .expect("the catalog loads");
        PackageGraph::new(&catalog, "p").expect("the package is there")
    }

    fn check(entries: &str, expected: &str) {
        let graph = graph(entries);
        let [channel] = graph.channels.as_slice() else {
            panic!("one channel")
        };
        let mut found: Vec<String> = channel
            .nodes
            .iter()
            .map(|node| {
                let mut text = node.version.trim_end_matches(".0.0").to_owned();
                for (is, mark) in [
                    (node.is_head, "h"),
                    (node.is_skipped, "s"),
                    (node.is_unreachable, "u"),
                    (node.is_dead_end, "d"),
                ] {
                    text += if is { mark } else { "" };
                }
                text
            })
            .collect();
        found.extend(channel.edges.iter().map(|edge| {
            let version = |at: usize| channel.nodes[at].version.trim_end_matches(".0.0").to_owned();
            format!("{}-{}>{}", version(edge.from), edge.kind.name(), version(edge.to))
        }));
        assert_eq!(found.join(" "), expected, "{entries}");
    }

    #[test]
    fn a_chain_has_a_head_and_no_dead_ends() {
        check("1 2>1 3>2", "3h 2 1 2-replaces>3 1-replaces>2");
    }

    #[test]
    fn a_skipped_bundle_is_marked_and_still_updates() {
        check("1 2 3>1!2", "3h 2su 1 2-skips>3 1-replaces>3");
    }

    #[test]
    fn ranges_lead_to_updates_as_names_do() {
        check("1 2~2 3>2", "3h 2 1h 2-replaces>3 1-skipRange>2");
    }

    #[test]
    fn a_bundle_without_a_path_to_the_head_is_a_dead_end() {
        check("1 2>1 4 3", "4hu 3hud 2hd 1d 1-replaces>2");
    }

    #[test]
    fn bundles_that_do_not_fit_are_left_out_and_counted() {
        let mut catalog = Catalog::default();
        let text = "schema: olm.package\nname: p\ndefaultChannel: b\n---\nschema: olm.channel\npackage: p\nname: a\n\
                    entries: [{name: x}]\n---\nschema: olm.channel\npackage: p\nname: b\n\
                    entries: [{name: x}, {name: z, replaces: x}]\n";
        catalog
            .load(text.as_bytes(), &limits())
            .expect("the catalog loads");
        let names = |most| {
            let graph = PackageGraph::within(&catalog, "p", most).expect("the package is there");
            let names: Vec<String> = graph.channels.into_iter().map(|channel| channel.name).collect();
            (names.join(" "), graph.omitted)
        };
        for (most, expected, omitted) in [(4, "b a", 0), (3, "b", 1), (2, "", 2)] {
            assert_eq!(names(most), (expected.to_owned(), omitted), "{most}");
        }
    }

    #[test]
    fn a_package_that_is_not_there_has_no_graph() {
        assert_eq!(PackageGraph::new(&Catalog::default(), "p"), None);
    }
}
