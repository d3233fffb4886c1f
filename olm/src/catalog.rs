//! `olm catalog`.

mod push;
mod render;
mod serve;
mod validate;

use clap::Subcommand;

pub(crate) use serve::named;

use crate::output::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a catalog against all rules and report every fault
    Validate(validate::Arguments),
    /// Write catalogs as one, in a form that depends on their content only
    Render(render::Arguments),
    /// Serve catalogs over HTTP as catalogd does, without a cluster
    Serve(serve::Arguments),
    /// Make an image of a catalog and push it
    Push(push::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Validate(arguments) => validate::run(&arguments),
            Self::Render(arguments) => render::run(&arguments),
            Self::Serve(arguments) => serve::run(&arguments),
            Self::Push(arguments) => push::run(&arguments),
        }
    }
}
