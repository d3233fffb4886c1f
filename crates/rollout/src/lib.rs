//! The content of a ClusterObjectSet, its rollout, its teardown and its status. Without input or output.
//!
//! ```text
//! ClusterObjectSet ─► policy ─► content ─► validate ─► phases ─► engine ─► report ─► status
//!                                (Secrets)             outline   rollout
//!                                                                teardown
//! ```
//!
//! A controller reads the set and its Secrets, passes them to the [`engine`], makes the requests that the engine
//! returns, and writes the resulting [`status`]. Start reading at [`engine`].

pub mod cause;
pub mod certificates;
pub mod content;
pub mod engine;
pub mod object;
pub mod policy;
pub mod probe;
pub mod report;
pub mod teardown_record;

pub use content::{outline, phases, validate};
pub use object::{canonical, inheritance, ownership};
pub use report::{failure, status};
