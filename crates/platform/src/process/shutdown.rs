//! The shutdown of the process: the first signal drains, the second exits at once.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Asks tasks to stop and waits for them.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Stops on SIGINT and SIGTERM; a second signal ends the process at once with status 1.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::default();
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let token = shutdown.token.clone();
        tokio::spawn(async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            tracing::info!("stopping; a second signal ends at once");
            token.cancel();
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            tracing::warn!("ending at once");
            end_process();
        });
        Ok(shutdown)
    }

    /// A token that is cancelled when the process must end.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Asks every task to stop.
    pub fn stop(&self) {
        self.token.cancel();
    }

    /// Resolves when the process must end.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// Runs a task that [`Shutdown::finished`] waits for. A task that ends early stops the process: a manager without
    /// one of its parts must not look healthy.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        // A guard, since a task also ends by a panic.
        let ends = Ends {
            name,
            token: self.token.clone(),
        };
        self.tasks.spawn(async move {
            let _ends = ends;
            task.await;
        });
    }

    /// Waits for all tasks, at most `limit`. Returns whether all of them ended.
    pub async fn finished(&self, limit: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(limit, self.tasks.wait()).await.is_ok()
    }
}

/// Stops the process when a task ends before the shutdown.
struct Ends {
    name: &'static str,
    token: CancellationToken,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.token.is_cancelled() {
            tracing::error!(task = self.name, "a task ended early; stopping");
            self.token.cancel();
        }
    }
}

#[expect(clippy::exit, reason = "the second signal asks for exactly this")]
fn end_process() {
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_early_stops_the_process() {
        let shutdown = Shutdown::default();
        shutdown.spawn("brief", async {});
        shutdown.requested().await;
        assert!(shutdown.finished(Duration::from_secs(1)).await);
    }

    #[tokio::test]
    async fn a_task_that_panics_stops_the_process_too() {
        let shutdown = Shutdown::default();
        shutdown.spawn("broken", async { panic!("on purpose") });
        shutdown.requested().await;
        assert!(shutdown.finished(Duration::from_secs(1)).await);
    }

    #[tokio::test]
    async fn a_task_that_does_not_stop_is_not_waited_for_beyond_the_limit() {
        let shutdown = Shutdown::default();
        shutdown.spawn("stubborn", std::future::pending());
        shutdown.stop();
        assert!(!shutdown.finished(Duration::from_millis(20)).await);
    }
}
