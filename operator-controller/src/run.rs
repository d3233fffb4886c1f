//! Wiring of all parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::Client;
use kube::runtime::reflector;
use olm_api::names;
use olm_api::names::annotation;
use olm_platform::admin::{self, Readiness};
use olm_platform::events::Events;
use olm_platform::gate::Gate;
use olm_platform::leadership::run_until_end;
use olm_platform::lease::{LeaseSettings, unique_identity};
use olm_platform::listener::Transport;
use olm_platform::metrics::Metrics;
use olm_platform::queue::{Queue, on_its_own};
use olm_platform::shutdown::Shutdown;
use olm_platform::tls::self_signed::SelfSigned;
use olm_platform::tls::{Profile, server_config, serving_certificate};
use olm_platform::{client, identity, memory};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::bundles::credentials::PullSecrets;
use crate::bundles::{BundleSettings, Bundles};
use crate::catalogs::Catalogs;
use crate::catalogs::trust::Authorities;
use crate::extension::act::orphaned_secrets;
use crate::extension::context::Context;
use crate::extension::context::claims::Claims;
use crate::extension::context::cluster_info::ClusterInfo;
use crate::extension::context::helm::Releases;
use crate::extension::context::joint_updates::JointUpdates;
use crate::extension::context::providers::CertificateProviders;
use crate::extension::reconcile::{Controller, reconcile};
use crate::extension::watch::{Writers, watch};
use crate::metrics::counters::Counters;
use crate::metrics::{collector, rollouts};
use crate::object_set::store::Sets;
use crate::object_set::teardown_records::TeardownRecords;
use crate::{conditions, object_set, openshift};
use olm_cluster::discover::Discovery;
use olm_cluster::follow::UnreadableObjects;
use olm_cluster::identity::Accounts;
use olm_cluster::image_policies::{ImagePolicies, Kinds};
use olm_cluster::permissions::Reviews;

/// The default metrics address.
const METRICS_ADDRESS: &str = ":8443";
/// The name of the extension controller in metrics, the same as in the reference implementation.
const CONTROLLER: &str = "controller-operator-cluster-extension-controller";
/// The interval at which unused answers and bundles are dropped.
const FORGET: Duration = Duration::from_mins(10);

/// Runs operator-controller until it receives a signal.
///
/// # Errors
/// It cannot start, or has lost the lease.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    run_until(args, shutdown).await
}

/// Runs operator-controller until `shutdown`.
///
/// # Errors
/// It cannot start, or has lost the lease.
pub async fn run_until(args: Args, shutdown: Shutdown) -> anyhow::Result<()> {
    let common = &args.common;
    let (gates, settings) = args.gates();
    settings.warn();
    let profile = Profile::parse(&common.profile)?;
    profile.warn();
    let pull_secret = common.pull_secret()?;
    let namespace = identity::system_namespace(&common.system_namespace, names::SYSTEM_NAMESPACE);
    let config = client::config(common.kubeconfig(), "operator-controller").await?;
    let metrics = Metrics::default();
    let own = client::counted(config.clone(), &metrics)?;
    let started = Arc::new(AtomicBool::new(false));
    serve(&args, &own, &namespace, &profile, &metrics, &shutdown, &started).await?;

    let (extensions, catalogs, sets) = (reflector::store(), reflector::store(), Arc::<Sets>::default());
    let (policies, changes) = (reflector::store(), reflector::store());
    let authorities = Authorities {
        directory: args.catalogd_authorities(),
        client: own.clone(),
        namespace: namespace.clone(),
        profile,
    };
    let discovery = Arc::new(Discovery::new(own.clone()));
    let accounts = Arc::new(Accounts::new(&config, own.clone(), &metrics)?);
    let reviews = Arc::new(Reviews::default());
    let teardown_records = Arc::new(TeardownRecords::default());
    let instance = unique_identity();
    let queue = Queue::<String>::default();
    let context = Arc::new(Context {
        client: own.clone(),
        events: Events::new(
            own.clone(),
            names::field_manager::OPERATOR_CONTROLLER,
            instance.clone(),
        ),
        system_namespace: namespace.clone(),
        default_account: args.default_service_account.clone(),
        default_catalogs: args.default_catalogs.clone(),
        gates,
        migration_time: Duration::from_secs(args.storage_migration_seconds.into()),
        extensions: extensions.0,
        cluster_catalogs: catalogs.0,
        policies: policies.0,
        changes: changes.0,
        unreadable: UnreadableObjects::default(),
        sets: Arc::clone(&sets),
        catalogs: Catalogs::new(authorities, gates.release_field())
            .with_token(args.catalogd_token(&namespace)),
        bundles: bundles(
            &args,
            PullSecrets::new(own.clone(), pull_secret, identity::service_account()),
            &queue,
        ),
        image_policies: ImagePolicies::new(Kinds::All),
        discovery: Arc::clone(&discovery),
        accounts: Arc::clone(&accounts),
        reviews: Arc::clone(&reviews),
        providers: CertificateProviders::new(Arc::clone(&discovery), gates.providers()),
        releases: Releases::new(own.clone(), &namespace),
        cluster: ClusterInfo::new(own.clone()),
        teardown_records: Arc::clone(&teardown_records),
        deletions: Arc::default(),
        joint_updates: JointUpdates::default(),
        claims: Claims::default(),
        counters: Counters::default(),
    });
    let writers = Writers {
        extensions: extensions.1,
        catalogs: catalogs.1,
        policies: policies.1,
        changes: changes.1,
    };
    let options = options(&args, &namespace, &context.counters);
    let revisions = object_set::controller::Context::new(
        own.clone(),
        accounts,
        discovery,
        reviews,
        teardown_records,
        sets,
        options,
    );
    let work = LeaderWork {
        context,
        writers,
        revisions: Arc::new(revisions),
        metrics,
        concurrency: args.concurrency,
        queue,
    };

    let (lead, leading) = watch::channel(!common.leader_elect);
    let election = common.leader_elect.then(|| {
        const LEASE: &str = names::lease::OPERATOR_CONTROLLER;
        work.metrics.leadership(LEASE, leading.clone());
        LeaseSettings::new(namespace, LEASE, instance)
    });
    shutdown.spawn("memory", memory::give_back(shutdown.token()));
    let begin = begin(work, leading, shutdown.clone(), started);
    shutdown.spawn("controllers", begin);
    Ok(run_until_end(own, election, lead, &shutdown).await?)
}

