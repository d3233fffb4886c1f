//! The commands of the docs, run unchanged: the blocks marked `sh cluster` on a cluster, and those marked `sh registry`
//! on files and a registry.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use olm_api::conditions::reason;
use olm_test::docs::{self, Page, page};
use olm_test::extensions::{await_gone, await_progressing, await_version, catalog};
use olm_test::registry::signatures::{key, sign};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary, repository};
use serde_json::json;

static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

/// The pages about the cluster of `make run`.
const TOUR: &[&str] = &["README.md", "getting-started.md"];
/// The pages for cluster administrators, in an order in which each finds its initial state. The runbooks come after
/// [`RUNBOOKS_AFTER`].
const ADMINISTRATION: &[&str] = &[
    "how-to/install.md",
    "how-to/gitops.md",
    "how-to/fleet.md",
    "reference/conditions.md",
    "reference/registries.md",
    "how-to/monitor.md",
    "how-to/back-up.md",
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
const RUNBOOKS_AFTER: &str = "troubleshooting.md";
/// The pages for authors, whose blocks alternate.
const PUBLISHING: &[&str] = &[
    "how-to/publish-a-bundle.md",
    "how-to/publish-a-catalog.md",
    "how-to/least-privilege.md",
];

/// The pages with commands on files and a registry, in an order in which a push does not replace a signed image too
/// early.
const FILES: &[&str] = &[
    "how-to/verify-signatures.md",
    "how-to/publish-a-bundle.md",
    "how-to/publish-a-catalog.md",
    "how-to/upgrade.md",
    "how-to/fleet.md",
    "how-to/air-gap.md",
];
/// The pages with blocks that are only parsed, and the reason. Runbooks also read the logs of the managers, which are no
/// Deployment here.
const NOT_RUN: &[(&str, &str)] = &[
    ("README.md", "a release is not built, `make run` does not end"),
    (
        "design/performance.md",
        "a benchmark takes an hour, perf is not installed",
    ),
    ("design/testing.md", "CI runs these tests themselves"),
    (
        "getting-started.md",
        "`make run` and `olm catalog serve` do not end",
    ),
    (
        "how-to/add-a-catalog.md",
        "there is no internet; the cluster keeps its catalog; a port is forwarded to a Pod",
    ),
    ("how-to/air-gap.md", "there is no internet"),
    ("how-to/fleet.md", "the exit status is the answer"),
    (
        "how-to/install-olm.md",
        "a release, krew, helm or an image builder is needed",
    ),
    (
        "how-to/least-privilege.md",
        "the managers are no Deployment; the last test of the page runs the clean-up",
    ),
    (
        "how-to/monitor.md",
        "there is no Prometheus, and the managers are no Deployment",
    ),
    (
        "how-to/move-from-classic.md",
        "`test/tests/migrate` moves operators of OLM classic",
    ),
    (
        "how-to/move-over.md",
        "the manifests of the default account are not applied",
    ),
    ("how-to/pin.md", "the later pages need the other version"),
    (
        "how-to/publish-a-catalog.md",
        "`olm catalog serve` does not end and takes a fixed port",
    ),
    (
        "how-to/remove.md",
        "the deletion ends, and OLM is not installed from olm.yaml",
    ),
    ("how-to/replace-olm-classic.md", "the cluster has no OLM classic"),
    (
        "how-to/verify-a-release.md",
        "a release is not built; `test/tests/dist` verifies one",
    ),
    (
        "how-to/verify-signatures.md",
        "cosign is not installed; `test/tests/signatures` uses it",
    ),
    ("reference/annotations.md", "the later pages remove the CRDs"),
    (
        "reference/http.md",
        "`olm catalog serve` does not end and takes a fixed port",
    ),
    ("reference/registries.md", "the page creates no account"),
    ("reliability.md", "fault tests take hours"),
    (
        "troubleshooting.md",
        "the faults are not there; the managers are no Deployment",
    ),
];

/// The cluster of `make run`, without the extension.
async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let blobs = world
        .push_bundles("greeter", samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    let reference = world.push_catalog("greeter-catalog:latest", &blobs).await?;
    // The name that pages use for a catalog of one's own.
    world.push_catalog("catalogs/mine:latest", &blobs).await?;
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

/// A page by its path in the repository or in `docs`.
fn read(path: &str) -> Result<Page> {
    let below = Path::new("docs").join(path);
    let found = docs::pages()?
        .into_iter()
        .find(|page| page.path == Path::new(path) || page.path == below);
    found.with_context(|| format!("there is no page {path}"))
}

/// The pages of the alerts.
fn runbooks() -> Result<Vec<Page>> {
    let mut pages = docs::pages()?;
    pages.retain(|page| page.path.starts_with("docs/runbooks") && !page.marked("sh cluster").is_empty());
    Ok(pages)
}

/// A block of a runbook about the samples on the cluster.
fn named(block: &str) -> String {
    block
        .replace("clustercatalog NAME", "clustercatalog samples")
        .replace("NAMESPACE", "greeter")
        .replace("NAME", "greeter")
}

/// Runs a block in a folder, with the registry of the cluster in place of `registry.example`, and returns its output.
fn run(world: &World, folder: &Path, commands: &str) -> Result<String> {
    let olm = binary("olm")?;
    let programs = olm.parent().context("it is in a directory")?;
    let script = format!(
        "set -euo pipefail\nexport PATH={}:$PATH\n{}",
        programs.display(),
        commands.replace("registry.example", world.registry()?)
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

/// Runs the blocks of a page.
fn follow(world: &World, folder: &Path, page: &Page) -> Result<()> {
    for block in page.marked("sh cluster") {
        run(world, folder, &block).with_context(|| page.path.display().to_string())?;
    }
    Ok(())
}

#[test]
fn every_page_with_commands_for_a_cluster_is_followed() -> Result<()> {
    let mut followed: BTreeSet<PathBuf> = runbooks()?.into_iter().map(|page| page.path).collect();
    for path in [TOUR, ADMINISTRATION, PUBLISHING].concat() {
        followed.insert(read(path)?.path);
    }
    let mut marked = docs::pages()?;
    marked.retain(|page| !page.marked("sh cluster").is_empty());
    let marked: BTreeSet<PathBuf> = marked.into_iter().map(|page| page.path).collect();
    assert_eq!(marked, followed);
    Ok(())
}

#[test]
fn a_block_that_is_not_run_has_a_reason() -> Result<()> {
    let listed = NOT_RUN.iter().map(|(path, _)| Ok(read(path)?.path));
    let listed: BTreeSet<PathBuf> = listed.collect::<Result<_>>()?;
    let mut parsed = docs::pages()?;
    parsed.retain(|page| !page.path.starts_with("docs/runbooks") && !page.marked("sh").is_empty());
    let parsed: BTreeSet<PathBuf> = parsed.into_iter().map(|page| page.path).collect();
    assert_eq!(parsed, listed);
    Ok(())
}

/// Writes the files that the pages name, and pushes the images: three bundles, a catalog, its copy in a mirror, the
/// inventory of the cluster, and a key with which the catalog is signed.
async fn prepare(world: &World, folder: &Path) -> Result<()> {
    for (bundle, version) in [("old", "1.0.0"), ("new", "1.0.1"), ("new-bundle", "1.1.0")] {
        for (path, content) in samples::bundle(version, samples::OPERATOR_IMAGE) {
            let file = folder.join(bundle).join(path);
            std::fs::create_dir_all(file.parent().context("it is in a folder")?)?;
            std::fs::write(file, content)?;
        }
    }
    let blobs = world
        .push_bundles("greeter", samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    for subfolder in ["catalog", "inventories"] {
        std::fs::create_dir_all(folder.join(subfolder))?;
    }
    std::fs::write(folder.join("catalog/catalog.json"), &blobs)?;
    for image in [
        "catalogs/samples:v2",
        "mirror/quay.io/operatorhubio/catalog:latest",
    ] {
        world.push_catalog(image, &blobs).await?;
    }
    std::os::unix::fs::symlink(world.authorities(), folder.join("authorities"))?;
    let files = BTreeMap::from([("configs/catalog.json".to_owned(), blobs.into_bytes())]);
    let labels = [("operators.operatorframework.io.index.configs.v1", "/configs")];
    let mine = world.push("catalogs/mine:latest", &files, &labels).await?;
    let registry = world.cluster.registry().context("the registry")?;
    let (public, pair) = key()?;
    sign(registry, "catalogs/mine:latest", mine.digest(), &pair).await?;
    std::fs::write(folder.join("key.pub"), public)?;
    let requirement = json!({"type": "sigstoreSigned", "keyPath": folder.join("key.pub")});
    let scope = format!("{}/catalogs/mine", world.registry()?);
    let policy = json!({
        "default": [{"type": "reject"}],
        "transports": {"docker": {scope: [requirement]}},
    });
    std::fs::write(folder.join("policy.json"), policy.to_string())?;
    run(world, folder, "olm inventory --name east > inventories/east.yaml").map(drop)
}

#[test]
fn commands_on_files_and_a_registry_work_as_the_docs_say() -> Result<()> {
    CLUSTER.with(async |world| {
        let folder = world.folder().join("files");
        prepare(world, &folder).await?;
        let mut followed = BTreeSet::new();
        for path in FILES {
            let page = read(path)?;
            for block in page.marked("sh registry") {
                run(world, &folder, &block).with_context(|| page.path.display().to_string())?;
            }
            followed.insert(page.path);
        }
        let mut marked = docs::pages()?;
        marked.retain(|page| !page.marked("sh registry").is_empty());
        let marked: BTreeSet<PathBuf> = marked.into_iter().map(|page| page.path).collect();
        assert_eq!(marked, followed);
        Ok(())
    })
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
        // What `make run` installs.
        world.apply_file("manifests/samples/greeter.yaml")?;
        await_version(world, "greeter", "1.0.1").await?;
        for path in TOUR {
            follow(world, &folder, &read(path)?)?;
        }
        run(world, &folder, "olm uninstall greeter --yes --wait")?;
        for path in ADMINISTRATION {
            follow(world, &folder, &read(path)?)?;
            if *path == RUNBOOKS_AFTER {
                for runbook in runbooks()? {
                    for block in runbook.marked("sh cluster") {
                        run(world, &folder, &named(&block))
                            .with_context(|| runbook.path.display().to_string())?;
                    }
                }
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
        let [empty, missing, grant, rest @ ..] = account.as_slice() else {
            bail!("the account and its permissions are missing");
        };

        let printed = follow(bundle)?;
        ensure!(printed.contains("no problems found"), "{printed}");
        follow(catalog)?;
        follow(std::slice::from_ref(empty))?;
        let lacking = "lacks permissions";
        await_progressing(world, "my-extension", reason::RETRYING, lacking).await?;
        let printed = follow(std::slice::from_ref(missing))?;
        ensure!(printed.contains("kind: ClusterRole"), "{printed}");
        follow(std::slice::from_ref(grant))?;
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
                follow(std::slice::from_ref(grant))?;
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
