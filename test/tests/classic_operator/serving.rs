//! Webhooks and aggregated APIs: what the API server calls.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use olm_api::names::field_manager;
use olm_test::objects::api;
use olm_test::world::eventually;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, SOON, Stage, csv, definition, named};

fn webhook(name: &str, deployment: &str) -> Value {
    json!({
        "type": "ValidatingAdmissionWebhook", "generateName": name, "deploymentName": deployment,
        "containerPort": 443, "targetPort": 9443, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore", "webhookPath": "/validate",
        "rules": [{
            "apiGroups": ["serving.example"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["greetings"],
        }],
    })
}

async fn configurations(stage: &Stage, owner: &str) -> Result<Vec<ValidatingWebhookConfiguration>> {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(stage.lab.client.clone());
    let found = all
        .list(&ListParams::default().labels(&format!("olm.owner={owner}")))
        .await?;
    Ok(found.items)
}

#[test]
fn a_webhook_gets_a_service_a_certificate_and_its_registration() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("hooked", json!({}))?;
        let more = json!({"webhookdefinitions": [webhook("vgreeting.serving.example", "hooked-operator")]});
        let version = csv("hooked", "hooked.v1", &more);
        stage.lab.apply(std::slice::from_ref(&version))?;
        let done = stage
            .phase("hooked", "hooked.v1", "Succeeded", "InstallSucceeded")
            .await?;
        ensure!(
            done["status"]["certsRotateAt"].is_string() && done["status"]["certsLastUpdated"].is_string()
        );
        let secret = named("v1", "Secret", "hooked", "hooked-operator-service-cert");
        let secret = stage.get(&secret).await?.context("no certificate")?;
        ensure!(secret["type"] == "kubernetes.io/tls" && secret["data"]["olmCAKey"].is_string());
        let service = named("v1", "Service", "hooked", "hooked-operator-service");
        let service = stage.get(&service).await?.context("no Service")?;
        ensure!(service["spec"]["ports"][0]["targetPort"] == 9443);
        let found = configurations(stage, "hooked.v1").await?;
        ensure!(found.len() == 1, "{} configurations", found.len());
        let found = serde_json::to_value(&found[0])?;
        ensure!(found["webhooks"][0]["clientConfig"]["caBundle"] == secret["data"]["olmCAKey"]);
        let live = named("apps/v1", "Deployment", "hooked", "hooked-operator");
        let live = stage.get(&live).await?.unwrap_or_default();
        let template = &live["spec"]["template"];
        ensure!(
            template["metadata"]["annotations"]["olmcahash"]
                == secret["metadata"]["annotations"]["olmcahash"]
        );
        ensure!(
            template["spec"]["volumes"]
                .as_array()
                .is_some_and(|volumes| volumes.len() == 2)
        );
        stage.delete(&version).await?;
        stage.goes(&version).await?;
        ensure!(
            configurations(stage, "hooked.v1").await?.is_empty(),
            "a webhook stays"
        );
        let binding = named(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            "",
            "hooked-operator-service-system:auth-delegator",
        );
        stage.goes(&binding).await
    })
}

#[test]
fn an_aggregated_api_is_registered_and_removed() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("aggregated", json!({}))?;
        let owned = json!({"apiservicedefinitions": {"owned": [{
            "name": "greetings", "group": "aggregated.example", "version": "v1", "kind": "Greeting",
            "deploymentName": "aggregated-operator", "containerPort": 5443,
        }]}});
        let version = csv("aggregated", "aggregated.v1", &owned);
        stage.lab.apply(std::slice::from_ref(&version))?;
        // Nothing answers behind it.
        let waiting = stage
            .phase("aggregated", "aggregated.v1", "Installing", "InstallWaiting")
            .await?;
        ensure!(waiting["status"]["message"] == "apiServices not installed");
        let registration = named(
            "apiregistration.k8s.io/v1",
            "APIService",
            "",
            "v1.aggregated.example",
        );
        let found = stage.get(&registration).await?.context("it is not registered")?;
        ensure!(found["spec"]["service"]["name"] == "aggregated-operator-service");
        ensure!(found["spec"]["caBundle"].is_string());
        stage.delete(&version).await?;
        stage.goes(&version).await?;
        stage.goes(&registration).await?;
        let reader = named(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "kube-system",
            "aggregated-operator-service-auth-reader",
        );
        stage.goes(&reader).await
    })
}

