//! The commands of the docs, run unchanged on a cluster: the blocks marked `sh cluster`.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use olm_api::conditions::reason;
use olm_test::docs::{self, page};
use olm_test::extensions::{await_gone, await_progressing, await_version, catalog, grant};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary, repository};

static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

/// The pages for cluster administrators, in an order in which each finds its initial state.
const ADMINISTRATION: &[&str] = &[
    "how-to/install.md",
    "how-to/gitops.md",
    "how-to/fleet.md",
    "how-to/monitor.md",
    "how-to/add-a-catalog.md",
    "troubleshooting.md",
    "how-to/upgrade.md",
    "how-to/roll-back.md",
    "how-to/pin.md",
    "how-to/pause.md",
    "how-to/approve.md",
    "how-to/verify-signatures.md",
    "how-to/move-over.md",
    "how-to/remove.md",
];
/// The pages for authors, whose blocks alternate.
const PUBLISHING: &[&str] = &[
    "how-to/publish-a-bundle.md",
    "how-to/publish-a-catalog.md",
    "how-to/least-privilege.md",
];

/// The cluster of `make run`, without the extension.
async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let reference = world
        .publish_greeter(samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    world.apply(&[catalog("samples", &reference)])?;
    world.kubectl(&[
        "wait",
        "--for=condition=Serving",
        "--timeout=120s",
        "ccat/samples",
    ])?;
    // The namespace of Argo CD.
    world.kubectl(&["create", "namespace", "argocd"])?;
    Ok(world)
}

/// Runs a block in a folder and returns its output.
fn run(world: &World, folder: &Path, commands: &str) -> Result<String> {
    let olm = binary("olm")?;
    let programs = olm.parent().context("it is in a directory")?;
    let script = format!(
        "set -euo pipefail\nexport PATH={}:$PATH\n{commands}",
        programs.display()
    );
    let run = world
        .cluster
        .exec("bash")
        .args(["-c", &script])
        .current_dir(folder)
        .env("HOME", folder)
        .env("REGISTRY", world.registry()?)
        .env("CA_DIR", world.authorities())
        // The machine trusts the registry.
        .env("SSL_CERT_FILE", world.authorities().join("ca.crt"))
        .output()?;
    let printed = String::from_utf8([run.stdout, run.stderr].concat())?;
    ensure!(run.status.success(), "{commands}\n{printed}");
    Ok(printed)
}

#[test]
fn every_page_with_commands_for_a_cluster_is_followed() -> Result<()> {
    for page in docs::pages()? {
        let path = page.path.strip_prefix("docs").unwrap_or(&page.path);
        let path = path.to_str().context("a path is text")?;
        ensure!(
            page.marked("sh cluster").is_empty() != [ADMINISTRATION, PUBLISHING].concat().contains(&path),
            "{path}"
        );
    }
    Ok(())
}

#[test]
fn an_extension_is_installed_upgraded_rolled_back_pinned_paused_and_removed_as_the_docs_say() -> Result<()> {
    CLUSTER.with(async |world| {
        let folder = world.folder().join("administration");
        std::fs::create_dir(&folder)?;
        std::os::unix::fs::symlink(repository().join("manifests"), folder.join("manifests"))?;
        for file in ["policy.json", "key.pub"] {
            std::fs::write(folder.join(file), "")?;
        }
        for path in ADMINISTRATION {
            for block in page(path)?.marked("sh cluster") {
                run(world, &folder, &block).with_context(|| (*path).to_owned())?;
            }
        }
        let left = world.kubectl(&["get", "clusterextensions,crds", "-o", "name"])?;
        ensure!(!left.contains("greet"), "{left}");
        Ok(())
    })
}

#[test]
fn a_bundle_is_made_published_installed_and_upgraded_as_the_docs_say() -> Result<()> {
    CLUSTER.with(async |world| {
        let folder = world.folder().join("publishing");
        std::fs::create_dir(&folder)?;
        let blocks = |path: &str| -> Result<Vec<String>> { Ok(page(path)?.marked("sh cluster")) };
        let follow = |blocks: &[String]| -> Result<String> {
            blocks.iter().map(|block| run(world, &folder, block)).collect()
        };
        let bundle = blocks(PUBLISHING[0])?;
        let (next_bundle, bundle) = bundle.split_last().context("the next version")?;
        let catalog = blocks(PUBLISHING[1])?;
        let (next_catalog, catalog) = catalog.split_last().context("the next version")?;
        let account = blocks(PUBLISHING[2])?;
        let (empty, rest) = account.split_first().context("the account")?;

        let printed = follow(bundle)?;
        ensure!(printed.contains("no problems found"), "{printed}");
        follow(catalog)?;
        follow(std::slice::from_ref(empty))?;
        let lacking = "lacks permissions";
        await_progressing(world, "my-extension", reason::RETRYING, lacking).await?;
        grant(world, "my-extension")?;
        await_version(world, "my-extension", "0.1.0").await?;
        follow(rest)?;

        let printed = follow(std::slice::from_ref(next_bundle))?;
        ensure!(printed.contains("no problems found"), "{printed}");
        follow(std::slice::from_ref(next_catalog))?;
        // Its roles may have other names.
        tokio::select! {
            installed = await_version(world, "my-extension", "0.2.0") => installed.map(drop)?,
            message = await_progressing(world, "my-extension", reason::RETRYING, lacking) => {
                message?;
                grant(world, "my-extension")?;
                await_version(world, "my-extension", "0.2.0").await?;
            }
        }

        world.kubectl(&["delete", "clusterextension", "my-extension", "--wait=false"])?;
        await_gone(world, "my-extension").await?;
        let clean = page(PUBLISHING[2])?.marked("sh");
        let clean = clean.last().context("the last command of the page")?;
        let deleted = run(world, &folder, clean)?;
        ensure!(deleted.contains("deleted"), "{deleted}");
        world
            .kubectl(&["delete", "clustercatalog", "my-catalog"])
            .map(drop)
    })
}
