//! `olm-test real-migrations DIR`: real operators that OLM classic has installed become ClusterExtensions by
//! `olm migrate`, and go back. Neither way may write anything but the bookkeeping of either OLM, or restart a Pod.
//!
//! Each bundle has a channel of its own in one catalog, and a Subscription to it. What bundles require of others is on
//! the cluster without an operator, so the catalog names no requirements. Images are nowhere to be had: the simulated
//! node runs anything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, stream};
use olm_classic::cluster::{items, text};
use serde_json::{Value, json};

use crate::classic;
use crate::e2e::{everything, everything_before};
use crate::extensions::catalog;
use crate::realdata::bundles;
use crate::realdata::operators::furnish;
use crate::realdata::operators::place::Place;
use crate::realdata::operators::read::{self, Bundle, Mode, Package};
use crate::realdata::operators::turns::Turns;
use crate::world::{CLASSIC_NAMESPACE, Manager, Options, World};

mod seen;
mod story;

use seen::Kinds;
use story::{Move, Outcome};

/// Packages to move there and back at least.
const PACKAGES: usize = 20;
/// Number of packages that are moved at once.
const AT_ONCE: usize = 4;
/// Catalog of both OLMs.
const CATALOG: &str = "real";
/// Account of the ClusterExtensions.
const ACCOUNT: &str = "installer";

/// Checks that refuse a bundle, the largest number of bundles, and the reason. Any other or further refusal is a fault.
const REFUSALS: [(&str, usize, &str); 2] = [
    (
        "install-mode",
        1,
        "it supports only modes in which it watches a namespace that is not its own",
    ),
    (
        "inventory",
        8,
        "its Secret with the token of a ServiceAccount is made before that account, and Kubernetes deletes it",
    ),
];

/// Moves all bundles in `dir/bundles`, or of these packages only when some are named. Prints a line for each like a
/// test, and returns whether there were enough and all of it passed.
///
/// # Errors
/// When the data cannot be read or the cluster does not start.
pub async fn run(dir: &Path, packages: &[String]) -> Result<bool> {
    let found = read::packages(dir, packages)?;
    let stage = Arc::new(Stage::start(&found.packages).await?);
    let before = everything_before(&stage.world).await?;
    let mut report = Report::default();
    let mut done = stream::iter(found.packages)
        .map(|package| {
            let stage = Arc::clone(&stage);
            async move { stage.live(&package).await }
        })
        .buffer_unordered(AT_ONCE);
    while let Some(lives) = done.next().await {
        for life in lives {
            report.add(life)?;
        }
    }
    drop(done);
    let after = everything(&stage.world)?;
    let left: Vec<_> = after.difference(&before).collect();
    let lost: Vec<_> = before.difference(&after).collect();
    let mut is_clean = report.end(&found.left_out, packages.is_empty())?;
    let mut out = std::io::stdout();
    if !(left.is_empty() && lost.is_empty()) {
        writeln!(out, "left: {left:?}\nlost: {lost:?}")?;
        is_clean = false;
    }
    if !is_clean {
        let world = &stage.world;
        for program in stage
            .programs
            .iter()
            .chain([&world.catalogd, &world.operator_controller])
        {
            writeln!(out, "--- {}\n{}", program.log.display(), program.log_end())?;
        }
    }
    Ok(is_clean)
}

/// Both OLMs on one cluster, with the catalog of all bundles.
struct Stage {
    world: World,
    kinds: Kinds,
    programs: [Manager; 2],
    turns: Turns,
    /// The package of each bundle in the catalog, by the name of the bundle.
    names: BTreeMap<String, String>,
}

