//! `olm-test real-operators DIR`: real bundles are installed, upgraded and deleted by OLM classic, in every install
//! mode that they support.
//!
//! An InstallPlan brings the objects of a bundle, catalog-operator carries it out, and olm-operator installs the
//! ClusterServiceVersion. Images are nowhere to be had: the simulated node runs anything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::classic;
use crate::e2e::everything;
use crate::objects::api;
use crate::world::Lab;

pub(super) mod place;
pub(super) mod read;
mod story;
pub(super) mod turns;

use read::{Mode, Package};
use story::PackageLifecycle;
use turns::Turns;

/// Bundles to install at least.
const BUNDLES: usize = 60;
/// Number of packages that are run at once.
const AT_ONCE: usize = 4;

/// Kinds of others that bundles may hold, as group, plural, kind and scope.
const OF_OTHERS: &[[&str; 4]] = &[
    [
        "monitoring.coreos.com",
        "servicemonitors",
        "ServiceMonitor",
        "Namespaced",
    ],
    [
        "monitoring.coreos.com",
        "prometheusrules",
        "PrometheusRule",
        "Namespaced",
    ],
    [
        "console.openshift.io",
        "consoleplugins",
        "ConsolePlugin",
        "Cluster",
    ],
    ["console.openshift.io", "consolelinks", "ConsoleLink", "Cluster"],
    [
        "console.openshift.io",
        "consolequickstarts",
        "ConsoleQuickStart",
        "Cluster",
    ],
    [
        "console.openshift.io",
        "consoleyamlsamples",
        "ConsoleYAMLSample",
        "Cluster",
    ],
    [
        "console.openshift.io",
        "consoleclidownloads",
        "ConsoleCLIDownload",
        "Cluster",
    ],
];

/// Completed steps, by install mode.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    installed: usize,
    upgraded: usize,
    deleted: usize,
}

/// Runs all bundles in `dir/bundles`, or of these packages only when some are named. Prints a table, and returns
/// whether there were enough and all of it passed.
///
/// # Errors
/// When the data cannot be read or the cluster does not start.
pub async fn run(dir: &Path, packages: &[String]) -> Result<bool> {
    let found = read::packages(dir, packages)?;
    let lab = Lab::empty().await?;
    classic::prepare(&lab)?;
    furnish(&lab).await?;
    let programs = classic::start(&lab).await?;
    let before = everything(&lab)?;
    let shared = Arc::new(SharedCluster {
        lab,
        turns: Turns::default(),
    });
    let mut report = Report::default();
    let mut done = stream::iter(found.packages)
        .map(|package| {
            let shared = Arc::clone(&shared);
            async move { live(&shared, package).await }
        })
        .buffer_unordered(AT_ONCE);
    while let Some(lives) = done.next().await {
        report.add(lives)?;
    }
    drop(done);
    let after = everything(&shared.lab)?;
    let left: Vec<_> = after.difference(&before).collect();
    let lost: Vec<_> = before.difference(&after).collect();
    let mut is_clean = report.end(&found.left_out, packages.is_empty())?;
    let mut out = std::io::stdout();
    if !(left.is_empty() && lost.is_empty()) {
        writeln!(out, "left: {left:?}\nlost: {lost:?}")?;
        is_clean = false;
    }
    if !is_clean {
        for program in &programs {
            writeln!(out, "--- {}\n{}", program.log.display(), program.log_end())?;
        }
    }
    Ok(is_clean)
}

/// Adds what bundles expect of a cluster: kinds of others, and nodes.
pub(super) async fn furnish(lab: &Lab) -> Result<()> {
    let of_others = OF_OTHERS.iter();
    let of_others: Vec<Value> = of_others
        .map(|[group, plural, kind, scope]| read::definition(group, plural, kind, "v1", scope))
        .collect();
    lab.apply(&of_others)?;
    more_nodes(lab).await
}

