//! The verbs.

mod complete;
mod examples;
mod man;
mod suggest;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::extension::change::{pause, pin, upgrade};
use crate::extension::look::{events, explain, get, runbook, version};
use crate::extension::{approve, history, install, migrate, plan, rollback, support, uninstall};
use crate::output::{CommandResult, Status, print};
use crate::registry::{image, trust_root, verify};
use crate::resolve::{fleet, inventory, updates};
use crate::search::show;
use crate::{bundle, catalog, crd, rbac, resolve, search, ui};

/// Install and manage operators; work with their catalogs and bundles.
#[derive(Debug, Parser)]
#[command(
    name = "olm",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0 on success, 1 when a check or the command fails, 2 when the command line is wrong, 3 when something \
                  would change and --exit-code asks for it, 4 when --wait ends because a person must change something, 5 when \
                  its time is over.\n\nErrors and hints are coloured on terminals only, and never where NO_COLOR is set."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Parses the command line; an error or a request for help ends the process. Called as `kubectl-olm`, as kubectl calls
/// its plugins, the program uses the name `kubectl olm`. Called as `kubectl_complete-olm`, it prints completions and
/// returns `None`.
pub(crate) fn parse() -> Option<Arguments> {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called
        .as_deref()
        .and_then(Path::file_stem)
        .and_then(OsStr::to_str);
    if name.is_some_and(|name| name.starts_with("kubectl_complete-")) {
        let words: Vec<String> = std::env::args().skip(1).collect();
        // The completion has no output for errors.
        let _ = print(&complete::for_kubectl(command(), &words));
        return None;
    }
    let mut command = command();
    if name.is_some_and(|name| name.starts_with("kubectl-")) {
        command = command.bin_name("kubectl olm");
    }
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let matches = matches.unwrap_or_else(|error| {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        let words = words.iter().filter_map(|word| word.to_str());
        suggest::with_one_suggestion(error, &command, words).exit()
    });
    Some(Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
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
    /// Push images unchanged
    #[command(subcommand, arg_required_else_help = true)]
    Image(image::Command),
    /// Approve a change of a ClusterExtension that waits for an approval
    Approve(approve::ApproveArguments),
    /// Print a script that completes commands in a shell
    Completion {
        /// Shell that reads the script
        shell: Shell,
    },
    /// Show the events about a ClusterExtension and its revisions
    Events(events::Arguments),
    /// Show what a ClusterExtension waits for, which bundles it could get, and what to do
    #[command(visible_alias = "describe")]
    Explain(explain::Arguments),
    /// Show the changes that new content of a catalog causes on many clusters
    #[command(subcommand, arg_required_else_help = true)]
    Fleet(fleet::Command),
    /// Show the ClusterExtensions of a cluster
    #[command(visible_aliases = ["list", "status"])]
    Get(get::Arguments),
    /// Show the revisions of a ClusterExtension, and how each ended
    History(history::Arguments),
    /// Install a package, with a namespace, an account and the rights that it needs
    Install(install::Arguments),
    /// Print the facts that decide which bundles a cluster gets, for `olm fleet plan`
    Inventory(inventory::Arguments),
    /// Write a manual page for each command
    Man {
        /// Directory for the pages, which is made where it is missing
        directory: PathBuf,
    },
    /// Move an operator from OLM classic: from a Subscription to a ClusterExtension
    Migrate(migrate::Arguments),
    /// Copy a catalog, its bundles and their images to another registry or a directory
    Mirror(catalog::mirror::Arguments),
    /// Stop all changes to a ClusterExtension
    Pause(pause::PauseArguments),
    /// Keep a ClusterExtension at one version
    Pin(pin::PinArguments),
    /// Show what the next revision of a ClusterExtension would change, before anything is written
    Plan(plan::Arguments),
    /// Reject a change of a ClusterExtension that waits for an approval
    Reject(approve::RejectArguments),
    /// Show which bundle an extension would install, or why none fits
    Resolve(resolve::Arguments),
    /// Print the roles that a service account needs for an extension
    Rbac(rbac::Arguments),
    /// Let a paused ClusterExtension change again
    Resume(pause::ResumeArguments),
    /// Take a ClusterExtension on a cluster back to the version of an earlier revision
    Rollback(rollback::Arguments),
    /// Show what an alert means and what to do, or list the alerts
    Runbook(runbook::Arguments),
    /// Find packages in catalogs by name, keyword, category or provided API
    Search(search::SearchArguments),
    /// Show a package of one or more catalogs
    Show(show::ShowArguments),
    /// Collect what support needs in one archive, without credentials
    SupportBundle(support::Arguments),
    /// Remove a ClusterExtension, after listing removed objects, kept objects and blockers
    #[command(visible_aliases = ["delete", "remove"])]
    Uninstall(uninstall::Arguments),
    /// The trust root that signatures are verified with: update
    #[command(subcommand, arg_required_else_help = true)]
    TrustRoot(trust_root::Command),
    /// Serve read-only pages about the extensions of a cluster, on this machine alone
    Ui(ui::Arguments),
    /// Let a pinned ClusterExtension follow newer versions again
    Unpin(pin::UnpinArguments),
    /// Show which updates the extensions of a cluster would get, and why not the newest
    Updates(updates::Arguments),
    /// Upgrade a ClusterExtension to a newer version
    Upgrade(upgrade::Arguments),
    /// Verify the signatures of an image, and print the signer and the time
    Verify(verify::Arguments),
    /// Print the version, and those of the managers on the cluster
    Version(version::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> CommandResult {
        match self {
            Self::Catalog(command) => command.run(),
            Self::Bundle(command) => command.run(),
            Self::Crd(command) => command.run(),
            Self::Image(command) => command.run(),
            Self::Approve(arguments) => approve::approve(&arguments),
            Self::Reject(arguments) => approve::reject(&arguments),
            Self::Completion { shell } => completion(shell),
            Self::Events(arguments) => events::run(&arguments),
            Self::Explain(arguments) => explain::run(&arguments),
            Self::Fleet(command) => command.run(),
            Self::Get(arguments) => get::run(&arguments),
            Self::History(arguments) => history::run(&arguments),
            Self::Install(arguments) => install::run(&arguments),
            Self::Inventory(arguments) => inventory::run(&arguments),
            Self::Man { directory } => man(&directory),
            Self::Migrate(arguments) => migrate::run(&arguments),
            Self::Mirror(arguments) => catalog::mirror::run(&arguments),
            Self::Pause(arguments) => pause::pause(&arguments),
            Self::Pin(arguments) => pin::pin(&arguments),
            Self::Plan(arguments) => plan::run(&arguments),
            Self::Resume(arguments) => pause::resume(&arguments),
            Self::Resolve(arguments) => resolve::run(&arguments),
            Self::Rbac(arguments) => rbac::run(&arguments),
            Self::Rollback(arguments) => rollback::run(&arguments),
            Self::Runbook(arguments) => runbook::run(&arguments),
            Self::Search(arguments) => search::search(&arguments),
            Self::Show(arguments) => show::show(&arguments),
            Self::SupportBundle(arguments) => support::run(&arguments),
            Self::Uninstall(arguments) => uninstall::run(&arguments),
            Self::TrustRoot(command) => command.run(),
            Self::Ui(arguments) => ui::run(&arguments),
            Self::Unpin(arguments) => pin::unpin(&arguments),
            Self::Updates(arguments) => updates::run(&arguments),
            Self::Upgrade(arguments) => upgrade::run(&arguments),
            Self::Verify(arguments) => verify::run(&arguments),
            Self::Version(arguments) => version::run(&arguments),
        }
    }
}

/// The command line with all help texts.
fn command() -> clap::Command {
    complete::without_files(examples::with_examples(Arguments::command()))
}

fn completion(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "olm", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Success)
}

fn man(directory: &Path) -> CommandResult {
    let failed = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(failed)?;
    man::write(command(), directory).with_context(failed)?;
    Ok(Status::Success)
}

#[cfg(test)]
mod tests;
