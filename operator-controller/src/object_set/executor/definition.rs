//! The kinds that a live CRD serves.

use kube::core::ApiResource;
use olm_api::object::{list, text};
use olm_cluster::discover::{Resource, Scope};
use olm_rollout::object::ObjectId;
use serde_json::Value;

use super::goal::Goal;

/// The kind of an object as a live CRD serves it; `None` if it does not. Any served version can be used to delete an
/// object.
pub(super) fn serves(live: &Value, id: &ObjectId, goal: Goal) -> Option<Resource> {
    let text = |pointer: &str| text(live, pointer);
    let list = |pointer: &str| list(live, pointer).iter();
    let field = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let established = list("/status/conditions").any(|condition| {
        field(condition, "type").as_deref() == Some("Established")
            && field(condition, "status").as_deref() == Some("True")
    });
    if !established || text("/spec/group") != id.group || text("/status/acceptedNames/kind") != id.kind {
        return None;
    }
    let served: Vec<String> = list("/spec/versions")
        .filter(|version| version.get("served").and_then(Value::as_bool) == Some(true))
        .filter_map(|version| field(version, "name"))
        .collect();
    let version = if served.contains(&id.version) {
        id.version.clone()
    } else if goal == Goal::Remove {
        served.into_iter().next()?
    } else {
        return None;
    };
    Some(Resource {
        api: ApiResource {
            api_version: format!("{}/{version}", id.group),
            group: id.group.clone(),
            version,
            kind: id.kind.clone(),
            plural: text("/status/acceptedNames/plural").to_owned(),
        },
        scope: match text("/spec/scope") {
            "Cluster" => Scope::Cluster,
            _ => Scope::Namespaced,
        },
        watchable: true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_served_as_its_established_definition_says() {
        let live = |established: &str, kind: &str| {
            json!({
                "spec": {"group": "x.io", "scope": "Namespaced", "versions": [
                    {"name": "v1", "served": false}, {"name": "v2", "served": true}, {"name": "v3", "served": true},
                ]},
                "status": {
                    "acceptedNames": {"kind": kind, "plural": "foos"},
                    "conditions": [{"type": "Established", "status": established}],
                },
            })
        };
        for (live, version, goal, expected) in [
            (
                live("True", "Foo"),
                "v3",
                Goal::Keep,
                Some("/apis/x.io/v3/namespaces/n/foos"),
            ),
            (live("True", "Foo"), "v1", Goal::Keep, None),
            (
                live("True", "Foo"),
                "v1",
                Goal::Remove,
                Some("/apis/x.io/v2/namespaces/n/foos"),
            ),
            (
                live("True", "Foo"),
                "v3",
                Goal::Remove,
                Some("/apis/x.io/v3/namespaces/n/foos"),
            ),
            (live("False", "Foo"), "v3", Goal::Remove, None),
            (live("True", "Bar"), "v3", Goal::Remove, None),
            (json!({}), "v3", Goal::Remove, None),
        ] {
            let id = ObjectId {
                group: "x.io".to_owned(),
                version: version.to_owned(),
                kind: "Foo".to_owned(),
                ..ObjectId::default()
            };
            let path = serves(&live, &id, goal).map(|resource| resource.path("n"));
            assert_eq!(path.as_deref(), expected, "{version} {goal:?}");
        }
    }
}
