//! Objects that several sets claim, or that have no controller.

use olm_api::names;
use serde_json::{Value, json};

use crate::world::{eventually, everything, in_place};

#[test]
fn a_new_revision_takes_over_and_the_old_one_is_archived() {
    in_place(everything(), async |place| {
        let first = place.set(
            1,
            &[(
                "deploy",
                vec![
                    place.config_map("kept"),
                    place.config_map("dropped"),
                    place.deployment("operator"),
                ],
            )],
        );
        let old = place.create(&first).await;
        place.until(&old, "Succeeded=True/Succeeded", "").await;
        let before = place.live(&place.deployment("operator")).await.unwrap();

        let mut changed = place.config_map("kept");
        changed["data"] = json!({"key": "new"});
        let second = place.set(
            2,
            &[(
                "deploy",
                vec![
                    changed.clone(),
                    place.config_map("added"),
                    place.deployment("operator"),
                ],
            )],
        );
        let new = place.create(&second).await;
        place.until(&new, "Succeeded=True/Succeeded", "").await;
        let archived = place
            .until(&old, "Progressing=False/Archived", "revision is archived")
            .await;
        place
            .until(&old, "Available=Unknown/Archived", "revision is archived")
            .await;
        assert_eq!(
            serde_json::to_value(archived.spec.lifecycle_state).unwrap(),
            "Archived"
        );
        eventually("its finalizer is gone", async || {
            place
                .world
                .sets()
                .get(&old)
                .await
                .unwrap()
                .metadata
                .finalizers
                .is_none()
        })
        .await;

        assert_eq!(place.live(&changed).await.unwrap()["data"], json!({"key": "new"}));
        assert_eq!(place.live(&place.config_map("dropped")).await, None);
        let after = place.live(&place.deployment("operator")).await.unwrap();
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(after["spec"], before["spec"], "the same Pods");
        let owners = after["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(
            owners
                .iter()
                .map(|owner| owner["name"].as_str().unwrap())
                .collect::<Vec<_>>(),
            [new.as_str()]
        );

        place.remove(&old).await;
        place.until_gone(&old).await;
        assert!(place.live(&changed).await.is_some());
    });
}

#[test]
fn an_object_of_another_owner_is_neither_changed_nor_deleted() {
    in_place(everything(), async |place| {
        let first = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("shared")])]))
            .await;
        place.until(&first, "Succeeded=True/Succeeded", "").await;
        place.apply(place.config_map("by-hand")).await;

        let stranger = |name: &str| {
            let mut stranger = place.set(7, &[("deploy", vec![place.config_map(name)])]);
            stranger["metadata"]["name"] = format!("{}-stranger-{name}", place.name).into();
            stranger["metadata"]["labels"]["olm.operatorframework.io/owner-name"] = "stranger".into();
            stranger
        };
        let theirs = format!(
            "Object ConfigMap.v1 {0}/shared belongs to ClusterObjectSet {first} of ClusterExtension {0} \
             (olm.operatorframework.io/v1); it is not changed: ",
            place.name
        );
        let unowned = format!(
            "Object ConfigMap.v1 {}/by-hand exists already and has no controller (written by test); it is not changed: delete it if it is not needed, or set collisionProtection \"IfNoController\" to take it over",
            place.name
        );
        for (name, said) in [("shared", theirs), ("by-hand", unowned)] {
            let stranger = place.create(&stranger(name)).await;
            place.until(&stranger, "Progressing=True/Retrying", &said).await;
            place.remove(&stranger).await;
            place.until_gone(&stranger).await;
        }
        assert!(place.live(&place.config_map("shared")).await.is_some());
        assert!(place.live(&place.config_map("by-hand")).await.is_some());
        place.until(&first, "Progressing=True/Succeeded", "").await;
    });
}

