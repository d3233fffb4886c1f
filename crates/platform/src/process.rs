//! Arguments, logs and signals of a process.

pub mod args;
pub mod crypto;
pub mod features;
pub mod log;
pub mod memory;
pub mod shutdown;
pub mod version;
