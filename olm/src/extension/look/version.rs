//! `olm version`: the version of this program, and those of the managers on the cluster.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use olm_api::names::SYSTEM_NAMESPACE;
use olm_image::Reference;
use olm_platform::client::ClientError;
use serde::Serialize;
use serde_json::json;

use super::NONE;
use crate::extension::access::ClusterArguments;
use crate::extension::cluster::Cluster;
use crate::hint::hint;
use crate::output::table::table;
use crate::output::{CommandResult, ReportFormat, Status, message, note, print_json, print_text};

/// The longest wait for the cluster.
const PATIENCE: Duration = Duration::from_secs(4);
/// The managers and their Deployments.
const MANAGERS: [(&str, &str); 2] = [
    ("catalogd", "catalogd-controller-manager"),
    ("operator-controller", "operator-controller-controller-manager"),
];
/// The container of a manager in its Pods.
const CONTAINER: &str = "manager";

#[derive(Debug, Args)]
#[command(
    after_help = "The versions of the managers are the tags of the images in their Deployments. Without a kubeconfig, or \
                  when the cluster does not answer in time, the command prints its own version alone."
)]
pub(crate) struct Arguments {
    /// Print the version of this program alone, and ask no cluster
    #[arg(long)]
    client: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
    /// Namespace of the managers
    #[arg(long, value_name = "NAME", default_value = SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// A manager on the cluster.
#[derive(Debug, Serialize)]
struct Manager {
    name: &'static str,
    /// The tag of the image; absent for an image by digest alone.
    version: Option<String>,
    image: String,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let version = env!("CARGO_PKG_VERSION");
    let managers = if arguments.client {
        None
    } else {
        managers(arguments)?
    };
    match arguments.output {
        ReportFormat::Text => {
            let rows = managers.unwrap_or_default().into_iter();
            let rows: Vec<Vec<String>> = rows.map(Manager::row).collect();
            let mut text = format!("{}\n", olm_platform::version::known(version));
            if !rows.is_empty() {
                text.push('\n');
                text.push_str(&table(&["MANAGER", "VERSION", "IMAGE"], &rows));
            }
            print_text(&text)?;
        }
        ReportFormat::Json => {
            let facts = olm_platform::version::facts(version);
            let facts = facts.map(|(what, value)| (what.to_owned(), json!(value)));
            let managers = managers.map(|managers| ("managers".to_owned(), json!(managers)));
            print_json(&facts.chain(managers).collect())?;
        }
    }
    Ok(Status::Success)
}

impl Manager {
    fn row(self) -> Vec<String> {
        let version = self.version.unwrap_or_else(|| NONE.to_owned());
        vec![self.name.to_owned(), version, self.image]
    }
}

/// The managers of the cluster; `None` without a cluster that answers in time.
///
/// # Errors
/// When a kubeconfig or a context is named and cannot be used.
fn managers(arguments: &Arguments) -> anyhow::Result<Option<Vec<Manager>>> {
    let (send, receive) = mpsc::channel();
    let (access, namespace) = (arguments.cluster.clone(), arguments.system_namespace.clone());
    // A thread of its own: a program of the kubeconfig that makes credentials blocks.
    std::thread::spawn(move || {
        // Nobody receives after the timeout.
        let _ = send.send(Cluster::reach(&access).map(|cluster| read(&cluster, &namespace)));
    });
    let is_named = arguments.cluster.kubeconfig.is_some() || arguments.cluster.context.is_some();
    let error = match receive.recv_timeout(PATIENCE) {
        Ok(Ok(Ok(managers))) => return Ok(Some(managers)),
        Ok(Err(error)) if is_named => return Err(error),
        // Where no cluster is configured, none is missed.
        Ok(Err(error)) if is_unconfigured(&error) => return Ok(None),
        Ok(Ok(Err(error)) | Err(error)) => error,
        Err(_) => anyhow!("the cluster does not answer within {} s", PATIENCE.as_secs()),
    };
    note(&format!(
        "note: cannot read the versions of the managers: {}",
        message(&error, hint(&error).as_deref())
    ));
    Ok(None)
}

/// Whether there is no kubeconfig.
fn is_unconfigured(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(ClientError::Missing(_) | ClientError::Pod(_))
    )
}

fn read(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<Manager>> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), namespace);
    let mut managers = Vec::new();
    for (name, deployment) in MANAGERS {
        let found = cluster.runtime.block_on(deployments.get_opt(deployment));
        let found = found.with_context(|| format!("cannot read Deployment {namespace}/{deployment}"))?;
        if let Some(image) = found.and_then(image) {
            let reference = Reference::parse_familiar(&image).ok();
            let version = reference.and_then(|reference| reference.tag().map(str::to_owned));
            managers.push(Manager { name, version, image });
        }
    }
    Ok(managers)
}

/// The image of the manager in its Deployment.
fn image(deployment: Deployment) -> Option<String> {
    let mut containers = deployment.spec?.template.spec?.containers.into_iter();
    containers.find(|container| container.name == CONTAINER)?.image
}
