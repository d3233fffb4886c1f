//! Writes the objects that a pass returns.
//!
//! Objects of our own API group, and records of OLM such as labels of namespaces, are replaced with the program's own
//! rights, on the version that the pass has read. Content of bundles is applied under an account.

use std::sync::Arc;

use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Api, Client};
use olm_api::names::field_manager;
use olm_classic::cluster::text;
use olm_classic::names;
use olm_cluster::apply::{Commit, Target, classify};
use olm_cluster::discover::{Discovery, Resource};
use olm_cluster::identity::{AccountName, Accounts, IdentityError};
use olm_rollout::failure::{FailureKind, RequestFailure};
use olm_rollout::ownership::Guard;
use serde_json::{Map, Value};

use super::kinds;
use super::store::Store;

/// The account that writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The program, with its own rights.
    Own,
    /// This service account.
    Account(AccountName),
}

/// Writes objects, and shows the written ones to the store.
pub struct Writer {
    own: Client,
    accounts: Arc<Accounts>,
    discovery: Arc<Discovery>,
    store: Arc<Store>,
}

/// Owned form of a [`Target`]: the name of an object, and the client that reaches it.
struct OwnedTarget<'a> {
    client: Client,
    resource: Arc<Resource>,
    namespace: &'a str,
    name: &'a str,
}

impl OwnedTarget<'_> {
    fn target(&self) -> Target<'_> {
        Target {
            client: &self.client,
            resource: &self.resource,
            namespace: self.namespace,
            name: self.name,
        }
    }
}

/// Metadata that the server sets.
const OF_THE_SERVER: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

impl Writer {
    /// `own` acts as the program; `accounts` act as others.
    pub fn new(own: Client, accounts: Arc<Accounts>, discovery: Arc<Discovery>, store: Arc<Store>) -> Self {
        Self {
            own,
            accounts,
            discovery,
            store,
        }
    }

    /// Acts as the program.
    pub fn own(&self) -> &Client {
        &self.own
    }

    /// A client that acts as the actor.
    ///
    /// # Errors
    /// When the account has no token: [`FailureKind::Forbidden`] where it does not exist or the program may not have
    /// one.
    pub async fn client(&self, actor: &Actor) -> Result<Client, RequestFailure> {
        match actor {
            Actor::Own => Ok(self.own.clone()),
            Actor::Account(account) => {
                let client = self.accounts.client(account).await;
                client.map_err(|error| {
                    let kind = match &error {
                        IdentityError::Unavailable { .. } => FailureKind::Transient,
                        // An account that does not exist has no rights.
                        _ => FailureKind::Forbidden,
                    };
                    RequestFailure::new(kind, error.to_string())
                })
            }
        }
    }

    /// The kind of an object.
    ///
    /// # Errors
    /// When the cluster does not serve it, or could not be asked.
    pub async fn resource(&self, api_version: &str, kind: &str) -> Result<Arc<Resource>, RequestFailure> {
        let unknown = || {
            let message = format!("no matches for kind \"{kind}\" in version \"{api_version}\"");
            RequestFailure::new(FailureKind::UnknownKind, message)
        };
        let types = TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let gvk = GroupVersionKind::try_from(&types).map_err(|_| unknown())?;
        let found = self.discovery.find(&gvk.group, &gvk.version, &gvk.kind).await;
        found.map_err(|error| classify(&error))?.ok_or_else(unknown)
    }

