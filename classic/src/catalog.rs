//! `catalog-operator`: serves CatalogSources, resolves Subscriptions, carries out InstallPlans.

use std::sync::Arc;

use crate::args::CatalogArgs;
use crate::run::Base;

/// Runs the controllers until the process ends.
pub async fn run(base: Arc<Base>, _args: CatalogArgs) {
    base.shutdown.requested().await;
}