/// Adds simulated nodes that meet the demands of some operators: room on disk, roles, peers.
async fn more_nodes(lab: &Lab) -> Result<()> {
    for number in 1..=3 {
        let name = format!("more-{number}");
        let roles = ["control-plane", "master", "worker", "infra"];
        let mut labels: Map<String, Value> = roles
            .iter()
            .map(|role| (format!("node-role.kubernetes.io/{role}"), "".into()))
            .collect();
        labels.insert("kubernetes.io/os".to_owned(), "linux".into());
        labels.insert("kubernetes.io/arch".to_owned(), "amd64".into());
        labels.insert("kubernetes.io/hostname".to_owned(), name.as_str().into());
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        });
        lab.apply(std::slice::from_ref(&node))?;
        let room = json!({"cpu": "1k", "memory": "1Ti", "pods": "1M", "ephemeral-storage": "1Ti"});
        let status = json!({"status": {"allocatable": room, "capacity": room}});
        api(&lab.client, &node)
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
    }
    Ok(())
}

/// The cluster that all packages share.
pub(super) struct SharedCluster {
    lab: Lab,
    turns: Turns,
}

/// A package in one install mode.
struct PackageRun {
    package: String,
    mode: Mode,
    versions: usize,
    counts: Counts,
    bundles: BTreeSet<String>,
    seconds: f64,
    outcome: Result<()>,
}

async fn live(shared: &SharedCluster, package: Package) -> Vec<PackageRun> {
    let _turn = shared.turns.take(&package).await;
    let mut lives = Vec::new();
    for mode in Mode::ALL {
        let versions: Vec<_> = package
            .versions
            .iter()
            .filter(|version| version.modes.contains(&mode))
            .collect();
        if versions.is_empty() {
            continue;
        }
        let begin = Instant::now();
        let mut story = PackageLifecycle::new(&shared.lab, &package, mode);
        let outcome = story.run(&versions).await;
        lives.push(PackageRun {
            package: package.name.clone(),
            mode,
            versions: versions.len(),
            counts: story.counts,
            bundles: story.bundles,
            seconds: begin.elapsed().as_secs_f64(),
            outcome,
        });
    }
    lives
}

#[derive(Default)]
struct Report {
    by_mode: BTreeMap<Mode, Counts>,
    bundles: BTreeSet<String>,
    packages: BTreeSet<String>,
    failed: usize,
}

impl Report {
    fn add(&mut self, lives: Vec<PackageRun>) -> Result<()> {
        let mut out = std::io::stdout();
        for life in lives {
            let PackageRun {
                package,
                mode,
                versions,
                counts,
                bundles,
                seconds,
                outcome,
            } = life;
            let sum = self.by_mode.entry(mode).or_default();
            sum.installed += counts.installed;
            sum.upgraded += counts.upgraded;
            sum.deleted += counts.deleted;
            self.bundles.extend(bundles);
            self.packages.insert(package.clone());
            match outcome {
                Ok(()) => writeln!(
                    out,
                    "test {package} {mode}: {versions} versions, {seconds:.1} s ... ok"
                )?,
                Err(error) => {
                    self.failed += 1;
                    writeln!(out, "test {package} {mode} ... FAILED\n{error:#}")?;
                }
            }
        }
        Ok(())
    }

    fn end(&self, left_out: &BTreeMap<String, usize>, is_whole: bool) -> Result<bool> {
        let mut out = std::io::stdout();
        writeln!(
            out,
            "\n| install mode | installed | upgraded | deleted |\n|---|---|---|---|"
        )?;
        for (mode, counts) in &self.by_mode {
            let Counts {
                installed,
                upgraded,
                deleted,
            } = counts;
            writeln!(out, "| {mode} | {installed} | {upgraded} | {deleted} |")?;
        }
        let (bundles, packages) = (self.bundles.len(), self.packages.len());
        writeln!(
            out,
            "\n{bundles} bundles of {packages} packages reached Succeeded; left out:"
        )?;
        for (reason, count) in left_out {
            writeln!(out, "  {count:5}  {reason}")?;
        }
        writeln!(out, "{} failed", self.failed)?;
        let is_enough = !is_whole || bundles >= BUNDLES;
        if !is_enough {
            writeln!(out, "at least {BUNDLES} bundles must be installed")?;
        }
        Ok(self.failed == 0 && is_enough)
    }
}
