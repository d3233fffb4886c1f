//! The record of OLM classic for a return: a ConfigMap in the operator's namespace, owned by the ClusterExtension.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use anyhow::{Context as _, anyhow, bail, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch};
use olm_api::ClusterExtension;
use olm_api::names::{annotation, migration, user};
use olm_classic::subscription::MIGRATED;
use olm_image::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::context::MoveContext;
use crate::facts::{Case, list, name, namespace, text};
use crate::hint::Hint;
use crate::objects::record::is_version;
use crate::objects::reduce::{is_bookkeeping, is_of_classic, is_ours};

/// The key of the record in the ConfigMap: JSON, gzip.
const KEY: &str = "record.json.gz";
/// The maximum size of the packed record in bytes, because the API server limits objects. The record itself may be a
/// hundred times larger.
const MAX_BYTES: usize = 900_000;

/// The objects of OLM classic before the move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The Subscription with its status.
    pub subscription: Value,
    /// The ClusterServiceVersion with its status.
    pub version: Value,
    /// The objects of the operator.
    pub objects: Vec<ClassicRecord>,
}

/// The bookkeeping of OLM classic on one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassicRecord {
    /// API version, kind, name and namespace.
    pub object: Value,
    /// The labels that the move removes or sets.
    pub labels: Map<String, Value>,
    /// The annotations that the move removes or sets.
    pub annotations: Map<String, Value>,
    /// Whether the ClusterServiceVersion is an owner.
    pub is_owned: bool,
    /// The field manager of OLM classic.
    pub manager: String,
    /// The entries of its other field managers in `managedFields`: conversions of custom resources have their own.
    #[serde(default)]
    pub others: Vec<Value>,
}

impl Record {
    /// The state before the first object is handed over.
    pub fn of(case: Case<'_>, objects: &[Value]) -> anyhow::Result<Self> {
        let Some(version) = case.version() else {
            bail!("Subscription {} has no ClusterServiceVersion", case.key());
        };
        let mut subscription = stripped(case.subscription);
        if let Some(image) = case.bundle_image() {
            // The InstallPlan that names it is deleted with the Subscription.
            annotate(&mut subscription, annotation::BUNDLE_NAME, case.installed());
            annotate(&mut subscription, annotation::BUNDLE_REFERENCE, image);
        }
        Ok(Self {
            subscription,
            version: stripped(version),
            objects: objects.iter().map(ClassicRecord::of).collect(),
        })
    }

    /// `NAMESPACE/NAME` of the Subscription.
    pub fn key(&self) -> String {
        format!("{}/{}", namespace(&self.subscription), name(&self.subscription))
    }

    /// The digest of the packed record.
    pub fn digest(&self) -> anyhow::Result<String> {
        Ok(Digest::of(&self.pack()?).to_string())
    }

    fn pack(&self) -> anyhow::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&serde_json::to_vec(self)?)?;
        let packed = encoder.finish()?;
        ensure!(
            packed.len() <= MAX_BYTES,
            "the record of the move takes {} bytes, more than the {MAX_BYTES} that can be stored",
            packed.len()
        );
        Ok(packed)
    }

    fn unpack(packed: &[u8]) -> anyhow::Result<Self> {
        let mut text = Vec::new();
        let limit = u64::try_from(MAX_BYTES)?.saturating_mul(100);
        GzDecoder::new(packed).take(limit).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

impl ClassicRecord {
    fn of(live: &Value) -> Self {
        let part = |key: &str| {
            let map = live
                .pointer(&format!("/metadata/{key}"))
                .and_then(Value::as_object);
            let entries = map
                .into_iter()
                .flatten()
                .filter(|(key, _)| is_bookkeeping(key) || is_ours(key));
            entries.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let mut object = json!({
            "apiVersion": live.get("apiVersion"), "kind": live.get("kind"), "metadata": {"name": name(live)},
        });
        if !namespace(live).is_empty()
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("namespace".to_owned(), namespace(live).into());
        }
        let entries = list(live, "/metadata/managedFields").iter();
        let mut entries = entries.filter(|entry| is_of_classic(entry));
        Self {
            object,
            labels: part("labels"),
            annotations: part("annotations"),
            is_owned: list(live, "/metadata/ownerReferences").iter().any(is_version),
            manager: entries
                .next()
                .map_or_else(String::new, |entry| text(entry, "/manager").to_owned()),
            others: entries.cloned().collect(),
        }
    }
}

/// An object without the fields that the API server adds, and without what it says about the move.
fn stripped(live: &Value) -> Value {
    let mut object = live.clone();
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.retain(|key, _| {
            matches!(
                key.as_str(),
                "name" | "namespace" | "labels" | "annotations" | "finalizers"
            )
        });
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(user::PAUSED);
            annotations.remove(migration::MIGRATE);
        }
    }
    let conditions = object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    if let Some(conditions) = conditions {
        conditions.retain(|condition| text(condition, "/type") != MIGRATED);
    }
    object
}

/// Sets an annotation.
pub(crate) fn annotate(object: &mut Value, key: &str, value: &str) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let annotations = metadata.map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(key.to_owned(), value.into());
    }
}

/// The name of the ConfigMap for a Subscription.
fn config_map(subscription: &str) -> String {
    format!("{subscription}-migration")
}

