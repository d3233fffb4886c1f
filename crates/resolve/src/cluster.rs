//! What the cluster and the other extensions on it have to say about a bundle.
//!
//! [`inventory`] says what has to be known of the cluster, and holds what is.
//! `compatibility` decides whether a bundle can be there, [`platform`] whether the cluster itself suits it. [`providers`]
//! proposes what would provide a missing requirement, [`joint_update`] finds updates of several extensions that only go
//! together, and [`related`] finds the extensions that such an update may involve. [`updates`]
//! says why the newest bundle is not the one that is chosen, and [`fleet`] what another catalog would change on many clusters.

pub(crate) mod compatibility;
pub mod fleet;
pub mod inventory;
pub mod joint_update;
pub mod platform;
pub mod providers;
pub mod related;
pub mod updates;
