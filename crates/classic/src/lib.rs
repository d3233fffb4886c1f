//! The rules of OLM classic (`operators.coreos.com`), without any input or output.
//!
//! - [`catalog_source`] is about CatalogSources: the registry of each, its health, a pass over one;
//! - [`crds`] makes the CustomResourceDefinitions;
//! - [`csv`] is about ClusterServiceVersions: what they require, and what a pass over one does;
//! - [`install`] is about the Deployments of their install strategies;
//! - [`install_plan`] is about InstallPlans: the steps of a bundle, a pass that carries them out;
//! - [`operator`] is about Operators: which objects belong to one, and what it says of them;
//! - [`operator_condition`] is about the conditions by which operators say whether they may be replaced;
//! - [`operator_group`] is about OperatorGroups: the namespaces they select and the APIs that their members provide;
//! - [`cluster`] holds the objects that a pass reads;
//! - [`hash`] makes the hashes in names, labels and annotations;
//! - [`names`] holds every label, annotation and kind once;
//! - [`package_manifest`] makes PackageManifests of catalogs;
//! - [`properties`] reads and writes the annotation with the properties of a bundle;
//! - [`registry`] answers the calls of the registry API over a file-based catalog;
//! - [`resolve`] finds the operators that the Subscriptions of a namespace ask for;
//! - [`subscription`] is about Subscriptions: what their status says, a pass over those of a namespace;
//! - [`wire`] writes objects as the Go types of the API do.
//!
//! Callers gather the objects and pass the time; they write what the rules return.

pub mod catalog_source;
pub mod cluster;
pub mod crds;
pub mod csv;
pub mod install;
pub mod install_plan;
pub mod names;
pub mod operator;
pub mod operator_condition;
pub mod operator_group;
pub mod package_manifest;
pub mod properties;
pub mod registry;
pub mod resolve;
pub mod subscription;
pub mod wire;

pub use wire::hash;
