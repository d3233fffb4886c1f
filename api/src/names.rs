//! Every name that appears on objects, once.

/// The API group.
pub const GROUP: &str = "olm.operatorframework.io";
/// The API version in the group.
pub const VERSION: &str = "v1";
/// Group and version as `apiVersion` wants them.
pub const API_VERSION: &str = "olm.operatorframework.io/v1";
/// Kind of ClusterExtension, also the value of [`label::OWNER_KIND`].
pub const CLUSTER_EXTENSION: &str = "ClusterExtension";
/// Kind of ClusterCatalog.
pub const CLUSTER_CATALOG: &str = "ClusterCatalog";
/// Plural of ClusterCatalog.
pub const CLUSTER_CATALOGS: &str = "clustercatalogs";
/// The part of a ClusterCatalog that stands for what catalogd serves of it, in RBAC rules.
pub const CONTENT: &str = "content";
/// Kind of ClusterObjectSet.
pub const CLUSTER_OBJECT_SET: &str = "ClusterObjectSet";
/// The namespace of the managers when nothing else says which.
pub const SYSTEM_NAMESPACE: &str = "olmv1-system";
/// The audience of tokens that are shown to catalogd: the API server and others refuse them.
pub const CATALOGD_AUDIENCE: &str = "catalogd.olm.operatorframework.io";
/// The Service of catalogd.
pub const CATALOGD_SERVICE: &str = "catalogd-service";
/// Type of the immutable Secrets that hold objects of a revision.
pub const OBJECT_DATA_SECRET_TYPE: &str = "olm.operatorframework.io/object-data";
/// The cluster-scoped object whose condition [`crate::conditions::UPGRADEABLE`] tells OpenShift whether to update.
pub const CLUSTER_OPERATOR: &str = "olm";

/// Labels.
pub mod label {
    /// The longest value.
    pub const MAX_VALUE: usize = 63;
    /// Kind of the object that a managed object belongs to. On managed objects and revisions.
    pub const OWNER_KIND: &str = "olm.operatorframework.io/owner-kind";
    /// Name of the object that a managed object belongs to. On managed objects, revisions and their Secrets.
    pub const OWNER_NAME: &str = "olm.operatorframework.io/owner-name";
    /// Name of the revision that a Secret belongs to.
    pub const REVISION_NAME: &str = "olm.operatorframework.io/revision-name";
    /// `true` on revisions made from a release of the Helm runtime.
    pub const MIGRATED_FROM_HELM: &str = "olm.operatorframework.io/migrated-from-helm";
    /// A ClusterCatalog's own name, so that selectors can select by name (set by catalogd).
    pub const METADATA_NAME: &str = "olm.operatorframework.io/metadata.name";
    /// Name of the ClusterExtension whose account a role would mend. On the roles and bindings that conditions propose.
    pub const RIGHTS_OF: &str = "olm.operatorframework.io/rights-of";
    /// [`MANAGED_BY_OLM`] on managed objects.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Value of [`MANAGED_BY`].
    pub const MANAGED_BY_OLM: &str = "olm.operatorframework.io";
}

