//! catalogd: catalog images unpacked, checked, stored and served.
//!
//! ```text
//! ClusterCatalog ─► observe ─► plan ─► act ─► report ─► status
//!                   facts      pure    pull,   pure
//!                                      store
//! ```
//!
//! Every replica unpacks and serves; the leader alone writes to the API server, and the others take what the leader
//! reports. What cannot be loaded is not served, what was served stays until better content is here, and no catalog waits
//! for another. Start reading at [`controller`].

pub mod args;
pub mod controller;
pub mod run;

mod content;
mod disk;
mod guard;
mod hint;
mod metrics;

/// Prints what this binary is.
#[expect(clippy::print_stdout, reason = "the subcommand `version` is there to print")]
pub fn print_version() {
    println!("{}", olm_platform::version::line(env!("CARGO_PKG_VERSION")));
}
