//! The cluster itself: its Kubernetes version and the architectures of its nodes, cached.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams};
use olm_version::blang::parse_tolerant;
use semver::Version;
use tokio::sync::Mutex;

/// The time for which an answer is cached.
pub(crate) const FRESH: Duration = Duration::from_mins(5);
/// Nodes per page.
const NODES: u32 = 500;
/// The label with a node's architecture.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// Version and architectures of the cluster.
pub(crate) struct ClusterInfo {
    client: Client,
    version: Mutex<Option<(Instant, Version)>>,
    architectures: Mutex<Option<(Instant, Vec<String>)>>,
}

impl ClusterInfo {
    /// A reader with this client.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            version: Mutex::default(),
            architectures: Mutex::default(),
        }
    }

    /// The Kubernetes version; `None` if the reported text is not a version.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn version(&self) -> Result<Option<Version>, kube::Error> {
        let mut cached = self.version.lock().await;
        if let Some((_, version)) = cached.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(Some(version.clone()));
        }
        let info = self.client.apiserver_version().await?;
        let version = parse_tolerant(&info.git_version).ok();
        *cached = version.clone().map(|version| (Instant::now(), version));
        Ok(version)
    }

    /// The architectures of the nodes; empty if the controller may not read nodes.
    pub(crate) async fn architectures(&self) -> Vec<String> {
        let mut cached = self.architectures.lock().await;
        if let Some((_, found)) = cached.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return found.clone();
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut found = BTreeSet::new();
        let mut page = ListParams::default().limit(NODES);
        loop {
            match nodes.list_metadata(&page).await {
                Ok(list) => {
                    let labels = list.items.iter().filter_map(|node| node.metadata.labels.as_ref());
                    found.extend(labels.filter_map(|labels| labels.get(ARCHITECTURE).cloned()));
                    match list.metadata.continue_.filter(|token| !token.is_empty()) {
                        Some(token) => page = page.continue_token(&token),
                        None => break,
                    }
                }
                Err(error) => {
                    // Unknown for now. The next run asks again.
                    tracing::debug!(error = &error as &dyn std::error::Error, "cannot read the nodes");
                    return Vec::new();
                }
            }
        }
        let found: Vec<String> = found.into_iter().collect();
        *cached = Some((Instant::now(), found.clone()));
        found
    }
}
