//! What is seen of an operator: its objects, and every change of them in a while.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use futures::{TryStreamExt as _, future};
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};
use olm_api::names::{GROUP, label};
use olm_classic::cluster::{items, text};
use olm_classic::names;
use serde_json::{Map, Value, json};

/// Groups whose objects are the bookkeeping of both OLMs.
const OF_OLM: [&str; 3] = [GROUP, names::GROUP, names::PACKAGE_GROUP];
/// Kinds that no operator is made of.
const TRANSIENT: [&str; 6] = [
    "Event",
    "Lease",
    "Endpoints",
    "EndpointSlice",
    "Node",
    "ComponentStatus",
];
/// The code of the API server for a version that it does not remember.
const EXPIRED: u16 = 410;
/// The namespace with bindings for aggregated APIs.
const OF_KUBERNETES: &str = "kube-system";
/// Labels by which OLM classic finds its objects.
const BOOKKEEPING: [&str; 8] = [
    names::OWNER_LABEL,
    names::OWNER_NAMESPACE_LABEL,
    names::OWNER_KIND_LABEL,
    names::MANAGED_LABEL,
    names::SPEC_HASH_LABEL,
    names::PERMISSIONS_HASH_LABEL,
    names::WEBHOOK_NAME_LABEL,
    names::WEBHOOK_HASH_LABEL,
];

/// The kinds of a cluster that an operator can be made of.
pub(super) struct Kinds {
    client: Client,
    known: Vec<(ApiResource, Scope)>,
}

impl Kinds {
    /// # Errors
    /// When the API server does not list its kinds.
    pub(super) async fn of(client: &Client) -> Result<Self> {
        let discovery = Discovery::new(client.clone()).run().await?;
        let all = discovery.groups().flat_map(|group| {
            let resources = group.recommended_resources().into_iter();
            resources.filter(|(resource, capabilities)| {
                capabilities.supports_operation(verbs::LIST)
                    && capabilities.supports_operation(verbs::WATCH)
                    && !OF_OLM.contains(&resource.group.as_str())
                    && !TRANSIENT.contains(&resource.kind.as_str())
            })
        });
        Ok(Self {
            client: client.clone(),
            known: all
                .map(|(resource, capabilities)| (resource, capabilities.scope))
                .collect(),
        })
    }

    /// The lists that hold the objects of an operator.
    fn lists(&self, operator: &Operator<'_>) -> Vec<(Api<DynamicObject>, ApiResource)> {
        let mut lists = Vec::new();
        for (resource, scope) in &self.known {
            let client = || self.client.clone();
            if matches!(scope, Scope::Cluster) {
                lists.push((Api::all_with(client(), resource), resource.clone()));
                continue;
            }
            let places = operator.namespaces.iter().copied();
            for place in places.chain((resource.kind == "RoleBinding").then_some(OF_KUBERNETES)) {
                let api = Api::namespaced_with(client(), place, resource);
                lists.push((api, resource.clone()));
            }
        }
        lists
    }
}

/// The operator whose objects are looked at.
pub(super) struct Operator<'a> {
    /// The namespaces in which all objects are looked at; the first is its own.
    pub(super) namespaces: Vec<&'a str>,
    /// The ClusterServiceVersion.
    pub(super) version: &'a str,
    /// The ClusterExtension.
    pub(super) extension: &'a str,
    /// Objects at cluster scope that its bundle brings, as `KIND/NAME`.
    pub(super) brought: &'a BTreeSet<String>,
}

impl Operator<'_> {
    /// Whether an object counts.
    fn is_of(&self, object: &Value) -> bool {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let namespace = text(object, "/metadata/namespace");
        if self.namespaces.contains(&namespace) {
            // The record of the move.
            return kind != "ConfigMap" || name != format!("{}-migration", self.extension);
        }
        let label = |key: &str| {
            let labels = object.pointer("/metadata/labels");
            labels.and_then(|labels| labels.get(key)?.as_str())
        };
        let own = self.namespaces.first().copied();
        let is_classic =
            label(names::OWNER_LABEL) == Some(self.version) && label(names::OWNER_NAMESPACE_LABEL) == own;
        let is_revision = |owner: &Value| {
            text(owner, "/kind") == "ClusterObjectSet"
                && text(owner, "/name").starts_with(&format!("{}-", self.extension))
        };
        let is_reader = namespace == OF_KUBERNETES
            && items(object, "/subjects").any(|subject| Some(text(subject, "/namespace")) == own);
        is_classic
            || is_reader
            || label(label::OWNER_NAME) == Some(self.extension)
            || items(object, "/metadata/ownerReferences").any(is_revision)
            || name.starts_with(self.version)
            || (kind == "Namespace" && self.namespaces.contains(&name))
            || self.brought.contains(&format!("{kind}/{name}"))
    }
}

