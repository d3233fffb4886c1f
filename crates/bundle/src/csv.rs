//! The parts of a ClusterServiceVersion from which objects are rendered.
//!
//! Only these are typed. Values that are copied into objects (pod specifications, webhook rules, selectors) stay JSON,
//! because types would drop fields of newer Kubernetes versions. Every field has a default, as in the decoders of
//! Kubernetes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::install_modes::InstallModes;

/// The typed part of a ClusterServiceVersion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClusterServiceVersion {
    /// Name, annotations and labels.
    pub metadata: Metadata,
    /// The specification.
    pub spec: Spec,
}

/// Name and annotations of a ClusterServiceVersion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The bundle's name, `etcdoperator.v0.9.2` for example.
    pub name: String,
    /// Annotations. All of them are copied to the pod templates.
    pub annotations: BTreeMap<String, String>,
    /// Labels. Some name the processor architectures of the operator.
    pub labels: BTreeMap<String, String>,
}

/// The specification of a ClusterServiceVersion.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The version as written; empty if absent. The version that counts is that of the catalog's `olm.package`
    /// property.
    pub version: String,
    /// The oldest version of Kubernetes that the operator supports; empty if absent.
    #[serde(rename = "minKubeVersion")]
    pub min_kube_version: String,
    /// APIs that the cluster must serve natively.
    #[serde(rename = "nativeAPIs")]
    pub native_apis: Vec<ApiDescription>,
    /// The sets of namespaces that the operator can watch.
    #[serde(rename = "installModes")]
    pub install_modes: Vec<InstallModeEntry>,
    /// The install strategy.
    pub install: InstallStrategy,
    /// Custom resource definitions owned and required.
    #[serde(rename = "customresourcedefinitions")]
    pub custom_resource_definitions: ApiDescriptions,
    /// Aggregated APIs owned and required.
    #[serde(rename = "apiservicedefinitions")]
    pub api_service_definitions: ApiDescriptions,
    /// Webhooks served by the operator's deployments.
    #[serde(rename = "webhookdefinitions")]
    pub webhook_definitions: Vec<WebhookDefinition>,
}

/// One entry of `spec.installModes`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InstallModeEntry {
    /// The mode's name.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the operator supports it.
    pub supported: bool,
}

/// `spec.install`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InstallStrategy {
    /// Deployments and permissions.
    pub spec: InstallSpec,
}

/// `spec.install.spec`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstallSpec {
    /// The operator's deployments.
    pub deployments: Vec<StrategyDeployment>,
    /// Rights needed in each target namespace.
    pub permissions: Vec<StrategyPermissions>,
    /// Rights needed in the whole cluster.
    pub cluster_permissions: Vec<StrategyPermissions>,
}

/// One deployment of the install strategy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StrategyDeployment {
    /// The Deployment's name.
    pub name: String,
    /// The Deployment's labels; the field is called `label`.
    #[serde(rename = "label")]
    pub labels: BTreeMap<String, String>,
    /// The Deployment's specification, untouched.
    pub spec: Value,
}

/// The rights of one service account.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StrategyPermissions {
    /// The service account; empty means `default`.
    pub service_account_name: String,
    /// The rules; `None` if the field is absent. The generated names depend on the difference from an empty list.
    pub rules: Option<Vec<PolicyRule>>,
}

/// One RBAC rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicyRule {
    /// Verbs; `None` if the field is absent.
    pub verbs: Option<Vec<String>>,
    /// API groups.
    pub api_groups: Vec<String>,
    /// Resources, with subresources as `pods/log`.
    pub resources: Vec<String>,
    /// Names the rule is limited to; empty means all.
    pub resource_names: Vec<String>,
    /// Paths that are not resources.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

/// Owned and required APIs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ApiDescriptions {
    /// APIs the operator brings.
    pub owned: Vec<ApiDescription>,
    /// APIs the operator needs from others.
    pub required: Vec<ApiDescription>,
}

/// One API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ApiDescription {
    /// The custom resource definition's or API service's name.
    pub name: String,
    /// The API group; only aggregated APIs name it.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The deployment that serves it; only owned aggregated APIs name it.
    #[serde(rename = "deploymentName")]
    pub deployment_name: String,
    /// The Service's and the container's port; 443 when absent or zero. Only aggregated APIs name it.
    #[serde(rename = "containerPort")]
    pub container_port: i32,
}

/// The default port of Services of webhooks and aggregated APIs.
const SERVICE_PORT: i32 = 443;