impl Stage {
    async fn start(packages: &[Package]) -> Result<Self> {
        let world = World::start(Options::default()).await?;
        classic::prepare(&world)?;
        furnish(&world).await?;
        let programs = classic::start(&world).await?;
        let kinds = Kinds::of(&world.client).await?;
        let (names, image) = publish(&world, packages).await?;
        let mut source = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": CATALOG, "namespace": CLASSIC_NAMESPACE},
        });
        source["spec"] = json!({"sourceType": "grpc", "image": image});
        world.apply(&[catalog(CATALOG, &image), source])?;
        let served = format!("ccat/{CATALOG}");
        world.kubectl(&["wait", "--for=condition=Serving", "--timeout=120s", &served])?;
        Ok(Self {
            world,
            kinds,
            programs,
            turns: Turns::default(),
            names,
        })
    }

    /// Moves every bundle of a package: the newest in every install mode that can move, the others in one after the other.
    async fn live(&self, package: &Package) -> Vec<Life> {
        let _turn = self.turns.take(package).await;
        let mut lives = Vec::new();
        for (at, bundle) in package.versions.iter().enumerate() {
            let name = self.names.get(&bundle.name).map_or("", String::as_str);
            let modes = modes(bundle);
            let is_newest = at + 1 == package.versions.len();
            let turn = at % modes.len().max(1);
            let skipped = if is_newest { 0 } else { turn };
            let most = if is_newest { modes.len() } else { 1 };
            for mode in modes.into_iter().skip(skipped).take(most) {
                let outcome = Move {
                    world: &self.world,
                    kinds: &self.kinds,
                    package,
                    bundle,
                    place: Place::new(&self.world, &package.name, mode),
                    name,
                }
                .run()
                .await;
                lives.push(Life {
                    package: package.name.clone(),
                    bundle: bundle.name.clone(),
                    mode,
                    traits: traits(&bundle.csv),
                    outcome,
                });
            }
        }
        lives
    }
}

/// Install modes to move a bundle in; one that cannot move if it has no other.
fn modes(bundle: &Bundle) -> Vec<Mode> {
    let can_move = |mode: &&Mode| matches!(mode, Mode::OwnNamespace | Mode::AllNamespaces);
    let movable: Vec<Mode> = bundle.modes.iter().filter(can_move).copied().collect();
    if movable.is_empty() {
        return bundle.modes.iter().take(1).copied().collect();
    }
    movable
}

/// Parts of an operator that make a move harder.
fn traits(csv: &Value) -> Vec<&'static str> {
    let has = |pointer: &str| items(csv, pointer).next().is_some();
    let is_converting =
        items(csv, "/spec/webhookdefinitions").any(|webhook| text(webhook, "/type") == "ConversionWebhook");
    [
        ("webhooks", has("/spec/webhookdefinitions")),
        ("conversion webhooks", is_converting),
        ("aggregated APIs", has("/spec/apiservicedefinitions/owned")),
        ("required APIs", has("/spec/customresourcedefinitions/required")),
    ]
    .into_iter()
    .filter_map(|(name, has)| has.then_some(name))
    .collect()
}

/// Pushes all bundles and their catalog. Returns the package of each bundle, and the image of the catalog.
async fn publish(world: &World, packages: &[Package]) -> Result<(BTreeMap<String, String>, String)> {
    let mut names = BTreeMap::new();
    let mut blobs: Vec<Value> = Vec::new();
    for package in packages {
        let mut channels = BTreeMap::new();
        for bundle in &package.versions {
            let files = bundles::read(&bundle.folder)?;
            let number = text(&bundle.csv, "/spec/version");
            let annotated = package_name(&files).unwrap_or_else(|| package.name.clone());
            let tag = format!("real/{}:{}", package.name, number.replace('+', "_"));
            let image = world.push_bundle(&tag, &files).await?;
            blobs.extend(blobs_of(&annotated, bundle, &image));
            names.insert(bundle.name.clone(), annotated.clone());
            channels.insert(annotated, bundle.name.clone());
        }
        blobs.extend(channels.into_iter().map(
            |(name, channel)| json!({"schema": "olm.package", "name": name, "defaultChannel": channel}),
        ));
    }
    ensure!(!blobs.is_empty(), "there are no bundles");
    let text: String = blobs.iter().map(|blob| format!("{blob}\n")).collect();
    let image = world.push_catalog("real-catalog:latest", &text).await?;
    Ok((names, image))
}

/// The package in the metadata of a bundle.
fn package_name(files: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    const KEY: &str = "/annotations/operators.operatorframework.io.bundle.package.v1";
    let annotations = files.get("metadata/annotations.yaml")?;
    let mut documents = olm_yaml::documents(annotations.as_slice(), &olm_yaml::Limits::default());
    let annotations = documents.next()?.ok()?.into_value().ok()?;
    Some(text(&annotations, KEY).to_owned()).filter(|name| !name.is_empty())
}

