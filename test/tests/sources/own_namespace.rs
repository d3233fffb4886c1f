//! An operator that can watch its own namespace but not all, as many operators of the community.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use olm_test::extensions::{await_version, catalog};
use olm_test::samples;
use olm_test::world::World;

use super::verified::run;
use super::{CLUSTER, Stage};

const NAME: &str = "bulb";

/// Publishes a bundle that supports OwnNamespace and SingleNamespace.
async fn publish(world: &World) -> Result<()> {
    let mut files = samples::renamed_bundle(NAME, "1.0.0", samples::OPERATOR_IMAGE);
    support_own_namespace(&mut files)?;
    let image = world.push_bundle("bulb-bundle:v1.0.0", &files).await?;
    let blobs = samples::renamed(NAME, &samples::catalog(&["1.0.0"], |_| image.clone()));
    let reference = world.push_catalog("bulb-catalog:latest", &blobs).await?;
    world.apply(&[catalog(NAME, &reference)])?;
    let served = [
        "wait",
        "--for=condition=Serving",
        "--timeout=120s",
        "clustercatalog/bulb",
    ];
    world.kubectl(&served).map(drop)
}

fn support_own_namespace(files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let all = "- type: AllNamespaces\n      supported: true";
    let others =
        "- type: OwnNamespace\n      supported: true\n    - type: SingleNamespace\n      supported: true";
    let mut is_changed = false;
    for content in files.values_mut() {
        let text = String::from_utf8_lossy(content);
        is_changed |= text.contains(all);
        *content = text.replace(all, others).into_bytes();
    }
    ensure!(is_changed, "no file has the install modes");
    Ok(())
}

/// Runs `olm`, and returns its output and its messages.
fn olm(world: &World, line: &str, status: i32) -> Result<(String, String)> {
    let ran = run(world, &line.split_whitespace().collect::<Vec<_>>())?;
    let (output, messages) = (String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?);
    ensure!(
        ran.status.code() == Some(status),
        "{line}: {output}---\n{messages}"
    );
    Ok((output, messages))
}

#[test]
fn an_operator_for_its_own_namespace_is_installed_by_the_same_commands() -> Result<()> {
    CLUSTER.with(async |Stage { world, .. }| {
        publish(world).await?;
        // The rights before anything exists, with the defaults of `olm install`.
        let (before, messages) = olm(world, "rbac bulb", 0)?;
        ensure!(
            messages.contains("there is no ClusterExtension \"bulb\""),
            "{messages}"
        );
        for part in ["kind: Role\n", "namespace: bulb\n", "name: bulb-installer\n"] {
            ensure!(before.contains(part), "{part}: {before}");
        }

        let (shown, _) = olm(world, "install bulb", 1)?;
        ensure!(shown.contains("    watches namespace bulb alone\n"), "{shown}");
        let (other, _) = olm(world, "install bulb --watch-namespace other --dry-run", 0)?;
        ensure!(other.contains("watchNamespace: other\n"), "{other}");
        olm(world, "install bulb --yes", 0)?;
        await_version(world, NAME, "1.0.0").await?;
        // The printed rights are those that the installation has: no more, no less.
        let (_, messages) = olm(world, "rbac bulb", 0)?;
        let nothing = "service account bulb/bulb-installer lacks nothing that bulb needs";
        ensure!(messages.contains(nothing), "{messages}");
        let (all, _) = olm(world, "rbac bulb --all", 0)?;
        ensure!(all == before, "{all}\n--- not\n{before}");
        let (_, messages) = olm(world, "rbac bulb --version 1.0.0", 1)?;
        ensure!(
            messages.contains("ClusterExtension \"bulb\" exists; --version"),
            "{messages}"
        );
        Ok(())
    })
}
