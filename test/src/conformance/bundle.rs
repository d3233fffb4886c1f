//! Bundles: parsing, lint, configuration, rendering, and the safety of upgrades.

pub mod bundle_config;
pub mod bundle_to_fbc;
pub mod bundle_validators;
pub mod crd_upgrade_safety;
pub mod max_openshift_version;
pub mod registryv1_render;
