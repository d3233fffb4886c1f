//! OLM classic on a test cluster: its kinds, and an account that may install anything.

use anyhow::Result;
use serde_json::{Value, json};

use crate::world::{CLASSIC_NAMESPACE, Lab, repository};

/// The account that content is written under where no OperatorGroup names one, as `NAMESPACE/NAME`.
pub const ACCOUNT: &str = "olm/installer";

/// Plural, kind, scope and versions of each kind; the last version is stored.
const KINDS: &[(&str, &str, &str, &[&str])] = &[
    (
        "clusterserviceversions",
        "ClusterServiceVersion",
        "Namespaced",
        &["v1alpha1"],
    ),
    ("subscriptions", "Subscription", "Namespaced", &["v1alpha1"]),
    ("installplans", "InstallPlan", "Namespaced", &["v1alpha1"]),
    ("catalogsources", "CatalogSource", "Namespaced", &["v1alpha1"]),
    ("operatorgroups", "OperatorGroup", "Namespaced", &["v1"]),
    (
        "operatorconditions",
        "OperatorCondition",
        "Namespaced",
        &["v1", "v2"],
    ),
    ("operators", "Operator", "Cluster", &["v1"]),
    ("olmconfigs", "OLMConfig", "Cluster", &["v1"]),
];

/// Installs the kinds, the namespace and [`ACCOUNT`].
///
/// # Errors
/// When the API server refuses something.
pub fn prepare(lab: &Lab) -> Result<()> {
    let shipped = repository().join("manifests/classic/crds");
    if shipped.join("kustomization.yaml").is_file() {
        lab.kubectl(&["apply", "--server-side", "-k", &shipped.display().to_string()])?;
    } else {
        lab.apply(&KINDS.iter().map(definition).collect::<Vec<_>>())?;
    }
    for (plural, ..) in KINDS {
        let name = format!("crd/{plural}.operators.coreos.com");
        lab.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &name])?;
    }
    lab.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLASSIC_NAMESPACE}}),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": CLASSIC_NAMESPACE},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "olm-installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": CLASSIC_NAMESPACE}],
        }),
    ])
}

/// A definition that takes any content.
fn definition((plural, kind, scope, versions): &(&str, &str, &str, &[&str])) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": any, "status": any}});
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            json!({
                "name": version, "served": true, "storage": Some(version) == versions.last(),
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.operators.coreos.com")},
        "spec": {
            "group": "operators.coreos.com", "scope": scope, "versions": versions,
            "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
        },
    })
}
