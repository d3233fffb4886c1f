//! Complete sets, with and without drift.

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::world::{QUIET, eventually, everything, in_place};

/// The times in which drift is repaired, from `docs/reference/conditions.md`: for objects of watched kinds, and for
/// kinds that no account may watch.
const WATCHED: Duration = Duration::from_secs(30);
const UNWATCHED: Duration = Duration::from_mins(2);

#[test]
fn drift_is_repaired_within_seconds_and_fields_of_others_are_kept() {
    in_place(everything(), async |place| {
        let (map, deployment) = (place.config_map("one"), place.deployment("operator"));
        let name = place
            .create(&place.set(1, &[("deploy", vec![map.clone(), deployment.clone()])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;

        let patch =
            json!({"data": {"key": "wrong", "other": "kept"}, "metadata": {"labels": {"mine": "kept"}}});
        let api = place.api(&map);
        let begin = Instant::now();
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
        let took = begin.elapsed();
        assert!(took <= WATCHED, "drift was repaired after {took:?}");
        let live = place.live(&map).await.unwrap();
        assert_eq!(live["data"]["other"], "kept");
        assert_eq!(live["metadata"]["labels"]["mine"], "kept");

        let begin = Instant::now();
        place.delete(&map).await;
        eventually("the object is back", async || place.live(&map).await.is_some()).await;
        let took = begin.elapsed();
        assert!(took <= WATCHED, "the object was back after {took:?}");

        let strip = json!({"metadata": {"ownerReferences": null}});
        let begin = Instant::now();
        api.patch("one", &PatchParams::default(), &Patch::Merge(&strip))
            .await
            .unwrap();
        let owned = async || {
            let live = place.live(&map).await.unwrap();
            live["metadata"]["ownerReferences"][0]["name"] == name.as_str()
        };
        eventually("the owner reference is back", owned).await;
        let took = begin.elapsed();
        assert!(took <= WATCHED, "the owner reference was back after {took:?}");
        place.until(&name, "Progressing=True/Succeeded", "").await;

        // The labels that identify it are fields like others.
        let strip = json!({"metadata": {"labels": null, "ownerReferences": null}});
        place
            .api(&deployment)
            .patch("operator", &PatchParams::default(), &Patch::Merge(&strip))
            .await
            .unwrap();
        // Without an owner it may belong to any user: it is not changed, and reported.
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
fn drift_of_a_secret_that_is_written_as_string_data_is_repaired() {
    in_place(everything(), async |place| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "plain", "namespace": place.name},
            "data": {"kept": "a2VwdA=="}, "stringData": {"password": "wanted"}});
        let name = place
            .create(&place.set(1, &[("deploy", vec![secret.clone()])]))
            .await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        let data = json!({"kept": "a2VwdA==", "password": "d2FudGVk"});
        assert_eq!(place.live(&secret).await.unwrap()["data"], data);
        let begin = Instant::now();
        let drift = json!({"stringData": {"password": "of somebody else"}});
        place
            .api(&secret)
            .patch("plain", &PatchParams::default(), &Patch::Merge(&drift))
            .await
            .unwrap();
        let restored = async || place.live(&secret).await.unwrap()["data"] == data;
        eventually("the Secret is restored", restored).await;
        let took = begin.elapsed();
        assert!(took <= WATCHED, "drift was repaired after {took:?}");
    });
}

#[test]
fn drift_of_objects_that_no_account_may_watch_is_repaired_within_two_minutes() {
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
        place.apply(custom.clone()).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;

        let begin = Instant::now();
        let drift = json!({"spec": {"size": 4}});
        let api = place.api(&custom);
        api.patch("foo", &PatchParams::default(), &Patch::Merge(&drift))
            .await
            .unwrap();
        let restored = async || {
            let live = place.live(&custom).await;
            live.is_some_and(|live| live["spec"]["size"] == 3)
        };
        eventually("the field is restored", restored).await;
        let took = begin.elapsed();
        assert!(took <= UNWATCHED + WATCHED, "drift was repaired after {took:?}");
    });
}

/// The number of times that an account lists a kind in two minutes, from `docs/reference/conditions.md`.
const LISTS: usize = 3;

#[test]
fn kinds_that_an_account_may_list_but_not_watch_are_listed_for_all_its_sets_at_once() {
    in_place(json!([]), async |place| {
        let (definition, custom) = place.custom();
        place.apply(definition).await;
        let group = format!("{}.example.com", place.name);
        let verbs = json!(["get", "list", "create", "patch", "delete"]);
        place
            .grant(json!([{"apiGroups": [group], "resources": ["foos"], "verbs": verbs}]))
            .await;
        let mut objects = Vec::new();
        let mut sets = Vec::new();
        for number in 1..=4 {
            let mut object = custom.clone();
            object["metadata"]["name"] = format!("foo-{number}").into();
            let mut set = place.set(number, &[("deploy", vec![object.clone()])]);
            set["metadata"]["labels"]["olm.operatorframework.io/owner-name"] =
                format!("{}-{number}", place.name).into();
            sets.push(place.create(&set).await);
            objects.push(object);
        }
        for set in &sets {
            place.until(set, "Succeeded=True/Succeeded", "").await;
            place.annotate(set, "example.com/look", "again").await;
        }
        let asked = |from: usize, verb: &str| {
            let requests = place.world.requests(from).into_iter();
            let of_kind = |request: &String| request.starts_with(verb) && request.contains(&group);
            requests.filter(of_kind).count()
        };
        eventually("the objects are listed", async || asked(0, "list") > 0).await;
        let at_rest = async || {
            let from = place.world.audit().len();
            tokio::time::sleep(QUIET).await;
            asked(from, "") == 0
        };
        eventually("nothing is asked for", at_rest).await;

        let (begin, from) = (Instant::now(), place.world.audit().len());
        for object in &objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            let drift = json!({"spec": {"size": 4}});
            let api = place.api(object);
            api.patch(name, &PatchParams::default(), &Patch::Merge(&drift))
                .await
                .unwrap();
        }
        let restored = async || {
            for object in &objects {
                if place
                    .live(object)
                    .await
                    .is_none_or(|live| live["spec"]["size"] != 3)
                {
                    return false;
                }
            }
            true
        };
        eventually("all are restored", restored).await;
        let took = begin.elapsed();
        assert!(took <= UNWATCHED, "drift was repaired after {took:?}");
        tokio::time::sleep(UNWATCHED.saturating_sub(took)).await;
        let (lists, reads) = (asked(from, "list"), asked(from, "get"));
        println!(
            "{took:?}: {lists} lists and {reads} reads for {} sets in two minutes",
            sets.len()
        );
        assert!((1..=LISTS).contains(&lists), "{lists} lists");
        assert!(
            reads <= 2 * objects.len(),
            "{reads} reads of {} objects",
            objects.len()
        );
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
        // The Deployment's own status settles first; a set that is reconciled repeatedly never becomes idle.
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
        // The server stores the requests of the Deployment (`1000m`) in another form; one apply shows that they are
        // equal.
        assert!(
            writes.iter().all(|write| write.contains("/deployments/operator")),
            "{writes:?}"
        );
        let live = place.live(&place.deployment("operator")).await.unwrap();
        assert_eq!(live["metadata"]["generation"], 1);
    });
}
