//! Whether an extension needs the objects of a revision that is being deleted.

use olm_api::{ClusterObjectSet, cluster_object_set::LifecycleState, conditions, names};

use super::live_extension;
use crate::object_set::context::Context;

/// Whether an extension needs the objects of a revision that is being deleted.
pub(super) enum Successor {
    /// No: the extension is gone, has everything that it needs, or deletes the revision itself.
    None,
    /// Yes: its next revision needs them.
    NextRevision(String),
    /// Unknown: the extension is being deleted, but its deletion may be blocked, and the user may still change the
    /// policy.
    Undecided(String),
}

/// The successor of a revision, until a later one is complete. Deleting the CRDs of this revision would delete all
/// custom resources, and the next revision needs them anyway.
pub(super) async fn successor(context: &Context, set: &ClusterObjectSet) -> Result<Successor, kube::Error> {
    if set.spec.lifecycle_state == LifecycleState::Archived
        || set.annotation(names::annotation::UNINSTALLING).is_some()
        || context
            .sets
            .siblings(set)
            .iter()
            .any(|other| supersedes(other, set))
    {
        return Ok(Successor::None);
    }
    let Some(extension) = live_extension(context, set).await? else {
        return Ok(Successor::None);
    };
    let name = extension.name.clone().unwrap_or_default();
    let to_be_taken_down = |finalizer: &String| finalizer == names::finalizer::CLEANUP_CONTENT_MANAGER_CACHE;
    Ok(if extension.deletion_timestamp.is_none() {
        Successor::NextRevision(name)
    } else if extension.finalizers.iter().flatten().any(to_be_taken_down) {
        Successor::Undecided(name)
    } else {
        Successor::None
    })
}

/// Whether a later revision is complete, so that it has all of its objects.
fn supersedes(other: &ClusterObjectSet, set: &ClusterObjectSet) -> bool {
    other.spec.revision > set.spec.revision
        && other.spec.lifecycle_state == LifecycleState::Active
        && !other.is_deleting()
        && conditions::is_true(other.conditions(), conditions::SUCCEEDED)
}
