//! The reasons why a bundle that fits a request is not installed on this cluster, or is not preferred.

use olm_api::text::escape;
use olm_api::updates::held_back;
use olm_constraint::{RequirementError, SimpleRequirement};
use olm_version::quoted;

/// One reason against a bundle on this cluster; its text names the missing requirement.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Blocker {
    /// The cluster is too old for it.
    #[error("it needs Kubernetes {needs} or later, and the cluster is at {has}")]
    Kubernetes {
        /// The `minKubeVersion`.
        needs: String,
        /// The version of the cluster.
        has: String,
    },
    /// The version that it needs cannot be read.
    #[error("its minKubeVersion {} is not a version", quoted(.0))]
    UnreadableKubernetes(String),
    /// No node has one of the bundle's architectures.
    #[error("it runs on {runs_on} only, and the cluster's nodes are of {nodes}")]
    Architecture {
        /// The architectures.
        runs_on: String,
        /// The architectures of the nodes.
        nodes: String,
    },
    /// The cluster does not serve an API of Kubernetes that it needs.
    #[error("the cluster does not serve the API {0} that it needs")]
    NativeApi(String),
    /// One of the bundle's requirements is invalid.
    #[error("its requirement {property} is invalid: {fault}")]
    Unsound {
        /// The property's type.
        property: String,
        /// The fault.
        fault: RequirementError,
    },
    /// A requirement is not met.
    #[error("a requirement does not hold: {text}")]
    Missing {
        /// The missing or conflicting requirement.
        text: String,
        /// The packages or APIs that would meet it.
        wanted: Vec<SimpleRequirement>,
    },
    /// A requirement of another extension would no longer be met.
    #[error("ClusterExtension {extension} would be broken: {text}")]
    Dependent {
        /// The other extension.
        extension: String,
        /// The requirement that it would lose.
        text: String,
    },
}

impl Blocker {
    /// Whether it forbids the bundle. A missing native API or architecture only makes other bundles preferred: the
    /// bundle may work without them, and is installed if the user requests it.
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

    /// Whether an update of other extensions may remove it.
    pub fn is_about_others(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Dependent { .. })
    }

    /// The packages or APIs that would remove it.
    pub fn wanted(&self) -> &[SimpleRequirement] {
        match self {
            Self::Missing { wanted, .. } => wanted,
            _ => &[],
        }
    }
}

/// All blockers in one text.
pub fn listed(blockers: &[Blocker]) -> String {
    let texts: Vec<String> = blockers
        .iter()
        .map(|blocker| escape(&blocker.to_string()).into_owned())
        .collect();
    texts.join("; ")
}