/// The objects of an operator at one time.
pub(super) struct Seen {
    /// The objects without what changes by itself.
    objects: BTreeMap<String, Value>,
    /// The versions of all lists, in their order.
    versions: Vec<String>,
}

impl Seen {
    /// # Errors
    /// When a kind cannot be listed.
    pub(super) async fn now(kinds: &Kinds, operator: &Operator<'_>) -> Result<Self> {
        let lists = kinds.lists(operator);
        let listed = lists.iter().map(async |(api, resource)| {
            let list = api.list(&ListParams::default()).await;
            list.with_context(|| format!("cannot list {}", resource.kind))
        });
        let listed = future::try_join_all(listed).await?;
        let mut seen = Self {
            objects: BTreeMap::new(),
            versions: Vec::new(),
        };
        for (list, (_, resource)) in listed.into_iter().zip(&lists) {
            seen.versions
                .push(list.metadata.resource_version.unwrap_or_default());
            for object in list.items {
                let object = typed(object, resource)?;
                if operator.is_of(&object) {
                    seen.objects.insert(key(&object), settled(object));
                }
            }
        }
        Ok(seen)
    }

    /// The number of objects that the operator is made of.
    pub(super) fn count(&self) -> usize {
        const MADE_BY_KUBERNETES: [&str; 4] = ["Namespace", "Pod", "ReplicaSet", "ControllerRevision"];
        let is_of_operator = |object: &&Value| {
            !MADE_BY_KUBERNETES.contains(&text(object, "/kind"))
                && !matches!(
                    text(object, "/metadata/name"),
                    "kube-root-ca.crt" | "default" | "installer"
                )
        };
        self.objects.values().filter(is_of_operator).count()
    }

    /// The number of Pods.
    pub(super) fn pods(&self) -> usize {
        let all = self.objects.values();
        all.filter(|object| text(object, "/kind") == "Pod").count()
    }

    /// Reads every write since this was seen: none may change anything but the bookkeeping of either OLM.
    ///
    /// # Errors
    /// The differences, or a list cannot be watched.
    pub(super) async fn unwritten_since(&self, kinds: &Kinds, operator: &Operator<'_>) -> Result<()> {
        // The API server sends what has happened at once.
        let params = WatchParams::default().timeout(1);
        let lists = kinds.lists(operator);
        let watched = lists
            .iter()
            .zip(&self.versions)
            .map(async |((api, resource), version)| {
                let what = || format!("cannot watch {}", resource.kind);
                let events = api.watch(&params, version).await.with_context(what)?;
                let events: Vec<WatchEvent<DynamicObject>> = events.try_collect().await.with_context(what)?;
                let mut faults = Vec::new();
                for event in events {
                    let (object, is_gone) = match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                        WatchEvent::Deleted(object) => (object, true),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(error) if error.code == EXPIRED => {
                            faults.extend(self.faults_now(operator, api, resource).await?);
                            break;
                        }
                        WatchEvent::Error(error) => bail!("{}: {error:?}", what()),
                    };
                    faults.extend(self.fault(operator, typed(object, resource)?, is_gone));
                }
                Ok(faults)
            });
        let faults: Vec<String> = future::try_join_all(watched)
            .await?
            .into_iter()
            .flatten()
            .collect();
        refuse(faults)
    }

    /// The same by the end alone: on a slow machine a move takes longer than the API server remembers.
    async fn faults_now(
        &self,
        operator: &Operator<'_>,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
    ) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        for object in api.list(&ListParams::default()).await?.items {
            faults.extend(self.fault(operator, typed(object, resource)?, false));
        }
        Ok(faults)
    }

    /// What is wrong with a write.
    fn fault(&self, operator: &Operator<'_>, object: Value, is_gone: bool) -> Option<String> {
        let key = key(&object);
        match self.objects.get(&key) {
            Some(_) if is_gone => Some(format!("{key} was deleted")),
            Some(before) => difference(&key, &unmarked(before.clone()), &unmarked(settled(object))),
            None if operator.is_of(&object) => {
                Some(format!("{key} was {}", if is_gone { "deleted" } else { "made" }))
            }
            None => None,
        }
    }

    /// The same objects are there now, with the same bookkeeping.
    ///
    /// # Errors
    /// The differences.
    pub(super) fn is(&self, now: &Self) -> Result<()> {
        let keys: BTreeSet<&String> = self.objects.keys().chain(now.objects.keys()).collect();
        let faults = keys
            .into_iter()
            .filter_map(|key| match (self.objects.get(key), now.objects.get(key)) {
                (Some(before), Some(after)) => difference(key, before, after),
                (Some(_), None) => Some(format!("{key} is missing")),
                _ => Some(format!("{key} is new")),
            });
        refuse(faults.collect())
    }
}

