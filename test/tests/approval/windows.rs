//! Windows, freezes, and policies that cannot be used.

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::{PROGRESSING, find};
use olm_test::extensions::{SOON, await_version, installed_version, merge, revisions};
use olm_test::world::World;
use serde_json::json;

use super::{CLUSTER, apply, change, held_back_by, install_and_update, own_name, policy, publish, ready};

/// The 30th of February.
const NEVER: &str = "0 0 30 2 *";

#[test]
fn a_change_begins_only_while_a_window_is_open_and_nothing_is_frozen() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "windowed";
        let window =
            |schedule: &str| json!({ "schedule": schedule, "duration": "2m", "timeZone": "Europe/Berlin" });
        publish(world, name, &["1.0.0", "1.0.1"]).await?;
        policy(world, name, &json!({ "freeze": true }))?;
        apply(world, name, "1.0.x")?;
        let frozen = ready(world, name, "False", "Frozen", "freezes all changes").await?;
        ensure!(frozen.status.is_some_and(|status| status.install.is_none()));
        policy(world, name, &json!({ "windows": [window(NEVER)] }))?;
        ready(world, name, "False", "Blocked", "no window of ChangePolicy").await?;
        // With an open window, the pending change continues automatically.
        policy(
            world,
            name,
            &json!({ "windows": [window(NEVER), window("* * * * *")] }),
        )?;
        await_version(world, name, "1.0.1").await.map(drop)
    })
}

#[test]
fn an_approved_update_waits_for_its_window() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "scheduled";
        let closed = json!([{ "schedule": "0 3 1 1 *", "duration": "1h", "timeZone": "UTC" }]);
        let open = json!([{ "schedule": "* * * * *", "duration": "5m" }]);
        let rules =
            |windows: &serde_json::Value| json!({ "approval": { "patch": "Manual" }, "windows": windows });
        install_and_update(world, name, &rules(&open)).await?;
        change(world, name, "1.0.1", "AwaitingApproval").await?;
        policy(world, name, &rules(&closed))?;
        let user = own_name(world)?;
        let pending = change(world, name, "1.0.1", "AwaitingApproval").await?;
        let decision = json!({ "spec": { "decision": { "verdict": "Approved", "approver": user } } });
        let decision = decision.to_string();
        world.kubectl(&[
            "patch",
            "pendingchange",
            pending.name(),
            "--type=merge",
            "-p",
            &decision,
        ])?;
        let held = world
            .eventually("it waits for the window", SOON, async || {
                let extension = ready(world, name, "True", "Healthy", "01-01T03:00:00Z").await?;
                Ok((held_back_by(&extension) == Some("Window")).then_some(extension))
            })
            .await;
        ensure!(held.is_ok(), "{held:?}");
        change(world, name, "1.0.1", "AwaitingWindow").await?;
        policy(world, name, &rules(&open))?;
        await_version(world, name, "1.0.1").await.map(drop)
    })
}

/// The number of available Pods of the operator.
fn available(world: &World, name: &str) -> Result<String> {
    let deployment = format!("{name}-operator");
    let number = "jsonpath={.status.availableReplicas}";
    world.kubectl(&["get", "deployment", &deployment, "-n", name, "-o", number])
}

#[test]
fn a_rollout_that_has_begun_finishes_outside_its_window() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "begun";
        let closed = json!({ "windows": [{ "schedule": "0 3 1 1 *", "duration": "1h", "timeZone": "UTC" }] });
        let open = json!({ "windows": [{ "schedule": "* * * * *", "duration": "5m" }] });
        publish(world, name, &["1.0.0"]).await?;
        policy(world, name, &open)?;
        apply(world, name, "1.x")?;
        await_version(world, name, "1.0.0").await?;
        // Without Pods, the rollout of the next version does not end.
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "no-pods", "namespace": name },
            "spec": { "hard": { "pods": "0" } },
        });
        world.apply(&[quota])?;
        world.kubectl(&[
            "delete",
            "pods",
            "--all",
            "-n",
            name,
            "--force",
            "--grace-period=0",
        ])?;
        world
            .eventually("no Pod is available", SOON, async || {
                let number = available(world, name)?;
                Ok(matches!(number.as_str(), "" | "0").then_some(()))
            })
            .await?;
        publish(world, name, &["1.0.0", "1.0.1"]).await?;
        let second = format!("{name}-2");
        world
            .eventually("the rollout begins", SOON, async || {
                Ok(revisions(world).get_opt(&second).await?.map(drop))
            })
            .await?;
        policy(world, name, &closed)?;
        let look = json!({ "metadata": { "annotations": { "example.com/look": "again" } } });
        merge(world, name, look).await?;
        let unfinished = world
            .eventually("the rollout continues", SOON, async || {
                let extension = olm_test::extensions::extensions(world).get(name).await?;
                let rolling =
                    find(extension.conditions(), PROGRESSING).context("no condition Progressing")?;
                ensure!(rolling.reason == "RollingOut", "{rolling:?}");
                Ok(Some(extension))
            })
            .await?;
        ensure!(installed_version(&unfinished) == Some("1.0.0"), "{unfinished:?}");
        world.kubectl(&["delete", "resourcequota", "no-pods", "-n", name])?;
        world
            .eventually("it finishes outside the window", SOON, async || {
                let again = format!("again={}", jiff::Timestamp::now().as_millisecond());
                let sets = [
                    "annotate",
                    "replicasets",
                    "--all",
                    "-n",
                    name,
                    "--overwrite",
                    &again,
                ];
                world.kubectl(&sets)?;
                let extension = olm_test::extensions::extensions(world).get(name).await?;
                Ok((installed_version(&extension) == Some("1.0.1")).then_some(()))
            })
            .await?;
        await_version(world, name, "1.0.1").await?;
        publish(world, name, &["1.0.0", "1.0.1", "1.1.0"]).await?;
        let held = world
            .eventually("the version after it waits for the window", SOON, async || {
                let extension = ready(world, name, "True", "Healthy", "01-01T03:00:00Z").await?;
                Ok((held_back_by(&extension) == Some("Window")).then_some(extension))
            })
            .await?;
        ensure!(installed_version(&held) == Some("1.0.1"), "{held:?}");
        Ok(())
    })
}

#[test]
fn a_policy_that_cannot_be_used_says_so_and_holds_changes_back() -> Result<()> {
    CLUSTER.with(async |world| {
        let name = "mistaken";
        let window = json!([{ "schedule": "0 25 * * *", "duration": "1h" }]);
        install_and_update(world, name, &json!({})).await?;
        await_version(world, name, "1.0.1").await?;
        policy(world, name, &json!({ "windows": window }))?;
        world.kubectl(&[
            "wait",
            "--for=condition=Stalled",
            "--timeout=60s",
            "changepolicy/mistaken",
        ])?;
        let text = world.kubectl(&["get", "changepolicy", name, "--no-headers"])?;
        ensure!(text.contains("False") && text.contains("Invalid"), "{text}");
        olm_test::extensions::patch_source(
            world,
            name,
            json!({ "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified" }),
        )
        .await?;
        ready(
            world,
            name,
            "False",
            "Blocked",
            "ChangePolicy \"mistaken\" cannot be used",
        )
        .await?;
        policy(world, name, &json!({ "windows": [] }))?;
        await_version(world, name, "1.0.0").await.map(drop)
    })
}
