//! `olm catalog`.

mod build;
mod diff;
mod dockerfile;
mod graph;
mod init;
mod list;
mod push;
mod render;
mod serve;
mod template;
mod validate;

use clap::{Subcommand, ValueEnum};
use olm_author::write;
use olm_fbc::Catalog;

pub(crate) use render::{MigrateArguments, image_of, image_template};
pub(crate) use serve::named_source;

use crate::output::Outcome;

/// The form of a catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A stream of indented JSON objects.
    #[default]
    Json,
    /// One line of JSON for each object.
    Jsonl,
    /// YAML documents.
    Yaml,
}

impl Form {
    /// The catalog as text.
    pub(crate) fn write(self, catalog: &Catalog) -> String {
        match self {
            Self::Json => write::json(catalog),
            Self::Jsonl => write::json_lines(catalog),
            Self::Yaml => write::yaml(catalog),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a catalog against all rules and report every fault
    Validate(validate::Arguments),
    /// Write catalogs and bundles as one catalog, in a form that depends on their content only
    Render(render::Arguments),
    /// Begin a catalog: write one package
    Init(init::Arguments),
    /// List packages, channels or bundles
    List(list::Arguments),
    /// Tell what a new catalog changes for those who use the old one
    Diff(diff::Arguments),
    /// Draw the update graph of packages
    Graph(graph::Arguments),
    /// Render a template, of any kind or of the one that is named
    Template(template::Arguments),
    /// Turn a catalog into a template
    ConvertTemplate(template::ConvertArguments),
    /// Write a Dockerfile for a catalog, for those who build images otherwise
    Dockerfile(dockerfile::Arguments),
    /// Make an image of a catalog, or compose one of several catalogs
    Build(build::Arguments),
    /// Make an image of a catalog and push it
    Push(push::Arguments),
    /// Serve catalogs over HTTP as catalogd does, without a cluster
    Serve(serve::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Validate(arguments) => validate::run(&arguments),
            Self::Render(arguments) => render::run(&arguments),
            Self::Init(arguments) => init::run(&arguments),
            Self::List(arguments) => list::run(&arguments),
            Self::Diff(arguments) => diff::run(&arguments),
            Self::Graph(arguments) => graph::run(&arguments),
            Self::Template(arguments) => template::run(&arguments),
            Self::ConvertTemplate(arguments) => template::convert(&arguments),
            Self::Dockerfile(arguments) => dockerfile::run(&arguments),
            Self::Build(arguments) => build::run(&arguments),
            Self::Push(arguments) => push::run(&arguments),
            Self::Serve(arguments) => serve::run(&arguments),
        }
    }
}
