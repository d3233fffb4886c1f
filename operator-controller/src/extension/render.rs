//! From a bundle's files to the objects that are applied.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use olm_api::ClusterExtension;
use olm_api::conditions::reason;
use olm_bundle::config::DeploymentConfiguration;
use olm_bundle::{CertificateProvider, Dependencies, Prepared, Refusal, Request, Scopes, prepare};
use serde_json::Value;

use super::context::{Context, Gates};
use super::failure::{Severity, StageError};

/// How long it counts who makes certificates.
const KEPT: Duration = Duration::from_secs(10);

/// Why a bundle has no objects.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The bundle cannot be installed as asked.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The cluster does not say which kinds it serves.
    #[error("cannot find out which kinds the cluster serves")]
    Discover(#[source] kube::Error),
    /// The work was cut off.
    #[error("rendering was cut off")]
    CutOff,
}

impl StageError for RenderError {
    fn severity(&self) -> Severity {
        match self {
            // A certificate provider, say, may be installed.
            Self::Refused(Refusal::Unsupported(_)) => Severity::Waiting,
            Self::Refused(_) => Severity::Terminal,
            Self::Discover(_) | Self::CutOff => Severity::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Refused(Refusal::Config(_)) => reason::INVALID_CONFIGURATION,
            Self::Refused(Refusal::Unsupported(_)) | Self::Discover(_) | Self::CutOff => reason::RETRYING,
            Self::Refused(_) => reason::BLOCKED,
        }
    }
}

/// Who makes certificates for webhooks here; nobody: bundles with webhooks are refused. Every run asks, so that the answer
/// is kept for a moment.
pub async fn certificates(context: &Context) -> Result<Option<CertificateProvider>, RenderError> {
    let known = *context
        .certificates
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some((_, provider)) = known.filter(|(at, _)| at.elapsed() < KEPT) {
        return Ok(provider);
    }
    let provider = find_certificates(context).await?;
    *context
        .certificates
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), provider));
    Ok(provider)
}

async fn find_certificates(context: &Context) -> Result<Option<CertificateProvider>, RenderError> {
    let Gates {
        cert_manager,
        service_ca,
        ..
    } = context.gates;
    if cert_manager && served(context, "cert-manager.io", "v1", "Certificate").await? {
        return Ok(Some(CertificateProvider::CertManager));
    }
    if service_ca && served(context, "config.openshift.io", "v1", "ClusterVersion").await? {
        return Ok(Some(CertificateProvider::OpenShiftServiceCa));
    }
    Ok(None)
}

async fn served(context: &Context, group: &str, version: &str, kind: &str) -> Result<bool, RenderError> {
    context
        .discovery
        .find(group, version, kind)
        .await
        .map(|found| found.is_some())
        .map_err(RenderError::Discover)
}

/// Renders a bundle for an extension. Bundles can be large: the work is done beside the others'.
pub async fn render(
    gates: Gates,
    certificates: Option<CertificateProvider>,
    extension: Arc<ClusterExtension>,
    image: Arc<olm_image::Bundle>,
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
            certificates,
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
        prepare(&files, &image.labels, &request)
    };
    Ok(tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| RenderError::CutOff)??)
}
