//! `olm-test`: the proving ground from the command line.

use std::future::Future;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use olm_test::bench::{Catalogs, Plan};
use olm_test::cluster::command::{ClusterCommand, run};
use olm_test::dist::{self, DistCommand, advisories};
use olm_test::e2e::Steps;
use olm_test::images::{self, ImagesCommand};

/// A real control plane, node and registry for tests, and the product on them.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// A throwaway cluster: etcd, API server, controllers, scheduler, a simulated or a real node, a registry.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// The managers' images, without a container engine.
    #[command(subcommand)]
    Images(ImagesCommand),
    /// The files of a release: archives with `olm`, images, manifests, chart, checksums.
    #[command(subcommand)]
    Dist(DistCommand),
    /// Known vulnerabilities of the packages in Cargo.lock, without the network.
    Advisories(advisories::Arguments),
    /// The whole product on a throwaway cluster with an extension installed; stays up until Ctrl-C.
    Run {
        /// Install the sample operator by OLM classic: a CatalogSource and a Subscription.
        #[arg(long)]
        classic: bool,
    },
    /// The managers as Pods on a real node, from the shipped manifests. Needs root.
    E2e {
        /// Folder with the images as OCI archives.
        #[arg(long, default_value = "dist")]
        images: PathBuf,
        /// Then OLM classic: its programs as Pods, and an operator by a Subscription.
        #[arg(long)]
        classic: bool,
    },
    /// Write the generated files: the CRDs in `manifests`, and pages in `docs/reference`.
    Crds {
        /// The repository's root.
        root: PathBuf,
    },
    /// Real bundles without webhooks are installed, upgraded and uninstalled on a throwaway cluster.
    RealBundles {
        /// The folder with `bundles/PACKAGE/VERSION`.
        dir: PathBuf,
        /// Only these packages.
        packages: Vec<String>,
    },
    /// Real bundles are installed, upgraded and deleted by OLM classic on a throwaway cluster, in every install mode.
    RealOperators {
        /// The folder with `bundles/PACKAGE/VERSION`.
        dir: PathBuf,
        /// Only these packages.
        packages: Vec<String>,
    },
    /// Real operators move from OLM classic to ClusterExtensions and back on a throwaway cluster, and nothing of them is
    /// written.
    RealMigrations {
        /// The folder with `bundles/PACKAGE/VERSION`.
        dir: PathBuf,
        /// Only these packages.
        packages: Vec<String>,
    },
    /// The roles that `olm rbac` prints are enough for each real bundle, and none too many.
    RealRights {
        /// The folder with `bundles/PACKAGE/VERSION`.
        dir: PathBuf,
        /// Only these packages.
        packages: Vec<String>,
    },
    /// Real catalogs are mirrored with all their images, and each package resolves at the mirror as at the source.
    RealMirrors {
        /// The folder with `fbc/CATALOG` and `operatorhub.json`.
        dir: PathBuf,
        /// Mirror those packages of `operatorhub.json` that have at most this number of bundles.
        #[arg(long, default_value_t = 1)]
        bundles: usize,
    },
    /// The memory of both managers with catalogs that maximise it, as Markdown. Fails if a limit is exceeded.
    Worst {
        /// Only these catalogs.
        catalogs: Vec<String>,
    },
    /// The part of `bench` about `olm fleet plan`.
    BenchFleet,
    /// The part of `bench` about olm-operator of OLM classic.
    BenchClassic {
        /// How many seconds are counted in which nothing should be done.
        #[arg(long, default_value_t = 30)]
        quiet: u64,
    },
    /// The part of `bench` about Subscriptions of OLM classic.
    BenchSubscriptions {
        /// The size of the catalog that is present, in megabytes.
        #[arg(long, default_value_t = 100)]
        megabytes: u64,
        /// The number of seconds before the memory of the idle programs is read.
        #[arg(long, default_value_t = 30)]
        quiet: u64,
    },
    /// Time, memory and requests of both managers, as Markdown.
    Bench {
        /// A catalog as lines of JSON; generated ones when none is given.
        catalog: Option<PathBuf>,
        /// Sizes of the catalogs to generate, in megabytes; the last one is also queried.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 500, 100], conflicts_with = "catalog")]
        megabytes: Vec<u64>,
        /// The number of cores for catalogd; unpacking and serving are measured for each of them.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
        cores: Vec<usize>,
        /// The number of extensions that are applied at the same time.
        #[arg(long, default_value_t = 50)]
        extensions: usize,
        /// The number of seconds for which idle managers are measured.
        #[arg(long, default_value_t = 30)]
        quiet: u64,
    },
}

