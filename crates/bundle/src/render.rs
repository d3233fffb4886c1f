//! Renders the objects of a bundle.
//!
//! Each submodule makes one kind of object; [`render`] runs them in order. The result depends only on the bundle and
//! the [`Options`].

mod api_services;
pub mod certificates;
pub mod definitions;
pub mod deployment_config;
pub mod deployments;
pub mod manifests;
pub mod permissions;
mod schema;
mod unify;
pub mod webhooks;

use olm_api::text::escape;
use serde_json::Value;

pub use certificates::CertificateProvider;
pub use deployment_config::DeploymentConfig;

use crate::bundle::Bundle;
use crate::install_modes::{TargetError, TargetNamespaces};
use crate::lint::{RuleViolation, violations};
use unify::Origin;

/// The parameters of rendering.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespace the operator runs in.
    pub install_namespace: String,
    /// The namespaces the operator watches.
    pub targets: TargetNamespaces,
    /// Provider of the certificates of webhooks and aggregated APIs.
    pub certificates: Option<CertificateProvider>,
    /// The name of the operator's OperatorCondition, which is passed to the operator if set.
    pub operator_condition: Option<String>,
    /// The bundle after which roles and bindings are named; this bundle if `None`.
    pub roles_named_after: Option<String>,
    /// The changes to the operator's Deployments.
    pub deployment_config: Option<DeploymentConfig>,
}

/// The reason why a bundle cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// The bundle violates rules, one line each.
    #[error("{}", lines(.0))]
    Invalid(Vec<RuleViolation>),
    /// The install modes do not allow the requested namespaces.
    #[error(transparent)]
    Targets(#[from] TargetError),
    /// The conversion webhook of a custom resource definition is invalid.
    #[error(transparent)]
    Conversion(#[from] definitions::ConversionError),
    /// An additional object is of an unsupported kind.
    #[error("bundle contains unsupported resource: Name: {}, Kind: {}", escape(.name), escape(.kind))]
    UnsupportedObject {
        /// The object's name.
        name: String,
        /// The kind.
        kind: String,
    },
    /// Two objects have the same identity and different content.
    #[error("bundle contains {} \"{}\" more than once, with different content", escape(.kind), escape(.name))]
    Conflict {
        /// The object's kind.
        kind: String,
        /// The name.
        name: String,
    },
}

impl RenderError {
    /// The name of the reason in metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Targets(_) => "target-namespaces",
            Self::Conversion(_) => "conversion",
            Self::UnsupportedObject { .. } => "object-kind",
            Self::Conflict { .. } => "object-conflict",
        }
    }
}

fn lines(violations: &[RuleViolation]) -> String {
    violations
        .iter()
        .map(|violation| violation.message.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The objects of a bundle, in the order in which they are generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    objects: Vec<Value>,
}

impl Rendered {
    /// The objects.
    #[must_use]
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// The objects, by value.
    #[must_use]
    pub fn into_objects(self) -> Vec<Value> {
        self.objects
    }
}

/// Chooses the namespaces to watch, then calls [`render`].
///
/// # Errors
/// As [`render`], and when the install modes do not allow the namespaces.
pub fn render_for(
    bundle: &Bundle,
    install_namespace: &str,
    watch_namespaces: Option<&[String]>,
    certificates: Option<CertificateProvider>,
    operator_condition: Option<&str>,
    roles_named_after: Option<&str>,
    deployment_config: Option<DeploymentConfig>,
) -> Result<Rendered, RenderError> {
    check(bundle)?;
    let modes = bundle.csv.install_modes();
    let targets = TargetNamespaces::choose(&modes, install_namespace, watch_namespaces)?;
    let options = Options {
        install_namespace: install_namespace.to_owned(),
        targets,
        certificates,
        operator_condition: operator_condition.map(str::to_owned),
        roles_named_after: roles_named_after.map(str::to_owned),
        deployment_config,
    };
    generate(bundle, &options)
}

/// Validates the bundle and renders its objects.
///
/// # Errors
/// The bundle violates a rule, or the conversion webhook of a custom resource definition is invalid.
pub fn render(bundle: &Bundle, options: &Options) -> Result<Rendered, RenderError> {
    check(bundle)?;
    generate(bundle, options)
}

fn check(bundle: &Bundle) -> Result<(), RenderError> {
    let violations = violations(bundle);
    if violations.is_empty() {
        Ok(())
    } else {
        Err(RenderError::Invalid(violations))
    }
}

fn generate(bundle: &Bundle, options: &Options) -> Result<Rendered, RenderError> {
    let mut generated = permissions::service_accounts(bundle, options);
    generated.extend(permissions::roles(bundle, options));
    generated.extend(permissions::cluster_roles(bundle, options));
    generated.extend(api_services::bindings(bundle, options));
    let mut brought = definitions::custom_resource_definitions(bundle, options)?;
    brought.extend(manifests::additional(bundle, options)?);
    let mut operator = deployments::deployments(bundle, options);
    operator.extend(webhooks::validating(bundle, options));
    operator.extend(webhooks::mutating(bundle, options));
    operator.extend(webhooks::services(bundle, options));
    operator.extend(api_services::registrations(bundle, options));
    operator.extend(certificates::objects(bundle, options));
    let objects = unify::unify([
        (Origin::Generated, generated),
        (Origin::Brought, brought),
        (Origin::Generated, operator),
    ])?;
    Ok(Rendered { objects })
}
