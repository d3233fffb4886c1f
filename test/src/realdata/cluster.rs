//! `olm-test real-bundles DIR`: real bundles are installed, upgraded as planned and uninstalled on a cluster.
//!
//! Rules select the bundles ([`mod@choose`]), never names. Their images do not exist: the simulated node runs anything.
//! Each package gets a separate namespace and account; each version replaces the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use olm_api::{ClusterExtension, conditions, names};
use olm_bundle::InstallMode;
use olm_version::{BuildMetadata, Version, VersionRelease};
use serde_json::{Value, json};

use crate::e2e::{everything, everything_before};
use crate::extensions::{administrator, is_settled};
use crate::world::{Options, World, binary, eventually, kubectl};

pub(super) mod choose;

use choose::{Chosen, Package};

/// Packages to install at least, and at most.
const PACKAGES: std::ops::RangeInclusive<usize> = 10..=24;
/// Versions of a package at most.
const VERSIONS: usize = 3;
/// The time limit for all concurrent work.
const LIMIT: Duration = Duration::from_secs(180);
/// The text in a condition about an unsafe change to a definition.
const REFUSAL: &str = "validating upgrade for CRD";
const ACCOUNT: &str = "installer";
const CATALOG: &str = "real";

/// Runs the bundles in `dir/bundles` that the rules admit, or only those of the given packages. Prints a line for each
/// case like a test, and returns whether there were enough and all passed.
///
/// # Errors
/// When the data cannot be read or the cluster does not start.
pub async fn run(dir: &Path, packages: &[String]) -> Result<bool> {
    let candidates = choose::candidates(dir, packages)?;
    let world = World::start(Options::default()).await?;
    let chosen = choose::choose(&world, candidates, *PACKAGES.end(), VERSIONS).await?;
    let mut report = Report::default();
    report.say(&format!(
        "\n{} packages are chosen, {} bundles; left out:",
        chosen.packages.len(),
        chosen
            .packages
            .iter()
            .map(|package| package.bundles.len())
            .sum::<usize>()
    ))?;
    for (reason, count) in &chosen.left_out {
        report.say(&format!("  {count:5}  {reason}"))?;
    }
    if packages.is_empty() {
        report.case("there are enough packages", enough(&chosen))?;
    }
    let mut story = ClusterScenario {
        before: BTreeSet::new(),
        packages: chosen.packages,
        world,
    };
    let outcome = story.run(&mut report).await;
    if outcome.is_err() || report.failed > 0 {
        report.say(&format!(
            "--- catalogd\n{}\n--- operator-controller\n{}",
            story.world.catalogd.log_end(),
            story.world.operator_controller.log_end()
        ))?;
    }
    report.case("the story came to its end", outcome)?;
    report.say(&format!("\n{} passed, {} failed", report.passed, report.failed))?;
    Ok(report.failed == 0)
}

fn enough(chosen: &Chosen) -> Result<()> {
    if !PACKAGES.contains(&chosen.packages.len()) {
        bail!("the rules admit {} packages", chosen.packages.len());
    }
    if !chosen.packages.iter().any(|package| package.bundles.len() > 1) {
        bail!("no package has several versions");
    }
    Ok(())
}

#[derive(Default)]
struct Report {
    passed: usize,
    failed: usize,
}

impl Report {
    #[expect(clippy::unused_self, reason = "what is said belongs to the report")]
    fn say(&self, text: &str) -> Result<()> {
        Ok(writeln!(std::io::stdout(), "{text}")?)
    }

    fn case(&mut self, name: &str, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => {
                self.passed += 1;
                self.say(&format!("test {name} ... ok"))
            }
            Err(error) => {
                self.failed += 1;
                self.say(&format!("test {name} ... FAILED\n{error:#}"))
            }
        }
    }
}

struct ClusterScenario {
    world: World,
    packages: Vec<Package>,
    before: BTreeSet<String>,
}