fn refuse(mut faults: Vec<String>) -> Result<()> {
    const SHOWN: usize = 12;
    if faults.is_empty() {
        return Ok(());
    }
    faults.dedup();
    let count = faults.len();
    faults.truncate(SHOWN);
    bail!("{count} changes:\n  {}", faults.join("\n  "))
}

/// An object of a list with its kind, which lists leave out.
fn typed(object: DynamicObject, resource: &ApiResource) -> Result<Value> {
    let mut object = serde_json::to_value(object)?;
    object["apiVersion"] = resource.api_version.as_str().into();
    object["kind"] = resource.kind.as_str().into();
    Ok(object)
}

fn key(object: &Value) -> String {
    let part = |pointer| text(object, pointer);
    format!(
        "{} {}/{}",
        part("/kind"),
        part("/metadata/namespace"),
        part("/metadata/name")
    )
}

/// An object without what controllers of Kubernetes write, and owners by their names.
fn settled(mut object: Value) -> Value {
    let restarts: Vec<Value> = items(&object, "/status/containerStatuses")
        .map(|container| container["restartCount"].clone())
        .collect();
    let kind = text(&object, "/kind").to_owned();
    let owners: Vec<Value> = items(&object, "/metadata/ownerReferences")
        .map(|owner| json!([owner["kind"], owner["name"], owner["controller"]]))
        .collect();
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
        // Only a restart counts above nothing.
        if restarts.iter().any(|count| *count != 0) {
            object.insert("restarts".to_owned(), restarts.into());
        }
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        metadata.insert("ownerReferences".to_owned(), owners.into());
        // Changes of annotations count for it; those of content make another ReplicaSet. A Pod's is that of its status.
        if matches!(kind.as_str(), "Deployment" | "Pod") {
            metadata.remove("generation");
        }
    }
    // Kubernetes copies the annotations of a Deployment to it, and never removes one.
    if kind == "ReplicaSet"
        && let Some(annotations) = object
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !is_bookkeeping(key));
    }
    object
}

/// Whether a label or annotation is bookkeeping of one OLM.
fn is_bookkeeping(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    BOOKKEEPING.contains(&key)
        || domain == Some(GROUP)
        || key == label::MANAGED_BY
        || key.starts_with(names::COMPONENT_LABEL_PREFIX)
        || key.starts_with(names::ALONGSIDE_PREFIX)
}

