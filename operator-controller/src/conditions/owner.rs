//! The owners of the records of OperatorConditions.

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use olm_api::ClusterExtension;
use olm_api::names::{CLUSTER_EXTENSION, label, operator_condition};

/// Whether the extension owns the object. A name or label proves nothing, because any user can write them.
pub(super) fn is_of(metadata: &ObjectMeta, extension: &ClusterExtension) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| Some(&owner.uid) == extension.metadata.uid.as_ref())
}

/// Whether an object with all labels of the extension has no owner: an earlier extension of the same name left it, or
/// it was restored from a backup. Any user can write the labels, so its content counts too.
pub(super) fn was_of(metadata: &ObjectMeta, extension: &ClusterExtension) -> bool {
    let label = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
    metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
        && label(label::OWNER_KIND) == Some(CLUSTER_EXTENSION)
        && label(label::OWNER_NAME) == Some(extension.name())
        && label(label::MANAGED_BY) == Some(label::MANAGED_BY_OLM)
}

/// Whether a Role belongs to the extension, or did and covers only named OperatorConditions.
pub(super) fn has_made_role(role: &Role, extension: &ClusterExtension) -> bool {
    let is_plain = |rule: &PolicyRule| {
        let groups = rule.api_groups.as_deref().unwrap_or_default();
        let names = rule.resource_names.as_deref().unwrap_or_default();
        groups == [operator_condition::GROUP] && !names.is_empty()
    };
    is_of(&role.metadata, extension)
        || (was_of(&role.metadata, extension) && role.rules.iter().flatten().all(is_plain))
}

/// Whether a RoleBinding belongs to the extension, or did and binds the Role of its name.
pub(super) fn has_made_binding(binding: &RoleBinding, extension: &ClusterExtension) -> bool {
    let role = &binding.role_ref;
    is_of(&binding.metadata, extension)
        || (was_of(&binding.metadata, extension)
            && role.kind == "Role"
            && Some(&role.name) == binding.metadata.name.as_ref())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::super::records::role_and_binding;
    use super::*;

    #[test]
    fn roles_that_lost_their_owner_are_known_by_their_content() {
        let mut extension =
            ClusterExtension::new("e", olm_api::cluster_extension::ClusterExtensionSpec::default());
        extension.metadata.uid = Some("2".to_owned());
        let names = BTreeSet::from(["op.v1".to_owned()]);
        let (role, binding) = role_and_binding(&extension, &names, &names);
        let check = |change: &dyn Fn(&mut Value), expected: [bool; 2]| {
            let changed = [&role, &binding].map(|object| {
                let mut object = object.clone();
                object["metadata"]["ownerReferences"] = json!([]);
                change(&mut object);
                object
            });
            let [role, binding] = changed;
            let (role, binding) = (
                serde_json::from_value(role).unwrap(),
                serde_json::from_value(binding).unwrap(),
            );
            assert_eq!(
                [
                    has_made_role(&role, &extension),
                    has_made_binding(&binding, &extension)
                ],
                expected
            );
        };
        check(&|_| {}, [true, true]);
        check(
            &|object| object["metadata"]["labels"][label::OWNER_NAME] = json!("other"),
            [false, false],
        );
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1"}]);
        check(
            &|object| object["metadata"]["ownerReferences"] = owner.clone(),
            [false, false],
        );
        check(
            &|object| {
                if object["kind"] == "Role" {
                    object["rules"][0]["apiGroups"] = json!([""]);
                } else {
                    object["roleRef"]["name"] = json!("admin");
                }
            },
            [false, false],
        );
    }
}
