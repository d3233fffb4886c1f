//! `catalog-operator`: serves CatalogSources, resolves Subscriptions, carries out InstallPlans.

use std::sync::Arc;

use crate::args::CatalogArgs;
use crate::base::Base;
use crate::registry::sources::{self, Sources};

/// Runs the controllers until the process ends.
pub async fn run(base: Arc<Base>, args: CatalogArgs) {
    base.follow(sources::KINDS).await;
    Sources::new(base, &args).run().await;
}
