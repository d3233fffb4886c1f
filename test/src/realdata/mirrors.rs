//! `olm-test real-mirrors DIR`: `olm mirror` copies real catalogs with all their images from one registry to another,
//! and each package resolves there as it did at the source.
//!
//! The real images cannot be fetched. Small ones stand in for them in a registry to which a `registries.conf` leads.

mod stand_ins;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use olm_image::{Access, BuiltImage, Images, Options, Reference, Registries};
use serde_json::Value;
use tempfile::TempDir;

use self::stand_ins::{Package, RealCatalog, StandIns};
use crate::registry::Server;
use crate::world::binary;

/// The number of programs and requests at once.
const AT_ONCE: usize = 4;
/// The registry that catalogs are said to be in.
const HOME: &str = "catalogs.example";

/// What is seen of a catalog in one place.
struct Seen {
    /// The answers to all questions, by the arguments of `olm resolve`.
    answers: BTreeMap<Vec<String>, Value>,
    /// The digests of the images of all chosen bundles.
    digests: BTreeMap<String, String>,
}

/// Prints a line for each catalog like a test, and returns whether all passed. Of the large catalog, the packages with
/// at most `most` bundles are mirrored.
///
/// # Errors
/// When the data cannot be read, a registry does not start, or `olm` cannot be run.
pub async fn run(dir: &Path, most: usize) -> Result<bool> {
    olm_platform::crypto::install();
    let start = Instant::now();
    let mut stand_ins = StandIns::new()?;
    let catalogs = stand_ins.catalogs(dir, most)?;
    let (source, target) = (Server::start().await?, Server::start().await?);
    let scratch = TempDir::new()?;
    let run = Run {
        folder: scratch.path(),
        source: source.registry().address.clone(),
        target: target.registry().address.clone(),
        images: Images::new(Options::new("test")),
    };
    run.write_online(&catalogs)?;
    run.push(&catalogs, &stand_ins).await?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "source: {} images, {} s",
        stand_ins.images().len(),
        start.elapsed().as_secs()
    )?;

    let mut online = Vec::new();
    for catalog in &catalogs {
        let conf = run.folder.join("online.conf");
        online.push(run.look(catalog, &conf).await?);
    }
    writeln!(out, "resolved at the source, {} s", start.elapsed().as_secs())?;
    let mut copied = Vec::new();
    for catalog in &catalogs {
        copied.push(run.mirror(catalog).await.map_err(|error| format!("{error:#}")));
    }
    writeln!(out, "copied, {} s", start.elapsed().as_secs())?;
    drop(source);

    let (mut packages, mut failed, mut total) = (0, 0, Tally::default());
    for ((catalog, before), copied) in catalogs.iter().zip(&online).zip(copied) {
        let compared = match copied {
            Ok(()) => run.compare(catalog, before).await,
            Err(why) => Err(why),
        };
        match compared {
            Ok(tally) => {
                packages += catalog.packages.len();
                total.add(tally);
                writeln!(
                    out,
                    "test {}: {} packages, {} images, {tally} ... ok",
                    catalog.name,
                    catalog.packages.len(),
                    catalog.images.len()
                )?;
            }
            Err(why) => {
                failed += 1;
                writeln!(out, "test {} ... FAILED\n{why}", catalog.name)?;
            }
        }
    }
    writeln!(
        out,
        "\n{packages} packages of {} catalogs compared, {total}, {failed} catalogs failed; {} s",
        catalogs.len() - failed,
        start.elapsed().as_secs()
    )?;
    Ok(failed == 0 && packages > 0 && total.resolved > 0 && total.images > 0)
}

/// The number of equal answers.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    resolved: usize,
    refused: usize,
    /// Images of resolved bundles with the same digest.
    images: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.resolved += other.resolved;
        self.refused += other.refused;
        self.images += other.images;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} resolutions and {} refusals equal, {} digests of bundles equal",
            self.resolved, self.refused, self.images
        )
    }
}

struct Run<'a> {
    folder: &'a Path,
    source: String,
    target: String,
    images: Images,
}

