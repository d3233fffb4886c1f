//! Checks whether objects can be applied safely, before anything is written.
//!
//! - [`permissions`]: the rights that the account needs, the missing ones, and a role that grants them.
//! - [`crd_upgrade`]: whether a changed custom resource definition breaks stored objects.
//! - [`installer`]: the objects that would act as the account that installs them.
//! - [`dry_run`]: the objects of a server-side dry run, and the meaning of its answers.
//!
//! The crate computes from given facts and never calls the API server.

pub mod crd_upgrade;
pub mod dry_run;
pub mod installer;
pub mod permissions;
pub mod rules;
