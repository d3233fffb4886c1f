//! Whether an extension needs the objects of a revision that is being deleted.

use kube::{Api, core::PartialObjectMeta};
use olm_api::{ClusterExtension, ClusterObjectSet, cluster_object_set::LifecycleState, conditions, names};

use crate::object_set::context::{Context, extension_uid};

/// Whether an extension needs the objects of a revision that is being deleted.
pub(super) enum Successor<'a> {
    /// No: the extension is gone, has everything that it needs, or deletes the revision itself.
    None,
    /// Yes: its next revision needs them.
    NextRevision(&'a str),
    /// Unknown: the extension is being deleted, but its deletion may be blocked, and the user may still change the
    /// policy.
    Undecided(&'a str),
}

/// The successor of a revision, until a later one is complete. Deleting the CRDs of this revision would delete all
/// custom resources, and the next revision needs them anyway.
pub(super) async fn successor<'a>(
    context: &Context,
    set: &'a ClusterObjectSet,
) -> Result<Successor<'a>, kube::Error> {
    let owners = set.metadata.owner_references.iter().flatten();
    let Some(owner) = extension_uid(set).and_then(|uid| owners.into_iter().find(|owner| owner.uid == uid))
    else {
        return Ok(Successor::None);
    };
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
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let found = extensions.get_metadata_opt(&owner.name).await?;
    let same =
        |found: &PartialObjectMeta<ClusterExtension>| found.metadata.uid.as_deref() == Some(&owner.uid);
    let Some(found) = found.filter(same) else {
        return Ok(Successor::None);
    };
    let to_be_taken_down = |finalizer: &String| finalizer == names::finalizer::CLEANUP_CONTENT_MANAGER_CACHE;
    Ok(if found.metadata.deletion_timestamp.is_none() {
        Successor::NextRevision(&owner.name)
    } else if found.metadata.finalizers.iter().flatten().any(to_be_taken_down) {
        Successor::Undecided(&owner.name)
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
