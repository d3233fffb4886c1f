//! The channels that supply bundles and edges.

use std::collections::HashSet;

use crate::package::{Package, PreparedChannel};
use crate::request::Request;

/// The requested channels of a package; all if none is requested.
pub(crate) fn considered<'a>(
    package: &'a Package,
    request: &Request<'_>,
) -> impl Iterator<Item = &'a PreparedChannel> {
    package
        .prepared_channels()
        .iter()
        .filter(|channel| request.channels.is_empty() || request.channels.contains(&channel.name))
}

/// The bundles in a requested channel; `None` if no channel is requested, because then every bundle counts, even
/// without a channel.
pub(crate) fn members<'a>(package: &'a Package, request: &Request<'_>) -> Option<HashSet<&'a str>> {
    (!request.channels.is_empty()).then(|| {
        considered(package, request)
            .flat_map(|channel| &channel.entries)
            .map(|entry| entry.name.as_str())
            .collect()
    })
}

/// The considered channels that hold a bundle.
pub(crate) fn holding<'a>(package: &'a Package, request: &Request<'_>, bundle: &str) -> Vec<&'a str> {
    considered(package, request)
        .filter(|channel| channel.entries.iter().any(|entry| entry.name == bundle))
        .map(|channel| channel.name.as_str())
        .collect()
}
