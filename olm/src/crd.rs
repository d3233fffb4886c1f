//! `olm crd`.

mod check;
mod definitions;
mod live;

use clap::Subcommand;

use crate::output::CommandResult;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check whether custom resource definitions may take the place of others, and say everything that is found
    Check(check::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> CommandResult {
        match self {
            Self::Check(arguments) => check::run(&arguments),
        }
    }
}
