//! OperatorGroups: the namespaces that they select, the APIs that their members provide, and one pass over one.
//!
//! - [`apis`] and [`namespaces`] are the sets that the rules compare;
//! - [`conflicts`] decides whether an API may be provided here;
//! - [`labels`] marks the namespaces that OperatorGroups select;
//! - [`targets`] and [`install_modes`] are about the namespaces of an OperatorGroup and of its members;
//! - [`roles`] has the ClusterRoles for users, [`copies`] the copies of members in other namespaces;
//! - [`tenants`] gives members their rights in the namespaces that are selected;
//! - [`pass`] brings all of it together.

pub mod apis;
pub mod conflicts;
pub mod copies;
pub mod install_modes;
pub mod labels;
pub mod namespaces;
pub mod pass;
pub mod roles;
pub mod targets;
pub mod tenants;

mod model;

pub use apis::{ApiKey, ApiSet, provided_by, required_by};
pub use conflicts::{ApiDecision, OperatorGroupApis};
pub use model::{OperatorGroup, OperatorGroupSpec, OperatorGroupStatus};
pub use namespaces::NamespaceSet;
