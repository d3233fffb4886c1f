//! `olm catalog`.

mod build;
mod diff;
mod dockerfile;
mod graph;
mod init;
mod list;
pub(crate) mod mirror;
mod push;
mod render;
mod serve;
mod template;
mod validate;

use clap::{Subcommand, ValueEnum};
use olm_author::write;
use olm_fbc::Catalog;

pub(crate) use render::{MigrateArguments, image_of, image_template};

use crate::output::CommandResult;

/// The output format of a catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CatalogFormat {
    /// A stream of indented JSON objects.
    #[default]
    Json,
    /// One line of JSON for each object.
    Jsonl,
    /// YAML documents.
    Yaml,
}

impl CatalogFormat {
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
    /// Check a catalog and report every error and warning
    Validate(validate::Arguments),
    /// Print catalogs and bundles as one catalog, always in the same order
    Render(render::Arguments),
    /// Create a catalog with one package
    Init(init::Arguments),
    /// List packages, channels or bundles
    List(list::Arguments),
    /// Show what a new catalog changes for users of the old one
    Diff(diff::Arguments),
    /// Draw the update graph of packages
    Graph(graph::Arguments),
    /// Render a catalog template
    Template(template::Arguments),
    /// Convert a catalog to a template
    ConvertTemplate(template::ConvertArguments),
    /// Write a Dockerfile that builds the image of a catalog
    Dockerfile(dockerfile::Arguments),
    /// Build the image of a catalog, or compose one of several catalogs
    Build(build::Arguments),
    /// Build the image of a catalog and push it
    Push(push::Arguments),
    /// Serve catalogs over HTTP as catalogd does, without a cluster
    Serve(serve::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> CommandResult {
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
