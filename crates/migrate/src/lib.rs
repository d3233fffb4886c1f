//! The move of an operator from OLM classic to a ClusterExtension, and back until the first upgrade. No object that the
//! operator consists of is changed but for its metadata.
//!
//! ```text
//! read ─► facts ─► check, mapping ─► assess ─► steps: record, hand over, remove
//!                                        └───► back: restore, hand back, remove
//! ```
//!
//! Callers decide whether a move is wanted: `olm migrate` asks its user, catalog-operator follows annotations.

pub mod assess;
pub mod back;
pub mod certificates;
pub mod check;
pub mod context;
pub mod facts;
pub mod hint;
pub mod mapping;
pub mod needs;
pub mod objects;
pub mod read;
pub mod steps;
