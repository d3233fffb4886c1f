//! `catalog-operator` on a real API server with a real registry: from Subscriptions to installed
//! ClusterServiceVersions.

mod bundles;
mod catalogs;
mod definitions;
mod failed;
mod hub;
mod install;
mod plans;
mod policies;
mod rights;
mod stage;
mod upgrade;
