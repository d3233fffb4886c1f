//! A ClusterServiceVersion as it is on the wire: the fields that the rules read. Other fields are ignored, null is
//! absent.

use std::collections::BTreeMap;

use olm_bundle::csv::InstallModeEntry;
use olm_version::blang::parse_tolerant;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::cluster::text;
use crate::names;

/// The reason of copies.
pub const COPIED: &str = "Copied";

/// A ClusterServiceVersion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClusterServiceVersion {
    /// Name, labels, owners.
    pub metadata: Metadata,
    /// The spec, written by the author.
    pub spec: CsvSpec,
    /// The status, written by OLM.
    pub status: CsvStatus,
}

/// The metadata of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The namespace; empty at cluster scope.
    pub namespace: String,
    /// The UID.
    pub uid: String,
    /// The labels.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
    /// The owners.
    #[serde(deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference>,
    /// The time of the request for its deletion, RFC 3339.
    pub deletion_timestamp: Option<String>,
}

/// One owner of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner.
    pub uid: String,
}

/// Spec of a ClusterServiceVersion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsvSpec {
    /// The oldest version of Kubernetes that it runs on.
    pub min_kube_version: String,
    /// The version; empty is 0.0.0.
    pub version: String,
    /// The ClusterServiceVersion that it replaces.
    pub replaces: String,
    /// The install strategy.
    pub install: InstallStrategy,
    /// The install modes it declares.
    #[serde(deserialize_with = "null_is_default")]
    pub install_modes: Vec<InstallModeEntry>,
    /// Custom resource definitions.
    #[serde(rename = "customresourcedefinitions", deserialize_with = "null_is_default")]
    pub custom_resource_definitions: ApiDefinitions,
    /// Aggregated APIs.
    #[serde(rename = "apiservicedefinitions", deserialize_with = "null_is_default")]
    pub api_service_definitions: ApiDefinitions,
    /// APIs of Kubernetes that it needs.
    #[serde(rename = "nativeAPIs", deserialize_with = "null_is_default")]
    pub native_apis: Vec<ApiDescription>,
    /// Webhooks as they are written.
    #[serde(rename = "webhookdefinitions", deserialize_with = "null_is_default")]
    pub webhook_definitions: Vec<Value>,
}

impl CsvSpec {
    /// The owned aggregated APIs by the name of their APIService. Several kinds share one; the last one stands for it.
    pub fn owned_services(&self) -> BTreeMap<String, &ApiDescription> {
        let owned = self.api_service_definitions.owned.iter();
        owned
            .map(|api| (format!("{}.{}", api.version, api.group), api))
            .collect()
    }
}

/// The version of a ClusterServiceVersion as the Go implementation shows it: complete, without a leading `v`. A text
/// that is no version stays as it is.
pub fn complete_version(version: &str) -> String {
    if version.is_empty() {
        return "0.0.0".to_owned();
    }
    parse_tolerant(version).map_or_else(|_| version.to_owned(), |version| version.to_string())
}

/// Install strategy of a ClusterServiceVersion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InstallStrategy {
    /// Only `deployment` is known.
    pub strategy: String,
    /// The objects to install.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: StrategyDetails,
}

/// Content of the install strategy `deployment`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StrategyDetails {
    /// The deployments.
    #[serde(deserialize_with = "null_is_default")]
    pub deployments: Vec<StrategyDeployment>,
    /// Permissions of service accounts in the target namespaces.
    #[serde(deserialize_with = "null_is_default")]
    pub permissions: Vec<ServiceAccountPermissions>,
    /// Permissions of service accounts in the whole cluster.
    #[serde(deserialize_with = "null_is_default")]
    pub cluster_permissions: Vec<ServiceAccountPermissions>,
}

/// A deployment of the install strategy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StrategyDeployment {
    /// The name.
    pub name: String,
    /// The labels of the Deployment.
    #[serde(deserialize_with = "null_is_default")]
    pub label: BTreeMap<String, String>,
    /// The DeploymentSpec as it is written.
    pub spec: Value,
}

/// Permissions of a service account.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceAccountPermissions {
    /// The name of the service account.
    pub service_account_name: String,
    /// The rules.
    #[serde(deserialize_with = "null_is_default")]
    pub rules: Vec<PolicyRule>,
}

/// A rule of a role. Its fields are written in the order of Kubernetes, without empty ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicyRule {
    /// The verbs.
    #[serde(deserialize_with = "null_is_default")]
    pub verbs: Vec<String>,
    /// The API groups; empty text is the core group.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources, with subresources as `pods/log`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The names it is limited to; none means all.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are no resources.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// The APIs that a ClusterServiceVersion brings and needs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ApiDefinitions {
    /// The APIs that it brings.
    #[serde(deserialize_with = "null_is_default")]
    pub owned: Vec<ApiDescription>,
    /// The APIs that it needs.
    #[serde(deserialize_with = "null_is_default")]
    pub required: Vec<ApiDescription>,
}

/// One API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiDescription {
    /// The name of the CustomResourceDefinition, or the plural of an aggregated API.
    pub name: String,
    /// The group; CustomResourceDefinitions have it in their name.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The deployment that serves an owned aggregated API.
    pub deployment_name: String,
    /// The port of the Service of an owned aggregated API; 0 is 443.
    pub container_port: i32,
}

/// Status of a ClusterServiceVersion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsvStatus {
    /// The phase; empty for a new one.
    pub phase: String,
    /// The reason.
    pub reason: String,
    /// The reason, for people.
    pub message: String,
    /// The time of the last change of the phase, RFC 3339.
    pub last_transition_time: Option<String>,
    /// The time of the last write of the status, RFC 3339.
    pub last_update_time: Option<String>,
    /// The history of phases as it is written.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Value>,
    /// The requirements as they are written.
    #[serde(deserialize_with = "null_is_default")]
    pub requirement_status: Vec<Value>,
    /// The time of the last write of serving certificates, RFC 3339.
    pub certs_last_updated: Option<String>,
    /// The time at which serving certificates are due, RFC 3339.
    pub certs_rotate_at: Option<String>,
}

impl ClusterServiceVersion {
    /// The fields that the rules read of an object on the wire.
    ///
    /// # Errors
    /// When a field has another type.
    pub fn read(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    /// The same without the spec: enough to recognize a copy, and to delete the objects that its labels name.
    ///
    /// # Errors
    /// When a field of the metadata has another type.
    pub fn read_without_spec(object: &Value) -> Result<Self, serde_json::Error> {
        Ok(Self {
            metadata: Metadata::deserialize(object.get("metadata").unwrap_or(&Value::Null))?,
            status: CsvStatus {
                reason: text(object, "/status/reason").to_owned(),
                ..CsvStatus::default()
            },
            ..Self::default()
        })
    }

    /// Whether it is the copy of one in another namespace. An annotation that names another namespace makes no copy:
    /// bundles and exports carry such annotations.
    pub fn is_copy(&self) -> bool {
        self.status.reason == COPIED || self.metadata.labels.contains_key(names::COPIED_FROM_LABEL)
    }
}

/// Null as the default.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_shown_complete() {
        for (given, shown) in [
            ("", "0.0.0"),
            ("1.2.3", "1.2.3"),
            ("v1.2", "1.2.0"),
            ("1.02.3-rc.1+b", "1.2.3-rc.1+b"),
            ("new", "new"),
        ] {
            assert_eq!(complete_version(given), shown);
        }
    }
}
