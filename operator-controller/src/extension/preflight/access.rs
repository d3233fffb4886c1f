//! The account of a preflight, and its errors.

use kube::Client;
use olm_api::conditions::reason;
use olm_api::names::user;
use olm_api::updates::held_back;
use olm_preflight::installer::InstallerInUse;
use olm_preflight::permissions::Right;

use super::ownership::OwnershipError;
use crate::bundles::pulls::Pending;
use crate::bundles::{FetchError, operands};
use crate::extension::failure::{Severity, StageError};
use olm_cluster::discover::Discovery;
use olm_cluster::identity::{AccountName, IdentityError};
use olm_cluster::permissions::{Reviews, Viewer};
use olm_rollout::failure::FailureKind;

/// The most bytes of findings in a condition. Further ones are only counted.
pub(crate) const MAX_FINDINGS: usize = 8192;

/// The reason why a revision is not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreflightError {
    /// The account cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The rights of the account are unknown.
    #[error("cannot check the rights of service account {account}")]
    Ask {
        account: AccountName,
        source: kube::Error,
    },
    /// The account lacks rights.
    #[error("{missing}")]
    Rights {
        /// The first missing rights.
        missing: String,
        /// The command that prints the roles.
        help: String,
    },
    /// A CRD on the cluster cannot be read.
    #[error("getting existing resource for CRD {name:?}: {message}")]
    Read {
        /// The definition.
        name: String,
        /// The class of the failure.
        kind: FailureKind,
        /// The message of the server.
        message: String,
    },
    /// Workloads would run under the installing account.
    #[error(transparent)]
    Installer(#[from] InstallerInUse),
    /// Other extensions own CRDs of the bundle.
    #[error(transparent)]
    Owned(#[from] OwnershipError),
    /// A changed CRD breaks stored objects.
    #[error("{found}")]
    Definitions {
        /// The findings, in the text of the reference implementation.
        found: String,
        /// The compared objects, and a hint.
        help: Option<String>,
    },
    /// Stored versions of another owner's CRD would have to be removed.
    #[error(
        "cannot remove {gone} from status.storedVersions of CRD {name:?}, which belongs to another owner; to let this extension take it over, set the annotation {key}", key = user::ADOPT
    )]
    Foreign {
        /// The definition.
        name: String,
        /// The versions.
        gone: String,
    },
    /// The API server would refuse changes.
    #[error("{0}")]
    Refused(String),
    /// Images of the bundle's Pods do not satisfy the signature policy.
    #[error("{0}")]
    Images(String),
    /// The images of the bundle's Pods are being verified. The extension is reconciled afterwards.
    #[error("{}", operands::pending(*.0))]
    Verifying(Pending),
    /// The registries of these images cannot be accessed.
    #[error("cannot verify the images of the bundle's Pods, as the annotation {key} asks", key = user::VERIFY_IMAGES)]
    Access(#[source] FetchError),
    /// Companions are not ready.
    #[error("waiting for {}: they update together", .0.join(" and "))]
    NotReady(Vec<String>),
}

impl PreflightError {
    /// Whether the account may not read the object of the check.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(
            self,
            Self::Read {
                kind: FailureKind::Forbidden,
                ..
            }
        )
    }
}

impl StageError for PreflightError {
    fn severity(&self) -> Severity {
        match self {
            Self::Identity(error) => error.severity(),
            Self::Ask { .. } => Severity::Transient,
            Self::Verifying(_) => Severity::Pulling,
            Self::Access(error) => error.severity(),
            Self::Read { kind, .. } if *kind != FailureKind::Forbidden => Severity::Transient,
            Self::Foreign { .. }
            | Self::Rights { .. }
            | Self::Read { .. }
            | Self::Definitions { .. }
            | Self::Owned(_)
            | Self::NotReady(_)
            // No event announces a new signature.
            | Self::Images(_)
            | Self::Refused(_) => Severity::Waiting,
            // A change of bundle, account or annotation starts another run.
            Self::Installer(_) => Severity::Terminal,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Definitions { help, .. } => help.clone(),
            Self::Rights { help, .. } => Some(help.clone()),
            Self::Images(_) => Some(format!(
                "sign the images, change the signature policy, or set the annotation {} to `bundle`",
                user::VERIFY_IMAGES
            )),
            _ => None,
        }
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Identity(error) => error.held_back_by(),
            Self::Rights { .. } => held_back::RIGHTS,
            Self::Read { .. } if self.is_forbidden() => held_back::RIGHTS,
            Self::Definitions { .. } | Self::Foreign { .. } => held_back::CRD_UPGRADE_SAFETY,
            Self::NotReady(_) => held_back::REQUIREMENT,
            Self::Images(_) => held_back::SIGNATURE,
            Self::Access(error) => error.held_back_by(),
            Self::Ask { .. }
            | Self::Read { .. }
            | Self::Installer(_)
            | Self::Owned(_)
            | Self::Verifying(_)
            | Self::Refused(_) => held_back::OTHER,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Installer(_) => reason::BLOCKED,
            _ => reason::RETRYING,
        }
    }
}

/// The account and clients of a preflight.
pub(crate) struct PreflightAccess<'a> {
    pub(crate) account: &'a AccountName,
    pub(crate) client: &'a Client,
    pub(crate) discovery: &'a Discovery,
    pub(crate) reviews: &'a Reviews,
}

impl PreflightAccess<'_> {
    pub(crate) async fn may(&self, right: &Right) -> Result<bool, kube::Error> {
        let viewer = Viewer::Account(self.account.clone());
        self.reviews.may(self.client, &viewer, right).await
    }
}
