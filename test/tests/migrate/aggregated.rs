//! An operator with an aggregated API moves there and back while the programs of OLM classic run, and is upgraded
//! afterwards. The API server forwards requests to it all the time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kube::Client;
use olm_test::cluster::webhook::AggregatedApi;
use olm_test::samples;
use olm_test::world::{eventually, free_address};

use super::called::{Before, Called, Calls, decoded};
use super::olm;
use super::running::{CLUSTER, Operator};

const SERVED: Called = Called {
    operator: Operator {
        package: "served",
        namespace: "served",
        version: "served.v1.5.0",
        definition: "greetings.served.olm.example",
    },
    channel: "aggregated",
    versions: samples::WITH_AGGREGATED_ALONE,
    check: "aggregated-apis",
    port: "containerPort: 9443",
};
const GROUP: &str = "served.served.olm.example";
const REGISTRATION: &str = "v1.served.served.olm.example";

/// Lists the objects of the aggregated API.
async fn call(client: Client) -> Result<()> {
    let path = format!("/apis/{GROUP}/v1/salutations");
    let found: serde_json::Value = client.request(Request::get(path).body(Vec::new())?).await?;
    ensure!(found["kind"] == "SalutationList", "{found}");
    Ok(())
}

#[test]
fn an_operator_with_an_aggregated_api_moves_there_and_back_and_is_upgraded_while_it_answers() -> Result<()> {
    CLUSTER.with(async |stage| {
        let (world, place) = (&stage.world, SERVED.operator.namespace);
        let port: u16 = free_address()?.rsplit(':').next().context("no port")?.parse()?;
        SERVED.subscribe(stage, port).await?;
        stage.approves(SERVED.operator).await?;
        // OLM classic waits until the API answers, and the server needs the certificate that OLM classic makes.
        let made = eventually("there is a certificate", Duration::from_secs(120), async || {
            Ok(SERVED.secret(stage).ok())
        })
        .await?;
        let key = made["data"]["tls.key"].as_str().context("no key")?.to_owned();
        let (certificate, decoded_key) = (decoded(&made, "tls.crt")?, decoded(&made, "tls.key")?);
        let _server = AggregatedApi::start(
            port,
            [&certificate, &decoded_key],
            [GROUP, "salutations", "Salutation"],
        )
        .await?;
        stage.rests(SERVED.operator).await?;
        eventually("the API answers", Duration::from_secs(60), async || {
            Ok(call(world.client.clone()).await.is_ok().then_some(()))
        })
        .await?;
        let objects = stage.objects(SERVED.operator)?;
        for kind in ["Secret", "Service", "APIService", "ClusterRoleBinding"] {
            ensure!(objects.iter().any(|[found, _]| found == kind), "{objects:?}");
        }
        let before = Before::of(stage, &SERVED, &objects)?;
        let calls = Calls::start(world.client.clone(), call);

        olm(
            world,
            "migrate served -n served --service-account installer --yes",
        )?
        .ended(1)?
        .shows(&[
            "to acknowledge (aggregated-apis): the certificate of the aggregated APIs is valid until 20",
        ])?;
        SERVED
            .moves(stage, &objects, &before.seen, &before.running)
            .await?;
        SERVED.hides_the_key(stage, &key).await?;
        SERVED.returns(stage, &objects, &before).await?;
        SERVED
            .moves(stage, &objects, &before.seen, &before.running)
            .await?;
        let registered = stage.json(&["apiservice", REGISTRATION])?;
        let renewed = SERVED.upgraded(stage, &made, port, (calls, 0)).await?;
        let after = stage.json(&["apiservice", REGISTRATION])?;
        ensure!(
            after["metadata"]["uid"] == registered["metadata"]["uid"],
            "it is another APIService"
        );
        ensure!(
            after["spec"]["caBundle"] == renewed["data"]["ca.crt"],
            "the APIService trusts another authority"
        );
        let bindings = world.kubectl(&["get", "clusterrolebindings", "-o", "name"])?;
        let of_classic = format!("{place}-operator-service-system:auth-delegator");
        ensure!(!bindings.contains(&of_classic), "{bindings}");
        call(world.client.clone()).await
    })
}
