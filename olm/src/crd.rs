//! `olm crd`.

mod check;
mod definitions;
mod live;

use clap::Subcommand;

use crate::output::CommandResult;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check whether new custom resource definitions can replace the old ones
    Check(check::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> CommandResult {
        match self {
            Self::Check(arguments) => check::run(&arguments),
        }
    }
}
