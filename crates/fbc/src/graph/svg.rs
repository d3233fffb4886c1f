//! The update graph of a package as a picture.
//!
//! Each channel is a column with its newest bundle at the top. Updates run upwards: a `replaces` between neighbours is
//! a straight line, everything else an arc on the left. The picture is a pure function of the graph, uses no style
//! sheet, script, font or address, and takes its line colour from the text around it.

use std::fmt::Write as _;

use super::package::{ChannelGraph, Edge, EdgeKind, Node, PackageGraph};

const ROW: usize = 30;
const TOP: usize = 64;
const MARGIN: usize = 16;
/// Room for arcs at most.
const ARCS: usize = 120;
/// The width of a letter of a label.
const LETTER: usize = 7;
/// The width of a letter of a heading, which is larger and bold.
const HEADING_LETTER: usize = 9;
/// Letters of a label that are shown.
const MAX_LETTERS: usize = 60;

/// The picture of the graph.
pub fn svg(graph: &PackageGraph) -> String {
    let columns: Vec<Column<'_>> = columns(graph);
    let width = columns
        .last()
        .map_or(200, |column| column.left + column.width + MARGIN);
    let rows = graph
        .channels
        .iter()
        .map(|channel| channel.nodes.len() + usize::from(channel.omitted > 0))
        .max()
        .unwrap_or(0);
    let height = TOP + rows.max(1) * ROW + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" fill=\"currentColor\">\n\
         <title>Updates of {}</title>\n<defs><marker id=\"olm-arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" \
         markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
        escape(&graph.package)
    );
    for column in &columns {
        draw(column, &mut out);
    }
    out.push_str("</svg>\n");
    out
}

/// The position of a channel in the picture.
struct Column<'a> {
    channel: &'a ChannelGraph,
    left: usize,
    width: usize,
    /// The distance of the bundles from `left`.
    axis: usize,
}

fn columns(graph: &PackageGraph) -> Vec<Column<'_>> {
    let mut left = MARGIN;
    let mut columns = Vec::new();
    for channel in &graph.channels {
        let axis = channel.edges.iter().map(bulge).max().unwrap_or(0) + 12;
        let letters = channel.nodes.iter().map(|node| label(node).chars().count());
        let labels = axis + 16 + letters.max().unwrap_or(0) * LETTER;
        let width = labels.max(heading(channel).chars().count() * HEADING_LETTER);
        columns.push(Column {
            channel,
            left,
            width,
            axis,
        });
        left += width + 2 * MARGIN;
    }
    columns
}

fn heading(channel: &ChannelGraph) -> String {
    let mut text: String = channel.name.chars().take(MAX_LETTERS).collect();
    if channel.is_default {
        text.push_str(" (default)");
    }
    if channel.deprecated.is_some() {
        text.push_str(" (deprecated)");
    }
    text
}

/// The distance that the arc of an edge reaches to the left; zero for a straight line.
fn bulge(edge: &Edge) -> usize {
    let span = edge.from.abs_diff(edge.to);
    if span == 1 && edge.kind == EdgeKind::Replaces && edge.to < edge.from {
        0
    } else {
        (10 + span * 6).min(ARCS)
    }
}

fn draw(column: &Column<'_>, out: &mut String) {
    let channel = column.channel;
    let x = column.left + column.axis;
    let y = |at: usize| TOP + at * ROW;
    let _ = writeln!(
        out,
        "<g><text x=\"{}\" y=\"24\" font-size=\"14\" font-weight=\"bold\">{}{}</text>",
        column.left,
        escape(&heading(channel)),
        channel.deprecated.as_deref().map(title).unwrap_or_default(),
    );
    if let Some(fault) = &channel.fault {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"42\" fill=\"#c62828\">invalid{}</text>",
            column.left,
            title(fault)
        );
    }
    for edge in &channel.edges {
        draw_edge(edge, x, y(edge.from), y(edge.to), out);
    }
    for (at, node) in channel.nodes.iter().enumerate() {
        draw_node(node, x, y(at), out);
    }
    if channel.omitted > 0 {
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{}\">and {} older</text>",
            y(channel.nodes.len()) + 4,
            channel.omitted
        );
    }
    out.push_str("</g>\n");
}

fn draw_edge(edge: &Edge, x: usize, from: usize, to: usize, out: &mut String) {
    let dashes = match edge.kind {
        EdgeKind::Replaces => "",
        EdgeKind::Skips => " stroke-dasharray=\"5 3\"",
        EdgeKind::SkipRange => " stroke-dasharray=\"1 3\"",
    };
    let line = "fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.6\" marker-end=\"url(#olm-arrow)\"";
    let bulge = bulge(edge);
    let path = if bulge == 0 {
        format!("M{x} {}V{}", from.saturating_sub(7), to + 8)
    } else {
        // The left edge of the picture is no closer than the margin, which is wider than any rounding here.
        let side = x.saturating_sub(6);
        let control = side.saturating_sub(bulge * 4 / 3);
        format!("M{side} {from}C{control} {from} {control} {to} {side} {to}")
    };
    let _ = writeln!(
        out,
        "<path d=\"{path}\" {line}{dashes}><title>{}</title></path>",
        edge.kind.name()
    );
}

