//! `olm bundle render`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use olm_bundle::{CertificateProvider, Dependencies, PrepareError, Request, Unsupported, config, prepare};
use serde_json::{Value, json};

use super::faults_shown;
use crate::hint::Hint;
use crate::input::read;
use crate::output::{CommandResult, Status, note, print, print_json};
use crate::registry::RegistryArguments;
use crate::source::open_bundle;

/// The largest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Bundle: a directory with `manifests/` and `metadata/` in it, or an image in a registry or on disk
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Namespace to install into
    #[arg(short, long)]
    namespace: String,
    /// Namespace to watch, where the install modes leave a choice
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "config")]
    watch_namespace: Option<String>,
    /// File with the configuration, as in `spec.config.inline` of a `ClusterExtension`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Provider of the certificates of webhooks
    #[arg(long, value_enum)]
    certificates: Option<Certificates>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: RenderFormat,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Certificates {
    /// cert-manager.
    CertManager,
    /// The service CA operator of `OpenShift`.
    OpenshiftServiceCa,
    /// operator-controller itself.
    SelfSigned,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum RenderFormat {
    /// YAML documents.
    #[default]
    Yaml,
    /// One list as JSON.
    Json,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let bundle = open_bundle(&arguments.source, &arguments.registry)?;
    let config = match (&arguments.watch_namespace, &arguments.config) {
        (Some(namespace), _) => Some(json!({ "watchNamespace": namespace })),
        (None, Some(path)) => {
            let text = read(path, MAX_CONFIG)?;
            let config = config::from_text(&String::from_utf8_lossy(&text));
            Some(config.with_context(|| format!("cannot use {}", path.display()))?)
        }
        (None, None) => None,
    };
    let request = Request {
        config: config.as_ref(),
        certificates: arguments.certificates.map(|provider| match provider {
            Certificates::CertManager => CertificateProvider::CertManager,
            Certificates::OpenshiftServiceCa => CertificateProvider::OpenShiftServiceCa,
            Certificates::SelfSigned => CertificateProvider::SelfSigned,
        }),
        // The user must check the requirements on other bundles, as the controller does.
        dependencies: Dependencies::Evaluated,
        ..Request::new(&arguments.namespace)
    };
    let prepared = prepare(&bundle.files, &bundle.labels, &request)
        .map_err(|refusal| refused(refusal, &arguments.source))
        .with_context(|| format!("cannot render {:?}", arguments.source))?;
    for field in &prepared.ignored {
        note(&format!(
            "note: unknown field deploymentConfig.{field} is ignored"
        ));
    }
    for dependency in prepared.bundle.dependencies() {
        note(&format!("note: the bundle requires {dependency}"));
    }
    let objects = prepared.rendered.into_objects();
    match arguments.output {
        RenderFormat::Yaml => print(&objects.iter().map(document).collect::<String>())?,
        RenderFormat::Json => print_json(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }))?,
    }
    Ok(Status::Success)
}

/// The reason why there are no objects, as text for a user without a cluster.
fn refused(refusal: PrepareError, source: &str) -> anyhow::Error {
    match refusal {
        PrepareError::Config { error, advice } => {
            let by = "the namespace to watch is given by --watch-namespace, anything else by a file named by --config";
            let hint = advice.map_or_else(|| by.to_owned(), |advice| format!("{by}. {advice}"));
            anyhow::Error::msg(error.to_string()).context(Hint(hint))
        }
        PrepareError::Unsupported(found)
            if found
                .iter()
                .any(|one| matches!(one, Unsupported::Webhooks(_) | Unsupported::ApiServices(_))) =>
        {
            anyhow::Error::new(PrepareError::Unsupported(found)).context(Hint(
                "set --certificates to cert-manager, openshift-service-ca or self-signed".to_owned(),
            ))
        }
        other => anyhow::Error::new(other).context(faults_shown(source)),
    }
}

fn document(object: &Value) -> String {
    format!("---\n{}", olm_yaml::to_yaml(object))
}
