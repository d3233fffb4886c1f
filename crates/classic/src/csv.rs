//! ClusterServiceVersions.
//!
//! - [`phases`] is one pass over one, [`requirements`] what it needs;
//! - [`condition`] is the OperatorCondition beside it, [`component`] the Operator that it belongs to;
//! - [`cluster_operator`] is what OpenShift reads of all of them.

pub mod cluster_operator;
pub mod component;
pub mod condition;
pub mod explain;
pub mod phases;
pub mod requirements;

mod model;
mod status;

pub(crate) use model::null_is_default;
pub use model::{
    ApiDefinitions, ApiDescription, COPIED, ClusterServiceVersion, CsvSpec, CsvStatus, InstallStrategy,
    Metadata, OwnerReference, PolicyRule, ServiceAccountPermissions, StrategyDeployment, StrategyDetails,
    complete_version,
};
pub use olm_bundle::csv::InstallModeEntry;
pub use status::set_phase;
