//! The whole output of commands, compared with records. `INSTA_UPDATE=always` writes the records anew.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use olm_test::extensions::{SOON, await_gone};
use olm_test::masks::masked;
use olm_test::world::World;
use serde_json::{Value, json};

use super::{CLUSTER, Ran, VASE, VIAL, olm, trusting};

/// What `--wait` reports of a revision, however fast it is.
const STEPS: [&str; 7] = [
    "resolved ",
    "revision ",
    "vase ",
    "vial ",
    "hint:",
    "warning:",
    "clusterextension/",
];

/// Runs a command, and compares its output with the record of that name.
#[track_caller]
fn record(world: &World, name: &str, line: &str) -> Result<()> {
    let ran = run(world, line)?;
    compare(name, line, &ran, &ran.said);
    Ok(())
}

/// The same for a command that waits: of its progress only the steps that each run has.
#[track_caller]
fn record_wait(world: &World, name: &str, line: &str) -> Result<()> {
    let ran = run(world, line)?;
    let is_step = |line: &&str| {
        let text = line.trim_start();
        let text = text.split_once("s  ").map_or(text, |(_, text)| text);
        STEPS.iter().any(|step| text.starts_with(step))
    };
    let said: Vec<&str> = ran.said.lines().filter(is_step).collect();
    compare(name, line, &ran, &said.join("\n"));
    Ok(())
}

fn run(world: &World, line: &str) -> Result<Ran> {
    olm(world, &format!("{line} {}", options(world, line)))
}

/// The commands that read catalogs or bundles trust the registry.
fn options(world: &World, line: &str) -> String {
    let reads = ["install", "explain", "plan", "upgrade", "rbac", "search", "show"];
    let verb = line.split(' ').next().unwrap_or_default();
    if reads.contains(&verb) {
        trusting(world)
    } else {
        String::new()
    }
}

#[track_caller]
fn compare(name: &str, line: &str, ran: &Ran, said: &str) {
    let Ran { status, printed, .. } = ran;
    let text = format!("$ olm {line}\n{printed}--- exit status {status}, standard error:\n{said}\n");
    insta::assert_snapshot!(name, masked(&text));
}

/// Waits until the revision is archived: `olm history` shows its state.
async fn archived(world: &World, revision: &str) -> Result<()> {
    world
        .eventually(&format!("{revision} is archived"), SOON, async || {
            let reason = "jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}";
            let found = world.kubectl(&["get", "clusterobjectset", revision, "-o", reason])?;
            Ok((found == "Archived").then_some(()))
        })
        .await
}

/// The reasons of events that each run has, once.
const REASONS: [&str; 7] = [
    "Installed",
    "UpdateAvailable",
    "Upgrading",
    "Upgraded",
    "Downgrading",
    "Downgraded",
    "Uninstalled",
];

/// The rows of `olm events`, sorted: two that are written in the same second have no order.
fn events(world: &World) -> Result<()> {
    let ran = olm(world, "events vase")?.ended(0)?;
    let (head, rows) = ran.printed.split_once('\n').context("a head")?;
    let is_kept = |row: &&str| {
        let reason = row.split_whitespace().nth(2);
        reason.is_some_and(|reason| REASONS.contains(&reason))
    };
    let rows: BTreeSet<String> = rows.lines().filter(is_kept).map(masked).collect();
    let rows: String = rows.into_iter().collect();
    insta::assert_snapshot!("events", format!("$ olm events vase\n{head}\n{rows}"));
    Ok(())
}

