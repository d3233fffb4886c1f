//! Operators that need each other move in one call, there and back, while the programs of OLM classic run.

use std::time::Duration;

use anyhow::{Result, ensure};
use olm_test::extensions::{administrator, await_version, catalog};
use serde_json::{Value, json};

use super::course::{pods, unchanged};
use super::olm;
use super::running::{CLUSTER, Operator, Stage, subscription};

const PLACE: &str = "carts";
/// The operators: Subscription, and what its bundle requires. OLM classic makes the last two Subscriptions itself.
const CART: [&str; 2] = ["cart", "wheel"];
const AXLE: [&str; 2] = ["axle-stable-shop-carts", "wheel"];
const WHEEL: [&str; 2] = ["wheel-stable-shop-carts", "axle"];

const fn operator(package: &'static str, version: &'static str, definition: &'static str) -> Operator {
    Operator {
        package,
        namespace: PLACE,
        version,
        definition,
    }
}

const OPERATORS: [Operator; 3] = [
    operator("cart", "cart.v1.0.0", "greetings.cart.olm.example"),
    operator("axle", "axle.v1.0.0", "greetings.axle.olm.example"),
    operator("wheel", "wheel.v1.0.0", "greetings.wheel.olm.example"),
];

/// Installs `cart` with its dependencies.
async fn install(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let mut blobs = String::new();
    for (package, needed) in [("cart", CART[1]), ("axle", AXLE[1]), ("wheel", WHEEL[1])] {
        let text = world
            .push_bundles(package, &["1.0.0"], "sample-operator:v1")
            .await?;
        for blob in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let mut blob = blob?;
            if blob["schema"] == "olm.bundle"
                && let Some(properties) = blob["properties"].as_array_mut()
            {
                properties.push(json!({"type": "olm.package.required", "value": {
                    "packageName": needed, "versionRange": ">=1.0.0",
                }}));
            }
            blobs.push_str(&format!("{blob}\n"));
        }
    }
    let image = world.push_catalog("carts:latest", &blobs).await?;
    world.apply(&administrator(PLACE, "installer"))?;
    world.apply(&[catalog("carts", &image)])?;
    world.apply(&subscription(PLACE, "cart", "stable", &image))?;
    world.kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", "ccat/carts"])?;
    stage.approves(OPERATORS[0]).await?;
    rests(stage).await
}

/// Waits until OLM classic is done with all of them.
async fn rests(stage: &Stage) -> Result<()> {
    for operator in OPERATORS {
        let version = format!("csv/{}", operator.version);
        stage
            .shows(operator, &version, ".status.phase", "Succeeded")
            .await?;
    }
    for [subscription, _] in [CART, AXLE, WHEEL] {
        let named = format!("subscription/{subscription}");
        stage
            .shows(OPERATORS[0], &named, ".status.state", "AtLatestKnown")
            .await?;
    }
    Ok(())
}

#[test]
fn operators_that_need_each_other_move_together_there_and_back() -> Result<()> {
    CLUSTER.with(async |stage| {
        let world = &stage.world;
        install(stage).await?;
        let mut parts = Vec::new();
        for operator in OPERATORS {
            parts.push((operator, stage.objects(operator)?));
        }
        let seen = || -> Result<Vec<_>> {
            let parts = parts.iter();
            parts
                .map(|(operator, objects)| stage.seen(*operator, objects))
                .collect()
        };
        let (before, running) = (seen()?, pods(world, PLACE)?);
        let is_same = || -> Result<()> {
            for (before, after) in before.iter().zip(seen()?) {
                unchanged(before, &after)?;
            }
            ensure!(pods(world, PLACE)? == running, "Pods are made anew");
            Ok(())
        };
        ensure!(running.lines().count() == 3, "{running}");

        let all = format!("{} {} {}", AXLE[0], WHEEL[0], CART[0]);
        let account = "--service-account installer --yes";
        for one in [CART[0], WHEEL[0]] {
            olm(world, &format!("migrate {one} -n {PLACE} {account}"))?
                .ended(1)?
                .shows(&[
                    "blocked (dependency)",
                    &format!("move them in one call: `olm migrate {all} -n {PLACE}`"),
                ])?;
        }
        olm(world, &format!("migrate --all -n {PLACE} --dry-run {account}"))?
            .ended(0)?
            .shows(&[&format!(
                "moves together with {PLACE}/{}, {PLACE}/{}",
                AXLE[0], WHEEL[0]
            )])?;

        olm(
            world,
            &format!("migrate {all} -n {PLACE} {account} --wait --timeout 2m"),
        )?
        .ended(0)?;
        for [subscription, _] in [CART, AXLE, WHEEL] {
            await_version(world, subscription, "1.0.0").await?;
        }
        // Whatever OLM classic still wants to do, it does within that time.
        tokio::time::sleep(Duration::from_secs(5)).await;
        is_same()?;
        let left = stage.left(OPERATORS[0], "name")?;
        ensure!(left.is_empty(), "{left}");

        olm(world, &format!("migrate cart -n {PLACE} --back --yes"))?
            .ended(1)?
            .shows(&[
                &format!(
                    "requires package \"wheel\" of the former Subscription {PLACE}/{}",
                    WHEEL[0]
                ),
                "give both back in one call",
            ])?;
        olm(world, &format!("migrate {all} -n {PLACE} --back --yes"))?.ended(0)?;
        rests(stage).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        is_same()?;
        let there = stage.left(OPERATORS[0], "name")?;
        ensure!(there.lines().count() == 6, "{there}");
        let plans = world.kubectl(&["get", "installplans", "-n", PLACE, "-o", "name"])?;
        ensure!(plans.is_empty(), "{plans}");

        olm(
            world,
            &format!("migrate --all -n {PLACE} {account} --wait --timeout 2m"),
        )?
        .ended(0)?;
        is_same()?;
        let left = stage.left(OPERATORS[0], "name")?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
}
