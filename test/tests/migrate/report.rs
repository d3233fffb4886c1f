//! Reports before anything is written.

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::catalog;
use olm_test::masks::masked;
use olm_test::world::World;
use serde_json::{Value, json};

use super::{BLOCKED, CLUSTER, MOVABLE, olm, versions};

#[test]
fn a_dry_run_says_what_can_move_and_what_blocks_the_rest_and_writes_nothing() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        let before = versions(world)?;
        olm(world, "migrate --all --dry-run")?.ended(1)?.shows(&[
            "NAMESPACE  SUBSCRIPTION  PACKAGE  INSTALLED  CAN MOVE",
            "movable    movable       movable  1.0.0      after 1 to acknowledge",
            "blocked    blocked       blocked  1.0.0      no, 1 to fix",
            "blocked (catalog): no ClusterCatalog has the image",
            "to acknowledge (service-account)",
            "spec.startingCSV movable.v1.0.0 -> dropped",
            "OperatorGroup all targets [] -> no watchNamespace: all namespaces",
            "registryPoll.interval 45m -> ClusterCatalog spec.source.image.pollIntervalMinutes 45",
        ])?;
        let ran = olm(world, "migrate --all --dry-run --service-account cook -o json")?.ended(1)?;
        let report: Value = serde_json::from_str(&ran.printed)?;
        let found: Vec<(&str, bool)> = report["subscriptions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| (one["name"].as_str().unwrap_or_default(), one["canMove"] == true))
            .filter(|(name, _)| [BLOCKED, MOVABLE].contains(name))
            .collect();
        ensure!(found == [(BLOCKED, false), (MOVABLE, true)], "{found:?}");
        let blocked = report["subscriptions"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == BLOCKED));
        ensure!(
            blocked.is_some_and(|blocked| blocked["findings"][0]["check"] == "catalog"),
            "{report}"
        );
        olm(
            world,
            "migrate movable -n movable --dry-run --acknowledge service-account",
        )?
        .ended(0)?
        .shows(&["acknowledged (service-account)"])?;
        recorded(world)?;
        ensure!(versions(world)? == before, "a dry run has written");

        // The API server accepts the printed objects.
        let printed = olm(
            world,
            "migrate blocked -n blocked --dry-run --service-account cook -o yaml",
        )?
        .ended(1)?;
        let path = world.folder().join("blocked.yaml");
        std::fs::write(&path, &printed.printed)?;
        let applied = world.kubectl(&["apply", "--dry-run=server", "-f", &path.display().to_string()])?;
        ensure!(
            applied.contains("clustercatalog.olm.operatorframework.io/blocked-source created")
                && applied.contains("clusterextension.olm.operatorframework.io/blocked created"),
            "{applied}"
        );
        ensure!(versions(world)? == before, "a dry run has written");
        olm(world, "migrate nothing -n movable --dry-run")?
            .ended(1)?
            .shows(&[
                "Subscription \"nothing\" not found in namespace \"movable\"",
                "hint: ",
            ])?;
        Ok(())
    })
}

/// The whole output, compared with records.
fn recorded(world: &World) -> Result<()> {
    for (name, line) in [
        ("movable", "migrate movable -n movable --dry-run"),
        (
            "movable_account",
            "migrate movable -n movable --dry-run --service-account cook",
        ),
        (
            "movable_yaml",
            "migrate movable -n movable --dry-run --service-account cook -o yaml",
        ),
        (
            "movable_name",
            "migrate movable -n movable --dry-run --service-account cook -o name",
        ),
        (
            "movable_unasked",
            "migrate movable -n movable --service-account cook",
        ),
        ("blocked", "migrate blocked -n blocked --dry-run"),
        ("unknown", "migrate nothing -n movable --dry-run"),
    ] {
        let ran = olm(world, line)?;
        let text = format!(
            "$ olm {line}\n{}--- exit status {}, standard error:\n{}\n",
            ran.printed, ran.status, ran.said
        );
        insta::assert_snapshot!(name, masked(&text));
    }
    Ok(())
}

#[test]
fn everything_that_blocks_is_said_at_once() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let world = &stage.world;
        let image = world.kubectl(&[
            "get",
            "catsrc",
            "-n",
            "olm",
            "blocked-source",
            "-o",
            "jsonpath={.spec.image}",
        ])?;
        let second = json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"name": "second", "namespace": BLOCKED}, "spec": {},
        });
        world.apply(&[second])?;
        let pending = json!({"status": {"state": "UpgradePending"}}).to_string();
        let patch = [
            "patch",
            "subscription",
            BLOCKED,
            "-n",
            BLOCKED,
            "--subresource=status",
            "--type=merge",
            "-p",
            &pending,
        ];
        world.kubectl(&patch)?;
        olm(world, "migrate blocked -n blocked --dry-run")?
            .ended(1)?
            .shows(&[
                "no, 3 to fix",
                "blocked (state): the state of the Subscription is UpgradePending, not AtLatestKnown",
                "blocked (operator-group): namespace \"blocked\" has 2 OperatorGroups, not one",
                "blocked (catalog): no ClusterCatalog has the image",
            ])?;
        world.kubectl(&["delete", "og", "second", "-n", BLOCKED])?;
        let at_rest = pending.replace("UpgradePending", "AtLatestKnown");
        let mut patch = patch;
        *patch.last_mut().context("the patch")? = &at_rest;
        world.kubectl(&patch)?;
        world.apply(&[catalog("blocked-source", &image)])?;
        world.kubectl(&[
            "wait",
            "--for=condition=Serving",
            "--timeout=120s",
            "ccat/blocked-source",
        ])?;
        olm(
            world,
            "migrate blocked -n blocked --dry-run --service-account cook",
        )?
        .ended(0)?
        .shows(&["blocked    blocked       blocked  1.0.0      yes"])?;
        world.kubectl(&["delete", "ccat", "blocked-source"])?;
        Ok(())
    })
}
