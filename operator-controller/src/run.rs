//! Wiring: the parts, and who tells whom.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::Client;
use kube::runtime::reflector;
use olm_api::names;
use olm_api::names::annotation;
use olm_platform::admin::{self, Readiness};
use olm_platform::gate::Gate;
use olm_platform::lease::{LeaseSettings, elect, unique_identity};
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::metrics::Metrics;
use olm_platform::queue::{Outcome, Queue};
use olm_platform::shutdown::Shutdown;
use olm_platform::tls::self_signed::SelfSigned;
use olm_platform::tls::{Profile, ReloadingCertificate, server_config};
use olm_platform::{client, identity};
use olm_resolve::ReleaseField;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::args::Args;
use crate::bundles::credentials::PullSecrets;
use crate::bundles::{Bundles, Settings};
use crate::catalogs::Catalogs;
use crate::catalogs::trust::Authorities;
use crate::cluster::discover::Discovery;
use crate::cluster::identity::Accounts;
use crate::cluster::permissions::Reviews;
use crate::extension::context::Context;
use crate::extension::leftovers;
use crate::extension::reconcile::reconcile;
use crate::extension::watch::{Writers, watch};
use crate::{conditions, object_set, openshift};

/// The metrics port when no flag names one.
const METRICS_ADDRESS: &str = ":8443";
/// How long tasks may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// How often kept answers and bundles that nothing uses are forgotten.
const FORGET: Duration = Duration::from_mins(10);
/// How long until something that is looked for once is looked for again after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Runs operator-controller until it is told to stop.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    run_until(args, shutdown).await
}

/// Runs operator-controller until `shutdown` says so.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run_until(args: Args, shutdown: Shutdown) -> anyhow::Result<()> {
    let common = &args.common;
    let (gates, settings) = args.gates();
    settings.warn();
    let profile = Profile::parse(&common.profile)?;
    profile.warn();
    let pull_secret = common.pull_secret()?;
    let namespace = identity::system_namespace(&common.system_namespace, names::SYSTEM_NAMESPACE);
    let config = client::config(common.kubeconfig(), "operator-controller").await?;
    let own = Client::try_from(config.clone())?;
    let metrics = Metrics::default();
    let started = Arc::new(AtomicBool::new(false));
    serve(&args, &own, &namespace, &profile, &metrics, &shutdown, &started).await?;

    let (extensions, catalogs, sets) = (reflector::store(), reflector::store(), reflector::store());
    let authorities = Authorities {
        directory: args.catalogd_authorities(),
        client: own.clone(),
        namespace: namespace.clone(),
        profile,
    };
    let discovery = Arc::new(Discovery::new(own.clone()));
    let accounts = Arc::new(Accounts::new(&config, own.clone())?);
    let reviews = Arc::new(Reviews::default());
    let context = Arc::new(Context {
        client: own.clone(),
        system_namespace: namespace.clone(),
        default_account: args.default_service_account.clone(),
        gates,
        extensions: extensions.0,
        cluster_catalogs: catalogs.0,
        sets: sets.0,
        catalogs: Catalogs::new(
            authorities,
            if gates.releases {
                ReleaseField::Counts
            } else {
                ReleaseField::Ignored
            },
        )
        .with_token(args.catalogd_token()),
        bundles: Bundles::new(Settings {
            authorities: args.registry_authorities(),
            cache: args.cache_path.join("bundles"),
            places: args.places(),
            limits: olm_image::Limits::bundle().with(args.limits.given()),
            secrets: PullSecrets::new(own.clone(), pull_secret, identity::service_account()),
        }),
        discovery: Arc::clone(&discovery),
        accounts: Arc::clone(&accounts),
        reviews: Arc::clone(&reviews),
        certificates: Mutex::default(),
        memory: Mutex::default(),
    });
    let writers = Writers {
        extensions: extensions.1,
        catalogs: catalogs.1,
        sets: sets.1,
    };
    let options = object_set::controller::Options {
        system_namespace: namespace.clone(),
        default_account: args.default_service_account.clone(),
        concurrency: args.concurrency,
    };
    let revisions = object_set::controller::Context::with(own.clone(), accounts, discovery, reviews, options);
    let work = Work {
        context,
        writers,
        revisions: Arc::new(revisions),
        metrics,
        concurrency: args.concurrency,
    };

    let (lead, leading) = watch::channel(!common.leader_elect);
    let begin = begin(work, leading, shutdown.clone(), started);
    shutdown.spawn("controllers", begin);
    if !common.leader_elect {
        shutdown.requested().await;
        end(&shutdown).await;
        return Ok(());
    }
    // The lease is given back only when nothing is written any more.
    let release = CancellationToken::new();
    let settings = LeaseSettings::new(namespace, names::lease::OPERATOR_CONTROLLER, unique_identity());
    let election = elect(own, settings, release.clone(), lead);
    tokio::pin!(election);
    tokio::select! {
        lost = &mut election => {
            end(&shutdown).await;
            Ok(lost?)
        }
        () = shutdown.requested() => {
            tokio::join!(async { end(&shutdown).await; release.cancel() }, election).1?;
            Ok(())
        }
    }
}

async fn end(shutdown: &Shutdown) {
    shutdown.stop();
    if !shutdown.finished(GRACE).await {
        tracing::warn!("some work did not end in time");
    }
}

