//! As whom a preflight asks, and why it fails.

use kube::Client;
use olm_api::conditions::reason;
use olm_api::names::user;
use olm_api::updates::held_back;
use olm_preflight::installer::InstallerInUse;
use olm_preflight::permissions::Right;

use super::ownership::OwnershipError;
use crate::extension::failure::{Severity, StageError};
use olm_cluster::discover::Discovery;
use olm_cluster::identity::{AccountName, IdentityError};
use olm_cluster::permissions::{Reviews, Viewer};
use olm_rollout::failure::FailureKind;

/// Bytes of findings in a condition beyond which they are only counted.
pub(crate) const MAX_FINDINGS: usize = 8192;

/// Why a revision is not made.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// The account cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot be found out what the account may do.
    #[error("cannot find out what service account {account} may do")]
    Ask {
        /// The account.
        account: AccountName,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// The account lacks rights.
    #[error("{0}")]
    Rights(String),
    /// A definition on the cluster cannot be read.
    #[error("getting existing resource for CRD {name:?}: {message}")]
    Read {
        /// The definition.
        name: String,
        /// What follows from it.
        kind: FailureKind,
        /// What the server said.
        message: String,
    },
    /// Workloads would run as the installing account.
    #[error(transparent)]
    Installer(#[from] InstallerInUse),
    /// Other extensions own custom resource definitions.
    #[error(transparent)]
    Owned(#[from] OwnershipError),
    /// A changed definition breaks what users have stored.
    #[error("{found}")]
    Definitions {
        /// What is not safe, as the reference says it.
        found: String,
        /// What was compared, and what to do.
        help: Option<String>,
    },
    /// Stored versions of a definition of another owner would have to leave their list.
    #[error(
        "cannot remove version(s) {gone} from status.storedVersions of CRD {name:?}, which belongs to another owner; to let this extension take it over, set the annotation {key}", key = user::ADOPT
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
    /// Companions are not ready.
    #[error("it waits for {}: they change together", .0.join(" and "))]
    NotReady(Vec<String>),
}

impl PreflightError {
    /// Whether the account may not read what the check is about.
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
            Self::Read { kind, .. } if *kind != FailureKind::Forbidden => Severity::Transient,
            Self::Foreign { .. }
            | Self::Rights(_)
            | Self::Read { .. }
            | Self::Definitions { .. }
            | Self::Owned(_)
            | Self::NotReady(_)
            | Self::Refused(_) => Severity::Waiting,
            // Another bundle, account or annotation brings it back by itself.
            Self::Installer(_) => Severity::Terminal,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Definitions { help, .. } => help.clone(),
            _ => None,
        }
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Identity(error) => error.held_back_by(),
            Self::Rights(_) => held_back::RIGHTS,
            Self::Read { .. } if self.is_forbidden() => held_back::RIGHTS,
            Self::Definitions { .. } | Self::Foreign { .. } => held_back::CRD_UPGRADE_SAFETY,
            Self::NotReady(_) => held_back::REQUIREMENT,
            Self::Ask { .. } | Self::Read { .. } | Self::Installer(_) | Self::Owned(_) | Self::Refused(_) => {
                held_back::OTHER
            }
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Owned(_) | Self::Installer(_) => reason::BLOCKED,
            _ => reason::RETRYING,
        }
    }
}

/// As whom and by what something is asked.
pub(crate) struct Asking<'a> {
    pub(crate) account: &'a AccountName,
    pub(crate) client: &'a Client,
    pub(crate) discovery: &'a Discovery,
    pub(crate) reviews: &'a Reviews,
}

impl Asking<'_> {
    pub(crate) async fn may(&self, right: &Right) -> Result<bool, kube::Error> {
        let viewer = Viewer::Account(self.account.clone());
        self.reviews.may(self.client, &viewer, right).await
    }
}