impl ClusterScenario {
    async fn run(&mut self, report: &mut Report) -> Result<()> {
        self.publish().await?;
        let accounts: Vec<Value> = self
            .packages
            .iter()
            .flat_map(|package| administrator(&package.namespace(), ACCOUNT))
            .collect();
        self.world.apply(&accounts)?;
        self.before = everything_before(&self.world).await?;

        let first: Vec<Value> = self.packages.iter().map(extension).collect();
        self.world.apply(&first)?;
        let steps = self.packages.iter().enumerate().map(|(at, _)| (at, 0)).collect();
        let mut there = self.await_versions(steps, report).await?;
        for round in 1..VERSIONS {
            let steps: Vec<(usize, usize)> = there
                .iter()
                .copied()
                .filter(|at| {
                    self.packages
                        .get(*at)
                        .is_some_and(|package| package.bundles.len() > round)
                })
                .map(|at| (at, round))
                .collect();
            let mut planned = BTreeMap::new();
            for (at, round) in &steps {
                planned.insert(*at, self.plan(*at, Some(*round))?);
                self.ask_for(*at, *round).await?;
            }
            for (at, round) in &steps {
                self.insist(*at, *round, report).await?;
            }
            let upgraded = self.await_versions(steps.clone(), report).await?;
            for at in &upgraded {
                let package = self.packages.get(*at).context("no such package")?;
                let case = format!("{} is what the plan of round {round} says", package.name);
                report.case(&case, self.is_as_planned(*at, planned.get(at)))?;
            }
            there.retain(|at| upgraded.contains(at) || !steps.iter().any(|(step, _)| step == at));
        }
        self.uninstall(report).await
    }

    /// Pushes every bundle, and the catalog of all of them.
    async fn publish(&self) -> Result<()> {
        let mut blobs = String::new();
        for package in &self.packages {
            let mut images = Vec::new();
            for bundle in &package.bundles {
                let tag = bundle.version.to_string().replace('+', "_");
                let name = format!("real/{}:{tag}", package.name);
                images.push(self.world.push_bundle(&name, &bundle.files).await?);
            }
            for blob in package.blobs(&images) {
                blobs.push_str(&format!("{blob}\n"));
            }
        }
        let reference = self.world.push_catalog("real-catalog:latest", &blobs).await?;
        self.world.apply(&[json!({
            "apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterCatalog",
            "metadata": { "name": CATALOG },
            "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
        })])?;
        self.world
            .eventually("the catalog is served", LIMIT, async || {
                let catalogs = Api::<olm_api::ClusterCatalog>::all(self.world.client.clone());
                let catalog = catalogs.get(CATALOG).await?;
                if conditions::is_true(catalog.conditions(), conditions::SERVING) {
                    return Ok(Some(()));
                }
                bail!("status is {}", serde_json::to_string(&catalog.status)?)
            })
            .await
    }

    fn extensions(&self) -> Api<ClusterExtension> {
        Api::all(self.world.client.clone())
    }

    async fn ask_for(&self, at: usize, version: usize) -> Result<()> {
        let package = self.packages.get(at).context("no such package")?;
        let bundle = package.bundles.get(version).context("no such version")?;
        let version = bundle.version.to_string();
        self.patch(
            &package.name,
            json!({ "install": null, "source": { "catalog": { "version": version } } }),
        )
        .await
    }

    /// The plan of the change to a version, or to the installed one, as `olm plan` prints it.
    fn plan(&self, at: usize, version: Option<usize>) -> Result<Value> {
        let package = self.packages.get(at).context("no such package")?;
        let version = version.and_then(|version| package.bundles.get(version));
        let version = version.map(|bundle| bundle.version.to_string());
        let run = Command::new(binary("olm")?)
            .args(["plan", &package.name, "-o", "json"])
            .args(version.iter().flat_map(|version| ["--version", version]))
            .arg("--kubeconfig")
            .arg(self.world.cluster.kubeconfig())
            .arg("--ca-dir")
            .arg(self.world.authorities())
            .output()?;
        if !run.status.success() {
            bail!(
                "olm plan {}: {}",
                package.name,
                String::from_utf8_lossy(&run.stderr)
            );
        }
        Ok(serde_json::from_slice(&run.stdout)?)
    }

    /// The cluster stores the objects that the plan said, by their digest, and nothing is left to change.
    fn is_as_planned(&self, at: usize, planned: Option<&Value>) -> Result<()> {
        let planned = &planned.context("there is no plan")?["content"]["after"];
        let now = self.plan(at, None)?;
        let stored = &now["content"]["before"];
        let changes =
            ["added", "changed", "removed"].map(|list| now["objects"][list].as_array().map_or(0, Vec::len));
        if !planned.is_string() || planned != stored || changes != [0; 3] {
            bail!("planned {planned}, stored {stored}, still to change {changes:?}");
        }
        Ok(())
    }

