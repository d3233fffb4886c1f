//! operator-controller: installs the extensions that ClusterExtensions ask for and keeps them as they should be.
//!
//! ```text
//! catalogs ─┐
//! bundles  ─┴► extension ──ClusterObjectSet──► object_set ──► cluster
//!              which bundle,                   applied, kept,   under the
//!              which objects                   taken down       account
//! ```
//!
//! [`certificates`] belongs to both: who provides them is chosen with the bundle, ours are made with its objects.
//! [`conditions`] lets operators hold their upgrade back. [`openshift`] stands aside and only looks. [`run`](run::run) wires everything; start reading at [`extension`].

pub mod args;
pub mod bundles;
pub mod catalogs;
pub mod certificates;
pub mod conditions;
pub mod extension;
pub mod metrics;
pub mod object_set;
pub mod openshift;
pub mod run;

pub use olm_cluster as cluster;

/// Prints what this binary is.
#[expect(clippy::print_stdout, reason = "the subcommand `version` is there to print")]
pub fn print_version() {
    println!("{}", olm_platform::version::line(env!("CARGO_PKG_VERSION")));
}
