//! `olm bundle`.

mod convert;
mod init;
mod push;
mod render;
mod validate;

use clap::Subcommand;

use crate::hint::Hint;
use crate::output::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Begin a bundle: write the files of one that can be installed
    #[command(disable_version_flag = true)]
    Init(init::Arguments),
    /// Check a bundle against all rules and report every fault
    Validate(validate::Arguments),
    /// Write the objects that installing a bundle would apply
    Render(render::Arguments),
    /// Turn bundles, or a directory of package manifests, into a catalog
    Convert(convert::Arguments),
    /// Make an image of a bundle and push it
    Push(push::Arguments),
}

/// The way to every fault of a bundle.
fn faults_shown(source: &str) -> Hint {
    Hint(format!("`olm bundle validate {source}` shows every fault"))
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Init(arguments) => init::run(&arguments),
            Self::Validate(arguments) => validate::run(&arguments),
            Self::Render(arguments) => render::run(&arguments),
            Self::Convert(arguments) => convert::run(&arguments),
            Self::Push(arguments) => push::run(&arguments),
        }
    }
}
