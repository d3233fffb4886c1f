//! Objects in Secrets.

use serde_json::{Value, json};

use crate::world::{SYSTEM, everything, in_place};

#[test]
fn content_is_read_from_immutable_secrets() {
    in_place(everything(), async |place| {
        let secret = |name: &str, immutable: bool| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": immutable,
                "metadata": {"name": format!("{}-{name}", place.name), "namespace": SYSTEM,
                    "labels": {"olm.operatorframework.io/owner-name": place.name}},
                "stringData": {"object": place.config_map("from-secret").to_string()}})
        };
        let set = |revision: i64, name: &str| {
            let mut set = place.set(revision, &[("deploy", vec![])]);
            set["spec"]["phases"][0]["objects"] =
                json!([{"ref": {"name": format!("{}-{name}", place.name), "key": "object"}}]);
            set
        };
        place.apply(secret("loose", false)).await;
        let loose = place.create(&set(1, "loose")).await;
        place
            .until(
                &loose,
                "Progressing=False/Blocked",
                &format!("must have immutable set to true): {SYSTEM}/{}-loose", place.name),
            )
            .await;
        place.remove(&loose).await;
        place.until_gone(&loose).await;

        place.apply(secret("firm", true)).await;
        let firm = place.create(&set(2, "firm")).await;
        place.until(&firm, "Succeeded=True/Succeeded", "").await;
        assert!(place.live(&place.config_map("from-secret")).await.is_some());
        // A Secret that was not created for the set is read as the account, which may not read there.
        let mut other = secret("other", true);
        other["metadata"]["labels"] = json!({});
        place.apply(other).await;
        let other = place.create(&set(3, "other")).await;
        place.until(&other, "Succeeded=True/Succeeded", "").await;
    });
}

#[test]
fn a_secret_of_another_owner_is_not_read_for_a_set() {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    in_place(rules, async |place| {
        let mut other = place.set(9, &[]);
        other["metadata"]["labels"]["olm.operatorframework.io/owner-name"] = "other".into();
        let owner = place.create(&other).await;
        let owner = place.world.sets().get(&owner).await.unwrap();
        let secret = |name: &str, revision: i64, owner: Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": "olm.operatorframework.io/object-data", "immutable": true,
                "metadata": {"name": format!("{}-{name}", place.name), "namespace": SYSTEM, "ownerReferences": owner,
                    "labels": {"olm.operatorframework.io/owner-name": place.name,
                        "olm.operatorframework.io/revision-name": format!("{}-{revision}", place.name)}},
                "stringData": {"object": place.config_map(name).to_string()}})
        };
        let set = |name: &str, revision: i64| {
            let mut set = place.set(revision, &[("deploy", vec![])]);
            set["spec"]["phases"][0]["objects"] =
                json!([{"ref": {"name": format!("{}-{name}", place.name), "key": "object"}}]);
            set
        };
        // Labels are no proof: another set controls this one.
        let theirs = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "controller": true,
            "name": owner.name(), "uid": owner.metadata.uid}]);
        place.apply(secret("stolen", 1, theirs)).await;
        let name = place.create(&set("stolen", 1)).await;
        let message = format!("Secret {SYSTEM}/{}-stolen not found", place.name);
        place.until(&name, "Progressing=True/Retrying", &message).await;
        assert_eq!(place.live(&place.config_map("stolen")).await, None);
        // A Secret that was made for the set and has no controller yet is its own.
        place.apply(secret("own", 2, json!([]))).await;
        let name = place.create(&set("own", 2)).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
    });
}

#[test]
fn content_that_was_exchanged_under_a_complete_set_is_seen_and_comes_back() {
    in_place(everything(), async |place| {
        let changed = "resolved content of 1 phase(s) has changed: phase \"deploy\" (expected digest ";
        // One that was created for the set, and one that is read as the account.
        for (revision, label) in [(1, "revision-name"), (2, "unrelated")] {
            let name = format!("{}-content-{revision}", place.name);
            let secret = |data: &Value| {
                let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "immutable": true,
                    "type": "olm.operatorframework.io/object-data", "stringData": {"object": data.to_string()}});
                secret["metadata"] = json!({"name": name, "namespace": SYSTEM,
                    "labels": {format!("olm.operatorframework.io/{label}"): format!("{}-{revision}", place.name)}});
                secret
            };
            let wanted = place.config_map(&format!("wanted-{revision}"));
            let mut other = wanted.clone();
            other["data"] = json!({"key": "of somebody else"});
            place.apply(secret(&wanted)).await;
            let mut set = place.set(revision, &[("deploy", vec![])]);
            set["metadata"]["name"] = format!("{}-{revision}", place.name).into();
            set["metadata"]["labels"]["olm.operatorframework.io/owner-name"] =
                format!("{}-{revision}", place.name).into();
            set["spec"]["phases"][0]["objects"] = json!([{"ref": {"name": name, "key": "object"}}]);
            let set = place.create(&set).await;
            place.until(&set, "Succeeded=True/Succeeded", "").await;

            place.delete(&secret(&wanted)).await;
            place.apply(secret(&other)).await;
            place.annotate(&set, "example.com/look", "again").await;
            place.until(&set, "Progressing=False/Blocked", changed).await;
            let live = place.live(&wanted).await.unwrap();
            assert_eq!(live["data"], wanted["data"], "what was exchanged is not applied");

            // The set sees without a change of its own that the content is back.
            place.delete(&secret(&other)).await;
            place.apply(secret(&wanted)).await;
            place
                .until(&set, "Progressing=True/Succeeded", "has rolled out")
                .await;
        }
    });
}
