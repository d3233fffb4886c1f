//! `olm-operator`: installs ClusterServiceVersions and reconciles what stands around them.
//!
//! - [`wake`] says what there is to do after a change, as keys of one queue ([`work`]);
//! - [`csv`] makes passes over a ClusterServiceVersion and does what they want done;
//! - [`group`] does the same for OperatorGroups, and labels namespaces;
//! - [`copies`] keeps copies in the namespaces that operators watch, as [`config`] says; [`copy_index`] follows
//!   their metadata, [`copy_events`] says which operators have none;
//! - [`condition`] and [`component`] are about OperatorConditions and Operators;
//! - [`certificates`] issues what operators serve with;
//! - [`metrics`] counts.

pub mod certificates;
pub mod component;
pub mod condition;
pub mod config;
pub mod context;
pub mod copies;
pub mod copy_events;
pub mod copy_index;
pub mod csv;
pub mod grace;
pub mod group;
pub mod metrics;
pub mod wake;
pub mod work;

use std::sync::Arc;
use std::time::Duration;

use olm_classic::cluster::Cluster;
use olm_classic::csv::cluster_operator::{self, Reporter};
use olm_classic::names;
use olm_platform::queue::{Outcome, on_its_own};
use tokio::sync::mpsc::UnboundedReceiver;

use self::context::Context;
use self::wake::{Tasks, Urgency};
use self::work::{Name, Work};
use crate::args::OperatorArgs;
use crate::base::Base;
use crate::objects::kinds::{self, Kind};
use crate::objects::store::Change;
use crate::report;

/// The kinds that are followed.
const KINDS: &[Kind] = &[
    kinds::CSV,
    kinds::OPERATOR_GROUP,
    kinds::OPERATOR_CONDITION,
    kinds::OPERATOR,
    kinds::OLM_CONFIG,
    kinds::SUBSCRIPTION,
    kinds::INSTALL_PLAN.stripped(kinds::strip_to_conditions),
    kinds::CONFIG_MAP.stripped(kinds::strip_to_conditions),
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

/// The proxy of an OpenShift cluster.
const PROXY: &[Kind] = &[kinds::PROXY];
/// Its CustomResourceDefinition.
const PROXY_DEFINITION: &str = "proxies.config.openshift.io";

/// Delay of Operators and of labels of what Subscriptions install: each step of an installation changes them, and
/// nothing waits for them.
const MOMENT: Duration = Duration::from_secs(1);

/// Runs the controllers until the process ends.
pub async fn run(base: Arc<Base>, args: OperatorArgs) {
    base.follow(KINDS).await;
    let changes_of_definitions = base.store.subscribe();
    if is_proxy_served(&base) {
        // Without its variables every Deployment would be another one.
        base.follow(PROXY).await;
    } else {
        base.shutdown
            .spawn("proxy", follow_proxy(Arc::clone(&base), changes_of_definitions));
    }
    report(&base, &args);
    let stop = base.shutdown.token();
    let concurrency = base.concurrency;
    let changes = base.store.subscribe();
    let context = Arc::new(Context::new(base, args));
    follow_copies(&context).await;
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

fn is_proxy_served(base: &Base) -> bool {
    let cluster = base.store.snapshot();
    cluster.get(names::CRD_KIND, "", PROXY_DEFINITION).is_some()
}

/// Follows the proxy from the time at which it is served.
async fn follow_proxy(base: Arc<Base>, mut changes: UnboundedReceiver<Change>) {
    let stop = base.shutdown.token();
    while !is_proxy_served(&base) {
        tokio::select! {
            () = stop.cancelled() => return,
            change = changes.recv() => if change.is_none() { return },
        }
    }
    drop(changes);
    base.follow(PROXY).await;
    stop.cancelled().await;
}

/// Reports to the ClusterOperators that flags name.
fn report(base: &Arc<Base>, args: &OperatorArgs) {
    let classic = &args.classic;
    report::start(base, classic, &classic.write_status_name, |reporter, cluster| {
        let upgradeable = cluster_operator::upgradeable(cluster, &reporter.release);
        reporter.of_program(upgradeable, &["clusterserviceversions"])
    });
    let name = &args.write_package_server_status_name;
    report::start(base, classic, name, Reporter::of_version);
}

async fn reconcile(context: Arc<Context>, work: Work) -> Outcome {
    match work {
        Work::Csv(name) => csv::reconcile(&context, &name).await,
        Work::Group(name) => group::reconcile(&context, &name).await,
        Work::Namespace(name) => group::label_namespace(&context, &name).await,
        Work::Copies(name) => copies::reconcile(&context, &name).await,
        Work::Condition(name) => condition::reconcile(&context, &name).await,
        Work::Subscription(name) => component::label_subscription(&context, &name).await,
        Work::Owned(name) => component::label_owned(&context, &name).await,
        Work::Component(name) => component::reconcile(&context, &name).await,
        Work::Config(name) => config::reconcile(&context, &name).await,
    }
}

/// Follows the copies until the process ends, and waits until they are listed.
async fn follow_copies(context: &Arc<Context>) {
    let (copies, shared) = (Arc::clone(&context.copies), Arc::clone(context));
    let stop = context.base.shutdown.token();
    context.base.shutdown.spawn("copies", async move {
        let wake = |original: Name| {
            shared.queue.add(Work::Copies(original.clone()));
            // A new copy owns rights in its namespace.
            shared.queue.add_patiently(Work::Csv(original));
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = copies.follow(shared.writer().own().clone(), wake) => {}
        }
    });
    let stop = context.base.shutdown.token();
    tokio::select! {
        () = stop.cancelled() => {}
        () = context.copies.wait_until_listed() => {}
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
            Urgency::Later => context.queue.add_later(work, MOMENT),
            Urgency::Patient => context.queue.add_patiently(work),
        }
    }
}
