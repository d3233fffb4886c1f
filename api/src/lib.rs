//! The API of OLM v1: what users write, what the managers answer, and the names that both rely on.
//!
//! Start at [`ClusterExtension`], [`ClusterCatalog`] and [`ClusterObjectSet`]. [`names`] holds every label, annotation,
//! finalizer, field manager and lease once; [`conditions`] the condition types, reasons and the one rule by which a
//! transition time moves; [`command`] commands that messages tell; [`serving`] the addresses at which catalogd serves; [`crd`]
//! the `CustomResourceDefinitions`.
//! Nothing here reads a file, a clock or the network.

pub mod cluster_catalog;
pub mod cluster_extension;
pub mod cluster_object_set;
pub mod command;
pub mod conditions;
pub mod crd;
pub mod names;
pub mod serving;

mod kind;

pub use cluster_catalog::ClusterCatalog;
pub use cluster_extension::ClusterExtension;
pub use cluster_object_set::ClusterObjectSet;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time};
