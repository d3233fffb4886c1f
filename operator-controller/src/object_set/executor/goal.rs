//! The goal of a run.

/// The goal of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// Keep the objects as the revision wants them.
    Keep,
    /// Delete them.
    Remove,
}
