//! The verbs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::extension::{approve, history, plan, rollback, uninstall};
use crate::output::{Outcome, Status, print};
use crate::resolve::updates;
use crate::{bundle, catalog, crd, rbac, resolve, search};

/// Work with operator catalogs and bundles.
#[derive(Debug, Parser)]
#[command(
    name = "olm",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0 on success, 1 when a check or the command fails, 2 when the command line is wrong."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Reads the command line; a wrong one and a call for help end the process. Called as `kubectl-olm`, as kubectl calls
/// its plugins, the program speaks of itself as `kubectl olm`.
pub(crate) fn parse() -> Arguments {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called
        .as_deref()
        .and_then(Path::file_stem)
        .and_then(OsStr::to_str);
    let mut command = Arguments::command();
    if name.is_some_and(|name| name.starts_with("kubectl-")) {
        command = command.bin_name("kubectl olm");
    }
    let matches = command.get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// File-based catalogs: validate, render, diff, graph, build, push, serve
    #[command(subcommand, arg_required_else_help = true)]
    Catalog(catalog::Command),
    /// Bundles of the format registry+v1: init, validate, render, convert, push
    #[command(subcommand, arg_required_else_help = true)]
    Bundle(bundle::Command),
    /// Custom resource definitions: check whether an upgrade is safe
    #[command(subcommand, arg_required_else_help = true)]
    Crd(crd::Command),
    /// Approve a change of a ClusterExtension that waits for an approval
    Approve(approve::Arguments),
    /// Show the revisions of a ClusterExtension, and how each ended
    History(history::Arguments),
    /// Show what the next revision of a ClusterExtension would change, before anything is written
    Plan(plan::Arguments),
    /// Reject a change of a ClusterExtension that waits for an approval
    Reject(approve::Arguments),
    /// Show which bundle an extension would install, or why none fits
    Resolve(resolve::Arguments),
    /// Print the roles that a service account needs for an extension
    Rbac(rbac::Arguments),
    /// Take a ClusterExtension on a cluster back to the version of an earlier revision
    Rollback(rollback::Arguments),
    /// Find packages in catalogs by name, keyword, category or provided API
    Search(search::SearchArguments),
    /// Show a package of one or more catalogs
    Show(search::ShowArguments),
    /// Show what uninstalling a ClusterExtension would remove, keep and wait for
    Uninstall(uninstall::Arguments),
    /// Show which updates the extensions of a cluster would get, and why not the newest
    Updates(updates::Arguments),
    /// Print the version
    Version,
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Catalog(command) => command.run(),
            Self::Bundle(command) => command.run(),
            Self::Crd(command) => command.run(),
            Self::Approve(arguments) => approve::approve(&arguments),
            Self::Reject(arguments) => approve::reject(&arguments),
            Self::History(arguments) => history::run(&arguments),
            Self::Plan(arguments) => plan::run(&arguments),
            Self::Resolve(arguments) => resolve::run(&arguments),
            Self::Rbac(arguments) => rbac::run(&arguments),
            Self::Rollback(arguments) => rollback::run(&arguments),
            Self::Search(arguments) => search::search(&arguments),
            Self::Show(arguments) => search::show(&arguments),
            Self::Uninstall(arguments) => uninstall::run(&arguments),
            Self::Updates(arguments) => updates::run(&arguments),
            Self::Version => {
                print(&format!(
                    "{}\n",
                    olm_platform::version::known(env!("CARGO_PKG_VERSION"))
                ))?;
                Ok(Status::Success)
            }
        }
    }
}

#[cfg(test)]
mod tests;
