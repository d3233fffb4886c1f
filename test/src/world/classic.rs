//! OLM classic on a test cluster: the shipped definitions, accounts and rights, without objects that only Pods need.

use anyhow::Result;

use super::{Lab, repository};

/// The account that writes content if no OperatorGroup names one, as `NAMESPACE/NAME`.
pub const ACCOUNT: &str = "olm/classic-installer";

/// Kinds in the manifests that only Pods need; here the programs are processes.
const ONLY_FOR_PODS: &[&str] = &[
    "ClusterServiceVersion",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
];

/// Applies the shipped manifests.
///
/// # Errors
/// When the API server refuses an object.
pub fn prepare(lab: &Lab) -> Result<()> {
    let folder = |name: &str| repository().join(name).display().to_string();
    let definitions = folder("manifests/classic/crds");
    lab.kubectl(&["apply", "--server-side", "-k", &definitions])?;
    lab.kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ])?;
    let text = lab.kubectl(&["kustomize", &folder("manifests/classic")])?;
    let mut objects = Vec::new();
    for document in olm_yaml::documents(text.as_bytes(), &olm_yaml::Limits::default()) {
        let object = document?.into_value()?;
        let kind = object["kind"].as_str().unwrap_or_default();
        if !ONLY_FOR_PODS.contains(&kind) && kind != "CustomResourceDefinition" {
            objects.push(object);
        }
    }
    lab.apply(&objects)
}
