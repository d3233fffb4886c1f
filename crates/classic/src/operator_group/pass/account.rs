//! The service account that members are installed with.

use serde_json::{Value, json};

use super::conditions::{condition, has, remove, set};
use super::{GroupPass, PassError};
use crate::cluster::{object_at, text};
use crate::names;
use crate::operator_group::OperatorGroup;

const KIND: &str = "ServiceAccount";
/// The condition of an OperatorGroup without its account; true is bad.
const MISSING: &str = "OperatorGroupServiceAccount";

/// Brings the reference to the account in the status up to date, and says whether it is another one now.
///
/// # Errors
/// When the account does not exist. The status says so.
pub(super) fn refresh(pass: &mut GroupPass<'_>, group: &OperatorGroup) -> Result<bool, PassError> {
    let name = &group.spec.service_account_name;
    let namespace = &group.metadata.namespace;
    if name.is_empty() {
        return Ok(point_to(pass, None));
    }
    let Some(account) = pass.cluster.get(KIND, namespace, name) else {
        let message = format!("ServiceAccount {name} not found");
        let condition = condition(MISSING, "ServiceAccountNotFound", &message, &pass.now);
        let before = pass.group.clone();
        set(&mut pass.group, condition);
        if let Some(status) = object_at(&mut pass.group, &["status"]) {
            status.remove("serviceAccountRef");
        }
        if pass.group != before {
            pass.set_status("serviceAccountRef", None);
        }
        return Err(PassError::Account(name.clone()));
    };
    label(pass, account);
    // Without the resource version: not every change of the account is one of the reference.
    let reference = json!({
        "apiVersion": "v1",
        "kind": KIND,
        "namespace": namespace,
        "name": name,
        "uid": text(account, "/metadata/uid"),
    });
    Ok(point_to(pass, Some(reference)))
}

/// Writes the reference and removes the condition where they differ.
fn point_to(pass: &mut GroupPass<'_>, reference: Option<Value>) -> bool {
    let recorded = pass.group.pointer("/status/serviceAccountRef");
    let is_other = recorded.filter(|recorded| !recorded.is_null()) != reference.as_ref();
    if has(&pass.group, MISSING) || is_other {
        remove(&mut pass.group, MISSING);
        pass.set_status("serviceAccountRef", reference);
    }
    is_other
}

/// Labels the account, so that watches show it.
fn label(pass: &mut GroupPass<'_>, account: &Value) {
    let mut account = account.clone();
    if let Some(labels) = object_at(&mut account, &["metadata", "labels"]) {
        labels.insert(names::MANAGED_LABEL.to_owned(), "true".into());
    }
    pass.changes.put(account);
}
