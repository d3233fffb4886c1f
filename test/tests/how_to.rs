//! The commands of the docs, run unchanged: the blocks marked `sh cluster` and `sh alone` on a cluster, those marked
//! `sh registry` on files and a registry, and those marked `sh serve` with a server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use olm_api::conditions::reason;
use olm_test::cluster::free_address;
use olm_test::docs::{self, Page, page};
use olm_test::extensions::{
    SOON, administrator, await_gone, await_progressing, await_version, catalog, patch_source,
};
use olm_test::registry::signatures::{key, sign};
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary, repository};
use serde_json::json;

static CLUSTER: Shared<World> = Shared::new(|| Box::pin(start()));

/// The image of the catalog `samples`.
const SAMPLES: &str = "greeter-catalog:latest";

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
    "reference/annotations.md",
    "how-to/remove.md",
];
const RUNBOOKS_AFTER: &str = "troubleshooting.md";
/// The pages for authors, whose blocks alternate.
const PUBLISHING: &[&str] = &[
    "how-to/publish-a-bundle.md",
    "how-to/publish-a-catalog.md",
    "how-to/least-privilege.md",
];

/// The pages with commands that would disturb the extensions of other tests.
const ALONE: &[&str] = &[
    "how-to/pin.md",
    "how-to/least-privilege.md",
    "troubleshooting.md",
    "how-to/add-a-catalog.md",
];
/// The pages with a server that does not end, each with a part of the answers.
const SERVING: &[(&str, &str)] = &[
    ("getting-started.md", "greeter"),
    ("how-to/publish-a-catalog.md", "olm.package"),
    ("reference/http.md", "my-operator"),
];

/// The pages with commands on files and a registry, in an order in which a push does not replace a signed image too
/// early.
const FILES: &[&str] = &[
    "how-to/verify-signatures.md",
    "how-to/publish-a-bundle.md",
    "how-to/publish-a-catalog.md",
    "how-to/upgrade.md",
    "how-to/fleet.md",
    "how-to/add-a-catalog.md",
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
    ("design/reliability.md", "fault tests take hours"),
    ("design/testing.md", "CI runs these tests themselves"),
    ("getting-started.md", "`make run` does not end"),
    (
        "how-to/add-a-catalog.md",
        "there is no internet, and a port is forwarded to a Pod",
    ),
    ("how-to/air-gap.md", "there is no internet"),
    (
        "how-to/install-olm.md",
        "a release, krew, helm or an image builder is needed",
    ),
    (
        "how-to/least-privilege.md",
        "a registry for the images of OLM is needed, and the managers are no Deployment",
    ),
    (
        "how-to/monitor.md",
        "there is no Prometheus, the managers are no Deployment, `olm ui` does not end",
    ),
    (
        "how-to/move-from-classic.md",
        "`test/tests/migrate/together.rs` moves operators that need each other",
    ),
    ("how-to/remove.md", "OLM is not installed from olm.yaml"),
    ("how-to/replace-olm-classic.md", "the cluster has no OLM classic"),
    (
        "how-to/verify-a-release.md",
        "a release is not built; `test/tests/dist` verifies one",
    ),
    (
        "how-to/verify-signatures.md",
        "cosign is not installed; `test/tests/signatures` uses it",
    ),
    (
        "troubleshooting.md",
        "no right is missing, and the managers are no Deployment",
    ),
];

/// The cluster of `make run`, without the extension.
async fn start() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let blobs = world
        .push_bundles("greeter", samples::VERSIONS, samples::OPERATOR_IMAGE)
        .await?;
    world.push_catalog(SAMPLES, &blobs).await?;
    // The name that pages use for a catalog of one's own.
    world.push_catalog("catalogs/mine:latest", &blobs).await?;
    offer(&world, "samples")?;
    // The namespace of Argo CD.
    world.kubectl(&["create", "namespace", "argocd"])?;
    Ok(world)
}

