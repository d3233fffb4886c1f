//! What a run over a ClusterObjectSet starts from: the sets themselves, their content, their accounts.

pub(super) mod accounts;
pub mod gather;
pub(super) mod load;
pub mod store;
