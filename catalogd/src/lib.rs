//! catalogd: catalog images unpacked, checked, stored and served.
//!
//! ```text
//! ClusterCatalog ─► observe ─► plan ─► act ─► report ─► status
//!                   facts      pure    pull,   pure
//!                                      store
//! ```
//!
//! Every replica unpacks and serves. The leader alone writes to the API server; the others follow its status. Content
//! that does not load is not served, the old content stays until the new is complete, and no catalog waits for another.
//! Start reading at [`controller`].

pub mod args;
pub mod controller;
pub mod run;

mod content;
mod disk;
mod guard;
mod hint;
mod metrics;

/// Prints the version.
#[expect(clippy::print_stdout, reason = "the subcommand `version` is there to print")]
pub fn print_version() {
    println!("{}", olm_platform::version::line(env!("CARGO_PKG_VERSION")));
}
