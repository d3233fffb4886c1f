//! What a run is for.

/// What a run wants of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// That they are as the revision says.
    Keep,
    /// That they are gone.
    Remove,
}
