//! OLM classic: its objects in all namespaces, and the Pods and logs of its programs.

use anyhow::Context as _;
use kube::Error;
use olm_api::object::text;
use olm_api::serving::percent_encode;
use olm_classic::names::{COPIED_FROM_LABEL, GROUP};
use serde_json::Value;

use super::collect::Collector;

/// Kinds of the API group: version, plural. A cluster may serve some of them only.
const KINDS: [(&str, &str); 6] = [
    ("v1alpha1", "catalogsources"),
    ("v1alpha1", "subscriptions"),
    ("v1alpha1", "installplans"),
    ("v1alpha1", "clusterserviceversions"),
    ("v1", "operatorgroups"),
    ("v2", "operatorconditions"),
];
/// The Deployments of its programs, in whichever namespace they are.
const DEPLOYMENTS: [&str; 3] = ["olm-operator", "catalog-operator", "packageserver"];

impl Collector<'_> {
    /// Adds what there is of OLM classic.
    pub(super) async fn classic(&mut self) -> anyhow::Result<()> {
        if !self.serves_classic().await? {
            return Ok(());
        }
        // A copy of a ClusterServiceVersion says nothing that the original does not.
        let originals = percent_encode(&format!("!{COPIED_FROM_LABEL}"));
        for (version, plural) in KINDS {
            let path = format!("/apis/{GROUP}/{version}/{plural}?labelSelector={originals}");
            self.if_served(&path, &format!("classic/{plural}.yaml")).await?;
        }
        let mut deployments = Vec::new();
        for name in DEPLOYMENTS {
            let named = percent_encode(&format!("metadata.name={name}"));
            let path = format!("/apis/apps/v1/deployments?fieldSelector={named}");
            let (found, error) = self.list(&path, |_| true).await;
            deployments.extend(found);
            if let Some(error) = error {
                // The others fail for the same reason.
                self.warn("classic/deployments.yaml", &error);
                break;
            }
        }
        self.documents("classic/deployments.yaml", &deployments)?;
        let mut pods = Vec::new();
        for deployment in &deployments {
            let labels = selector(deployment);
            if labels.is_empty() {
                continue;
            }
            let path = format!(
                "/api/v1/namespaces/{}/pods?labelSelector={}",
                text(deployment, "/metadata/namespace"),
                percent_encode(&labels)
            );
            let (found, error) = self.list(&path, |_| true).await;
            if let Some(error) = error {
                self.warn("classic/pods.yaml", &error);
            }
            pods.extend(found);
        }
        self.documents("classic/pods.yaml", &pods)?;
        for pod in &pods {
            self.logs(pod, "classic/logs").await?;
        }
        Ok(())
    }

    /// Whether the cluster serves the kinds of OLM classic. Otherwise a user without rights to list them would get
    /// warnings about kinds that are not there.
    async fn serves_classic(&mut self) -> anyhow::Result<bool> {
        let groups = match self.ask("/apis").await {
            Ok(groups) => groups,
            Err(error) => {
                self.warn("classic", &error);
                return Ok(false);
            }
        };
        let groups: Value =
            serde_json::from_slice(&groups).context("the answer is not a list of API groups")?;
        let groups = groups
            .get("groups")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut names = groups.filter_map(|group| group.get("name").and_then(Value::as_str));
        Ok(names.any(|name| name == GROUP))
    }

    /// Adds the objects of a kind, if the cluster serves it.
    async fn if_served(&mut self, path: &str, file: &str) -> anyhow::Result<()> {
        let (listed, error) = self.list(path, |_| true).await;
        if let Some(error) = error.filter(|error| !is_absent(error)) {
            self.warn(file, &error);
        }
        self.documents(file, &listed)
    }
}

/// Whether the API server has no such kind.
fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Api(status)) if status.code == 404)
}

/// The labels of the Pods of a Deployment: `app=olm-operator,tier=a`.
fn selector(deployment: &Value) -> String {
    let labels = deployment.pointer("/spec/selector/matchLabels");
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    labels.collect::<Vec<_>>().join(",")
}
