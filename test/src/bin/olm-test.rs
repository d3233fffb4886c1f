//! `olm-test`: the proving ground from the command line.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use olm_test::cluster::command::{ClusterCommand, run};

/// A real control plane, node and registry for tests.
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
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "the last word of a command line")]
async fn main() -> ExitCode {
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
        Verb::Cluster(command) => run(command).await,
    };
    outcome.unwrap_or_else(|e| {
        eprintln!("error: {e:#}");
        ExitCode::FAILURE
    })
}
