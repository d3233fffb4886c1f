//! Parses and renders the files of a bundle in one call, for controllers.

use std::collections::BTreeMap;

use olm_api::text::escape;
use serde_json::Value;

use crate::bundle::Bundle;
use crate::config::{self, ConfigError, DeploymentConfiguration};
use crate::files::BundleFiles;
use crate::lint::support::{Dependencies, Scopes, Support, Unsupported, Webhooks};
use crate::parse::{ParseError, parse};
use crate::render::{CertificateProvider, RenderError, Rendered, render_for};

/// The parameters of an installation.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The namespace to install into.
    pub install_namespace: &'a str,
    /// `spec.config.inline`.
    pub config: Option<&'a Value>,
    /// Provider of the certificates of webhooks and aggregated APIs. Without one, bundles with webhooks or aggregated
    /// APIs are refused.
    pub certificates: Option<CertificateProvider>,
    /// The name of the operator's OperatorCondition, which is passed to the operator if set.
    pub operator_condition: Option<&'a str>,
    /// The bundle after which roles and bindings are named; this bundle if `None`.
    pub roles_named_after: Option<&'a str>,
    /// The supported install modes.
    pub scopes: Scopes,
    /// Whether the user may change the operator's deployments.
    pub deployment_configuration: DeploymentConfiguration,
    /// Whether the caller evaluates dependencies.
    pub dependencies: Dependencies,
}

impl<'a> Request<'a> {
    /// An installation into a namespace, with all features that need no further parameter.
    #[must_use]
    pub fn new(install_namespace: &'a str) -> Self {
        Self {
            install_namespace,
            config: None,
            certificates: None,
            operator_condition: None,
            roles_named_after: None,
            scopes: Scopes::Any,
            deployment_configuration: DeploymentConfiguration::Allowed,
            dependencies: Dependencies::Refused,
        }
    }
}

/// A bundle ready to be applied.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The bundle.
    pub bundle: Bundle,
    /// The objects.
    pub rendered: Rendered,
    /// Fields within `deploymentConfig` that Kubernetes does not have, and that are left out.
    pub ignored: Vec<String>,
}

/// The reason why a bundle cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The bundle cannot be read.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The bundle has unsupported features, one line each.
    #[error("{}", lines(.0))]
    Unsupported(Vec<Unsupported>),
    /// The configuration is invalid. Only the user can change that.
    #[error("invalid ClusterExtension configuration: {error}")]
    Config {
        /// The fault.
        error: ConfigError,
        /// The advice, a sentence.
        advice: Option<String>,
    },
    /// The bundle cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
}

fn lines(found: &[Unsupported]) -> String {
    let lines = found.iter().map(|one| escape(&one.to_string()).into_owned());
    lines.collect::<Vec<_>>().join("\n")
}

impl PrepareError {
    /// The name of the reason in metrics. Of several, the first.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Parse(error) => error.kind(),
            Self::Unsupported(found) => found.first().map_or("unsupported", Unsupported::kind),
            Self::Config { .. } => "config",
            Self::Render(error) => error.kind(),
        }
    }
}

/// Parses, checks and renders a bundle.
///
/// # Errors
/// The bundle cannot be installed with this request. The error has all reasons of the first stage that failed.
pub fn prepare(
    files: &BundleFiles,
    labels: &BTreeMap<String, String>,
    request: &Request<'_>,
) -> Result<Prepared, PrepareError> {
    let bundle = parse(files, labels)?;
    let webhooks = if request.certificates.is_some() {
        Webhooks::Served
    } else {
        Webhooks::Refused
    };
    let unsupported = bundle.check_support(&Support {
        webhooks,
        scopes: request.scopes,
        dependencies: request.dependencies,
    });
    if !unsupported.is_empty() {
        return Err(PrepareError::Unsupported(unsupported));
    }
    let modes = bundle.csv().install_modes();
    let config = if request.scopes == Scopes::Any || request.config.is_some() {
        let schema = config::schema(&modes, request.deployment_configuration);
        config::check(Some(&schema), request.config, request.install_namespace).map_err(|error| {
            let given = request.config.unwrap_or(&Value::Null);
            PrepareError::Config {
                advice: config::advice(&schema, given, &modes),
                error,
            }
        })?
    } else {
        config::Config::default()
    };
    let ignored = config.deployment.as_ref().map(|config| config.ignored().to_vec());
    let watched = config.watch_namespace.map(|namespace| vec![namespace]);
    let rendered = render_for(
        &bundle,
        request.install_namespace,
        watched.as_deref(),
        request.certificates,
        request.operator_condition,
        request.roles_named_after,
        config.deployment,
    )?;
    Ok(Prepared {
        bundle,
        rendered,
        ignored: ignored.unwrap_or_default(),
    })
}
