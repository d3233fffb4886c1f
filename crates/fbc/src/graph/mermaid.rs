//! The update graph of packages as Mermaid text.

use std::fmt::Write as _;

use super::package::{EdgeKind, PackageGraph};

/// The graphs as one Mermaid flowchart: a box for each package, in it one for each channel.
pub fn mermaid(graphs: &[PackageGraph]) -> String {
    let mut out = String::from(
        "graph LR\n  classDef head fill:#c8e6c9,stroke:#2e7d32\n  classDef skipped stroke-dasharray:4 3\n  \
         classDef deprecated fill:#ffe0b2,stroke:#b26a00\n  classDef deadend fill:#ffcdd2,stroke:#b71c1c\n  \
         classDef unreachable stroke-width:3px\n",
    );
    for (package_at, graph) in graphs.iter().enumerate() {
        let _ = writeln!(out, "  subgraph p{package_at}[\"{}\"]", label(&graph.package));
        for (channel_at, channel) in graph.channels.iter().enumerate() {
            let prefix = format!("p{package_at}c{channel_at}");
            let _ = writeln!(out, "    subgraph {prefix}[\"{}\"]", label(&channel.name));
            for (at, node) in channel.nodes.iter().enumerate() {
                let _ = writeln!(out, "      {prefix}n{at}[\"{}\"]", label(&node.name));
                for (is, class) in [
                    (node.is_head, "head"),
                    (node.is_skipped, "skipped"),
                    (node.deprecated.is_some(), "deprecated"),
                    (node.is_dead_end, "deadend"),
                    (node.is_unreachable, "unreachable"),
                ] {
                    if is {
                        let _ = writeln!(out, "      class {prefix}n{at} {class}");
                    }
                }
            }
            for edge in &channel.edges {
                let arrow = match edge.kind {
                    EdgeKind::Replaces => "-->",
                    EdgeKind::Skips | EdgeKind::SkipRange => "-.->",
                };
                let _ = writeln!(
                    out,
                    "      {prefix}n{} {arrow}|{}| {prefix}n{}",
                    edge.from,
                    edge.kind.name(),
                    edge.to
                );
            }
            out.push_str("    end\n");
        }
        out.push_str("  end\n");
    }
    out
}

/// Text that cannot end the label or the line, and is not markup.
fn label(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            '"' => "#quot;".to_owned(),
            '#' => "#35;".to_owned(),
            '<' => "#lt;".to_owned(),
            '>' => "#gt;".to_owned(),
            '`' => "#96;".to_owned(),
            letter if letter.is_control() => " ".to_owned(),
            letter => letter.to_string(),
        })
        .collect()
}
