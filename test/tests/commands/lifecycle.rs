//! Commands from an empty cluster to an installed, upgraded, pinned, paused and removed operator.

use anyhow::{Context as _, Result, ensure};
use olm_test::extensions::{await_gone, extensions, installed_version, patch_source};
use olm_test::world::World;
use serde_json::{Value, json};

use super::{CLUSTER, FAN, LAMP, olm, trusting};

#[test]
fn an_operator_is_found_installed_upgraded_pinned_paused_and_removed_by_commands_alone() -> Result<()> {
    CLUSTER.with(async |world| {
        found(world)?;
        installed(world)?;
        blocked_by_a_version(world).await?;
        upgraded_and_pinned(world).await?;
        paused_and_resumed(world)?;
        stuck(world)?;
        removed(world).await
    })
}

fn found(world: &World) -> Result<()> {
    let ca = trusting(world);
    olm(world, &format!("search lamp {ca}"))?
        .ended(0)?
        .prints(&["CATALOG  PACKAGE  DISPLAY NAME", "\nlamps    lamp "])?;
    olm(world, &format!("show lamp {ca}"))?
        .ended(0)?
        .prints(&["package     lamp\ncatalog     lamps\n"])?;
    olm(world, &format!("search {ca}"))?.ended(0)?.prints(&[
        "\nfans     fan ",
        "\nlamps    lamp ",
        "\nvases    vase ",
    ])?;
    olm(world, &format!("search lanp {ca}"))?
        .ended(1)?
        .says(&["hint: did you mean \"lamp\"?"])?;

    // Both packages have the kind Greeting. The one in the catalog of higher priority comes first.
    let first = |priority: i32| -> Result<String> {
        let patch = json!({"spec": {"priority": priority}}).to_string();
        world.kubectl(&["patch", "clustercatalog", "lamps", "--type=merge", "-p", &patch])?;
        let shown = olm(world, &format!("search greeting {ca} -o json"))?.ended(0)?;
        let found: Value = serde_json::from_str(&shown.printed)?;
        let package = found.pointer("/0/package").and_then(Value::as_str);
        Ok(package.unwrap_or_default().to_owned())
    };
    let order = [first(1)?, first(-1)?, first(0)?];
    ensure!(order == [LAMP, FAN, FAN], "{order:?}");
    Ok(())
}

fn installed(world: &World) -> Result<()> {
    let ca = trusting(world);
    let rehearsed = olm(world, &format!("install lamp --version 1.0.x --dry-run {ca}"))?.ended(0)?;
    ensure!(
        rehearsed.printed.starts_with("apiVersion: v1\nkind: Namespace\n"),
        "{rehearsed}"
    );
    let rehearsed = rehearsed.prints(&[
        "\nkind: ServiceAccount\n",
        "\nkind: ClusterRole\n",
        "\nkind: ClusterExtension\n",
        "      version: 1.0.x\n",
    ])?;
    ensure!(world.kubectl(&["get", "namespace", LAMP]).is_err(), "{rehearsed}");

    olm(world, &format!("install lamp {ca}"))?
        .ended(1)?
        .prints(&[
            "lamp 2.0.0 (lamp.v2.0.0 of catalog lamps)\n",
            "\nCreates:\n+ Namespace lamp\n+ ServiceAccount lamp/lamp-installer\n",
            "+ ClusterExtension lamp\n    namespace lamp\n    service account lamp-installer\n    version any, upgrades automatically; an upgrade that needs more rights waits\n",
        ])?
        .says(&["cannot ask for confirmation", "hint: set --yes"])?;
    olm(
        world,
        &format!("install lamp --version 1.0.x --yes --wait --timeout 3m {ca}"),
    )?
    .ended(0)?
    .prints(&["Namespace lamp created\n", "ClusterExtension lamp created\n"])?
    .says(&["lamp is ready after "])?;

    let shown = olm(world, "get lamp")?.ended(0)?;
    let row: Vec<&str> = shown
        .printed
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    ensure!(
        row.len() == 11
            && row[..10]
                == [
                    "lamp", "lamp", "1.0.1", "1.0.x", "-", "2.0.0", "2.0.0", "(Range)", "True", "Healthy"
                ],
        "{shown}"
    );
    let shown = olm(world, "get lamp -o name")?.ended(0)?;
    ensure!(
        shown.printed == "clusterextension.olm.operatorframework.io/lamp\n",
        "{shown}"
    );
    let shown = olm(world, "get lamp -o json")?.ended(0)?;
    let value: Value = serde_json::from_str(&shown.printed)?;
    ensure!(
        value["kind"] == "ClusterExtension" && value["metadata"]["name"] == LAMP,
        "{shown}"
    );
    olm(world, "get lanp")?
        .ended(1)?
        .says(&["ClusterExtension \"lanp\" not found", "did you mean \"lamp\"?"])?;
    olm(world, &format!("explain lamp {ca}"))?.ended(0)?.prints(&[
        "lamp is ready (Healthy)\n",
        "Choice: lamp.v1.0.1 of catalog lamps\n  the newest version that the version range \"1.0.x\", the update graph and the \
         cluster allow; it is installed\n",
        "1.1.0    lamp.v1.1.0  lamps    it is outside the version range \"1.0.x\"\n",
        "1.0.1    lamp.v1.0.1  lamps    chosen\n",
        "Revisions:\nNAME    VERSION  STATE\nlamp-1  1.0.1    installed\n",
        "`olm upgrade lamp --version RANGE` allows other versions",
    ])?;
    Ok(())
}

