//! The memory of both managers under catalogs that are designed to use as much as possible.

mod attacks;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kube::Api;
use kube::api::DeleteParams;
use olm_api::conditions::{self, PROGRESSING, SERVING};
use olm_api::{ClusterCatalog, ClusterExtension};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::attacks::{ALL, Attack};
use super::process;
use crate::extensions::{catalog, extensions};
use crate::world::{Manager, Options, World, eventually};

/// The time limit for a catalog.
const LIMIT: Duration = Duration::from_mins(10);
/// The time between the deletion of a catalog and the measurement of memory.
const REST: Duration = Duration::from_secs(20);
/// The limit for the peak memory of a manager with any catalog, in bytes.
const PEAK: u64 = 200 << 20;
/// The limit for the additional memory of a manager after the deletion, in bytes.
const LEFT: u64 = 20 << 20;
/// The names of the managers in tables, in the order of [`managers`].
const MANAGERS: [&str; 2] = ["catalogd", "operator-controller"];

/// Measures with the attacks of these names, or with all, and prints the figures.
///
/// # Errors
/// When a part cannot be started or does not end in time, or a manager exceeds a memory limit.
pub async fn run(names: &[String]) -> Result<()> {
    if let Some(unknown) = names
        .iter()
        .find(|name| ALL.iter().all(|(known, _)| known != name))
    {
        let known = ALL.map(|(name, _)| name).join(", ");
        bail!("there is no catalog {unknown:?}; there are {known}");
    }
    let world = World::start(Options::default()).await?;
    let mut text = format!(
        "\n{}\n\nMemory in MiB at most / {} s after the deletion, in turn.\n\n| catalog | {} | {} | took | catalogd says |\n|---|---|---|---|---|\n",
        process::machine()?,
        REST.as_secs(),
        MANAGERS[0],
        MANAGERS[1],
    );
    let begin = resident(&world)?;
    let [first, second] = begin.map(process::mebibytes);
    text.push_str(&format!("| none | {first} | {second} | | |\n"));
    let mut exceeded = Vec::new();
    for (name, attack) in ALL {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let measured = measure(&world, attack()).await?;
            text.push_str(&measured.row());
            exceeded.extend(measured.exceeded(begin));
        }
    }
    super::print_text(&text)?;
    ensure!(exceeded.is_empty(), "{}", exceeded.join("; "));
    Ok(())
}

/// The results for one catalog.
struct Measured {
    what: &'static str,
    said: String,
    took: Duration,
    peak: [u64; 2],
    left: [u64; 2],
}

impl Measured {
    fn row(&self) -> String {
        let [first, second] = [0, 1].map(|manager: usize| {
            let of = |figures: &[u64; 2]| figures.get(manager).copied().map(process::mebibytes);
            let (peak, left) = (of(&self.peak), of(&self.left));
            format!("{} / {}", peak.unwrap_or_default(), left.unwrap_or_default())
        });
        let seconds = self.took.as_secs();
        format!(
            "| {} | {first} | {second} | {seconds} s | {} |\n",
            self.what,
            cell(&self.said)
        )
    }

    /// The exceeded limits, as text.
    fn exceeded(&self, begin: [u64; 2]) -> Vec<String> {
        let mut found = Vec::new();
        let figures = self.peak.iter().zip(&self.left).zip(begin);
        for (manager, ((peak, left), begin)) in MANAGERS.iter().zip(figures) {
            let what = self.what;
            if *peak > PEAK {
                found.push(format!(
                    "{manager} took {} under {what}",
                    process::mebibytes(*peak)
                ));
            }
            if *left > begin + LEFT {
                found.push(format!(
                    "{manager} keeps {} after {what}",
                    process::mebibytes(*left)
                ));
            }
        }
        found
    }
}

fn managers(world: &World) -> [&Manager; 2] {
    [&world.catalogd, &world.operator_controller]
}

fn of_each(world: &World, figure: fn(u32) -> Result<u64>) -> Result<[u64; 2]> {
    let [first, second] =
        managers(world).map(|manager| figure(manager.pid().context("a manager does not run")?));
    Ok([first?, second?])
}

