//! What the cluster and the other extensions on it have to say about a bundle.
//!
//! `compatibility` decides whether a bundle can be there, [`platform`] whether the cluster itself suits it. [`providers`]
//! proposes what would provide a missing requirement, [`joint_update`] finds updates of several extensions that only go
//! together, and [`related`] finds the extensions that such an update may involve.

pub(crate) mod compatibility;
pub mod joint_update;
pub mod platform;
pub mod providers;
pub mod related;
