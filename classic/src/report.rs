//! Reports to ClusterOperators, on clusters that have them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use olm_classic::cluster::Cluster;
use olm_classic::csv::cluster_operator::{API_VERSION, KIND, Report, Reporter, reported};
use olm_classic::names;
use olm_rollout::failure::RequestFailure;

use crate::args::ClassicArgs;
use crate::base::Base;
use crate::objects::write::Actor;

/// The interval at which the report is compared with the ClusterOperator.
const PAUSE: Duration = Duration::from_mins(1);
/// The pause after a failure, such as a concurrent write.
const RETRY: Duration = Duration::from_secs(5);
/// Time during which changes are collected, so that many of them make one report.
const GATHER: Duration = Duration::from_secs(1);

/// Reports until the process ends to the ClusterOperator that a flag names; without a name to none.
pub fn start(
    base: &Arc<Base>,
    args: &ClassicArgs,
    name: &str,
    report: impl Fn(&Reporter, &Cluster) -> Report + Send + Sync + 'static,
) {
    if name.is_empty() {
        return;
    }
    let reporter = Reporter {
        name: name.to_owned(),
        namespace: base.namespace.clone(),
        release: args.release_version.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (base, stop) = (Arc::clone(base), base.shutdown.token());
    let shutdown = base.shutdown.clone();
    shutdown.spawn("report", async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = follow(&base, &reporter, report) => {}
        }
    });
}

async fn follow(base: &Base, reporter: &Reporter, report: impl Fn(&Reporter, &Cluster) -> Report) {
    let mut changes = base.store.subscribe();
    loop {
        let report = report(reporter, &base.store.snapshot());
        let mut pause = PAUSE;
        if let Err(failure) = write(base, &reporter.name, &report).await {
            pause = RETRY;
            tracing::warn!(
                name = reporter.name,
                error = failure.message,
                "cannot write ClusterOperator; retrying"
            );
        }
        let moved = async {
            while let Some(change) = changes.recv().await {
                if change.kind == names::CSV_KIND {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = moved => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(pause) => {}
        }
        while changes.try_recv().is_ok() {}
    }
}

/// Writes a report where the cluster has ClusterOperators.
async fn write(base: &Base, name: &str, report: &Report) -> Result<(), RequestFailure> {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    let found = base.discovery.find(group, version, KIND).await;
    if found
        .map_err(|error| olm_cluster::apply::classify(&error))?
        .is_none()
    {
        return Ok(());
    }
    let found = base
        .writer
        .read(&Actor::Own, (API_VERSION, KIND), "", name)
        .await?;
    match reported(found.as_ref(), name, report, Timestamp::now()) {
        Some(wanted) => base.writer.write(&Actor::Own, &wanted).await.map(drop),
        None => Ok(()),
    }
}
