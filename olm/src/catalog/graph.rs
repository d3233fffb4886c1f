//! `olm catalog graph`.

use anyhow::bail;
use clap::{Args, ValueEnum};
use olm_fbc::graph::{PackageGraph, mermaid, svg};

use crate::output::{Outcome, Verdict, print};
use crate::registry::RegistryArguments;
use crate::source::{load_catalog, no_package};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Catalog: a file, directory, image, or the address of a running catalogd
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Package to draw; all packages when none is named, as Mermaid only
    package: Option<String>,
    /// Only this channel
    #[arg(short, long)]
    channel: Option<String>,
    /// Form of the picture
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A flowchart as text.
    #[default]
    Mermaid,
    /// A picture.
    Svg,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let catalog = load_catalog(&arguments.source, &arguments.registry)?;
    let mut names: Vec<&str> = match &arguments.package {
        Some(package) => vec![package],
        None => catalog
            .packages
            .iter()
            .map(|package| package.name.as_str())
            .collect(),
    };
    names.sort_unstable();
    let mut graphs = Vec::new();
    for name in names {
        let Some(mut graph) = PackageGraph::new(&catalog, name) else {
            let known = catalog.packages.iter().map(|package| package.name.as_str());
            return Err(no_package(name, &arguments.source, known));
        };
        if let Some(channel) = &arguments.channel {
            graph = graph.only(channel);
            if graph.channels.is_empty() && arguments.package.is_some() {
                let channels = catalog.channels.iter().filter(|channel| channel.package == name);
                let mut channels: Vec<&str> = channels.map(|channel| channel.name.as_str()).collect();
                channels.sort_unstable();
                bail!(
                    "package {name:?} has no channel {channel:?}; its channels: {}",
                    channels.join(", ")
                );
            }
        }
        graphs.push(graph);
    }
    match (arguments.output, graphs.as_slice()) {
        (Form::Mermaid, graphs) => print(&mermaid(graphs))?,
        (Form::Svg, [graph]) => print(&svg(graph))?,
        (Form::Svg, graphs) => bail!("a picture shows one package; name one of the {}", graphs.len()),
    }
    Ok(Verdict::Good)
}
