//! The objects of an operator, and what a move keeps of them.

pub mod backup;
pub mod content;
pub mod inventory;
pub mod record;
pub mod reduce;
