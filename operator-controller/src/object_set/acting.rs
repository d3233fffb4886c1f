//! As whom a set's objects are worked on.

use std::sync::Arc;

use kube::Client;
use olm_api::{ClusterObjectSet, cluster_object_set::LifecycleState, names};
use olm_cluster::identity::{AccountName, AccountNameError, IdentityError};
use olm_platform::queue::Outcome;
use olm_rollout::status::RevisionState;

use super::{
    conclusion::{Conclusion, RIGHTS},
    context::Context,
};

/// A service account that can be acted as.
#[derive(Clone)]
pub(super) struct Actor {
    pub(super) account: AccountName,
    /// Acts as the account.
    pub(super) client: Client,
}

/// Why the account cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoActor {
    /// No account is named, and no default is configured.
    #[error(
        "no service account is named: the annotation {} is absent and no default account is configured",
        names::annotation::SERVICE_ACCOUNT
    )]
    Unnamed,
    /// The name is none.
    #[error(transparent)]
    Misnamed(AccountNameError),
    /// There is no token of the account.
    #[error(transparent)]
    Unidentified(IdentityError),
}

impl NoActor {
    /// Whether the account does not exist (any longer).
    pub(super) fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Unidentified(IdentityError::AccountMissing(_) | IdentityError::NamespaceMissing(_))
        )
    }

    /// Whether it may be otherwise the next time without a change by a user.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unidentified(IdentityError::Unavailable { .. }))
    }

    /// What the conditions are to say.
    pub(super) fn conclusion(&self) -> Conclusion {
        let message = self.to_string();
        match self {
            Self::Unnamed | Self::Misnamed(_) => {
                Conclusion::new(RevisionState::Blocked(message), Outcome::Done)
            }
            Self::Unidentified(_) if self.is_transient() => {
                Conclusion::retrying(message, Outcome::After(RIGHTS))
            }
            Self::Unidentified(_) => Conclusion::waiting(message, Outcome::After(RIGHTS)),
        }
    }
}

/// The account under which all objects of a set are worked on.
pub(super) fn account(context: &Context, set: &ClusterObjectSet) -> Result<AccountName, NoActor> {
    match set.annotation(names::annotation::SERVICE_ACCOUNT) {
        Some(text) => text.parse().map_err(NoActor::Misnamed),
        None => context.options.default_account.clone().ok_or(NoActor::Unnamed),
    }
}

/// The account of a set and a client that acts as it.
pub(super) async fn identify(context: &Context, set: &ClusterObjectSet) -> Result<Actor, NoActor> {
    let account = account(context, set)?;
    let client = context.accounts.client(&account).await;
    let client = client.map_err(NoActor::Unidentified)?;
    Ok(Actor { account, client })
}

/// As whom a set is taken down: its own account. When that is gone while a newer revision of the same extension works as
/// another one, as that.
pub(super) async fn identify_for_removal(
    context: &Context,
    set: &ClusterObjectSet,
) -> Result<Actor, NoActor> {
    let no_actor = match identify(context, set).await {
        Err(no_actor) if no_actor.is_gone() => no_actor,
        other => return other,
    };
    let Some(newer) = successor(context.sets.siblings(set), set.spec.revision) else {
        return Err(no_actor);
    };
    identify(context, &newer).await.map_err(|_| no_actor)
}

/// The newest active revision after the one given.
fn successor(siblings: Vec<Arc<ClusterObjectSet>>, revision: i64) -> Option<Arc<ClusterObjectSet>> {
    siblings
        .into_iter()
        .filter(|set| set.spec.lifecycle_state == LifecycleState::Active && set.spec.revision > revision)
        .max_by_key(|set| set.spec.revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_active_revision_stands_in_for_older_ones() {
        use LifecycleState::{Active, Archived};
        for (others, expected) in [
            (&[][..], None),
            (&[(1, Active), (2, Active)], None),
            (&[(1, Active), (4, Active), (5, Active), (6, Archived)], Some(5)),
        ] {
            let siblings = others.iter().map(|(revision, state)| {
                let mut set = ClusterObjectSet::default();
                set.spec.revision = *revision;
                set.spec.lifecycle_state = *state;
                Arc::new(set)
            });
            let found = successor(siblings.collect(), 3).map(|set| set.spec.revision);
            assert_eq!(found, expected);
        }
    }
}