async fn blocked_by_a_version(world: &World) -> Result<()> {
    let ca = trusting(world);
    olm(world, &format!("upgrade lamp --version 9.9.9 {ca}"))?
        .ended(1)?
        .says(&["refused: ", "9.9.9"])?;
    let extension = extensions(world).get(LAMP).await?;
    let source = serde_json::to_value(&extension.spec.source)?;
    ensure!(source["catalog"]["version"] == "1.0.x", "{source}");

    // A user requests a missing version; the operator itself continues.
    patch_source(world, LAMP, json!({"version": "9.9.9"})).await?;
    world
        .eventually(
            "the missing version is explained",
            olm_test::extensions::SOON,
            async || {
                olm(world, &format!("explain lamp {ca}"))?.prints(&[
                    "wanted     9.9.9\n",
                    "Choice: none\n",
                    "lamp.v1.1.0  lamps    the version is pinned to 9.9.9",
                ])?;
                Ok(Some(()))
            },
        )
        .await?;

    // There is no edge back.
    olm(world, &format!("pin lamp 1.0.0 {ca}"))?
        .ended(1)?
        .says(&["refused: "])?;
    patch_source(world, LAMP, json!({"version": "1.0.0"})).await?;
    olm(world, &format!("explain lamp {ca}"))?
        .prints(&["lamp.v1.0.0  lamps    no update edge leads to it from lamp.v1.0.1\n"])?;
    Ok(())
}

async fn upgraded_and_pinned(world: &World) -> Result<()> {
    let ca = trusting(world);
    olm(world, &format!("upgrade lamp --version 1.1.0 --dry-run {ca}"))?
        .ended(0)?
        .prints(&["clusterextension/lamp upgrades 1.0.1 -> 1.1.0 (lamp.v1.1.0 of catalog lamps); version \"1.0.0\" -> \
                   \"1.1.0\" (dry run)\n"])?;
    let upgraded = olm(world, &format!("upgrade lamp --wait --timeout 3m {ca}"))?.ended(0)?;
    upgraded
        .prints(&[
            "upgrades 1.0.1 -> 1.1.0 (lamp.v1.1.0 of catalog lamps); version \"1.0.0\" -> \"1.1.0\"\n",
        ])?
        .says(&["lamp is ready after "])?;
    let extension = extensions(world).get(LAMP).await?;
    ensure!(installed_version(&extension) == Some("1.1.0"), "{extension:?}");

    olm(world, "unpin lamp --version 1.x")?
        .ended(0)?
        .prints(&["clusterextension/lamp unpinned from 1.1.0; it follows \"1.x\"\n"])?;
    olm(world, "unpin lamp")?
        .ended(1)?
        .says(&["is not pinned", "olm upgrade lamp --version RANGE"])?;
    olm(world, &format!("upgrade lamp {ca}"))?
        .ended(0)?
        .prints(&["clusterextension/lamp stays at 1.1.0, the newest version that fits\n"])?;
    olm(world, "pin lamp 1.x")?
        .ended(1)?
        .says(&["\"1.x\" is not a version"])?;
    olm(world, "pin lamp --wait")?
        .ended(0)?
        .prints(&["clusterextension/lamp pinned to 1.1.0\n"])?;
    Ok(())
}