    /// Real operators change their definitions in ways that the check of CRD upgrades refuses. The condition reports
    /// it; then the upgrade continues without the check.
    async fn insist(&self, at: usize, version: usize, report: &mut Report) -> Result<()> {
        let package = self.packages.get(at).context("no such package")?;
        let bundle = package.bundles.get(version).context("no such version")?;
        let before = version.checked_sub(1).and_then(|at| package.bundles.get(at));
        let refused = before.is_some_and(|before| choose::is_refused(before, bundle));
        if !refused {
            return Ok(());
        }
        let outcome = eventually("the upgrade is refused", LIMIT, async || {
            let extension = self.extensions().get(&package.name).await?;
            match conditions::find(extension.conditions(), conditions::PROGRESSING) {
                Some(found) if found.message.contains(REFUSAL) => Ok(Some(())),
                _ => bail!("status is {}", serde_json::to_string(&extension.status)?),
            }
        })
        .await;
        report.case(
            &format!("{} is not upgraded to {} unasked", package.name, bundle.version),
            outcome,
        )?;
        let none = json!({ "crdUpgradeSafety": { "enforcement": "None" } });
        self.patch(&package.name, json!({ "install": { "preflight": none } }))
            .await
    }

    async fn patch(&self, name: &str, spec: Value) -> Result<()> {
        self.extensions()
            .patch(
                name,
                &PatchParams::default(),
                &Patch::Merge(&json!({ "spec": spec })),
            )
            .await?;
        Ok(())
    }