/// A settled object without the bookkeeping of both OLMs.
fn unmarked(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
        for map in ["labels", "annotations"] {
            let kept = metadata.remove(map);
            let kept: Map<String, Value> = kept
                .as_ref()
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter(|(key, _)| !is_bookkeeping(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            metadata.insert(map.to_owned(), kept.into());
        }
    }
    object
}

/// The first fields that differ. Values of Secrets stay hidden.
fn difference(key: &str, before: &Value, after: &Value) -> Option<String> {
    const FIELDS: usize = 4;
    let mut fields = Vec::new();
    let mut open = vec![(String::new(), Some(before), Some(after))];
    while let Some((path, before, after)) = open.pop() {
        if before == after || fields.len() == FIELDS {
            continue;
        }
        match (before, after) {
            (Some(Value::Object(before)), Some(Value::Object(after))) => {
                let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                open.extend(
                    names
                        .into_iter()
                        .map(|name| (format!("{path}/{name}"), before.get(name), after.get(name))),
                );
            }
            (before, after) if key.starts_with("Secret ") && path.starts_with("/data") => {
                let states = [before, after].map(|value| if value.is_some() { "set" } else { "absent" });
                fields.push(format!("{path} changed ({} to {})", states[0], states[1]));
            }
            (before, after) => {
                let shown = |value: Option<&Value>| {
                    let text = value.map_or_else(|| "absent".to_owned(), Value::to_string);
                    text.chars().take(200).collect::<String>()
                };
                fields.push(format!("{path}: {} -> {}", shown(before), shown(after)));
            }
        }
    }
    (!fields.is_empty()).then(|| format!("{key}: {}", fields.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(object: &Value) -> Seen {
        let object = settled(object.clone());
        Seen {
            objects: BTreeMap::from([(key(&object), object)]),
            versions: Vec::new(),
        }
    }

    fn role() -> Value {
        json!({
            "kind": "Role",
            "metadata": {
                "name": "r", "namespace": "n", "resourceVersion": "1", "uid": "u",
                "labels": {"olm.owner": "o.v1", "app": "o"},
                "ownerReferences": [{"kind": "ClusterServiceVersion", "name": "o.v1", "uid": "c"}],
            },
            "rules": [{"verbs": ["get"]}],
        })
    }

    fn operator(brought: &BTreeSet<String>) -> Operator<'_> {
        Operator {
            namespaces: vec!["n"],
            version: "o.v1",
            extension: "o",
            brought,
        }
    }

    #[test]
    fn a_write_of_bookkeeping_is_no_fault_and_one_of_content_is() {
        let brought = BTreeSet::new();
        let (operator, before) = (operator(&brought), seen(&role()));
        let mut moved = role();
        moved["metadata"]["resourceVersion"] = json!("2");
        moved["metadata"]["labels"] = json!({"olm.operatorframework.io/owner-name": "o", "app": "o"});
        moved["metadata"]["ownerReferences"] = json!([{"kind": "ClusterObjectSet", "name": "o-1"}]);
        assert_eq!(before.fault(&operator, moved.clone(), false), None);
        for (pointer, value) in [
            ("/rules/0/verbs", json!(["list"])),
            ("/metadata/uid", json!("v")),
            ("/metadata/labels/app", json!("p")),
        ] {
            let mut written = moved.clone();
            *written.pointer_mut(pointer).unwrap() = value;
            assert!(before.fault(&operator, written, false).is_some(), "{pointer}");
        }
        assert!(before.fault(&operator, moved.clone(), true).is_some());
        // After the way back, bookkeeping counts, too.
        assert!(before.is(&seen(&moved)).is_err());
        before.is(&seen(&role())).unwrap();
    }

    #[test]
    fn a_new_object_is_a_fault_unless_it_belongs_to_others() {
        let brought = BTreeSet::from(["ClusterRole/brought".to_owned()]);
        let (operator, before) = (operator(&brought), seen(&role()));
        let made = |kind: &str, namespace: &str, name: &str| {
            let object = json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}});
            before.fault(&operator, object, false).is_some()
        };
        assert!(made("Pod", "n", "p"));
        assert!(!made("Pod", "m", "p"));
        assert!(!made("ConfigMap", "n", "o-migration"));
        assert!(made("ClusterRole", "", "brought"));
        assert!(made("ClusterRole", "", "o.v1-abc"));
        assert!(!made("ClusterRole", "", "view"));
        let reader = json!({
            "kind": "RoleBinding", "metadata": {"name": "reader", "namespace": "kube-system"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "n", "name": "o"}],
        });
        assert!(before.fault(&operator, reader, false).is_some());
    }

    #[test]
    fn a_restart_and_no_value_of_a_secret_is_shown() {
        let pod = |restarts: u8| {
            json!({
                "kind": "Pod", "metadata": {"name": "p", "namespace": "n"},
                "status": {"containerStatuses": [{"restartCount": restarts}]},
            })
        };
        let changed = seen(&pod(0)).is(&seen(&pod(1))).unwrap_err();
        assert!(
            format!("{changed}").contains("/restarts: absent -> [1]"),
            "{changed}"
        );
        let secret = |value: &str| json!({"kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"key": value}});
        let changed = seen(&secret("aaaa")).is(&seen(&secret("bbbb"))).unwrap_err();
        let said = format!("{changed}");
        assert!(
            said.contains("/data/key changed") && !said.contains("bbbb"),
            "{said}"
        );
    }
}
