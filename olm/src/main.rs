//! `olm`: catalogs, bundles and their resolution on the command line. Also works as `kubectl olm`.

mod arguments;
mod bundle;
mod catalog;
mod crd;
mod extension;
mod hint;
mod input;
mod output;
mod rbac;
mod registry;
mod resolve;
mod search;
mod source;
mod ui;

use std::process::ExitCode;

fn main() -> ExitCode {
    olm_platform::crypto::install();
    match arguments::parse() {
        Some(arguments) => output::exit_code(arguments.command.run()),
        None => ExitCode::SUCCESS,
    }
}
