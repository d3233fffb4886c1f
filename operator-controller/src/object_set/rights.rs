//! What an account needs for a revision, and whether it has it; who watches its objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use futures::future;
use kube::Client;
use olm_preflight::permissions::{self, Account, Facts, Missing, Planned, Presence, needed};
use serde_json::{Value, json};

use super::{
    acting::Actor,
    content::Content,
    controller::Context,
    engine::{ObjectId, Outline},
};
use crate::cluster::{
    apply::Target,
    discover::{Discovery, Scope},
    identity::AccountName,
    permissions::{Reviews, Viewer},
    watch::{Coverage, Need},
};

/// The API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// A message that names every right which the account lacks for applying and removing the objects; `None` when it lacks
/// nothing. Without the bodies, which are dropped once a revision is complete, what roles grant is not looked at.
///
/// # Errors
/// The server could not be asked.
pub(super) async fn missing(
    context: &Context,
    actor: &Actor,
    outline: &Outline,
    bodies: Option<&Content>,
) -> Result<Option<String>, kube::Error> {
    let Actor { account, client } = actor;
    let skeletons: Vec<Value> = match bodies {
        Some(_) => Vec::new(),
        None => ids(outline).map(skeleton).collect(),
    };
    let objects: Vec<&Value> = match bodies {
        Some(bodies) => bodies
            .phases
            .iter()
            .flat_map(|p| &p.objects)
            .map(|o| &o.object)
            .collect(),
        None => skeletons.iter().collect(),
    };
    let missing = lacking(&context.discovery, &context.reviews, account, client, &objects).await?;
    Ok((!missing.is_empty()).then(|| nothing_is_applied(&missing, account)))
}

/// What is said of missing rights.
pub fn nothing_is_applied(missing: &Missing, account: &AccountName) -> String {
    format!("{}; nothing is applied", missing.text(asking(account)))
}

/// The account as the checks name it.
pub fn asking(account: &AccountName) -> Account<'_> {
    Account {
        namespace: &account.namespace,
        name: &account.name,
    }
}

/// What the account, as which the client acts, lacks for applying and removing the objects.
///
/// # Errors
/// The server could not be asked.
pub async fn lacking(
    discovery: &Discovery,
    reviews: &Reviews,
    account: &AccountName,
    client: &Client,
    objects: &[&Value],
) -> Result<Missing, kube::Error> {
    let discovered = discovered(discovery, objects).await?;
    let viewer = Viewer::Account(account.clone());
    let mut roles = Vec::new();
    // Roles that are bound but not brought matter only where the account may not bind whatever it likes.
    loop {
        let planned: Vec<Planned<'_>> = objects
            .iter()
            .map(|object| Planned {
                object,
                presence: Presence::Absent,
            })
            .collect();
        let facts = Facts {
            discovery: &discovered,
            watched: &BTreeSet::new(),
            roles: &roles,
            namespace: "",
        };
        let missing = reviews
            .missing(client, &viewer, &needed(&planned, &facts))
            .await?;
        if missing.is_empty() {
            return Ok(missing);
        }
        if roles.is_empty() {
            roles = bound_roles(discovery, client, objects).await;
        } else {
            roles.clear();
        }
        if roles.is_empty() {
            return Ok(missing);
        }
    }
}

fn ids(outline: &Outline) -> impl Iterator<Item = &ObjectId> {
    outline
        .phases
        .iter()
        .flat_map(|phase| &phase.objects)
        .map(|object| &object.id)
}

fn skeleton(id: &ObjectId) -> Value {
    let mut object = json!({"apiVersion": id.api_version(), "kind": id.kind, "metadata": {"name": id.name}});
    if !id.namespace.is_empty()
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), id.namespace.clone().into());
    }
    object
}

async fn discovered(
    discovery: &Discovery,
    objects: &[&Value],
) -> Result<permissions::Discovery, kube::Error> {
    let mut found = permissions::Discovery::new();
    let kinds: BTreeSet<_> = objects
        .iter()
        .map(|object| ObjectId::of(object))
        .map(|id| (id.group, id.version, id.kind))
        .collect();
    let asked = Instant::now();
    for (group, version, kind) in kinds {
        let key = (group.clone(), kind.clone());
        if found.contains_key(&key) {
            continue;
        }
        if let Some(resource) = discovery.find_since(&group, &version, &kind, asked).await? {
            let scope = match resource.scope {
                Scope::Cluster => permissions::Scope::Cluster,
                Scope::Namespaced => permissions::Scope::Namespaced,
            };
            let plural = resource.api.plural.clone();
            found.insert(key, permissions::Resource { plural, scope });
        }
    }
    Ok(found)
}

/// The roles on the cluster that bindings among the objects refer to, as far as the account may read them.
async fn bound_roles(discovery: &Discovery, client: &Client, objects: &[&Value]) -> Vec<Value> {
    let text = |object: &Value, pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let wanted: BTreeSet<(String, String, String)> = objects
        .iter()
        .filter(|object| text(object, "/roleRef/apiGroup") == RBAC)
        .map(|object| {
            let kind = text(object, "/roleRef/kind");
            let namespace = if kind == "Role" {
                text(object, "/metadata/namespace")
            } else {
                String::new()
            };
            (kind, namespace, text(object, "/roleRef/name"))
        })
        .collect();
    let read = wanted.iter().map(|(kind, namespace, name)| async move {
        let resource = discovery.find(RBAC, "v1", kind).await.ok()??;
        let target = Target {
            client,
            resource: &resource,
            namespace,
            name,
        };
        target.read().await.ok()?
    });
    future::join_all(read).await.into_iter().flatten().collect()
}

/// Has the objects of a revision watched; without an account, those only that the controller may watch by itself.
///
/// # Errors
/// The server could not be asked who may watch.
pub(super) async fn watch(
    context: &Context,
    set: &str,
    actor: Option<&Actor>,
    outline: &Outline,
) -> Result<Coverage, kube::Error> {
    let mut needs: BTreeMap<(&str, &str, &str), Need> = BTreeMap::new();
    let asked = Instant::now();
    for id in ids(outline) {
        let key = (id.group.as_str(), id.version.as_str(), id.kind.as_str());
        let found = context.discovery.find_since(key.0, key.1, key.2, asked).await?;
        let Some(resource) = found else {
            continue;
        };
        let namespaced = resource.scope == Scope::Namespaced;
        let need = needs.entry(key).or_insert_with(|| Need {
            resource: Arc::clone(&resource),
            namespaces: BTreeSet::new(),
        });
        need.namespaces.insert(if namespaced {
            id.namespace.clone()
        } else {
            String::new()
        });
    }
    let needs: Vec<Need> = needs.into_values().collect();
    let account = actor.map(|actor| (&actor.account, &actor.client));
    context.watches.want(set, &needs, account).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skeleton_has_the_identity_of_the_object() {
        for namespace in ["", "n"] {
            let id = ObjectId {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: namespace.to_owned(),
                name: "x".to_owned(),
            };
            assert_eq!(ObjectId::of(&skeleton(&id)), id);
        }
    }
}
