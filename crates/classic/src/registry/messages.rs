//! The messages of the registry API.

use olm_fbc::{Bundle, property};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A bundle in a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BundleMessage {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub csv_name: String,
    /// Its package.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub package_name: String,
    /// The channel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub channel_name: String,
    /// Its ClusterServiceVersion, JSON.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub csv_json: String,
    /// Its manifests, JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub object: Vec<String>,
    /// Its image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bundle_path: String,
    /// The APIs that it provides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provided_apis: Vec<Api>,
    /// The APIs that it requires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_apis: Vec<Api>,
    /// Its version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The versions that it replaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub skip_range: String,
    /// Its dependencies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<TypedValue>,
    /// Its properties.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<TypedValue>,
    /// The bundle that it replaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// The bundles that it skips.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<String>,
    /// The deprecation of the bundle, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<DeprecationMessage>,
}

/// A package.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PackageMessage {
    /// Its name.
    pub name: String,
    /// Its channels, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelMessage>,
    /// The channel of Subscriptions that name none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_channel_name: String,
    /// The deprecation of the package, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<DeprecationMessage>,
}

/// A channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChannelMessage {
    /// Its name.
    pub name: String,
    /// Its head.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub csv_name: String,
    /// The deprecation of the channel, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<DeprecationMessage>,
}

/// An edge of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChannelEntryMessage {
    /// The package.
    pub package_name: String,
    /// The channel.
    pub channel_name: String,
    /// The bundle.
    pub bundle_name: String,
    /// The bundle that it replaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replaces: String,
}

/// Reason of a deprecation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeprecationMessage {
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Api {
    /// The group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The plural, where it is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plural: String,
}

/// A property or a dependency.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypedValue {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its value, JSON.
    pub value: String,
}

/// The message of a bundle.
pub(super) fn of_bundle(bundle: &Bundle) -> BundleMessage {
    let mut message = BundleMessage {
        csv_name: bundle.name.clone(),
        package_name: bundle.package.clone(),
        bundle_path: bundle.image.clone(),
        ..BundleMessage::default()
    };
    for found in &bundle.properties {
        match found.kind.as_str() {
            property::TYPE_BUNDLE_OBJECT | property::TYPE_CSV_METADATA => continue,
            property::TYPE_PACKAGE => {
                if let Ok(package) = found.package() {
                    message.version = package.version;
                }
            }
            property::TYPE_GVK => message.provided_apis.extend(api(found)),
            property::TYPE_GVK_REQUIRED => {
                message.dependencies.push(TypedValue {
                    kind: property::TYPE_GVK.to_owned(),
                    value: olm_fbc::canonical(&found.value),
                });
                message.required_apis.extend(api(found));
            }
            property::TYPE_PACKAGE_REQUIRED => {
                let required = found.package_required_in_any_spelling().ok();
                message.dependencies.extend(required.map(|required| {
                    TypedValue {
                        kind: property::TYPE_PACKAGE.to_owned(),
                        value:
                            json!({"packageName": required.package_name, "version": required.version_range})
                                .to_string(),
                    }
                }));
            }
            _ => {}
        }
        message.properties.push(TypedValue {
            kind: found.kind.clone(),
            value: olm_fbc::canonical(&found.value),
        });
    }
    message
}

fn api(found: &olm_fbc::Property) -> Option<Api> {
    let gvk = found.gvk().ok()?;
    Some(Api {
        group: gvk.group,
        version: gvk.version,
        kind: gvk.kind,
        plural: String::new(),
    })
}
