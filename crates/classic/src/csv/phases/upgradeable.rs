//! Whether an operator lets itself be replaced.

use serde_json::Value;

use crate::cluster::{Cluster, items, text};
use crate::names;

const UPGRADEABLE: &str = "Upgradeable";

/// Reason why the ClusterServiceVersion of this namespace and name must not be replaced now; `None` where it may.
pub(super) fn refusal(cluster: &Cluster, namespace: &str, name: &str) -> Option<String> {
    let condition = cluster.get(names::OPERATOR_CONDITION_KIND, namespace, name)?;
    let is_meant = |found: &&Value| text(found, "/type") == UPGRADEABLE;
    if let Some(overridden) = items(condition, "/spec/overrides").find(is_meant) {
        return (text(overridden, "/status") != "True").then(|| refused(overridden));
    }
    let found = items(condition, "/status/conditions").find(is_meant)?;
    let number = |object: &Value, key: &str| object.pointer(key).and_then(Value::as_i64).unwrap_or_default();
    if number(found, "/observedGeneration") != number(condition, "/metadata/generation") {
        let status = text(found, "/status");
        return Some(format!(
            "the operatorcondition status \"{UPGRADEABLE}\"=\"{status}\" is outdated"
        ));
    }
    (text(found, "/status") == "False").then(|| refused(found))
}

fn refused(condition: &Value) -> String {
    format!("the operator is not upgradeable: {}", text(condition, "/message"))
}
