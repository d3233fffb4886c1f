//! The messages of the gRPC API `api.Registry` and of health checks, with their field numbers.

use olm_classic::registry::{
    Api, BundleMessage, ChannelEntryMessage, ChannelMessage, DeprecationMessage, PackageMessage, TypedValue,
};
use prost::Message;

/// A request without fields.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Empty {}

/// The name of a package.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PackageName {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A package.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Package {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its channels.
    #[prost(message, repeated, tag = "2")]
    pub channels: Vec<Channel>,
    /// The channel of Subscriptions that name none.
    #[prost(string, tag = "3")]
    pub default_channel_name: String,
    /// The deprecation of the package, if any.
    #[prost(message, optional, tag = "4")]
    pub deprecation: Option<Deprecation>,
}

/// A channel.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Channel {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its head.
    #[prost(string, tag = "2")]
    pub csv_name: String,
    /// The deprecation of the channel, if any.
    #[prost(message, optional, tag = "3")]
    pub deprecation: Option<Deprecation>,
}

/// Reason of a deprecation.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Deprecation {
    /// For people.
    #[prost(string, tag = "1")]
    pub message: String,
}

/// An API.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GroupVersionKind {
    /// The group.
    #[prost(string, tag = "1")]
    pub group: String,
    /// The version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// The kind.
    #[prost(string, tag = "3")]
    pub kind: String,
    /// The plural.
    #[prost(string, tag = "4")]
    pub plural: String,
}

/// A dependency or a property.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Property {
    /// Its type.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Its value, JSON.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A bundle in a channel.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Bundle {
    /// The name of its ClusterServiceVersion.
    #[prost(string, tag = "1")]
    pub csv_name: String,
    /// Its package.
    #[prost(string, tag = "2")]
    pub package_name: String,
    /// The channel.
    #[prost(string, tag = "3")]
    pub channel_name: String,
    /// Its ClusterServiceVersion, JSON.
    #[prost(string, tag = "4")]
    pub csv_json: String,
    /// Its manifests, JSON.
    #[prost(string, repeated, tag = "5")]
    pub object: Vec<String>,
    /// Its image.
    #[prost(string, tag = "6")]
    pub bundle_path: String,
    /// The APIs that it provides.
    #[prost(message, repeated, tag = "7")]
    pub provided_apis: Vec<GroupVersionKind>,
    /// The APIs that it requires.
    #[prost(message, repeated, tag = "8")]
    pub required_apis: Vec<GroupVersionKind>,
    /// Its version.
    #[prost(string, tag = "9")]
    pub version: String,
    /// The versions that it replaces.
    #[prost(string, tag = "10")]
    pub skip_range: String,
    /// Its dependencies.
    #[prost(message, repeated, tag = "11")]
    pub dependencies: Vec<Property>,
    /// Its properties.
    #[prost(message, repeated, tag = "12")]
    pub properties: Vec<Property>,
    /// The bundle that it replaces.
    #[prost(string, tag = "13")]
    pub replaces: String,
    /// The bundles that it skips.
    #[prost(string, repeated, tag = "14")]
    pub skips: Vec<String>,
    /// The deprecation of the bundle, if any.
    #[prost(message, optional, tag = "15")]
    pub deprecation: Option<Deprecation>,
}

/// An edge of a channel.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChannelEntry {
    /// The package.
    #[prost(string, tag = "1")]
    pub package_name: String,
    /// The channel.
    #[prost(string, tag = "2")]
    pub channel_name: String,
    /// The bundle.
    #[prost(string, tag = "3")]
    pub bundle_name: String,
    /// The bundle that it replaces.
    #[prost(string, tag = "4")]
    pub replaces: String,
}

/// Asks for a bundle in a channel, or for the head of the channel, which has no third field.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BundleRequest {
    /// The package.
    #[prost(string, tag = "1")]
    pub pkg_name: String,
    /// The channel.
    #[prost(string, tag = "2")]
    pub channel_name: String,
    /// The name of the ClusterServiceVersion.
    #[prost(string, tag = "3")]
    pub csv_name: String,
}

/// Asks for the replacement of a bundle; in any channel, where it has only the first field.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReplacementRequest {
    /// The name of the ClusterServiceVersion.
    #[prost(string, tag = "1")]
    pub csv_name: String,
    /// The package.
    #[prost(string, tag = "2")]
    pub pkg_name: String,
    /// The channel.
    #[prost(string, tag = "3")]
    pub channel_name: String,
}

