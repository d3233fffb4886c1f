//! Wiring of the parts.

use std::sync::Arc;

use anyhow::Context as _;
use kube::Client;
use kube::runtime::reflector::{self, ObjectRef};
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::{ClusterCatalog, names};
use olm_cluster::follow::UnreadableObjects;
use olm_cluster::image_policies::{ImagePolicies, Kinds};
use olm_image::{self as image, Images, Options, Settings};
use olm_platform::admin::{self, Readiness};
use olm_platform::events::Events;
use olm_platform::features::FeatureGates;
use olm_platform::gate::Gate;
use olm_platform::leadership::run_until_end;
use olm_platform::lease::{LeaseSettings, unique_identity};
use olm_platform::listener::{self, Limits, Transport};
use olm_platform::metrics::Metrics;
use olm_platform::pull_secrets::PullSecrets;
use olm_platform::queue::Queue;
use olm_platform::shutdown::Shutdown;
use olm_platform::tls::self_signed::SelfSigned;
use olm_platform::tls::{Profile, server_config, serving_certificate};
use olm_platform::{client, crypto, identity, memory};
use olm_serve::{Access, App, CatalogImages, Endpoints, Store, StoreLimits};
use tokio::sync::watch;

use crate::args::Args;
use crate::content::Contents;
use crate::controller::{
    CONTROLLER, CatalogStates, Context, StartupReadiness, Versions, check, collect_garbage,
    follow_leadership, reconcile, verify, watch,
};
use crate::metrics::CatalogMetrics;
use crate::{disk, guard};

/// The gates that the reference knows. All are on by default.
const GATES: &[(&str, bool)] = &[("APIV1MetasHandler", true), ("GraphQLCatalogQueries", true)];
/// The metrics port when no flag names one.
const METRICS_ADDRESS: &str = ":7443";
/// The copy of the serving certificate in the cache directory.
const CERTIFICATE_COPY: &str = "serving-certificate.json";
/// The number of catalogs that are reconciled at the same time: far more than a cluster has, since most of them only
/// wait for a registry.
const CATALOGS_AT_ONCE: usize = 256;

/// Runs catalogd until a signal stops it.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run(args: Args) -> anyhow::Result<()> {
    crypto::gather_randomness();
    run_until(args, Shutdown::on_signals()?).await
}

/// Runs catalogd until `shutdown`.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run_until(args: Args, shutdown: Shutdown) -> anyhow::Result<()> {
    let gates = FeatureGates::parse(GATES, &args.common.feature_gates);
    gates.warn();
    let profile = Profile::parse(&args.common.profile)?;
    profile.warn();
    let namespace = identity::system_namespace(&args.common.system_namespace, names::SYSTEM_NAMESPACE);

    // Content on the disk is served first.
    let store = open_store(&args).await?;
    let metrics = Metrics::default();
    let client = client::connect(args.common.kubeconfig(), "catalogd", &metrics).await?;
    let counts = CatalogMetrics::register(&metrics);
    let made = own_certificate(&args, &client, &namespace);
    let certificate = serving_certificate(args.common.certificate_files()?, made, &metrics, &shutdown)
        .await
        .context("no serving certificate")?;
    let transport = Transport::Tls(Arc::new(server_config(&profile, certificate)?));
    let endpoints = Endpoints {
        metas: gates.enabled("APIV1MetasHandler"),
        graphql: gates.enabled("GraphQLCatalogQueries"),
    };
    let (catalogs, writer) = reflector::store::<ClusterCatalog>();
    let (known, all) = (catalogs.clone(), catalogs.clone());
    let app = App::new(Arc::clone(&store), endpoints)
        .with_priorities(move |catalog| {
            let object = known.get(&ObjectRef::new(catalog))?;
            Some(object.spec.priority)
        })
        .with_names(move || {
            let wanted = all.state().into_iter().filter(|catalog| {
                !catalog.is_deleting() && catalog.spec.availability_mode == AvailabilityMode::Available
            });
            wanted.map(|catalog| catalog.name().to_owned()).collect()
        });
    serve_content(
        &args,
        &store,
        app,
        counts.clone(),
        args.content_authentication
            .then(|| Gate::new(client.clone()).for_audience(names::CATALOGD_AUDIENCE)),
        transport.clone(),
        &shutdown,
    )
    .await?;
    shutdown.spawn(
        "disk",
        disk::watch(args.cache_dir.clone(), counts.clone(), shutdown.token()),
    );
    if let Some(address) = args.common.metrics_address(METRICS_ADDRESS) {
        admin::open_metrics(
            address,
            transport,
            &metrics,
            Some(Gate::new(client.clone())),
            &shutdown,
        )
        .await
        .context("cannot open the metrics port")?;
    }
    let startup = StartupReadiness::default();
    serve_health(&args, startup.clone(), &shutdown).await?;

    let (lead, leading) = watch::channel(!args.common.leader_elect);
    let election = args.common.leader_elect.then(|| {
        const LEASE: &str = names::lease::CATALOGD;
        metrics.leadership(LEASE, leading.clone());
        LeaseSettings::new(namespace, LEASE, unique_identity())
    });
    let queue = Queue::default();
    queue.report_to(&metrics, CONTROLLER);
    let context = Arc::new(Context {
        client: client.clone(),
        contents: contents(&args, &client, &store, &metrics)?,
        image_policies: ImagePolicies::new(Kinds::Cluster),
        store,
        catalogs,
        queue,
        checks: Queue::default(),
        leading,
        origin: format!("https://{}", args.external_address),
        startup,
        counts,
        stop: shutdown.token(),
        states: CatalogStates::default(),
        versions: Versions::new(client.clone()),
        events: Events::new(client.clone(), names::field_manager::CATALOGD, unique_identity()),
        unreadable: UnreadableObjects::default(),
    });
    shutdown.spawn("memory", memory::give_back(shutdown.token()));
    shutdown.spawn("watch", watch(Arc::clone(&context), writer));
    shutdown.spawn("leadership", follow_leadership(Arc::clone(&context)));
    shutdown.spawn("garbage", collect_garbage(Arc::clone(&context), args.gc_interval));
    shutdown.spawn("verify", verify(Arc::clone(&context)));
    shutdown.spawn("signatures", check(Arc::clone(&context)));
    shutdown.spawn("controller", control(context));

    Ok(run_until_end(client, election, lead, &shutdown).await?)
}