fn resident(world: &World) -> Result<[u64; 2]> {
    of_each(world, process::resident)
}

async fn measure(world: &World, attack: Attack) -> Result<Measured> {
    let Attack {
        name,
        what,
        files,
        packages,
        queries,
    } = attack;
    let reference = world.push_catalog_of(&format!("{name}:latest"), &files).await?;
    drop(files);
    of_each(world, |pid| process::forget_peak(pid).map(|()| 0))?;
    let begin = Instant::now();
    world.apply(&[catalog(name, &reference)])?;
    let catalogs = Api::<ClusterCatalog>::all(world.client.clone());
    let said = eventually("catalogd has looked at the catalog", LIMIT, async || {
        let catalog = catalogs.get(name).await?;
        let serving = conditions::is_true(catalog.conditions(), SERVING);
        let progressing = conditions::find(catalog.conditions(), PROGRESSING);
        let refused = progressing.filter(|found| !serving && found.message.len() > 40);
        Ok(match refused {
            Some(refused) => Some(refused.message.clone()),
            None => serving.then(|| "served".to_owned()),
        })
    })
    .await?;
    let took = begin.elapsed();
    let objects: Vec<Value> = packages.iter().map(|package| wanted(package, name)).collect();
    if !objects.is_empty() {
        world.apply(&objects)?;
    }
    for package in &packages {
        eventually(
            "operator-controller has looked at the package",
            LIMIT,
            async || {
                let extension: ClusterExtension = extensions(world).get(package).await?;
                Ok(conditions::find(extension.conditions(), PROGRESSING).map(drop))
            },
        )
        .await?;
    }
    let clients = clients(world, name, queries).await?;
    // The first work is repeated, and catalogd continues with derived data.
    tokio::time::sleep(REST).await;
    let peak = of_each(world, process::peak)?;
    clients.end()?;
    for package in &packages {
        extensions(world)
            .delete(package, &DeleteParams::default())
            .await?;
    }
    super::unpack::remove(world, name).await?;
    tokio::time::sleep(REST).await;
    Ok(Measured {
        what,
        said,
        took,
        peak,
        left: resident(world)?,
    })
}

/// Clients of GraphQL that ask again and again until this is dropped.
struct Clients {
    answered: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Clients {
    fn end(self) -> Result<()> {
        let answered = self.answered.load(Ordering::Relaxed);
        ensure!(self.tasks.is_empty() || answered > 0, "no query was answered");
        Ok(())
    }
}

/// A client for each query. It reads its answer slowly, so that answers accumulate.
async fn clients(world: &World, catalog: &str, queries: Vec<String>) -> Result<Clients> {
    let client = reqwest::Client::builder()
        .tls_certs_merge([world.catalogd_authority().await?])
        .no_proxy()
        .build()?;
    let url = format!("{}/catalogs/{catalog}/api/v1/graphql", world.catalogs);
    let answered = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for query in queries {
        let (client, url, answered) = (client.clone(), url.clone(), Arc::clone(&answered));
        let body = json!({ "query": query }).to_string();
        tasks.spawn(async move {
            loop {
                if let Ok(answer) = client.post(&url).body(body.clone()).send().await {
                    answered.fetch_add(usize::from(answer.status() == 200), Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    // The next one is requested even if an answer is cut off.
                    let _ = answer.bytes().await;
                }
            }
        });
    }
    Ok(Clients { answered, tasks })
}

/// An extension without an account: any user who may write one can cause a package to be read.
fn wanted(package: &str, catalog: &str) -> Value {
    let selector = json!({ "matchLabels": { olm_api::names::label::METADATA_NAME: catalog } });
    json!({
        "apiVersion": olm_api::names::API_VERSION,
        "kind": olm_api::names::CLUSTER_EXTENSION,
        "metadata": { "name": package },
        "spec": {
            "namespace": package,
            "source": {
                "sourceType": "Catalog",
                "catalog": { "packageName": package, "selector": selector },
            },
        },
    })
}

/// The beginning of a message, as a cell of a table.
fn cell(message: &str) -> String {
    let short: String = message.chars().take(160).collect();
    short.replace(['\n', '|'], " ")
}