    /// Waits until these packages are at these versions with all objects, and reports each. Returns the packages that
    /// are.
    async fn await_versions(&self, steps: Vec<(usize, usize)>, report: &mut Report) -> Result<Vec<usize>> {
        let begin = Instant::now();
        let mut waiting = steps;
        let mut there = Vec::new();
        while !waiting.is_empty() {
            let extensions = self.extensions().list(&ListParams::default()).await?.items;
            let elapsed = begin.elapsed();
            for (at, version) in std::mem::take(&mut waiting) {
                let package = self.packages.get(at).context("no such package")?;
                let bundle = package.bundles.get(version).context("no such version")?;
                let found = extensions
                    .iter()
                    .find(|found| found.metadata.name.as_deref() == Some(&package.name));
                let settled = found.is_some_and(|found| is_at(found, &bundle.version));
                if !settled && elapsed <= LIMIT {
                    waiting.push((at, version));
                    continue;
                }
                let outcome = if settled {
                    self.check_objects(package, version)
                } else {
                    Err(self.explain(&package.name, found))
                };
                if outcome.is_ok() {
                    there.push(at);
                }
                let what = if version == 0 {
                    "is installed"
                } else {
                    "is upgraded"
                };
                let name = format!(
                    "{} {what} to {} ({} objects, {:.1} s)",
                    package.name,
                    bundle.version,
                    bundle.objects.len(),
                    elapsed.as_secs_f64()
                );
                report.case(&name, outcome)?;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(there)
    }

    /// The reported state of an extension and its revisions.
    fn explain(&self, package: &str, found: Option<&ClusterExtension>) -> anyhow::Error {
        let status = serde_json::to_string(&found.map(|found| &found.status)).unwrap_or_default();
        let label = format!("{}={package}", names::label::OWNER_NAME);
        let columns = "custom-columns=NAME:.metadata.name,STATUS:.status";
        let sets = self
            .world
            .kubectl(&["get", "clusterobjectsets", "-l", &label, "-o", columns])
            .unwrap_or_else(|error| format!("{error:#}"));
        anyhow::anyhow!("not within {} s: {status}\n{sets}", LIMIT.as_secs())
    }

    /// Every object of this version is on the cluster, and none that only the version before has.
    fn check_objects(&self, package: &Package, version: usize) -> Result<()> {
        let bundle = package.bundles.get(version).context("no such version")?;
        let get = |objects: &[&Value], arguments: &[&str]| {
            let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
            let arguments = [&["get", "-o", "name", "-f", "-"], arguments].concat();
            kubectl(&self.world.cluster, &arguments, Some(&text))
        };
        get(&bundle.objects.iter().collect::<Vec<_>>(), &[]).context("an object is missing")?;
        let Some(before) = version.checked_sub(1).and_then(|at| package.bundles.get(at)) else {
            return Ok(());
        };
        let keys: BTreeSet<_> = bundle.objects.iter().map(choose::key).collect();
        let obsolete: Vec<&Value> = before
            .objects
            .iter()
            .filter(|object| !keys.contains(&choose::key(object)))
            .collect();
        if obsolete.is_empty() {
            return Ok(());
        }
        let left = get(&obsolete, &["--ignore-not-found"])?;
        if !left.trim().is_empty() {
            bail!("objects of the version before are left: {}", left.trim());
        }
        Ok(())
    }

    async fn uninstall(&self, report: &mut Report) -> Result<()> {
        let begin = Instant::now();
        for package in &self.packages {
            self.extensions()
                .delete(&package.name, &DeleteParams::default())
                .await?;
        }
        let mut waiting: BTreeSet<&str> = self
            .packages
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        while !waiting.is_empty() {
            let extensions = self.extensions().list(&ListParams::default()).await?.items;
            let left: BTreeMap<&str, &ClusterExtension> = extensions
                .iter()
                .filter_map(|found| Some((found.metadata.name.as_deref()?, found)))
                .collect();
            let is_over = begin.elapsed() > LIMIT;
            for name in std::mem::take(&mut waiting) {
                let outcome = match left.get(name) {
                    None => Ok(()),
                    Some(found) if is_over => Err(anyhow::anyhow!(
                        "not within {} s: {}",
                        LIMIT.as_secs(),
                        serde_json::to_string(&found.status)?
                    )),
                    Some(_) => {
                        waiting.insert(name);
                        continue;
                    }
                };
                let case = format!("{name} is uninstalled ({:.1} s)", begin.elapsed().as_secs_f64());
                report.case(&case, outcome)?;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let nothing_left = eventually("nothing is left", Duration::from_secs(30), async || {
            let after = everything(&self.world)?;
            let left: Vec<_> = after.difference(&self.before).collect();
            let lost: Vec<_> = self.before.difference(&after).collect();
            if left.is_empty() && lost.is_empty() {
                return Ok(Some(()));
            }
            bail!("left {left:?}, lost {lost:?}")
        })
        .await;
        report.case("nothing is left, nothing else is lost", nothing_left)
    }
}

fn is_at(extension: &ClusterExtension, version: &Version) -> bool {
    let installed = extension
        .status
        .as_ref()
        .and_then(|status| status.install.as_ref())
        .and_then(|install| {
            let bundle = &install.bundle;
            match &bundle.release {
                Some(release) => VersionRelease::explicit(&bundle.version, release).ok(),
                None => VersionRelease::parse(&bundle.version, BuildMetadata::Release).ok(),
            }
        })
        .is_some_and(|installed| installed.folded() == *version);
    installed && is_settled(extension)
}

/// The extension with the oldest version.
fn extension(package: &Package) -> Value {
    let first = package.bundles.first();
    let mut extension = json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterExtension",
        "metadata": { "name": package.name },
        "spec": {
            "namespace": package.namespace(),
            "serviceAccount": { "name": ACCOUNT },
            "source": {
                "sourceType": "Catalog",
                "catalog": {
                    "packageName": package.name,
                    "version": first.map(|bundle| bundle.version.to_string()),
                },
            },
        },
    });
    if let Some(watched) = package.watched_namespace()
        && let Some(spec) = extension.get_mut("spec")
    {
        spec["config"] = json!({ "configType": "Inline", "inline": { "watchNamespace": watched } });
    }
    extension
}

/// The configuration that a mode takes, for a bundle installed into `namespace`.
fn watched(mode: InstallMode, namespace: &str) -> Option<&str> {
    match mode {
        InstallMode::OwnNamespace => Some(namespace),
        InstallMode::SingleNamespace => Some("default"),
        InstallMode::AllNamespaces | InstallMode::MultiNamespace => None,
    }
}
