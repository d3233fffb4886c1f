//! What a process begins and ends with: arguments, logs, signals.

pub mod args;
pub mod crypto;
pub mod features;
pub mod log;
pub mod memory;
pub mod shutdown;
pub mod version;