/// The fetcher of bundle images.
fn bundles(args: &Args, secrets: PullSecrets, queue: &Queue<String>) -> Bundles {
    Bundles::new(BundleSettings {
        authorities: args.registry_authorities(),
        token_services: args.common.registry_token_services.clone(),
        cache: args.cache_path.join("bundles"),
        places: args.places(),
        limits: olm_image::Limits::bundle().with(args.limits.given()),
        secrets,
        bounds: args.pull_bounds(),
        wake: queue.clone(),
    })
}

/// The settings of the ClusterObjectSet controller.
fn options(args: &Args, namespace: &str, counters: &Counters) -> object_set::controller::ControllerOptions {
    object_set::controller::ControllerOptions {
        system_namespace: namespace.to_owned(),
        default_account: args.default_service_account.clone(),
        concurrency: args.concurrency,
        clock: Timestamp::now,
        counters: counters.clone(),
    }
}

/// The work of the leader.
struct LeaderWork {
    context: Arc<Context>,
    writers: Writers,
    revisions: Arc<object_set::controller::Context>,
    metrics: Metrics,
    concurrency: usize,
    queue: Queue<String>,
}

/// Waits for leadership, then runs the controllers until the process ends.
async fn begin(
    work: LeaderWork,
    mut leading: watch::Receiver<bool>,
    shutdown: Shutdown,
    started: Arc<AtomicBool>,
) {
    let stop = shutdown.token();
    if !*leading.borrow() {
        // A replica without leadership is ready while it waits.
        started.store(true, Ordering::Release);
    }
    tokio::select! {
        () = stop.cancelled() => return,
        led = leading.wait_for(|leads| *leads) => if led.is_err() { return },
    }
    let LeaderWork {
        context,
        writers,
        revisions,
        metrics,
        concurrency,
        queue,
    } = work;
    let changed = Arc::new(Notify::new());
    queue.report_to(&metrics, CONTROLLER);
    revisions.report_to(&metrics);
    context.counters.register(&metrics);
    context.bundles.report_to(&metrics);
    collector::register(
        &metrics,
        context.extensions.clone(),
        Arc::clone(&context.sets),
        context.changes.clone(),
    );
    let rollouts = rollouts::follow(context.sets.subscribe(), context.counters.clone());
    shutdown.spawn("rollouts", until(stop.clone(), rollouts));
    let watching = watch(Arc::clone(&context), writers, queue.clone(), Arc::clone(&changed));
    shutdown.spawn("watch", until(stop.clone(), watching));
    let policy = {
        let (context, queue) = (Arc::clone(&context), queue.clone());
        async move {
            let all = || {
                for extension in context.extensions.state() {
                    queue.add(extension.name().to_owned());
                }
            };
            tokio::join!(
                context.bundles.policy().follow(&all),
                context.image_policies.follow(&context.client, &all),
            );
        }
    };
    shutdown.spawn("policy", until(stop.clone(), policy));
    let ready = async {
        let _ = context.extensions.wait_until_ready().await;
        let _ = context.cluster_catalogs.wait_until_ready().await;
        context.sets.wait_until_ready().await;
        context.image_policies.ready().await;
    };
    tokio::select! { () = stop.cancelled() => return, () = ready => {} }
    if let Err(error) = conditions::definition::ensure(&context.client).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot create the CRD of OperatorCondition; retrying when an operator needs it"
        );
    }
    let listening = conditions::watch::watch(
        context.client.clone(),
        Arc::clone(&context.deletions),
        queue.clone(),
    );
    shutdown.spawn("conditions", until(stop.clone(), listening));
    started.store(true, Ordering::Release);
    if let Err(error) = orphaned_secrets::tidy(&context).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot look for content Secrets of interrupted runs"
        );
    }
    shutdown.spawn("revisions", object_set::controller::run(revisions, stop.clone()));
    let gate = openshift::controller::follow(
        context.client.clone(),
        openshift::controller::Installed {
            extensions: context.extensions.clone(),
            sets: Arc::clone(&context.sets),
        },
        changed,
        stop.clone(),
    );
    shutdown.spawn("openshift", gate);
    shutdown.spawn("forget", until(stop.clone(), forget(Arc::clone(&context))));
    let controller = Arc::new(Controller::new(context));
    queue
        .run(concurrency, stop, |name| {
            on_its_own(reconcile(Arc::clone(&controller), name))
        })
        .await;
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! { () = stop.cancelled() => {}, () = task => {} }
}