impl ApiDescription {
    /// The name of the APIService that registers an aggregated API.
    #[must_use]
    pub(crate) fn api_service_name(&self) -> String {
        if self.group.is_empty() {
            self.name.clone()
        } else {
            format!("{}.{}", self.version, self.group)
        }
    }

    /// The port of the Service in front of an aggregated API.
    #[must_use]
    pub(crate) fn service_port(&self) -> i32 {
        if self.container_port == 0 {
            SERVICE_PORT
        } else {
            self.container_port
        }
    }
}

/// The kind of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookKind {
    /// Converts custom resources between versions.
    Conversion,
    /// Changes objects on admission.
    Mutating,
    /// Accepts or rejects objects on admission.
    Validating,
}

/// One webhook of the operator.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WebhookDefinition {
    /// The name; historically a prefix, therefore often ending in `-`.
    pub generate_name: String,
    /// `ValidatingAdmissionWebhook`, `MutatingAdmissionWebhook` or `ConversionWebhook`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The deployment that serves it.
    pub deployment_name: String,
    /// The Service's port; 443 when absent or zero.
    pub container_port: i32,
    /// The container's port, a number or a name.
    pub target_port: Option<Value>,
    /// The requests for which the API server calls the webhook.
    pub rules: Option<Vec<Value>>,
    /// Copied.
    pub failure_policy: Option<Value>,
    /// Copied.
    pub match_policy: Option<Value>,
    /// Copied.
    pub object_selector: Option<Value>,
    /// Copied.
    pub side_effects: Option<Value>,
    /// Copied, seconds.
    pub timeout_seconds: Option<Value>,
    /// Copied; for conversions the accepted review versions.
    pub admission_review_versions: Option<Value>,
    /// Copied, mutating webhooks only.
    pub reinvocation_policy: Option<Value>,
    /// The URL path.
    pub webhook_path: Option<String>,
    /// The custom resource definitions it converts.
    #[serde(rename = "conversionCRDs")]
    pub conversion_crds: Vec<String>,
}

impl WebhookDefinition {
    /// The webhook's kind; `None` for an unknown type.
    #[must_use]
    pub fn kind(&self) -> Option<WebhookKind> {
        match self.type_name.as_str() {
            "ConversionWebhook" => Some(WebhookKind::Conversion),
            "MutatingAdmissionWebhook" => Some(WebhookKind::Mutating),
            "ValidatingAdmissionWebhook" => Some(WebhookKind::Validating),
            _ => None,
        }
    }

    /// The port of the Service, which is also the one the API server calls.
    ///
    /// Without a port in the bundle the reference implementation writes 0 into webhook configurations, because only the
    /// CRD of ClusterServiceVersions has the default of 443.
    #[must_use]
    pub(crate) fn service_port(&self) -> i32 {
        if self.container_port == 0 {
            SERVICE_PORT
        } else {
            self.container_port
        }
    }
}

impl PolicyRule {
    /// The lists that limit the verbs, by field.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        let fields = [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ];
        fields.into_iter().filter(|(_, values)| !values.is_empty())
    }
}

impl ClusterServiceVersion {
    /// The operator's deployments.
    pub(crate) fn deployments(&self) -> &[StrategyDeployment] {
        &self.spec.install.spec.deployments
    }

    /// The names of the operator's deployments.
    pub(crate) fn deployment_names(&self) -> impl Iterator<Item = &str> {
        self.deployments()
            .iter()
            .map(|deployment| deployment.name.as_str())
    }

    /// The names of the custom resource definitions that the operator brings.
    pub(crate) fn owned_definitions(&self) -> impl Iterator<Item = &str> {
        let owned = self.spec.custom_resource_definitions.owned.iter();
        owned.map(|definition| definition.name.as_str())
    }

    /// Whether the API server calls the deployment, which then needs a certificate.
    #[must_use]
    pub fn is_called(&self, deployment: &str) -> bool {
        let webhooks = self.spec.webhook_definitions.iter().map(|w| &w.deployment_name);
        let apis = self
            .spec
            .api_service_definitions
            .owned
            .iter()
            .map(|api| &api.deployment_name);
        webhooks.chain(apis).any(|name| name == deployment)
    }

    /// Whether anything in the bundle needs a certificate.
    #[must_use]
    pub fn needs_certificates(&self) -> bool {
        !self.spec.webhook_definitions.is_empty() || !self.spec.api_service_definitions.owned.is_empty()
    }

    /// The install modes that are supported; an omitted mode is not.
    #[must_use]
    pub fn install_modes(&self) -> InstallModes {
        self.spec
            .install_modes
            .iter()
            .filter(|entry| entry.supported)
            .filter_map(|entry| entry.kind.parse().ok())
            .collect()
    }
}
