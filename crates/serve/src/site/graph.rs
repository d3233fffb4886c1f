//! The update graph of a package as a picture for the page: a row for each version, the newest at the top, and a lane
//! for each channel, labelled where its newest version is. It has links to the versions.

use std::collections::{BTreeMap, HashMap, HashSet};

use maud::{Markup, html};
use olm_fbc::graph::{ChannelGraph, EdgeKind, Node, PackageGraph};

use super::package::Package;
use super::{package_path, version_path};

/// The maximum number of bundles and updates in all channels.
const DRAWN: usize = 10_000;
/// The maximum numbers of versions, the newest first: on the page of a package, where they fit on a screen, and on that
/// of its versions.
pub(super) const NEWEST: usize = 16;
pub(super) const ROWS: usize = 100;
/// The maximum number of channels, the default channel first.
const CHANNELS: usize = 30;
const ROW: usize = 28;
const LANE: usize = 22;
const MARGIN: usize = 18;
/// The width of a letter of the labels, which have a monospaced font.
const LETTER: usize = 8;
/// The maximum numbers of letters of a label, and of the fault of a channel.
const LETTERS: usize = 28;
const FAULT: usize = 240;
/// The number of colours of lanes.
const SHADES: usize = 6;

/// The lane of a channel: its position from the left, and its bundles with their rows.
struct Lane<'of> {
    channel: &'of ChannelGraph,
    at: usize,
    shade: usize,
    /// The row of each node that is drawn.
    rows: HashMap<usize, usize>,
}

/// The section with the picture of at most `most` versions; empty for a package without channels.
pub(super) fn section(of: &Package, most: usize) -> Markup {
    let graph = PackageGraph::within(&of.parts, &of.name, DRAWN).filter(|graph| !graph.channels.is_empty());
    let Some(graph) = graph else {
        return html! {};
    };
    let names = rows(of, &graph, most);
    let lanes = lanes(&graph, &names);
    let left_out = graph.omitted + graph.channels.len().saturating_sub(CHANNELS);
    let older = of.bundles.len().saturating_sub(names.len());
    let faults: Vec<(&str, &str)> = graph
        .channels
        .iter()
        .filter_map(|channel| Some((channel.name.as_str(), channel.fault.as_deref()?)))
        .collect();
    html! {
        section id="updates" {
            h2 { "Update graph" }
            @for (channel, fault) in faults.iter().take(5) {
                div class="notice warn" { p { "Channel " strong { (channel) } " is invalid: " (cut(fault, FAULT)) } }
            }
            div class="zoom" {
                input type="radio" name="zoom" id="zoom-fit";
                label for="zoom-fit" { "Fit" }
                input type="radio" name="zoom" id="zoom-one" checked;
                label for="zoom-one" { "100 %" }
                input type="radio" name="zoom" id="zoom-two";
                label for="zoom-two" { "200 %" }
                div class="graph" tabindex="0" role="region" aria-label="Update graph" { (picture(of, &names, &lanes)) }
            }
            p class="legend" {
                span { svg aria-hidden="true" width="28" height="10" { path class="edge shade-0" d="M2 5H26" {} } "replaces" }
                span { svg aria-hidden="true" width="28" height="10" { path class="edge shade-0 skips" d="M2 5H26" {} } "skips, also by range" }
                span { svg aria-hidden="true" width="12" height="12" { circle class="dot hollow shade-0" cx="6" cy="6" r="4.5" {} } "skipped" }
            }
            @if older > 0 {
                p class="quiet" {
                    (older) @if older == 1 { " older version is not drawn." } @else { " older versions are not drawn." }
                    @if most < ROWS {
                        " " a href={ (package_path(&of.catalog, &of.name)) "/versions#updates" } { "Draw more" }
                    }
                }
            }
            @if left_out > 0 {
                p class="quiet" { (left_out) " channels are not drawn; " code { "olm catalog graph" } " draws them." }
            }
        }
    }
}

/// The names of the bundles that are drawn, a row each.
fn rows<'of>(of: &'of Package, graph: &'of PackageGraph, most: usize) -> Vec<&'of str> {
    let nodes = || {
        graph
            .channels
            .iter()
            .take(CHANNELS)
            .flat_map(|channel| &channel.nodes)
    };
    let drawn: HashSet<&str> = nodes().map(|node| node.name.as_str()).collect();
    let known = of.bundles.iter().map(|row| row.name.as_str());
    let known: Vec<&str> = known.filter(|name| drawn.contains(name)).collect();
    // Bundles that are in channels but not in the catalog come last.
    let mut seen: HashSet<&str> = known.iter().copied().collect();
    let unknown: Vec<&str> = nodes()
        .map(|node| node.name.as_str())
        .filter(|name| seen.insert(name))
        .collect();
    known.into_iter().chain(unknown).take(most).collect()
}

