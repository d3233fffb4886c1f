//! Pods that open more connections than a manager has descriptors.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use olm_test::extensions::await_version;
use olm_test::world::Manager;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::{CLUSTER, SOON, Stage, publish};

/// The maximum number of descriptors of each manager.
const DESCRIPTORS: u32 = 1024;
/// Connections to each port.
const CONNECTIONS: usize = 1100;
/// The number of further client addresses besides that of the test.
const PODS: u8 = 5;
/// The time after which a closed connection is opened again.
const AGAIN: Duration = Duration::from_secs(10);
/// The timeout of a kubelet's probe.
const PROBE: Duration = Duration::from_secs(1);
/// The number of failed probes in a row after which a kubelet acts.
const TRIES: usize = 3;
/// The pause between two probes; that of a kubelet is longer.
const PERIOD: Duration = Duration::from_secs(5);

/// Connections that send nothing, and that are opened again when the server closes them.
struct Idle {
    opened: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Idle {
    fn to(port: &str) -> Result<Self> {
        let port: SocketAddr = port.parse()?;
        let opened = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        let pods = (2..2 + PODS).cycle();
        for pod in pods.take(CONNECTIONS) {
            let opened = Arc::clone(&opened);
            tasks.spawn(async move {
                loop {
                    if let Ok(mut stream) = connect(pod, port).await {
                        opened.fetch_add(1, Ordering::Relaxed);
                        // Until the server closes it.
                        let _ = stream.read_u8().await;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        Ok(Self {
            opened,
            _tasks: tasks,
        })
    }
}

async fn connect(pod: u8, port: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::new(127, 0, 0, pod), 0).into())?;
    socket.connect(port).await
}

fn descriptors(manager: &Manager) -> Result<usize> {
    let pid = manager.pid().context("it does not run")?;
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Probes as a kubelet does.
async fn passes(client: &reqwest::Client, url: &str) -> Result<()> {
    let mut said = String::new();
    for _ in 0..TRIES {
        match client.get(url).send().await {
            Ok(answer) if answer.status() == 200 => return Ok(()),
            other => said = format!("{other:?}"),
        }
        tokio::time::sleep(PERIOD).await;
    }
    bail!("{url} fails: {said}")
}

/// 1,100 connections each to the health ports and to the port of the catalogs.
#[test]
fn idle_connections_beyond_the_descriptors_stop_no_probe_no_catalog_and_no_installation() -> Result<()> {
    CLUSTER.alone(async |stage| {
        let Stage { world, files, .. } = stage;
        let ours = getrlimit(Resource::Nofile);
        let most = Rlimit {
            current: ours.maximum,
            maximum: ours.maximum,
        };
        setrlimit(Resource::Nofile, most)?;
        world.catalogd.stop().await?;
        world.operator_controller.stop().await?;
        world.catalogd.limit_descriptors(DESCRIPTORS);
        world.operator_controller.limit_descriptors(DESCRIPTORS);
        world.start_managers().await?;
        let content = world
            .catalogs
            .strip_prefix("https://")
            .unwrap_or_default()
            .to_owned();
        let ports = [
            &world.catalogd.health,
            &world.operator_controller.health,
            &content,
        ];
        let attacks = ports
            .into_iter()
            .map(|port| Idle::to(port))
            .collect::<Result<Vec<_>>>()?;
        world
            .eventually("every connection was opened", SOON, async || {
                let opened: Vec<usize> = attacks
                    .iter()
                    .map(|attack| attack.opened.load(Ordering::Relaxed))
                    .collect();
                ensure!(opened.iter().all(|opened| *opened >= CONNECTIONS), "{opened:?}");
                Ok(Some(()))
            })
            .await?;

        publish(world, "crowded").await?;
        for file in [
            "manifests/samples/greeter.yaml",
            "manifests/overlays/restricted/token-role.yaml",
        ] {
            let path = world.sample_file(file, "crowded", |text| text)?;
            world.kubectl(&["apply", "--server-side", "-f", &path])?;
        }
        let probe = reqwest::Client::builder()
            .timeout(PROBE)
            .pool_max_idle_per_host(0)
            .build()?;
        let reader = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .pool_max_idle_per_host(0)
            .build()?;
        let token = std::fs::read_to_string(files.token())?;
        let catalog = format!("{}/catalogs/greeter/api/v1/all", world.catalogs);
        // Longer than an idle connection to the health port may last.
        for _ in 0..6 {
            for manager in [&world.catalogd, &world.operator_controller] {
                for path in ["healthz", "readyz"] {
                    passes(&probe, &format!("http://{}/{path}", manager.health)).await?;
                }
                let open = descriptors(manager)?;
                ensure!(open < DESCRIPTORS as usize, "{open} descriptors");
            }
            let answer = reader.get(&catalog).bearer_auth(token.trim()).send().await?;
            ensure!(answer.status() == 200, "{}", answer.status());
            answer.bytes().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        await_version(world, "crowded", "1.0.0").await.map(drop)
    })
}
