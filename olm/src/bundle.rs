//! `olm bundle`.

mod convert;
mod init;
mod push;
mod render;
mod validate;

use clap::Subcommand;

use crate::hint::Hint;
use crate::output::CommandResult;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the files of a new bundle
    Init(init::Arguments),
    /// Check a bundle and report every error and warning
    Validate(validate::Arguments),
    /// Print the objects that an installation of a bundle applies
    Render(render::Arguments),
    /// Convert bundles, or a directory of package manifests, to a catalog
    Convert(convert::Arguments),
    /// Build the image of a bundle and push it
    Push(push::Arguments),
}

/// The hint about the command that shows all faults of a bundle.
fn faults_shown(source: &str) -> Hint {
    Hint(format!("`olm bundle validate {source}` shows every error"))
}

impl Command {
    pub(crate) fn run(self) -> CommandResult {
        match self {
            Self::Init(arguments) => init::run(&arguments),
            Self::Validate(arguments) => validate::run(&arguments),
            Self::Render(arguments) => render::run(&arguments),
            Self::Convert(arguments) => convert::run(&arguments),
            Self::Push(arguments) => push::run(&arguments),
        }
    }
}
