//! The rights that a revision needs, whether its account has them, and the watches of its objects.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use olm_api::command;
use olm_cluster::{
    discover::Scope,
    identity::AccountName,
    rights::lacking,
    watch::{Coverage, Freshness, Need},
};
use olm_preflight::permissions::{Account, Missing};
use olm_rollout::{content::RevisionContent, object::ObjectId, outline::Outline};
use serde_json::{Value, json};

use super::{acting::Actor, context::Context};

/// The consequence of rights that are missing before anything is written.
pub(crate) const NOTHING_IS_APPLIED: &str = "nothing is applied";

/// A message with the rights that the account lacks to apply and delete the objects, and the command that prints the
/// roles; `None` if it lacks none. Without the bodies, which are dropped once a revision is complete, the rules of
/// roles are not checked.
///
/// # Errors
/// The server could not be asked.
pub(super) async fn missing(
    context: &Context,
    set: &str,
    actor: &Actor,
    outline: &Outline,
    bodies: Option<&RevisionContent>,
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
    Ok(message(context, set, account, &missing, NOTHING_IS_APPLIED))
}

/// A message with the rights that the account lacks to delete the objects, and the command that prints the roles;
/// `None` also if the server did not answer.
pub(super) async fn missing_for_removal(
    context: &Context,
    set: &str,
    actor: &Actor,
    outline: &Outline,
) -> Option<String> {
    let Actor { account, client } = actor;
    let skeletons: Vec<Value> = ids(outline).map(skeleton).collect();
    let objects: Vec<&Value> = skeletons.iter().collect();
    let asked = lacking(&context.discovery, &context.reviews, account, client, &objects).await;
    let missing = asked.ok()?.for_removal();
    message(context, set, account, &missing, "nothing more is removed")
}

fn message(
    context: &Context,
    set: &str,
    account: &AccountName,
    missing: &Missing,
    consequence: &str,
) -> Option<String> {
    (!missing.is_empty()).then(|| {
        let explained = explain(missing, account, consequence);
        format!("{explained}\n{}", remedy(&roles_command(context, set, account)))
    })
}

/// The message about an account that no longer exists. The rights that it had cannot be known.
pub(super) fn needed_for_removal(context: &Context, account: &AccountName, set: &str) -> String {
    let roles = roles_command(context, set, account);
    format!(
        "Create service account {account} again: OLM removes the objects with its rights. If its roles are gone, too, \
         `{roles}` prints the roles to apply."
    )
}

/// The first missing rights, the number of the others, and the consequence.
pub(crate) fn explain(missing: &Missing, account: &AccountName, consequence: &str) -> String {
    format!("{}; {consequence}", missing.text(account_of_checks(account)))
}

/// The command that prints the roles which the account lacks for the objects of a set.
fn roles_command(context: &Context, set: &str, account: &AccountName) -> String {
    let default = context
        .options
        .default_account
        .as_ref()
        .filter(|default| *default == account);
    let default = default.map(ToString::to_string);
    command::rbac_of_set(set, &context.options.system_namespace, default.as_deref())
}

/// The line about the command that prints roles.
pub(crate) fn remedy(command: &str) -> String {
    format!("`{command}` prints the roles to apply.")
}

/// The account in the form of the checks.
fn account_of_checks(account: &AccountName) -> Account<'_> {
    Account {
        namespace: &account.namespace,
        name: &account.name,
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

/// Watches the objects of a revision. Without an account, only those that the controller itself may watch.
///
/// # Errors
/// The access review for the watch failed.
pub(super) async fn watch(
    context: &Context,
    set: &str,
    actor: Option<&Actor>,
    outline: &Outline,
    freshness: Freshness,
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
            namespaces: BTreeMap::new(),
        });
        let namespace = if namespaced { id.namespace.as_str() } else { "" };
        *need.namespaces.entry(namespace.to_owned()).or_default() += 1;
    }
    let needs: Vec<Need> = needs.into_values().collect();
    let account = actor.map(|actor| (&actor.account, &actor.client));
    context.watches.want(set, &needs, account, freshness).await
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
