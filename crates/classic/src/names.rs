//! Labels, annotations and kinds of OLM classic.

pub use olm_api::names::CLASSIC_AUTHORITY as AUTHORITY_KEY;
pub use olm_api::names::field_manager::{
    CLASSIC as FIELD_MANAGER, CLASSIC_CONVERSIONS as CONVERSION_MANAGER,
};
pub use olm_api::names::migration::{MIGRATE as MIGRATE_ANNOTATION, SUBSCRIPTION as ORIGIN_ANNOTATION};
pub use olm_api::names::user::{PAUSED as PAUSED_ANNOTATION, UNINSTALL as UNINSTALL_ANNOTATION};
pub use olm_api::names::{
    APPROVED_PLAN_ANNOTATION, BUNDLE_IMAGES_ANNOTATION, CATALOG_CONTENT_ANNOTATION,
    CLUSTER_EXTENSION as CLUSTER_EXTENSION_KIND, CRD_FINDINGS_ANNOTATION, PLAN_DIGEST_ANNOTATION,
    PLANNED_FOR_ANNOTATION, REINSTALL_ANNOTATION,
};

/// The API group.
pub const GROUP: &str = "operators.coreos.com";
/// The finalizer of ClusterServiceVersions: objects that the garbage collector does not find are deleted first.
pub const CLEANUP_FINALIZER: &str = "operators.coreos.com/csv-cleanup";
/// The apiVersion of ClusterServiceVersions.
pub const CSV_API_VERSION: &str = "operators.coreos.com/v1alpha1";
/// The kind of ClusterServiceVersions.
pub const CSV_KIND: &str = "ClusterServiceVersion";
/// The kind of OperatorGroups.
pub const OPERATOR_GROUP_KIND: &str = "OperatorGroup";

/// The label of everything that OLM creates; its value is `true`.
pub const MANAGED_LABEL: &str = "olm.managed";
/// The label that names an object's owner.
pub const OWNER_LABEL: &str = "olm.owner";
/// The label with the namespace of an object's owner.
pub const OWNER_NAMESPACE_LABEL: &str = "olm.owner.namespace";
/// The label with the kind of an object's owner.
pub const OWNER_KIND_LABEL: &str = "olm.owner.kind";
/// The label of copies: the namespace of the original.
pub const COPIED_FROM_LABEL: &str = "olm.copiedFrom";
/// The label with the hash of the rules of a role, or of the role and subjects of a binding.
pub const PERMISSIONS_HASH_LABEL: &str = "olm.permissions.hash";

/// The annotation of members: the name of their OperatorGroup.
pub const OPERATOR_GROUP_ANNOTATION: &str = "olm.operatorGroup";
/// The annotation of members: the namespace of their OperatorGroup.
pub const OPERATOR_NAMESPACE_ANNOTATION: &str = "olm.operatorNamespace";
/// The annotation of members: the namespaces that their OperatorGroup selects, sorted and joined by commas.
pub const TARGET_NAMESPACES_ANNOTATION: &str = "olm.targetNamespaces";
/// The annotation of OperatorGroups: the APIs that their members provide.
pub const PROVIDED_APIS_ANNOTATION: &str = "olm.providedAPIs";

/// Prefix of the labels of APIs on ClusterServiceVersions; the hash of the API follows.
pub const API_LABEL_PREFIX: &str = "olm.api.";
/// Prefix of the labels of the operator objects' components; package and namespace follow.
pub const COMPONENT_LABEL_PREFIX: &str = "operators.coreos.com/";
/// Prefix of the labels of the namespaces of an OperatorGroup; its UID follows, the value is empty.
pub const NAMESPACE_LABEL_PREFIX: &str = "olm.operatorgroup.uid/";
/// Prefix of the aggregation labels of the roles for an API; its hash and the role's suffix follow.
pub const GROUP_AGGREGATION_PREFIX: &str = "olm.opgroup.permissions/aggregate-to-";
/// Prefix of the labels that add a role to a role of Kubernetes; the suffix follows.
pub const KUBERNETES_AGGREGATION_PREFIX: &str = "rbac.authorization.k8s.io/aggregate-to-";
/// Prefix of the annotations of CustomResourceDefinitions that name a ClusterServiceVersion they came with.
pub const ALONGSIDE_PREFIX: &str = "operatorframework.io/installed-alongside-";
/// The annotation of `kubectl apply`.
pub const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The API group of roles.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The apiVersion of roles.
pub const RBAC_API_VERSION: &str = "rbac.authorization.k8s.io/v1";
/// The API group of CustomResourceDefinitions.
pub const CRD_GROUP: &str = "apiextensions.k8s.io";
/// The kind of CustomResourceDefinitions.
pub const CRD_KIND: &str = "CustomResourceDefinition";
/// The API group of APIServices.
pub const API_SERVICE_GROUP: &str = "apiregistration.k8s.io";
/// The kind of APIServices.
pub const API_SERVICE_KIND: &str = "APIService";

