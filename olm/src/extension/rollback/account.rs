//! The identity for the dry run of an older revision: the service account of operator-controller's writes, if the user
//! may act as it. An answer to the user proves nothing for the account.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use olm_api::names::annotation;
use olm_api::{ClusterExtension, ClusterObjectSet};

/// The identity of the requests.
pub(crate) struct RequestIdentity {
    /// A client that asks as the account, else as the user.
    pub(crate) client: Client,
    /// Whether the requests are made as the account; otherwise the reason.
    pub(crate) account: Result<(), String>,
}

impl RequestIdentity {
    /// The account that will write the objects of the extension's next revision, if the user may impersonate it.
    pub(crate) async fn of(
        config: &Config,
        user: &Client,
        extension: &ClusterExtension,
        present: &ClusterObjectSet,
    ) -> Self {
        let acting = match account(extension, Some(present)) {
            Some((namespace, name)) => act_as(config, user, namespace, name).await,
            None => Err("the ClusterExtension names no service account".to_owned()),
        };
        match acting {
            Ok(client) => Self {
                client,
                account: Ok(()),
            },
            Err(why) => Self {
                client: user.clone(),
                account: Err(why),
            },
        }
    }
}

/// Namespace and name of the account: the one in the extension, otherwise the one in its revision.
pub(crate) fn account<'a>(
    extension: &'a ClusterExtension,
    present: Option<&'a ClusterObjectSet>,
) -> Option<(&'a str, &'a str)> {
    let named = extension.spec.service_account.as_ref();
    match named.filter(|account| !account.name.is_empty()) {
        Some(account) => Some((&extension.spec.namespace, &account.name)),
        None => present?.annotation(annotation::SERVICE_ACCOUNT)?.split_once('/'),
    }
}

/// A client that acts as a service account.
pub(crate) async fn act_as(
    config: &Config,
    user: &Client,
    namespace: &str,
    name: &str,
) -> Result<Client, String> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some("impersonate".to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("serviceaccounts".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(user.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer
        .map_err(|error| format!("cannot check whether you may impersonate {namespace}/{name}: {error}"))?;
    if !answer.status.is_some_and(|status| status.allowed) {
        return Err(format!("you may not impersonate {namespace}/{name}"));
    }
    if config.auth_info.impersonate.is_some() {
        return Err("the kubeconfig impersonates another user already".to_owned());
    }
    Client::try_from(impersonating(config.clone(), namespace, name)).map_err(|error| error.to_string())
}

/// The same connection as a service account. The API server adds the groups of service accounts.
fn impersonating(mut config: Config, namespace: &str, name: &str) -> Config {
    let user = &mut config.auth_info;
    user.impersonate = Some(format!("system:serviceaccount:{namespace}:{name}"));
    user.impersonate_uid = None;
    user.impersonate_groups = None;
    user.impersonate_user_extra = None;
    config
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{ClusterExtensionSpec, ServiceAccountReference};
    use olm_api::cluster_object_set::ClusterObjectSetSpec;

    use super::*;

    #[test]
    fn the_account_of_the_next_revision_is_asked_as() {
        let mut set = ClusterObjectSet::new("greeter-1", ClusterObjectSetSpec::default());
        set.metadata.annotations =
            Some([(annotation::SERVICE_ACCOUNT.to_owned(), "system/all".to_owned())].into());
        let bare = ClusterObjectSet::new("greeter-1", ClusterObjectSetSpec::default());
        for (named, set, expected) in [
            (Some("own"), &set, Some(("greeter-system", "own"))),
            (Some(""), &set, Some(("system", "all"))),
            (None, &set, Some(("system", "all"))),
            (None, &bare, None),
        ] {
            let spec = ClusterExtensionSpec {
                namespace: "greeter-system".to_owned(),
                service_account: named.map(|name| ServiceAccountReference {
                    name: name.to_owned(),
                }),
                ..ClusterExtensionSpec::default()
            };
            assert_eq!(
                account(&ClusterExtension::new("greeter", spec), Some(set)),
                expected
            );
        }
    }
}
