//! The labels of namespaces that name the OperatorGroups that select them. Webhooks of members are limited by them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::OperatorGroup;
use crate::cluster::{Cluster, object_at, text};
use crate::names;

/// The namespace with the labels that it should have; nothing where it has them.
pub fn labelled(namespace: &Value, cluster: &Cluster) -> Option<Value> {
    let name = text(namespace, "/metadata/name");
    let wanted: BTreeSet<String> = cluster
        .of_kind(names::OPERATOR_GROUP_KIND)
        .filter_map(|group| OperatorGroup::read(group).ok())
        .filter(|group| group.namespaces().iter().any(|selected| selected == name))
        .map(|group| format!("{}{}", names::NAMESPACE_LABEL_PREFIX, group.metadata.uid))
        .collect();
    let mut changed = namespace.clone();
    let labels = object_at(&mut changed, &["metadata", "labels"])?;
    labels.retain(|key, _| !key.starts_with(names::NAMESPACE_LABEL_PREFIX) || wanted.contains(key));
    for key in wanted {
        labels.entry(key).or_insert_with(|| "".into());
    }
    let is_other =
        namespace.pointer("/metadata/labels").unwrap_or(&Value::Null) != &Value::Object(labels.clone());
    let had_none = namespace.pointer("/metadata/labels").is_none() && labels.is_empty();
    (is_other && !had_none).then_some(changed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_names_the_groups_that_select_it() {
        let group = |uid: &str, namespaces: &[&str]| {
            json!({
                "kind": "OperatorGroup", "metadata": {"name": uid, "namespace": "o", "uid": uid},
                "status": {"namespaces": namespaces},
            })
        };
        let cluster: Cluster = [group("u", &["n"]), group("v", &["m"]), group("w", &[""])]
            .into_iter()
            .collect();
        let namespace = |labels: Value| json!({"metadata": {"name": "n", "labels": labels}});
        let right = json!({"a": "b", "olm.operatorgroup.uid/u": ""});
        let wrong = namespace(json!({"a": "b", "olm.operatorgroup.uid/v": ""}));
        assert_eq!(labelled(&wrong, &cluster).unwrap()["metadata"]["labels"], right);
        assert_eq!(labelled(&namespace(right), &cluster), None);
        let bare = json!({"metadata": {"name": "x"}});
        assert_eq!(labelled(&bare, &cluster), None);
    }
}
