//! The objects that the controllers read, and how they are written.
//!
//! - [`kinds`] names the kinds and what is kept of their objects;
//! - [`store`] follows them and hands out snapshots;
//! - [`account`] chooses the account that content is written under;
//! - [`write`] writes what a pass returns.

pub mod account;
pub mod kinds;
pub mod store;
pub mod write;
