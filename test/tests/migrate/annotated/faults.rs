//! catalog-operator dies before or after some of its writes during a move by annotation, and goes on after its restart.
//!
//! `FAULTS=all` (`make faults`) tries every call; without it the test tries some.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use olm_test::faults::{Call, Fault, Plan, Proxy};
use olm_test::world::{Options, World};

use super::{MIGRATE, MIGRATE_BACK, annotate, install, operator, serve};
use crate::course::{pods, unchanged};
use crate::running::{Operator, Stage};

const NAME: &str = "struck";
const STRUCK: Operator = operator(NAME, "struck.v1.0.0", "greetings.struck.olm.example");
/// Without `FAULTS=all` every n-th call is tried.
const EVERY: usize = 11;
/// Time limit for a move with a crash.
const LIMIT: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(200);

/// Whether the operator is with OLM v1 and its move at its end.
fn is_there(stage: &Stage) -> Result<bool> {
    let found = ["get", "cext", NAME, "--ignore-not-found", "-o", "yaml"];
    let found = stage.world.kubectl(&found)?;
    Ok(stage.left(STRUCK, "name")?.is_empty()
        && !found.is_empty()
        && !found.contains("olm.operatorframework.io/paused"))
}

/// Whether the operator is with OLM classic and the return at its end.
fn is_back(stage: &Stage) -> Result<bool> {
    let extension = stage
        .world
        .kubectl(&["get", "cext", NAME, "--ignore-not-found"])?;
    let form = "jsonpath={.items[*].status.phase} {.items[*].status.state}";
    let states = stage.left(STRUCK, form)?;
    Ok(extension.is_empty()
        && states.contains("Succeeded")
        && states.contains("AtLatestKnown")
        && !stage
            .left(STRUCK, "yaml")?
            .contains("olm.operatorframework.io/paused"))
}

/// Requests the move or the return, and waits for its end. Starts the program again when it died.
async fn go(stage: &mut Stage, proxy: &Proxy, is_return: bool) -> Result<()> {
    if is_return {
        annotate(&stage.world, "clusterextension/struck", STRUCK, MIGRATE_BACK)?;
    } else {
        annotate(&stage.world, "subscription/struck", STRUCK, MIGRATE)?;
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        if proxy.has_crashed() {
            stage.restart_catalogs(|| proxy.recover())?;
        }
        let is_done = if is_return {
            is_back(stage)?
        } else {
            is_there(stage)?
        };
        if is_done && !proxy.has_crashed() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let calls: Vec<String> = proxy.calls(NAME).iter().map(Call::line).collect();
            anyhow::bail!("no end\n{}\n{}", calls.join("\n"), stage.logs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[test]
fn a_move_by_annotation_continues_after_a_crash_at_a_write() -> Result<()> {
    let every = match std::env::var("FAULTS").as_deref() {
        Ok("all") => 1,
        _ => EVERY,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let world = World::start(Options::default()).await?;
        let proxy = Proxy::start(&world.cluster, Arc::new(|_| async {}.boxed())).await?;
        let mut stage = Stage::behind(world, Some(proxy.url())).await?;
        let image = install(&stage, STRUCK, true).await?;
        serve(&stage.world, NAME, &image)?;
        let objects = stage.objects(STRUCK)?;
        let (before, running) = (stage.seen(STRUCK, &objects)?, pods(&stage.world, NAME)?);
        ensure!(!running.is_empty(), "no Pod runs");
        let mut calls = [0, 0];
        for (count, is_return) in calls.iter_mut().zip([false, true]) {
            proxy.follow(Plan::undisturbed(NAME));
            go(&mut stage, &proxy, is_return).await?;
            *count = proxy.progress().0;
            unchanged(&before, &stage.seen(STRUCK, &objects)?)?;
        }
        let mut out = std::io::stdout();
        writeln!(out, "{} calls there, {} back", calls[0], calls[1])?;
        let mut met = 0;
        for call in (1..=calls[0].max(calls[1])).step_by(every) {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                for is_return in [false, true] {
                    proxy.follow(Plan::at(NAME, call, fault));
                    let gone = go(&mut stage, &proxy, is_return).await;
                    gone.with_context(|| format!("return: {is_return}: {call}: {fault}"))?;
                    met += proxy.progress().1;
                    proxy.follow(Plan::default());
                    unchanged(&before, &stage.seen(STRUCK, &objects)?)?;
                    ensure!(pods(&stage.world, NAME)? == running, "Pods are made anew");
                    writeln!(out, "return: {is_return}: {call}: {fault}: ok")?;
                }
                proxy.forget(NAME);
            }
        }
        ensure!(met > 0, "no fault happened");
        Ok(())
    })
}
