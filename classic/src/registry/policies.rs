//! The signature policies that images must satisfy: that of the file, and OpenShift's.

use kube::Client;
use olm_cluster::image_policies::{ImagePolicies, Kinds};
use olm_image::{CurrentPolicy, Rules, Settings};

/// The signature policies that images must satisfy.
pub struct Policies {
    file: CurrentPolicy,
    cluster: ImagePolicies,
}

impl Policies {
    /// The policy of these files, and those of the cluster. Nothing is read yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            file: CurrentPolicy::new(settings),
            cluster: ImagePolicies::new(Kinds::All),
        }
    }

    /// The policy of the file.
    pub const fn file(&self) -> &CurrentPolicy {
        &self.file
    }

    /// The number of the policy of the file together with these rules. An answer about an image counts while it is the
    /// same.
    pub async fn number(&self, rules: &Rules) -> u64 {
        self.file.number(rules).await
    }

    /// The rules of the cluster for images that belong to no namespace, such as those of catalogs.
    pub fn of_cluster(&self) -> Rules {
        self.cluster.of_cluster()
    }

    /// The rules of the cluster for images of a namespace.
    pub fn of_namespace(&self, namespace: &str) -> Rules {
        self.cluster.of_namespace(namespace)
    }

    /// Waits until it is known which policies the cluster has, or that they cannot be read.
    pub async fn ready(&self) {
        self.cluster.ready().await;
    }

    /// Follows the policies, and calls `changed` after each change. Never returns.
    pub async fn follow(&self, client: &Client, changed: impl Fn()) {
        tokio::join!(self.file.follow(&changed), self.cluster.follow(client, &changed));
    }
}
