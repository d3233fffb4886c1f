//! The account that works on the objects of a set.

use std::sync::Arc;

use kube::Client;
use olm_api::{ClusterObjectSet, cluster_object_set::LifecycleState, names};
use olm_cluster::identity::{AccountName, AccountNameError, IdentityError};
use olm_platform::queue::Outcome;

use super::{
    conclusion::{RIGHTS, RunConclusion},
    context::Context,
};

/// A client with the rights of a service account.
#[derive(Clone)]
pub(super) struct Actor {
    pub(super) account: AccountName,
    pub(super) client: Client,
}

/// The reason why the account cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccountFailure {
    /// The set has no account, and there is no default.
    #[error(
        "no service account is named: the annotation {} is absent and no default account is configured; set the annotation, or start operator-controller with --default-service-account",
        names::annotation::SERVICE_ACCOUNT
    )]
    Unnamed,
    /// The name is invalid.
    #[error(transparent)]
    Misnamed(AccountNameError),
    /// The account has no token.
    #[error(transparent)]
    Unidentified(IdentityError),
}

impl AccountFailure {
    /// Whether the account does not exist.
    pub(super) fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Unidentified(IdentityError::AccountMissing(_) | IdentityError::NamespaceMissing(_))
        )
    }

    /// Whether a retry may succeed without a change by a user.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unidentified(IdentityError::Unavailable { .. }))
    }

    /// The conclusion for the conditions.
    pub(super) fn conclusion(&self) -> RunConclusion {
        let message = self.to_string();
        match self {
            Self::Unnamed | Self::Misnamed(_) => RunConclusion::blocked(message, Outcome::Done),
            Self::Unidentified(_) if self.is_transient() => {
                RunConclusion::retrying(message, Outcome::After(RIGHTS))
            }
            Self::Unidentified(_) => RunConclusion::waiting(message, Outcome::After(RIGHTS)),
        }
    }
}

/// The account of a set.
pub(super) fn account(context: &Context, set: &ClusterObjectSet) -> Result<AccountName, AccountFailure> {
    match set.annotation(names::annotation::SERVICE_ACCOUNT) {
        Some(text) => text.parse().map_err(AccountFailure::Misnamed),
        None => context
            .options
            .default_account
            .clone()
            .ok_or(AccountFailure::Unnamed),
    }
}

/// The account of a set, with a client.
pub(super) async fn identify(context: &Context, set: &ClusterObjectSet) -> Result<Actor, AccountFailure> {
    let account = account(context, set)?;
    let client = context.accounts.client(&account).await;
    let client = client.map_err(AccountFailure::Unidentified)?;
    Ok(Actor { account, client })
}

/// The account for the teardown of a set: its own, or if that is gone, the account of a newer revision of the same
/// extension.
pub(super) async fn identify_for_removal(
    context: &Context,
    set: &ClusterObjectSet,
) -> Result<Actor, AccountFailure> {
    let no_actor = match identify(context, set).await {
        Err(no_actor) if no_actor.is_gone() => no_actor,
        other => return other,
    };
    let Some(newer) = successor(context.sets.siblings(set), set.spec.revision) else {
        return Err(no_actor);
    };
    identify(context, &newer).await.map_err(|_| no_actor)
}

/// The newest active revision after the given one.
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