/// Creates a ClusterCatalog of the samples, and waits until it is served.
fn offer(world: &World, name: &str) -> Result<()> {
    world.apply(&[catalog(name, &format!("{}/{SAMPLES}", world.registry()?))])?;
    let name = format!("ccat/{name}");
    world
        .kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", &name])
        .map(drop)
}

/// A catalog of the sample operator as another package, in one version.
fn package(name: &str, version: &str) -> String {
    let image = format!("quay.io/operatorhubio/{name}:v{version}");
    let blobs = samples::catalog(&["1.0.0"], |_| image.clone());
    samples::renamed(name, &blobs).replace("1.0.0", version)
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

/// The pages with a block of this mark.
fn marked(mark: &str) -> Result<BTreeSet<PathBuf>> {
    let mut pages = docs::pages()?;
    pages.retain(|page| !page.marked(mark).is_empty());
    Ok(pages.into_iter().map(|page| page.path).collect())
}

fn paths<'a>(pages: impl IntoIterator<Item = &'a &'a str>) -> Result<BTreeSet<PathBuf>> {
    let read = pages.into_iter().map(|path| Ok(read(path)?.path));
    read.collect()
}

#[test]
fn every_page_with_commands_is_followed() -> Result<()> {
    let mut on_cluster = paths(&[TOUR, ADMINISTRATION, PUBLISHING].concat())?;
    on_cluster.extend(runbooks()?.into_iter().map(|page| page.path));
    assert_eq!(marked("sh cluster")?, on_cluster);
    assert_eq!(marked("sh alone")?, paths(ALONE)?);
    assert_eq!(marked("sh registry")?, paths(FILES)?);
    assert_eq!(marked("sh serve")?, paths(SERVING.iter().map(|(path, _)| path))?);
    Ok(())
}

#[test]
fn a_block_that_is_not_run_has_a_reason() -> Result<()> {
    let mut parsed = marked("sh")?;
    parsed.retain(|path| !path.starts_with("docs/runbooks"));
    assert_eq!(parsed, paths(NOT_RUN.iter().map(|(path, _)| path))?);
    Ok(())
}

/// Writes the files that the pages name, and pushes the images: three bundles, a catalog, the community catalog in a
/// mirror, the inventory of the cluster, and a key with which the catalog is signed.
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
    world.push_catalog("catalogs/samples:v2", &blobs).await?;
    let community = [package("etcd", "0.9.4"), package("postgres", "1.0.0")].concat();
    world
        .push_catalog("mirror/quay.io/operatorhubio/catalog:latest", &community)
        .await?;
    let mirrors = format!(
        "[[registry]]\nlocation = \"quay.io\"\n[[registry.mirror]]\nlocation = \"{}/mirror/quay.io\"\n",
        world.registry()?
    );
    std::fs::create_dir_all(folder.join(".config/containers"))?;
    std::fs::write(folder.join(".config/containers/registries.conf"), mirrors)?;
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
        for path in FILES {
            for block in read(path)?.marked("sh registry") {
                run(world, &folder, &block).with_context(|| (*path).to_owned())?;
            }
        }
        Ok(())
    })
}

/// Runs the blocks of a page with a server: the first command in the background, at a free address, and the others once
/// it answers. Returns the start page and their output.
fn serve(world: &World, folder: &Path, page: &Page) -> Result<String> {
    let address = free_address()?;
    let commands = page
        .marked("sh serve")
        .concat()
        .replace(
            "olm catalog serve",
            &format!("olm catalog serve --addr {address}"),
        )
        .replace("127.0.0.1:8080", &address);
    let (server, requests) = commands.split_once('\n').context("a command")?;
    let server = server.trim_end_matches(" &");
    let commands = format!(
        "{server} &\ntrap 'kill $!' EXIT\n\
         curl -sf --retry 30 --retry-delay 1 --retry-connrefused http://{address}/\n{requests}"
    );
    run(world, folder, &commands)
}

