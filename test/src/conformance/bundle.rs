//! Bundles: what is read, linted, configured and rendered of them, and what an upgrade may change.

pub mod bundle_config;
pub mod bundle_to_fbc;
pub mod bundle_validators;
pub mod crd_upgrade_safety;
pub mod max_openshift_version;
pub mod registryv1_render;
