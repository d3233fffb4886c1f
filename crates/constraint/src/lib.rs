//! Requirements between bundles: parsing, checks, evaluation and explanation.
//!
//! 1. [`Constraint`] is the value of an `olm.constraint` as written;
//! 2. [`Requirement`] is a valid requirement of any kind, with parsed ranges and compiled rules;
//! 3. [`Present`] are the existing bundles, and the APIs that the cluster serves. [`Requirement::holds`] evaluates a
//!    requirement, [`Requirement::explain`] explains an unmet one.
//!
//! A constraint applies to the set of all bundles: two bundles may satisfy `all` of a package and an API. Only a CEL
//! rule can make several demands on one bundle.

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
pub use requirement::{ParseCache, Requirement, RequirementError, SimpleRequirement, api_text, fault};