impl Run<'_> {
    /// The file that leads to the source: each registry is a folder of it.
    fn write_online(&self, catalogs: &[RealCatalog]) -> Result<()> {
        let mut hosts = BTreeSet::from([HOME.to_owned()]);
        for image in catalogs.iter().flat_map(|catalog| &catalog.images) {
            hosts.insert(Reference::parse_familiar(image)?.registry().to_owned());
        }
        let rule = |host: &String| {
            format!(
                "[[registry]]\nprefix = \"{host}\"\nlocation = \"{}/{}\"\ninsecure = true\n\n",
                self.source,
                host.replace(':', "-")
            )
        };
        let text: String = hosts.iter().map(rule).collect();
        Ok(std::fs::write(self.folder.join("online.conf"), text)?)
    }

    /// Pushes all images, and the catalogs.
    async fn push(&self, catalogs: &[RealCatalog], stand_ins: &StandIns) -> Result<()> {
        let held = held_back(catalogs)?;
        let images = stand_ins.images().iter().filter(|(name, _)| **name != held);
        let pushes = images.map(|(name, image)| self.push_one(name, image));
        stream::iter(pushes)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        for catalog in catalogs {
            self.push_one(&reference(catalog), &catalog.image()?).await?;
        }
        // One is missing at first.
        let first = catalogs.first().context("there is a catalog")?;
        self.missing_is_reported(first, &held).await?;
        let image = stand_ins.images().get(&held).context("it stands in")?;
        self.push_one(&held, image).await
    }

    async fn push_one(&self, name: &str, image: &BuiltImage) -> Result<()> {
        let familiar = Reference::parse_familiar(name)?.to_string();
        let (host, rest) = familiar.split_once('/').context("a registry")?;
        let place = Reference::parse(&format!("{}/{}/{rest}", self.source, host.replace(':', "-")))?;
        let access = Access {
            registries: Arc::new(Registries::default().plain_http(&self.source)),
            ..Access::default()
        };
        let pushed = self.images.push(&place, image, &access).await;
        pushed.map(drop).with_context(|| format!("cannot push {place}"))
    }

    /// Runs `olm` with the configuration of registries in `conf`.
    async fn olm(&self, arguments: &[String], conf: &Path) -> Result<Output> {
        let ran = tokio::process::Command::new(binary("olm")?)
            .args(arguments)
            .arg("--registries-conf")
            .arg(conf)
            .current_dir(self.folder)
            .output();
        Ok(ran.await?)
    }

    fn mirror_arguments(&self, catalog: &RealCatalog) -> Vec<String> {
        let mut arguments = vec!["mirror".to_owned(), reference(catalog)];
        if catalog.is_selection {
            arguments.extend(catalog.packages.keys().cloned());
        }
        arguments.extend(["--to".to_owned(), format!("{}/mirror", self.target)]);
        arguments.extend([
            "--config-dir".to_owned(),
            catalog.name.clone(),
            "--insecure".to_owned(),
        ]);
        arguments
    }

    /// Without one of the images, `olm mirror` names it and sends nothing.
    async fn missing_is_reported(&self, catalog: &RealCatalog, image: &str) -> Result<()> {
        let refused = self
            .olm(&self.mirror_arguments(catalog), &self.folder.join("online.conf"))
            .await?;
        let printed = String::from_utf8_lossy(&refused.stdout);
        let path = image.split(['@', ':']).next().unwrap_or_default();
        ensure!(
            refused.status.code() == Some(1)
                && printed.contains(" 1 missing;")
                && printed
                    .lines()
                    .any(|line| line.starts_with("missing: ") && line.contains(path)),
            "{image} is missing, but: {refused:?}"
        );
        let list: Value = reqwest::get(format!("http://{}/v2/_catalog", self.target))
            .await?
            .json()
            .await?;
        let sent = list.get("repositories").and_then(Value::as_array).map(Vec::len);
        ensure!(sent == Some(0), "the target has {list}");
        Ok(())
    }

    /// Copies a catalog to the target.
    async fn mirror(&self, catalog: &RealCatalog) -> Result<()> {
        let ran = self
            .olm(&self.mirror_arguments(catalog), &self.folder.join("online.conf"))
            .await?;
        let printed = String::from_utf8_lossy(&ran.stdout);
        let familiar = catalog
            .images
            .iter()
            .map(|image| Reference::parse_familiar(image));
        let distinct = familiar
            .map(|image| Ok(image?.to_string()))
            .collect::<Result<BTreeSet<_>>>()?;
        // The catalog itself, also one that is built for the selection.
        let count = distinct.len() + 1;
        ensure!(
            ran.status.success() && printed.contains(&format!("\n{count} images: ")),
            "`olm mirror` of {count} images: {} {}",
            printed.lines().last().unwrap_or_default(),
            String::from_utf8_lossy(&ran.stderr)
        );
        Ok(())
    }

    /// The answers of `olm resolve` to all questions about the packages of a catalog, and the digests of the images.
    async fn look(&self, catalog: &RealCatalog, conf: &Path) -> Result<Seen> {
        let answers = self.answers(catalog, conf).await?;
        let digests = self.digests(&answers, conf).await?;
        Ok(Seen { answers, digests })
    }

    async fn answers(&self, catalog: &RealCatalog, conf: &Path) -> Result<BTreeMap<Vec<String>, Value>> {
        let asked = catalog
            .packages
            .iter()
            .flat_map(|(name, package)| questions(name, package));
        let runs = asked.map(|question| async move {
            let mut arguments = vec!["resolve".to_owned()];
            arguments.extend(question.iter().cloned());
            arguments.extend(["--catalog".to_owned(), format!("c={}", reference(catalog))]);
            arguments.extend(["--output".to_owned(), "json".to_owned()]);
            let ran = self.olm(&arguments, conf).await?;
            let answer = serde_json::from_slice(&ran.stdout)
                .with_context(|| format!("{question:?}: {}", String::from_utf8_lossy(&ran.stderr)))?;
            Ok((question, answer))
        });
        stream::iter(runs).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn digests(
        &self,
        answers: &BTreeMap<Vec<String>, Value>,
        conf: &Path,
    ) -> Result<BTreeMap<String, String>> {
        let text = std::fs::read_to_string(conf)?;
        let access = Access {
            registries: Arc::new(Registries::parse([("registries.conf", text.as_str())])?),
            ..Access::default()
        };
        let images = answers
            .values()
            .filter_map(|answer| answer.get("image")?.as_str());
        let images: BTreeSet<&str> = images.filter(|image| !image.is_empty()).collect();
        let found = images.into_iter().map(|image| {
            let access = &access;
            async move {
                let pinned = self
                    .images
                    .resolve(&Reference::parse_familiar(image)?, access)
                    .await?;
                Ok((image.to_owned(), pinned.digest().to_string()))
            }
        });
        stream::iter(found).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Asks the mirror, and compares.
    async fn compare(&self, catalog: &RealCatalog, before: &Seen) -> Result<Tally, String> {
        let text = |error: anyhow::Error| format!("{error:#}");
        let conf = self.folder.join(&catalog.name).join("registries.conf");
        let after = self.look(catalog, &conf).await.map_err(text)?;
        let mut tally = Tally::default();
        for (question, answer) in &before.answers {
            let there = after.answers.get(question);
            if there != Some(answer) {
                let there = there.map(Value::to_string).unwrap_or_default();
                return Err(format!(
                    "{question:?}: {there} at the mirror, {answer} at the source"
                ));
            }
            match answer.get("resolved").and_then(Value::as_bool) {
                Some(true) => tally.resolved += 1,
                _ => tally.refused += 1,
            }
        }
        if after.digests != before.digests {
            return Err(format!(
                "the digests are {:?}, were {:?}",
                after.digests, before.digests
            ));
        }
        tally.images = before.digests.len();
        Ok(tally)
    }
}

fn reference(catalog: &RealCatalog) -> String {
    format!("{HOME}/catalogs/{}:v1", catalog.name)
}

/// An image of the first catalog.
fn held_back(catalogs: &[RealCatalog]) -> Result<String> {
    let image = catalogs.first().and_then(|catalog| catalog.images.last());
    image.cloned().context("the first catalog names no image")
}

/// The questions about a package, as arguments: the newest version, that of each channel, the one after the lowest, and
/// two ranges.
fn questions(name: &str, package: &Package) -> Vec<Vec<String>> {
    let mut questions = vec![Vec::new()];
    questions.extend(
        package
            .channels
            .iter()
            .map(|channel| vec!["--channel".to_owned(), channel.clone()]),
    );
    if let [(lowest, from), .., (_, to)] = package.bundles.as_slice() {
        questions.push(vec!["--installed".to_owned(), format!("{lowest}@{from}")]);
        questions.push(vec!["--version".to_owned(), format!("<{to}")]);
        questions.push(vec!["--version".to_owned(), format!("<={from}")]);
    }
    for question in &mut questions {
        question.insert(0, name.to_owned());
    }
    questions
}
