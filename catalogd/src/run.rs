//! Wiring: the parts, and who tells whom.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::runtime::reflector;
use olm_api::names;
use olm_image::{Images, Options, Registries};
use olm_platform::admin::{self, Gate, Readiness};
use olm_platform::features::FeatureGates;
use olm_platform::lease::{LeaseSettings, elect, unique_identity};
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::metrics::Metrics;
use olm_platform::queue::Queue;
use olm_platform::shutdown::Shutdown;
use olm_platform::tls::self_signed::SelfSigned;
use olm_platform::tls::{Profile, ReloadingCertificate, server_config};
use olm_platform::{client, identity};
use olm_serve::{Access, App, Endpoints, Store, StoreLimits};
use tokio::sync::watch;
use tower::ServiceExt as _;

use crate::args::Args;
use crate::content::Contents;
use crate::controller::{
    Context, Memories, Starting, collect_garbage, follow_leadership, reconcile, verify, watch,
};
use crate::metrics::CatalogMetrics;
use crate::secrets::PullSecrets;

/// The gates that the reference knows. All are on by default.
const GATES: &[(&str, bool)] = &[("APIV1MetasHandler", true), ("GraphQLCatalogQueries", true)];
/// The metrics port when no flag names one.
const METRICS_ADDRESS: &str = ":7443";
/// Catalogs worked on at once: far more than a cluster has, since most of them only wait for a registry.
const CATALOGS_AT_ONCE: usize = 256;
/// How long tasks may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// Runs catalogd until it is told to stop.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    run_until(args, shutdown).await
}

/// Runs catalogd until `shutdown` says so.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run_until(args: Args, shutdown: Shutdown) -> anyhow::Result<()> {
    let stop = shutdown.token();
    let common = &args.common;
    let gates = FeatureGates::parse(GATES, &common.feature_gates);
    gates.warn();
    let profile = Profile::parse(&common.profile)?;
    profile.warn();
    let pull_secret = common.pull_secret()?;
    let namespace = identity::system_namespace(&common.system_namespace, names::SYSTEM_NAMESPACE);

    // What is on the disk is served before anything else is known.
    let store_folder = args.cache_dir.join("catalogs");
    let store =
        tokio::task::spawn_blocking(move || Store::open(&store_folder, StoreLimits::default())).await?;
    let store = Arc::new(store.context("cannot open the cache directory")?);
    let spool = args.cache_dir.join("unpack");
    std::fs::create_dir_all(&spool).context("cannot create the directory for unpacking")?;

    let client = client::connect(common.kubeconfig(), "catalogd").await?;
    let metrics = Metrics::default();
    let counts = CatalogMetrics::register(&metrics);
    let certificate = certificate(&args, &client, &namespace, &shutdown).await?;
    let transport = Transport::Tls(Arc::new(server_config(&profile, certificate)?));

    let content_listener = admin::bind(&args.catalogs_server_addr)
        .await
        .context("cannot open the content port")?;
    let observer = {
        let counts = counts.clone();
        move |access: &Access| counts.answered(access)
    };
    let endpoints = Endpoints {
        metas: gates.enabled("APIV1MetasHandler"),
    };
    let app = Arc::new(App::new(Arc::clone(&store), endpoints).observed_by(observer));
    let respond = move |request, peer| {
        let app = Arc::clone(&app);
        async move { app.respond(request, Some(peer)).await }
    };
    tracing::info!(address = ?admin::address(&content_listener), catalogs = store.snapshots().len(), "serving");
    shutdown.spawn(
        "content",
        listener::serve(
            content_listener,
            transport.clone(),
            Limits::default(),
            stop.clone(),
            respond,
        ),
    );

    if let Some(address) = common.metrics_address(METRICS_ADDRESS) {
        let listener = admin::bind(address)
            .await
            .context("cannot open the metrics port")?;
        let routes = admin::metrics_routes(metrics.clone(), Gate::new(client.clone()));
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
            listener::serve(listener, transport, Limits::default(), stop.clone(), respond),
        );
    }
    let starting = Starting::default();
    if common.health_probe_bind_address != "0" {
        let readiness = Readiness::default();
        let check = starting.clone();
        readiness.require("catalogs", move || check.check());
        let listener = admin::bind(&common.health_probe_bind_address)
            .await
            .context("cannot open the health port")?;
        let health = admin::serve_health(listener, readiness, stop.clone());
        shutdown.spawn("health", async move {
            if let Err(error) = health.await {
                tracing::error!(%error, "the health port failed");
            }
        });
    }

    let (lead, leading) = watch::channel(!common.leader_elect);
    let (reader, writer) = reflector::store();
    let mut registries = Registries::default();
    for registry in &args.plain_http_registries {
        registries = registries.plain_http(registry);
    }
    let images = Images::new(Options {
        authorities: Some(common.pull_cas_dir.clone().into()).filter(|_| !common.pull_cas_dir.is_empty()),
        ..Options::new(concat!("catalogd/", env!("CARGO_PKG_VERSION")))
    });
    let secrets = PullSecrets {
        client: client.clone(),
        global: pull_secret,
        account: identity::service_account(),
    };
    let context = Arc::new(Context {
        client: client.clone(),
        store: Arc::clone(&store),
        contents: Contents::new(store, images, secrets, registries, spool),
        catalogs: reader,
        queue: Queue::default(),
        leading,
        origin: format!("https://{}", args.external_address),
        starting,
        counts,
        metrics,
        stop: stop.clone(),
        memories: Memories::default(),
    });
    shutdown.spawn("watch", watch(Arc::clone(&context), writer));
    shutdown.spawn("leadership", follow_leadership(Arc::clone(&context)));
    shutdown.spawn("garbage", collect_garbage(Arc::clone(&context), args.gc_interval));
    shutdown.spawn("verify", verify(Arc::clone(&context)));
    let controller = Arc::clone(&context);
    shutdown.spawn("controller", async move {
        let queue = controller.queue.clone();
        let work = |name: String| {
            let controller = Arc::clone(&controller);
            async move { reconcile(&controller, &name).await }
        };
        queue.run(CATALOGS_AT_ONCE, controller.stop.clone(), work).await;
    });

    let lost = if common.leader_elect {
        let settings = LeaseSettings::new(namespace, names::lease::CATALOGD, unique_identity());
        elect(client, settings, stop.clone(), lead).await.err()
    } else {
        shutdown.requested().await;
        None
    };
    shutdown.stop();
    if !shutdown.finished(GRACE).await {
        tracing::warn!("some work did not end in time");
    }
    lost.map_or(Ok(()), |lost| Err(lost.into()))
}

/// The certificate given by flags, else one that we make and renew.
async fn certificate(
    args: &Args,
    client: &kube::Client,
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
    let external = match args.external_address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => &args.external_address,
    };
    let service = format!("catalogd-service.{namespace}.svc");
    let mut dns_names = vec![
        external.to_owned(),
        format!("{service}.cluster.local"),
        "localhost".to_owned(),
    ];
    if external != service {
        dns_names.push(service);
    }
    let own = SelfSigned {
        client: client.clone(),
        namespace: namespace.to_owned(),
        secret: names::certificate::CATALOGD_SECRET.to_owned(),
        config_map: names::certificate::CATALOGD_AUTHORITY.to_owned(),
        dns_names,
    };
    let certificate = own.load().await.context("cannot make a serving certificate")?;
    shutdown.spawn(
        "certificate",
        own.watch(Arc::clone(&certificate), shutdown.token()),
    );
    Ok(certificate)
}
