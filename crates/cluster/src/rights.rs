//! The rights that an account needs on this cluster to apply and remove objects, and those that it lacks.

use std::collections::BTreeSet;
use std::time::Instant;

use futures::future;
use kube::Client;
use olm_preflight::permissions::{self, Environment, Missing, Planned, Presence, RequiredRights, needed};
use olm_rollout::object::ObjectId;
use serde_json::Value;

use crate::apply::Target;
use crate::discover::{Discovery, Scope};
use crate::identity::AccountName;
use crate::permissions::{Reviews, Viewer};

/// The API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The rights that the account of the client lacks to apply and remove the objects.
///
/// # Errors
/// The server did not answer.
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
    // Roles that are bound but not among the objects matter only if the account may not bind every role.
    loop {
        let needs = needs(&discovered, &roles, objects);
        let missing = reviews.missing(client, &viewer, &needs).await?;
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

/// The rights that an account needs to apply and remove the objects. The client reads the roles to which they bind.
///
/// # Errors
/// The server did not answer.
pub async fn needed_here(
    discovery: &Discovery,
    client: &Client,
    objects: &[&Value],
) -> Result<RequiredRights, kube::Error> {
    let discovered = discovered(discovery, objects).await?;
    let roles = bound_roles(discovery, client, objects).await;
    Ok(needs(&discovered, &roles, objects))
}

fn needs(discovered: &permissions::Discovery, roles: &[Value], objects: &[&Value]) -> RequiredRights {
    let facts = Environment {
        discovery: discovered,
        watched: &BTreeSet::new(),
        roles,
        namespace: "",
    };
    needed(&absent(objects.iter().copied()), &facts)
}

/// The objects as if none existed.
pub fn absent<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Vec<Planned<'a>> {
    let planned = objects.into_iter().map(|object| Planned {
        object,
        presence: Presence::Absent,
    });
    planned.collect()
}

/// The resources of the objects' kinds.
///
/// # Errors
/// The server did not answer.
pub async fn discovered(
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

/// The roles on the cluster to which bindings among the objects refer, if the account may read them.
async fn bound_roles(discovery: &Discovery, client: &Client, objects: &[&Value]) -> Vec<Value> {
    let text = |object: &Value, pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
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
