//! An operator with webhooks of all kinds moves there and back while the programs of OLM classic run, and is upgraded
//! afterwards. The API server calls its webhooks all the time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{DynamicObject, PostParams};
use olm_test::cluster::webhook::AllowingWebhook;
use olm_test::objects::api;
use olm_test::samples;
use olm_test::world::{eventually, free_address};
use serde_json::{Value, json};

use super::called::{Before, Called, Calls, decoded};
use super::olm;
use super::running::{CLUSTER, Operator, Stage};

const HOOKED: Called = Called {
    operator: Operator {
        package: "hooked",
        namespace: "hooked",
        version: "hooked.v1.4.0",
        definition: "greetings.hooked.olm.example",
    },
    channel: "converted",
    versions: samples::WITH_WEBHOOKS_ALONE,
    check: "webhooks",
    port: "targetPort: 9443",
};
/// The field manager of conversions that OLM classic writes.
const CONVERSIONS: &str = "olm.operatorframework.io/classic-conversion";
/// The most calls that fail during the upgrade: a new configuration has no authority for a moment.
const AT_START: usize = 3;

/// Creates a custom resource in a dry run, which the validating and the mutating webhook are asked about.
async fn call(client: Client) -> Result<()> {
    let greeting = json!({
        "apiVersion": "hooked.olm.example/v1", "kind": "Greeting",
        "metadata": {"generateName": "asked-", "namespace": HOOKED.operator.namespace}, "spec": {"name": "Ada"},
    });
    let typed: DynamicObject = serde_json::from_value(greeting.clone())?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api(&client, &greeting).create(&dry, &typed).await?;
    Ok(())
}

#[test]
fn an_operator_with_webhooks_moves_there_and_back_and_is_upgraded_while_they_are_called() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        let port: u16 = free_address()?.rsplit(':').next().context("no port")?.parse()?;
        HOOKED.subscribe(stage, port).await?;
        stage.installs(HOOKED.operator).await?;
        let made = HOOKED.secret(stage)?;
        let key = made["data"]["tls.key"].as_str().context("no key")?.to_owned();
        let _server =
            AllowingWebhook::start(port, &decoded(&made, "tls.crt")?, &decoded(&made, "tls.key")?).await?;
        eventually("webhooks are called", Duration::from_secs(60), async || {
            Ok(call(world.client.clone()).await.is_ok().then_some(()))
        })
        .await?;
        let objects = stage.objects(HOOKED.operator)?;
        for kind in [
            "Secret",
            "Service",
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
        ] {
            ensure!(objects.iter().any(|[found, _]| found == kind), "{objects:?}");
        }
        let before = Before::of(stage, &HOOKED, &objects)?;
        let calls = Calls::start(world.client.clone(), call);

        olm(
            world,
            "migrate hooked -n hooked --service-account installer --yes",
        )?
        .ended(1)?
        .shows(&["to acknowledge (webhooks): the certificate of the webhooks is valid until 20"])?;
        HOOKED
            .moves(stage, &objects, &before.seen, &before.running)
            .await?;
        HOOKED.hides_the_key(stage, &key).await?;

        HOOKED.returns(stage, &objects, &before).await?;
        let shown = [
            "get",
            "crd",
            HOOKED.operator.definition,
            "--show-managed-fields",
            "-o",
            "yaml",
        ];
        ensure!(
            world.kubectl(&shown)?.contains(CONVERSIONS),
            "the conversion has another manager"
        );

        HOOKED
            .moves(stage, &objects, &before.seen, &before.running)
            .await?;
        calls.end(0).await?;
        upgraded(stage, &made, port).await
    })
}

/// Upgrades the operator. The new configurations have other names.
async fn upgraded(stage: &Stage, made: &Value, port: u16) -> Result<()> {
    let world = &stage.world;
    let calls = Calls::start(world.client.clone(), call);
    let renewed = HOOKED.upgraded(stage, made, port, (calls, AT_START)).await?;
    let trusted = &renewed["data"]["ca.crt"];
    for (kind, name) in [
        ("validatingwebhookconfigurations", "greetings.hooked.olm.example"),
        ("mutatingwebhookconfigurations", "salutations.hooked.olm.example"),
    ] {
        let found = stage.json(&[kind, name])?;
        ensure!(
            found["webhooks"][0]["clientConfig"]["caBundle"] == *trusted,
            "{kind} trusts another authority"
        );
        eventually(
            "the old configuration is gone",
            Duration::from_secs(60),
            async || {
                let all = world.kubectl(&["get", kind, "-o", "name"])?;
                Ok((all
                    .lines()
                    .filter(|line| line.contains("hooked.olm.example"))
                    .count()
                    == 1)
                    .then_some(()))
            },
        )
        .await?;
    }
    let definition = stage.json(&["crd", HOOKED.operator.definition])?;
    ensure!(
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == *trusted,
        "the conversion trusts another authority"
    );
    call(world.client.clone()).await
}
