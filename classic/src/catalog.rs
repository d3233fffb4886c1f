//! `catalog-operator`: serves CatalogSources, resolves Subscriptions, carries out InstallPlans.
//!
//! ```text
//! wake ─► namespace: Subscriptions ─► resolution ─► unpack ─► InstallPlan
//!    │        └─► verification   what the signature policies say about installed bundles
//!    └──► plan: InstallPlan ─► gather ─► steps ─► write
//! ```

mod bundles;
pub mod context;
pub mod health;
pub mod metrics;
pub mod migration;
pub mod namespace;
pub mod plan;
pub mod repeats;
pub mod resolution;
pub mod unpack;
pub mod verdicts;
pub mod verification;
pub mod wake;
pub mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use olm_classic::csv::cluster_operator;
use olm_image::Images;
use olm_platform::metrics::Metrics;
use olm_platform::queue::{Queue, on_its_own};
use parking_lot::Mutex;
use serde_json::Value;

use self::context::Context;
use self::metrics::CatalogMetrics;
use self::migration::Mover;
use self::repeats::Repeats;
use self::unpack::Unpacker;
use self::unpack::images::BundleImages;
use self::verdicts::Verdicts;
use crate::args::CatalogArgs;
use crate::base::Base;
use crate::objects::kinds::{self, Kind};
use crate::registry::access::settings;
use crate::registry::policies::Policies;
use crate::registry::sources::{self, Sources};
use crate::report;

/// The time between two removals of unpacked bundles.
const PRUNE_TIME: Duration = Duration::from_mins(30);

/// The kinds whose changes the controllers wait for, beside those of [`sources`]. Of rights and accounts only their
/// names are kept.
const KINDS: &[Kind] = &[
    kinds::SUBSCRIPTION,
    kinds::INSTALL_PLAN,
    kinds::OPERATOR_GROUP,
    kinds::CSV,
    kinds::CRD,
    named(kinds::ROLE),
    named(kinds::ROLE_BINDING),
    named(kinds::CLUSTER_ROLE),
    named(kinds::CLUSTER_ROLE_BINDING),
    kinds::SERVICE_ACCOUNT,
];

const fn named(kind: Kind) -> Kind {
    Kind {
        strip: strip_content,
        ..kind
    }
}

/// Leaves what names an object, and its version.
fn strip_content(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fields.retain(|key, _| ["apiVersion", "kind", "metadata"].contains(&key.as_str()));
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| ["namespace", "name", "uid", "resourceVersion"].contains(&key.as_str()));
    }
}

/// Runs the controllers until the process ends.
pub async fn run(base: Arc<Base>, args: CatalogArgs) {
    let images = match BundleImages::new(base.writer.own().clone(), &args) {
        Ok(images) => images,
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                "cannot read the flags; the program ends"
            );
            base.shutdown.stop();
            return;
        }
    };
    let changes = base.store.subscribe();
    tokio::join!(base.follow(sources::KINDS), base.follow(KINDS));
    report::start(
        &base,
        &args.classic,
        &args.classic.write_status_name,
        |reporter, _| reporter.of_program(cluster_operator::always(), &["subscriptions", "installplans"]),
    );
    let policies = Arc::new(Policies::new(settings(&args)));
    let sources = Sources::new(Arc::clone(&base), &args, Arc::clone(&policies));
    let news = sources.subscribe();
    count_signatures(&base.metrics, images.images().clone(), Arc::clone(&sources));
    let (namespaces, plans) = (Queue::default(), Queue::default());
    let context = Arc::new(Context {
        global: args.global_namespace(&base.namespace).to_owned(),
        unpacker: Unpacker::new(
            images,
            Arc::clone(&policies),
            args.install.pull_bounds(),
            namespaces.clone(),
        ),
        policies,
        unpack_timeout: duration(&args.install.bundle_unpack_timeout, SignedDuration::from_mins(10)),
        retry_for: duration(
            &args.install.install_plan_retry_timeout,
            SignedDuration::from_mins(1),
        ),
        definitions: base
            .account
            .clone()
            .filter(|_| args.install.classic_crds_as_installer),
        resolutions: resolution::Resolutions::default(),
        metrics: CatalogMetrics::default(),
        namespaces,
        plans,
        resumed: Mutex::default(),
        verdicts: Verdicts::default(),
        previews: Mutex::default(),
        repairs: Mutex::default(),
        repeats: Repeats::default(),
        sources,
        base,
    });
    let base = &context.base;
    context.metrics.register(&base.metrics, Arc::clone(&base.store));
    context.namespaces.report_to(&base.metrics, "subscription");
    context.plans.report_to(&base.metrics, "installplan");
    let stop = base.shutdown.token();
    spawn(
        &context,
        "signature policies",
        follow_policies(Arc::clone(&context)),
    );
    tokio::select! { () = stop.cancelled() => return, () = context.policies.ready() => {} }
    let mover = Mover::new(Arc::clone(base), args.managers_namespace.clone());
    spawn(&context, "migration", mover.run());
    let serving = Arc::clone(&context.sources).run();
    spawn(&context, "catalogs", serving);
    wake::everything(&context);
    spawn(
        &context,
        "wake",
        wake::follow(Arc::clone(&context), changes, news),
    );
    spawn(&context, "bundles", prune(Arc::clone(&context)));
    let working = context.plans.run(base.concurrency, stop.clone(), |key| {
        on_its_own(plan::work(Arc::clone(&context), key))
    });
    let resolving = context
        .namespaces
        .run(base.concurrency, stop.clone(), |namespace| {
            on_its_own(namespace::work(Arc::clone(&context), namespace))
        });
    let verdicts = &context.verdicts.queue;
    let verifying = verdicts.run(verification::AT_ONCE, stop, |subscription| {
        on_its_own(verification::verify(Arc::clone(&context), subscription))
    });
    tokio::join!(working, resolving, verifying);
}

/// Counts the signature checks of bundles and of catalogs together.
fn count_signatures(metrics: &Metrics, bundles: Images, sources: Arc<Sources>) {
    metrics.outcomes(
        "catalog_operator_signature_checks",
        "Images that were checked against the signature policy, by outcome",
        move || {
            let catalogs = sources.images().map(|images| images.signature_checks());
            let mut counts = BTreeMap::new();
            for (outcome, count) in bundles
                .signature_checks()
                .into_iter()
                .chain(catalogs.into_iter().flatten())
            {
                *counts.entry(outcome).or_insert(0) += count;
            }
            counts.into_iter().collect()
        },
    );
}

/// Follows the signature policies.
async fn follow_policies(context: Arc<Context>) {
    let client = context.base.writer.own();
    let changed = || wake::policies(&context);
    Box::pin(context.policies.follow(client, changed)).await;
}

/// Removes unpacked bundles that nothing needs, at the start and now and then.
async fn prune(context: Arc<Context>) {
    loop {
        context.unpacker.prune(&context.base.store.snapshot()).await;
        tokio::time::sleep(PRUNE_TIME).await;
    }
}

fn spawn(context: &Context, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    let shutdown = &context.base.shutdown;
    let stop = shutdown.token();
    shutdown.spawn(name, async move {
        tokio::select! { () = stop.cancelled() => {}, () = task => {} }
    });
}

/// A duration in the format of Go; `default` where it is none.
fn duration(text: &str, default: SignedDuration) -> SignedDuration {
    match olm_text::duration::parse(text) {
        Ok(nanoseconds) => SignedDuration::from_nanos(nanoseconds),
        Err(error) => {
            tracing::warn!(error, ?default, "the default is used");
            default
        }
    }
}
