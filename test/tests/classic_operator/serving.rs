//! Webhooks and aggregated APIs: what the API server calls.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::stage::{CLUSTER, Stage, csv, definition, named};

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

#[test]
fn a_conversion_webhook_is_written_into_the_definition_alone() -> Result<()> {
    CLUSTER.with(async |stage| {
        stage.group("converted", json!({}))?;
        let mut greetings = definition("converted", "greetings", "Greeting");
        let mut second = greetings["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        second["storage"] = json!(false);
        greetings["spec"]["versions"]
            .as_array_mut()
            .context("versions")?
            .push(second);
        stage.lab.apply(std::slice::from_ref(&greetings))?;
        let more = json!({
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": [
                {"name": "greetings.converted.example", "version": "v1", "kind": "Greeting"},
            ]},
            "webhookdefinitions": [{
                "type": "ConversionWebhook", "generateName": "cjar.converted.example",
                "deploymentName": "converted-operator", "containerPort": 443, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "webhookPath": "/convert",
                "conversionCRDs": ["greetings.converted.example"],
            }],
        });
        let version = csv("converted", "converted.v1", &more);
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
