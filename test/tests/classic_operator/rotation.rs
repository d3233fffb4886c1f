//! Certificates near their end: the new authority and the old one overlap, so that no call fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{ToSpan as _, Zoned};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use olm_platform::tls::issue::{Issued, Lifetimes, Renew, issue};
use olm_test::cluster::webhook::AllowingWebhook;
use olm_test::world::{eventually, free_address};
use serde_json::{Value, json};

use crate::stage::{CLUSTER, Stage, csv, named};

const PLACE: &str = "rotating";
const OPERATOR: &str = "rotating-operator";

/// A certificate as OLM issued it two years ago.
fn near_its_end() -> Result<Issued> {
    let lifetimes = Lifetimes {
        authority: 730,
        authority_renew: 1,
        serving: 730,
        serving_renew: 1,
    };
    let host = format!("{OPERATOR}-service.{PLACE}");
    let hosts = [
        host.clone(),
        format!("{host}.svc"),
        format!("{host}.svc.cluster.local"),
    ];
    let made = Zoned::now().date().saturating_sub(729.days());
    Ok(issue(None, Renew::Both, &hosts, lifetimes, made)?)
}

async fn configuration(stage: &Stage) -> Result<ValidatingWebhookConfiguration> {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(stage.lab.client.clone());
    let list = ListParams::default().labels("olm.owner=rotating.v1");
    let mut found = all.list(&list).await?.items;
    found.pop().context("there is no configuration")
}

fn text(secret: &Value, key: &str) -> Result<String> {
    let coded = secret["data"][key].as_str().unwrap_or_default();
    Ok(String::from_utf8(STANDARD.decode(coded)?)?)
}

#[test]
fn no_call_fails_while_a_certificate_is_renewed() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let address = free_address()?;
        let port: u16 = address.rsplit(':').next().context("no port")?.parse()?;
        stage.group(PLACE, json!({"targetNamespaces": [PLACE]}))?;
        // No proxy leads from the API server to Pods: the Service leads to this process.
        let mut service = named("v1", "Service", PLACE, &format!("{OPERATOR}-service"));
        service["spec"] = json!({"type": "ExternalName", "externalName": "localhost"});
        stage.lab.apply(std::slice::from_ref(&service))?;
        let webhook = json!({"webhookdefinitions": [{
            "type": "ValidatingAdmissionWebhook", "generateName": "v.rotating.example", "deploymentName": OPERATOR,
            "containerPort": port, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "webhookPath": "/validate",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }]});
        let version = csv(PLACE, "rotating.v1", &webhook);
        stage.lab.apply(std::slice::from_ref(&version))?;
        stage.phase(PLACE, "rotating.v1", "Succeeded", "InstallSucceeded").await?;
        stage.operator.stop().await?;
        let outcome = renewed(stage, port).await;
        // Its webhook refuses everything once no server answers.
        stage.operator.start(&stage.lab.cluster)?;
        stage.delete(&version).await?;
        stage.goes(&version).await?;
        outcome
    })
}

async fn renewed(stage: &mut Stage, port: u16) -> Result<()> {
    let old = near_its_end()?;
    let secret = named("v1", "Secret", PLACE, &format!("{OPERATOR}-service-cert"));
    let data = json!({"data": {
        "tls.crt": STANDARD.encode(old.certificate()), "tls.key": STANDARD.encode(old.key()),
        "olmCAKey": STANDARD.encode(old.trusted()),
    }});
    stage.patch(&secret, &data).await?;
    let all: Api<ValidatingWebhookConfiguration> = Api::all(stage.lab.client.clone());
    let name = configuration(stage).await?.metadata.name.context("no name")?;
    let bundle = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": STANDARD.encode(old.trusted())}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(bundle)?);
    all.patch(&name, &PatchParams::default(), &patch).await?;
    let server = AllowingWebhook::start(port, old.certificate(), old.key()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(stage.lab.client.clone(), PLACE);
    let call = async || {
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "asked-"}}))?;
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        Ok::<_, anyhow::Error>(maps.create(&dry, &map).await?)
    };
    eventually(
        "the old certificate is trusted",
        Duration::from_secs(30),
        async || Ok(call().await.is_ok().then_some(())),
    )
    .await?;
    let (calls, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let load = async {
        let mut failed = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            match call().await {
                Ok(_) => calls.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    failed.push(format!("{error:#}"));
                    0
                }
            };
        }
        failed
    };
    let rotation = async {
        let outcome = rotate(stage, &secret, &server, &old, &calls).await;
        is_over.store(true, Ordering::Relaxed);
        outcome
    };
    let (failed, rotated) = futures::join!(load, rotation);
    rotated?;
    let calls = calls.load(Ordering::Relaxed);
    ensure!(
        failed.is_empty(),
        "{} of {calls} calls failed: {:?}",
        failed.len(),
        failed.first()
    );
    Ok(())
}

/// Starts the operator, which renews the certificate, and has the server read it as Pods do: some time later.
async fn rotate(
    stage: &mut Stage,
    secret: &Value,
    server: &AllowingWebhook,
    old: &Issued,
    calls: &AtomicUsize,
) -> Result<()> {
    stage.operator.start(&stage.lab.cluster)?;
    let renewed = stage
        .becomes("the certificate is renewed", secret, |secret| {
            text(secret, "tls.crt").is_ok_and(|found| found != old.certificate())
        })
        .await?;
    let configuration = serde_json::to_value(configuration(stage).await?)?;
    let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
    ensure!(
        *bundle == renewed["data"]["olmCAKey"],
        "the API server trusts something else"
    );
    let trusted = text(&renewed, "olmCAKey")?;
    ensure!(trusted.matches("BEGIN CERTIFICATE").count() == 2, "{trusted}");
    ensure!(
        trusted.trim_end().ends_with(old.trusted().trim_end()),
        "the old authority is not trusted"
    );
    more(calls).await?;
    server.replace(&text(&renewed, "tls.crt")?, &text(&renewed, "tls.key")?)?;
    more(calls).await?;
    stage
        .phase(PLACE, "rotating.v1", "Succeeded", "InstallSucceeded")
        .await?;
    let live = named("apps/v1", "Deployment", PLACE, OPERATOR);
    // The phase may still be the one of before the renewal.
    stage
        .becomes(
            "the Deployment has the hash of the new authority",
            &live,
            |live| {
                let hash = &live["spec"]["template"]["metadata"]["annotations"]["olmcahash"];
                *hash == renewed["metadata"]["annotations"]["olmcahash"]
            },
        )
        .await?;
    more(calls).await
}

/// Waits for more calls.
async fn more(calls: &AtomicUsize) -> Result<()> {
    let before = calls.load(Ordering::Relaxed);
    eventually("there are more calls", Duration::from_secs(30), async || {
        Ok((calls.load(Ordering::Relaxed) >= before + 20).then_some(()))
    })
    .await
}