#[expect(clippy::print_stderr, reason = "the last word of a command line")]
fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        // Standard error may be closed: that of `cluster supervise` is once the cluster is up.
        .log_internal_errors(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "olm_test=info".into()),
        )
        .init();
    let outcome = match Arguments::parse().command {
        Verb::Cluster(command) => wait_for(run(command)),
        Verb::Images(command) => wait_for(images::run(command)),
        Verb::Dist(command) => dist::run(command).map(|()| ExitCode::SUCCESS),
        Verb::Advisories(arguments) => advisories::run(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::Run { classic: false } => {
            wait_for(async { olm_test::run::run().await.map(|()| ExitCode::SUCCESS) })
        }
        Verb::Run { classic: true } => {
            wait_for(async { olm_test::run::classic::run().await.map(|()| ExitCode::SUCCESS) })
        }
        // It moves threads into the node's network before the runtime starts.
        Verb::E2e { images, classic } => {
            let steps = if classic { Steps::WithClassic } else { Steps::V1 };
            olm_test::e2e::run(&images, steps).map(verdict)
        }
        Verb::Crds { root } => write_definitions(&root).map(|()| ExitCode::SUCCESS),
        Verb::RealBundles { dir, packages } => wait_for(async {
            let passed = olm_test::realdata::cluster::run(&dir, &packages).await?;
            Ok(verdict(passed))
        }),
        Verb::RealOperators { dir, packages } => wait_for(async {
            let passed = olm_test::realdata::operators::run(&dir, &packages).await?;
            Ok(verdict(passed))
        }),
        Verb::RealMigrations { dir, packages } => wait_for(async {
            let passed = olm_test::realdata::migrations::run(&dir, &packages).await?;
            Ok(verdict(passed))
        }),
        Verb::RealRights { dir, packages } => wait_for(async {
            let passed = olm_test::realdata::rights::run(&dir, &packages).await?;
            Ok(verdict(passed))
        }),
        Verb::RealMirrors { dir, bundles } => wait_for(async {
            let passed = olm_test::realdata::mirrors::run(&dir, bundles).await?;
            Ok(verdict(passed))
        }),
        Verb::Worst { catalogs } => wait_for(async {
            olm_test::bench::worst::run(&catalogs)
                .await
                .map(|()| ExitCode::SUCCESS)
        }),
        Verb::BenchClassic { quiet } => wait_for(async {
            olm_test::bench::classic(Duration::from_secs(quiet))
                .await
                .map(|()| ExitCode::SUCCESS)
        }),
        Verb::BenchSubscriptions { megabytes, quiet } => wait_for(async {
            olm_test::bench::subscriptions(megabytes, Duration::from_secs(quiet))
                .await
                .map(|()| ExitCode::SUCCESS)
        }),
        Verb::BenchFleet => olm_test::bench::fleet().map(|()| ExitCode::SUCCESS),
        Verb::Bench {
            catalog,
            megabytes,
            cores,
            extensions,
            quiet,
        } => wait_for(async {
            let plan = Plan {
                catalogs: catalog.map_or(Catalogs::Generated(megabytes), Catalogs::Given),
                cores,
                extensions,
                quiet: Duration::from_secs(quiet),
            };
            olm_test::bench::run(&plan).await.map(|()| ExitCode::SUCCESS)
        }),
    };
    outcome.unwrap_or_else(|e| {
        eprintln!("error: {e:#}");
        ExitCode::FAILURE
    })
}

fn write_definitions(root: &Path) -> Result<()> {
    let folders = [
        ("manifests/crds", olm_api::crd::files()),
        ("manifests/classic/crds", olm_classic::crds::files()),
    ];
    for (folder, files) in folders {
        for file in files {
            write_changed(&root.join(folder).join(file.name), &file.yaml)?;
        }
    }
    write_changed(&root.join("docs/reference/api.md"), &olm_api::crd::reference())?;
    for (path, text) in olm_test::docs::generated()? {
        write_changed(&root.join("docs").join(path), &text)?;
    }
    Ok(())
}

/// Writes a file if its content differs, so that an unchanged one keeps its time.
fn write_changed(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).ok().as_deref() != Some(text) {
        std::fs::write(path, text)?;
    }
    Ok(())
}

fn wait_for(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(work)
}

fn verdict(passed: bool) -> ExitCode {
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
