//! Sets that are complete: what others change, and what nobody changes.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::world::{QUIET, eventually, everything, in_place};

#[test]
fn drift_is_repaired_within_seconds_and_what_others_add_is_kept() {
    in_place(everything(), async |place| {
        let (map, deployment) = (place.config_map("one"), place.deployment("operator"));
        let name = place
            .create(&place.set(1, &[("deploy", vec![map.clone(), deployment.clone()])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;

        let patch =
            json!({"data": {"key": "wrong", "other": "kept"}, "metadata": {"labels": {"mine": "kept"}}});
        let api = place.api(&map);
        api.patch("one", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
        let restored = async || {
            place
                .live(&map)
                .await
                .is_some_and(|live| live["data"]["key"] == "value")
        };
        eventually("the field is restored", restored).await;
        let live = place.live(&map).await.unwrap();
        assert_eq!(live["data"]["other"], "kept");
        assert_eq!(live["metadata"]["labels"]["mine"], "kept");

        place.delete(&map).await;
        eventually("the object is back", async || place.live(&map).await.is_some()).await;

        // The labels by which we know it, and our owner reference, are fields like others.
        let strip = json!({"metadata": {"labels": null, "ownerReferences": null}});
        place
            .api(&deployment)
            .patch("operator", &PatchParams::default(), &Patch::Merge(&strip))
            .await
            .unwrap();
        // Without an owner it might be anybody's: it is left alone, and said.
        place
            .until(
                &name,
                "Progressing=True/Retrying",
                "revision object collisions in phase 0",
            )
            .await;
    });
}

#[test]
fn objects_that_nobody_may_watch_are_looked_at_now_and_then() {
    in_place(json!([]), async |place| {
        let (definition, mut custom) = place.custom();
        place.apply(definition).await;
        let group = format!("{}.example.com", place.name);
        place.grant(json!([{"apiGroups": [group], "resources": ["foos"], "verbs": ["get", "create", "patch", "delete"]}])).await;
        let mut set = place.set(1, &[("deploy", vec![custom.clone()])]);
        set["spec"]["progressionProbes"] = json!([{
            "selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": "Foo"}},
            "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "spec.phase", "value": "Ready"}}],
        }]);
        let name = place.create(&set).await;
        place
            .until(
                &name,
                "Available=False/ProbeFailure",
                "missing key: \"spec.phase\"",
            )
            .await;
        custom["spec"] = json!({"phase": "Ready"});
        place.apply(custom).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
    });
}

#[test]
fn a_quiet_set_costs_no_request_and_a_restart_writes_nothing() {
    in_place(everything(), async |place| {
        let world = place.world;
        let name = place
            .create(&place.set(
                1,
                &[(
                    "deploy",
                    vec![place.config_map("one"), place.deployment("operator")],
                )],
            ))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        let mine = |from: usize| -> Vec<String> {
            let requests = world.requests(from).into_iter();
            requests.filter(|request| request.contains(&place.name)).collect()
        };
        // The Deployment's own status settles first; a set that is looked at again and again never comes to rest.
        let at_rest = async || {
            let from = world.audit().len();
            tokio::time::sleep(QUIET).await;
            mine(from).is_empty()
        };
        eventually("nothing is asked for", at_rest).await;

        let from = world.audit().len();
        let stop = world.start(None);
        eventually("the new controller has looked", async || !mine(from).is_empty()).await;
        eventually("nothing is asked for", at_rest).await;
        stop.cancel();
        let requests = mine(from);
        let writes: Vec<&String> = requests
            .iter()
            .filter(|request| !request.starts_with("get"))
            .collect();
        // The server stores what the Deployment requests (`1000m`) in another form; asking once tells that it is the same.
        assert!(
            writes.iter().all(|write| write.contains("/deployments/operator")),
            "{writes:?}"
        );
        let live = place.live(&place.deployment("operator")).await.unwrap();
        assert_eq!(live["metadata"]["generation"], 1);
    });
}
