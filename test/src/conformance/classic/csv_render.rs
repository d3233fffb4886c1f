//! The objects of ClusterServiceVersions: accounts, roles and bindings, or the result of a pass over one that is ready
//! to be installed.

use olm_classic::install::rbac::{AccountRights, rbac};
use serde_json::{Map, Value, json};

use super::super::{Outcome, expect};
use super::{compare, csv_phases, significant, sort_keys, text};

/// Runs a case.
pub fn run(case: &Value) -> Outcome {
    if text(case, "kind") != "rbac" {
        return csv_phases::run(case);
    }
    match rbac(&case["csv"]) {
        Err(error) => {
            compare(case, "ok", &json!(false)).and(|| compare(case, "error", &json!(error.to_string())))
        }
        Ok(accounts) => {
            let accounts: Map<String, Value> = accounts
                .into_iter()
                .map(|(name, rights)| (name, written(&rights)))
                .collect();
            let expected = sort_keys(&significant(expect(case, "by_service_account")));
            let actual = sort_keys(&significant(&Value::Object(accounts)));
            compare(case, "ok", &json!(true))
                .and(|| Outcome::compare("by_service_account", &expected, &actual))
        }
    }
}

/// The objects of an account as they are recorded: without kind and version.
fn written(rights: &AccountRights) -> Value {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(object) = object.as_object_mut() {
            object.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
        }
        object
    };
    let all = |objects: &[Value]| objects.iter().map(bare).collect::<Vec<_>>();
    json!({
        "ServiceAccount": bare(&rights.account),
        "Roles": all(&rights.roles),
        "RoleBindings": all(&rights.role_bindings),
        "ClusterRoles": all(&rights.cluster_roles),
        "ClusterRoleBindings": all(&rights.cluster_role_bindings),
    })
}
