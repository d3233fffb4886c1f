//! Plans under the account that an OperatorGroup names.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use olm_test::objects::RIGHTS;
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::failed::older_definition;
use crate::stage::{CLUSTER, SOON, catalog_source, csv, named, subscription};

#[test]
fn a_plan_waits_for_its_account_and_for_the_rights_of_the_account() -> Result<()> {
    CLUSTER.with(async |stage| {
        let image = stage
            .lab
            .publish("scoped", &["1.0.0"], crate::stage::OPERATOR)
            .await?;
        stage.group("scoped", json!({"serviceAccountName": "tenant", "targetNamespaces": ["scoped"]}))?;
        stage.lab.apply(&[catalog_source("scoped", &image)])?;
        stage.subscribe("scoped", &json!({}))?;
        let plan = stage.plan("scoped").await?;
        let says = |found: &Value, text: &str| {
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["reason"] == "InstallCheckFailed" && one["message"] == text)
        };
        let missing = "please make sure the service account exists. sa=tenant operatorgroup=scoped/group";
        stage
            .becomes("the plan names the missing account", &plan, |found| says(found, missing))
            .await?;
        stage.lab.apply(&[named("v1", "ServiceAccount", "scoped", "tenant")])?;
        let refused = stage
            .becomes("the plan names the missing right", &plan, |found| {
                let message = found["status"]["message"].as_str().unwrap_or_default();
                message.starts_with("retrying execution due to error: error ") && message.contains("is forbidden")
            })
            .await?;
        ensure!(refused["status"]["phase"] == "Installing", "{}", refused["status"]);
        let created = stage.get(&csv("scoped", "1.0.0")).await?;
        ensure!(created.is_none(), "an account without rights has created a ClusterServiceVersion");
        ensure!(refused["status"]["attenuatedServiceAccountRef"]["name"] == "tenant");
        let conditions = refused["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(conditions.is_empty(), "{conditions:?}");
        stage.lab.apply(&[json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "scoped-tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "scoped"}],
        })])?;
        stage.phase("scoped", "Complete").await?;
        stage.installs("scoped", "1.0.0").await?;
        Ok(())
    })
}

#[test]
fn a_failed_plan_of_a_scoped_account_is_carried_out_once_more_when_rights_change() -> Result<()> {
    CLUSTER.with(async |stage| {
        let package = "renewed";
        stage.lab.apply(&[
            named("v1", "Namespace", "", package),
            named("v1", "ServiceAccount", package, "tenant"),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "renewed-tenant"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": package}],
            }),
        ])?;
        let definition = older_definition(package);
        stage.lab.apply(std::slice::from_ref(&definition))?;
        stage
            .becomes("the older definition is served", &definition, |found| {
                found["status"]["storedVersions"] == json!(["v1old"])
            })
            .await?;
        let image = stage.lab.publish(package, &["1.0.0"], crate::stage::OPERATOR).await?;
        stage.group(package, json!({"serviceAccountName": "tenant"}))?;
        stage.lab.apply(&[catalog_source(package, &image)])?;
        stage.subscribe(package, &json!({}))?;
        let failed = stage.phase(package, "Failed").await?;
        stage.delete(&definition).await?;
        stage.goes(&definition).await?;
        let mut role = named("rbac.authorization.k8s.io/v1", "Role", package, "more");
        role["rules"] = json!([]);
        stage.lab.apply(&[role])?;
        let complete = stage.phase(package, "Complete").await?;
        ensure!(complete["metadata"]["uid"] == failed["metadata"]["uid"]);
        ensure!(complete["status"]["startTime"] == failed["status"]["startTime"]);
        stage.installs(package, "1.0.0").await?;
        Ok(())
    })
}

/// The accounts, roles and bindings that a plan has made.
fn rights(plan: &Value) -> Result<Vec<Value>> {
    let steps = plan["status"]["plan"].as_array().context("no steps")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_rights = steps.iter().map(|step| &step["resource"]);
    let of_rights = of_rights.filter(|resource| RIGHTS.contains(&text(&resource["kind"]).as_str()));
    let objects = of_rights.map(|resource| {
        let (kind, name) = (text(&resource["kind"]), text(&resource["name"]));
        let api_version = match text(&resource["group"]).as_str() {
            "" => text(&resource["version"]),
            group => format!("{group}/{}", text(&resource["version"])),
        };
        let namespace = if kind.starts_with("Cluster") {
            String::new()
        } else {
            text(&plan["metadata"]["namespace"])
        };
        named(&api_version, &kind, &namespace, &name)
    });
    Ok(objects.collect())
}

#[test]
fn rights_that_somebody_deletes_are_made_again_and_go_with_their_version() -> Result<()> {
    CLUSTER.with(async |stage| {
        let package = "mended";
        stage.offer(package, &["1.0.0"]).await?;
        stage.subscribe(package, &json!({}))?;
        stage.installs(package, "1.0.0").await?;
        let version = csv(package, "1.0.0");
        let succeeds = |found: &Value| found["status"]["phase"] == "Succeeded";
        stage
            .becomes("the operator is installed", &version, succeeds)
            .await?;
        let plan = stage.phase(package, "Complete").await?;
        let rights = rights(&plan)?;
        ensure!(rights.len() >= 3, "{rights:?}");
        for object in &rights {
            let before = stage.get(object).await?.context("it is not there")?;
            stage.delete(object).await?;
            let is_new = |found: &Value| {
                let uid = &found["metadata"]["uid"];
                uid.is_string() && *uid != before["metadata"]["uid"]
            };
            let after = stage.becomes("it is made again", object, is_new).await?;
            for part in ["rules", "roleRef", "subjects"] {
                ensure!(after[part] == before[part], "{after}");
            }
            for pointer in ["/ownerReferences", "/labels/olm.managed", "/labels/olm.owner"] {
                let pointer = format!("/metadata{pointer}");
                ensure!(after.pointer(&pointer) == before.pointer(&pointer), "{after}");
            }
        }
        let complete = stage.phase(package, "Complete").await?;
        ensure!(complete["metadata"]["uid"] == plan["metadata"]["uid"]);
        stage
            .becomes("the operator is well again", &version, succeeds)
            .await?;
        eventually("an event names the deleted objects", SOON, async || {
            let events = stage.list(&named("v1", "Event", package, "")).await?;
            let is_it = |event: &Value| {
                let note = event["message"].as_str().unwrap_or_default();
                event["reason"] == "ObjectsDeleted" && note.contains("ServiceAccount mended-operator")
            };
            Ok(events.iter().any(is_it).then_some(()))
        })
        .await?;

        // What goes with its version is not made again.
        let keep_away = json!({"metadata": {"annotations": {"olm.operatorframework.io/reinstall": "false"}}});
        stage
            .patch(&subscription(package, &json!({})), &keep_away)
            .await?;
        stage.delete(&version).await?;
        for object in &rights {
            stage.goes(object).await?;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        for object in &rights {
            ensure!(stage.get(object).await?.is_none(), "{object} is there again");
        }
        stage.phase(package, "Complete").await?;
        Ok(())
    })
}
