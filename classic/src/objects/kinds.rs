//! The kinds that the programs follow, and the fields of their objects that they keep.

use kube::core::ApiResource;
use olm_classic::names;
use olm_cluster::discover::{Resource, Scope};
use serde_json::Value;

/// A kind that is followed.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The API group; empty is the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural.
    pub plural: &'static str,
    /// Whether objects have a namespace.
    pub scope: Scope,
    /// The label selector of the watch; empty selects all.
    pub selector: &'static str,
    /// Takes out of an object what no rule reads.
    pub strip: fn(&mut Value),
}

/// The selector of objects that OLM manages.
const MANAGED: &str = "olm.managed=true";

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    scope: Scope,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        scope,
        selector: "",
        strip: keep,
    }
}

impl Kind {
    const fn selected(self, selector: &'static str) -> Self {
        Self { selector, ..self }
    }

    /// The kind, of whose objects less is kept.
    #[must_use]
    pub const fn stripped(self, strip: fn(&mut Value)) -> Self {
        Self { strip, ..self }
    }

    /// `group/version`; the core group is the version alone.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The kind in the words of the client.
    pub fn api(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// The kind as discovery finds it.
    pub fn resource(&self) -> Resource {
        Resource {
            api: self.api(),
            scope: self.scope,
            watchable: true,
        }
    }
}

/// ClusterServiceVersions that are no copies.
pub const CSV: Kind = kind(
    names::GROUP,
    "v1alpha1",
    names::CSV_KIND,
    "clusterserviceversions",
    Scope::Namespaced,
)
.selected("!olm.copiedFrom");
/// OperatorGroups.
pub const OPERATOR_GROUP: Kind = kind(
    names::GROUP,
    "v1",
    names::OPERATOR_GROUP_KIND,
    "operatorgroups",
    Scope::Namespaced,
);
/// OperatorConditions.
pub const OPERATOR_CONDITION: Kind = kind(
    names::GROUP,
    "v2",
    names::OPERATOR_CONDITION_KIND,
    "operatorconditions",
    Scope::Namespaced,
);
/// Operators.
pub const OPERATOR: Kind = kind(names::GROUP, "v1", "Operator", "operators", Scope::Cluster);
/// The configuration of OLM.
pub const OLM_CONFIG: Kind = kind(names::GROUP, "v1", "OLMConfig", "olmconfigs", Scope::Cluster);
/// Subscriptions.
pub const SUBSCRIPTION: Kind = kind(
    names::GROUP,
    "v1alpha1",
    names::SUBSCRIPTION_KIND,
    "subscriptions",
    Scope::Namespaced,
);
/// InstallPlans.
pub const INSTALL_PLAN: Kind = kind(
    names::GROUP,
    "v1alpha1",
    "InstallPlan",
    "installplans",
    Scope::Namespaced,
);
/// CatalogSources.
pub const CATALOG_SOURCE: Kind = kind(
    names::GROUP,
    "v1alpha1",
    names::CATALOG_SOURCE_KIND,
    "catalogsources",
    Scope::Namespaced,
);
/// Namespaces.
pub const NAMESPACE: Kind = kind("", "v1", "Namespace", "namespaces", Scope::Cluster);
/// Deployments that OLM manages.
pub const DEPLOYMENT: Kind = kind(
    "apps",
    "v1",
    names::DEPLOYMENT_KIND,
    "deployments",
    Scope::Namespaced,
)
.selected(MANAGED);
/// Services that OLM manages.
pub const SERVICE: Kind = kind("", "v1", "Service", "services", Scope::Namespaced).selected(MANAGED);
/// EndpointSlices that OLM manages: those of registries.
pub const ENDPOINT_SLICE: Kind = kind(
    "discovery.k8s.io",
    "v1",
    "EndpointSlice",
    "endpointslices",
    Scope::Namespaced,
)
.selected(MANAGED);
/// Pods that OLM manages: those of registries.
pub const POD: Kind = kind("", "v1", "Pod", "pods", Scope::Namespaced).selected(MANAGED);
/// NetworkPolicies that OLM manages: those of registries.
pub const NETWORK_POLICY: Kind = kind(
    "networking.k8s.io",
    "v1",
    "NetworkPolicy",
    "networkpolicies",
    Scope::Namespaced,
)
.selected(MANAGED);
/// Service accounts, all of them: those that a ClusterServiceVersion needs may belong to any owner.
pub const SERVICE_ACCOUNT: Kind =
    kind("", "v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced).stripped(strip_secrets);
/// Secrets that OLM manages: serving certificates.
pub const SECRET: Kind = kind("", "v1", names::SECRET_KIND, "secrets", Scope::Namespaced).selected(MANAGED);
/// ConfigMaps that OLM manages.
pub const CONFIG_MAP: Kind = kind("", "v1", "ConfigMap", "configmaps", Scope::Namespaced).selected(MANAGED);
/// Roles, all of them: a right may come from any.
pub const ROLE: Kind = kind(names::RBAC_GROUP, "v1", "Role", "roles", Scope::Namespaced);
/// Bindings of roles.
pub const ROLE_BINDING: Kind = kind(
    names::RBAC_GROUP,
    "v1",
    "RoleBinding",
    "rolebindings",
    Scope::Namespaced,
);
/// Roles in the whole cluster.
pub const CLUSTER_ROLE: Kind = kind(
    names::RBAC_GROUP,
    "v1",
    "ClusterRole",
    "clusterroles",
    Scope::Cluster,
);
/// Bindings of these.
pub const CLUSTER_ROLE_BINDING: Kind = kind(
    names::RBAC_GROUP,
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
    Scope::Cluster,
);
/// CustomResourceDefinitions without their schemas.
pub const CRD: Kind = kind(
    names::CRD_GROUP,
    "v1",
    names::CRD_KIND,
    "customresourcedefinitions",
    Scope::Cluster,
)
.stripped(strip_schemas);
/// Aggregated APIs.
pub const API_SERVICE: Kind = kind(
    names::API_SERVICE_GROUP,
    "v1",
    names::API_SERVICE_KIND,
    "apiservices",
    Scope::Cluster,
);
/// The proxy of an OpenShift cluster. Other clusters do not serve it.
pub const PROXY: Kind = kind(
    "config.openshift.io",
    "v1",
    names::PROXY_KIND,
    "proxies",
    Scope::Cluster,
);
/// Mutating webhooks that OLM manages.
pub const MUTATING_WEBHOOK: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    Scope::Cluster,
)
.selected(MANAGED);
/// Validating webhooks that OLM manages.
pub const VALIDATING_WEBHOOK: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    Scope::Cluster,
)
.selected(MANAGED);

