//! The cluster itself: its Kubernetes version and the architectures of its nodes, cached.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams};
use olm_platform::fresh::Fresh;
use olm_version::blang::parse_tolerant;
use semver::Version;

/// The time for which an answer is cached.
pub(crate) const FRESH: Duration = Duration::from_mins(5);
/// Nodes per page.
const NODES: u32 = 500;
/// The label with a node's architecture.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// Version and architectures of the cluster.
pub(crate) struct ClusterInfo {
    client: Client,
    version: Fresh<Version>,
    architectures: Fresh<Vec<String>>,
}

impl ClusterInfo {
    /// A reader with this client.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            version: Fresh::new(FRESH),
            architectures: Fresh::new(FRESH),
        }
    }

    /// The Kubernetes version; `None` if the reported text is not a version.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn version(&self) -> Result<Option<Version>, kube::Error> {
        // A text that is no version is not kept: another replica of the API server may have one.
        let read = async || {
            let info = self.client.apiserver_version().await.map_err(Some)?;
            parse_tolerant(&info.git_version).map_err(|_| None)
        };
        match self.version.get_or(read).await {
            Ok(version) => Ok(Some(version)),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    /// The architectures of the nodes; empty if the controller may not read nodes.
    pub(crate) async fn architectures(&self) -> Vec<String> {
        let read = async || architectures(&self.client).await;
        self.architectures.get_or(read).await.unwrap_or_else(|error| {
            // Unknown for now. The next run asks again.
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot read the nodes");
            Vec::new()
        })
    }
}

async fn architectures(client: &Client) -> Result<Vec<String>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut found = BTreeSet::new();
    let mut page = ListParams::default().limit(NODES);
    loop {
        let list = nodes.list_metadata(&page).await?;
        let labels = list.items.iter().filter_map(|node| node.metadata.labels.as_ref());
        found.extend(labels.filter_map(|labels| labels.get(ARCHITECTURE).cloned()));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found.into_iter().collect()),
        }
    }
}
