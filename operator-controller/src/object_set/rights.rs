//! The rights that a revision needs, whether its account has them, and the watches of its objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use olm_cluster::{
    discover::Scope,
    identity::AccountName,
    rights::{absent, discovered, lacking},
    watch::{Coverage, Freshness, Need},
};
use olm_preflight::permissions::{self, Account, Environment, Missing, needed, roles};
use olm_rollout::{content::RevisionContent, object::ObjectId, outline::Outline};
use serde_json::{Value, json};

use super::{acting::Actor, context::Context};

/// The most bytes of roles in a condition. Larger ones are left out.
const MAX_ROLES: usize = 12_288;
/// The consequence of rights that are missing before anything is written.
pub(crate) const NOTHING_IS_APPLIED: &str = "nothing is applied";
/// The verbs that are needed to delete or release objects.
const REMOVAL: [&str; 3] = ["get", "patch", "delete"];

/// A message with all rights that the account lacks to apply and delete the objects, and the roles that grant them;
/// `None` if it lacks none. Without the bodies, which are dropped once a revision is complete, the rules of roles are
/// not checked.
///
/// # Errors
/// The server could not be asked.
pub(super) async fn missing(
    context: &Context,
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
    Ok((!missing.is_empty()).then(|| {
        explain(
            &missing,
            outline.owner.extension_name(),
            account,
            NOTHING_IS_APPLIED,
        )
    }))
}

/// A message with all rights that the account lacks to delete the objects; `None` also if the server did not answer.
pub(super) async fn missing_for_removal(
    context: &Context,
    actor: &Actor,
    outline: &Outline,
) -> Option<String> {
    let Actor { account, client } = actor;
    let skeletons: Vec<Value> = ids(outline).map(skeleton).collect();
    let objects: Vec<&Value> = skeletons.iter().collect();
    let asked = lacking(&context.discovery, &context.reviews, account, client, &objects).await;
    let missing = asked.ok()?.limited_to(&REMOVAL);
    let consequence = "nothing more is removed";
    (!missing.is_empty()).then(|| explain(&missing, outline.owner.extension_name(), account, consequence))
}

/// Roles with the rights that an account which no longer exists needs to delete the objects with these identities. Its
/// present rights cannot be reviewed. `None` if no right is needed, or the kinds are unknown.
pub(super) async fn needed_for_removal(
    context: &Context,
    account: &AccountName,
    extension: &str,
    ids: &[ObjectId],
) -> Option<String> {
    let skeletons: Vec<Value> = ids.iter().map(skeleton).collect();
    let objects: Vec<&Value> = skeletons.iter().collect();
    let discovery = discovered(&context.discovery, &objects).await.ok()?;
    let facts = Environment {
        discovery: &discovery,
        watched: &BTreeSet::new(),
        roles: &[],
        namespace: "",
    };
    let needed = needed(&absent(objects.iter().copied()), &facts).missing(&permissions::AccountRights::new());
    let needed = needed.limited_to(&REMOVAL);
    let (roles, scope) = bounded_roles(&needed, extension, account)?;
    (!needed.is_empty()).then(|| {
        let of = match scope {
            RoleGranularity::Each => "",
            RoleGranularity::Kinds => " (for all objects of the kinds, since these are too many to be named)",
        };
        format!(
            "Service account {account} needs rights to remove the objects{of}. If its roles and bindings are gone, too, apply \
             with it:\n{roles}"
        )
    })
}

/// The missing rights, the consequence, and the roles that grant them.
pub(crate) fn explain(
    missing: &Missing,
    extension: &str,
    account: &AccountName,
    consequence: &str,
) -> String {
    let text = format!("{}; {consequence}", missing.text(asking(account)));
    match bounded_roles(missing, extension, account) {
        Some((roles, RoleGranularity::Each)) => {
            format!("{text}. To give these rights to the account, apply:\n{roles}")
        }
        Some((roles, RoleGranularity::Kinds)) => format!(
            "{text}. The objects are too many to be named. To give these rights to the account for all objects of the kinds, \
             apply:\n{roles}"
        ),
        None => format!("{text}. `olm rbac {extension}` prints the roles that give these rights"),
    }
}

