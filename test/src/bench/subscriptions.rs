//! Subscriptions of OLM classic with a large catalog present: one, many at once, and the memory of all three programs.
//! The bundles of the catalog are listed by gRPC from here and from `opm serve`, by the same client.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use classic::registry::client::RegistryClient;
use classic::registry::trust::Trust;
use futures::TryStreamExt as _;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::{Figures, catalog, process, requests};
use crate::classic::{self as prepared, aggregated, becomes, own_address, packageserver_rights};
use crate::cluster::{Binaries, objects};
use crate::registry::opm::Opm;
use crate::world::{CLASSIC_NAMESPACE, Lab, Manager, eventually, free_address};

const LIMIT: Duration = Duration::from_mins(15);
/// The number of namespaces with a Subscription.
const NAMESPACES: usize = 50;
/// The number of times that all bundles are listed.
const LISTS: usize = 3;
const V1ALPHA1: &str = "operators.coreos.com/v1alpha1";
/// The package of the small catalog.
const PACKAGE: &str = "trivial";

/// Measures on a cluster of its own with a catalog of so many megabytes.
pub(super) async fn measure(megabytes: u64, quiet: Duration, figures: &mut Figures) -> Result<()> {
    let lab = Lab::empty().await?;
    prepared::prepare(&lab)?;
    lab.apply(&packageserver_rights())?;
    let mut programs = started(&lab).await?;
    let blobs = catalog::generate(&catalog::Shape::of_megabytes(megabytes));
    let image = lab.push_catalog("large:latest", &blobs).await?;
    connected(&lab, "large", &image).await?;
    let small = lab
        .publish(PACKAGE, &["1.0.0"], "operator.example/operator:v1")
        .await?;
    connected(&lab, PACKAGE, &small).await?;
    tokio::time::sleep(quiet).await;
    memory(&programs, megabytes, figures)?;

    namespace(&lab, "alone")?;
    let begin = Instant::now();
    subscribe(&lab, &["alone".to_owned()]).await?;
    succeeded(&lab, &["alone".to_owned()]).await?;
    let what = format!("one Subscription, {megabytes} MB catalog present: applied to CSV Succeeded");
    figures.add(&what, &format!("{:.2} s", begin.elapsed().as_secs_f64()));
    let names: Vec<String> = (0..NAMESPACES)
        .map(|number| format!("many-{number:02}"))
        .collect();
    for name in &names {
        namespace(&lab, name)?;
    }
    let used = used(&programs)?;
    let log = lab.cluster.audit_log();
    let start = requests::end(log)?;
    let begin = Instant::now();
    subscribe(&lab, &names).await?;
    succeeded(&lab, &names).await?;
    let what = format!("{NAMESPACES} Subscriptions in {NAMESPACES} namespaces");
    figures.add(
        &format!("{what}: applied to CSVs Succeeded"),
        &format!("{:.2} s", begin.elapsed().as_secs_f64()),
    );
    for ((name, program), before) in programs.iter().zip(used) {
        let pid = program.pid().context("a program does not run")?;
        let used = process::used(pid)?.saturating_sub(before).as_secs_f64();
        figures.add(
            &format!("{what}: {name}"),
            &format!("{used:.1} s of processor time"),
        );
    }
    for (who, verbs) in requests::since(log, start)? {
        figures.add(
            &format!("{what}: API requests of {who}"),
            &requests::describe(&verbs),
        );
    }

    bundles(&lab, &programs, (megabytes, &blobs), figures).await?;
    for (_, program) in &mut programs {
        program.stop().await?;
    }
    Ok(())
}

/// All three programs, ready.
async fn started(lab: &Lab) -> Result<Vec<(&'static str, Manager)>> {
    let account = format!("--classic-account={}", prepared::ACCOUNT);
    let address = free_address()?;
    let (host, port) = address.split_once(':').context("no port")?;
    lab.apply(&aggregated(port.parse()?))?;
    let parts = [
        ("olm-operator", vec![account.clone()]),
        (
            "catalog-operator",
            vec![
                account,
                format!("--cache-dir={}", lab.folder().join("catalogs").display()),
                format!("--advertise-address={}", own_address()?),
            ],
        ),
        (
            "packageserver",
            vec![
                format!("--bind-address={host}"),
                format!("--secure-port={port}"),
                format!("--global-namespace={CLASSIC_NAMESPACE}"),
            ],
        ),
    ];
    let mut programs = Vec::new();
    for (part, arguments) in parts {
        let mut program = Manager::classic(lab, part, part, arguments).await?;
        program.start(&lab.cluster)?;
        program.ready().await?;
        programs.push((part, program));
    }
    Ok(programs)
}

/// Makes a CatalogSource for all namespaces and waits until it is served.
async fn connected(lab: &Lab, name: &str, image: &str) -> Result<()> {
    let source = json!({
        "apiVersion": V1ALPHA1, "kind": "CatalogSource",
        "metadata": {"namespace": CLASSIC_NAMESPACE, "name": name},
        "spec": {"sourceType": "grpc", "image": image},
    });
    lab.apply(std::slice::from_ref(&source))?;
    becomes(&lab.client, "the catalog is served", LIMIT, &source, |found| {
        found["status"]["connectionState"]["lastObservedState"] == "READY"
    })
    .await?;
    Ok(())
}