/// Drops unused answers and bundles periodically.
async fn forget(context: Arc<Context>) {
    loop {
        tokio::time::sleep(FORGET).await;
        let (extensions, catalogs) = (context.extensions.state(), context.cluster_catalogs.state());
        context.catalogs.retain(|catalog, package| {
            catalogs.iter().any(|c| c.name() == catalog)
                && extensions.iter().any(|e| {
                    e.spec
                        .source
                        .catalog
                        .as_ref()
                        .is_some_and(|c| c.package_name == package)
                })
        });
        context.teardown_records.retain(|uid| {
            extensions
                .iter()
                .any(|extension| extension.metadata.uid.as_deref() == Some(uid))
        });
        let sets = context.sets.state();
        context
            .bundles
            .prune(
                sets.iter()
                    .filter_map(|set| set.annotation(annotation::BUNDLE_REFERENCE)),
            )
            .await;
    }
}

/// Opens the metrics port and the health port.
async fn serve(
    args: &Args,
    own: &Client,
    namespace: &str,
    profile: &Profile,
    metrics: &Metrics,
    shutdown: &Shutdown,
    started: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    if let Some(address) = args.common.metrics_address(METRICS_ADDRESS) {
        let service = format!("operator-controller-service.{namespace}.svc");
        let made = SelfSigned {
            client: own.clone(),
            namespace: namespace.to_owned(),
            secret: names::certificate::OPERATOR_CONTROLLER_SECRET.to_owned(),
            config_map: names::certificate::OPERATOR_CONTROLLER_AUTHORITY.to_owned(),
            dns_names: vec![
                service.clone(),
                format!("{service}.cluster.local"),
                "localhost".to_owned(),
            ],
            copy: None,
        };
        let certificate = serving_certificate(args.common.certificate_files()?, made, metrics, shutdown)
            .await
            .context("no serving certificate")?;
        let transport = Transport::Tls(Arc::new(server_config(profile, certificate)?));
        admin::open_metrics(
            address,
            transport,
            metrics,
            Some(Gate::new(own.clone())),
            shutdown,
        )
        .await
        .context("cannot open the metrics port")?;
    }
    if let Some(address) = args.common.health_address() {
        let readiness = Readiness::default();
        let started = Arc::clone(started);
        readiness.require("watches", move || {
            let read = started.load(Ordering::Acquire);
            read.then_some(())
                .ok_or_else(|| "the initial lists of objects are not complete".to_owned())
        });
        admin::open_health(address, readiness, shutdown)
            .await
            .context("cannot open the health port")?;
    }
    Ok(())
}
