//! OLM classic: the API group `operators.coreos.com` on the crates of OLM v1. One binary holds three programs, which
//! run as the Deployments that clients know:
//!
//! ```text
//! catalog-operator  registry/   CatalogSource ─► image ─► gRPC registry
//!                   catalog/    Subscription ─► resolution ─► InstallPlan ─► steps
//! olm-operator      operator/   OperatorGroup, ClusterServiceVersion ─► Deployments, roles, webhooks, copies
//! packageserver     packages/   gRPC registries ─► PackageManifests, an aggregated API
//! ```
//!
//! The rules are those of [`olm_classic`]: a controller takes a snapshot of the followed objects ([`objects`]), asks
//! the rule for one pass, and writes what it returns. Objects of the API group and our own records are written with the
//! program's rights, content of bundles under the account of the OperatorGroup, else under `--classic-account`.

pub mod args;
pub mod base;
pub mod catalog;
pub mod objects;
pub mod operator;
pub mod packages;
pub mod registry;
pub mod report;
pub mod run;