fn paused_and_resumed(world: &World) -> Result<()> {
    let ca = trusting(world);
    olm(world, "pause lamp")?
        .ended(0)?
        .prints(&["clusterextension/lamp paused\n"])?;
    world.kubectl(&[
        "wait",
        "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}=Paused",
        "--timeout=60s",
        "clusterextension/lamp",
    ])?;
    olm(world, &format!("explain lamp {ca}"))?.ended(1)?.prints(&[
        "lamp is not ready (Paused)\n",
        "- `olm resume lamp` lets OLM change it again\n",
    ])?;
    olm(world, &format!("upgrade lamp {ca}"))?
        .ended(1)?
        .says(&["is paused", "olm resume lamp"])?;
    olm(world, "resume lamp --wait")?
        .ended(0)?
        .prints(&["clusterextension/lamp resumed\n"])?
        .says(&["lamp is ready after "])?;
    Ok(())
}

fn stuck(world: &World) -> Result<()> {
    let ca = trusting(world);
    olm(
        world,
        &format!("upgrade lamp --channel candidate --version 2.0.0 --wait --timeout 15s {ca}"),
    )?
    .ended(5)?
    .says(&[
        "s  resolved 2.0.0 (lamp.v2.0.0)\n",
        "s  revision lamp-3 created\n",
        "s  Revision 2.0.0 is rolling out: phase ",
        "(deploy). Deployment lamp/lamp-operator: ",
        "lamp is not ready after 15 s: Revision 2.0.0 is rolling out: phase ",
        "\n  Deployment lamp/lamp-operator: ",
        "hint: `olm explain lamp` shows the cause",
    ])?;
    olm(world, &format!("explain lamp {ca}"))?.ended(1)?.prints(&[
        "installed  1.1.0\n",
        "Pods:\n  Deployment lamp/lamp-operator has ",
        "Unschedulable",
        "lamp-3  2.0.0    rolling out\n",
        "- `kubectl get pods,events -n lamp` shows more of the Pods\n",
    ])?;
    Ok(())
}

async fn removed(world: &World) -> Result<()> {
    olm(world, "uninstall lamp --dry-run --policy keep-crds")?
        .ended(0)?
        .prints(&[
            " and keeps 1 object, because uninstall is keep-crds\n",
            "\nKept:\n  CustomResourceDefinition greetings.lamp.olm.example\nTo remove them later, with all custom resources: kubectl delete ",
        ])?;
    olm(world, "uninstall lamp")?
        .ended(1)?
        .prints(&["- Deployment lamp/lamp-operator\n"])?
        .says(&["hint: set --yes"])?;
    ensure!(extensions(world).get_opt(LAMP).await?.is_some());
    let removed = olm(world, "uninstall lamp --yes --wait --timeout 2m")?
        .ended(0)?
        .says(&["clusterextension/lamp is being deleted", "lamp is gone after "])?;
    await_gone(world, LAMP).await?;
    // The printed commands remove what stays.
    let (_, commands) = removed
        .printed
        .split_once("To remove it afterwards:\n")
        .context("the commands")?;
    ensure!(commands.lines().count() == 3, "{commands}");
    for command in commands.lines() {
        let run = world.cluster.exec("sh").args(["-c", command]).output()?;
        ensure!(run.status.success(), "{command}: {run:?}");
    }
    let roles = "clusterroles,clusterrolebindings,roles,rolebindings";
    let label = "olm.operatorframework.io/rights-of=lamp";
    let left = world.kubectl(&["get", roles, "-A", "-l", label, "-o", "name"])?;
    ensure!(
        left.is_empty() && world.kubectl(&["get", "namespace", LAMP]).is_err(),
        "{left}"
    );
    olm(world, "events lamp")?.ended(0)?.prints(&[
        "LAST SEEN  TYPE",
        "ClusterExtension/lamp",
        "  Installed  ",
        "  Upgraded ",
        "  Uninstalled ",
    ])?;
    olm(world, "events")?
        .ended(0)?
        .prints(&["ClusterCatalog/lamps", "ClusterExtension/lamp"])?;
    olm(world, "events nothing")?
        .ended(1)?
        .says(&["there are no events about a ClusterExtension \"nothing\""])?;
    Ok(())
}
