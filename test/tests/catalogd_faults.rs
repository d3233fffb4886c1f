//! catalogd as processes that are killed, replaced, restarted and run out of disk.
#![expect(
    clippy::print_stderr,
    reason = "figures are for whoever reads the test's output"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use olm_api::{ClusterCatalog, conditions, names};
use olm_test::cluster::Component;
use olm_test::shared::Shared;
use olm_test::world::{Lab, Manager, PausableRelay, eventually, free_address};
use serde_json::{Value, json};

/// The name that all replicas show a certificate for.
const HOST: &str = "catalogs.example";
const SOON: Duration = Duration::from_secs(60);
/// Enough bytes that unpacking takes a while, few enough for many rounds.
const FILLER: usize = 6 << 20;

/// A catalog of one package that contains the number of its round and has the requested size.
fn blobs(round: usize, bytes: usize) -> String {
    let package =
        |name: &str| json!({ "schema": "olm.package", "name": name, "defaultChannel": "" }).to_string();
    let mut text = package(&format!("round-{round}"));
    let mut part = 0;
    while text.len() < bytes {
        // Text that does not compress well and is the same every time.
        let mut state = u32::try_from(part + round * 7919).unwrap_or_default() | 1;
        let noise: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + u8::try_from(state >> 24).unwrap_or_default() % 26)
        })
        .take(64 << 10)
        .collect();
        text.push('\n');
        text += &json!({ "schema": "test.filler", "package": format!("round-{round}"), "name": format!("{part}"), "noise": noise })
            .to_string();
        part += 1;
    }
    text
}

async fn push(lab: &Lab, name: &str, round: usize, bytes: usize) -> Result<String> {
    lab.push_catalog(&format!("{name}:latest"), &blobs(round, bytes))
        .await
}

async fn create(lab: &Lab, name: &str, reference: &str) -> Result<()> {
    let object = json!({
        "apiVersion": names::API_VERSION,
        "kind": names::CLUSTER_CATALOG,
        "metadata": { "name": name },
        "spec": { "source": { "type": "Image", "image": { "ref": reference } } },
    });
    let catalogs: Api<ClusterCatalog> = Api::all(lab.client.clone());
    catalogs
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

/// Changes the catalog so that it is reconciled again.
async fn touch(lab: &Lab, name: &str, number: usize) -> Result<()> {
    let catalogs: Api<ClusterCatalog> = Api::all(lab.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "priority": number } }));
    catalogs.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn settled(lab: &Lab, name: &str, reason: &str) -> Result<ClusterCatalog> {
    eventually(&format!("{name}: {reason}"), SOON, async || {
        let catalog = Api::<ClusterCatalog>::all(lab.client.clone()).get(name).await?;
        let progressing = conditions::find(catalog.conditions(), conditions::PROGRESSING);
        let found = progressing.is_some_and(|condition| {
            condition.reason == reason && condition.observed_generation == Some(catalog.generation())
        });
        if found {
            return Ok(Some(catalog));
        }
        bail!("{:?}", progressing.map(|condition| &condition.message))
    })
    .await
}

/// A replica of catalogd.
struct Replica {
    manager: Manager,
    /// The address of the content.
    content: String,
}

impl Replica {
    async fn prepare(lab: &Lab, name: &str, more: &[&str]) -> Result<Self> {
        let content = free_address()?;
        let more = [format!("--external-address={HOST}")]
            .into_iter()
            .chain(more.iter().map(|&argument| argument.to_owned()))
            .collect();
        let manager = Manager::catalogd(lab, name, &content, more).await?;
        Ok(Self { manager, content })
    }

    async fn start(&mut self, lab: &Lab) -> Result<()> {
        self.manager.start(&lab.cluster)?;
        self.manager.ready().await
    }
}

/// A client that trusts the certificates of catalogd's replicas.
async fn client(lab: &Lab) -> Result<reqwest::Client> {
    let authority = lab.catalogd_authority().await?;
    Ok(reqwest::Client::builder()
        .tls_certs_only([authority])
        .timeout(Duration::from_secs(20))
        .resolve(HOST, ([127, 0, 0, 1], 0).into())
        .build()?)
}