/// A bundle and its channel.
fn blobs_of(package: &str, bundle: &Bundle, image: &str) -> [Value; 2] {
    let number = text(&bundle.csv, "/spec/version");
    let apis = items(&bundle.csv, "/spec/customresourcedefinitions/owned").filter_map(|api| {
        let (_, group) = text(api, "/name").split_once('.')?;
        let value = json!({"group": group, "version": api["version"], "kind": api["kind"]});
        Some(json!({"type": "olm.gvk", "value": value}))
    });
    let own = json!({"type": "olm.package", "value": {"packageName": package, "version": number}});
    let mut properties: Vec<Value> = Vec::new();
    for property in std::iter::once(own).chain(apis) {
        if !properties.contains(&property) {
            properties.push(property);
        }
    }
    [
        json!({
            "schema": "olm.channel", "package": package, "name": bundle.name,
            "entries": [{"name": bundle.name}],
        }),
        json!({
            "schema": "olm.bundle", "package": package, "name": bundle.name, "image": image,
            "properties": properties,
        }),
    ]
}

/// A bundle in one install mode.
struct Life {
    package: String,
    bundle: String,
    mode: Mode,
    traits: Vec<&'static str>,
    outcome: Result<Outcome>,
}

#[derive(Default)]
struct Report {
    moved: usize,
    packages: BTreeSet<String>,
    modes: BTreeMap<Mode, usize>,
    traits: BTreeMap<&'static str, usize>,
    objects: usize,
    pods: usize,
    /// Refused bundles by check.
    refused: BTreeMap<String, BTreeSet<String>>,
    failed: usize,
}

impl Report {
    fn add(&mut self, life: Life) -> Result<()> {
        let Life {
            package,
            bundle,
            mode,
            traits,
            outcome,
        } = life;
        let mut out = std::io::stdout();
        match outcome {
            Ok(Outcome::Moved {
                there,
                back,
                objects,
                pods,
            }) => {
                self.moved += 1;
                self.packages.insert(package);
                *self.modes.entry(mode).or_default() += 1;
                for name in traits {
                    *self.traits.entry(name).or_default() += 1;
                }
                self.objects += objects;
                self.pods += pods;
                let (there, back) = (there.as_secs_f64(), back.as_secs_f64());
                writeln!(
                    out,
                    "test {bundle} {mode} ... ok (there {there:.1} s, back {back:.1} s, {objects} objects, {pods} pods)"
                )?;
            }
            Ok(Outcome::Refused(findings)) => {
                for [check, message] in findings {
                    writeln!(out, "test {bundle} {mode} ... refused ({check}): {message}")?;
                    self.refused.entry(check).or_default().insert(bundle.clone());
                }
            }
            Err(error) => {
                self.failed += 1;
                writeln!(out, "test {bundle} {mode} ... FAILED\n{error:#}")?;
            }
        }
        Ok(())
    }

    fn end(&self, left_out: &BTreeMap<String, usize>, is_whole: bool) -> Result<bool> {
        let mut out = std::io::stdout();
        writeln!(
            out,
            "\n{} moves there and back of {} packages with {} objects and {} Pods:",
            self.moved,
            self.packages.len(),
            self.objects,
            self.pods
        )?;
        for (mode, count) in &self.modes {
            writeln!(out, "  {count:5}  {mode}")?;
        }
        for (name, count) in &self.traits {
            writeln!(out, "  {count:5}  with {name}")?;
        }
        let mut is_clean = self.failed == 0;
        writeln!(out, "refused:")?;
        for (check, bundles) in &self.refused {
            let count = bundles.len();
            let known = REFUSALS.iter().find(|(known, ..)| known == check);
            let reason = known.map_or("this check may refuse none", |(_, _, reason)| reason);
            writeln!(out, "  {count:5}  {check}: {reason}")?;
            if known.is_none_or(|(_, most, _)| count > *most) {
                writeln!(out, "         too many: {bundles:?}")?;
                is_clean = false;
            }
        }
        writeln!(out, "left out:")?;
        for (reason, count) in left_out {
            writeln!(out, "  {count:5}  {reason}")?;
        }
        writeln!(out, "{} failed", self.failed)?;
        if is_whole && self.packages.len() < PACKAGES {
            writeln!(out, "operators of at least {PACKAGES} packages must move")?;
            is_clean = false;
        }
        Ok(is_clean)
    }
}
