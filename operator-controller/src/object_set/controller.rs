//! Watches ClusterObjectSets and works on them: one at a time each, many at once.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, pin_mut};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use olm_api::{ClusterObjectSet, cluster_extension::controlling_extension, names};
use olm_platform::{
    metrics::Metrics,
    queue::{Outcome, Queue, on_its_own},
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::{
    accounts, acting,
    memory::Memory,
    reconcile::{Again, reconcile},
    store::{Change, Sets},
    teardown_records::TeardownRecords,
};
use olm_cluster::{
    discover::Discovery,
    identity::{AccountName, Accounts},
    permissions::Reviews,
    watch::{Managed, Watches},
};

/// The controller's name in metrics, as the reference calls it.
const CONTROLLER: &str = "clusterobjectset";

/// How long new kinds are waited for before the sets that miss some are looked at, since they come in groups.
const GATHERING: Duration = Duration::from_millis(500);

/// The objects that are watched.
const MANAGED: Managed = Managed {
    label: names::label::OWNER_NAME,
    api_version: names::API_VERSION,
    kind: names::CLUSTER_OBJECT_SET,
};

/// How the controller works.
#[derive(Debug, Clone)]
pub struct Options {
    /// The managers' own namespace.
    pub system_namespace: String,
    /// The account of sets that name none; without it they are blocked.
    pub default_account: Option<AccountName>,
    /// How many sets are worked on at the same time.
    pub concurrency: usize,
    /// What time it is; deadlines count by it.
    pub clock: fn() -> Timestamp,
}

/// What every run needs.
pub struct Context {
    pub(super) own: Client,
    pub(super) accounts: Arc<Accounts>,
    pub(super) discovery: Arc<Discovery>,
    pub(super) reviews: Arc<Reviews>,
    pub(super) watches: Watches,
    pub(super) fates: Arc<TeardownRecords>,
    pub(super) sets: Arc<Sets>,
    /// Changes of the sets, until the work begins.
    changes: Mutex<Option<UnboundedReceiver<Change>>>,
    pub(super) options: Options,
    queue: Queue<String>,
    memories: Mutex<HashMap<String, Memory>>,
    /// Moves whenever kinds come or go.
    kinds: AtomicU64,
}

impl Context {
    /// `own` acts as the controller; `config` says how to reach the same API server.
    ///
    /// # Errors
    /// The configuration does not make a client.
    pub fn new(config: &Config, own: Client, options: Options) -> Result<Self, kube::Error> {
        let accounts = Arc::new(Accounts::new(config, own.clone(), &Metrics::default())?);
        let discovery = Arc::new(Discovery::new(own.clone()));
        let reviews = Arc::default();
        Ok(Self::with(
            own,
            accounts,
            discovery,
            reviews,
            Arc::default(),
            Arc::default(),
            options,
        ))
    }

    /// The same with parts that others use too.
    pub fn with(
        own: Client,
        accounts: Arc<Accounts>,
        discovery: Arc<Discovery>,
        reviews: Arc<Reviews>,
        fates: Arc<TeardownRecords>,
        sets: Arc<Sets>,
        options: Options,
    ) -> Self {
        let queue = Queue::<String>::default();
        let wake = queue.clone();
        let watches = Watches::new(
            own.clone(),
            MANAGED,
            Arc::clone(&discovery),
            Arc::clone(&reviews),
            move |set| {
                wake.add(set.to_owned());
            },
        );
        Self {
            own,
            accounts,
            discovery,
            reviews,
            watches,
            fates,
            changes: Mutex::new(Some(sets.subscribe())),
            sets,
            options,
            queue,
            memories: Mutex::default(),
            kinds: AtomicU64::new(0),
        }
    }

    /// The sets, to be followed.
    pub fn sets(&self) -> &Arc<Sets> {
        &self.sets
    }

    /// Shows in `metrics` what the work on sets comes to.
    pub fn report_to(&self, metrics: &Metrics) {
        self.queue.report_to(metrics, CONTROLLER);
    }

    async fn work(&self, name: String) -> Outcome {
        if self.sets.is_unreadable(&name) {
            // It waits until it can be read.
            return Outcome::Done;
        }
        let Some(set) = self.sets.get(&name) else {
            self.watches.forget(&name);
            lock(&self.memories).remove(&name);
            self.forget_accounts();
            return Outcome::Done;
        };
        let mut memory = lock(&self.memories).remove(&name).unwrap_or_default();
        let kinds = self.kinds.load(Ordering::SeqCst);
        let again = reconcile(self, &set, &mut memory).await;
        let misses_kinds = memory.misses_kinds;
        lock(&self.memories).insert(name.clone(), memory);
        if misses_kinds && self.kinds.load(Ordering::SeqCst) != kinds {
            // They came while nobody could see that they were missed.
            self.queue.add_after(name, GATHERING);
        }
        match again {
            Again::OnChange => Outcome::Done,
            Again::After(delay) => Outcome::After(delay),
            Again::Backoff => Outcome::Failed,
        }
    }

    /// The sets that are worked on as each account.
    pub(super) fn sets_by_account(&self) -> BTreeMap<AccountName, Vec<String>> {
        let mut found: BTreeMap<AccountName, Vec<String>> = BTreeMap::new();
        for set in self.sets.state() {
            if let Ok(account) = acting::account(self, &set) {
                found.entry(account).or_default().push(set.name().to_owned());
            }
        }
        found
    }

    /// Has sets looked at.
    pub(super) fn wake(&self, sets: Vec<String>) {
        for set in sets {
            self.queue.add(set);
        }
    }

    /// Forgets accounts that no set names any more.
    fn forget_accounts(&self) {
        let mut used = self.sets_by_account();
        used.extend(
            self.options
                .default_account
                .clone()
                .map(|account| (account, Vec::new())),
        );
        self.accounts.retain(|account| used.contains_key(account));
        self.reviews.retain(|account| used.contains_key(account));
    }

    /// Has sets looked at that changed. None is worked on before all are known: what may be done to an object depends on the
    /// other revisions.
    async fn follow_sets(&self, mut changes: UnboundedReceiver<Change>) {
        while let Some(change) = changes.recv().await {
            let Change {
                name,
                before,
                now,
                unreadable,
            } = change;
            // Nearly every other event is our own status.
            let is_news = match (&before, &now) {
                (Some(before), Some(now)) => mark(before) != mark(now),
                _ => true,
            };
            if is_news || unreadable.is_some() {
                self.queue.add(name);
            }
            // What it held may be free now, or what it holds may be known now, or no longer.
            let siblings = match (&before, &now, &unreadable) {
                (_, _, Some(unreadable)) => self.sets.beside(unreadable),
                (Some(before), None, None) => self.sets.siblings(before),
                _ => Vec::new(),
            };
            for sibling in siblings {
                self.queue.add(sibling.name().to_owned());
            }
        }
    }

    /// Follows which kinds there are.
    async fn follow_kinds(&self) {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(self.own.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        pin_mut!(events);
        let mut settled = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(_) | Event::Delete(_)) if settled => {}
                Ok(Event::InitDone) => settled = true,
                Ok(_) => continue,
                Err(error) => {
                    tracing::debug!(%error, "the watch of CustomResourceDefinitions is interrupted");
                    continue;
                }
            }
            self.kinds.fetch_add(1, Ordering::SeqCst);
            let missing: Vec<String> = {
                let memories = lock(&self.memories);
                memories
                    .iter()
                    .filter(|(_, memory)| memory.misses_kinds)
                    .map(|(name, _)| name.clone())
                    .collect()
            };
            for name in missing {
                self.queue.add_after(name, GATHERING);
            }
        }
    }
}

