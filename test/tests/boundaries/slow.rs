//! Registries that answer a byte at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use olm_api::conditions::{self, PROGRESSING};
use olm_test::extensions::{
    administrator, await_gone, await_progressing, await_version, catalog, extensions,
};
use olm_test::samples;
use olm_test::world::World;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::SOON;
use crate::running::{WORLD, extension, publish};

/// The number of extensions that wait for an image that takes minutes.
const SLOW: usize = 10;

/// A registry over plain HTTP that begins every answer and never ends one.
pub(crate) struct Trickle {
    pub(crate) address: String,
    listener: Mutex<Option<std::net::TcpListener>>,
    seen: Arc<Mutex<RequestCounts>>,
}

#[derive(Debug, Default, Clone)]
struct RequestCounts {
    /// The number of requests for each image.
    asked: BTreeMap<String, usize>,
    open: usize,
    most_open: usize,
}

/// The one that the managers of this file reach without TLS.
pub(crate) static TRICKLE: LazyLock<Trickle> = LazyLock::new(Trickle::bind);

impl Trickle {
    fn bind() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").ok();
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        Self {
            address: address.map(|address| address.to_string()).unwrap_or_default(),
            listener: Mutex::new(listener),
            seen: Arc::default(),
        }
    }

    /// Answers from now on.
    pub(crate) fn serve(&self) -> Result<()> {
        let listener = self
            .listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(listener) = listener else {
            anyhow::bail!("there is no port, or it is served already");
        };
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let seen = Arc::clone(&self.seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&seen)));
            }
        });
        Ok(())
    }

    fn seen(&self) -> RequestCounts {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers the first request of a connection, two bytes a second.
async fn answer(mut stream: tokio::net::TcpStream, seen: Arc<Mutex<RequestCounts>>) -> std::io::Result<()> {
    let mut buffer = vec![0; 4096];
    let length = stream.read(&mut buffer).await?;
    let request = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
    // `GET /v2/NAME/manifests/DIGEST HTTP/1.1`
    let name = request.split('/').nth(2).unwrap_or_default().to_owned();
    let note = |change: &dyn Fn(&mut RequestCounts)| {
        change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner));
    };
    note(&|seen| {
        *seen.asked.entry(name.clone()).or_default() += 1;
        seen.open += 1;
        seen.most_open = seen.most_open.max(seen.open);
    });
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.oci.image.manifest.v1+json\r\nContent-Length: 100000\r\n\r\n";
    let mut written = stream.write_all(head.as_bytes()).await;
    while written.is_ok() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        written = stream.write_all(b" ").await;
    }
    note(&|seen| seen.open -= 1);
    written
}

/// Ten extensions wait for images that take minutes, more than there are workers. Meanwhile a deletion and an
/// installation go on, the registry is asked for four images at a time, and not at all for an account that does not
/// exist.
#[test]
fn slow_images_delay_nothing_else() -> Result<()> {
    WORLD.with(async |world| {
        publish(world, "leaver").await?;
        world.apply(&administrator("leaver", "installer"))?;
        world.apply(&[extension("leaver", "leaver", Some("installer"))])?;
        await_version(world, "leaver", "1.0.0").await?;
        publish(world, "prompt").await?;
        world.apply(&administrator("prompt", "installer"))?;
        let names: Vec<String> = (0..SLOW).map(|number| format!("slow-{number}")).collect();
        let mut blobs = String::new();
        for name in names.iter().map(String::as_str).chain(["powerless"]) {
            let image = format!("{}/{name}@sha256:{}", TRICKLE.address, "0".repeat(64));
            blobs.push_str(&samples::renamed(
                name,
                &samples::catalog(&["1.0.0"], |_| image.clone()),
            ));
        }
        let reference = world.push_catalog("slow-catalog:latest", &blobs).await?;
        world.apply(&[catalog("slow", &reference)])?;
        for name in &names {
            world.apply(&administrator(name, "installer"))?;
            world.apply(&[extension(name, name, Some("installer"))])?;
        }
        wait_for_the_registry(world).await?;

        world.kubectl(&["delete", "clusterextension", "leaver", "--wait=false"])?;
        world.apply(&[extension("prompt", "prompt", Some("installer"))])?;
        await_gone(world, "leaver").await?;
        await_version(world, "prompt", "1.0.0").await?;
        // No image is requested for an extension that could not be installed.
        world.apply(&[extension("powerless", "powerless", Some("nobody"))])?;
        await_progressing(world, "powerless", "Retrying", "does not exist: create ").await?;
        let seen = TRICKLE.seen();
        ensure!(seen.open > 0, "the registry is done: {seen:?}");
        ensure!(seen.most_open <= 4, "{seen:?}");
        ensure!(!seen.asked.contains_key("powerless"), "{seen:?}");

        let all: Vec<&str> = names.iter().map(String::as_str).chain(["powerless"]).collect();
        world.kubectl(&[&["delete", "clusterextension", "--wait=false"], &all[..]].concat())?;
        for name in all {
            await_gone(world, name).await?;
        }
        world.kubectl(&["delete", "clustercatalog", "slow"]).map(drop)
    })
}

/// Waits until each of them reports that its image is being pulled or queued.
async fn wait_for_the_registry(world: &World) -> Result<()> {
    world
        .eventually("all wait for their image", SOON, async || {
            let (mut under_way, mut queued) = (0, 0);
            for number in 0..SLOW {
                let extension = extensions(world).get(&format!("slow-{number}")).await?;
                let found = conditions::find(extension.conditions(), PROGRESSING);
                let message = found
                    .map(|condition| condition.message.as_str())
                    .unwrap_or_default();
                under_way += usize::from(message.starts_with("pulling image "));
                queued += usize::from(message.starts_with("waiting to pull image "));
            }
            ensure!(
                (under_way, queued) == (4, SLOW - 4),
                "{under_way} are pulled and {queued} wait"
            );
            Ok(Some(()))
        })
        .await
}
