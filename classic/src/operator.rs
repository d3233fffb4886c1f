//! `olm-operator`: installs ClusterServiceVersions and reconciles what stands around them.

use std::sync::Arc;

use crate::args::OperatorArgs;
use crate::run::Base;

/// Runs the controllers until the process ends.
pub async fn run(base: Arc<Base>, _args: OperatorArgs) {
    base.shutdown.requested().await;
}
