//! ClusterExtension: one package of a catalog, installed and kept at the requested version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::updates::UpdatesStatus;
use crate::names;

pub mod updates;

crate::kind::kind! {
    /// One package of a catalog, installed into a namespace under a service account.
    ClusterExtension, "clusterextensions", ClusterExtensionSpec, ClusterExtensionStatus
}

impl ClusterExtension {
    /// The owner reference to the extension: an object with it is deleted with the extension.
    #[must_use]
    pub fn controller_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: names::CLUSTER_EXTENSION.to_owned(),
            name: self.name().to_owned(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

/// The package, its namespace and its account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterExtensionSpec {
    /// The install namespace; it must exist and never changes.
    pub namespace: String,
    /// The account under which every object of the bundle is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountReference>,
    /// The source of the bundle.
    pub source: SourceConfig,
    /// Settings of the checks made before an installation or upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallConfig>,
    /// Configuration handed to the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ExtensionConfig>,
    /// Minutes after which a rollout that is not complete is reported as failed; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_minutes: Option<i32>,
}

/// A service account in the extension's namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountReference {
    /// The account's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// The kinds of source an extension can come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceType {
    /// A package of the catalogs on the cluster.
    #[default]
    Catalog,
}

/// The source of the bundle: a union over `sourceType`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceConfig {
    /// The member that is set.
    pub source_type: SourceType,
    /// Present exactly when `sourceType` is `Catalog`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogFilter>,
}

/// The bundles of the catalogs that may be installed; all given filters must match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CatalogFilter {
    /// The package.
    pub package_name: String,
    /// A version or version range; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The channels that supply candidates and edges; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
    /// The selector of catalogs by label; absent or empty: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Whether updates must follow the catalog's edges.
    pub upgrade_constraint_policy: UpgradeConstraintPolicy,
}

/// Whether updates must follow the catalog's edges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradeConstraintPolicy {
    /// Only along `replaces`, `skips` and `skipRange`.
    #[default]
    CatalogProvided,
    /// To any version the filters allow, also backwards.
    SelfCertified,
}

/// Settings of the checks made before an installation or upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallConfig {
    /// The checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightConfig>,
}

/// The checks that can be configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreflightConfig {
    /// The check that a new version of a CRD keeps existing data valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd_upgrade_safety: Option<CrdUpgradeSafety>,
}

/// Setting of the CRD upgrade safety check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrdUpgradeSafety {
    /// Whether findings block the upgrade.
    pub enforcement: CrdUpgradeSafetyEnforcement,
}

/// Whether findings of the CRD upgrade safety check block the upgrade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrdUpgradeSafetyEnforcement {
    /// The check is left out.
    None,
    /// A finding blocks the upgrade; also the default.
    #[default]
    Strict,
}

/// The kinds of configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigType {
    /// Written in the ClusterExtension.
    #[default]
    Inline,
}

/// Configuration handed to the bundle: a union over `configType`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionConfig {
    /// The member that is set.
    pub config_type: ConfigType,
    /// Present exactly when `configType` is `Inline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<Map<String, Value>>,
}

/// The state of the extension.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterExtensionStatus {
    /// The generation of the object that the conditions are about; -1, by the schema's default, before the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// See [`crate::conditions`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The applied and complete bundle; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallStatus>,
    /// The installed revision and those that roll out, ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub active_revisions: Vec<RevisionStatus>,
    /// Newer bundles in the catalogs; absent while they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates: Option<UpdatesStatus>,
}

/// The UID of the ClusterExtension that controls an object, such as its revision. A reference that has the UID but
/// another kind or group is none: the shipped admission policy keeps others only from making references to
/// ClusterExtensions.
pub fn controlling_extension(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    (owner.kind == names::CLUSTER_EXTENSION && group == Some(names::GROUP)).then_some(owner.uid.as_str())
}

/// The installed bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstallStatus {
    /// Name and version.
    pub bundle: BundleMetadata,
}

/// Name, version and release of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BundleMetadata {
    /// The bundle's name in the catalog.
    pub name: String,
    /// The version.
    pub version: String,
    /// The release: absent if the bundle has none, empty if the bundle has an empty release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
}

/// One active revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RevisionStatus {
    /// The ClusterObjectSet's name.
    pub name: String,
    /// The conditions `Available` and `Progressing`, while it rolls out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn only_a_cluster_extension_that_controls_counts() {
        let check = |api_version: &str, kind: &str, controller: Option<bool>, expected: Option<&str>| {
            let owner = OwnerReference {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                controller,
                uid: "u".to_owned(),
                ..OwnerReference::default()
            };
            let metadata = ObjectMeta {
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            };
            assert_eq!(
                controlling_extension(&metadata),
                expected,
                "{api_version} {kind} {controller:?}"
            );
        };
        check(names::API_VERSION, "ClusterExtension", Some(true), Some("u"));
        check(
            "olm.operatorframework.io/v2",
            "ClusterExtension",
            Some(true),
            Some("u"),
        );
        check(names::API_VERSION, "ClusterExtension", None, None);
        check(names::API_VERSION, "ClusterExtension", Some(false), None);
        check(names::API_VERSION, "Foo", Some(true), None);
        check("x.io/v1", "ClusterExtension", Some(true), None);
        check("olm.operatorframework.io", "ClusterExtension", Some(true), None);
        check("", "", Some(true), None);
        assert_eq!(controlling_extension(&ObjectMeta::default()), None);
    }
}
