//! Objects that change: the status, and versions that share what is stored.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use olm_test::objects::api;
use serde_json::{Value, json};

use crate::{SERVER, Server, csv, object, wrong_fields};

const TIME: &str = "2026-01-01T00:00:00Z";

async fn write_status(server: &Server, object: &Value, status: &Value) -> Result<Value, kube::Error> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let patch = Patch::Merge(json!({"status": status}));
    let written = api(&server.client, object)
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    serde_json::to_value(written).map_err(kube::Error::SerdeError)
}

/// The object in another version of the API.
fn in_version(object: &Value, version: &str) -> Value {
    let mut other = object.clone();
    other["apiVersion"] = json!(format!("operators.coreos.com/{version}"));
    other
}

async fn read(server: &Server, object: &Value) -> Result<Value> {
    let name = object["metadata"]["name"].as_str().context("no name")?;
    Ok(serde_json::to_value(
        api(&server.client, object).get(name).await?,
    )?)
}

#[test]
fn the_status_is_written_by_itself_and_checked() -> Result<()> {
    SERVER.with(async |server| {
        let mut given = csv("status");
        given["status"] = json!({"phase": "Succeeded"});
        let created = server.create(&given).await?;
        ensure!(created.get("status").is_none(), "{created}");
        let status = json!({
            "phase": "Pending", "reason": "RequirementsNotMet", "message": "m", "lastUpdateTime": TIME,
            "lastTransitionTime": TIME, "certsRotateAt": TIME,
            "conditions": [{"phase": "Pending", "reason": "RequirementsUnknown"}, {"phase": "Pending"}],
            "requirementStatus": [{
                "group": "", "version": "v1", "kind": "ServiceAccount", "name": "a", "status": "NotPresent",
                "message": "m", "dependents": [{"group": "g", "version": "v1", "kind": "k", "status": "Satisfied"}],
            }],
        });
        let written = write_status(server, &given, &status).await?;
        ensure!(written["status"] == status, "{written}");

        let subscription = json!({"name": "p", "source": "c", "sourceNamespace": "olm"});
        let subscription = object("v1alpha1", "Subscription", "status", json!({"spec": subscription}));
        server.create(&subscription).await?;
        let without_time = write_status(server, &subscription, &json!({"state": "AtLatestKnown"})).await;
        let found = wrong_fields(&without_time.err().context("the status is taken")?)?;
        ensure!(found == ["status.lastUpdated"], "{found:?}");
        let status = json!({
            "state": "AtLatestKnown", "lastUpdated": TIME, "installPlanGeneration": 1, "installedCSV": "a",
            "installplan": {"apiVersion": "v", "kind": "InstallPlan", "name": "n", "uuid": "u"},
            "catalogHealth": [{"catalogSourceRef": {"name": "c"}, "healthy": true, "lastUpdated": TIME}],
            "conditions": [{"type": "CatalogSourcesUnhealthy", "status": "Unknown", "lastHeartbeatTime": TIME}],
        });
        let written = write_status(server, &subscription, &status).await?;
        ensure!(written["status"] == status, "{written}");
        Ok(())
    })
}

#[test]
fn a_user_approves_an_install_plan_with_one_patch() -> Result<()> {
    SERVER.with(async |server| {
        let spec = json!({"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["a", "b"]});
        let plan = object("v1alpha1", "InstallPlan", "approved", json!({"spec": spec}));
        server.create(&plan).await?;
        let patch = Patch::Merge(json!({"spec": {"approved": true}}));
        let patched = api(&server.client, &plan)
            .patch("approved", &PatchParams::default(), &patch)
            .await?;
        ensure!(patched.data["spec"]["approved"] == true, "{:?}", patched.data);
        Ok(())
    })
}

#[test]
fn a_writer_of_the_former_version_keeps_the_conditions_of_an_operator() -> Result<()> {
    SERVER.with(async |server| {
        let condition = json!({
            "type": "Upgradeable", "status": "False", "reason": "Busy", "message": "m", "lastTransitionTime": TIME,
        });
        let given = object("v2", "OperatorCondition", "versions", json!({"spec": {"conditions": [condition]}}));
        server.create(&given).await?;
        let former = in_version(&given, "v1");
        let mut changed = read(server, &former).await?;
        changed["spec"]["overrides"] = json!([{"type": "A", "status": "True", "reason": "B", "message": ""}]);
        let typed: DynamicObject = serde_json::from_value(changed)?;
        api(&server.client, &former)
            .replace("versions", &kube::api::PostParams::default(), &typed)
            .await?;
        let found = read(server, &given).await?;
        ensure!(found["spec"]["conditions"] == json!([condition]), "{found}");
        ensure!(found["spec"]["overrides"][0]["type"] == "A", "{found}");
        Ok(())
    })
}

#[test]
fn an_operator_group_of_the_former_version_has_the_default_strategy() -> Result<()> {
    SERVER.with(async |server| {
        let spec = json!({"targetNamespaces": ["default"]});
        let given = object("v1alpha2", "OperatorGroup", "former", json!({"spec": spec}));
        server.create(&given).await?;
        let found = read(server, &in_version(&given, "v1")).await?;
        let expected = json!({"targetNamespaces": ["default"], "upgradeStrategy": "Default"});
        ensure!(found["spec"] == expected, "{found}");
        Ok(())
    })
}
