//! `olm migrate` on a cluster with the objects that OLM classic leaves.

mod aggregated;
mod annotated;
mod back;
mod called;
mod classic;
mod course;
mod faults;
mod report;
mod running;
mod serving;
mod stops;
mod together;
mod webhooks;
mod webhooks_of_go;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use classic::Installed;
use olm_test::extensions::catalog;
use olm_test::samples;
use olm_test::shared::Shared;
use olm_test::world::{Options, World, binary};

static CLUSTER: Shared<Stage> = Shared::new(|| Box::pin(Stage::start()));

/// The package that can move.
const MOVABLE: &str = "movable";
/// The package that cannot.
const BLOCKED: &str = "blocked";
/// The package that moves.
const MOVED: &str = "moved";
/// The package whose move is stopped after every step.
const STOPPED: &str = "stopped";
/// The package that moves and goes back.
const UNDONE: &str = "undone";
/// The package with webhooks, which the Go implementation has installed.
const HOOKS: &str = "hooks";
const VERSIONS: [&str; 2] = ["1.0.0", "1.0.1"];

/// The published versions of a package, the installed one first, and those that stand beside them.
fn versions_of(package: &str) -> Vec<&'static str> {
    match package {
        HOOKS => [&samples::WITH_WEBHOOKS_ALONE[..], &VERSIONS[..1]].concat(),
        _ => VERSIONS.to_vec(),
    }
}

/// Both managers, the kinds of OLM classic, and six operators that it has installed.
struct Stage {
    world: World,
}

impl Stage {
    async fn start() -> Result<Self> {
        let world = World::start(Options::default()).await?;
        classic::definitions(&world)?;
        for package in [MOVABLE, BLOCKED, MOVED, STOPPED, UNDONE, HOOKS] {
            let mut images = BTreeMap::new();
            let versions = versions_of(package);
            let number = *versions.first().context("there is a version")?;
            for version in &versions {
                let files = samples::renamed_bundle(package, version, "sample-operator:v1");
                let image = world
                    .push_bundle(&format!("{package}-bundle:v{version}"), &files)
                    .await?;
                images.insert(*version, image);
            }
            let blobs = samples::catalog(&versions, |version| {
                images.get(version).cloned().unwrap_or_default()
            });
            let reference = world
                .push_catalog(
                    &format!("{package}-catalog:latest"),
                    &samples::renamed(package, &blobs),
                )
                .await?;
            if package != BLOCKED {
                let name = format!("{package}-catalog");
                world.apply(&[catalog(&name, &reference)])?;
                let name = format!("ccat/{name}");
                world.kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", &name])?;
            }
            let installed = Installed {
                world: &world,
                package,
                number,
                bundle: images.get(number).context("it is published")?,
                catalog: &reference,
            };
            installed.install().await?;
        }
        Ok(Self { world })
    }
}

/// Result of a command.
struct Ran {
    line: String,
    status: i32,
    printed: String,
    said: String,
}

impl Ran {
    fn ended(self, status: i32) -> Result<Self> {
        let Self {
            line, printed, said, ..
        } = &self;
        ensure!(
            self.status == status,
            "`olm {line}` ends with {}\n{printed}---\n{said}",
            self.status
        );
        Ok(self)
    }

    fn shows(self, parts: &[&str]) -> Result<Self> {
        let all = format!("{}{}", self.printed, self.said);
        for part in parts {
            ensure!(
                all.contains(part),
                "`olm {}` does not say {part:?}:\n{all}",
                self.line
            );
        }
        Ok(self)
    }
}

/// Runs `olm` as an administrator.
fn olm(world: &World, line: &str) -> Result<Ran> {
    olm_as(world, world.cluster.kubeconfig(), line)
}

/// Runs `olm` with a kubeconfig.
fn olm_as(world: &World, kubeconfig: &Path, line: &str) -> Result<Ran> {
    let run = Command::new(binary("olm")?)
        .args(line.split_whitespace())
        .current_dir(world.folder())
        .env("KUBECONFIG", kubeconfig)
        .stdin(std::process::Stdio::null())
        .output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ran {
        line: line.to_owned(),
        status: run.status.code().context("it was killed")?,
        printed: text(&run.stdout),
        said: text(&run.stderr),
    })
}

/// The resourceVersions of all objects that a move could write.
fn versions(world: &World) -> Result<String> {
    let kinds = "subscriptions,installplans,operatorgroups,catalogsources,csv,serviceaccounts,roles,rolebindings,clusterroles,\
                 clusterrolebindings,crds,clusterextensions,clusterobjectsets,clustercatalogs";
    let form = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    world.kubectl(&["get", kinds, "-A", "-o", form])
}
