//! Writes what is planned: revisions, their Secrets, finalizers. All of it is our own records.

pub mod adopt;
pub mod finalizers;
pub mod leftovers;
pub mod write;