/// Stores the record. The record of an earlier run of this move stays: it is older than the present state of the
/// cluster.
pub async fn keep(
    context: &MoveContext<'_>,
    record: &Record,
    extension: &ClusterExtension,
) -> anyhow::Result<()> {
    let (place, subscription) = (namespace(&record.subscription), name(&record.subscription));
    let wanted = config_map(subscription);
    if let Some(map) = read(&context.content, place, subscription).await? {
        if is_of(&map, extension) {
            return Ok(());
        }
        let error = anyhow!("ConfigMap {place}/{wanted} exists and is not of this move");
        return Err(error.context(Hint(format!(
            "delete it: `kubectl delete configmap -n {place} {wanted}`"
        ))));
    }
    let packed = record.pack()?;
    prove(context, &packed, extension).await?;
    let owner = OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..extension.controller_reference()
    };
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(wanted.clone()),
            namespace: Some(place.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(packed))])),
        ..ConfigMap::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(context.content.clone(), place);
    let created = maps.create(&context.creating(), &map).await;
    created
        .map(drop)
        .with_context(|| format!("cannot create ConfigMap {place}/{wanted}"))
}

/// Writes the digest of the record to the ClusterExtension. A user with rights on ConfigMaps in the namespace cannot
/// change it.
async fn prove(context: &MoveContext<'_>, packed: &[u8], extension: &ClusterExtension) -> anyhow::Result<()> {
    let digest = Digest::of(packed).to_string();
    if extension.annotation(migration::RECORD_DIGEST) == Some(digest.as_str()) {
        return Ok(());
    }
    let patch = json!({"metadata": {
        "uid": extension.metadata.uid, "annotations": {migration::RECORD_DIGEST: digest},
    }});
    let extensions: Api<ClusterExtension> = Api::all(context.own.clone());
    let patched = extensions
        .patch(extension.name(), &context.changing(), &Patch::Merge(&patch))
        .await;
    patched
        .map(drop)
        .with_context(|| format!("cannot change ClusterExtension {:?}", extension.name()))
}

/// Whether the ConfigMap is the one that the move to this ClusterExtension stored, unchanged.
fn is_of(map: &ConfigMap, extension: &ClusterExtension) -> bool {
    let mut owners = map.metadata.owner_references.iter().flatten();
    let is_owned = owners.any(|owner| Some(&owner.uid) == extension.metadata.uid.as_ref());
    let digest = packed(map).map(|packed| Digest::of(packed).to_string());
    is_owned && digest.is_some() && digest.as_deref() == extension.annotation(migration::RECORD_DIGEST)
}

fn packed(map: &ConfigMap) -> Option<&[u8]> {
    let data = map.binary_data.as_ref()?.get(KEY)?;
    Some(&data.0)
}

async fn read(client: &Client, place: &str, subscription: &str) -> anyhow::Result<Option<ConfigMap>> {
    let wanted = config_map(subscription);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), place);
    let found = maps.get_opt(&wanted).await;
    found.with_context(|| format!("cannot read ConfigMap {place}/{wanted}"))
}

/// Reads the record of the move of a Subscription to this ClusterExtension; `None` if there is none. A changed record
/// is an error.
pub async fn kept(
    client: &Client,
    place: &str,
    subscription: &str,
    extension: &ClusterExtension,
) -> anyhow::Result<Option<Record>> {
    let Some(map) = read(client, place, subscription).await? else {
        return Ok(None);
    };
    let wanted = config_map(subscription);
    let packed = packed(&map).filter(|_| is_of(&map, extension));
    let Some(packed) = packed else {
        let error = anyhow!(
            "ConfigMap {place}/{wanted} is not the record that the move to ClusterExtension {:?} stored",
            extension.name()
        );
        return Err(error.context(Hint(format!(
            "to subscribe again, run `olm uninstall {}` and apply the Subscription",
            extension.name()
        ))));
    };
    let record = Record::unpack(packed);
    let record = record.with_context(|| format!("cannot read {KEY:?} of ConfigMap {place}/{wanted}"))?;
    let is_near = namespace(&record.subscription) == place
        && name(&record.subscription) == subscription
        && namespace(&record.version) == place;
    ensure!(
        is_near,
        "the record in ConfigMap {place}/{wanted} is not of Subscription {place}/{subscription}"
    );
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let facts = facts();
        let case = Case {
            facts: &facts,
            subscription: &facts.subscriptions[0],
        };
        let live = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "postgres", "namespace": "databases", "uid": "u",
                "labels": {"olm.owner": "postgres.v1.0.0", "app": "postgres"},
                "ownerReferences": [
                    {"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "postgres.v1.0.0"},
                ],
                "managedFields": [
                    {"manager": "olm", "operation": "Update", "fieldsV1": {}},
                    {"manager": "kubectl", "operation": "Update", "fieldsV1": {}},
                    {"manager": "catalog", "operation": "Update", "fieldsV1": {}},
                ],
            },
        });
        let record = Record::of(case, &[live]).unwrap();
        assert_eq!(
            record.objects,
            [ClassicRecord {
                object: json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "postgres", "namespace": "databases"},
                }),
                labels: json!({"olm.owner": "postgres.v1.0.0"})
                    .as_object()
                    .unwrap()
                    .clone(),
                annotations: Map::new(),
                is_owned: true,
                manager: "olm".to_owned(),
                others: vec![json!({"manager": "catalog", "operation": "Update", "fieldsV1": {}})],
            }]
        );
        assert_eq!(Record::unpack(&record.pack().unwrap()).unwrap(), record);
    }

    #[test]
    fn our_mark_of_the_move_is_not_kept() {
        let live = json!({"metadata": {
            "name": "a", "uid": "u", "resourceVersion": "1",
            "annotations": {
                "olm.operatorframework.io/paused": "true", "olm.operatorframework.io/migrate": "true", "mine": "1",
            },
        }, "status": {"conditions": [{"type": "Migrated"}, {"type": "CatalogSourcesUnhealthy"}]}});
        assert_eq!(
            stripped(&live),
            json!({
                "metadata": {"name": "a", "annotations": {"mine": "1"}},
                "status": {"conditions": [{"type": "CatalogSourcesUnhealthy"}]},
            })
        );
    }
}
