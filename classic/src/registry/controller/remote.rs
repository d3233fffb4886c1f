//! A registry that runs elsewhere: kept connected, and read when a resolution needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use olm_classic::registry::BundleMessage;
use olm_classic::resolve::EntryIndex;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::registry::catalog::without_manifests;
use crate::registry::client::{ClientError, RegistryClient};
use crate::registry::trust::Trust;

/// The pause after the first failure to connect, and after many.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
/// Shortest duration of a connection that counts as a success.
const LASTING: Duration = Duration::from_secs(10);
/// Time that the listing of a registry counts as current.
const LISTING_TIME: Duration = Duration::from_mins(30);
/// Time that it is kept after the last resolution that asked for it.
const KEPT_TIME: Duration = Duration::from_mins(5);
/// Time limit for a registry to list its bundles and packages: resolutions wait for it.
const LIST_TIME: Duration = Duration::from_mins(1);
/// The most that is kept of a registry, in bytes: ten times the largest known.
const MAX_BYTES: usize = 256 << 20;
/// Packages asked for at the same time.
const AT_ONCE: usize = 8;

/// The state of a connection.
#[derive(Debug, Clone, Default)]
pub(in crate::registry) enum State {
    /// Nothing is known yet.
    #[default]
    Connecting,
    /// It is there.
    Ready(RegistryClient),
    /// The last attempt failed; the next follows.
    Failed(String),
}

/// A registry that runs elsewhere. It is dialled until this is dropped.
pub(in crate::registry) struct Remote {
    /// The address that is dialled.
    pub(in crate::registry) target: String,
    state: Arc<Mutex<State>>,
    listing: tokio::sync::Mutex<Listings>,
    _stop: DropGuard,
}

/// Listings of a registry.
#[derive(Default)]
struct Listings {
    /// The last one.
    current: Option<CachedListing>,
    /// The time and the reason of the last failure.
    failed: Option<(Instant, String)>,
}

/// Listing of a registry.
struct CachedListing {
    listing: Arc<EntryIndex>,
    client: RegistryClient,
    at: Instant,
    used: Instant,
}

impl Remote {
    /// Dials the registry from now on, and calls `changed` on every change of the state.
    pub(in crate::registry) fn open(
        target: String,
        trust: Trust,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (state, stop) = (Arc::new(Mutex::new(State::default())), CancellationToken::new());
        let (own, place, token) = (Arc::clone(&state), target.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = dial(&place, &trust, |state| { *own.lock() = state; changed(); }) => {}
            }
        });
        Self {
            target,
            state,
            listing: tokio::sync::Mutex::default(),
            _stop: stop.drop_guard(),
        }
    }

    /// The state of the connection.
    pub(in crate::registry) fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// The connection, or why there is none.
    fn client(&self) -> Result<RegistryClient, String> {
        match self.state() {
            State::Ready(client) => Ok(client),
            State::Connecting => Err(format!("not connected to {} yet", self.target)),
            State::Failed(error) => Err(error),
        }
    }

    /// Content for a resolution, read once for each connection and half an hour.
    ///
    /// # Errors
    /// The registry does not answer.
    pub(in crate::registry) async fn listing(&self) -> Result<Arc<EntryIndex>, String> {
        let client = self.client()?;
        let asked = Instant::now();
        let mut known = self.listing.lock().await;
        let now = Instant::now();
        // Those that wait for the same answer do not ask one after the other.
        if let Some((at, error)) = &known.failed
            && *at > asked
        {
            return Err(error.clone());
        }
        if let Some(read) = known.current.as_mut()
            && !read.client.is_closed()
            && now.duration_since(read.at) < LISTING_TIME
        {
            read.used = now;
            return Ok(Arc::clone(&read.listing));
        }
        known.current = None;
        let reading = tokio::time::timeout(LIST_TIME, list(&client)).await;
        let listing = match reading {
            Ok(Ok(listing)) => listing,
            Ok(Err(error)) => return Err(known.fail(error.to_string())),
            Err(_) => return Err(known.fail(format!("not listed within {} s", LIST_TIME.as_secs()))),
        };
        known.current = Some(CachedListing {
            listing: Arc::clone(&listing),
            client,
            at: now,
            used: now,
        });
        Ok(listing)
    }

    /// Forgets the listing if no resolution has asked for it lately.
    pub(in crate::registry) fn forget_listing(&self, now: Instant) {
        if let Ok(mut known) = self.listing.try_lock() {
            known
                .current
                .take_if(|read| now.duration_since(read.used) > KEPT_TIME);
        }
    }

    /// `GetBundle`.
    ///
    /// # Errors
    /// The registry does not answer, or has no such bundle.
    pub(in crate::registry) async fn bundle(
        &self,
        package: &str,
        channel: &str,
        csv: &str,
    ) -> Result<BundleMessage, String> {
        let asked = self.client()?.get_bundle(package, channel, csv).await;
        asked.map_err(|error| error.to_string())
    }
}

impl Listings {
    /// Notes a failure.
    fn fail(&mut self, error: String) -> String {
        self.failed = Some((Instant::now(), error.clone()));
        error
    }
}

/// Connects, and connects again when the connection is lost.
async fn dial(target: &str, trust: &Trust, changed: impl Fn(State)) {
    let mut pause = FIRST_PAUSE;
    loop {
        match RegistryClient::connect(target, trust).await {
            Ok(client) => {
                let began = Instant::now();
                changed(State::Ready(client.clone()));
                client.closed().await;
                changed(State::Connecting);
                // One that hangs up at once is no better than one that does not answer.
                if began.elapsed() > LASTING {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) => changed(State::Failed(format!("couldn't connect to registry - {error}"))),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The memory of a bundle, roughly, in bytes.
fn size(bundle: &BundleMessage) -> usize {
    let values = bundle.properties.iter().chain(&bundle.dependencies);
    let values: usize = values.map(|found| found.kind.len() + found.value.len()).sum();
    let skips: usize = bundle.skips.iter().map(String::len).sum();
    size_of::<BundleMessage>() + values + skips
}

async fn list(client: &RegistryClient) -> Result<Arc<EntryIndex>, ClientError> {
    let mut answers = client.list_bundles().await?;
    let (mut bundles, mut bytes) = (Vec::new(), 0);
    while let Some(bundle) = answers.try_next().await? {
        let bundle = without_manifests(bundle);
        bytes += size(&bundle);
        if bytes > MAX_BYTES {
            return Err(ClientError::Large(MAX_BYTES));
        }
        bundles.push(bundle);
    }
    let names: BTreeSet<String> = bundles.iter().map(|bundle| bundle.package_name.clone()).collect();
    // Boxed: the compiler does not see that the future of the stream may move between threads.
    let asking = futures::stream::iter(names).map(|name| {
        let asking = async move {
            let package = client.get_package(&name).await?;
            Ok::<_, ClientError>((name, package))
        };
        asking.boxed()
    });
    let packages: BTreeMap<_, _> = asking.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(Arc::new(EntryIndex::new(bundles, &packages)))
}
