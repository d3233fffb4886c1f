//! `olm migrate` dies before or after each of its writes, there and back, and is run again: the end is that of a move
//! without faults, and every object stays the same object.
//!
//! `FAULTS=all` (`make faults`) tries every call; without it the test tries some.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use olm_test::extensions::{administrator, await_version, catalog};
use olm_test::faults::{Call, Fault, Plan, Proxy};
use olm_test::world::{World, binary};
use serde_json::{Value, json};

use super::course::{pods, unchanged};
use super::olm_as;
use super::running::{CLUSTER, Operator, Stage, subscription};

/// Without `FAULTS=all` every so manieth call is tried.
const EVERY: usize = 15;
/// The time limits of all calls and of some.
const WHOLE: Duration = Duration::from_secs(4 * 3600);
const SOME: Duration = Duration::from_secs(900);
/// The operator; its Subscription and its namespace have the same name.
const NAME: &str = "crashed";
const OPERATOR: Operator = Operator {
    package: NAME,
    namespace: NAME,
    version: "crashed.v1.0.0",
    definition: "greetings.crashed.olm.example",
};
const THERE: &str = "migrate crashed -n crashed --service-account installer --yes --wait --timeout 2m";
const BACK: &str = "migrate crashed -n crashed --back --yes";
/// The time in which a command ends.
const LIMIT: Duration = Duration::from_secs(180);

async fn install(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let image = world.publish(NAME, &["1.0.0"], "sample-operator:v1").await?;
    world.apply(&administrator(NAME, "installer"))?;
    world.apply(&[catalog("crashed-catalog", &image)])?;
    world.apply(&subscription(NAME, NAME, "stable", &image))?;
    let served = [
        "--for=condition=Serving",
        "--timeout=120s",
        "ccat/crashed-catalog",
    ];
    world.kubectl(&[&["wait"][..], &served].concat())?;
    stage.installs(OPERATOR).await
}

/// The kubeconfig of an administrator behind the proxy, which takes tokens.
fn kubeconfig(world: &World, proxy: &Proxy) -> Result<PathBuf> {
    let token = world.kubectl(&["create", "token", "installer", "-n", NAME, "--duration=8h"])?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "faults",
        "clusters": [{"name": "faults", "cluster": {"server": proxy.url()}}],
        "users": [{"name": "faults", "user": {"token": token.trim()}}],
        "contexts": [{"name": "faults", "context": {"cluster": "faults", "user": "faults"}}],
    });
    let path = world.folder().join("faults.kubeconfig");
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

/// What the move and the way back leave, without what differs each time.
fn end(stage: &Stage, objects: &[[String; 2]]) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for [kind, name] in objects {
        let live = stage.json(&[kind, name, "-n", NAME, "--show-managed-fields"])?;
        let metadata = &live["metadata"];
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owners: Vec<Value> = owners
            .map(|owner| json!([owner["kind"], owner["name"], owner["controller"]]))
            .collect();
        let writers = metadata["managedFields"].as_array().into_iter().flatten();
        let mut writers: Vec<String> = writers
            .map(|entry| {
                format!(
                    "{} {} {}",
                    entry["manager"], entry["operation"], entry["subresource"]
                )
            })
            .collect();
        writers.sort();
        all.insert(
            format!("{kind} {name}"),
            json!([metadata["labels"], metadata["annotations"], owners, writers]),
        );
    }
    let own = stage.json(&["subscriptions,csv,configmaps", "-n", NAME])?;
    let cluster = stage.json(&["cext,cos"])?;
    let kept = stage.json(&["secrets", "-n", "olmv1-system"])?;
    let items = [own, cluster, kept].map(|list| list["items"].as_array().cloned().unwrap_or_default());
    for found in items.concat() {
        let metadata = &found["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        if !name.contains(NAME) || metadata["labels"]["olm.copiedFrom"].is_string() {
            continue;
        }
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        let names: Vec<&String> = annotations.map(|(key, _)| key).collect();
        let of_subscription = (found["kind"] == "Subscription").then(|| &found["spec"]);
        // The name of a content Secret has a hash of its content, which names no UID.
        let state = json!([
            names,
            metadata["finalizers"],
            of_subscription,
            found["status"]["phase"]
        ]);
        all.insert(format!("{} {name}", found["kind"]), state);
    }
    Ok(all)
}

/// A command behind the proxy.
struct Faults<'a> {
    stage: &'a Stage,
    proxy: &'a Proxy,
    kubeconfig: &'a Path,
    objects: &'a [[String; 2]],
    before: BTreeMap<String, Value>,
    running: String,
}