/// Each channel in the leftmost lane that is free between its newest and its oldest bundle.
fn lanes<'of>(graph: &'of PackageGraph, names: &[&str]) -> Vec<Lane<'of>> {
    let places: HashMap<&str, usize> = names.iter().enumerate().map(|(row, name)| (*name, row)).collect();
    let mut taken: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut lanes = Vec::new();
    for (number, channel) in graph.channels.iter().take(CHANNELS).enumerate() {
        let nodes = channel.nodes.iter().enumerate();
        let rows: HashMap<usize, usize> = nodes
            .filter_map(|(node, bundle)| Some((node, *places.get(bundle.name.as_str())?)))
            .collect();
        let (Some(top), Some(bottom)) = (rows.values().min().copied(), rows.values().max().copied()) else {
            continue;
        };
        let free = taken
            .iter()
            .position(|lane| lane.iter().all(|(first, last)| bottom < *first || *last < top));
        let at = free.unwrap_or(taken.len());
        match taken.get_mut(at) {
            Some(lane) => lane.push((top, bottom)),
            None => taken.push(vec![(top, bottom)]),
        }
        lanes.push(Lane {
            channel,
            at,
            shade: number % SHADES,
            rows,
        });
    }
    lanes
}

fn middle(row: usize) -> usize {
    MARGIN + row * ROW
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// The label of a row.
#[derive(Default)]
struct Label<'of> {
    version: String,
    states: Vec<&'static str>,
    /// The channels with this bundle as their head, and their colours.
    heads: Vec<(&'of ChannelGraph, usize)>,
}

fn labels<'of>(names: &[&str], lanes: &[Lane<'of>]) -> Vec<Label<'of>> {
    let mut labels: Vec<Label<'of>> = names.iter().map(|_| Label::default()).collect();
    for lane in lanes {
        let top = lane.rows.values().min();
        for (node, row) in &lane.rows {
            let (Some(bundle), Some(label)) = (lane.channel.nodes.get(*node), labels.get_mut(*row)) else {
                continue;
            };
            let shown = if bundle.version.is_empty() {
                &bundle.name
            } else {
                &bundle.version
            };
            label.version = cut(shown, LETTERS);
            for (is, state) in [
                (bundle.deprecated.is_some(), "deprecated"),
                (bundle.is_dead_end, "dead end"),
                (bundle.is_missing, "no bundle"),
            ] {
                if is && !label.states.contains(&state) {
                    label.states.push(state);
                }
            }
            if Some(row) == top {
                label.heads.push((lane.channel, lane.shade));
            }
        }
    }
    labels
}

fn picture(of: &Package, names: &[&str], lanes: &[Lane<'_>]) -> Markup {
    let labels = labels(names, lanes);
    let left = MARGIN + lanes.iter().map(|lane| lane.at + 1).max().unwrap_or(0) * LANE;
    let mut width = left;
    let texts: Vec<Markup> = labels
        .iter()
        .enumerate()
        .map(|(row, label)| {
            let (text, end) = beside(
                of,
                names.get(row).copied().unwrap_or_default(),
                label,
                left,
                middle(row),
            );
            width = width.max(end);
            text
        })
        .collect();
    let height = 2 * MARGIN + names.len().saturating_sub(1) * ROW;
    let width = width + MARGIN;
    html! {
        svg role="group" aria-label={ "Updates of " (of.name) } width=(width) height=(height)
            viewBox={ "0 0 " (width) " " (height) } preserveAspectRatio="xMinYMin meet" {
            @for lane in lanes { (drawn(lane)) }
            @for text in &texts { (text) }
        }
    }
}

/// The label of a row, and its right end.
fn beside(of: &Package, name: &str, label: &Label<'_>, left: usize, y: usize) -> (Markup, usize) {
    let mut x = left + label.version.chars().count() * LETTER + 12;
    let states = label.states.join(", ");
    let states_at = x;
    if !states.is_empty() {
        x += states.chars().count() * LETTER + 8;
    }
    let heads: Vec<(usize, usize, String, &ChannelGraph, usize)> = label
        .heads
        .iter()
        .map(|(channel, shade)| {
            let text = cut(&channel.name, LETTERS);
            let (at, wide) = (x, text.chars().count() * (LETTER - 1) + 18);
            x += wide + 6;
            (at, wide, text, *channel, *shade)
        })
        .collect();
    let is_missing = label.states.contains(&"no bundle");
    let text = html! {
        g {
            @if is_missing { text class="version" x=(left) y=(y + 4) { (label.version) } }
            @else {
                a href=(version_path(&of.catalog, &of.name, name)) {
                    text class="version" x=(left) y=(y + 4) { (label.version) }
                }
            }
            @if !states.is_empty() { text class="state" x=(states_at) y=(y + 4) { (states) } }
            @for (at, wide, text, channel, shade) in &heads {
                g class={ "head shade-" (shade) @if channel.is_default { " default" } } {
                    @if let Some(why) = &channel.deprecated { title { "deprecated: " (why) } }
                    rect x=(at) y=(y - 10) width=(wide) height="20" rx="10" {}
                    text x=(at + 7) y=(y + 4) { (text) }
                }
            }
        }
    };
    (text, x)
}

fn drawn(lane: &Lane<'_>) -> Markup {
    let x = MARGIN + lane.at * LANE;
    html! {
        g class={ "shade-" (lane.shade) } {
            @for (path, dashed) in edges(lane, x) { path class={ "edge" @if dashed { " skips" } } d=(path) {} }
            @for (node, row) in sorted(&lane.rows) {
                @if let Some(bundle) = lane.channel.nodes.get(node) {
                    circle class={ "dot" (state(bundle)) } cx=(x) cy=(middle(row)) r="5" { title { (about(lane.channel, bundle)) } }
                }
            }
        }
    }
}

fn sorted(rows: &HashMap<usize, usize>) -> BTreeMap<usize, usize> {
    rows.iter().map(|(node, row)| (*node, *row)).collect()
}

fn state(bundle: &Node) -> &'static str {
    match () {
        () if bundle.is_dead_end || bundle.is_missing => " bad",
        () if bundle.is_skipped => " hollow",
        () => "",
    }
}

