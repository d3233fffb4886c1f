//! Features of bundles that this installation does not support. They are checked before a bundle is rendered.

use crate::bundle::Bundle;
use crate::install_modes::{InstallMode, InstallModes};
use crate::metadata::{DeclaredIn, Dependency};
use crate::object::object_name;

/// Whether webhooks and aggregated APIs get certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Webhooks {
    /// No certificate provider is configured: bundles with webhooks are refused.
    #[default]
    Refused,
    /// A certificate provider is chosen.
    Served,
}

/// The supported install modes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scopes {
    /// All namespaces, the operator's own, or one other.
    #[default]
    Any,
    /// All namespaces only (feature gate `SingleOwnNamespaceInstallSupport` off).
    AllNamespacesOnly,
}

/// Whether dependencies of bundles are evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dependencies {
    /// Dependencies are not evaluated: bundles with dependencies are refused.
    #[default]
    Refused,
    /// The caller evaluates dependencies.
    Evaluated,
}

/// The supported features of this installation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Support {
    /// Webhooks.
    pub webhooks: Webhooks,
    /// Install modes.
    pub scopes: Scopes,
    /// Dependencies.
    pub dependencies: Dependencies,
}

/// A reason why a bundle cannot be installed here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The bundle has aggregated APIs, and no certificate provider is configured.
    #[error(
        "unsupported bundle: apiServiceDefintions are not supported: no certificate provider is configured for {}",
        .0.join(", ")
    )]
    ApiServices(Vec<String>),
    /// The bundle has webhooks, and no certificate provider is configured.
    #[error(
        "unsupported bundle: webhookDefinitions are not supported: no certificate provider is configured for {}",
        .0.join(", ")
    )]
    Webhooks(Vec<String>),
    /// None of the operator's install modes is supported.
    #[error(
        "unsupported bundle: bundle must support at least one of [AllNamespaces SingleNamespace OwnNamespace] \
         install modes"
    )]
    NoInstallMode,
    /// The operator does not support all namespaces, which is the only supported mode.
    #[error("unsupported bundle: bundle does not support AllNamespaces install mode")]
    NotAllNamespaces,
    /// The bundle has dependencies, and they are not evaluated.
    #[error("bundle {bundle:?} has a dependency declared via {declared_via}: {needed}")]
    Dependency {
        /// The bundle's name.
        bundle: String,
        /// The place and the type of the declaration.
        declared_via: String,
        /// The dependency.
        needed: String,
    },
    /// A custom resource definition has an API version that Kubernetes no longer serves.
    #[error(
        "unsupported bundle: custom resource definition {name:?} is of {version}, which Kubernetes serves no longer: \
         only apiextensions.k8s.io/v1 can be applied"
    )]
    DefinitionVersion {
        /// The definition's name.
        name: String,
        /// The `apiVersion`.
        version: String,
    },
}

impl Unsupported {
    /// The name of the reason in metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ApiServices(_) => "api-services",
            Self::Webhooks(_) => "webhooks",
            Self::NoInstallMode => "no-install-mode",
            Self::NotAllNamespaces => "not-all-namespaces",
            Self::Dependency { .. } => "dependency",
            Self::DefinitionVersion { .. } => "definition-version",
        }
    }
}

impl Bundle {
    /// All unsupported features of the bundle; empty if it can be installed.
    #[must_use]
    pub fn check_support(&self, support: &Support) -> Vec<Unsupported> {
        let mut found = Vec::new();
        let spec = &self.csv.spec;
        if support.webhooks == Webhooks::Refused && !spec.api_service_definitions.owned.is_empty() {
            let names = spec.api_service_definitions.owned.iter();
            found.push(Unsupported::ApiServices(
                names.map(|api| format!("{:?}", api.api_service_name())).collect(),
            ));
        }
        if support.webhooks == Webhooks::Refused && !spec.webhook_definitions.is_empty() {
            let names = spec.webhook_definitions.iter();
            found.push(Unsupported::Webhooks(
                names
                    .map(|webhook| format!("{} {:?}", webhook.type_name, webhook.generate_name))
                    .collect(),
            ));
        }
        found.extend(install_mode_fault(&self.csv.install_modes(), support.scopes));
        if support.dependencies == Dependencies::Refused {
            found.extend(
                self.dependencies
                    .iter()
                    .map(|dependency| self.depends(dependency)),
            );
        }
        let version = |definition: &serde_json::Value| {
            definition
                .get("apiVersion")
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        found.extend(
            self.definitions
                .iter()
                .map(|definition| (object_name(definition).to_owned(), version(definition)))
                .filter(|(_, version)| version != "apiextensions.k8s.io/v1")
                .map(|(name, version)| Unsupported::DefinitionVersion { name, version }),
        );
        found
    }

    fn depends(&self, dependency: &Dependency) -> Unsupported {
        Unsupported::Dependency {
            bundle: self.name().to_owned(),
            declared_via: match dependency.declared_in {
                DeclaredIn::Property => format!("property {:?}", dependency.kind),
                DeclaredIn::DependenciesFile => {
                    format!("{:?} in metadata/dependencies.yaml", dependency.kind)
                }
                DeclaredIn::ClusterServiceVersion => "a required API of its ClusterServiceVersion".to_owned(),
            },
            needed: dependency.to_string(),
        }
    }
}

fn install_mode_fault(modes: &InstallModes, scopes: Scopes) -> Option<Unsupported> {
    let all = modes.contains(InstallMode::AllNamespaces);
    let narrow = modes.contains(InstallMode::OwnNamespace) || modes.contains(InstallMode::SingleNamespace);
    match scopes {
        Scopes::AllNamespacesOnly if !all => Some(Unsupported::NotAllNamespaces),
        Scopes::Any if !all && !narrow => Some(Unsupported::NoInstallMode),
        _ => None,
    }
}
