//! What passes over CatalogSources share.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use olm_classic::catalog_source::with_image;
use olm_classic::names;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Key;
use super::catalog::StoredCatalog;
use super::memory::Memories;
use super::metrics::SourceMetrics;
use super::pull::Contents;
use crate::args::RegistryArgs;
use crate::run::Base;

/// What passes over CatalogSources share.
pub(super) struct Context {
    pub(super) base: Arc<Base>,
    pub(super) memories: Memories,
    pub(super) metrics: SourceMetrics,
    /// The address of this process, where clients can reach it.
    pub(super) address: Option<IpAddr>,
    contents: OnceLock<Arc<Contents>>,
    subscribers: Mutex<Vec<UnboundedSender<Key>>>,
}

impl Context {
    pub(super) fn new(base: Arc<Base>, args: &RegistryArgs) -> Self {
        Self {
            memories: Memories::open(&args.cache_dir),
            metrics: SourceMetrics::register(&base.metrics),
            address: advertised(&args.advertise_address, &base),
            base,
            contents: OnceLock::new(),
            subscribers: Mutex::default(),
        }
    }

    /// Sources whose content or connection changes from now on.
    pub(super) fn subscribe(&self) -> UnboundedReceiver<Key> {
        let (sender, receiver) = unbounded_channel();
        self.subscribers.lock().push(sender);
        receiver
    }

    /// Tells that the content or connection of a source changed.
    pub(super) fn publish(&self, key: &Key) {
        self.subscribers
            .lock()
            .retain(|subscriber| subscriber.send(key.clone()).is_ok());
    }

    /// The contents of all sources, once the cache directory is open.
    pub(super) fn contents(&self) -> Option<&Arc<Contents>> {
        self.contents.get()
    }

    /// Notes the open cache directory. A second call changes nothing.
    pub(super) fn open(&self, contents: Arc<Contents>) {
        let _ = self.contents.set(contents);
    }

    /// Forgets a source that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.metrics.forget(key);
        if self.memories.forget(key) {
            self.publish(key);
        }
    }

    /// The source with the image that its template gives.
    pub(super) async fn with_template(&self, found: &Value) -> Value {
        let annotations = found.pointer("/metadata/annotations");
        let has_template =
            annotations.is_some_and(|found| found.get(names::IMAGE_TEMPLATE_ANNOTATION).is_some());
        let version = if has_template {
            let asked = self.base.writer.own().apiserver_version().await;
            asked.map(|version| version.git_version).unwrap_or_default()
        } else {
            String::new()
        };
        with_image(found, &version, Timestamp::now())
    }

    /// The content of a source, or why there is none.
    pub(super) fn content(&self, key: &Key) -> Result<Arc<StoredCatalog>, String> {
        let known = self.memories.read(key, |memory| {
            let content = memory.given.as_ref().map(|given| Arc::clone(&given.content));
            content.ok_or_else(|| memory.fault.clone())
        });
        let (namespace, name) = key;
        let none = format!("no registry client established for catalogsource {namespace}/{name}");
        match known {
            Some(Ok(content)) => Ok(content),
            Some(Err(Some(fault))) => Err(format!("{none}: {fault}")),
            Some(Err(None)) | None => Err(none),
        }
    }
}

/// The address that clients reach this process at: the given one, else the one that leads to the API server.
fn advertised(given: &str, base: &Base) -> Option<IpAddr> {
    if !given.is_empty() {
        let parsed = given.parse();
        if parsed.is_err() {
            tracing::error!(
                given,
                "`--advertise-address` is no IP address; nothing leads to registries"
            );
        }
        return parsed.ok();
    }
    let url = &base.config.cluster_url;
    let (host, port) = (url.host()?, url.port_u16().unwrap_or(443));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // Nothing is sent: the system only chooses the way.
    let found = ["0.0.0.0:0", "[::]:0"].iter().find_map(|any| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect((host, port)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    let found = found.filter(|address| !address.is_loopback());
    if found.is_none() {
        tracing::error!(
            "no address of this process is known: set `--advertise-address`; nothing leads to registries"
        );
    }
    found
}
