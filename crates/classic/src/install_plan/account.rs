//! Whether the account that a plan is carried out under is known.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{condition, without_condition};
use crate::cluster::{Cluster, put, text};

/// The reason of the condition `Installed` while the account is not known.
const REASON: &str = "InstallCheckFailed";

/// Result of the lookup of a plan's account in the OperatorGroups of its namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountLookup {
    /// The plan with its account in the status.
    pub plan: Value,
    /// Error that keeps the plan from being carried out.
    pub error: Option<String>,
}

/// Looks up the account of a plan. `groups` are the OperatorGroups of its namespace, and `cluster` has its service
/// accounts.
pub fn look_up_account(plan: &Value, groups: &[&Value], cluster: &Cluster, now: Timestamp) -> AccountLookup {
    let mut lookup = AccountLookup {
        plan: plan.clone(),
        error: None,
    };
    match account(groups, cluster) {
        Ok(account) => {
            if let Some(account) = account {
                put(&mut lookup.plan, &["status"], REFERENCE, account);
            } else if let Some(status) = lookup.plan.pointer_mut("/status").and_then(Value::as_object_mut) {
                status.remove(REFERENCE);
            }
            without_condition(&mut lookup.plan, REASON);
        }
        Err(error) => {
            condition(&mut lookup.plan, "False", REASON, &error, now);
            lookup.error = Some(error);
        }
    }
    lookup
}

const REFERENCE: &str = "attenuatedServiceAccountRef";

/// The reference to the account that the OperatorGroup names.
fn account(groups: &[&Value], cluster: &Cluster) -> Result<Option<Value>, String> {
    let group = match groups {
        [] => return Err("no operator group found that is managing this namespace".to_owned()),
        [group] => group,
        several => {
            let count = several.len();
            return Err(format!(
                "more than one operator group(s) are managing this namespace count={count}"
            ));
        }
    };
    let name = text(group, "/spec/serviceAccountName");
    if name.is_empty() {
        return Ok(None);
    }
    let namespace = text(group, "/metadata/namespace");
    let Some(account) = cluster.get("ServiceAccount", namespace, name) else {
        return Err(format!(
            "please make sure the service account exists. sa={name} operatorgroup={namespace}/{}",
            text(group, "/metadata/name")
        ));
    };
    Ok(Some(json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "namespace": namespace, "name": name,
        "uid": text(account, "/metadata/uid"),
    })))
}
