//! Whether an extension goes on without a revision that is being deleted.

use kube::{Api, core::PartialObjectMeta};
use olm_api::{ClusterExtension, ClusterObjectSet, cluster_object_set::LifecycleState, conditions, names};

use crate::object_set::context::{Context, extension_uid};

/// Whether the extension of a revision that is being deleted needs what the revision holds.
pub(super) enum Successor<'a> {
    /// It is gone, or has all it needs, or takes the revision down.
    None,
    /// It goes on without this revision.
    NextRevision(&'a str),
    /// It is being deleted, but its deletion may be blocked, and the user may still choose what stays.
    Undecided(&'a str),
}

/// The successor that needs the objects of a revision, as long as no later one is complete: deleting the definitions of this
/// one would delete all custom resources, and the extension's next revision needs them anyway.
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

/// Whether a later revision is complete, so that it has everything that it wants.
fn supersedes(other: &ClusterObjectSet, set: &ClusterObjectSet) -> bool {
    other.spec.revision > set.spec.revision
        && other.spec.lifecycle_state == LifecycleState::Active
        && !other.is_deleting()
        && conditions::is_true(other.conditions(), conditions::SUCCEEDED)
}
