//! What an extension asks for and what there is of it: its account, its options, its revisions, and who claims its package.

pub mod account;
pub mod conflicts;
pub mod options;
pub mod release;
pub mod revisions;
