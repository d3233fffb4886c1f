//! Objects that the server refuses.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::{SERVER, csv, object, with, wrong_fields};

/// The server refuses each object because of this field and no other.
fn refused(cases: Vec<(Value, &str)>) -> Result<()> {
    SERVER.with(async |server| {
        for (object, field) in cases {
            match server.dry_run(&object).await {
                Ok(taken) => bail!("{field}: the server takes {taken}"),
                Err(error) => {
                    let found = wrong_fields(&error)?;
                    ensure!(!found.is_empty(), "{field}: {error}");
                    ensure!(
                        found.iter().all(|found| found == field),
                        "{field}: {found:?}, {error}"
                    );
                }
            }
        }
        Ok(())
    })
}

#[test]
fn a_cluster_service_version_without_what_it_needs_is_refused() -> Result<()> {
    let whole = || csv("refused");
    let webhook = |key: &str, value: Value| {
        let webhook = json!({
            "generateName": "v.kb.io", "type": "ValidatingAdmissionWebhook", "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        });
        let webhook = with(webhook, &format!("/{key}"), value);
        with(whole(), "/spec/webhookdefinitions", json!([webhook]))
    };
    let deployments =
        |deployment: Value| with(whole(), "/spec/install/spec/deployments", json!([deployment]));
    let permission = |permission: Value| with(whole(), "/spec/install/spec/permissions", json!([permission]));
    let owned = |api: Value| {
        with(
            whole(),
            "/spec/customresourcedefinitions",
            json!({"owned": [api]}),
        )
    };
    refused(vec![
        (with(whole(), "/spec", Value::Null), "spec"),
        (
            with(whole(), "/spec/displayName", Value::Null),
            "spec.displayName",
        ),
        (with(whole(), "/spec/install", Value::Null), "spec.install"),
        (
            with(whole(), "/spec/install/strategy", Value::Null),
            "spec.install.strategy",
        ),
        (
            with(whole(), "/spec/release", json!("1".repeat(21))),
            "spec.release",
        ),
        (with(whole(), "/spec/release", json!("1..2")), "spec.release"),
        (with(whole(), "/spec/release", json!("1.02")), "spec.release"),
        (
            with(whole(), "/spec/icon", json!([{"base64data": ""}])),
            "spec.icon[0].mediatype",
        ),
        (
            with(whole(), "/spec/installModes", json!([{"type": "AllNamespaces"}])),
            "spec.installModes[0].supported",
        ),
        (with(whole(), "/spec/cleanup", json!({})), "spec.cleanup.enabled"),
        (
            webhook("type", json!("Webhook")),
            "spec.webhookdefinitions[0].type",
        ),
        (
            webhook("sideEffects", Value::Null),
            "spec.webhookdefinitions[0].sideEffects",
        ),
        (
            webhook("containerPort", json!(0)),
            "spec.webhookdefinitions[0].containerPort",
        ),
        (
            webhook("containerPort", json!(65_536)),
            "spec.webhookdefinitions[0].containerPort",
        ),
        (
            deployments(json!({"name": "d"})),
            "spec.install.spec.deployments[0].spec",
        ),
        (
            deployments(json!({"name": "d", "spec": {"template": {}}})),
            "spec.install.spec.deployments[0].spec.selector",
        ),
        (
            deployments(json!({"name": "d", "spec": {
                "selector": {}, "template": {"spec": {"containers": [{"name": "c"}, {"name": "c"}]}},
            }})),
            "spec.install.spec.deployments[0].spec.template.spec.containers[1]",
        ),
        (
            permission(json!({"serviceAccountName": "a"})),
            "spec.install.spec.permissions[0].rules",
        ),
        (
            permission(json!({"serviceAccountName": "a", "rules": [{"apiGroups": [""]}]})),
            "spec.install.spec.permissions[0].rules[0].verbs",
        ),
        (
            owned(json!({"name": "a", "version": "v1"})),
            "spec.customresourcedefinitions.owned[0].kind",
        ),
    ])
}

#[test]
fn objects_of_the_operator_side_without_what_they_need_are_refused() -> Result<()> {
    let group = |spec: Value| object("v1", "OperatorGroup", "refused", json!({"spec": spec}));
    let condition = json!({"type": "Upgradeable", "status": "False", "reason": "Busy", "message": "m"});
    let conditions = |version: &str, field: &str, condition: Value| {
        object(
            version,
            "OperatorCondition",
            "refused",
            json!({"spec": {field: [condition]}}),
        )
    };
    let config = |interval: &str| {
        let spec = json!({"features": {"packageServerSyncInterval": interval}});
        object("v1", "OLMConfig", "refused", json!({"spec": spec}))
    };
    let interval = "spec.features.packageServerSyncInterval";
    refused(vec![
        (
            group(json!({"upgradeStrategy": "Always"})),
            "spec.upgradeStrategy",
        ),
        (
            group(json!({"targetNamespaces": ["a", "b", "a"]})),
            "spec.targetNamespaces[2]",
        ),
        // Only an administrator may leave out when.
        (
            conditions("v2", "conditions", condition.clone()),
            "spec.conditions[0].lastTransitionTime",
        ),
        (
            conditions("v2", "overrides", with(condition.clone(), "/reason", Value::Null)),
            "spec.overrides[0].reason",
        ),
        (
            conditions("v1", "overrides", with(condition, "/status", json!("Maybe"))),
            "spec.overrides[0].status",
        ),
        (config("500ms"), interval),
        (config("-1h"), interval),
        (config(""), interval),
    ])
}

#[test]
fn objects_of_the_catalog_side_without_what_they_need_are_refused() -> Result<()> {
    let source = |field: &str, value: Value| {
        let spec = json!({"sourceType": "grpc"});
        let spec = with(spec, &format!("/{field}"), value);
        object("v1alpha1", "CatalogSource", "refused", json!({"spec": spec}))
    };
    let pod = |config: Value| source("grpcPodConfig", config);
    let subscription = |field: &str, value: Value| {
        let spec = json!({"name": "p", "source": "c", "sourceNamespace": "olm"});
        let spec = with(spec, &format!("/{field}"), value);
        object("v1alpha1", "Subscription", "refused", json!({"spec": spec}))
    };
    let plan = |field: &str| {
        let spec = json!({"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["a"]});
        let spec = with(spec, &format!("/{field}"), Value::Null);
        object("v1alpha1", "InstallPlan", "refused", json!({"spec": spec}))
    };
    refused(vec![
        (source("sourceType", Value::Null), "spec.sourceType"),
        (
            source("icon", json!({"mediatype": "image/png"})),
            "spec.icon.base64data",
        ),
        (
            pod(json!({"securityContextConfig": "none"})),
            "spec.grpcPodConfig.securityContextConfig",
        ),
        (
            pod(json!({"memoryTarget": "much"})),
            "spec.grpcPodConfig.memoryTarget",
        ),
        (
            pod(json!({"extractContent": {"cacheDir": "/c"}})),
            "spec.grpcPodConfig.extractContent.catalogDir",
        ),
        (subscription("name", Value::Null), "spec.name"),
        (subscription("source", Value::Null), "spec.source"),
        (
            subscription("sourceNamespace", Value::Null),
            "spec.sourceNamespace",
        ),
        (
            subscription("config", json!({"env": [{"value": "v"}]})),
            "spec.config.env[0].name",
        ),
        (
            subscription("config", json!({"volumeMounts": [{"name": "v"}]})),
            "spec.config.volumeMounts[0].mountPath",
        ),
        (plan("approval"), "spec.approval"),
        (plan("approved"), "spec.approved"),
        (
            plan("clusterServiceVersionNames"),
            "spec.clusterServiceVersionNames",
        ),
    ])
}
