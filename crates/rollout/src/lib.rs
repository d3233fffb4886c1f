//! What a ClusterObjectSet holds, and how it is rolled out, taken down and reported. Without any input or output.
//!
//! ```text
//! ClusterObjectSet ─► policy ─► content ─► validate ─► phases ─► engine ─► report ─► status
//!                                (Secrets)             outline   rollout
//!                                                                teardown
//! ```
//!
//! A controller reads the set and its Secrets, hands what it found to the [`engine`], makes the requests that the engine
//! asks for, and writes the [`status`] that follows. Start reading at [`engine`].

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