/// The memory of each program. Together they hold less: they are one file, whose pages they share.
fn memory(programs: &[(&str, Manager)], megabytes: u64, figures: &mut Figures) -> Result<()> {
    let mut together = 0;
    let mut add = |what: &str, bytes: u64| {
        let what = format!("{what}, idle with a {megabytes} MB catalog: memory");
        figures.add(&what, &process::mebibytes(bytes));
    };
    for (name, program) in programs {
        let pid = program.pid().context("a program does not run")?;
        together += process::proportional(pid)?;
        add(name, process::resident(pid)?);
    }
    add("all three together, shared pages once", together);
    Ok(())
}

fn namespace(lab: &Lab, name: &str) -> Result<()> {
    lab.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"namespace": name, "name": "group"}, "spec": {"targetNamespaces": [name]},
        }),
    ])
}

fn subscription(namespace: &str) -> Value {
    json!({
        "apiVersion": V1ALPHA1, "kind": "Subscription", "metadata": {"namespace": namespace, "name": PACKAGE},
        "spec": {"name": PACKAGE, "source": PACKAGE, "sourceNamespace": CLASSIC_NAMESPACE, "channel": "stable"},
    })
}

/// Subscribes in each of these namespaces, in all at once.
async fn subscribe(lab: &Lab, namespaces: &[String]) -> Result<()> {
    let creations = namespaces.iter().map(|namespace| async {
        let object = subscription(namespace);
        let wanted: DynamicObject = serde_json::from_value(object.clone())?;
        objects::api(&lab.client, &object)
            .create(&PostParams::default(), &wanted)
            .await?;
        anyhow::Ok(())
    });
    futures::future::try_join_all(creations).await?;
    Ok(())
}

/// The processor time that each program has used so far.
fn used(programs: &[(&str, Manager)]) -> Result<Vec<Duration>> {
    let pids = programs.iter().map(|(_, program)| program.pid());
    pids.map(|pid| process::used(pid.context("a program does not run")?))
        .collect()
}

/// Waits until the operator is installed in all of these namespaces.
async fn succeeded(lab: &Lab, names: &[String]) -> Result<()> {
    let versions = objects::api(
        &lab.client,
        &json!({"apiVersion": V1ALPHA1, "kind": "ClusterServiceVersion"}),
    );
    // The loop should not be a load of its own.
    let pause = Duration::from_millis(if names.len() == 1 { 10 } else { 150 });
    eventually("the operators are installed", LIMIT, async || {
        let found = versions.list(&ListParams::default()).await?.items;
        let is_installed = |name: &&String| {
            found.iter().any(|version| {
                version.metadata.namespace.as_ref() == Some(*name)
                    && version.data["status"]["phase"] == "Succeeded"
            })
        };
        let done = names.iter().filter(is_installed).count();
        if done == names.len() {
            return Ok(Some(()));
        }
        tokio::time::sleep(pause).await;
        bail!("{done} of {} are installed", names.len())
    })
    .await
}

/// Lists all bundles of the large catalog from catalog-operator and from `opm serve`.
async fn bundles(
    lab: &Lab,
    programs: &[(&str, Manager)],
    (megabytes, blobs): (u64, &str),
    figures: &mut Figures,
) -> Result<()> {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": CLASSIC_NAMESPACE, "name": "large"},
    });
    let found = becomes(&lab.client, "there is an address", LIMIT, &slice, |found| {
        found["endpoints"][0]["addresses"][0].is_string()
    })
    .await?;
    let host = found["endpoints"][0]["addresses"][0]
        .as_str()
        .context("no address")?;
    let ours = format!("{host}:{}", found["ports"][0]["port"]);
    let mut serving = programs.iter().filter(|(name, _)| *name == "catalog-operator");
    let (_, program) = serving.next().context("it was started")?;
    let pid = program.pid().context("catalog-operator does not run")?;
    listed(("catalog-operator", &ours, pid), megabytes, figures).await?;

    let program = tokio::task::spawn_blocking(Binaries::ensure_opm).await??;
    let opm = Opm::serve(&program, lab.folder(), blobs)?;
    listed(("opm serve", opm.address(), opm.pid()), megabytes, figures).await
}

/// Lists all bundles some times from one server.
async fn listed(
    (name, address, pid): (&str, &str, u32),
    megabytes: u64,
    figures: &mut Figures,
) -> Result<()> {
    let client = eventually("the registry answers", LIMIT, async || {
        let client = RegistryClient::connect(address, &Trust::default()).await?;
        Ok(client.check().await?.then_some(client))
    })
    .await?;
    let before = process::resident(pid)?;
    process::forget_peak(pid)?;
    let mut times = Vec::new();
    for _ in 0..LISTS {
        let begin = Instant::now();
        let bundles = client.list_bundles().await?;
        let count = bundles.try_fold(0_usize, |count, _| async move { Ok(count + 1) });
        let count = count.await?;
        times.push((begin.elapsed(), count));
    }
    let (time, count) = times.iter().min().context("it was listed")?;
    let what = format!("{name}: ListBundles, {count} bundles of {megabytes} MB, best of {LISTS}");
    figures.add(&what, &format!("{:.2} s", time.as_secs_f64()));
    let [before, peak] = [before, process::peak(pid)?].map(process::mebibytes);
    figures.add(
        &format!("{name}: memory before ListBundles, and its peak"),
        &format!("{before}, {peak}"),
    );
    Ok(())
}
