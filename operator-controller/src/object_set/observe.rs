//! The inputs of a run over a ClusterObjectSet: the sets, their content, their accounts.

pub(super) mod accounts;
pub(crate) mod gather;
pub(super) mod load;
pub(crate) mod store;