impl Faults<'_> {
    /// Runs a command without faults: the number of its writes, and its end.
    async fn undisturbed(&self, line: &str) -> Result<(usize, BTreeMap<String, Value>)> {
        self.proxy.follow(Plan::undisturbed(NAME));
        let (calls, _) = {
            olm_as(&self.stage.world, self.kubeconfig, line)?.ended(0)?;
            self.proxy.progress()
        };
        self.proxy.follow(Plan::default());
        Ok((calls, self.ended(line).await?))
    }

    /// Waits until both sides are done, and sees that nothing but bookkeeping has changed.
    async fn ended(&self, line: &str) -> Result<BTreeMap<String, Value>> {
        if line == BACK {
            self.stage.rests(OPERATOR).await?;
        } else {
            await_version(&self.stage.world, NAME, "1.0.0").await?;
        }
        unchanged(&self.before, &self.stage.seen(OPERATOR, self.objects)?)?;
        ensure!(
            pods(&self.stage.world, NAME)? == self.running,
            "Pods are made anew"
        );
        end(self.stage, self.objects)
    }

    /// Runs a command that dies at a write, and runs it again.
    async fn disturbed(&self, line: &str, plan: Plan, wanted: &BTreeMap<String, Value>) -> Result<bool> {
        self.proxy.follow(plan);
        let mut child = tokio::process::Command::new(binary("olm")?)
            .args(line.split_whitespace())
            .current_dir(self.stage.world.folder())
            .env("KUBECONFIG", self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        tokio::select! {
            () = self.proxy.crash() => {}
            ended = child.wait() => {
                ended?;
            }
            () = tokio::time::sleep(LIMIT) => {}
        }
        let is_met = self.proxy.has_crashed();
        child.kill().await.ok();
        if is_met {
            self.proxy.recover();
        }
        self.proxy.follow(Plan::default());
        unchanged(&self.before, &self.stage.seen(OPERATOR, self.objects)?)?;
        olm_as(&self.stage.world, self.kubeconfig, line)?.ended(0)?;
        // Conditions follow.
        let mut found = self.ended(line).await?;
        for _ in 0..50 {
            if found == *wanted {
                return Ok(is_met);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            found = self.ended(line).await?;
        }
        let calls: Vec<String> = self.proxy.calls(NAME).iter().map(Call::line).collect();
        let keys: std::collections::BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
        let differing = keys.into_iter().filter(|key| found.get(*key) != wanted.get(*key));
        let differing: Vec<String> = differing
            .map(|key| format!("{key}: {:?}, not {:?}", found.get(key), wanted.get(key)))
            .collect();
        anyhow::bail!("{}\ncalls:\n{}", differing.join("\n"), calls.join("\n"))
    }
}

#[test]
fn a_move_that_dies_at_a_write_ends_like_one_that_does_not() -> Result<()> {
    let (every, limit) = match std::env::var("FAULTS").as_deref() {
        Ok("all") => (1, WHOLE),
        _ => (EVERY, SOME),
    };
    CLUSTER.with_limit(limit, async |stage| {
        let world = &stage.world;
        install(stage).await?;
        let proxy = Proxy::start(&world.cluster, Arc::new(|_| async {}.boxed())).await?;
        let kubeconfig = kubeconfig(world, &proxy)?;
        let objects = stage.objects(OPERATOR)?;
        let faults = Faults {
            stage,
            proxy: &proxy,
            kubeconfig: &kubeconfig,
            objects: &objects,
            before: stage.seen(OPERATOR, &objects)?,
            running: pods(world, NAME)?,
        };
        ensure!(!faults.running.is_empty(), "no Pod runs");
        let there = faults.undisturbed(THERE).await?;
        let back = faults.undisturbed(BACK).await?;
        let (mut out, mut tried, mut met) = (std::io::stdout(), [0, 0], [0, 0]);
        let calls = [there.0, back.0];
        writeln!(out, "{} calls there, {} back", calls[0], calls[1])?;
        for call in (1..=calls[0].max(calls[1])).step_by(every) {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                for (index, (line, (count, wanted))) in
                    [(THERE, &there), (BACK, &back)].into_iter().enumerate()
                {
                    if call > *count {
                        olm_as(world, &kubeconfig, line)?.ended(0)?;
                        faults.ended(line).await?;
                        continue;
                    }
                    let plan = Plan::at(NAME, call, fault);
                    let outcome = faults.disturbed(line, plan, wanted).await;
                    let is_met = outcome.with_context(|| format!("{line}: {call}: {fault}"))?;
                    writeln!(out, "{line}: {call}: {fault}: ok")?;
                    tried[index] += 1;
                    met[index] += usize::from(is_met);
                }
                proxy.forget(NAME);
            }
        }
        writeln!(
            out,
            "| migrate there | {} | {} | {} |\n| migrate back | {} | {} | {} |",
            calls[0], tried[0], met[0], calls[1], tried[1], met[1]
        )?;
        ensure!(met.iter().all(|met| *met > 0), "no fault happened");
        Ok(())
    })
}
