//! Is it safe to apply these objects? Asked before anything is written.
//!
//! - [`permissions`]: which rights the account needs for them, which of these are missing, and the role that grants
//!   them.
//! - [`crd_upgrade`]: whether a changed custom resource definition breaks what users have stored.
//! - [`installer`]: which objects would act as the account that installs them.
//! - [`dry_run`]: which objects a server-side dry run is asked about, and what its answers mean.
//!
//! The crate computes from facts that it is given. It never asks the API server.

pub mod crd_upgrade;
pub mod dry_run;
pub mod installer;
pub mod permissions;
pub mod rules;