/// A definition `greetings` of two versions in the group of this name, and the version of an operator that converts it.
fn converted(name: &str) -> Result<(Value, Value)> {
    let mut greetings = definition(name, "greetings", "Greeting");
    let mut second = greetings["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    greetings["spec"]["versions"]
        .as_array_mut()
        .context("versions")?
        .push(second);
    let more = json!({
        "installModes": [{"type": "AllNamespaces", "supported": true}],
        "customresourcedefinitions": {"owned": [
            {"name": format!("greetings.{name}.example"), "version": "v1", "kind": "Greeting"},
        ]},
        "webhookdefinitions": [{
            "type": "ConversionWebhook", "generateName": format!("cjar.{name}.example"),
            "deploymentName": format!("{name}-operator"), "containerPort": 443, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "webhookPath": "/convert",
            "conversionCRDs": [format!("greetings.{name}.example")],
        }],
    });
    Ok((greetings, csv(name, &format!("{name}.v1"), &more)))
}

#[test]
fn a_conversion_webhook_is_written_into_the_definition_alone() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("converted", json!({}))?;
        let (greetings, version) = converted("converted")?;
        stage.lab.apply(std::slice::from_ref(&greetings))?;
        stage.lab.apply(std::slice::from_ref(&version))?;
        stage
            .phase("converted", "converted.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let found = stage.get(&greetings).await?.unwrap_or_default();
        ensure!(found["spec"]["conversion"]["strategy"] == "Webhook");
        ensure!(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] == "object");
        stage.delete(&version).await?;
        stage.goes(&version).await?;
        let found = stage.get(&greetings).await?.context("definitions stay")?;
        ensure!(found["spec"]["conversion"]["strategy"] == "None");
        Ok(())
    })
}

#[test]
fn custom_resources_stay_readable_where_the_bundle_too_has_the_conversion() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("bundled", json!({}))?;
        let (mut greetings, version) = converted("bundled")?;
        // As authors write it. The plan that applies it stays the owner of what the installation leaves as it is.
        greetings["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {
                "namespace": "system", "name": "webhook-service", "path": "/convert", "port": 443,
            }},
        }});
        let by_plan = PatchParams::apply(field_manager::CLASSIC).force();
        api(&stage.lab.client, &greetings)
            .patch("greetings.bundled.example", &by_plan, &Patch::Apply(&greetings))
            .await?;
        stage.lab.kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd/greetings.bundled.example",
        ])?;
        let mut greeting = named("bundled.example/v1", "Greeting", "bundled", "hello");
        greeting["word"] = json!("hello");
        stage.lab.apply(&[greeting])?;
        stage.lab.apply(std::slice::from_ref(&version))?;
        stage
            .phase("bundled", "bundled.v1", "Succeeded", "InstallSucceeded")
            .await?;
        let found = stage.get(&greetings).await?.unwrap_or_default();
        let entries = found["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten();
        let webhook = "/fieldsV1/f:spec/f:conversion/f:webhook";
        let owners = entries.filter(|entry| entry.pointer(webhook).is_some()).count();
        ensure!(owners == 2, "{owners} managers own the webhook: {found:#}");
        let other = [
            "get",
            "--raw",
            "/apis/bundled.example/v2/namespaces/bundled/greetings/hello",
        ];
        ensure!(stage.lab.kubectl(&other).is_err(), "no webhook answers");

        stage.delete(&version).await?;
        stage.goes(&version).await?;
        let found = stage.get(&greetings).await?.context("definitions stay")?;
        ensure!(
            found["spec"]["conversion"] == json!({"strategy": "None"}),
            "{found:#}"
        );
        let read = eventually("the API server converts without the webhook", SOON, async || {
            Ok(stage.lab.kubectl(&other).ok())
        });
        let read: Value = serde_json::from_str(&read.await?)?;
        ensure!(
            read["apiVersion"] == "bundled.example/v2" && read["word"] == "hello",
            "{read}"
        );
        Ok(())
    })
}