    /// The target of requests about an object.
    async fn owned_target<'a>(
        &self,
        actor: &Actor,
        object: &'a Value,
    ) -> Result<OwnedTarget<'a>, RequestFailure> {
        let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        Ok(OwnedTarget {
            client: self.client(actor).await?,
            resource: self.resource(api_version, kind).await?,
            namespace: text(object, "/metadata/namespace"),
            name: text(object, "/metadata/name"),
        })
    }

    /// Reads an object from the API server.
    ///
    /// # Errors
    /// The server did not say.
    pub async fn read(
        &self,
        actor: &Actor,
        (api_version, kind): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, RequestFailure> {
        let owned = OwnedTarget {
            client: self.client(actor).await?,
            resource: self.resource(api_version, kind).await?,
            namespace,
            name,
        };
        owned.target().read().await
    }

    /// The objects of a kind in all namespaces that a label selector names; none where the cluster does not serve the
    /// kind.
    ///
    /// # Errors
    /// The server did not say.
    pub async fn labelled(
        &self,
        actor: &Actor,
        (api_version, kind): (&str, &str),
        selector: &str,
    ) -> Result<Vec<Value>, RequestFailure> {
        let resource = match self.resource(api_version, kind).await {
            Err(failure) if failure.kind == FailureKind::UnknownKind => return Ok(Vec::new()),
            resource => resource?,
        };
        let objects: Api<DynamicObject> = Api::all_with(self.client(actor).await?, &resource.api);
        let listed = objects.list(&ListParams::default().labels(selector)).await;
        let listed = listed.map_err(|error| classify(&error))?.items.into_iter();
        Ok(listed
            .filter_map(|mut object| {
                // Items of a list have no apiVersion and kind.
                object.types = Some(TypeMeta {
                    api_version: api_version.to_owned(),
                    kind: kind.to_owned(),
                });
                serde_json::to_value(object).ok()
            })
            .collect())
    }

    /// Creates the object, or replaces the parts that differ: metadata and content first, then the status. It insists
    /// on the resourceVersion of `wanted`, where it has one.
    ///
    /// # Errors
    /// [`FailureKind::Conflict`] when the object is not as the pass has read it; others as the server says.
    pub async fn write(&self, actor: &Actor, wanted: &Value) -> Result<Value, RequestFailure> {
        let owned = self.owned_target(actor, wanted).await?;
        let target = owned.target();
        let read = self.current(&target).await?;
        let mut written = match read {
            None => {
                let created = target.create(&new(wanted)).await?;
                self.take(&created);
                created
            }
            Some(known) if content(&known) == content(wanted) => known,
            Some(known) => {
                let replaced = target.replace_object(&on_version_of(wanted, &known)).await?;
                self.take(&replaced);
                replaced
            }
        };
        let status = wanted.get("status").filter(|status| !is_empty(status));
        if let Some(status) = status
            && written.get("status") != Some(status)
        {
            let mut body = written;
            if let Some(body) = body.as_object_mut() {
                body.insert("status".to_owned(), status.clone());
            }
            written = target.replace_status(&body).await?;
            self.take(&written);
        }
        Ok(written)
    }

    /// Creates an object, or returns the one that is there already; with the warnings of the server.
    ///
    /// # Errors
    /// The object was not created, or it is not known whether it was.
    pub async fn create_with_warnings(
        &self,
        actor: &Actor,
        wanted: &Value,
    ) -> Result<(Value, Vec<String>), RequestFailure> {
        let owned = self.owned_target(actor, wanted).await?;
        let target = owned.target();
        let (created, warnings) = match target.create_with_warnings(&without_status(wanted)).await {
            Err(failure) if failure.kind == FailureKind::Conflict => {
                (target.read().await?.ok_or(failure)?, Vec::new())
            }
            created => created?,
        };
        self.take(&created);
        Ok((created, warnings))
    }

    /// Replaces the status of an object of our API group, and nothing else of it. It insists on the resourceVersion of
    /// `wanted`.
    ///
    /// # Errors
    /// [`FailureKind::Conflict`] when the object is not as the pass has read it, [`FailureKind::MissingNamespace`] when
    /// it is gone; others as the server says.
    pub async fn write_status(&self, wanted: &Value) -> Result<(), RequestFailure> {
        let snapshot = self.store.snapshot();
        let (kind, name) = (text(wanted, "/kind"), text(wanted, "/metadata/name"));
        let namespace = text(wanted, "/metadata/namespace");
        let known = snapshot.get(kind, namespace, name);
        if known.is_some_and(|known| known.get("status") == wanted.get("status")) {
            return Ok(());
        }
        let owned = self.owned_target(&Actor::Own, wanted).await?;
        let written = owned.target().replace_status(wanted).await?;
        self.take(&written);
        Ok(())
    }

    /// Applies content of a bundle on the server's side: fields of other managers stay.
    ///
    /// # Errors
    /// The object was not applied, or it is not known whether it was.
    pub async fn apply(&self, actor: &Actor, wanted: &Value) -> Result<Value, RequestFailure> {
        self.apply_as(names::FIELD_MANAGER, actor, wanted).await
    }

    /// Applies content of a bundle; with the warnings of the server.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub async fn apply_with_warnings(
        &self,
        actor: &Actor,
        wanted: &Value,
    ) -> Result<(Value, Vec<String>), RequestFailure> {
        let owned = self.owned_target(actor, wanted).await?;
        let target = owned.target();
        let body = without_status(wanted);
        let (applied, warnings) = target.apply_with_warnings(names::FIELD_MANAGER, &body).await?;
        self.take(&applied);
        Ok((applied, warnings))
    }

    /// The same by another field manager, for a part of an object.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub async fn apply_as(
        &self,
        manager: &str,
        actor: &Actor,
        wanted: &Value,
    ) -> Result<Value, RequestFailure> {
        let owned = self.owned_target(actor, wanted).await?;
        let target = owned.target();
        let applied = target
            .apply_as(manager, &without_status(wanted), Commit::Yes)
            .await?;
        self.take(&applied);
        Ok(applied)
    }

    /// A merge patch of a followed object.
    ///
    /// # Errors
    /// [`FailureKind::MissingNamespace`] when it is gone; others as the server says.
    pub async fn merge(&self, actor: &Actor, object: &Value, patch: &Value) -> Result<Value, RequestFailure> {
        self.merge_as(field_manager::OBJECTS, actor, object, patch).await
    }

    /// The same by another field manager.
    ///
    /// # Errors
    /// As [`Self::merge`].
    pub async fn merge_as(
        &self,
        manager: &str,
        actor: &Actor,
        object: &Value,
        patch: &Value,
    ) -> Result<Value, RequestFailure> {
        let owned = self.owned_target(actor, object).await?;
        let target = owned.target();
        let merged = target.merge_as(manager, patch).await?;
        self.take(&merged);
        Ok(merged)
    }

    /// Deletes an object in the version that was last seen, in the background. One that is gone already is no failure.
    ///
    /// # Errors
    /// The object was not deleted, or it is not known whether it was.
    pub async fn delete(&self, actor: &Actor, object: &Value) -> Result<(), RequestFailure> {
        let owned = self.owned_target(actor, object).await?;
        let target = owned.target();
        let guard = Guard::Seen {
            uid: text(object, "/metadata/uid").to_owned(),
            resource_version: text(object, "/metadata/resourceVersion").to_owned(),
        };
        let held = target.delete(&guard).await?;
        match held {
            Some(held) => self.take(&held),
            None => {
                if let Some(kind) = kinds::find(text(object, "/kind")) {
                    self.store.forget(kind, target.namespace, target.name);
                }
            }
        }
        Ok(())
    }

    /// The object as the store has it; one that the store may not see, as the server has it. One that was made meanwhile
    /// is a conflict when it is created.
    async fn current(&self, target: &Target<'_>) -> Result<Option<Value>, RequestFailure> {
        if target.name.is_empty() {
            return Ok(None);
        }
        let kind = target.resource.api.kind.as_str();
        let snapshot = self.store.snapshot();
        match snapshot.get(kind, target.namespace, target.name) {
            Some(known) => Ok(Some(known.clone())),
            None if shows_all(&target.resource.api) && self.store.has_listed(kind) => Ok(None),
            None => target.read().await,
        }
    }

    fn take(&self, object: &Value) {
        let known = kinds::find(text(object, "/kind"));
        if let Some(kind) = known.filter(|kind| kind.api_version() == text(object, "/apiVersion")) {
            self.store.take(kind, object.clone());
        }
    }
}