#[test]
fn a_catalog_is_served_without_a_cluster_as_the_docs_say() -> Result<()> {
    CLUSTER.with(async |world| {
        let folder = world.folder().join("serving");
        std::fs::create_dir_all(folder.join("my-catalog"))?;
        let blobs = package("my-operator", "1.0.0");
        std::fs::write(folder.join("my-catalog/catalog.json"), blobs)?;
        for (path, part) in SERVING {
            let answered = serve(world, &folder, &read(path)?).with_context(|| (*path).to_owned())?;
            ensure!(answered.contains(part), "{path}: {answered}");
        }
        Ok(())
    })
}

/// The values of an annotation of the extension's revisions, the newest last.
fn annotated(world: &World, name: &str) -> Result<String> {
    world.kubectl(&[
        "get",
        "clusterobjectsets",
        "--selector=olm.operatorframework.io/owner-name=greeter",
        "--output",
        &format!(r"jsonpath={{.items[*].metadata.annotations.olm\.operatorframework\.io/{name}}}"),
    ])
}

/// The blocks of a page that are run alone.
fn blocks_alone<const N: usize>(path: &str) -> Result<[String; N]> {
    let blocks = read(path)?.marked("sh alone");
    blocks.try_into().map_err(|found| anyhow!("{path} has {found:?}"))
}

#[test]
fn an_edge_is_skipped_an_account_changed_and_a_catalog_left_out_and_removed_as_the_docs_say() -> Result<()> {
    CLUSTER.alone(async |world| {
        let world = &*world;
        let folder = world.folder().join("alone");
        std::fs::create_dir(&folder)?;
        std::os::unix::fs::symlink(repository().join("manifests"), folder.join("manifests"))?;
        world.apply_file("manifests/samples/greeter.yaml")?;
        await_version(world, "greeter", "1.0.1").await?;

        let [skip, follow] = blocks_alone("how-to/pin.md")?;
        run(world, &folder, &skip)?;
        await_version(world, "greeter", "1.0.0").await?;
        run(world, &folder, &follow)?;

        let [leave_out, admit] = blocks_alone("troubleshooting.md")?;
        let missing = format!("{}/missing:latest", world.registry()?);
        world.apply(&[catalog("broken", &missing)])?;
        offer(world, "other")?;
        run(world, &folder, &leave_out)?;
        run(world, &folder, &admit)?;
        patch_source(world, "greeter", json!({ "version": "1.0.x" })).await?;
        await_version(world, "greeter", "1.0.1").await?;
        ensure!(annotated(world, "catalog")?.ends_with(" other"));

        world.apply(&administrator("greeter", "other-installer"))?;
        let [change_account] = blocks_alone("how-to/least-privilege.md")?;
        run(world, &folder, &change_account)?;
        world
            .eventually("a revision has the other account", SOON, async || {
                let accounts = annotated(world, "service-account")?;
                Ok(accounts.ends_with(" greeter/other-installer").then_some(()))
            })
            .await?;
        await_version(world, "greeter", "1.0.1").await?;

        let [remove] = blocks_alone("how-to/add-a-catalog.md")?;
        run(world, &folder, &remove)?;
        offer(world, "samples")?;
        world.kubectl(&["delete", "clustercatalogs", "broken", "other"])?;
        let clean = "olm uninstall greeter --yes --wait\n\
                     kubectl delete --ignore-not-found -f manifests/samples/greeter.yaml\n\
                     kubectl delete clusterrolebinding greeter-other-installer";
        run(world, &folder, clean).map(drop)
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
        let [empty, missing, grant, rest @ .., clean] = account.as_slice() else {
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
        let deleted = run(world, &folder, clean)?;
        ensure!(deleted.contains("deleted"), "{deleted}");
        world
            .kubectl(&["delete", "clustercatalog", "my-catalog"])
            .map(drop)
    })
}
