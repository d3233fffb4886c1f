//! Watches ClusterObjectSets and works on them: one at a time each, many at once.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
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
    core::{DeserializeGuard, PartialObjectMeta},
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
use tokio_util::sync::CancellationToken;

use super::{
    accounts, acting,
    memory::Memory,
    reconcile::{Again, reconcile},
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
    pub(super) options: Options,
    queue: Queue<String>,
    sets: Mutex<HashMap<String, Arc<ClusterObjectSet>>>,
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
            options,
            queue,
            sets: Mutex::default(),
            memories: Mutex::default(),
            kinds: AtomicU64::new(0),
        }
    }

    /// Shows in `metrics` what the work on sets comes to.
    pub fn report_to(&self, metrics: &Metrics) {
        self.queue.report_to(metrics, CONTROLLER);
    }

    /// The other revisions of the same extension.
    pub(super) fn siblings(&self, set: &ClusterObjectSet) -> Vec<Arc<ClusterObjectSet>> {
        let Some(owner) = set
            .label(names::label::OWNER_NAME)
            .filter(|owner| !owner.is_empty())
        else {
            return Vec::new();
        };
        lock(&self.sets)
            .values()
            .filter(|other| {
                other.label(names::label::OWNER_NAME) == Some(owner)
                    && other.name() != set.name()
                    && belong_together(set, other)
            })
            .cloned()
            .collect()
    }

    async fn work(&self, name: String) -> Outcome {
        let Some(set) = lock(&self.sets).get(&name).cloned() else {
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
        for set in lock(&self.sets).values() {
            if let Ok(account) = acting::account(self, set) {
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

    /// Follows the sets themselves. None is worked on before all are known: what may be done to an object depends on the
    /// other revisions.
    async fn follow_sets(&self) {
        let api: Api<DeserializeGuard<ClusterObjectSet>> = Api::all(self.own.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        pin_mut!(events);
        let mut listed = HashSet::new();
        let mut changed = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    listed.clear();
                    changed.clear();
                }
                Ok(Event::InitApply(DeserializeGuard(Ok(set)))) => {
                    listed.insert(set.name().to_owned());
                    changed.extend(self.note(set));
                }
                Ok(Event::InitDone) => {
                    let gone: Vec<String> = lock(&self.sets)
                        .keys()
                        .filter(|name| !listed.contains(*name))
                        .cloned()
                        .collect();
                    for name in &gone {
                        self.gone(name);
                    }
                    for name in changed.drain(..) {
                        self.queue.add(name);
                    }
                }
                Ok(Event::Apply(DeserializeGuard(Ok(set)))) => {
                    if let Some(name) = self.note(set) {
                        self.queue.add(name);
                    }
                }
                Ok(Event::Delete(DeserializeGuard(Ok(set)))) => self.gone(set.name()),
                Ok(Event::Delete(DeserializeGuard(Err(error)))) => {
                    self.gone(&error.metadata.name.unwrap_or_default());
                }
                Ok(Event::InitApply(DeserializeGuard(Err(error)))) => {
                    tracing::error!(%error, "a ClusterObjectSet cannot be read");
                    // It is there all the same.
                    listed.extend(error.metadata.name);
                }
                Ok(Event::Apply(DeserializeGuard(Err(error)))) => {
                    tracing::error!(%error, "a ClusterObjectSet cannot be read");
                }
                Err(error) => tracing::debug!(%error, "the watch of ClusterObjectSets is interrupted"),
            }
        }
    }

    /// Keeps the set and gives its name if there is something to do.
    fn note(&self, mut set: ClusterObjectSet) -> Option<String> {
        set.metadata.managed_fields = None;
        let name = set.name().to_owned();
        let mark = mark(&set);
        let before = lock(&self.sets).insert(name.clone(), Arc::new(set));
        // Nearly every other event is our own status.
        before
            .is_none_or(|before| self::mark(&before) != mark)
            .then_some(name)
    }

    fn gone(&self, name: &str) {
        let Some(set) = lock(&self.sets).remove(name) else {
            return;
        };
        self.queue.add(name.to_owned());
        // What it held may now be free.
        for sibling in self.siblings(&set) {
            self.queue.add(sibling.name().to_owned());
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

/// Whether two sets that say they are of the same extension are. The label alone is anybody's to write: the same extension
/// must control both, or they work as the same account, which only those may say who may act as it: one that was
/// orphaned, and sets that were made by hand.
fn belong_together(set: &ClusterObjectSet, other: &ClusterObjectSet) -> bool {
    let account = |set: &ClusterObjectSet| {
        set.annotation(names::annotation::SERVICE_ACCOUNT)
            .map(str::to_owned)
    };
    match (extension_uid(set), extension_uid(other)) {
        (Some(_), None) => account(set).is_some() && account(set) == account(other),
        (None, None) => account(set) == account(other),
        (ours, theirs) => ours == theirs,
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

/// Works on ClusterObjectSets until `stop` is cancelled, then finishes what is under way.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let work = context
        .queue
        .run(context.options.concurrency, stop.clone(), |name| {
            let context = Arc::clone(&context);
            on_its_own(async move { context.work(name).await })
        });
    let follow = async {
        tokio::select! {
            () = context.follow_sets() => {}
            () = context.follow_kinds() => {}
            () = accounts::follow(&context) => {}
            () = stop.cancelled() => {}
        }
        // A watch never ends by itself; should one, nothing would be seen any more.
        stop.cancel();
    };
    futures::join!(work, follow);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn revisions_belong_together_when_one_extension_controls_both_or_they_work_as_the_same_account() {
        let set = |controller: Option<&str>, account: Option<&str>| {
            let mut set = ClusterObjectSet::default();
            set.metadata.owner_references = controller.map(|uid| {
                let kind = if uid == "foreign" {
                    "Foo"
                } else {
                    names::CLUSTER_EXTENSION
                };
                vec![OwnerReference {
                    api_version: names::API_VERSION.to_owned(),
                    kind: kind.to_owned(),
                    uid: uid.to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            });
            let key = names::annotation::SERVICE_ACCOUNT.to_owned();
            set.metadata.annotations = account.map(|account| [(key, account.to_owned())].into());
            set
        };
        for (one, other, expected) in [
            ((Some("a"), Some("n/x")), (Some("a"), Some("n/y")), true),
            ((Some("a"), Some("n/x")), (Some("b"), Some("n/x")), false),
            ((Some("a"), Some("n/x")), (None, Some("n/x")), true),
            ((Some("a"), Some("n/x")), (None, Some("n/y")), false),
            ((Some("a"), None), (None, None), false),
            ((None, Some("n/x")), (Some("a"), Some("n/x")), false),
            (
                (Some("foreign"), Some("n/x")),
                (Some("foreign"), Some("n/y")),
                false,
            ),
            ((Some("foreign"), Some("n/x")), (Some("a"), Some("n/x")), false),
            ((None, Some("n/x")), (None, Some("n/x")), true),
            ((None, Some("n/x")), (None, Some("n/y")), false),
            ((None, None), (None, None), true),
        ] {
            let found = belong_together(&set(one.0, one.1), &set(other.0, other.1));
            assert_eq!(found, expected, "{one:?} {other:?}");
        }
    }
}
