//! `olm catalog graph`.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use olm_fbc::graph::{PackageGraph, mermaid, svg};
use olm_fbc::similar::nearest;

use crate::hint::Hint;
use crate::output::{CommandResult, Status, print};
use crate::registry::RegistryArguments;
use crate::source::{MalformedBlobs, load_catalog, no_package};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Catalog: a file, directory, image, or the address of a running catalogd
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Package to draw [default: all packages, as Mermaid only]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    package: Option<String>,
    /// Only this channel
    #[arg(short, long)]
    channel: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: GraphFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    /// A flowchart as text.
    #[default]
    Mermaid,
    /// A picture.
    Svg,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let catalog = load_catalog(&arguments.source, &arguments.registry, MalformedBlobs::LeftOut)?;
    let mut names: Vec<&str> = match &arguments.package {
        Some(package) => vec![package],
        None => catalog
            .packages
            .iter()
            .map(|package| package.name.as_str())
            .collect(),
    };
    names.sort_unstable();
    let channels = |name: &str| -> BTreeSet<&str> {
        let channels = catalog.channels.iter();
        let of_package = channels.filter(|channel| name.is_empty() || channel.package == name);
        of_package.map(|channel| channel.name.as_str()).collect()
    };
    if let (Some(channel), None) = (&arguments.channel, &arguments.package)
        && !channels("").contains(channel.as_str())
    {
        let known = channels("");
        let error = anyhow!("no package of {} has a channel {channel:?}", arguments.source);
        return Err(error.context(Hint(match nearest(channel, known) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => "`olm catalog list channels` lists them".to_owned(),
        })));
    }
    let mut graphs = Vec::new();
    for name in names {
        let Some(mut graph) = PackageGraph::new(&catalog, name) else {
            let known = catalog.packages.iter().map(|package| package.name.as_str());
            return Err(no_package(name, &arguments.source, known));
        };
        if let Some(channel) = &arguments.channel {
            graph = graph.only(channel);
            if graph.channels.is_empty() && arguments.package.is_some() {
                let channels: Vec<&str> = channels(name).into_iter().collect();
                bail!(
                    "package {name:?} has no channel {channel:?}; its channels: {}",
                    channels.join(", ")
                );
            }
        }
        graphs.push(graph);
    }
    match (arguments.output, graphs.as_slice()) {
        (GraphFormat::Mermaid, graphs) => print(&mermaid(graphs))?,
        (GraphFormat::Svg, [graph]) => print(&svg(graph))?,
        (GraphFormat::Svg, []) => bail!("{} has no package to draw", arguments.source),
        (GraphFormat::Svg, graphs) => bail!("a picture shows one package; name one of the {}", graphs.len()),
    }
    Ok(Status::Success)
}
