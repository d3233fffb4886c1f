//! The namespaces that an OperatorGroup selects.

use std::collections::{BTreeMap, BTreeSet};

use olm_resolve::selector::SelectorError;
use serde_json::{Value, json};

use super::OperatorGroup;
use crate::cluster::{Cluster, text};
use crate::names;

/// Error of selecting the namespaces of an OperatorGroup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetsError {
    /// Its selector is invalid.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// It names all namespaces.
    #[error("TargetNamespaces cannot contain NamespaceAll: [{0}]")]
    All(String),
    /// It has no UID to label its namespaces with.
    #[error("Missing UID")]
    NoUid,
}

/// The namespaces that the OperatorGroup selects now, sorted: those that it names, existing or not, else those of the
/// cluster that its selector matches. Without both it is the one name `""`: all namespaces.
///
/// # Errors
/// When the selector is invalid, also if it is not used, or when `""` is named.
pub fn select(group: &OperatorGroup, cluster: &Cluster) -> Result<Vec<String>, TargetsError> {
    let selector = group.spec.selector.clone().unwrap_or_default();
    selector.validate()?;
    let named = &group.spec.target_namespaces;
    if named.iter().any(String::is_empty) {
        return Err(TargetsError::All(named.join(" ")));
    }
    if !named.is_empty() {
        let distinct: BTreeSet<&String> = named.iter().collect();
        return Ok(distinct.into_iter().cloned().collect());
    }
    if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
        return Ok(vec![String::new()]);
    }
    let matching = cluster
        .of_kind("Namespace")
        .filter(|namespace| selector.matches(&labels(namespace)));
    Ok(matching
        .map(|namespace| text(namespace, "/metadata/name").to_owned())
        .collect())
}

/// The selector of the namespaces whose requests reach the webhooks of members; `None` for all.
///
/// # Errors
/// When the OperatorGroup names namespaces, which are labelled with its UID, and has none.
pub fn webhook_selector(group: &OperatorGroup, object: &Value) -> Result<Option<Value>, TargetsError> {
    if group.spec.target_namespaces.is_empty() {
        let selector = object.pointer("/spec/selector");
        return Ok(selector.filter(|selector| !selector.is_null()).cloned());
    }
    if group.metadata.uid.is_empty() {
        return Err(TargetsError::NoUid);
    }
    let label = format!("{}{}", names::NAMESPACE_LABEL_PREFIX, group.metadata.uid);
    Ok(Some(json!({"matchLabels": {label: ""}})))
}

/// The labels of an object.
fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(spec: &Value) -> Result<Vec<String>, String> {
        let cluster: Cluster = [("x", "prod"), ("y", "test"), ("z", "prod")]
            .into_iter()
            .map(|(name, stage)| {
                json!({"kind": "Namespace", "metadata": {"name": name, "labels": {"stage": stage}}})
            })
            .collect();
        let group = OperatorGroup::read(&json!({"spec": spec})).unwrap();
        select(&group, &cluster).map_err(|error| error.to_string())
    }

    #[test]
    fn names_come_before_the_selector_and_nothing_is_all() {
        let prod = json!({"matchLabels": {"stage": "prod"}});
        let none: Vec<String> = Vec::new();
        assert_eq!(
            selected(&json!({"targetNamespaces": ["q", "p", "q"], "selector": prod})).unwrap(),
            ["p", "q"]
        );
        assert_eq!(selected(&json!({"selector": prod})).unwrap(), ["x", "z"]);
        assert_eq!(
            selected(&json!({"selector": {"matchLabels": {"stage": "no"}}})).unwrap(),
            none
        );
        assert_eq!(selected(&json!({"selector": {}})).unwrap(), [""]);
        assert_eq!(selected(&json!({})).unwrap(), [""]);
    }

    #[test]
    fn all_namespaces_cannot_be_named() {
        assert_eq!(
            selected(&json!({"targetNamespaces": ["a", ""]})).unwrap_err(),
            "TargetNamespaces cannot contain NamespaceAll: [a ]"
        );
    }

    #[test]
    fn an_invalid_selector_is_an_error_even_where_namespaces_are_named() {
        let selector = json!({"matchExpressions": [{"key": "stage", "operator": "Like"}]});
        let spec = json!({"targetNamespaces": ["a"], "selector": selector});
        assert_eq!(
            selected(&spec).unwrap_err(),
            "\"Like\" is not a valid label selector operator"
        );
    }

    #[test]
    fn webhooks_of_named_namespaces_select_the_label_of_the_group() {
        let object = json!({"metadata": {"uid": "u"}, "spec": {"targetNamespaces": ["a"]}});
        let group = OperatorGroup::read(&object).unwrap();
        assert_eq!(
            webhook_selector(&group, &object).unwrap(),
            Some(json!({"matchLabels": {"olm.operatorgroup.uid/u": ""}}))
        );
        let group = OperatorGroup::default();
        assert_eq!(webhook_selector(&group, &json!({})).unwrap(), None);
    }
}
