//! How work on a key ended.

use std::time::Duration;

/// What working on a key came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until the key is added again.
    Done,
    /// Look again after this time, or earlier when the key is added.
    After(Duration),
    /// Only a change of the object helps, which adds its key again. Counted on its own and not as a failure of the
    /// controller.
    Refused,
    /// Something transient went wrong: again after 1 s, 2 s, 4 s, … 5 min, or earlier when the key is added.
    Failed,
}