/// Annotations that the managers write.
pub mod annotation {
    /// Package of the bundle. On revisions and managed objects.
    pub const PACKAGE_NAME: &str = "olm.operatorframework.io/package-name";
    /// Name of the bundle. On revisions.
    pub const BUNDLE_NAME: &str = "olm.operatorframework.io/bundle-name";
    /// Version of the bundle. On revisions and managed objects.
    pub const BUNDLE_VERSION: &str = "olm.operatorframework.io/bundle-version";
    /// Release of the bundle, only when it has one. On revisions.
    pub const BUNDLE_RELEASE: &str = "olm.operatorframework.io/bundle-release";
    /// Image reference of the bundle. On revisions.
    pub const BUNDLE_REFERENCE: &str = "olm.operatorframework.io/bundle-reference";
    /// The bundle's properties, a JSON list. On the `ClusterServiceVersion` and on revisions.
    pub const PROPERTIES: &str = "olm.properties";
    /// The revision that a managed object was applied by, in decimal.
    pub const REVISION: &str = "olm.operatorframework.io/revision";
    /// `NAMESPACE/NAME` of the account that a revision is applied and taken down under.
    pub const SERVICE_ACCOUNT: &str = "olm.operatorframework.io/service-account";
    /// Who provides the certificates of the bundle's webhooks: `cert-manager`, `openshift-service-ca`, `self-signed`. On
    /// revisions whose bundle has any.
    pub const CERTIFICATE_PROVIDER: &str = "olm.operatorframework.io/certificate-provider";
    /// Name of the Secret for the certificate of this Service, which we make. On Services.
    pub const SERVING_CERTIFICATE: &str = "olm.operatorframework.io/serving-certificate";
    /// Name of the Service that the certificate is for. On Secrets with certificates that we make.
    pub const CERTIFICATE_FOR: &str = "olm.operatorframework.io/certificate-for";
    /// `NAMESPACE/NAME` of the Secret whose authority is to be trusted by the API server when it calls what this object
    /// registers; we write it into the object. On webhook configurations, CRDs and APIServices.
    pub const AUTHORITY_FROM: &str = "olm.operatorframework.io/authority-from";
    /// Name of the OperatorCondition that the bundle's operator is told. On revisions.
    pub const OPERATOR_CONDITION: &str = "olm.operatorframework.io/operator-condition";
    /// What was to be known of a revision when it was made. On revisions.
    pub const WARNINGS: &str = "olm.operatorframework.io/warnings";
    /// `true` once the extension's deletion takes a revision down: as long as it does not say so, a revision that was deleted
    /// before keeps what users have stored. On revisions.
    pub const UNINSTALLING: &str = "olm.operatorframework.io/uninstalling";
    /// How far the stored versions of a definition were migrated, as long as that is not at its end. On ClusterExtensions.
    pub const STORAGE_MIGRATION: &str = "olm.operatorframework.io/storage-migration";
    /// Which set of features a CRD was made for.
    pub const GENERATOR: &str = "olm.operatorframework.io/generator";
    /// Which set of features the managers were deployed with.
    pub const FEATURE_SET: &str = "olm.operatorframework.io/feature-set";
    /// What kubectl remembers of an applied object; never part of a revision.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
}

/// Annotations that users set. An unknown value is an error in a condition, never ignored.
pub mod user {
    /// On ClusterExtension: what deletion leaves behind. `delete` (default), `orphan`, `keep-crds`.
    pub const UNINSTALL: &str = "olm.operatorframework.io/uninstall";
    /// On ClusterExtension: what to do about objects of kinds that the cluster lacks. `wait` (default), `skip`.
    pub const MISSING_KINDS: &str = "olm.operatorframework.io/missing-kinds";
    /// On ClusterExtension: the CRD checks one by one, `CHECK=Error|Warn|Off` separated by commas.
    pub const CRD_POLICY: &str = "olm.operatorframework.io/crd-policy";
    /// On ClusterExtension: which existing objects may be taken over. `never` (default), `unowned`, `all`.
    pub const ADOPT: &str = "olm.operatorframework.io/adopt";
    /// On ClusterExtension: `true` upgrades although the operator says that it is not upgradeable. Default `false`.
    pub const UPGRADEABLE_OVERRIDE: &str = "olm.operatorframework.io/upgradeable-override";
    /// On ClusterExtension: `true` changes or removes what other extensions depend on. Default `false`.
    pub const ALLOW_BREAK_DEPENDENTS: &str = "olm.operatorframework.io/allow-break-dependents";
    /// On ClusterExtension: `true` installs a bundle although its workloads run as the installing account. Default `false`.
    pub const ALLOW_INSTALLER_WORKLOADS: &str = "olm.operatorframework.io/allow-installer-workloads";
    /// On ClusterExtension and ClusterCatalog: `true` stops all changes. Default `false`.
    pub const PAUSED: &str = "olm.operatorframework.io/paused";
    /// On ClusterCatalog: any text; when it changes, what the reference of the image means is looked up at once.
    pub const POLL: &str = "olm.operatorframework.io/poll";
    /// On ClusterCatalog: an image reference in which Kubernetes version variables are replaced.
    pub const CATALOG_IMAGE_TEMPLATE: &str = "olm.catalogImageTemplate";
}

/// Finalizers.
pub mod finalizer {
    /// On ClusterExtension: the bundle's unpacked image is to be freed.
    pub const CLEANUP_UNPACK_CACHE: &str = "olm.operatorframework.io/cleanup-unpack-cache";
    /// On ClusterExtension: the revisions are to be taken down.
    pub const CLEANUP_CONTENT_MANAGER_CACHE: &str = "olm.operatorframework.io/cleanup-contentmanager-cache";
    /// On ClusterObjectSet: the objects are to be taken down.
    pub const TEARDOWN: &str = "olm.operatorframework.io/teardown";
    /// On ClusterCatalog: the served content is to be removed.
    pub const DELETE_SERVER_CACHE: &str = "olm.operatorframework.io/delete-server-cache";
}