/// The label with the hash of a Deployment's spec.
pub const SPEC_HASH_LABEL: &str = "olm.deployment-spec-hash";
/// The apiVersion of Deployments.
pub const DEPLOYMENT_API_VERSION: &str = "apps/v1";
/// The kind of Deployments.
pub const DEPLOYMENT_KIND: &str = "Deployment";
/// The kind of Subscriptions.
pub const SUBSCRIPTION_KIND: &str = "Subscription";
/// The kind of InstallPlans.
pub const INSTALL_PLAN_KIND: &str = "InstallPlan";
/// The kind of Operators.
pub const OPERATOR_KIND: &str = "Operator";
/// The kind of the configuration of OLM.
pub const OLM_CONFIG_KIND: &str = "OLMConfig";
/// The kind of the proxy of an OpenShift cluster.
pub const PROXY_KIND: &str = "Proxy";
/// The kind of OperatorConditions.
pub const OPERATOR_CONDITION_KIND: &str = "OperatorCondition";
/// The kind of Secrets.
pub const SECRET_KIND: &str = "Secret";
/// The kind of the step of a Secret that a bundle holds. Steps of the kind [`SECRET_KIND`] copy a pull Secret.
pub const BUNDLE_SECRET_KIND: &str = "BundleSecret";
/// The annotation with the hash of the authority that signed a certificate: on Secrets and on templates of Pods.
pub const CA_HASH_ANNOTATION: &str = "olmcahash";
/// The label of webhook configurations: the name that the definition gives.
pub const WEBHOOK_NAME_LABEL: &str = "olm.webhook-description-generate-name";
/// The label of webhook configurations: the hash of the definition.
pub const WEBHOOK_HASH_LABEL: &str = "olm.webhook-description-hash";
/// The kind of CatalogSources.
pub const CATALOG_SOURCE_KIND: &str = "CatalogSource";
/// The label that names the CatalogSource of a registry's objects.
pub const CATALOG_SOURCE_LABEL: &str = "olm.catalogSource";
/// The label with the hash of a registry Pod's spec.
pub const POD_HASH_LABEL: &str = "olm.pod-spec-hash";
/// The label with the hash of a registry Service's spec.
pub const SERVICE_HASH_LABEL: &str = "olm.service-spec-hash";
/// The label with the resourceVersion of the ConfigMap that a registry Pod serves.
pub const CONFIG_MAP_LABEL: &str = "olm.configMapResourceVersion";
/// The label of Pods that look for a newer catalog: the name of the CatalogSource.
pub const UPDATE_LABEL: &str = "catalogsource.operators.coreos.com/update";
/// The label of EndpointSlices: the Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The label of EndpointSlices that names their manager.
pub const SLICE_MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// The value of that label on EndpointSlices of registries.
pub const SLICE_MANAGER: &str = "catalog-operator.olm.operatorframework.io";
/// The annotation with the template of a catalog's image.
pub const IMAGE_TEMPLATE_ANNOTATION: &str = "olm.catalogImageTemplate";
/// The annotation with the properties that the catalog gives a bundle.
pub const PROPERTIES_ANNOTATION: &str = "operatorframework.io/properties";
/// The annotation of a Subscription with the InstallPlan that made it for a dependency.
pub const GENERATED_BY_ANNOTATION: &str = "olm.generated-by";
/// The annotation of a ConfigMap with an unpacked bundle: how its files are encoded.
pub const CONTENT_ENCODING_ANNOTATION: &str = "olm.contentEncoding";
/// The API group of PackageManifests.
pub const PACKAGE_GROUP: &str = "packages.operators.coreos.com";
/// The apiVersion of PackageManifests.
pub const PACKAGE_API_VERSION: &str = "packages.operators.coreos.com/v1";
/// The kind of PackageManifests.
pub const PACKAGE_MANIFEST_KIND: &str = "PackageManifest";
/// The plural of PackageManifests.
pub const PACKAGE_MANIFESTS: &str = "packagemanifests";
