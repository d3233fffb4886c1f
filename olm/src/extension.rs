//! The commands for the ClusterExtensions of a cluster.

pub(crate) mod access;
pub(crate) mod approve;
pub(crate) mod change;
pub(crate) mod choose;
pub(crate) mod cluster;
pub(crate) mod history;
pub(crate) mod install;
pub(crate) mod look;
pub(crate) mod lookup;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod rollback;
pub(crate) mod served;
pub(crate) mod support;
pub(crate) mod uninstall;