/// Field managers.
pub mod field_manager {
    /// Of managed objects.
    pub const OBJECTS: &str = "olm.operatorframework.io";
    /// Of Secrets with certificates that we make, and of the authorities that we write into objects.
    pub const CERTIFICATES: &str = "olm.operatorframework.io/certificates";
    /// Of revisions, forced.
    pub const REVISIONS: &str = "olm.operatorframework.io/clusterextension-controller";
    /// Of dry runs.
    pub const DRY_RUN: &str = "dummy";
    /// Of status, finalizers and labels written by operator-controller.
    pub const OPERATOR_CONTROLLER: &str = "operator-controller";
    /// Of status, finalizers and labels written by catalogd.
    pub const CATALOGD: &str = "catalogd";
}

/// Leases, the same as the reference's, so that both never lead at once.
pub mod lease {
    /// Of operator-controller.
    pub const OPERATOR_CONTROLLER: &str = "9c4404e7.operatorframework.io";
    /// Of catalogd.
    pub const CATALOGD: &str = "catalogd-operator-lock";
}

/// Objects in the managers' namespace that hold the certificates they make for themselves.
pub mod certificate {
    /// Secret with catalogd's authority, serving certificate and keys, shared by its replicas.
    pub const CATALOGD_SECRET: &str = "catalogd-self-signed";
    /// ConfigMap with catalogd's authority under `ca.crt`, for those who fetch catalogs.
    pub const CATALOGD_AUTHORITY: &str = "catalogd-ca";
    /// Secret with operator-controller's authority, serving certificate and keys.
    pub const OPERATOR_CONTROLLER_SECRET: &str = "operator-controller-self-signed";
    /// ConfigMap with operator-controller's authority under `ca.crt`, for those who scrape its metrics.
    pub const OPERATOR_CONTROLLER_AUTHORITY: &str = "operator-controller-ca";
}

/// cert-manager, which makes certificates for webhooks where it is installed.
pub mod cert_manager {
    /// The API group.
    pub const GROUP: &str = "cert-manager.io";
    /// The group with the version that is written.
    pub const API_VERSION: &str = "cert-manager.io/v1";
    /// The kind that asks for a certificate.
    pub const CERTIFICATE: &str = "Certificate";
    /// The kind that says who signs certificates.
    pub const ISSUER: &str = "Issuer";
    /// Annotation of an object that is to trust the authority of a Certificate: the Certificate's namespace and name.
    pub const INJECT_CA_FROM: &str = "cert-manager.io/inject-ca-from";
    /// Annotation of a Secret that it made: the name of the Certificate that asked for it.
    pub const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";
}

/// OperatorConditions, by which operators say whether they may be upgraded (requirement 8.01).
pub mod operator_condition {
    /// The API group.
    pub const GROUP: &str = "operators.coreos.com";
    /// The API version that is written; OLM classic serves it too.
    pub const VERSION: &str = "v2";
    /// The kind.
    pub const KIND: &str = "OperatorCondition";
    /// The resource.
    pub const PLURAL: &str = "operatorconditions";
    /// The environment variable that tells an operator the name of its OperatorCondition.
    pub const ENVIRONMENT: &str = "OPERATOR_CONDITION_NAME";
    /// The condition with which an operator holds its upgrade back while it is `False` (requirement 8.03).
    pub const UPGRADEABLE: &str = "Upgradeable";
}

/// What the reference's Helm runtime keeps of a release: Secrets in the managers' namespace.
pub mod release {
    /// Type of the Secret that names the parts of a release and holds the first.
    pub const INDEX_SECRET_TYPE: &str = "operatorframework.io/index.v1";
    /// Type of a Secret that holds a further part.
    pub const CHUNK_SECRET_TYPE: &str = "operatorframework.io/chunk.v1";
    /// Key of the data: the part.
    pub const CHUNK: &str = "chunk";
    /// Key of the data: the names of the Secrets with further parts, a JSON list.
    pub const EXTRA_CHUNKS: &str = "extraChunks";
    /// Label: the release's name, which is the ClusterExtension's.
    pub const NAME: &str = "name";
    /// Label: the release's number.
    pub const VERSION: &str = "version";
    /// Label: the release's state.
    pub const STATUS: &str = "status";
    /// [`STATUS`] of a release that is there.
    pub const DEPLOYED: &str = "deployed";
    /// Selects the Secrets that releases begin with.
    pub const INDEX_SELECTOR: &str = "owner=operator-controller,type=index";
}

/// Types of properties that bundles carry.
pub mod property {
    /// Package, version and release.
    pub const PACKAGE: &str = "olm.package";
    /// The latest OpenShift minor version that the bundle works on.
    pub const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";
}
