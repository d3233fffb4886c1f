//! The effects of a change of an extension, before it is made. Bundles become phases of objects ([`phases`]), two
//! revisions become a list of differences ([`changes`], [`fields`]), and all facts for an approver become a
//! [`ChangePlan`] with a digest. [`approval`] decides whether it may begin, [`history`] returns the states of
//! revisions, [`uninstall`] the effects of a deletion. [`pack`] stores the objects of a revision in Secrets.
//!
//! operator-controller applies the rendered objects, and the command line shows them; both call the same code.

pub mod approval;
pub mod bundle;
pub mod change;
pub mod changes;
mod content;
pub mod definitions;
pub mod fields;
pub mod history;
pub mod images;
pub mod pack;
pub mod phases;
pub mod rights;
pub mod uninstall;

pub use bundle::BundleIdentity;
pub use change::{Change, ChangePlan, Observed};
pub use content::digest_of as digest;
