//! operator-controller: installs the extensions in ClusterExtensions and keeps them up to date.
//!
//! ```text
//! catalogs ─┐
//! bundles  ─┴► extension ──ClusterObjectSet──► object_set ──► cluster
//!              which bundle,                   applied, kept,   under the
//!              which objects                   taken down       account
//! ```
//!
//! `certificates` belongs to both: the provider is chosen with the bundle, and our certificates are created with its
//! objects. `conditions` lets operators block their upgrade. [`openshift`] is independent of both. [`run`](run::run)
//! connects everything; start reading at [`extension`].

pub mod args;
pub(crate) mod bundles;
pub(crate) mod catalogs;
pub(crate) mod certificates;
pub(crate) mod conditions;
// The tests in `test/` plan with these for all real bundles. They are no public API.
#[doc(hidden)]
pub mod extension;
#[doc(hidden)]
pub mod metrics;
#[doc(hidden)]
pub mod object_set;
#[doc(hidden)]
pub mod openshift;
pub mod run;

pub use olm_cluster as cluster;

/// Prints the version of this binary.
#[expect(clippy::print_stdout, reason = "the subcommand `version` is there to print")]
pub fn print_version() {
    println!("{}", olm_platform::version::line(env!("CARGO_PKG_VERSION")));
}
