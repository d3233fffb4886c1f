//! What is done with the ClusterExtensions of a cluster.

pub(crate) mod approve;
pub(crate) mod cluster;
pub(crate) mod history;
pub(crate) mod plan;
pub(crate) mod rollback;
pub(crate) mod uninstall;
