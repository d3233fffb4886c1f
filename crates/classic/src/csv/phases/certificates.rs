//! When the serving certificates of a ClusterServiceVersion are due.

use super::CsvPass;
use crate::install::certificate::is_due;
use crate::install::serving::{ROTATION, called, hosts, secret_name};
use crate::names;

/// Whether a certificate is missing, unreadable, for others, or near its end.
pub(super) fn are_due(pass: &CsvPass<'_>) -> bool {
    let place = pass.namespace();
    called(&pass.csv).into_iter().any(|deployment| {
        let kept = pass
            .facts
            .cluster
            .get_watched(names::SECRET_KIND, place, &secret_name(deployment));
        kept.is_none_or(|kept| is_due(kept, &hosts(deployment, place), pass.now, ROTATION))
    })
}
