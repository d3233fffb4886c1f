//! `olm-operator`: installs ClusterServiceVersions and reconciles what stands around them.
//!
//! - [`wake`] says what there is to do after a change, as keys of one queue ([`work`]);
//! - [`csv`] makes passes over a ClusterServiceVersion and does what they want done;
//! - [`group`] does the same for OperatorGroups, and labels namespaces;
//! - [`certificates`] issues what operators serve with;
//! - [`metrics`] counts.

pub mod certificates;
pub mod context;
pub mod csv;
pub mod group;
pub mod metrics;
pub mod wake;
pub mod work;

use std::sync::Arc;

use olm_classic::cluster::Cluster;
use olm_classic::names;
use olm_platform::queue::{Outcome, on_its_own};
use tokio::sync::mpsc::UnboundedReceiver;

use self::context::Context;
use self::wake::{Tasks, Urgency};
use self::work::{Name, Work};
use crate::args::OperatorArgs;
use crate::objects::kinds::{self, Kind};
use crate::objects::store::Change;
use crate::run::Base;

/// The kinds that are followed.
const KINDS: &[Kind] = &[
    kinds::CSV,
    kinds::OPERATOR_GROUP,
    kinds::OPERATOR_CONDITION,
    kinds::OPERATOR,
    kinds::OLM_CONFIG,
    kinds::SUBSCRIPTION,
    kinds::NAMESPACE,
    kinds::DEPLOYMENT,
    kinds::SERVICE,
    kinds::SERVICE_ACCOUNT,
    kinds::SECRET,
    kinds::ROLE,
    kinds::ROLE_BINDING,
    kinds::CLUSTER_ROLE,
    kinds::CLUSTER_ROLE_BINDING,
    kinds::CRD,
    kinds::API_SERVICE,
    kinds::MUTATING_WEBHOOK,
    kinds::VALIDATING_WEBHOOK,
];

/// Runs the controllers until the process ends.
pub async fn run(base: Arc<Base>, args: OperatorArgs) {
    base.follow(KINDS).await;
    let stop = base.shutdown.token();
    let concurrency = base.concurrency;
    let changes = base.store.subscribe();
    let context = Arc::new(Context::new(base, args));
    let cluster = context.snapshot();
    show_all(&context, &cluster);
    add(&context, wake::all(&cluster));
    let waking = tokio::spawn(wake_up(Arc::clone(&context), changes));
    let queue = context.queue.clone();
    queue
        .run(concurrency, stop, move |work| {
            on_its_own(reconcile(Arc::clone(&context), work))
        })
        .await;
    waking.abort();
}

async fn reconcile(context: Arc<Context>, work: Work) -> Outcome {
    match work {
        Work::Csv(name) => csv::reconcile(&context, &name).await,
        Work::Group(name) => group::reconcile(&context, &name).await,
        Work::Namespace(name) => group::label_namespace(&context, &name).await,
        Work::Copies(_) | Work::Condition(_) | Work::Component(_) | Work::Config(_) => Outcome::Done,
    }
}

/// Adds what each change gives to do.
async fn wake_up(context: Arc<Context>, mut changes: UnboundedReceiver<Change>) {
    while let Some(change) = changes.recv().await {
        let cluster = context.snapshot();
        if change.kind == names::CSV_KIND {
            match &change.now {
                Some(csv) => context.metrics.show(csv),
                None => context.metrics.forget(&Name::of(change.object())),
            }
            context.metrics.count(&cluster);
        }
        add(&context, wake::tasks(&change, &cluster));
    }
}

fn show_all(context: &Context, cluster: &Cluster) {
    for csv in cluster.of_kind(names::CSV_KIND) {
        context.metrics.show(csv);
    }
    context.metrics.count(cluster);
}

fn add(context: &Context, tasks: Tasks) {
    for (work, urgency) in tasks {
        match urgency {
            Urgency::Now => context.queue.add(work),
            Urgency::Patient => context.queue.add_patiently(work),
        }
    }
}
