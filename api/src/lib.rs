//! The API of OLM v1: its kinds, conditions and names.
//!
//! Start at [`ClusterExtension`], [`ClusterCatalog`] and [`ClusterObjectSet`]; [`ChangePolicy`] and [`PendingChange`]
//! are about approvals. [`names`] contains every label, annotation, finalizer, field manager and lease; [`conditions`]
//! the condition types, reasons and the rule for transition times; [`readiness`] the conditions for tools; [`updates`]
//! the newer bundles in a status; [`text`] the escapes for text from outside; [`command`] the commands in messages;
//! [`serving`] the addresses at which catalogd serves; [`crd`] the `CustomResourceDefinitions`. Nothing here reads a
//! file, a clock or the network.

pub mod change_policy;
pub mod cluster_catalog;
pub mod cluster_extension;
pub mod cluster_object_set;
pub mod command;
pub mod conditions;
pub mod crd;
pub mod names;
pub mod object;
pub mod pending_change;
pub mod readiness;
pub mod serving;
pub mod verified;

mod kind;

pub use change_policy::ChangePolicy;
pub use cluster_catalog::ClusterCatalog;
pub use cluster_extension::{ClusterExtension, updates};
pub use cluster_object_set::ClusterObjectSet;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time};
pub use olm_text as text;
pub use pending_change::PendingChange;
