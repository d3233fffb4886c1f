//! Abandons a deletion whose account is gone with its namespace. A user who deletes namespace, account and extension at
//! once wants the objects gone, too, and no other account has the right to delete them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use olm_api::ClusterObjectSet;
use olm_rollout::policy::{Policy, Uninstall};

use super::live_extension;
use crate::object_set::{acting::account, context::Context};

/// The time that a deleted revision waits for an account that is gone with its namespace. Until then the account can be
/// created again, and the user can still change the policy.
const GRACE: Duration = Duration::from_mins(1);

/// Whether objects that the account can no longer delete are abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abandoned {
    /// The objects wait for the account.
    No,
    /// The objects are released after this time, unless the account exists again.
    After(Duration, Uninstall),
    /// The objects are released.
    Now(Uninstall),
}

impl Abandoned {
    /// The text for the condition.
    pub(super) fn text(self) -> Option<String> {
        let Self::After(_, uninstall) = self else {
            return None;
        };
        let outcome = match uninstall {
            Uninstall::Delete => "garbage collection removes the rest",
            Uninstall::KeepCrds | Uninstall::Orphan => "the rest stays on the cluster",
        };
        Some(format!(
            "the account is deleted with its namespace: {} s after the deletion began, {outcome}",
            GRACE.as_secs()
        ))
    }
}

/// Whether to abandon the objects of a set that is being deleted and whose account does not exist. If the facts are
/// unknown, nothing changes.
pub(super) async fn abandoned(context: &Context, set: &ClusterObjectSet) -> Abandoned {
    let Some(uninstall) = uninstall(context, set).await else {
        return Abandoned::No;
    };
    let Ok(account) = account(context, set) else {
        return Abandoned::No;
    };
    let namespaces: Api<Namespace> = Api::all(context.own.clone());
    let is_going = match namespaces.get_metadata_opt(&account.namespace).await {
        Ok(None) => true,
        Ok(Some(namespace)) => namespace.metadata.deletion_timestamp.is_some(),
        Err(_) => false,
    };
    let since = set.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    match since.filter(|_| is_going) {
        Some(since) => {
            let waited = (context.options.clock)().duration_since(since);
            due(Duration::try_from(waited).unwrap_or_default(), uninstall)
        }
        None => Abandoned::No,
    }
}

fn due(waited: Duration, uninstall: Uninstall) -> Abandoned {
    match GRACE.checked_sub(waited).filter(|left| !left.is_zero()) {
        Some(left) => Abandoned::After(left, uninstall),
        None => Abandoned::Now(uninstall),
    }
}

/// The user's present uninstall policy; `None` while the extension exists and is not being deleted, or its policy is
/// invalid.
async fn uninstall(context: &Context, set: &ClusterObjectSet) -> Option<Uninstall> {
    let of_set = || Policy::of(set).ok().map(|policy| policy.uninstall);
    let Some(extension) = live_extension(context, set).await.ok()? else {
        return of_set();
    };
    extension.deletion_timestamp.as_ref()?;
    let annotations = extension.annotations.unwrap_or_default();
    let policy = Policy::read(|key| annotations.get(key).map(String::as_str)).ok()?;
    Some(policy.uninstall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_passes_before_objects_are_let_go() {
        let (delete, keep) = (Uninstall::Delete, Uninstall::KeepCrds);
        let after = |seconds| due(Duration::from_secs(seconds), delete);
        assert_eq!(after(0), Abandoned::After(GRACE, delete));
        assert_eq!(after(59), Abandoned::After(Duration::from_secs(1), delete));
        assert_eq!(after(60), Abandoned::Now(delete));
        assert_eq!(due(GRACE * 2, keep), Abandoned::Now(keep));
    }

    #[test]
    fn the_condition_names_the_objects_left_to_garbage_collection() {
        let text = |uninstall| Abandoned::After(GRACE, uninstall).text().unwrap_or_default();
        assert!(text(Uninstall::Delete).ends_with("garbage collection removes the rest"));
        assert!(text(Uninstall::KeepCrds).ends_with("the rest stays on the cluster"));
        assert_eq!(Abandoned::No.text(), None);
    }
}