/// The address of all of a catalog at a replica.
fn all(content: &str, name: &str) -> String {
    let port = content.rsplit(':').next().unwrap_or_default();
    format!("https://{HOST}:{port}/catalogs/{name}/api/v1/all")
}

/// The round that a replica serves; `None` while it serves none.
async fn served(client: &reqwest::Client, content: &str, name: &str) -> Result<Option<(String, usize)>> {
    let answer = client.get(all(content, name)).send().await?;
    if answer.status().is_server_error() || answer.status() == 404 {
        return Ok(None);
    }
    let text = answer.error_for_status()?.text().await?;
    let first: Value = serde_json::from_str(text.lines().next().unwrap_or_default())?;
    let round = first["name"].as_str().context("no name")?.to_owned();
    ensure!(
        text.lines().all(|line| serde_json::from_str::<Value>(line)
            .is_ok_and(|blob| blob["name"] == round || blob["package"] == round)),
        "two rounds are mixed"
    );
    Ok(Some((round, text.lines().count())))
}

/// All files below a folder, relative to it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            found.push(path.strip_prefix(folder).unwrap_or(&path).display().to_string());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Checks that the cache contains exactly one content of the catalog.
async fn tidy(cache: &Path, name: &str) -> Result<()> {
    eventually("the cache is tidy", SOON, async || {
        let found = files(cache);
        let contents = found
            .iter()
            .filter(|path| path.starts_with(&format!("catalogs/{name}/")) && path.matches('/').count() == 2)
            .count();
        let unfinished = found
            .iter()
            .any(|path| path.contains(".new-") || path.starts_with("unpack/"));
        if contents == 1 && !unfinished {
            return Ok(Some(()));
        }
        bail!("{found:?}")
    })
    .await
}

/// A cluster whose catalogd each test starts itself. All use the same catalog, one after the other.
static CLUSTER: Shared<Lab> = Shared::new(|| Box::pin(Lab::with_manifests("manifests/base")));

/// A catalog is never in memory as a whole: sixteen times the bytes cost less than half of the difference.
#[test]
fn a_large_catalog_is_streamed() -> Result<()> {
    const SMALL: usize = 4 << 20;
    const LARGE: usize = 64 << 20;
    CLUSTER.alone(async |lab| {
        clean(lab).await?;
        let mut replica = Replica::prepare(lab, "streamed", &[]).await?;
        replica.start(lab).await?;
        let reference = push(lab, "cat", 0, SMALL).await?;
        create(lab, "cat", &reference).await?;
        settled(lab, "cat", "Succeeded").await?;
        let before = peak(&replica.manager)?;
        push(lab, "cat", 1, LARGE).await?;
        let lines = blobs(1, LARGE).lines().count();
        touch(lab, "cat", 1).await?;
        let client = client(lab).await?;
        eventually("the large catalog is served", SOON, async || {
            let now = served(&client, &replica.content, "cat").await?;
            Ok(now.filter(|now| *now == ("round-1".to_owned(), lines)))
        })
        .await?;
        let after = peak(&replica.manager)?;
        eprintln!(
            "the peak of memory was {} MiB with {} MiB and {} MiB with {} MiB",
            before >> 20,
            SMALL >> 20,
            after >> 20,
            LARGE >> 20
        );
        ensure!(
            after - before < (LARGE - SMALL) / 2,
            "the peak of memory grew by {} MiB",
            (after - before) >> 20
        );
        remove(lab).await?;
        replica.manager.stop().await.map(drop)
    })
}

