//! One ClusterCatalog from what is wanted to what is reported.
//!
//! The pipeline is [`reconcile`]; its stages are the files below. `observe` gathers facts, `plan` and `report` are pure,
//! `act` does what the plan says and has no choices left.

mod act;
mod observe;
mod plan;
mod report;
mod template;
mod verify;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_platform::events::Events;
use olm_platform::queue::{Outcome, Queue};
use olm_serve::{Lookup, Store};
use tokio_util::sync::CancellationToken;

use crate::content::Contents;
use crate::metrics::{CatalogMetrics, Ready};
use observe::Memory;
use plan::Content;

pub(crate) use observe::Starting;
pub(crate) use template::Versions;
pub(crate) use verify::verify;
pub(crate) use watch::{collect_garbage, follow_leadership, watch};

/// The controller's name in metrics, as the reference calls it.
pub(crate) const CONTROLLER: &str = "catalogd-clustercatalog-controller";

/// Everything that working on a catalog needs.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) store: Arc<Store>,
    pub(crate) contents: Contents,
    /// The ClusterCatalogs as the watch last saw them.
    pub(crate) catalogs: reflector::Store<ClusterCatalog>,
    pub(crate) queue: Queue<String>,
    /// Whether this process is the one that writes to the API server.
    pub(crate) leading: tokio::sync::watch::Receiver<bool>,
    /// Scheme and host under which catalogs are served.
    pub(crate) origin: String,
    pub(crate) starting: Starting,
    pub(crate) counts: CatalogMetrics,
    pub(crate) stop: CancellationToken,
    pub(crate) memories: Memories,
    pub(crate) versions: Versions,
    pub(crate) events: Events,
    /// Objects that the watch delivers and that cannot be read: what is served of them stays.
    pub(crate) unreadable: Unreadable,
}

/// Works on one catalog, once.
pub(crate) async fn reconcile(context: &Context, name: &str) -> Outcome {
    if context.unreadable.contains(name) {
        context.starting.tried(name);
        return Outcome::Done;
    }
    let outcome = match observe::observe(context, name).await {
        None => act::forget(context, name).await,
        Some(observed) => pass(context, observed)
            .await
            .unwrap_or_else(|error| act::explain(name, &error)),
    };
    context.starting.tried(name);
    outcome
}

async fn pass(context: &Context, observed: observe::Observed) -> Result<Outcome, act::WriteError> {
    let plan = plan::plan(&observed);
    let mut observed = act::prepare(context, observed, &plan).await?;
    tell_readiness(context, observed.catalog.name(), &plan);
    let done = act::content(context, &mut observed, &plan.content).await;
    let status = report::status(&observed, &plan, &done, &context.origin);
    let next = report::next(&plan, &observed, &done);
    tell_readiness(context, observed.catalog.name(), &plan);
    act::publish(context, observed, &plan, status).await?;
    Ok(next)
}

/// Tells in the metrics whether a catalog is served that is to be: also while its content is on its way.
fn tell_readiness(context: &Context, name: &str, plan: &plan::Plan) {
    let ready = match context.store.get(name) {
        Lookup::Served(_) => Some(Ready::Yes),
        Lookup::Expected => Some(Ready::No),
        Lookup::Unknown => {
            let wanted = matches!(
                plan.content,
                Content::Follow { .. } | Content::Refuse(_) | Content::Wait(_)
            );
            wanted.then_some(Ready::No)
        }
    };
    if let Some(ready) = ready {
        context.counts.ready(name, ready);
    }
}

/// Names of objects that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<UnreadableNames>);

#[derive(Debug, Default)]
struct UnreadableNames {
    all: BTreeSet<String>,
    /// Those of the list that is coming in.
    listed: BTreeSet<String>,
}

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, UnreadableNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, name: &str) -> bool {
        self.lock().all.contains(name)
    }

    fn add(&self, name: String) {
        let mut names = self.lock();
        names.listed.insert(name.clone());
        names.all.insert(name);
    }

    fn remove(&self, name: &str) {
        let mut names = self.lock();
        names.listed.remove(name);
        names.all.remove(name);
    }

    /// A whole list begins to come in.
    fn begin(&self) {
        self.lock().listed.clear();
    }

    /// The list is here: what it did not hold is gone.
    fn end(&self) {
        let mut names = self.lock();
        names.all = std::mem::take(&mut names.listed);
    }
}

/// What is remembered of each catalog from one pass to the next.
#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<HashMap<String, Memory>>);

impl Memories {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, name: &str) -> Memory {
        self.lock().get(name).cloned().unwrap_or_default()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Memory)) {
        change(self.lock().entry(name.to_owned()).or_default());
    }

    fn forget(&self, name: &str) {
        self.lock().remove(name);
    }
}
