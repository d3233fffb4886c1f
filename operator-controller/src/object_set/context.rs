//! The shared parts of all runs over ClusterObjectSets.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicU64},
};

use jiff::Timestamp;
use kube::Client;
use olm_api::names;
use olm_cluster::{
    discover::Discovery,
    identity::{AccountName, Accounts},
    permissions::Reviews,
    watch::{Managed, Watches},
};
use olm_platform::{metrics::Metrics, queue::Queue};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::metrics::counters::Counters;

use super::{
    state::SetState,
    store::{Change, Sets},
    teardown_records::TeardownRecords,
};

/// The controller's name in metrics, the same as in the reference implementation.
const CONTROLLER: &str = "clusterobjectset";

/// The managed objects.
const MANAGED: Managed = Managed {
    label: names::label::OWNER_NAME,
    api_version: names::API_VERSION,
    kind: names::CLUSTER_OBJECT_SET,
};

/// The settings of the controller.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// The namespace of OLM.
    pub system_namespace: String,
    /// The account of sets without one. Without a default they are blocked.
    pub default_account: Option<AccountName>,
    /// The most sets that are reconciled at the same time.
    pub concurrency: usize,
    /// The clock for deadlines.
    pub clock: fn() -> Timestamp,
    /// The counters.
    pub counters: Counters,
}

/// The shared parts of all runs.
pub struct Context {
    pub(super) own: Client,
    pub(super) accounts: Arc<Accounts>,
    pub(super) discovery: Arc<Discovery>,
    pub(super) reviews: Arc<Reviews>,
    pub(super) watches: Watches,
    pub(super) teardown_records: Arc<TeardownRecords>,
    pub(super) sets: Arc<Sets>,
    /// The changes of sets, until the controller starts.
    pub(super) changes: Mutex<Option<UnboundedReceiver<Change>>>,
    pub(super) options: ControllerOptions,
    pub(super) queue: Queue<String>,
    pub(super) states: Mutex<HashMap<String, SetState>>,
    /// A counter that changes when kinds are added or removed.
    pub(super) kinds: AtomicU64,
}

impl Context {
    /// A context of parts that other controllers share. `own` has the controller's rights.
    pub fn new(
        own: Client,
        accounts: Arc<Accounts>,
        discovery: Arc<Discovery>,
        reviews: Arc<Reviews>,
        teardown_records: Arc<TeardownRecords>,
        sets: Arc<Sets>,
        options: ControllerOptions,
    ) -> Self {
        let queue = Queue::<String>::default();
        let (wake, known) = (queue.clone(), Arc::clone(&sets));
        let watches = Watches::new(
            own.clone(),
            MANAGED,
            Arc::clone(&discovery),
            Arc::clone(&reviews),
            move |set| {
                for older in known.replaced_by(set) {
                    wake.add(older.name().to_owned());
                }
                wake.add(set.to_owned());
            },
        );
        Self {
            own,
            accounts,
            discovery,
            reviews,
            watches,
            teardown_records,
            changes: Mutex::new(Some(sets.subscribe())),
            sets,
            options,
            queue,
            states: Mutex::default(),
            kinds: AtomicU64::new(0),
        }
    }

    /// The store of sets.
    pub fn sets(&self) -> &Arc<Sets> {
        &self.sets
    }

    /// Registers the metrics of the controller.
    pub fn report_to(&self, metrics: &Metrics) {
        self.queue.report_to(metrics, CONTROLLER);
    }

    /// Adds sets to the queue.
    pub(super) fn wake(&self, sets: Vec<String>) {
        for set in sets {
            self.queue.add(set);
        }
    }
}