#[test]
fn collision_protection_is_said_for_the_set_the_phase_and_the_object() {
    in_place(everything(), async |place| {
        // Two objects made by hand, and two of another owner.
        for name in ["by-hand", "by-hand-too"] {
            place.apply(place.config_map(name)).await;
        }
        let mut other = place.set(
            1,
            &[(
                "deploy",
                vec![place.config_map("theirs"), place.config_map("theirs-too")],
            )],
        );
        other["metadata"]["name"] = format!("{}-other", place.name).into();
        other["metadata"]["labels"]["olm.operatorframework.io/owner-name"] = "other".into();
        let other = place.create(&other).await;
        place.until(&other, "Succeeded=True/Succeeded", "").await;

        let set = |revision: i64, name: &str, spec: &str, phase: Value, object: Value| {
            let mut set = place.set(revision, &[("deploy", vec![place.config_map(name)])]);
            set["metadata"]["name"] = format!("{}-{name}", place.name).into();
            set["metadata"]["labels"]["olm.operatorframework.io/owner-name"] = name.into();
            set["spec"]["collisionProtection"] = spec.into();
            let levels = [("/spec/phases/0", phase), ("/spec/phases/0/objects/0", object)];
            for (at, protection) in levels.into_iter().filter(|(_, protection)| !protection.is_null()) {
                set.pointer_mut(at).unwrap()["collisionProtection"] = protection;
            }
            set
        };
        let (unsaid, prevent, if_no_controller, never) = (
            Value::Null,
            json!("Prevent"),
            json!("IfNoController"),
            json!("None"),
        );
        for (name, spec, phase, object, adopted) in [
            ("by-hand", "None", prevent.clone(), if_no_controller.clone(), true),
            ("by-hand-too", "None", prevent.clone(), unsaid.clone(), false),
            ("theirs", "Prevent", unsaid, never.clone(), true),
            ("theirs-too", "None", if_no_controller, Value::Null, false),
        ] {
            let made = place.create(&set(1, name, spec, phase, object)).await;
            if adopted {
                place.until(&made, "Succeeded=True/Succeeded", "").await;
            } else {
                place
                    .until(
                        &made,
                        "Progressing=True/Retrying",
                        "revision object collisions in phase 0",
                    )
                    .await;
            }
        }
        let live = place.live(&place.config_map("theirs")).await.unwrap();
        let controllers: Vec<(&str, bool)> = live["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|owner| (owner["name"].as_str().unwrap(), owner["controller"] == true))
            .collect();
        assert!(
            controllers.contains(&(format!("{}-theirs", place.name).as_str(), true)),
            "{controllers:?}"
        );
        assert_eq!(controllers.iter().filter(|(_, controls)| *controls).count(), 1);
    });
}

#[test]
fn an_object_that_a_revision_left_behind_is_taken_over_only_when_its_mark_is_taken_off() {
    in_place(everything(), async |place| {
        let mut left = place.config_map("left");
        left["metadata"]["annotations"] = json!({names::annotation::REVISION: "3"});
        place.apply(left).await;
        let mut set = place.set(1, &[("deploy", vec![place.config_map("left")])]);
        set["spec"]["collisionProtection"] = "None".into();
        let name = place.create(&set).await;
        let advice = format!(
            "remove the annotation {} from the object",
            names::annotation::REVISION
        );
        place.until(&name, "Progressing=True/Retrying", &advice).await;
        let uid = place.live(&place.config_map("left")).await.unwrap()["metadata"]["uid"].clone();
        place.apply(place.config_map("left")).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        let live = place.live(&place.config_map("left")).await.unwrap();
        assert_eq!(live["metadata"]["uid"], uid, "it was made anew");
    });
}

#[test]
fn a_rollout_that_is_stuck_is_superseded_at_once() {
    in_place(everything(), async |place| {
        let stuck = |revision: i64| {
            let mut set = place.set(
                revision,
                &[
                    ("configuration", vec![place.config_map("one")]),
                    ("deploy", vec![place.config_map(&format!("later-{revision}"))]),
                ],
            );
            set["spec"]["progressionProbes"] = json!([{
                "selector": {"type": "Label", "label": {"matchExpressions": [
                    {"key": "olm.operatorframework.io/owner-name", "operator": "In", "values": [place.name]},
                ]}},
                "assertions": [{"type": "FieldsEqual", "fieldsEqual": {"fieldA": "data.key", "fieldB": "data.wanted"}}],
            }]);
            set
        };
        let old = place.create(&stuck(1)).await;
        let named = format!("Object ConfigMap.v1 {}/one: \"data.wanted\" missing", place.name);
        place.until(&old, "Available=False/ProbeFailure", &named).await;
        assert_eq!(place.live(&place.config_map("later-1")).await, None);

        let mut better = stuck(2);
        for object in [
            "/spec/phases/0/objects/0/object",
            "/spec/phases/1/objects/0/object",
        ] {
            better.pointer_mut(object).unwrap()["data"]["wanted"] = "value".into();
        }
        let new = place.create(&better).await;
        place.until(&new, "Succeeded=True/Succeeded", "").await;
        place.until(&old, "Progressing=False/Archived", "").await;
        assert!(place.live(&place.config_map("one")).await.is_some());
    });
}

#[test]
fn an_older_revision_whose_account_is_gone_is_taken_down_as_that_of_the_newer_one() {
    in_place(everything(), async |place| {
        // Sets of different accounts belong together only where one extension controls both.
        let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": place.name}, "spec": {"namespace": place.name, "source":
                {"sourceType": "Catalog", "catalog": {"packageName": "none"}}}});
        place.apply(extension.clone()).await;
        let extension = place.live(&extension).await.unwrap();
        let controller = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "name": place.name, "uid": extension["metadata"]["uid"], "controller": true}]);
        let mut set = place.set(1, &[("deploy", vec![place.config_map("dropped")])]);
        set["metadata"]["ownerReferences"] = controller.clone();
        let old = place.create(&set).await;
        place.until(&old, "Succeeded=True/Succeeded", "").await;
        let other = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "other", "namespace": place.name}});
        place.apply(other).await;
        place.bind("other").await;
        let installer = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": place.name}});
        place.delete(&installer).await;
        let mut set = place.set(2, &[("deploy", vec![place.config_map("added")])]);
        set["metadata"]["ownerReferences"] = controller;
        set["metadata"]["annotations"]["olm.operatorframework.io/service-account"] =
            format!("{}/other", place.name).into();
        let new = place.create(&set).await;
        place.until(&new, "Succeeded=True/Succeeded", "").await;
        place.until(&old, "Progressing=False/Archived", "").await;
        assert_eq!(place.live(&place.config_map("dropped")).await, None);
    });
}