/// The UID of the extension that a set is a revision of.
pub(super) fn extension_uid(set: &ClusterObjectSet) -> Option<&str> {
    controlling_extension(&set.metadata)
}

/// Differs when anything but the status differs.
fn mark(set: &ClusterObjectSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = &set.metadata;
    metadata.uid.hash(&mut hasher);
    metadata.generation.hash(&mut hasher);
    metadata.labels.hash(&mut hasher);
    metadata.annotations.hash(&mut hasher);
    metadata.finalizers.hash(&mut hasher);
    set.is_deleting().hash(&mut hasher);
    extension_uid(set).hash(&mut hasher);
    hasher.finish()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of the locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works on ClusterObjectSets until `stop` is cancelled, then finishes what is under way. Somebody follows the sets
/// meanwhile: [`Context::sets`].
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let work = context
        .queue
        .run(context.options.concurrency, stop.clone(), |name| {
            let context = Arc::clone(&context);
            on_its_own(async move { context.work(name).await })
        });
    let changes = lock(&context.changes).take();
    let follow = async {
        tokio::select! {
            () = async { if let Some(changes) = changes { context.follow_sets(changes).await } } => {}
            () = context.follow_kinds() => {}
            () = accounts::follow(&context) => {}
            () = stop.cancelled() => {}
        }
        // A watch never ends by itself; should one, nothing would be seen any more.
        stop.cancel();
    };
    futures::join!(work, follow);
}
