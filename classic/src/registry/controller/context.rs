//! State that passes over CatalogSources share.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use olm_classic::catalog_source::{has_template, with_image};
use olm_classic::cluster::text;
use olm_platform::queue::Queue;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::metrics::SourceMetrics;
use super::state::{Content, NoContent, SourceStates, TrackedSource};
use crate::args::CatalogArgs;
use crate::base::Base;
use crate::objects::write::Writer;
use crate::registry::Key;
use crate::registry::policies::Policies;
use crate::registry::pull::Contents;
use crate::registry::trust::Trust;

/// Shared state of passes over CatalogSources.
pub(in crate::registry) struct Context {
    pub(in crate::registry) base: Arc<Base>,
    pub(in crate::registry) sources: SourceStates,
    pub(in crate::registry) metrics: SourceMetrics,
    /// The address of this process, where clients can reach it.
    pub(in crate::registry) address: Option<IpAddr>,
    pub(in crate::registry) args: CatalogArgs,
    /// The signature policies.
    pub(in crate::registry) policies: Arc<Policies>,
    /// The authorities of registries elsewhere.
    pub(in crate::registry) trust: Trust,
    contents: OnceLock<Arc<Contents>>,
    subscribers: Mutex<Vec<UnboundedSender<Key>>>,
    /// Sources that a pass is due for.
    pub(in crate::registry) queue: Queue<Key>,
}

impl Context {
    pub(in crate::registry) fn new(base: Arc<Base>, args: &CatalogArgs, policies: Arc<Policies>) -> Self {
        let registry = &args.registry;
        let queue = Queue::default();
        queue.report_to(&base.metrics, "catalogsource");
        Self {
            queue,
            sources: SourceStates::open(&registry.cache_dir),
            metrics: SourceMetrics::register(&base.metrics),
            address: advertised(&registry.advertise_address, &base),
            base,
            args: args.clone(),
            policies,
            trust: Trust::new(&args.classic.common.pull_cas_dir),
            contents: OnceLock::new(),
            subscribers: Mutex::default(),
        }
    }

    /// Writes objects.
    pub(in crate::registry) fn writer(&self) -> &Writer {
        &self.base.writer
    }

    /// Sources whose content or connection changes from now on.
    pub(in crate::registry) fn subscribe(&self) -> UnboundedReceiver<Key> {
        let (sender, receiver) = unbounded_channel();
        self.subscribers.lock().push(sender);
        receiver
    }

    /// Announces that the content or connection of a source changed.
    pub(in crate::registry) fn publish(&self, key: &Key) {
        self.subscribers
            .lock()
            .retain(|subscriber| subscriber.send(key.clone()).is_ok());
    }

    /// The contents of all sources, once the cache directory is open.
    pub(in crate::registry) fn contents(&self) -> Option<&Arc<Contents>> {
        self.contents.get()
    }

    /// Notes the open cache directory. A second call changes nothing.
    pub(in crate::registry) fn open(&self, contents: Arc<Contents>) {
        let _ = self.contents.set(contents);
    }

    /// Forgets a source that is gone.
    pub(in crate::registry) fn forget(&self, key: &Key) {
        self.metrics.forget(key);
        if self.sources.forget(key) {
            self.publish(key);
        }
    }

    /// The source with the image that its template gives; `None` if the version of Kubernetes for it cannot be read now.
    pub(in crate::registry) async fn with_template(&self, found: &Value) -> Option<Value> {
        let version = if has_template(found) {
            let asked = self.base.writer.own().apiserver_version().await;
            let asked = asked.inspect_err(|error| {
                let (namespace, name) = (text(found, "/metadata/namespace"), text(found, "/metadata/name"));
                let error = error as &dyn std::error::Error;
                tracing::warn!(
                    namespace,
                    name,
                    error,
                    "cannot read the version of Kubernetes for a template"
                );
            });
            asked.ok()?.git_version
        } else {
            String::new()
        };
        Some(with_image(found, &version, Timestamp::now()))
    }

    /// The content of a source, or why there is none.
    pub(in crate::registry) fn content(&self, key: &Key) -> Result<Content, NoContent> {
        let known = self.sources.read(key, TrackedSource::readable);
        let fault = match known {
            Some(Ok(content)) => return Ok(content),
            Some(Err(fault)) => fault,
            None => None,
        };
        let (namespace, name) = key;
        let none = format!("no registry client established for catalogsource {namespace}/{name}");
        Err(NoContent {
            is_coming: fault.is_none(),
            message: match fault {
                Some(fault) => format!("{none}: {fault}"),
                None => none,
            },
        })
    }
}

/// The address that clients reach this process at: the given one, else the one that leads to the API server.
fn advertised(given: &str, base: &Base) -> Option<IpAddr> {
    if !given.is_empty() {
        let parsed = given.parse();
        if parsed.is_err() {
            tracing::error!(
                given,
                "`--advertise-address` is not an IP address; registries cannot be reached"
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
            "no address of this process is known: set `--advertise-address`; registries cannot be reached"
        );
    }
    found
}
