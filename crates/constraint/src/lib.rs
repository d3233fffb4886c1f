//! What a bundle requires of others: read, check, evaluate, explain.
//!
//! 1. [`Constraint`] is the value of an `olm.constraint` as it is written;
//! 2. [`Requirement`] is a requirement of any kind that was found sound: ranges parsed, rules compiled;
//! 3. [`Present`] is what there is: bundles, and APIs that the cluster serves. [`Requirement::holds`] asks whether it
//!    satisfies a requirement, [`Requirement::explain`] says why not.
//!
//! A constraint speaks about the set of all bundles: `all` of a package and an API may be satisfied by two bundles;
//! only a CEL rule asks several things of one.

pub mod cel;
pub mod pattern;

mod constraint;
mod explain;
mod present;
mod requirement;

pub use constraint::{CelRule, Compound, Constraint, MAX_SIZE, PackageConstraint, ParseError};
pub use explain::Explanation;
pub use olm_fbc::property::Gvk;
pub use present::{Present, Subject, Undecided};
pub use requirement::{ParseCache, Requirement, RequirementError, Wanted, api_text, fault};
