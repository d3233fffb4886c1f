//! CRDs that lose versions in which objects may still be stored, and whether the account may migrate these objects.

use std::collections::BTreeSet;

use olm_api::cluster_object_set::CollisionProtection;
use olm_api::object::list;
use olm_preflight::crd_upgrade::migration::{Migration, Rewrite, migration};
use olm_preflight::permissions::{Missing, Right};
use serde_json::Value;

use super::access::{PreflightAccess, PreflightError};
use crate::object_set::rights::{NOTHING_IS_APPLIED, explain, remedy};

/// The CRDs (name, live) that lose stored versions, and how to migrate them.
pub(crate) fn rewrites<'a>(pairs: &[(&'a str, &'a Value, &Value)]) -> Vec<(&'a str, &'a Value, Rewrite)> {
    let possible = |(name, old, new): &(&'a str, &'a Value, &Value)| match migration(old, new) {
        Migration::Possible(rewrite) => Some((*name, *old, rewrite)),
        Migration::Needless | Migration::Impossible { .. } => None,
    };
    pairs.iter().filter_map(possible).collect()
}

/// Checks that the account may remove stored versions. The command `roles` prints the missing roles.
pub(crate) async fn may_migrate(
    access: &PreflightAccess<'_>,
    roles: &str,
    rewrites: &[(&str, &Value, Rewrite)],
) -> Result<(), PreflightError> {
    let (mut missing, mut stored) = (BTreeSet::new(), Vec::new());
    for (name, _, rewrite) in rewrites {
        let lacking = lacking(access, rewrite).await;
        let lacking = lacking.map_err(|source| PreflightError::Ask {
            account: access.account.clone(),
            source,
        })?;
        if !lacking.is_empty() {
            let gone = rewrite.gone.join(", ");
            stored.push(format!("objects of CRD {name:?} may still be stored as {gone}"));
            missing.extend(lacking);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let needed = explain(&Missing::new(missing), access.account, NOTHING_IS_APPLIED);
    Err(PreflightError::Rights {
        missing: format!(
            "{}, which the new definition lacks: they must be migrated; {needed}",
            stored.join(", ")
        ),
        help: remedy(roles),
    })
}

/// The rights that the account lacks to write the objects and clean the list.
async fn lacking(access: &PreflightAccess<'_>, rewrite: &Rewrite) -> Result<BTreeSet<Right>, kube::Error> {
    let mut missing: BTreeSet<Right> = BTreeSet::new();
    for needed in rewrite.rights() {
        if !access.may(&needed).await? {
            missing.insert(needed);
        }
    }
    Ok(missing)
}

/// Whether a CRD belongs to another owner than the extension and its revisions, given by UID, and may not be taken
/// over.
pub(crate) fn is_foreign(definition: &Value, ours: &[&str], adopt: CollisionProtection) -> bool {
    let owners = list(definition, "/metadata/ownerReferences");
    let is_ours = |owner: &Value| {
        let uid = owner.get("uid").and_then(Value::as_str);
        uid.is_some_and(|uid| ours.contains(&uid))
    };
    let controller = owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    match (controller, adopt) {
        (_, CollisionProtection::None) | (None, CollisionProtection::IfNoController) => false,
        (Some(controller), _) => !is_ours(controller),
        (None, CollisionProtection::Prevent) => !owners.iter().any(is_ours),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_of_others_are_not_migrated_unless_they_may_be_taken_over() {
        use CollisionProtection::{IfNoController, None as Never, Prevent};
        let owner = |uid: &str, controller: bool| json!([{"uid": uid, "controller": controller}]);
        for (owners, [prevent, if_no_controller]) in [
            (owner("set", true), [false, false]),
            (owner("extension", true), [false, false]),
            (owner("set", false), [false, false]),
            (owner("stranger", true), [true, true]),
            (owner("stranger", false), [true, false]),
            (Value::Null, [true, false]),
        ] {
            let definition = json!({"metadata": {"ownerReferences": owners}});
            for (adopt, expected) in [
                (Prevent, prevent),
                (IfNoController, if_no_controller),
                (Never, false),
            ] {
                let found = is_foreign(&definition, &["extension", "set"], adopt);
                assert_eq!(found, expected, "{owners} {adopt:?}");
            }
        }
    }
}
