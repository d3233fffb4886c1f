//! Wiring: the program that runs, and its shared state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use olm_cluster::discover::Discovery;
use olm_cluster::identity::Accounts;
use olm_platform::admin::{self, Readiness};
use olm_platform::events::Events;
use olm_platform::gate::Gate;
use olm_platform::leadership::run_until_end;
use olm_platform::lease::{LeaseSettings, unique_identity};
use olm_platform::listener::Transport;
use olm_platform::metrics::Metrics;
use olm_platform::shutdown::Shutdown;
use olm_platform::tls::{Profile, from_files, server_config};
use olm_platform::{client, identity, log, memory};
use tokio::sync::watch;

use crate::args::{Args, ClassicArgs, Command};
use crate::base::Base;
use crate::objects::store::Store;
use crate::objects::write::Writer;
use crate::{catalog, operator, packages};

/// The namespace of OLM classic when no flag and no Pod names one.
const NAMESPACE: &str = "olm";

/// Runs the program that the command names, until it is asked to stop.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let classic = match &args.command {
        Command::OlmOperator(args) => &args.classic,
        Command::CatalogOperator(args) => &args.classic,
        Command::Packageserver(args) => &args.classic,
        Command::Version => {
            print_version();
            return Ok(());
        }
    };
    if classic.version {
        print_version();
        return Ok(());
    }
    log::start(&classic.common.log);
    let shutdown = Shutdown::on_signals()?;
    run_until(args, shutdown).await
}

/// The same, until `shutdown` says so.
///
/// # Errors
/// When it cannot start, or has lost the lease that allowed it to write.
pub async fn run_until(args: Args, shutdown: Shutdown) -> anyhow::Result<()> {
    match args.command {
        Command::OlmOperator(args) => {
            let classic = args.classic.clone();
            lead(&classic, "olm-operator", shutdown, move |base| {
                operator::run(base, *args)
            })
            .await
        }
        Command::CatalogOperator(args) => {
            let classic = args.classic.clone();
            lead(&classic, "catalog-operator", shutdown, move |base| {
                catalog::run(base, *args)
            })
            .await
        }
        Command::Packageserver(args) => {
            let base = base(&args.classic, "packageserver", &shutdown).await?;
            let started = Arc::new(AtomicBool::new(false));
            serve(&args.classic, &base, Arc::clone(&started)).await?;
            shutdown.spawn("memory", memory::give_back(shutdown.token()));
            packages::run(&base, &args, started).await?;
            let own = base.writer.own().clone();
            Ok(run_until_end(own, None, watch::Sender::new(true), &shutdown).await?)
        }
        Command::Version => Ok(()),
    }
}

/// Runs the controllers of a program while it leads.
async fn lead<F, Work>(
    args: &ClassicArgs,
    name: &'static str,
    shutdown: Shutdown,
    work: F,
) -> anyhow::Result<()>
where
    F: FnOnce(Arc<Base>) -> Work + Send + 'static,
    Work: Future<Output = ()> + Send + 'static,
{
    let base = base(args, name, &shutdown).await?;
    let started = Arc::new(AtomicBool::new(false));
    serve(args, &base, Arc::clone(&started)).await?;
    let (lead, mut leading) = watch::channel(!args.common.leader_elect);
    let election = args
        .common
        .leader_elect
        .then(|| LeaseSettings::new(base.namespace.clone(), name, unique_identity()));
    let (own, stop) = (base.writer.own().clone(), shutdown.token());
    shutdown.spawn("memory", memory::give_back(shutdown.token()));
    shutdown.spawn("controllers", async move {
        // Waiting for one's turn is as ready as a replica that does not lead can be.
        started.store(true, Ordering::Release);
        tokio::select! {
            () = stop.cancelled() => return,
            granted = leading.wait_for(|leads| *leads) => if granted.is_err() { return },
        }
        work(base).await;
    });
    Ok(run_until_end(own, election, lead, &shutdown).await?)
}

/// Shared state of a program.
async fn base(args: &ClassicArgs, name: &str, shutdown: &Shutdown) -> anyhow::Result<Arc<Base>> {
    let common = &args.common;
    let config = client::config(common.kubeconfig(), name).await?;
    let metrics = Metrics::default();
    let own = client::counted(config.clone(), &metrics)?;
    let flag = if args.namespace.is_empty() {
        &common.system_namespace
    } else {
        &args.namespace
    };
    let (discovery, store) = (Arc::new(Discovery::new(own.clone())), Arc::<Store>::default());
    let accounts = Arc::new(Accounts::new(&config, own.clone(), &metrics)?);
    Ok(Arc::new(Base {
        namespace: identity::system_namespace(flag, NAMESPACE),
        events: Events::new(own.clone(), "operator-lifecycle-manager", unique_identity()),
        writer: Arc::new(Writer::new(
            own,
            accounts,
            Arc::clone(&discovery),
            Arc::clone(&store),
        )),
        config,
        store,
        discovery,
        account: args.classic_account.clone(),
        concurrency: args.concurrency,
        metrics,
        shutdown: shutdown.clone(),
    }))
}

/// Opens the metrics port, where a certificate is given or an address, and the health port.
async fn serve(args: &ClassicArgs, base: &Base, started: Arc<AtomicBool>) -> anyhow::Result<()> {
    let common = &args.common;
    let files = common.certificate_files()?;
    let default = if files.is_some() { ":8443" } else { ":8080" };
    if let Some(address) = common.metrics_address(default) {
        let (transport, gate) = match files {
            // Tools of OLM classic read the plain port without a token, as with the Go implementation.
            None => (Transport::Plain, None),
            Some(files) => {
                let certificate =
                    from_files(files, &base.metrics, &base.shutdown).context("no serving certificate")?;
                let profile = Profile::parse(&common.profile)?;
                let transport = Transport::Tls(Arc::new(server_config(&profile, certificate)?));
                (transport, Some(Gate::new(base.writer.own().clone())))
            }
        };
        admin::open_metrics(address, transport, &base.metrics, gate, &base.shutdown)
            .await
            .context("cannot open the metrics port")?;
    }
    if let Some(address) = common.health_address() {
        let readiness = Readiness::default();
        readiness.require("watches", move || {
            let is_started = started.load(Ordering::Acquire);
            is_started.then_some(()).ok_or_else(|| "starting".to_owned())
        });
        admin::open_health(address, readiness, &base.shutdown)
            .await
            .context("cannot open the health port")?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the version is there to be printed")]
fn print_version() {
    println!("{}", olm_platform::version::line(env!("CARGO_PKG_VERSION")));
}