fn draw_node(node: &Node, x: usize, y: usize, out: &mut String) {
    let colour = if node.is_dead_end {
        "#c62828"
    } else if node.deprecated.is_some() {
        "#ef6c00"
    } else if node.is_head {
        "#2e7d32"
    } else {
        "#1565c0"
    };
    // Skipped and unreachable bundles are hollow.
    let fill = if node.is_skipped || node.is_unreachable && !node.is_head {
        "none"
    } else {
        colour
    };
    let mut about = node.name.clone();
    for (field, value) in [("skipRange", &node.skip_range), ("deprecated", &node.deprecated)] {
        if let Some(value) = value {
            let _ = write!(about, "\n{field}: {value}");
        }
    }
    let _ = writeln!(
        out,
        "<g>{}<circle cx=\"{x}\" cy=\"{y}\" r=\"6\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"2\"/>\
         <text x=\"{}\" y=\"{}\">{}</text></g>",
        title(&about),
        x + 14,
        y + 4,
        escape(&label(node)),
    );
}

/// Version or name, and the state of the bundle as text, so that no state is shown by colour alone.
fn label(node: &Node) -> String {
    let name = if node.version.is_empty() {
        &node.name
    } else {
        &node.version
    };
    let mut text: String = name.chars().take(MAX_LETTERS).collect();
    let states: Vec<&str> = [
        (node.is_head, "head"),
        (node.is_skipped, "skipped"),
        (node.deprecated.is_some(), "deprecated"),
        (node.is_unreachable && !node.is_head, "unreachable"),
        (node.is_dead_end, "dead end"),
        (node.is_missing, "no bundle"),
    ]
    .into_iter()
    .filter_map(|(is, state)| is.then_some(state))
    .collect();
    if !states.is_empty() {
        let _ = write!(text, " ({})", states.join(", "));
    }
    text
}

fn title(text: &str) -> String {
    let text: String = text.chars().take(1_000).collect();
    format!("<title>{}</title>", escape(&text))
}

/// Text that is neither markup nor a character that XML refuses.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::svg;
    use crate::graph::{PackageGraph, mermaid};
    use crate::{Catalog, meta::limits};

    const CATALOG: &str = r#"
        {"schema":"olm.package","name":"p","defaultChannel":"stable"}
        {"schema":"olm.channel","package":"p","name":"stable","entries":[
          {"name":"p.v1"},{"name":"p.v2","replaces":"p.v1","skipRange":"<2.0.0"},{"name":"p.v3","skips":["p.v2"]},
          {"name":"lost"}]}
        {"schema":"olm.channel","package":"p","name":"<b>\"&'\u0001</b>","entries":[{"name":"p.v1"}]}
        {"schema":"olm.bundle","package":"p","name":"p.v1","image":"i",
         "properties":[{"type":"olm.package","value":{"packageName":"p","version":"1.0.0"}}]}
        {"schema":"olm.bundle","package":"p","name":"p.v2","image":"i",
         "properties":[{"type":"olm.package","value":{"packageName":"p","version":"2.0.0"}}]}
        {"schema":"olm.bundle","package":"p","name":"p.v3","image":"i",
         "properties":[{"type":"olm.package","value":{"packageName":"p","version":"3.0.0"}}]}
        {"schema":"olm.deprecations","package":"p","entries":[
          {"reference":{"schema":"olm.bundle","name":"p.v1"},"message":"gone & <b>away</b>"}]}"#;

    fn graph() -> PackageGraph {
        let mut catalog = Catalog::default();
        catalog
            .load(CATALOG.as_bytes(), &limits())
            .expect("the catalog loads");
        PackageGraph::new(&catalog, "p").expect("the package is there")
    }

    #[test]
    fn a_drawing_describes_the_state_of_each_bundle() {
        let picture = svg(&graph());
        for expected in [
            ">stable (default)",
            ">3.0.0 (head)",
            ">2.0.0 (skipped",
            ">1.0.0 (deprecated)",
            ">lost (head, dead end, no bundle)",
            "multiple channel heads found in graph: lost, p.v3",
        ] {
            assert!(picture.contains(expected), "{expected} is not in {picture}");
        }
        assert_eq!(picture, svg(&graph()), "the picture depends on the graph only");
    }

    #[test]
    fn there_is_room_for_the_longest_heading() {
        let name = "candidate-of-a-version-with-a-long-name";
        let mut catalog = Catalog::default();
        let text = CATALOG.replace("\"name\":\"stable\"", &format!("\"name\":\"{name}\""));
        catalog.load(text.as_bytes(), &limits()).expect("it loads");
        let graph = PackageGraph::new(&catalog, "p").expect("the package is there");
        let picture = svg(&graph.only(name));
        let width = picture
            .split("width=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let width: usize = width
            .and_then(|width| width.parse().ok())
            .expect("it has a width");
        assert!(width >= name.len() * super::HEADING_LETTER, "{picture}");
    }

    #[test]
    fn no_text_of_a_catalog_becomes_markup() {
        let picture = svg(&graph());
        assert!(
            picture.contains("&lt;b&gt;&quot;&amp;&#39;\u{fffd}&lt;/b&gt;"),
            "{picture}"
        );
        assert!(picture.contains("gone &amp; &lt;b&gt;away"), "{picture}");
        let chart = mermaid(&[graph()]);
        assert!(chart.contains("[\"#lt;b#gt;#quot;&' #lt;/b#gt;\"]"), "{chart}");
    }

    #[test]
    fn a_chart_names_each_edge() {
        let chart = mermaid(&[graph()]);
        for expected in [
            "p0c0n2 -->|replaces| p0c0n1",
            "p0c0n1 -.->|skips| p0c0n0",
            "class p0c0n3 deadend",
        ] {
            assert!(chart.contains(expected), "{expected} is not in {chart}");
        }
    }
}