/// What is done while leading.
struct Work {
    context: Arc<Context>,
    writers: Writers,
    revisions: Arc<object_set::controller::Context>,
    metrics: Metrics,
    concurrency: usize,
}

/// Waits for leadership, then runs the controllers until the process ends.
async fn begin(work: Work, mut leading: watch::Receiver<bool>, shutdown: Shutdown, started: Arc<AtomicBool>) {
    let stop = shutdown.token();
    if !*leading.borrow() {
        // Waiting for one's turn is as ready as a replica that does not lead can be.
        started.store(true, Ordering::Release);
    }
    tokio::select! {
        () = stop.cancelled() => return,
        led = leading.wait_for(|leads| *leads) => if led.is_err() { return },
    }
    let Work {
        context,
        writers,
        revisions,
        metrics,
        concurrency,
    } = work;
    let (queue, changed) = (Queue::<String>::default(), Arc::new(Notify::new()));
    let watching = watch(Arc::clone(&context), writers, queue.clone(), Arc::clone(&changed));
    shutdown.spawn("watch", until(stop.clone(), watching));
    let ready = async {
        let _ = context.extensions.wait_until_ready().await;
        let _ = context.cluster_catalogs.wait_until_ready().await;
        let _ = context.sets.wait_until_ready().await;
    };
    tokio::select! { () = stop.cancelled() => return, () = ready => {} }
    if let Err(error) = conditions::definition::ensure(&context.client).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot bring the kind OperatorCondition; will try again when it is needed"
        );
    }
    let listening = conditions::watch::watch(Arc::clone(&context), queue.clone());
    shutdown.spawn("conditions", until(stop.clone(), listening));
    started.store(true, Ordering::Release);
    if let Err(error) = leftovers::tidy(&context).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot look for what an interrupted run left behind"
        );
    }
    shutdown.spawn("revisions", object_set::controller::run(revisions, stop.clone()));
    shutdown.spawn("openshift", gate(Arc::clone(&context), changed, stop.clone()));
    shutdown.spawn("forget", until(stop.clone(), forget(Arc::clone(&context))));
    queue
        .run(concurrency, stop, |name| {
            let (context, metrics) = (Arc::clone(&context), metrics.clone());
            async move {
                let begin = Instant::now();
                let outcome = reconcile(context, name).await;
                let result = match outcome {
                    Outcome::Done => "success",
                    Outcome::After(_) => "requeue_after",
                    Outcome::Failed => "error",
                };
                metrics.reconciled("clusterextension", result, begin.elapsed());
                outcome
            }
        })
        .await;
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! { () = stop.cancelled() => {}, () = task => {} }
}

/// Runs the OpenShift gate where it belongs.
async fn gate(context: Arc<Context>, changed: Arc<Notify>, stop: CancellationToken) {
    loop {
        match openshift::controller::is_openshift(&context.client).await {
            Ok(true) => {
                let (client, sets) = (context.client.clone(), context.sets.clone());
                return openshift::controller::run(client, sets, changed, stop).await;
            }
            Ok(false) => return stop.cancelled().await,
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                "cannot ask which API groups are served"
            ),
        }
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(RETRY) => {} }
    }
}

/// Forgets kept answers and bundles that nothing uses, again and again.
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
        let certificate = certificate(args, own, namespace, shutdown).await?;
        let transport = Transport::Tls(Arc::new(server_config(profile, certificate)?));
        let listener = admin::bind(address)
            .await
            .context("cannot open the metrics port")?;
        let routes = admin::metrics_routes(metrics.clone(), Gate::new(own.clone()));
        let respond = move |request, _| {
            let routes = routes.clone();
            async move {
                routes
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {})
            }
        };
        shutdown.spawn(
            "metrics",
            listener::serve(listener, transport, Limits::default(), shutdown.token(), respond),
        );
    }
    if args.common.health_probe_bind_address != "0" {
        let readiness = Readiness::default();
        let started = Arc::clone(started);
        readiness.require("watches", move || {
            let read = started.load(Ordering::Acquire);
            read.then_some(())
                .ok_or_else(|| "the API server's objects are not read yet".to_owned())
        });
        let listener = admin::bind(&args.common.health_probe_bind_address)
            .await
            .context("cannot open the health port")?;
        let health = admin::serve_health(listener, readiness, shutdown.token());
        shutdown.spawn("health", async move {
            if let Err(error) = health.await {
                tracing::error!(error = &error as &dyn std::error::Error, "the health port failed");
            }
        });
    }
    Ok(())
}

/// The certificate given by flags, else one that we make and renew.
async fn certificate(
    args: &Args,
    own: &Client,
    namespace: &str,
    shutdown: &Shutdown,
) -> anyhow::Result<Arc<ReloadingCertificate>> {
    if let Some(files) = args.common.certificate_files()? {
        let certificate = files.load()?;
        shutdown.spawn(
            "certificate",
            files.watch(Arc::clone(&certificate), shutdown.token()),
        );
        return Ok(certificate);
    }
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
    };
    let certificate = made.load().await.context("cannot make a serving certificate")?;
    shutdown.spawn(
        "certificate",
        made.watch(Arc::clone(&certificate), shutdown.token()),
    );
    Ok(certificate)
}
