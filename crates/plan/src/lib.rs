//! The effects of a change of an extension, before it is made. Bundles become phases of objects ([`phases`]), two
//! revisions become a list of differences ([`changes`], [`fields`]), and everything that an approver decides on becomes
//! a [`ChangePlan`] with a digest. [`approval`] decides whether it may begin, [`history`] returns how revisions ended,
//! [`uninstall`] what a deletion removes.
//!
//! operator-controller applies what these functions render, and the command line shows it; both call the same code.

pub mod approval;
pub mod bundle;
pub mod change;
pub mod changes;
mod content;
pub mod definitions;
pub mod fields;
pub mod history;
pub mod images;
pub mod phases;
pub mod rights;
pub mod uninstall;

pub use bundle::BundleIdentity;
pub use change::{Change, ChangePlan, Observed};
pub use content::digest_of as digest;
