//! The ChangePolicies that select an extension.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::{Api, ListParams};
use kube::core::DeserializeGuard;
use olm_api::names::CHANGE_POLICY;
use olm_api::{ChangePolicy, ClusterExtension, LabelSelector};
use olm_plan::approval::Cause;
use olm_platform::write::unless;
use olm_resolve::Selector;

use crate::extension::context::Context;
use crate::extension::failure::{Severity, StageError};

/// The reason why the policies are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoliciesError {
    /// The policies cannot be listed.
    #[error("cannot list the ChangePolicies")]
    List(#[source] kube::Error),
    /// One cannot be read. It could select any extension, so it holds every change back.
    #[error(
        "{CHANGE_POLICY} {name:?} cannot be read: {message}; no change begins until it is corrected or deleted"
    )]
    Read {
        name: String,
        /// The error.
        message: String,
    },
}

impl StageError for PoliciesError {
    fn severity(&self) -> Severity {
        match self {
            Self::List(_) => Severity::Transient,
            Self::Read { .. } => Severity::Waiting,
        }
    }
}

/// The policies on the API server; empty if it does not serve the kind.
///
/// # Errors
/// They cannot be listed, or one cannot be read.
pub(crate) async fn read(
    context: &Context,
    extension: &ClusterExtension,
) -> Result<Vec<Arc<ChangePolicy>>, PoliciesError> {
    let api: Api<DeserializeGuard<ChangePolicy>> = Api::all(context.client.clone());
    let list = unless(&[404], api.list(&ListParams::default()).await).map_err(PoliciesError::List)?;
    let mut found = Vec::new();
    for DeserializeGuard(read) in list.into_iter().flat_map(|list| list.items) {
        let policy = read.map_err(|error| PoliciesError::Read {
            name: error.metadata.name.clone().unwrap_or_default(),
            message: error.to_string(),
        })?;
        found.push(Arc::new(policy));
    }
    Ok(sorted(found, extension))
}

/// Whether two lists have the same policies with the same specs.
pub(crate) fn are_same(one: &[Arc<ChangePolicy>], other: &[Arc<ChangePolicy>]) -> bool {
    let identity = |policy: &Arc<ChangePolicy>| (policy.metadata.uid.clone(), policy.metadata.generation);
    one.iter().map(identity).eq(other.iter().map(identity))
}

fn sorted(mut policies: Vec<Arc<ChangePolicy>>, extension: &ClusterExtension) -> Vec<Arc<ChangePolicy>> {
    let none = BTreeMap::new();
    let labels = extension.metadata.labels.as_ref().unwrap_or(&none);
    policies.retain(|policy| selects(&policy.spec.selector, labels));
    policies.sort_by(|a, b| a.name().cmp(b.name()));
    policies
}

/// The fault of a policy with an invalid selector.
pub(crate) fn fault(policy: &ChangePolicy) -> Option<Cause> {
    let error = Selector::from(&policy.spec.selector).validate().err()?;
    Some(Cause::Policy {
        name: policy.name().to_owned(),
        why: error.to_string(),
    })
}

/// Whether a policy selects an extension with these labels. An invalid selector selects every extension, so that a
/// mistake allows nothing.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let selector = Selector::from(selector);
    selector.validate().is_err() || selector.matches(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_and_an_invalid_selector_select_every_extension() {
        let labels = BTreeMap::from([("tier".to_owned(), "prod".to_owned())]);
        let check = |selector: serde_json::Value, expected: bool| {
            let read: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(selects(&read, &labels), expected, "{selector}");
        };
        check(serde_json::json!({}), true);
        check(serde_json::json!({ "matchLabels": { "tier": "prod" } }), true);
        check(serde_json::json!({ "matchLabels": { "tier": "test" } }), false);
        let unknown = serde_json::json!({ "matchExpressions": [{ "key": "tier", "operator": "Is" }] });
        check(unknown.clone(), true);
        let spec = serde_json::json!({ "selector": unknown });
        let policy = ChangePolicy::new("mistaken", serde_json::from_value(spec).unwrap());
        let cause = fault(&policy).map(|cause| cause.reason());
        assert_eq!(cause, Some("Blocked"), "and it holds everything back");
    }
}