/// The most memory that a process has had, in bytes.
fn peak(manager: &Manager) -> Result<usize> {
    let pid = manager.pid().context("it does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .context("no peak")?;
    Ok(kibibytes.trim().parse::<usize>()? << 10)
}

/// Removes the catalog of another test, and the lease of a killed replica.
async fn clean(lab: &Lab) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), names::SYSTEM_NAMESPACE);
    leases
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let catalogs: Api<ClusterCatalog> = Api::all(lab.client.clone());
    if catalogs.get_opt("cat").await?.is_some() {
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        catalogs.patch("cat", &PatchParams::default(), &free).await?;
        catalogs.delete("cat", &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Removes the catalog; a leading replica must be running.
async fn remove(lab: &Lab) -> Result<()> {
    let catalogs: Api<ClusterCatalog> = Api::all(lab.client.clone());
    catalogs.delete("cat", &DeleteParams::default()).await?;
    eventually("the catalog is gone", SOON, async || {
        Ok(catalogs.get_opt("cat").await?.is_none().then_some(()))
    })
    .await
}

#[test]
fn a_replica_killed_at_any_point_serves_whole_content_and_leaves_nothing_behind() -> Result<()> {
    CLUSTER.alone(async |lab| {
        clean(lab).await?;
        killed_at_any_point(lab).await
    })
}

/// Killed at any point, it serves complete content and leaves no files behind.
async fn killed_at_any_point(lab: &Lab) -> Result<()> {
    let cache = lab.folder().join("killed");
    let mut replica = Replica::prepare(lab, "killed", &[]).await?;
    // No flag names a certificate, so it creates its own.
    replica.start(lab).await?;
    // A message must report if every image is accepted.
    let said = if Path::new("/etc/containers/policy.json").exists() {
        "images have to satisfy this signature policy"
    } else {
        "there is no signature policy: every image is accepted"
    };
    let log = std::fs::read_to_string(&replica.manager.log)?;
    ensure!(log.contains(said), "{log}");
    let client = client(lab).await?;
    let reference = push(lab, "cat", 0, FILLER).await?;
    create(lab, "cat", &reference).await?;
    settled(lab, "cat", "Succeeded").await?;
    let whole = served(&client, &replica.content, "cat")
        .await?
        .context("nothing is served")?;
    for round in 1..=8 {
        push(lab, "cat", round, FILLER).await?;
        touch(lab, "cat", round).await?;
        tokio::time::sleep(Duration::from_millis(35 * round as u64)).await;
        replica.manager.kill();
        replica.manager.start(&lab.cluster)?;
        // The content on the disk is served first: the round before, or this one.
        let first = eventually("something is served", SOON, async || {
            served(&client, &replica.content, "cat").await
        })
        .await?;
        let possible = [format!("round-{}", round - 1), format!("round-{round}")];
        ensure!(
            possible.contains(&first.0) && first.1 == whole.1,
            "{first:?}, not {possible:?}"
        );
        settled(lab, "cat", "Succeeded").await?;
        eventually("the new content is served", SOON, async || {
            let now = served(&client, &replica.content, "cat").await?;
            Ok(now.filter(|now| *now == (format!("round-{round}"), whole.1)))
        })
        .await?;
        tidy(&cache, "cat").await?;
    }
    restart_with_a_warm_disk(lab, &mut replica, &client).await?;
    remove(lab).await?;
    replica.manager.stop().await.map(drop)
}

/// A restarted replica serves the content on the disk at once, with or without the API server, and the only request to
/// the registry resolves the tag.
async fn restart_with_a_warm_disk(lab: &Lab, replica: &mut Replica, client: &reqwest::Client) -> Result<()> {
    replica.manager.stop().await?;
    let downloads = || -> Result<usize> {
        let log = lab
            .cluster
            .logs_dir()
            .join(format!("{}.log", Component::RegistryTls.name()));
        let text = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
        Ok(text
            .lines()
            .filter(|line| line.contains("/blobs/") || line.contains("/manifests/sha256:"))
            .count())
    };
    let before = downloads()?;
    ensure!(before > 0, "the registry's log does not tell of downloads");
    // The API server is not needed either: the certificate is on the disk, too.
    lab.cluster.kill(Component::KubeApiserver)?;
    let begin = Instant::now();
    replica.manager.start(&lab.cluster)?;
    let url = all(&replica.content, "cat");
    let took = loop {
        let answer = client
            .get(&url)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status);
        if let Ok(mut answer) = answer {
            ensure!(answer.chunk().await?.is_some(), "nothing is served");
            break begin.elapsed();
        }
        ensure!(begin.elapsed() < SOON, "nothing is served within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    lab.cluster.revive(Component::KubeApiserver)?;
    replica.manager.ready().await?;
    settled(lab, "cat", "Succeeded").await?;
    eprintln!(
        "a restart with a warm disk served its first byte after {} ms",
        took.as_millis()
    );
    ensure!(downloads()? == before, "something was downloaded again");
    Ok(())
}

/// The answers of a replica to sequential requests.
struct Answers {
    /// The number of answers, and each answer that differs from the one before.
    seen: Arc<Mutex<(usize, Vec<String>)>>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Answers {
    fn begin(client: &reqwest::Client, content: &str) -> Self {
        let (seen, stop) = (Arc::<Mutex<(usize, Vec<String>)>>::default(), Arc::default());
        let (client, content) = (client.clone(), content.to_owned());
        let (noted, asked_to_stop) = (Arc::clone(&seen), Arc::<AtomicBool>::clone(&stop));
        let task = tokio::spawn(async move {
            while !asked_to_stop.load(Ordering::SeqCst) {
                let answer = match served(&client, &content, "cat").await {
                    Ok(Some((round, _))) => round,
                    Ok(None) => "nothing".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                note(&noted, answer);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Self { seen, stop, task }
    }

    fn seen(&self) -> (usize, Vec<String>) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for so many more.
    async fn more(&self, number: usize) -> Result<()> {
        let before = self.seen().0;
        eventually("more answers", SOON, async || {
            Ok((self.seen().0 >= before + number).then_some(()))
        })
        .await
    }

    async fn end(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::SeqCst);
        let seen = Arc::clone(&self.seen);
        self.task.await?;
        Ok(seen.lock().unwrap_or_else(PoisonError::into_inner).1.clone())
    }
}

fn note(seen: &Mutex<(usize, Vec<String>)>, answer: String) {
    let (count, distinct) = &mut *seen.lock().unwrap_or_else(PoisonError::into_inner);
    *count += 1;
    if distinct.last() != Some(&answer) {
        distinct.push(answer);
    }
}

#[test]
fn a_follower_serves_its_content_while_its_registry_is_slow() -> Result<()> {
    CLUSTER.alone(async |lab| {
        clean(lab).await?;
        followed_slowly(lab).await
    })
}

/// A follower serves its content while its registry is slow, fetches the content that the leader reports instead of the
/// present content of the tag, and switches between two answers.
async fn followed_slowly(lab: &Lab) -> Result<()> {
    let relay = PausableRelay::to(lab.registry()?).await?;
    let registries = lab.folder().join("slow.conf");
    let text = format!(
        "[[registry]]\nprefix = \"{}\"\nlocation = \"{}\"\n",
        lab.registry()?,
        relay.address()
    );
    std::fs::write(&registries, text)?;
    let mut leader = Replica::prepare(lab, "leader", &["--leader-elect"]).await?;
    leader.start(lab).await?;
    let reference = push(lab, "cat", 0, FILLER / 16).await?;
    create(lab, "cat", &reference).await?;
    // The replica that writes status is and remains the leader.
    settled(lab, "cat", "Succeeded").await?;
    let slow = format!("--registries-conf={}", registries.display());
    let mut follower = Replica::prepare(lab, "follower", &["--leader-elect", &slow]).await?;
    follower.start(lab).await?;
    let client = client(lab).await?;
    let answers = Answers::begin(&client, &follower.content);
    answers.more(5).await?;

    relay.close();
    let held = relay.held();
    push(lab, "cat", 1, FILLER / 16).await?;
    touch(lab, "cat", 1).await?;
    settled(lab, "cat", "Succeeded").await?;
    eventually("the follower asks its registry", SOON, async || {
        Ok((relay.held() > held).then_some(()))
    })
    .await?;
    // The leader does not look at the tag again.
    push(lab, "cat", 2, FILLER / 16).await?;
    answers.more(20).await?;
    let (_, seen) = answers.seen();
    ensure!(seen == ["round-0"], "while its registry is slow: {seen:?}");
    let first = served(&client, &leader.content, "cat").await?;
    ensure!(first.is_some_and(|(round, _)| round == "round-1"));

    relay.open();
    eventually("the follower serves what the leader does", SOON, async || {
        let now = served(&client, &follower.content, "cat").await?;
        Ok(now.filter(|(round, _)| round == "round-1"))
    })
    .await?;
    answers.more(20).await?;
    let seen = answers.end().await?;
    ensure!(seen == ["round-0", "round-1"], "{seen:?}");
    follower.manager.stop().await?;
    remove(lab).await?;
    // It releases its lease.
    leader.manager.stop().await.map(drop)
}

/// Asks replicas as a Service would have clients do: any of those in the list, and once another one when that fails.
struct Load {
    places: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    fn start(client: &reqwest::Client, places: &[&str]) -> Self {
        let places = Arc::new(Mutex::new(
            places.iter().map(|&place| place.to_owned()).collect::<Vec<_>>(),
        ));
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..4)
            .map(|first| {
                let (client, places, stop) = (client.clone(), Arc::clone(&places), Arc::clone(&stop));
                tokio::spawn(async move {
                    let (mut answered, mut lost) = (0, Vec::new());
                    let mut turn: usize = first;
                    while !stop.load(Ordering::SeqCst) {
                        turn += 1;
                        let (mut faults, mut tried) = (Vec::new(), None);
                        for _ in 0..2 {
                            let place = {
                                let places = places.lock().unwrap_or_else(PoisonError::into_inner);
                                let (before, after) = places.split_at(turn % places.len().max(1));
                                let order = || after.iter().chain(before);
                                // The list may have changed: the replica that failed is avoided if there are others.
                                let other = order().find(|&place| Some(place) != tried.as_ref());
                                other.or(order().next()).cloned().unwrap_or_default()
                            };
                            tried = Some(place.clone());
                            match served(&client, &place, "cat").await {
                                Ok(Some(_)) => {
                                    faults.clear();
                                    answered += 1;
                                    break;
                                }
                                Ok(None) => faults.push(format!("{place}: not served")),
                                Err(error) => faults.push(format!("{place}: {error:#}")),
                            }
                        }
                        if !faults.is_empty() {
                            lost.push(faults.join(", then "));
                        }
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    (answered, lost)
                })
            })
            .collect();
        Self { places, stop, tasks }
    }

    fn replace(&self, places: &[&str]) {
        let mut current = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        *current = places.iter().map(|&place| place.to_owned()).collect();
    }

    async fn end(self) -> Result<(usize, Vec<String>)> {
        self.stop.store(true, Ordering::SeqCst);
        let (mut answered, mut lost) = (0, Vec::new());
        for task in self.tasks {
            let (more, faults) = task.await?;
            answered += more;
            lost.extend(faults);
        }
        Ok((answered, lost))
    }
}

#[test]
fn no_request_is_lost_while_replicas_are_replaced() -> Result<()> {
    CLUSTER.alone(async |lab| {
        clean(lab).await?;
        replaced_under_load(lab).await
    })
}

/// No request fails when the leader dies, nor while replicas are replaced.
async fn replaced_under_load(lab: &Lab) -> Result<()> {
    let elected = ["--leader-elect"];
    let mut replicas = BTreeMap::new();
    for name in ["a", "b", "c", "d"] {
        replicas.insert(name, Replica::prepare(lab, name, &elected).await?);
    }
    let place = |replicas: &BTreeMap<&str, Replica>, name: &str| replicas[name].content.clone();
    let start = async |replicas: &mut BTreeMap<&str, Replica>, name: &'static str| -> Result<()> {
        replicas
            .get_mut(name)
            .context("no such replica")?
            .start(lab)
            .await
    };
    start(&mut replicas, "a").await?;
    let reference = push(lab, "cat", 0, 1 << 20).await?;
    create(lab, "cat", &reference).await?;
    settled(lab, "cat", "Succeeded").await?;
    start(&mut replicas, "b").await?;
    let (a, b, c, d) = (
        place(&replicas, "a"),
        place(&replicas, "b"),
        place(&replicas, "c"),
        place(&replicas, "d"),
    );
    let client = client(lab).await?;
    let load = Load::start(&client, &[&a, &b]);
    tokio::time::sleep(Duration::from_secs(1)).await;

    // The leader dies: its clients ask the other replica.
    replicas.get_mut("a").context("a")?.manager.kill();
    tokio::time::sleep(Duration::from_secs(1)).await;
    load.replace(&[&b]);
    start(&mut replicas, "a").await?;
    load.replace(&[&a, &b]);

    // A rolling upgrade: an old replica is stopped only after a new one is ready.
    start(&mut replicas, "c").await?;
    load.replace(&[&a, &b, &c]);
    replicas.get_mut("b").context("b")?.manager.stop().await?;
    load.replace(&[&a, &c]);
    start(&mut replicas, "d").await?;
    load.replace(&[&a, &c, &d]);
    replicas.get_mut("a").context("a")?.manager.stop().await?;
    load.replace(&[&c, &d]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (answered, lost) = load.end().await?;
    eprintln!("{answered} requests answered, {} lost", lost.len());
    ensure!(lost.is_empty(), "{lost:?}");
    ensure!(answered > 50, "only {answered} requests were made");
    drop(replicas);
    // The lease of the killed replica has not expired, so there is no leader. This replica runs without election.
    let mut last = Replica::prepare(lab, "last", &[]).await?;
    last.manager.start(&lab.cluster)?;
    remove(lab).await?;
    last.manager.stop().await.map(drop)
}

#[test]
fn a_full_disk_costs_the_new_content_and_nothing_else() -> Result<()> {
    CLUSTER.alone(async |lab| {
        clean(lab).await?;
        full_disk(lab).await
    })
}

/// A full disk only prevents new content.
async fn full_disk(lab: &Lab) -> Result<()> {
    let disk = lab.folder().join("small");
    let mut replica = Replica::prepare(lab, "small", &[]).await?;
    replica.manager = replica.manager.on_a_small_disk(&disk)?;
    replica.start(lab).await?;
    let client = client(lab).await?;
    let reference = push(lab, "cat", 0, 1 << 20).await?;
    create(lab, "cat", &reference).await?;
    settled(lab, "cat", "Succeeded").await?;
    for (round, bytes) in [(1, 12 << 20), (2, 40 << 20)] {
        // The content is too large for the disk during storage, and during the pull.
        push(lab, "cat", round, bytes).await?;
        touch(lab, "cat", round).await?;
        let catalog = settled(lab, "cat", "Retrying").await?;
        let message =
            conditions::find(catalog.conditions(), conditions::PROGRESSING).map(|c| c.message.clone());
        ensure!(
            message
                .as_ref()
                .is_some_and(|message| message.contains("No space left on device")),
            "{message:?}"
        );
        let now = served(&client, &replica.content, "cat").await?;
        ensure!(
            now.is_some_and(|(round, _)| round == "round-0"),
            "the last good content is gone"
        );
    }
    push(lab, "cat", 3, 1 << 20).await?;
    touch(lab, "cat", 3).await?;
    settled(lab, "cat", "Succeeded").await?;
    let now = served(&client, &replica.content, "cat").await?;
    ensure!(now.is_some_and(|(round, _)| round == "round-3"));
    tidy(&replica.manager.sees(&disk)?, "cat").await?;
    remove(lab).await?;
    replica.manager.stop().await.map(drop)
}