/// ClusterExtensions of OLM v1.
pub const CLUSTER_EXTENSION: Kind = kind(
    olm_api::names::GROUP,
    olm_api::names::VERSION,
    olm_api::names::CLUSTER_EXTENSION,
    "clusterextensions",
    Scope::Cluster,
);
/// ClusterCatalogs of OLM v1.
pub const CLUSTER_CATALOG: Kind = kind(
    olm_api::names::GROUP,
    olm_api::names::VERSION,
    olm_api::names::CLUSTER_CATALOG,
    "clustercatalogs",
    Scope::Cluster,
);

/// All kinds above.
pub const ALL: &[Kind] = &[
    CSV,
    OPERATOR_GROUP,
    OPERATOR_CONDITION,
    OPERATOR,
    OLM_CONFIG,
    SUBSCRIPTION,
    INSTALL_PLAN,
    CATALOG_SOURCE,
    NAMESPACE,
    DEPLOYMENT,
    SERVICE,
    ENDPOINT_SLICE,
    POD,
    NETWORK_POLICY,
    SERVICE_ACCOUNT,
    SECRET,
    CONFIG_MAP,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CRD,
    API_SERVICE,
    PROXY,
    MUTATING_WEBHOOK,
    VALIDATING_WEBHOOK,
    CLUSTER_EXTENSION,
    CLUSTER_CATALOG,
];

/// The followed kind of an object, by its kind.
pub fn find(kind: &str) -> Option<&'static Kind> {
    ALL.iter().find(|known| known.kind == kind)
}

fn keep(_: &mut Value) {}

/// No rule reads the names of token Secrets.
fn strip_secrets(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.remove("secrets");
    }
}

/// Keeps of an object only its metadata and the conditions of its status.
pub fn strip_to_conditions(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fields.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        status.retain(|key, _| key == "conditions");
    }
}

fn strip_schemas(object: &mut Value) {
    let versions = object.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        version.remove("schema");
        version.remove("additionalPrinterColumns");
    }
}
