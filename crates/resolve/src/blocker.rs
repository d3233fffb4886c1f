//! Why a bundle that fits a request is not installed on this cluster, or why another is preferred.

use olm_api::text::escape;
use olm_api::updates::held_back;
use olm_constraint::{RequirementError, Wanted};
use olm_version::quoted;

/// One reason against a bundle on this cluster; its text names the missing requirement.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Blocker {
    /// The cluster is too old for it.
    #[error("it needs Kubernetes {needs} or later, and the cluster is at {has}")]
    Kubernetes {
        /// Its `minKubeVersion`.
        needs: String,
        /// The cluster's version.
        has: String,
    },
    /// The version that it needs is unknown.
    #[error("its minKubeVersion {} is no version", quoted(.0))]
    UnreadableKubernetes(String),
    /// No node is of an architecture that it names.
    #[error("it runs on {runs_on} only, and the cluster's nodes are of {nodes}")]
    Architecture {
        /// What it runs on.
        runs_on: String,
        /// What there is.
        nodes: String,
    },
    /// An API of Kubernetes itself that the cluster does not serve.
    #[error("the cluster does not serve the API {0} that it needs")]
    NativeApi(String),
    /// What it requires is not sound.
    #[error("its requirement {property} is invalid: {fault}")]
    Unsound {
        /// The property's type.
        property: String,
        /// What is wrong.
        fault: RequirementError,
    },
    /// What it requires is not there.
    #[error("a requirement does not hold: {text}")]
    Missing {
        /// The missing or conflicting requirement.
        text: String,
        /// What would help.
        wanted: Vec<Wanted>,
    },
    /// What another extension requires would no longer hold.
    #[error("ClusterExtension {extension} would be broken: {text}")]
    Dependent {
        /// The other extension.
        extension: String,
        /// What it would lack.
        text: String,
    },
}

impl Blocker {
    /// Whether the bundle is not installed at all because of it. Missing APIs and processors that
    /// a bundle names only make another bundle preferred: such a bundle may work without them, and a user who asks for
    /// it gets it.
    pub fn forbids(&self) -> bool {
        !matches!(
            self,
            Self::Architecture { .. } | Self::NativeApi(_) | Self::UnreadableKubernetes(_)
        )
    }

    /// The reason why the bundle is held back, one of [`held_back`]'s constants.
    pub fn held_back_by(&self) -> &'static str {
        match self {
            Self::Kubernetes { .. }
            | Self::UnreadableKubernetes(_)
            | Self::Architecture { .. }
            | Self::NativeApi(_) => held_back::PLATFORM,
            Self::Unsound { .. } | Self::Missing { .. } | Self::Dependent { .. } => held_back::REQUIREMENT,
        }
    }

    /// Whether it may be gone when others move along.
    pub fn is_about_others(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Dependent { .. })
    }

    /// What would help if it were installed.
    pub fn wanted(&self) -> &[Wanted] {
        match self {
            Self::Missing { wanted, .. } => wanted,
            _ => &[],
        }
    }
}

/// All of them, as one text.
pub fn listed(blockers: &[Blocker]) -> String {
    let texts: Vec<String> = blockers
        .iter()
        .map(|blocker| escape(&blocker.to_string()).into_owned())
        .collect();
    texts.join("; ")
}
