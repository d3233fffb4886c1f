//! Versions and ranges of them.

pub mod blang_ranges;
pub mod release_versions;
pub mod semver_constraints;
