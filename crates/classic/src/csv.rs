//! ClusterServiceVersions.

pub mod requirements;

mod model;
mod status;

pub(crate) use model::null_is_default;
pub use model::{
    ApiDefinitions, ApiDescription, COPIED, ClusterServiceVersion, CsvSpec, CsvStatus, InstallModeEntry,
    InstallStrategy, Metadata, OwnerReference, PolicyRule, ServiceAccountPermissions, StrategyDeployment,
    StrategyDetails,
};
pub use status::set_phase;