/// Reconciles catalogs, once it is known which signatures the cluster asks for.
async fn control(context: Arc<Context>) {
    tokio::select! {
        () = context.stop.cancelled() => return,
        () = context.image_policies.ready() => {}
    }
    let work = |name: String| {
        let context = Arc::clone(&context);
        async move { reconcile(&context, &name).await }
    };
    context
        .queue
        .run(CATALOGS_AT_ONCE, context.stop.clone(), work)
        .await;
}

async fn open_store(args: &Args) -> anyhow::Result<Arc<Store>> {
    let folder = args.cache_dir.join("catalogs");
    let store = tokio::task::spawn_blocking(move || Store::open(&folder, StoreLimits::default())).await?;
    Ok(Arc::new(store.context("cannot open the cache directory")?))
}

fn contents(args: &Args, client: &Client, store: &Arc<Store>, metrics: &Metrics) -> anyhow::Result<Contents> {
    let spool = args.cache_dir.join("unpack");
    std::fs::create_dir_all(&spool).context("cannot create the directory for unpacking")?;
    let settings = Settings {
        registries: args.common.registries_file(),
        policy: args.common.policy_file(),
        plain_http: args.plain_http_registries.clone(),
    };
    settings.announce();
    let authorities = &args.common.pull_cas_dir;
    let images = Images::new(Options {
        authorities: (!authorities.is_empty()).then(|| authorities.into()),
        authorities_setting: "--pull-cas-dir",
        token_services: args.common.registry_token_services.clone(),
        ..Options::new(concat!("catalogd/", env!("CARGO_PKG_VERSION")))
    });
    let counted = images.clone();
    metrics.outcomes(
        "catalogd_signature_checks",
        "Images that were checked against the signature policy, by outcome",
        move || counted.signature_checks(),
    );
    let secrets = PullSecrets::new(
        client.clone(),
        args.common.pull_secret()?,
        identity::service_account(),
    );
    let limits = image::Limits::catalog().with(args.limits.given());
    let images = CatalogImages::new(Arc::clone(store), images, limits, spool);
    Ok(Contents::new(images, secrets, settings))
}

async fn serve_content(
    args: &Args,
    store: &Arc<Store>,
    app: App,
    counts: CatalogMetrics,
    gate: Option<Gate>,
    transport: Transport,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let listener = admin::bind(&args.catalogs_server_addr)
        .await
        .context("cannot open the content port")?;
    let address = admin::address(&listener).map(tracing::field::display);
    tracing::info!(address, catalogs = store.snapshots().len(), "serving");
    let app = Arc::new(app.observed_by(move |access: &Access| counts.answered(access)));
    let respond = move |request, peer| {
        let (gate, app) = (gate.clone(), Arc::clone(&app));
        async move { guard::respond(gate.as_ref(), &app, request, peer).await }
    };
    let serving = listener::serve(listener, transport, Limits::default(), shutdown.token(), respond);
    shutdown.spawn("content", serving);
    Ok(())
}

async fn serve_health(args: &Args, startup: StartupReadiness, shutdown: &Shutdown) -> anyhow::Result<()> {
    let Some(address) = args.common.health_address() else {
        return Ok(());
    };
    let readiness = Readiness::default();
    readiness.require("catalogs", move || startup.check());
    admin::open_health(address, readiness, shutdown)
        .await
        .context("cannot open the health port")
}

/// The host of `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`, as certificates name it.
fn host(address: &str) -> &str {
    if let Some((host, _)) = address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host;
    }
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => address,
    }
}

/// The self-signed certificate for when no flag names one.
fn own_certificate(args: &Args, client: &Client, namespace: &str) -> SelfSigned {
    let external = host(&args.external_address);
    let service = format!("{}.{namespace}.svc", names::CATALOGD_SERVICE);
    let mut dns_names = vec![
        external.to_owned(),
        format!("{service}.cluster.local"),
        "localhost".to_owned(),
    ];
    if external != service {
        dns_names.push(service);
    }
    SelfSigned {
        client: client.clone(),
        namespace: namespace.to_owned(),
        secret: names::certificate::CATALOGD_SECRET.to_owned(),
        config_map: names::certificate::CATALOGD_AUTHORITY.to_owned(),
        dns_names,
        copy: Some(args.cache_dir.join(CERTIFICATE_COPY)),
    }
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn hosts_are_found_with_and_without_a_port() {
        for (address, expected) in [
            (
                "catalogd-service.olmv1-system.svc",
                "catalogd-service.olmv1-system.svc",
            ),
            ("catalogs.example:8443", "catalogs.example"),
            ("127.0.0.1:8443", "127.0.0.1"),
            ("[::1]:8443", "::1"),
            ("[fd00::1]", "fd00::1"),
        ] {
            assert_eq!(host(address), expected);
        }
    }
}
