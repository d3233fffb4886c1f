//! Deprecation conditions of a Subscription.

use serde_json::Value;

use super::{condition, set, unset};
use crate::cluster::text;

const PACKAGE: &str = "PackageDeprecated";
const CHANNEL: &str = "ChannelDeprecated";
const BUNDLE: &str = "BundleDeprecated";
const ANY: &str = "Deprecated";

/// A bundle in a channel, with its deprecations in the catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeprecatedEntry {
    /// The bundle.
    pub name: String,
    /// The package.
    pub package: String,
    /// The channel.
    pub channel: String,
    /// The catalog, as `NAMESPACE/NAME`.
    pub catalog: String,
    /// The reason why the package is deprecated.
    pub package_deprecation: Option<String>,
    /// The reason why the channel is deprecated.
    pub channel_deprecation: Option<String>,
    /// The reason why the bundle is deprecated.
    pub bundle_deprecation: Option<String>,
}

/// Sets the conditions about deprecations of the installed version; whether one changed. Where the catalog lacks it,
/// they stay.
pub(super) fn settle(subscription: &mut Value, entries: &[DeprecatedEntry], now: &str) -> bool {
    let part = |pointer: &str| text(subscription, pointer).to_owned();
    let installed = part("/status/installedCSV");
    let channel = part("/spec/channel");
    let catalog = format!("{}/{}", part("/spec/sourceNamespace"), part("/spec/source"));
    let package = part("/spec/name");
    let entry = entries.iter().find(|entry| {
        entry.name == installed
            && entry.package == package
            && entry.catalog == catalog
            && (channel.is_empty() || entry.channel == channel)
    });
    let Some(entry) = entry.filter(|_| !installed.is_empty()) else {
        return false;
    };
    let of_channel = entry.channel_deprecation.as_ref().filter(|_| !channel.is_empty());
    let found = [
        (PACKAGE, entry.package_deprecation.as_ref()),
        (CHANNEL, of_channel),
        (BUNDLE, entry.bundle_deprecation.as_ref()),
    ];
    let messages: Vec<&str> = found
        .iter()
        .filter_map(|(_, message)| message.map(String::as_str))
        .collect();
    let all = messages.join("; ");
    let mut write = |kind: &str, message: Option<&String>| match message {
        Some(message) => set(subscription, condition(kind, "", message), now),
        None => unset(subscription, &[kind]),
    };
    let mut is_changed = false;
    for (kind, message) in found {
        is_changed |= write(kind, message);
    }
    // The sum follows a change of its parts.
    if is_changed {
        write(ANY, Some(&all).filter(|all| !all.is_empty()));
    }
    is_changed
}