/// Whether a watch of the kind, where it is followed, shows all of its objects.
fn shows_all(api: &ApiResource) -> bool {
    kinds::find(&api.kind)
        .is_some_and(|kind| kind.selector.is_empty() && kind.api_version() == api.api_version)
}

/// The object without the fields that the server sets.
fn new(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !OF_THE_SERVER.contains(&key.as_str()));
    }
    object
}

/// The object without its status and the fields that the server sets.
fn without_status(object: &Value) -> Value {
    let mut object = new(object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// Parts of an object that are neither its status nor set by the server, without empty fields.
fn content(object: &Value) -> Value {
    let mut object = without_status(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !is_empty(value));
    }
    object
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The wanted object, on the version that it was read in, else on the last one that was seen.
fn on_version_of(wanted: &Value, known: &Value) -> Value {
    let mut body = wanted.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        fill(metadata, known, "resourceVersion");
        fill(metadata, known, "uid");
    }
    body
}

fn fill(metadata: &mut Map<String, Value>, known: &Value, key: &str) {
    let is_set = metadata.get(key).is_some_and(|value| !is_empty(value));
    if !is_set && let Some(value) = known.get("metadata").and_then(|known| known.get(key)) {
        metadata.insert(key.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_sets_is_no_change() {
        let wanted = json!({"metadata": {"name": "a", "annotations": {}}, "spec": {"x": 1}});
        let known = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "3", "generation": 1},
            "spec": {"x": 1}, "status": {"phase": "Succeeded"},
        });
        assert_eq!(content(&wanted), content(&known));
        let other = json!({"metadata": {"name": "a", "labels": {"l": ""}}, "spec": {"x": 1}});
        assert_ne!(content(&other), content(&known));
    }

    #[test]
    fn only_a_watch_of_all_objects_replaces_a_read() {
        assert!(shows_all(&kinds::OPERATOR.api()));
        assert!(shows_all(&kinds::CLUSTER_ROLE.api()));
        assert!(!shows_all(&kinds::SECRET.api()));
        assert!(!shows_all(&kinds::CSV.api()));
        let mut other = kinds::OPERATOR.api();
        other.api_version = "other.example/v1".to_owned();
        assert!(!shows_all(&other));
        other.kind = "Widget".to_owned();
        assert!(!shows_all(&other));
    }

    #[test]
    fn a_replacement_insists_on_the_version_that_was_read() {
        let known = json!({"metadata": {"resourceVersion": "3", "uid": "u"}});
        let read = json!({"metadata": {"resourceVersion": "2"}});
        assert_eq!(on_version_of(&read, &known)["metadata"]["resourceVersion"], "2");
        let fresh = on_version_of(&json!({"metadata": {}}), &known);
        assert_eq!(fresh["metadata"], json!({"resourceVersion": "3", "uid": "u"}));
    }
}
