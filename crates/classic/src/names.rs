//! Labels, annotations and kinds of OLM classic.

/// The API group.
pub const GROUP: &str = "operators.coreos.com";
/// The apiVersion of ClusterServiceVersions.
pub const CSV_API_VERSION: &str = "operators.coreos.com/v1alpha1";
/// The kind of ClusterServiceVersions.
pub const CSV_KIND: &str = "ClusterServiceVersion";
/// The apiVersion of OperatorGroups.
pub const OPERATOR_GROUP_API_VERSION: &str = "operators.coreos.com/v1";
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