/// The granularity of roles.
enum RoleGranularity {
    /// A rule for each object.
    Each,
    /// A rule for each kind.
    Kinds,
}

/// Roles that fit into a condition. If those with names do not, they are for all objects of the kinds.
fn bounded_roles(
    missing: &Missing,
    extension: &str,
    account: &AccountName,
) -> Option<(String, RoleGranularity)> {
    let each = roles(missing, extension, asking(account));
    if each.len() <= MAX_ROLES {
        return Some((each, RoleGranularity::Each));
    }
    let kinds = roles(&missing.clone().for_all_objects(), extension, asking(account));
    (kinds.len() <= MAX_ROLES).then_some((kinds, RoleGranularity::Kinds))
}

/// The account in the form of the checks.
fn asking(account: &AccountName) -> Account<'_> {
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

    fn lacked(objects: &[Value]) -> Missing {
        let planned = absent(objects);
        let resource = permissions::Resource {
            plural: "configmaps".to_owned(),
            scope: permissions::Scope::Namespaced,
        };
        let discovery = permissions::Discovery::from([((String::new(), "ConfigMap".to_owned()), resource)]);
        let facts = Environment {
            discovery: &discovery,
            watched: &BTreeSet::new(),
            roles: &[],
            namespace: "",
        };
        needed(&planned, &facts).missing(&permissions::AccountRights::new())
    }

    fn map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "apps"}})
    }

    #[test]
    fn missing_rights_come_with_a_role_that_never_replaces_an_earlier_one() {
        let account: AccountName = "n/a".parse().unwrap();
        let one = explain(&lacked(&[map("x")]), "ext", &account, NOTHING_IS_APPLIED);
        assert!(
            one.starts_with("service account n/a lacks permissions: ")
                && one.contains("; nothing is applied. "),
            "{one}"
        );
        assert!(
            one.contains("kind: RoleBinding")
                && one.contains("namespace: apps")
                && one.matches("olm.operatorframework.io/rights-of: ext\n").count() == 2,
            "{one}"
        );
        let name = |text: &str| {
            let at = text.find("ext-needs-").unwrap();
            text[at..at + 18].to_owned()
        };
        let two = explain(&lacked(&[map("y")]), "ext", &account, NOTHING_IS_APPLIED);
        assert_ne!(name(&one), name(&two));
    }

    #[test]
    fn a_role_that_is_too_large_is_for_all_objects_of_a_kind_or_left_out() {
        let account: AccountName = "n/a".parse().unwrap();
        let many: Vec<Value> = (0..2000).map(|number| map(&format!("map-{number}"))).collect();
        let text = explain(&lacked(&many), "ext", &account, NOTHING_IS_APPLIED);
        let (_, roles) = text.split_once("for all objects of the kinds, apply:\n").unwrap();
        assert!(roles.contains("kind: Role\n") && !roles.contains("resourceNames") && text.len() < MAX_ROLES);
        let elsewhere = |number: usize| {
            let mut object = map("x");
            object["metadata"]["namespace"] = format!("namespace-{number}").into();
            object
        };
        let many: Vec<Value> = (0..200).map(elsewhere).collect();
        let text = explain(&lacked(&many), "ext", &account, NOTHING_IS_APPLIED);
        assert!(!text.contains("kind: Role") && text.len() < MAX_ROLES, "{text}");
    }

    #[test]
    fn a_removal_needs_no_more_than_to_find_the_objects_and_take_them_away() {
        let missing = lacked(&[map("x")]).limited_to(&REMOVAL);
        let verbs: Vec<_> = missing
            .rules()
            .flat_map(|(_, rules)| rules)
            .map(|rule| rule.verbs.clone())
            .collect();
        assert_eq!(verbs, [["delete", "get", "patch"]]);
        assert!(lacked(&[map("x")]).limited_to(&["list"]).is_empty());
    }
}
