//! The objects that a deletion removes and keeps.

use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::names;
use serde_json::{Value, json};

use crate::world::{eventually, everything, in_place};

#[test]
fn removal_waits_for_the_account_and_continues_when_it_is_back() {
    in_place(everything(), async |place| {
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        let installer = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": place.name}});
        place.delete(&installer).await;
        place.remove(&name).await;
        let message = format!(
            "cannot remove the objects of this revision: service account {0}/installer does not exist: \
             create it by `kubectl create serviceaccount installer -n {0}`; 1 object may be left: ConfigMap.v1 {0}/one",
            place.name
        );
        // A token of the deleted account may be good for a moment yet.
        let stuck = async || {
            let Some(set) = place.world.sets().get_opt(&name).await.unwrap() else {
                return true;
            };
            set.conditions().iter().any(|c| c.message.contains(&message))
        };
        eventually("it names the missing account", stuck).await;
        place.account().await;
        place.until_gone(&name).await;
        assert_eq!(place.left().await, Vec::<String>::new());
    });
}

#[test]
fn orphaned_objects_stay() {
    in_place(everything(), async |place| {
        // The policy is set before the deletion: Kubernetes itself orphans the objects, whatever the state of the
        // account.
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.annotate(&name, names::user::UNINSTALL, "orphan").await;
        eventually("the finalizer is there", async || {
            let set = place.world.sets().get(&name).await.unwrap();
            set.metadata
                .finalizers
                .iter()
                .flatten()
                .any(|finalizer| finalizer == "orphan")
        })
        .await;
        place
            .world
            .sets()
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
        place.until_gone(&name).await;
        let live = place.live(&place.config_map("one")).await.unwrap();
        assert_eq!(live["metadata"]["ownerReferences"], Value::Null);

        // Said after it: the account lets them go.
        let mut set = place.set(2, &[("deploy", vec![place.config_map("two")])]);
        set["metadata"]["name"] = format!("{}-two", place.name).into();
        set["spec"]["phases"][0]["objects"][0]["object"]["metadata"]["name"] = "two".into();
        let name = place.create(&set).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.annotate(&name, names::user::PAUSED, "nonsense").await;
        place
            .until(&name, "Progressing=False/Blocked", "unknown value \"nonsense\"")
            .await;
        place.remove(&name).await;
        let patch = json!({"metadata": {"annotations": {names::user::PAUSED: null, names::user::UNINSTALL: "orphan"}}});
        place
            .world
            .sets()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        place.until_gone(&name).await;
        let live = place.live(&place.config_map("two")).await.unwrap();
        assert_eq!(live["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(live["metadata"]["labels"], Value::Null);
    });
}

#[test]
fn definitions_are_kept_when_the_user_wants_them() {
    in_place(everything(), async |place| {
        let (definition, custom) = place.custom();
        let mut set = place.set(
            1,
            &[
                ("crds", vec![definition.clone()]),
                ("deploy", vec![custom.clone(), place.config_map("one")]),
            ],
        );
        set["metadata"]["annotations"][names::user::UNINSTALL] = "keep-crds".into();
        let name = place.create(&set).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.remove(&name).await;
        place.until_gone(&name).await;
        assert_eq!(
            place.left().await,
            Vec::<String>::new(),
            "the remaining objects carry no label of ours"
        );
        for kept in [definition, custom] {
            assert_eq!(
                place.live(&kept).await.unwrap()["metadata"]["ownerReferences"],
                Value::Null
            );
        }
    });
}

#[test]
fn objects_that_outlive_their_namespace_are_released_on_request() {
    in_place(everything(), async |place| {
        let namespaced = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        let mut set = place.set(
            1,
            &[
                ("roles", vec![place.role()]),
                ("deploy", vec![place.config_map("two")]),
            ],
        );
        set["metadata"]["name"] = format!("{}-cluster", place.name).into();
        set["metadata"]["labels"]["olm.operatorframework.io/owner-name"] =
            format!("{}-cluster", place.name).into();
        let mixed = place.create(&set).await;
        for set in [&namespaced, &mixed] {
            place.until(set, "Succeeded=True/Succeeded", "").await;
        }
        // As if a user deletes one file with all objects.
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.name}});
        place.delete(&namespace).await;
        eventually("the namespace is gone", async || {
            place.live(&namespace).await.is_none()
        })
        .await;
        let missing = format!(
            "namespace {0} of service account {0}/installer does not exist",
            place.name
        );
        for set in [&namespaced, &mixed] {
            // A token is good for some seconds after its account is gone.
            place.until(set, "Progressing=True/Retrying", &missing).await;
        }
        // Nothing is left of this one, because all its objects were in the namespace.
        place.remove(&namespaced).await;
        place.until_gone(&namespaced).await;
        // The clock of these tests has passed the grace period, so the rest of the other one is abandoned at once.
        place.annotate(&mixed, names::user::UNINSTALL, "orphan").await;
        place.remove(&mixed).await;
        place.until_gone(&mixed).await;
        let live = place.live(&place.role()).await.unwrap();
        assert_eq!(live["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(live["metadata"]["deletionTimestamp"], Value::Null);
        place.delete(&place.role()).await;
    });
}

#[test]
fn removal_without_permissions_names_the_remaining_objects_and_continues_when_they_are_back() {
    in_place(everything(), async |place| {
        let name = place
            .create(&place.set(
                1,
                &[
                    ("configuration", vec![place.config_map("one")]),
                    ("deploy", vec![place.config_map("two")]),
                ],
            ))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place
            .grant(json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]))
            .await;
        place.remove(&name).await;
        let left = format!(
            "2 objects may be left: ConfigMap.v1 {0}/one, ConfigMap.v1 {0}/two",
            place.name
        );
        // The rights may be gone a moment later than the deletion begins.
        let named = async || {
            let Some(set) = place.world.sets().get_opt(&name).await.unwrap() else {
                return true;
            };
            let said = |part: &str| set.conditions().iter().any(|c| c.message.contains(part));
            let roles = "lacks permissions: delete, patch configmaps \"one\", \"two\"";
            let ready = format!(
                "; nothing more is removed\n`olm rbac clusterobjectset/{name}` prints the roles to apply."
            );
            said("is forbidden") && said(&left) && said(roles) && said(&ready)
        };
        eventually("it names the remaining objects", named).await;
        place.grant(everything()).await;
        place.until_gone(&name).await;
        assert_eq!(place.left().await, Vec::<String>::new());
    });
}

