//! The lifecycle of a manager: it leads while it holds the lease, and releases the lease after its last write.

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lease::{LeaseLost, LeaseSettings, elect};
use crate::shutdown::Shutdown;

/// The time that tasks have to end.
const GRACE: Duration = Duration::from_secs(10);

/// Takes part in the election until the process must stop, and waits for its tasks. `lead` reports whether this process
/// leads. Without settings there is no election, and `lead` keeps its value.
///
/// # Errors
/// When leadership was lost: another process may write now.
pub async fn run_until_end(
    client: Client,
    settings: Option<LeaseSettings>,
    lead: watch::Sender<bool>,
    shutdown: &Shutdown,
) -> Result<(), LeaseLost> {
    let Some(settings) = settings else {
        shutdown.requested().await;
        end(shutdown).await;
        drop(lead);
        return Ok(());
    };
    let release = CancellationToken::new();
    let election = elect(client, settings, release.clone(), lead);
    tokio::pin!(election);
    tokio::select! {
        lost = &mut election => {
            end(shutdown).await;
            lost
        }
        () = shutdown.requested() => {
            let written = async {
                end(shutdown).await;
                release.cancel();
            };
            tokio::join!(written, election).1
        }
    }
}

async fn end(shutdown: &Shutdown) {
    shutdown.stop();
    if !shutdown.finished(GRACE).await {
        tracing::warn!("some work did not end in time");
    }
}
