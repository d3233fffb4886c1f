//! Renders a bundle's files into objects.

use std::sync::Arc;

use olm_api::conditions::reason;
use olm_api::updates::held_back;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::config::DeploymentConfiguration;
use olm_bundle::media_type::labels_of;
use olm_bundle::{CertificateProvider, Dependencies, PrepareError, Prepared, Request, Scopes, prepare};
use serde_json::Value;

use crate::certificates::choose;
use crate::extension::context::{Context, Gates};
use crate::extension::failure::{Severity, StageError};

/// The reason why a bundle cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    /// The bundle is refused.
    #[error(transparent)]
    Refused(#[from] PrepareError),
    /// The kinds of the cluster are unknown.
    #[error("cannot discover the kinds that the cluster serves")]
    Discover(#[source] kube::Error),
    /// The program ends.
    #[error("rendering was interrupted")]
    CutOff,
}

impl StageError for RenderError {
    fn severity(&self) -> Severity {
        match self {
            // For example, a certificate provider may be installed later.
            Self::Refused(PrepareError::Unsupported(_)) => Severity::Waiting,
            Self::Refused(_) => Severity::Terminal,
            Self::Discover(_) | Self::CutOff => Severity::Transient,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Refused(PrepareError::Config { advice, .. }) => advice.clone(),
            Self::Refused(_) | Self::Discover(_) | Self::CutOff => None,
        }
    }

    fn held_back_by(&self) -> &'static str {
        match self {
            Self::Refused(PrepareError::Config { .. }) => held_back::CONFIGURATION,
            Self::Refused(_) | Self::Discover(_) | Self::CutOff => held_back::OTHER,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Refused(PrepareError::Config { .. }) => reason::INVALID_CONFIGURATION,
            // As in the reference implementation, also for what only another bundle fixes.
            Self::Refused(_) | Self::Discover(_) | Self::CutOff => reason::RETRYING,
        }
    }
}

/// The certificate provider of the extension's next revision.
///
/// # Errors
/// The kinds of the cluster are unknown.
pub(crate) async fn provider(
    context: &Context,
    latest: Option<&ClusterObjectSet>,
) -> Result<CertificateProvider, RenderError> {
    let served = context.providers.served().await.map_err(RenderError::Discover)?;
    Ok(choose::provider(served, latest))
}

/// Renders a bundle for an extension. Bundles can be large, so this runs on a thread of its own.
pub(crate) async fn render(
    gates: Gates,
    (certificates, operator_condition): (CertificateProvider, Option<String>),
    roles_named_after: Option<String>,
    extension: Arc<ClusterExtension>,
    image: Arc<olm_image::Contents>,
) -> Result<Prepared, RenderError> {
    let work = move || {
        let files = image
            .files
            .iter()
            .map(|(path, bytes)| (path.clone(), bytes.to_vec()))
            .collect();
        let config = extension
            .spec
            .config
            .as_ref()
            .and_then(|config| config.inline.clone())
            .map(Value::Object);
        let request = Request {
            config: config.as_ref(),
            certificates: Some(certificates),
            operator_condition: operator_condition.as_deref(),
            roles_named_after: roles_named_after.as_deref(),
            scopes: if gates.single_namespace {
                Scopes::Any
            } else {
                Scopes::AllNamespacesOnly
            },
            deployment_configuration: if gates.deployment_config {
                DeploymentConfiguration::Allowed
            } else {
                DeploymentConfiguration::Unknown
            },
            dependencies: Dependencies::Evaluated,
            ..Request::new(&extension.spec.namespace)
        };
        let labels = labels_of(&image.labels, image.artifact_type.as_deref(), &files);
        prepare(&files, &labels, &request)
    };
    Ok(tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| RenderError::CutOff)??)
}
