//! One cluster for all tests of a binary.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures::future::LocalBoxFuture;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::RwLock;

use crate::world::replace_kept_place;

/// The time limit of a scenario: an endless wait must not block the whole run.
const LIMIT: Duration = Duration::from_mins(15);

/// A value that the first test makes and every test of the binary uses. It lives until the process ends; then the
/// kernel ends the daemons and the guard removes their folder, as after a crash.
pub struct Shared<T> {
    start: fn() -> LocalBoxFuture<'static, Result<T>>,
    made: OnceLock<Result<(Runtime, RwLock<T>), String>>,
}

impl<T> Shared<T> {
    /// A value that `start` creates when the first test needs it.
    pub const fn new(start: fn() -> LocalBoxFuture<'static, Result<T>>) -> Self {
        Self {
            start,
            made: OnceLock::new(),
        }
    }

    /// Runs a scenario concurrently with others. It must not disturb them: it uses its own names and stops no program.
    ///
    /// # Errors
    /// When the value cannot be created, or the scenario fails or takes longer than 15 minutes.
    pub fn with(&self, scenario: impl AsyncFnOnce(&T) -> Result<()>) -> Result<()> {
        self.with_limit(LIMIT, scenario)
    }

    /// Runs a scenario like [`Shared::with`], with a time limit of its own.
    ///
    /// # Errors
    /// When the value cannot be created, or the scenario fails or takes longer.
    pub fn with_limit(&self, limit: Duration, scenario: impl AsyncFnOnce(&T) -> Result<()>) -> Result<()> {
        let (runtime, value) = self.made()?;
        runtime.block_on(async {
            let value = value.read().await;
            limited(limit, Box::pin(scenario(&value))).await
        })
    }

    /// Runs a scenario while no other runs, because it stops a program or changes the whole cluster. It must restore
    /// the initial state.
    ///
    /// # Errors
    /// As [`Shared::with`].
    pub fn alone(&self, scenario: impl AsyncFnOnce(&mut T) -> Result<()>) -> Result<()> {
        let (runtime, value) = self.made()?;
        runtime.block_on(async {
            let mut value = value.write().await;
            limited(LIMIT, Box::pin(scenario(&mut value))).await
        })
    }

    /// The value and the runtime that its clients and tasks belong to.
    fn made(&self) -> Result<&(Runtime, RwLock<T>)> {
        let make = || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            let value = runtime.block_on((self.start)())?;
            replace_kept_place();
            anyhow::Ok((runtime, RwLock::new(value)))
        };
        let made = self
            .made
            .get_or_init(|| make().map_err(|error| format!("{error:#}")));
        made.as_ref().map_err(|error| anyhow!("{error}"))
    }
}

async fn limited(limit: Duration, scenario: impl Future<Output = Result<()>>) -> Result<()> {
    let outcome = tokio::time::timeout(limit, scenario).await;
    outcome.context("the scenario hangs")?
}