fn about(channel: &ChannelGraph, bundle: &Node) -> String {
    let range = bundle
        .skip_range
        .as_deref()
        .map(|range| format!(", skipRange {range}"))
        .unwrap_or_default();
    let text = format!("{} in {}{range}", bundle.name, channel.name);
    text.chars().take(500).collect()
}

/// The updates of a lane. Of the updates to one bundle, only the longest is drawn: it spans the others.
fn edges(lane: &Lane<'_>, x: usize) -> Vec<(String, bool)> {
    let rows: HashSet<usize> = lane.rows.values().copied().collect();
    let mut farthest: BTreeMap<(usize, bool), usize> = BTreeMap::new();
    for edge in &lane.channel.edges {
        let (Some(from), Some(to)) = (lane.rows.get(&edge.from), lane.rows.get(&edge.to)) else {
            continue;
        };
        let dashed = edge.kind != EdgeKind::Replaces;
        let known = farthest.entry((*to, dashed)).or_insert(*from);
        *known = (*known).max(*from);
    }
    farthest
        .into_iter()
        .map(|((to, dashed), from)| {
            let (top, bottom) = (from.min(to), from.max(to));
            let (start, end) = (middle(from), middle(to));
            let is_straight = !dashed && (top + 1..bottom).all(|row| !rows.contains(&row));
            let path = if is_straight {
                format!("M{x} {start}V{end}")
            } else {
                let side = x.saturating_sub(LANE / 2);
                format!("M{x} {start}C{side} {start} {side} {start} {side} {}V{}C{side} {end} {side} {end} {x} {end}",
                    start.saturating_sub(ROW / 2).max(end), (end + ROW / 2).min(start))
            };
            (path, dashed)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use olm_fbc::meta::limits;

    use super::super::package::Row;
    use super::*;

    #[test]
    fn channels_that_do_not_overlap_share_a_lane_and_are_named_at_their_newest_version() {
        let mut of = Package {
            name: "p".to_owned(),
            catalog: "cat".to_owned(),
            ..Package::default()
        };
        let text = r#"{"schema":"olm.package","name":"p","defaultChannel":"new"}
            {"schema":"olm.channel","package":"p","name":"new","entries":[{"name":"p.v3"},{"name":"p.v4","replaces":"p.v3"}]}
            {"schema":"olm.channel","package":"p","name":"<old>","entries":[{"name":"p.v1"},{"name":"p.v2","skipRange":"<2.0.0"}]}
            {"schema":"olm.channel","package":"p","name":"all","entries":[{"name":"p.v1"},{"name":"p.v4","skips":["p.v1"]}]}"#;
        of.parts.load(text.as_bytes(), &limits()).unwrap();
        for version in ["4", "3", "2", "1"] {
            let bundle = format!(
                r#"{{"schema":"olm.bundle","package":"p","name":"p.v{version}","image":"i",
                "properties":[{{"type":"olm.package","value":{{"packageName":"p","version":"{version}.0.0"}}}}]}}"#
            );
            of.parts.load(bundle.as_bytes(), &limits()).unwrap();
            of.bundles.push(Row {
                name: format!("p.v{version}"),
                ..Row::default()
            });
        }
        let graph = PackageGraph::new(&of.parts, "p").unwrap();
        let names = rows(&of, &graph, ROWS);
        assert_eq!(names, ["p.v4", "p.v3", "p.v2", "p.v1"]);
        let places: Vec<(&str, usize)> = lanes(&graph, &names)
            .iter()
            .map(|lane| (lane.channel.name.as_str(), lane.at))
            .collect();
        assert_eq!(places, [("new", 0), ("<old>", 0), ("all", 1)]);
        let page = section(&of, ROWS).into_string();
        for part in [
            "&lt;old&gt;",
            "href=\"/packages/cat/p/versions/p.v2\"",
            ">4.0.0</text>",
            "class=\"edge skips\"",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert_eq!(
            page.matches("<circle class=\"dot").count(),
            6 + 1,
            "with the one of the legend: {page}"
        );
        let part = section(&of, 3).into_string();
        assert!(
            part.contains("1 older version is not drawn.") && !part.contains(">1.0.0</text>"),
            "{part}"
        );
        assert!(
            part.contains("href=\"/packages/cat/p/versions#updates\""),
            "{part}"
        );
    }
}