#[test]
fn a_deletion_in_the_foreground_takes_the_order_of_kubernetes_which_is_said() {
    in_place(everything(), async |place| {
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        let set = place.until(&name, "Succeeded=True/Succeeded", "").await;
        // One object blocks the deletion by Kubernetes, and one blocks ours.
        let mut other = place.config_map("other");
        other["metadata"]["ownerReferences"] = json!([{
            "apiVersion": names::API_VERSION, "kind": "ClusterObjectSet", "name": name, "uid": set.metadata.uid,
            "blockOwnerDeletion": true,
        }]);
        place.apply(other.clone()).await;
        let hold = async |object: &Value, finalizers: Value| {
            let patch = json!({"metadata": {"finalizers": finalizers}});
            let name = object["metadata"]["name"].as_str().unwrap();
            let (api, params) = (place.api(object), PatchParams::default());
            api.patch(name, &params, &Patch::Merge(&patch)).await.unwrap();
        };
        let objects = [place.config_map("one"), other];
        for object in &objects {
            hold(object, json!(["example.com/held"])).await;
        }
        place
            .world
            .sets()
            .delete(&name, &DeleteParams::foreground())
            .await
            .unwrap();
        for said in [
            "foreground deletion: Kubernetes deletes the owned objects at the same time, in its own order; ",
            "/one (held by finalizers example.com/held)",
        ] {
            place.until(&name, "Progressing=True/Removing", said).await;
        }
        for object in &objects {
            hold(object, Value::Null).await;
        }
        place.until_gone(&name).await;
    });
}

#[test]
fn a_namespace_is_gone_only_when_it_is_empty() {
    in_place(everything(), async |place| {
        let inner = format!("{}-inner", place.name);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inner}});
        let mut map = place.config_map("one");
        map["metadata"]["namespace"] = inner.clone().into();
        let set = place.set(
            1,
            &[
                ("configuration", vec![place.config_map("before")]),
                ("namespaces", vec![namespace.clone()]),
                ("deploy", vec![map]),
            ],
        );
        let name = place.create(&set).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        place.remove(&name).await;
        eventually("the object before the namespace goes", async || {
            place.live(&place.config_map("before")).await.is_none()
        })
        .await;
        assert_eq!(place.live(&namespace).await, None);
        place.until_gone(&name).await;
    });
}
