//! The ClusterCatalog controller.
//!
//! The pipeline is [`reconcile`]; its stages are the files below. `observe` gathers facts, `plan` and `report` are
//! pure, `act` executes the plan and decides nothing.

mod act;
mod message;
mod observe;
mod plan;
mod report;
mod signatures;
mod template;
mod verify;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;

use kube::Client;
use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_cluster::follow::UnreadableObjects;
use olm_cluster::image_policies::ImagePolicies;
use olm_image::Rules;
use olm_platform::events::Events;
use olm_platform::queue::{Outcome, Queue};
use olm_serve::{Lookup, Store};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::content::Contents;
use crate::metrics::{CatalogMetrics, Ready};
use observe::CatalogState;
use plan::ContentAction;

pub(crate) use observe::StartupReadiness;
pub(crate) use signatures::check;
pub(crate) use template::Versions;
pub(crate) use verify::verify;
pub(crate) use watch::{collect_garbage, follow_leadership, watch};

/// The controller's name in metrics, as the reference calls it.
pub(crate) const CONTROLLER: &str = "catalogd-clustercatalog-controller";

/// The shared parts of the controller.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) store: Arc<Store>,
    pub(crate) contents: Contents,
    /// OpenShift's signature policies.
    pub(crate) image_policies: ImagePolicies,
    /// The ClusterCatalogs as the watch last saw them.
    pub(crate) catalogs: reflector::Store<ClusterCatalog>,
    pub(crate) queue: Queue<String>,
    /// Catalogs whose images have to be verified.
    pub(crate) checks: Queue<String>,
    /// Whether this process is the leader, which alone writes to the API server.
    pub(crate) leading: tokio::sync::watch::Receiver<bool>,
    /// Scheme and host under which catalogs are served.
    pub(crate) origin: String,
    pub(crate) startup: StartupReadiness,
    pub(crate) counts: CatalogMetrics,
    pub(crate) stop: CancellationToken,
    pub(crate) states: CatalogStates,
    pub(crate) versions: Versions,
    pub(crate) events: Events,
    /// Catalogs that cannot be read: their served content stays.
    pub(crate) unreadable: UnreadableObjects,
}

impl Context {
    /// The rules for the image of a catalog, beside the signature policy of the files.
    ///
    /// # Errors
    /// The message about an annotation that cannot be used.
    fn rules(&self, catalog: &ClusterCatalog) -> Result<Rules, String> {
        Ok(plan::rules(catalog)?.and(&self.image_policies.of_cluster()))
    }
}

/// Reconciles one catalog, once.
pub(crate) async fn reconcile(context: &Context, name: &str) -> Outcome {
    if context.unreadable.contains::<ClusterCatalog>(name) {
        context.startup.tried(name);
        return Outcome::Done;
    }
    let outcome = match observe::observe(context, name).await {
        None => act::forget(context, name).await,
        Some(observed) => pass(context, observed)
            .await
            .unwrap_or_else(|error| act::explain(name, &error)),
    };
    context.startup.tried(name);
    outcome
}

async fn pass(context: &Context, observed: observe::Observed) -> Result<Outcome, act::WriteError> {
    let plan = plan::plan(&observed);
    let mut observed = act::prepare(context, observed, &plan).await?;
    report_readiness(context, observed.catalog.name(), &plan);
    let done = act::content(context, &mut observed, &plan.content).await;
    let verification = signatures::verification(context, &observed, &done).await;
    let status = report::status(&observed, &plan, &done, &context.origin);
    let status = report::verified(&observed, status, &verification);
    let next = report::next(&plan, &observed, &done, verification.again());
    report_readiness(context, observed.catalog.name(), &plan);
    act::publish(context, observed, &plan, status).await?;
    Ok(next)
}

/// Sets the metric of whether a wanted catalog is served, also while catalogd fetches its content.
fn report_readiness(context: &Context, name: &str, plan: &plan::Plan) {
    let ready = match context.store.get(name) {
        Lookup::Served(_) => Some(Ready::Yes),
        Lookup::Expected => Some(Ready::No),
        Lookup::Unknown => {
            let wanted = matches!(
                plan.content,
                ContentAction::Resolve { .. } | ContentAction::Block(_) | ContentAction::Retry(_)
            );
            wanted.then_some(Ready::No)
        }
    };
    if let Some(ready) = ready {
        context.counts.ready(name, ready);
    }
}

/// The state of each catalog between two passes.
#[derive(Debug, Default)]
pub(crate) struct CatalogStates(Mutex<HashMap<String, CatalogState>>);

impl CatalogStates {
    fn of(&self, name: &str) -> CatalogState {
        self.0.lock().get(name).cloned().unwrap_or_default()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut CatalogState)) {
        change(self.0.lock().entry(name.to_owned()).or_default());
    }

    fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }
}
