//! One ClusterCatalog from what is wanted to what is reported.
//!
//! The pipeline is [`reconcile`]; its stages are the files below. `observe` gathers facts, `plan` and `report` are pure,
//! `act` does what the plan says and has no choices left.

mod act;
mod observe;
mod plan;
mod report;
mod verify;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::Client;
use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_platform::metrics::Metrics;
use olm_platform::queue::{Outcome, Queue};
use olm_serve::Store;
use tokio_util::sync::CancellationToken;

use crate::content::Contents;
use crate::metrics::CatalogMetrics;
use observe::Memory;

pub(crate) use observe::Starting;
pub(crate) use verify::verify;
pub(crate) use watch::{collect_garbage, follow_leadership, watch};

/// The controller's name in metrics, as the reference calls it.
const CONTROLLER: &str = "catalogd-clustercatalog-controller";

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
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
    pub(crate) memories: Memories,
}

/// Works on one catalog, once.
pub(crate) async fn reconcile(context: &Context, name: &str) -> Outcome {
    let began = Instant::now();
    let outcome = match observe::observe(context, name) {
        None => act::forget(context, name).await,
        Some(observed) => pass(context, observed)
            .await
            .unwrap_or_else(|error| act::explain(name, &error)),
    };
    context.starting.tried(name);
    let result = match outcome {
        Outcome::Done => "success",
        Outcome::After(_) => "requeue_after",
        Outcome::Failed => "error",
    };
    context.metrics.reconciled(CONTROLLER, result, began.elapsed());
    outcome
}

async fn pass(context: &Context, observed: observe::Observed) -> Result<Outcome, act::WriteError> {
    let plan = plan::plan(&observed);
    let observed = act::prepare(context, observed, &plan).await?;
    let done = act::content(context, &observed, &plan.content).await;
    let status = report::status(&observed, &done, &context.origin);
    act::publish(context, observed, &plan, status).await?;
    Ok(report::next(&plan, &done))
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
