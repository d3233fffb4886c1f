//! Missing rights of an account.

use olm_api::{conditions, names};
use serde_json::json;

use crate::world::{everything, in_place};

#[test]
fn missing_permissions_are_all_reported_before_anything_is_applied_and_heal() {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    in_place(rules, async |place| {
        let role = place.role();
        let set = place.set(
            1,
            &[
                ("configuration", vec![place.config_map("one")]),
                ("roles", vec![role.clone()]),
                ("deploy", vec![place.deployment("operator")]),
            ],
        );
        let name = place.create(&set).await;
        let account = format!("service account {}/installer lacks permissions:", place.name);
        let blocked = place.until(&name, "Progressing=True/Retrying", &account).await;
        let message = &conditions::find(blocked.conditions(), conditions::PROGRESSING)
            .unwrap()
            .message;
        for part in ["deployments", "clusterroles", "give: get nodes"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!message.contains("configmaps"), "{message}");
        assert_eq!(
            place.live(&place.config_map("one")).await,
            None,
            "nothing is applied"
        );

        // Rights on the kinds alone do not allow it to create a role with more rights than its own.
        place
            .grant(json!([{"apiGroups": ["", "apps", "rbac.authorization.k8s.io"],
            "resources": ["configmaps", "deployments", "clusterroles"],
            "verbs": ["get", "create", "patch", "delete"]}]))
            .await;
        place
            .until(
                &name,
                "Progressing=True/Retrying",
                "permissions: what the roles among the objects give: get nodes",
            )
            .await;
        assert_eq!(place.live(&role).await, None);

        place.grant(everything()).await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;
        assert!(place.live(&role).await.is_some());
    });
}

#[test]
fn taking_over_an_object_needs_the_right_to_write_it() {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    in_place(rules, async |place| {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": place.name},
            "stringData": {"key": "theirs"},
        });
        place.apply(secret.clone()).await;
        let before = place.live(&secret).await;
        secret["stringData"]["key"] = "ours".into();
        let mut set = place.set(1, &[("deploy", vec![secret.clone()])]);
        set["spec"]["collisionProtection"] = "None".into();
        let name = place.create(&set).await;
        place
            .until(&name, "Progressing=True/Retrying", "secrets \"theirs\"")
            .await;
        place.remove(&name).await;
        place.until_gone(&name).await;
        assert_eq!(place.live(&secret).await, before);
    });
}

#[test]
fn a_missing_account_or_namespace_is_named_and_heals() {
    in_place(everything(), async |place| {
        let installer = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "installer", "namespace": place.name}});
        place.delete(&installer).await;
        let name = place
            .create(&place.set(1, &[("deploy", vec![place.config_map("one")])]))
            .await;
        let message = format!("service account {}/installer does not exist", place.name);
        place.until(&name, "Progressing=True/Retrying", &message).await;
        place.account().await;
        place.until(&name, "Succeeded=True/Succeeded", "").await;

        // Reported although no write is needed.
        place.delete(&installer).await;
        place.until(&name, "Progressing=True/Retrying", &message).await;
        place.account().await;
        place.until(&name, "Progressing=True/Succeeded", "").await;

        let mut other = place.set(2, &[("deploy", Vec::new())]);
        other["metadata"]["annotations"][names::annotation::SERVICE_ACCOUNT] = "nowhere/x".into();
        let other = place.create(&other).await;
        place
            .until(
                &other,
                "Progressing=True/Retrying",
                "namespace nowhere of service account nowhere/x does not exist",
            )
            .await;
    });
}

#[test]
fn without_an_account_nothing_is_done() {
    in_place(everything(), async |place| {
        let mut set = place.set(1, &[("deploy", vec![place.config_map("one")])]);
        set["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(names::annotation::SERVICE_ACCOUNT);
        let name = place.create(&set).await;
        let blocked = place
            .until(&name, "Progressing=False/Blocked", "no service account is named")
            .await;
        assert_eq!(blocked.metadata.finalizers, None);
        assert_eq!(place.live(&place.config_map("one")).await, None);
        place.remove(&name).await;
        place.until_gone(&name).await;
    });
}
