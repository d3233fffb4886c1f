//! ClusterServiceVersions.

mod model;

pub use model::{
    ApiDefinitions, ApiDescription, ClusterServiceVersion, CsvSpec, CsvStatus, InstallModeEntry,
    InstallStrategy, Metadata, OwnerReference, PolicyRule, ServiceAccountPermissions, StrategyDeployment,
    StrategyDetails,
};
