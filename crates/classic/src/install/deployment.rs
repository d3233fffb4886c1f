//! One Deployment of an install strategy.

use serde_json::{Map, Value, json};

use super::overrides::Overrides;
use super::{owner_labels, owner_reference, serving};
use crate::cluster::object_at;
use crate::csv::{ClusterServiceVersion, StrategyDeployment};
use crate::names;

/// The Deployment as it is written. `authority` is that of its certificate where it serves.
pub(super) fn deployment(
    object: &Value,
    csv: &ClusterServiceVersion,
    entry: &StrategyDeployment,
    overrides: &Overrides<'_>,
    authority: Option<&[u8]>,
) -> Value {
    let mut spec = if entry.spec.is_object() {
        entry.spec.clone()
    } else {
        json!({})
    };
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("revisionHistoryLimit".to_owned(), 1.into());
    }
    if let Some(authority) = authority {
        serving::mount(&mut spec, &entry.name, authority);
    }
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    if let (Some(annotations), Some(template)) = (
        annotations.filter(|annotations| !annotations.is_empty()),
        object_at(&mut spec, &["template", "metadata", "annotations"]),
    ) {
        template.extend(annotations.clone());
    }
    overrides.apply(&mut spec, &csv.metadata.name);
    let mut labels: Map<String, Value> = entry
        .label
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    labels.extend(owner_labels(csv));
    labels.insert(names::MANAGED_LABEL.to_owned(), "true".into());
    labels.insert(names::SPEC_HASH_LABEL.to_owned(), super::spec_hash(&spec).into());
    let mut metadata = json!({
        "name": entry.name,
        "namespace": csv.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(object)],
    });
    let config_annotations = overrides.config.and_then(|config| config.get("annotations"));
    if let (Some(annotations), Some(metadata)) = (
        config_annotations.filter(|annotations| annotations.is_object()),
        metadata.as_object_mut(),
    ) {
        metadata.insert("annotations".to_owned(), annotations.clone());
    }
    json!({
        "apiVersion": names::DEPLOYMENT_API_VERSION,
        "kind": names::DEPLOYMENT_KIND,
        "metadata": metadata,
        "spec": spec,
    })
}