#[test]
fn commands_print_what_is_recorded() -> Result<()> {
    CLUSTER.with(async |world| {
        record(world, "search", "search vase")?;
        record(world, "show", "show vase")?;
        record(world, "show_version", "show vase --version 1.1.0")?;
        let image = "jsonpath={.spec.source.image.ref}";
        let catalog = world.kubectl(&["get", "clustercatalog", "vases", "-o", image])?;
        let account = "-n vase --service-account vase-installer";
        record(
            world,
            "rbac",
            &format!("rbac vase --catalog {catalog} --version 1.0.1 {account}"),
        )?;
        record(
            world,
            "rbac_table",
            &format!("rbac vase --catalog {catalog} --version 1.0.1 {account} -o table"),
        )?;
        record(
            world,
            "rbac_name",
            &format!("rbac vase --catalog {catalog} --version 1.0.1 {account} -o name"),
        )?;
        record(world, "install_dry_run", "install vase --version 1.0.1 --dry-run")?;
        record_wait(world, "install_wait", "install vase --version 1.0.1 --yes --wait")?;
        record(world, "get", "get vase")?;
        record(world, "get_name", "get vase -o name")?;
        record(world, "explain", "explain vase")?;
        record(world, "updates", "updates vase")?;
        record(world, "updates_yaml", "updates vase -o yaml")?;
        record(world, "plan", "plan vase --version 1.1.0")?;
        record(world, "upgrade_dry_run", "upgrade vase --version 1.1.0 --dry-run")?;
        record_wait(world, "upgrade_wait", "upgrade vase --version 1.1.0 --wait")?;
        archived(world, "vase-1").await?;
        record(world, "history", "history vase")?;
        record(world, "history_name", "history vase -o name")?;
        record(world, "pin_dry_run", "pin vase --dry-run")?;
        record(world, "pause_name", "pause vase --dry-run -o name")?;
        record(world, "rollback_dry_run", "rollback vase --dry-run")?;
        record(world, "rollback_unasked", "rollback vase")?;
        record_wait(world, "rollback_wait", "rollback vase --yes --wait")?;
        record(world, "upgrade_after_rollback", "upgrade vase")?;
        record(world, "unpin_after_rollback", "unpin vase --dry-run")?;
        record(world, "uninstall_dry_run", "uninstall vase --dry-run")?;
        record_wait(world, "uninstall_wait", "uninstall vase --yes --wait")?;
        await_gone(world, VASE).await?;
        events(world)
    })
}

/// The digest of the change of the vial whose condition has this reason.
async fn waiting(world: &World, reason: &str) -> Result<String> {
    world
        .eventually(&format!("a change of the vial is {reason}"), SOON, async || {
            let listed = world.kubectl(&["get", "pendingchanges", "-o", "json"])?;
            let listed: Value = serde_json::from_str(&listed)?;
            let mut changes = listed["items"].as_array().into_iter().flatten();
            let change = changes.find(|change| {
                let mut conditions = change["status"]["conditions"].as_array().into_iter().flatten();
                change["spec"]["extension"] == VIAL
                    && conditions.any(|condition| condition["reason"] == reason)
            });
            Ok(change.and_then(|change| change["spec"]["digest"].as_str().map(str::to_owned)))
        })
        .await
}

#[test]
fn decisions_print_what_is_recorded() -> Result<()> {
    CLUSTER.with(async |world| {
        olm(
            world,
            &format!("install vial --version 1.0.1 --yes --wait {}", trusting(world)),
        )?
        .ended(0)?;
        record(world, "approve_nothing", "approve vial")?;
        world.kubectl(&["label", "clusterextension", VIAL, "example.com/policy=vial"])?;
        world.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ChangePolicy", "metadata": {"name": VIAL},
            "spec": {
                "selector": {"matchLabels": {"example.com/policy": VIAL}},
                "approval": {"patch": "Manual", "minor": "Manual"},
            },
        })])?;
        olm(
            world,
            &format!("upgrade vial --version 1.1.0 {}", trusting(world)),
        )?
        .ended(0)?;
        let digest = waiting(world, "AwaitingApproval").await?;
        record(world, "approve_unasked", "approve vial")?;
        record(world, "approve_dry_run", "approve vial --dry-run")?;
        record(world, "approve_name", "approve vial --dry-run -o name")?;
        record(world, "reject_dry_run", "reject vial --dry-run")?;
        record(world, "reject", "reject vial --yes --note untested")?;
        waiting(world, "Rejected").await?;
        record(world, "approve_rejected", "approve vial --dry-run")?;
        record_wait(
            world,
            "approve_wait",
            &format!("approve vial --digest {digest} --wait"),
        )?;

        record(world, "resume_unpaused", "resume vial")?;
        olm(world, "pause vial")?.ended(0)?;
        record(world, "resume_dry_run", "resume vial --dry-run")?;
        record(world, "resume_name", "resume vial --dry-run -o name")?;
        record_wait(world, "resume_wait", "resume vial --wait")?;
        world.kubectl(&["delete", "changepolicy", VIAL])?;
        olm(world, "uninstall vial --yes --wait")?.ended(0).map(drop)
    })
}
