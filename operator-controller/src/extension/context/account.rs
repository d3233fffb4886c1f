//! The service account that writes the objects of an extension.

use olm_api::names::annotation;
use olm_api::updates::held_back;
use olm_api::{ClusterExtension, ClusterObjectSet};

use crate::extension::failure::{Severity, StageError, retrying_unless_terminal};
use olm_cluster::identity::{AccountName, IdentityError};

/// An extension has no account, and there is no default.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no service account: set spec.serviceAccount.name to a service account in namespace {namespace:?} that may manage the \
     extension's objects, or start the controller with --default-service-account=NAMESPACE/NAME; {}",
    without(.kept_up_by.as_deref())
)]
pub(crate) struct AccountError {
    /// The extension's namespace.
    namespace: String,
    /// The account that still repairs drift of the installed version.
    kept_up_by: Option<String>,
}

/// The consequence of a missing account.
fn without(kept_up_by: Option<&str>) -> String {
    match kept_up_by {
        None => "nothing is applied without one".to_owned(),
        Some(account) => format!(
            "nothing new is applied without one; drift of the installed version is repaired under {account}, the account of its revision"
        ),
    }
}

impl AccountError {
    /// The error for an extension with this installed revision.
    #[must_use]
    pub(crate) fn with_installed(self, installed: Option<&ClusterObjectSet>) -> Self {
        let account = installed.and_then(|set| set.annotation(annotation::SERVICE_ACCOUNT));
        Self {
            kept_up_by: account.map(str::to_owned),
            ..self
        }
    }
}

impl StageError for AccountError {
    fn severity(&self) -> Severity {
        // A change of the ClusterExtension starts another run.
        Severity::Terminal
    }

    fn held_back_by(&self) -> &'static str {
        held_back::RIGHTS
    }
}

impl StageError for IdentityError {
    fn severity(&self) -> Severity {
        match self {
            Self::Unavailable { .. } => Severity::Transient,
            Self::AccountMissing(_) | Self::NamespaceMissing(_) | Self::Refused { .. } => Severity::Waiting,
        }
    }

    fn reason(&self) -> &'static str {
        retrying_unless_terminal(self.severity())
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => held_back::OTHER,
            Self::AccountMissing(_) | Self::NamespaceMissing(_) | Self::Refused { .. } => held_back::RIGHTS,
        }
    }
}

/// The account in the spec, in the extension's namespace; otherwise the default.
pub(crate) fn choose(
    extension: &ClusterExtension,
    default: Option<&AccountName>,
) -> Result<AccountName, AccountError> {
    let namespace = &extension.spec.namespace;
    match &extension.spec.service_account {
        Some(account) if !account.name.is_empty() => Ok(AccountName {
            namespace: namespace.clone(),
            name: account.name.clone(),
        }),
        _ => default.cloned().ok_or_else(|| AccountError {
            namespace: namespace.clone(),
            kept_up_by: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{ClusterExtensionSpec, ServiceAccountReference};

    use super::*;

    #[test]
    fn the_spec_comes_before_the_default_and_without_both_nothing_is_written() {
        let default: AccountName = "system/installer".parse().unwrap();
        let mut extension = ClusterExtension::new(
            "a",
            ClusterExtensionSpec {
                namespace: "apps".to_owned(),
                ..ClusterExtensionSpec::default()
            },
        );
        assert_eq!(choose(&extension, Some(&default)), Ok(default.clone()));
        let error = choose(&extension, None).unwrap_err();
        assert_eq!(
            (error.severity(), error.reason()),
            (Severity::Terminal, "Blocked")
        );
        let mut set = ClusterObjectSet::default();
        assert!(
            error
                .clone()
                .with_installed(Some(&set))
                .to_string()
                .ends_with("; nothing is applied without one")
        );
        set.metadata.annotations =
            Some([(annotation::SERVICE_ACCOUNT.to_owned(), "apps/old".to_owned())].into());
        let message = error.with_installed(Some(&set)).to_string();
        assert!(
            message.ends_with(
                "; drift of the installed version is repaired under apps/old, the account of its revision"
            ),
            "{message}"
        );
        extension.spec.service_account = Some(ServiceAccountReference {
            name: "own".to_owned(),
        });
        assert_eq!(
            choose(&extension, Some(&default)).unwrap().to_string(),
            "apps/own"
        );
        extension.spec.service_account = Some(ServiceAccountReference::default());
        assert_eq!(choose(&extension, Some(&default)), Ok(default));
    }
}
