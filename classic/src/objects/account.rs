//! The account that content of bundles is written under.

use olm_classic::cluster::{Cluster, text};
use olm_classic::names;
use olm_cluster::identity::AccountName;

use super::write::Actor;

/// There is no account for content of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot write content of namespace {0}: no account: set `spec.serviceAccountName` of its OperatorGroup, or start with \
     `--classic-account`"
)]
pub struct NoAccountError(String);

/// The account for content that the operators of a namespace bring: the one that its OperatorGroup names, else
/// `default`. Of several OperatorGroups the first by name counts: with several nothing is installed.
///
/// # Errors
/// When neither is there.
pub fn account(
    cluster: &Cluster,
    namespace: &str,
    default: Option<&AccountName>,
) -> Result<Actor, NoAccountError> {
    let named = cluster
        .in_namespace(names::OPERATOR_GROUP_KIND, namespace)
        .map(|group| text(group, "/spec/serviceAccountName"))
        .find(|name| !name.is_empty());
    let named = named.map(|name| AccountName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    });
    let account = named.or_else(|| default.cloned());
    account
        .map(Actor::Account)
        .ok_or_else(|| NoAccountError(namespace.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn group(account: &str) -> Cluster {
        let group = json!({
            "kind": "OperatorGroup", "metadata": {"namespace": "n", "name": "g"},
            "spec": {"serviceAccountName": account},
        });
        [group].into_iter().collect()
    }

    #[test]
    fn the_account_of_the_operator_group_comes_before_the_default() {
        let default: AccountName = "olm/installer".parse().unwrap();
        let check = |cluster: &Cluster, default: Option<&AccountName>, expected: Option<&str>| {
            let found = account(cluster, "n", default).ok();
            let expected = expected.map(|name| Actor::Account(name.parse().unwrap()));
            assert_eq!(found, expected);
        };
        check(&group("scoped"), Some(&default), Some("n/scoped"));
        check(&group(""), Some(&default), Some("olm/installer"));
        check(&Cluster::default(), Some(&default), Some("olm/installer"));
        check(&group(""), None, None);
    }
}
