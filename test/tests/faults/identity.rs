//! The users of writes: the account of the extension for bundle content, the manager for our own records.

use olm_api::names::{GROUP, SYSTEM_NAMESPACE, operator_condition};
use olm_test::faults::Call;

/// The user of a manager.
fn manager(program: &str) -> String {
    format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{program}-controller-manager")
}

/// Whether the manager itself may write there: its own API, its own namespace, and the objects for an operator's
/// conditions.
fn is_own_record(call: &Call) -> bool {
    let place = &call.place;
    let is_definition =
        place.resource == "customresourcedefinitions" && call.is_about(operator_condition::GROUP);
    let binds_operator = place.group == "rbac.authorization.k8s.io"
        && ["roles", "rolebindings"].contains(&place.resource.as_str())
        && (place.name.starts_with("olm-operator-condition-") || place.name.is_empty());
    place.group == GROUP
        || place.namespace == SYSTEM_NAMESPACE
        || place.group == operator_condition::GROUP
        || is_definition
        || binds_operator
}

/// The calls about an extension that its account, or the manager, should not have made. Dry runs count, too.
pub(crate) fn strangers(calls: &[Call], extension: &str) -> Vec<String> {
    let own = [manager("operator-controller"), manager("catalogd")];
    let account = format!("system:serviceaccount:{extension}:{extension}-installer");
    let is_wrong = |call: &&Call| {
        if own.contains(&call.user) {
            !is_own_record(call)
        } else {
            call.user != account || call.place.group == GROUP || call.place.namespace == SYSTEM_NAMESPACE
        }
    };
    let wrong = calls.iter().filter(is_wrong);
    wrong
        .map(|call| format!("not as this user: {}", call.line()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use http::Method;
    use olm_test::faults::Place;

    use super::*;

    #[test]
    fn content_is_written_by_the_account_and_records_by_the_manager() {
        let path = |path: &str| format!("/apis/{path}");
        let record = path("olm.operatorframework.io/v1/clusterobjectsets/x-1");
        let content = path("apps/v1/namespaces/x/deployments/x-operator");
        let role = path("rbac.authorization.k8s.io/v1/clusterroles/x");
        let (own, account) = (
            manager("operator-controller"),
            "system:serviceaccount:x:x-installer".to_owned(),
        );
        let other = "system:serviceaccount:y:y-installer".to_owned();
        for (user, path, is_right) in [
            (&own, &record, true),
            (&own, &content, false),
            (&own, &role, false),
            (&account, &content, true),
            (&account, &role, true),
            (&account, &record, false),
            (&other, &content, false),
            (&String::new(), &content, false),
        ] {
            let call = Call {
                at: Instant::now(),
                method: Method::PATCH,
                path: path.clone(),
                place: Place::of(path).unwrap(),
                user: user.clone(),
                dry_run: false,
                number: None,
                code: Some(200),
                body: Vec::new(),
            };
            assert_eq!(strangers(&[call], "x").is_empty(), is_right, "{user} {path}");
        }
    }
}
