//! The effects of the cluster and of its other extensions on a bundle.
//!
//! [`inventory`] lists the needed facts about the cluster and holds them. `compatibility` decides whether a bundle can
//! be installed, [`platform`] whether the cluster itself supports it. [`providers`] proposes bundles for a missing
//! requirement, [`joint_update`] finds updates of several extensions that are only possible together, and [`related`]
//! the extensions that such an update may include. [`updates`] explains why the newest bundle is not chosen, and
//! [`fleet`] plans the effect of another catalog on many clusters.

pub(crate) mod compatibility;
pub mod fleet;
pub mod inventory;
pub mod joint_update;
pub mod platform;
pub mod providers;
pub mod related;
pub mod updates;