/// Asks for the blobs of a schema.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SchemasRequest {
    /// The schema.
    #[prost(string, tag = "1")]
    pub schema: String,
    /// The package; empty for blobs of none.
    #[prost(string, tag = "2")]
    pub package_name: String,
}

/// Asks whether a service answers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthRequest {
    /// The service; empty for the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// Whether a service answers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthResponse {
    /// 1 where it does.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

fn deprecation(found: Option<DeprecationMessage>) -> Option<Deprecation> {
    found.map(|found| Deprecation {
        message: found.message,
    })
}

fn deprecation_message(found: Option<Deprecation>) -> Option<DeprecationMessage> {
    found.map(|found| DeprecationMessage {
        message: found.message,
    })
}

impl From<Api> for GroupVersionKind {
    fn from(api: Api) -> Self {
        Self {
            group: api.group,
            version: api.version,
            kind: api.kind,
            plural: api.plural,
        }
    }
}

impl From<GroupVersionKind> for Api {
    fn from(api: GroupVersionKind) -> Self {
        Self {
            group: api.group,
            version: api.version,
            kind: api.kind,
            plural: api.plural,
        }
    }
}

impl From<TypedValue> for Property {
    fn from(found: TypedValue) -> Self {
        Self {
            r#type: found.kind,
            value: found.value,
        }
    }
}

impl From<Property> for TypedValue {
    fn from(found: Property) -> Self {
        Self {
            kind: found.r#type,
            value: found.value,
        }
    }
}

fn all<T, U: From<T>>(list: Vec<T>) -> Vec<U> {
    list.into_iter().map(U::from).collect()
}

impl From<BundleMessage> for Bundle {
    fn from(bundle: BundleMessage) -> Self {
        Self {
            csv_name: bundle.csv_name,
            package_name: bundle.package_name,
            channel_name: bundle.channel_name,
            csv_json: bundle.csv_json,
            object: bundle.object,
            bundle_path: bundle.bundle_path,
            provided_apis: all(bundle.provided_apis),
            required_apis: all(bundle.required_apis),
            version: bundle.version,
            skip_range: bundle.skip_range,
            dependencies: all(bundle.dependencies),
            properties: all(bundle.properties),
            replaces: bundle.replaces,
            skips: bundle.skips,
            deprecation: deprecation(bundle.deprecation),
        }
    }
}

impl From<Bundle> for BundleMessage {
    fn from(bundle: Bundle) -> Self {
        Self {
            csv_name: bundle.csv_name,
            package_name: bundle.package_name,
            channel_name: bundle.channel_name,
            csv_json: bundle.csv_json,
            object: bundle.object,
            bundle_path: bundle.bundle_path,
            provided_apis: all(bundle.provided_apis),
            required_apis: all(bundle.required_apis),
            version: bundle.version,
            skip_range: bundle.skip_range,
            dependencies: all(bundle.dependencies),
            properties: all(bundle.properties),
            replaces: bundle.replaces,
            skips: bundle.skips,
            deprecation: deprecation_message(bundle.deprecation),
        }
    }
}

impl From<PackageMessage> for Package {
    fn from(package: PackageMessage) -> Self {
        let channels = package.channels.into_iter().map(|channel| Channel {
            name: channel.name,
            csv_name: channel.csv_name,
            deprecation: deprecation(channel.deprecation),
        });
        Self {
            name: package.name,
            channels: channels.collect(),
            default_channel_name: package.default_channel_name,
            deprecation: deprecation(package.deprecation),
        }
    }
}

impl From<Package> for PackageMessage {
    fn from(package: Package) -> Self {
        let channels = package.channels.into_iter().map(|channel| ChannelMessage {
            name: channel.name,
            csv_name: channel.csv_name,
            deprecation: deprecation_message(channel.deprecation),
        });
        Self {
            name: package.name,
            channels: channels.collect(),
            default_channel_name: package.default_channel_name,
            deprecation: deprecation_message(package.deprecation),
        }
    }
}

impl From<ChannelEntryMessage> for ChannelEntry {
    fn from(entry: ChannelEntryMessage) -> Self {
        Self {
            package_name: entry.package_name,
            channel_name: entry.channel_name,
            bundle_name: entry.bundle_name,
            replaces: entry.replaces,
        }
    }
}

impl From<ChannelEntry> for ChannelEntryMessage {
    fn from(entry: ChannelEntry) -> Self {
        Self {
            package_name: entry.package_name,
            channel_name: entry.channel_name,
            bundle_name: entry.bundle_name,
            replaces: entry.replaces,
        }
    }
}
