//! The names on objects, each once.

/// The longest name of a ClusterExtension, in bytes: with the number of a revision it still fits a label.
pub const MAX_EXTENSION_NAME: u32 = 52;
/// The longest name of a ClusterCatalog, in bytes: it is the value of [`label::METADATA_NAME`].
pub const MAX_CATALOG_NAME: u32 = 63;
/// The API group.
pub const GROUP: &str = "olm.operatorframework.io";
/// The API version in the group.
pub const VERSION: &str = "v1";
/// Group and version in the form of `apiVersion`.
pub const API_VERSION: &str = "olm.operatorframework.io/v1";
/// Kind of ClusterExtension, also the value of [`label::OWNER_KIND`].
pub const CLUSTER_EXTENSION: &str = "ClusterExtension";
/// Kind of ClusterCatalog.
pub const CLUSTER_CATALOG: &str = "ClusterCatalog";
/// Plural of ClusterCatalog.
pub const CLUSTER_CATALOGS: &str = "clustercatalogs";
/// The subresource in RBAC rules for the served content of a ClusterCatalog.
pub const CONTENT: &str = "content";
/// Kind of ClusterObjectSet.
pub const CLUSTER_OBJECT_SET: &str = "ClusterObjectSet";
/// Kind of ChangePolicy.
pub const CHANGE_POLICY: &str = "ChangePolicy";
/// Kind of PendingChange.
pub const PENDING_CHANGE: &str = "PendingChange";
/// Kind of a cluster's inventory: a document for planning a fleet, not an object of a cluster.
pub const CLUSTER_INVENTORY: &str = "ClusterInventory";
/// The `apiVersion` of a [`CLUSTER_INVENTORY`].
pub const INVENTORY_API_VERSION: &str = "inventory.olm.operatorframework.io/v1";
/// The default namespace of the managers.
pub const SYSTEM_NAMESPACE: &str = "olmv1-system";
/// The audience of tokens that are shown to catalogd: the API server and others refuse them.
pub const CATALOGD_AUDIENCE: &str = "catalogd.olm.operatorframework.io";
/// The Service of catalogd.
pub const CATALOGD_SERVICE: &str = "catalogd-service";
/// Type of the immutable Secrets with objects of a revision.
pub const OBJECT_DATA_SECRET_TYPE: &str = "olm.operatorframework.io/object-data";
/// The `ClusterOperator` whose condition [`crate::conditions::UPGRADEABLE`] allows or blocks updates of OpenShift.
pub const CLUSTER_OPERATOR: &str = "olm";

/// The name of an annotation of an object in messages.
pub fn annotation_of(key: &str, kind: &str, name: &str) -> String {
    format!("annotation {key} of {kind} {name}")
}

/// Labels.
pub mod label {
    /// The longest value of a label, in bytes.
    pub const MAX_VALUE: usize = 63;

    /// A selector for objects with this label; `None` when no object can carry the value, so that a list request for it
    /// would fail.
    pub fn selector(key: &str, value: &str) -> Option<String> {
        let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = value.as_bytes();
        let is_value = value.len() <= MAX_VALUE
            && is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b));
        is_value.then(|| format!("{key}={value}"))
    }

    /// Kind of the object that a managed object belongs to. On managed objects and revisions.
    pub const OWNER_KIND: &str = "olm.operatorframework.io/owner-kind";
    /// Name of the object that a managed object belongs to. On managed objects, revisions and their Secrets.
    pub const OWNER_NAME: &str = "olm.operatorframework.io/owner-name";
    /// Name of the revision that a Secret belongs to.
    pub const REVISION_NAME: &str = "olm.operatorframework.io/revision-name";
    /// `true` on revisions that were created from a release of the Helm runtime.
    pub const MIGRATED_FROM_HELM: &str = "olm.operatorframework.io/migrated-from-helm";
    /// A ClusterCatalog's own name, so that selectors can select by name (set by catalogd).
    pub const METADATA_NAME: &str = "olm.operatorframework.io/metadata.name";
    /// Name of the ClusterExtension that a proposed role is for. On the roles and bindings that `olm rbac` and
    /// `olm install` print.
    pub const RIGHTS_OF: &str = "olm.operatorframework.io/rights-of";
    /// [`MANAGED_BY_OLM`] on managed objects.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Value of [`MANAGED_BY`].
    pub const MANAGED_BY_OLM: &str = "olm.operatorframework.io";
}

/// Annotations that the managers write.
pub mod annotation {
    /// On ClusterExtensions: the settings before `olm rollback`, as a JSON merge patch that restores them. `olm unpin`
    /// does that.
    pub const BEFORE_ROLLBACK: &str = "olm.operatorframework.io/before-rollback";
    /// The kind of an image in a mirror, `catalog` or `image`. On the images in the index of a mirror that is a
    /// directory.
    pub const MIRROR: &str = "olm.operatorframework.io/mirror";
    /// Name of a ClusterCatalog for a catalog. On the catalog in the index of a mirror that is a directory.
    pub const MIRROR_NAME: &str = "olm.operatorframework.io/mirror-name";
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
    /// The signer of the bundle's image, and of those of its Pods if the extension wants them verified, and the rules of
    /// the signature policy that asked for that. On revisions, where a rule asked.
    pub const BUNDLE_VERIFIED: &str = "olm.operatorframework.io/bundle-verified";
    /// Name of the ClusterCatalog that offered the bundle. On revisions.
    pub const CATALOG: &str = "olm.operatorframework.io/catalog";
    /// The bundle's properties as its files list them, a JSON list. On the `ClusterServiceVersion` and on revisions.
    pub const PROPERTIES: &str = "olm.properties";
    /// Properties that follow from the rest of the bundle's files, and those that its catalog adds, a JSON list. On
    /// revisions.
    pub const FURTHER_PROPERTIES: &str = "olm.operatorframework.io/further-properties";
    /// The revision that a managed object was applied by, in decimal.
    pub const REVISION: &str = "olm.operatorframework.io/revision";
    /// UID of the ClusterExtension whose controller made this content. On the Secrets of revisions.
    pub const OWNER_UID: &str = "olm.operatorframework.io/owner-uid";
    /// `NAMESPACE/NAME` of the account that a revision is applied and taken down under.
    pub const SERVICE_ACCOUNT: &str = "olm.operatorframework.io/service-account";
    /// The bundle after which the roles of a later one are named, so that rights to them by name remain valid. On
    /// revisions.
    pub const ROLES_NAMED_AFTER: &str = "olm.operatorframework.io/roles-named-after";
    /// The provider of the certificates of the bundle's webhooks: `cert-manager`, `openshift-service-ca`,
    /// `self-signed`. On revisions whose bundle has any.
    pub const CERTIFICATE_PROVIDER: &str = "olm.operatorframework.io/certificate-provider";
    /// Name of the Secret with the self-signed certificate of this Service. On Services.
    pub const SERVING_CERTIFICATE: &str = "olm.operatorframework.io/serving-certificate";
    /// Name of the Service of this certificate. On Secrets with self-signed certificates.
    pub const CERTIFICATE_FOR: &str = "olm.operatorframework.io/certificate-for";
    /// `NAMESPACE/NAME` of the Secret whose certificate authority operator-controller writes into this object, so that
    /// the API server trusts the webhook. On webhook configurations, CRDs and APIServices.
    pub const AUTHORITY_FROM: &str = "olm.operatorframework.io/authority-from";
    /// Name of the OperatorCondition of the bundle's operator. On revisions.
    pub const OPERATOR_CONDITION: &str = "olm.operatorframework.io/operator-condition";
    /// `true` on a revision whose content existed before under its name: restored from a backup, or left behind. It
    /// takes back objects that it applied before and that have no controller. On revisions.
    pub const RESTORED: &str = "olm.operatorframework.io/restored";
    /// Digest of the plan of the change that created the revision, if a ChangePolicy selects the extension. On
    /// revisions.
    pub const CHANGE_DIGEST: &str = "olm.operatorframework.io/change-digest";
    /// UID of the PendingChange with the approval of that change, if it needed one. On revisions.
    pub const PENDING_CHANGE: &str = "olm.operatorframework.io/pending-change";
    /// Digest of `spec.config` of the extension, if it has any. On revisions.
    pub const CONFIG_DIGEST: &str = "olm.operatorframework.io/config-digest";
    /// The approver of that change, if it needed an approval. On revisions.
    pub const APPROVED_BY: &str = "olm.operatorframework.io/approved-by";
    /// Warnings from the creation of a revision. On revisions.
    pub const WARNINGS: &str = "olm.operatorframework.io/warnings";
    /// `true` once the deletion of the extension tears the revision down. Without it, a deleted revision keeps the CRDs
    /// and with them the stored objects of users. On revisions.
    pub const UNINSTALLING: &str = "olm.operatorframework.io/uninstalling";
    /// Progress of a migration of stored versions, while it runs. On ClusterExtensions.
    pub const STORAGE_MIGRATION: &str = "olm.operatorframework.io/storage-migration";
    /// The feature set of a CRD.
    pub const GENERATOR: &str = "olm.operatorframework.io/generator";
    /// The last applied configuration that kubectl keeps; never part of a revision.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
}

/// Annotations that users set. An unknown value is an error in a condition, never ignored.
pub mod user {
    /// On ClusterExtension: the objects that deletion keeps. `delete` (default), `orphan`, `keep-crds`.
    pub const UNINSTALL: &str = "olm.operatorframework.io/uninstall";
    /// On ClusterExtension: the treatment of objects of kinds that the cluster lacks. `wait` (default), `skip`.
    pub const MISSING_KINDS: &str = "olm.operatorframework.io/missing-kinds";
    /// On ClusterExtension: the CRD checks one by one, `CHECK=Error|Warn|Off` separated by commas.
    pub const CRD_POLICY: &str = "olm.operatorframework.io/crd-policy";
    /// On ClusterExtension: the existing objects that may be taken over. `never` (default), `unowned`, `all`.
    pub const ADOPT: &str = "olm.operatorframework.io/adopt";
    /// On ClusterExtension: `true` upgrades although the operator reports Upgradeable=False. Default `false`.
    pub const UPGRADEABLE_OVERRIDE: &str = "olm.operatorframework.io/upgradeable-override";
    /// On ClusterExtension: `true` changes or removes dependencies of other extensions. Default `false`.
    pub const ALLOW_BREAK_DEPENDENTS: &str = "olm.operatorframework.io/allow-break-dependents";
    /// On ClusterExtension: `true` installs a bundle although its workloads run as the installing account. Default
    /// `false`.
    pub const ALLOW_INSTALLER_WORKLOADS: &str = "olm.operatorframework.io/allow-installer-workloads";
    /// On ClusterExtension and ClusterCatalog: `true` stops all changes. Default `false`.
    pub const PAUSED: &str = "olm.operatorframework.io/paused";
    /// On ClusterExtension and ClusterCatalog: requirements that its images must satisfy beside the signature policy of
    /// the managers, a JSON list in the form of `policy.json`.
    pub const SIGNATURE_POLICY: &str = "olm.operatorframework.io/signature-policy";
    /// On ClusterExtension: the images that must satisfy the signature policy: `bundle` (default), or `all`, the images
    /// of the bundle's Pods too.
    pub const VERIFY_IMAGES: &str = "olm.operatorframework.io/verify-images";
    /// On ClusterCatalog: any text; a change makes catalogd resolve the image reference at once.
    pub const POLL: &str = "olm.operatorframework.io/poll";
    /// On ClusterCatalog: an image reference with variables for the Kubernetes version.
    pub const CATALOG_IMAGE_TEMPLATE: &str = "olm.catalogImageTemplate";
}

/// Finalizers.
pub mod finalizer {
    /// On ClusterExtension: operator-controller frees the unpacked bundle image first.
    pub const CLEANUP_UNPACK_CACHE: &str = "olm.operatorframework.io/cleanup-unpack-cache";
    /// On ClusterExtension: operator-controller tears the revisions down first.
    pub const CLEANUP_CONTENT_MANAGER_CACHE: &str = "olm.operatorframework.io/cleanup-contentmanager-cache";
    /// On ClusterObjectSet: operator-controller tears the objects down first.
    pub const TEARDOWN: &str = "olm.operatorframework.io/teardown";
    /// On ClusterCatalog: catalogd removes the served content first.
    pub const DELETE_SERVER_CACHE: &str = "olm.operatorframework.io/delete-server-cache";
}

/// Field managers.
pub mod field_manager {
    /// Field manager of managed objects.
    pub const OBJECTS: &str = "olm.operatorframework.io";
    /// Field manager of Secrets with self-signed certificates, and of the certificate authorities in other objects.
    pub const CERTIFICATES: &str = "olm.operatorframework.io/certificates";
    /// Field manager of revisions, forced.
    pub const REVISIONS: &str = "olm.operatorframework.io/clusterextension-controller";
    /// Field manager of status, finalizers and labels that operator-controller writes.
    pub const OPERATOR_CONTROLLER: &str = "operator-controller";
    /// Field manager of status, finalizers and labels that catalogd writes.
    pub const CATALOGD: &str = "catalogd";
    /// Field manager of content that OLM classic applies.
    pub const CLASSIC: &str = "olm.operatorframework.io/classic";
    /// Field manager of conversions that OLM classic writes into CustomResourceDefinitions.
    pub const CLASSIC_CONVERSIONS: &str = "olm.operatorframework.io/classic-conversion";
}

/// Leases with the names of the reference implementation, so that both never lead at the same time.
pub mod lease {
    /// Lease of operator-controller.
    pub const OPERATOR_CONTROLLER: &str = "9c4404e7.operatorframework.io";
    /// Lease of catalogd.
    pub const CATALOGD: &str = "catalogd-operator-lock";
}

/// Objects in the managers' namespace with their self-signed certificates.
pub mod certificate {
    /// Secret with catalogd's authority, serving certificate and keys, shared by its replicas.
    pub const CATALOGD_SECRET: &str = "catalogd-self-signed";
    /// ConfigMap with catalogd's authority under `ca.crt`, for clients of catalogs.
    pub const CATALOGD_AUTHORITY: &str = "catalogd-ca";
    /// Secret with operator-controller's authority, serving certificate and keys.
    pub const OPERATOR_CONTROLLER_SECRET: &str = "operator-controller-self-signed";
    /// ConfigMap with operator-controller's authority under `ca.crt`, for scrapers of its metrics.
    pub const OPERATOR_CONTROLLER_AUTHORITY: &str = "operator-controller-ca";
}

/// cert-manager, an optional provider of webhook certificates.
pub mod cert_manager {
    /// The API group.
    pub const GROUP: &str = "cert-manager.io";
    /// The group with the version that is written.
    pub const API_VERSION: &str = "cert-manager.io/v1";
    /// The kind that requests a certificate.
    pub const CERTIFICATE: &str = "Certificate";
    /// The kind that signs certificates.
    pub const ISSUER: &str = "Issuer";
    /// Annotation of an object into which cert-manager injects the authority of a Certificate: its namespace and name.
    pub const INJECT_CA_FROM: &str = "cert-manager.io/inject-ca-from";
    /// Annotation of a Secret of cert-manager: the name of its Certificate.
    pub const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";
}

/// OperatorConditions, by which operators allow or block their upgrade.
pub mod operator_condition {
    /// The API group.
    pub const GROUP: &str = "operators.coreos.com";
    /// The API version that is written; OLM classic serves it too.
    pub const VERSION: &str = "v2";
    /// The kind.
    pub const KIND: &str = "OperatorCondition";
    /// The resource.
    pub const PLURAL: &str = "operatorconditions";
    /// The environment variable with the name of the OperatorCondition of an operator.
    pub const ENVIRONMENT: &str = "OPERATOR_CONDITION_NAME";
    /// The condition that blocks the upgrade of an operator while it is `False`.
    pub const UPGRADEABLE: &str = "Upgradeable";
}

/// Releases of the Helm runtime of the reference: Secrets in the managers' namespace.
pub mod release {
    /// Type of the Secret that lists the chunks of a release and holds the first.
    pub const INDEX_SECRET_TYPE: &str = "operatorframework.io/index.v1";
    /// Type of a Secret with a further chunk.
    pub const CHUNK_SECRET_TYPE: &str = "operatorframework.io/chunk.v1";
    /// Data key of the chunk.
    pub const CHUNK: &str = "chunk";
    /// Data key of the names of Secrets with further chunks, a JSON list.
    pub const EXTRA_CHUNKS: &str = "extraChunks";
    /// Label: the release's name, which is the ClusterExtension's.
    pub const NAME: &str = "name";
    /// Label: the release's number.
    pub const VERSION: &str = "version";
    /// Label: the release's state.
    pub const STATUS: &str = "status";
    /// [`STATUS`] of an installed release.
    pub const DEPLOYED: &str = "deployed";
    /// Selector of the first Secrets of all releases.
    pub const INDEX_SELECTOR: &str = "owner=operator-controller,type=index";
}

/// The migration of an operator from OLM classic: annotations that its tools share.
pub mod migration {
    /// `NAMESPACE/NAME` of the Subscription from which an extension was created. On ClusterExtensions and revisions.
    pub const SUBSCRIPTION: &str = "olm.operatorframework.io/migrated-from-subscription";
    /// The `spec` of that Subscription, as JSON. On ClusterExtensions.
    pub const SUBSCRIPTION_BACKUP: &str = "olm.operatorframework.io/migration-subscription-backup";
    /// The `spec` of the OperatorGroup of that Subscription, as JSON. On ClusterExtensions.
    pub const OPERATOR_GROUP_BACKUP: &str = "olm.operatorframework.io/migration-operatorgroup-backup";
    /// Digest of the packed record of the objects of OLM classic before the migration, `sha256:HEX`. On
    /// ClusterExtensions.
    pub const RECORD_DIGEST: &str = "olm.operatorframework.io/migration-record-digest";
    /// `NAMESPACE/NAME` of the CatalogSource from which a catalog was created. On ClusterCatalogs.
    pub const CATALOG_SOURCE: &str = "olm.operatorframework.io/migrated-from-catalogsource";
    /// On Subscriptions: `true` moves the operator to a ClusterExtension. catalog-operator sets it on the
    /// ClusterExtension, too, until the move is at its end.
    pub const MIGRATE: &str = "olm.operatorframework.io/migrate";
    /// On ClusterExtensions that were created from a Subscription: `true` returns the operator to OLM classic.
    pub const MIGRATE_BACK: &str = "olm.operatorframework.io/migrate-back";
    /// On ClusterExtensions: what blocks the return that [`MIGRATE_BACK`] requests, or the fault of the request.
    /// catalog-operator sets it.
    pub const MIGRATE_BACK_STATUS: &str = "olm.operatorframework.io/migrate-back-status";
    /// On ClusterExtensions: the value of the annotation `uninstall` before a return, empty if there was none. It comes
    /// back if the request is withdrawn. The field manager that sets it has begun the return.
    pub const UNINSTALL_BACKUP: &str = "olm.operatorframework.io/migration-uninstall-backup";
    /// Prefix of annotations that acknowledge the findings of a check: the name of the check follows, and the value is
    /// `true`. On Subscriptions, and on the ClusterExtensions created from them.
    pub const ACKNOWLEDGED: &str = "olm.operatorframework.io/acknowledged-";
}

/// The key of the authority, PEM, in the Secrets with the certificates that OLM classic makes.
pub const CLASSIC_AUTHORITY: &str = "olmCAKey";

/// Secrets that Kubernetes fills with the token of a service account. It deletes those whose account does not exist.
pub mod token_secret {
    /// The type of these Secrets.
    pub const TYPE: &str = "kubernetes.io/service-account-token";
    /// Annotation: the name of the service account.
    pub const ACCOUNT: &str = "kubernetes.io/service-account.name";
}

/// Types of properties that bundles carry.
pub mod property {
    /// Package, version and release.
    pub const PACKAGE: &str = "olm.package";
    /// The latest OpenShift minor version that the bundle works on.
    pub const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";
}

/// Whether a text has the form of most objects' names, so that it is a single segment of a path.
pub fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(inner) && !text.starts_with(['-', '.'])
}

/// The annotation of an OperatorGroup of OLM classic that keeps the catalogs of the global namespace out of its own:
/// exactly `true`.
pub const EXCLUDE_GLOBAL_CATALOGS: &str = "olm.operatorframework.io/exclude-global-namespace-resolution";

/// The annotation of a CatalogSource of OLM classic that requests a registry Pod, with the value `true`: for a `kubectl
/// port-forward` to its Service, or for an image that only its own program can serve. Without it the catalog-operator
/// serves the catalog.
pub const REGISTRY_POD: &str = "olm.operatorframework.io/registry-pod";

/// The annotation by which a CatalogSource of OLM classic with an address says that its registry speaks TLS, with the
/// value `true`. Its certificate must come from an authority of the system or of `--pull-cas-dir`.
pub const REGISTRY_TLS: &str = "olm.operatorframework.io/registry-tls";

/// The annotation of the EndpointSlice of a registry of OLM classic that names the content that is served: it changes
/// with the content, and only then.
pub const CATALOG_CONTENT_ANNOTATION: &str = "olm.operatorframework.io/catalog-content";

/// The annotation of an InstallPlan of OLM classic with the images of its bundles by digest: a JSON object, by the
/// references of its lookups.
pub const BUNDLE_IMAGES_ANNOTATION: &str = "olm.operatorframework.io/bundle-images";

/// The annotation of an InstallPlan of OLM classic with the digest of its steps and images as they were planned.
pub const PLAN_DIGEST_ANNOTATION: &str = "olm.operatorframework.io/plan-digest";

/// The annotation of an InstallPlan of OLM classic with what may break when its CustomResourceDefinitions replace those
/// on the cluster: a JSON object, by their names.
pub const CRD_FINDINGS_ANNOTATION: &str = "olm.operatorframework.io/crd-findings";

/// The annotation of an approved InstallPlan of OLM classic: its UID and the digest that was approved, `UID/DIGEST`.
pub const APPROVED_PLAN_ANNOTATION: &str = "olm.operatorframework.io/approved-plan";

/// The annotation of an InstallPlan of OLM classic with the generations of its Subscriptions: a JSON object, by their
/// names.
pub const PLANNED_FOR_ANNOTATION: &str = "olm.operatorframework.io/planned-for";

/// The annotation of a Subscription of OLM classic that decides whether a deleted ClusterServiceVersion is installed
/// again: `false` prevents it.
pub const REINSTALL_ANNOTATION: &str = "olm.operatorframework.io/reinstall";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_exists_only_for_values_that_labels_can_have() {
        let check = |value: &str, expected: bool| {
            assert_eq!(label::selector("k", value).is_some(), expected, "{value}");
        };
        assert_eq!(label::selector("k", "a.b-1").as_deref(), Some("k=a.b-1"));
        check(&"a".repeat(63), true);
        check(&"a".repeat(64), false);
        for value in ["", "-a", "a-", "a b", "a,b=c"] {
            check(value, false);
        }
    }

    #[test]
    fn the_name_of_a_revision_fits_a_label() {
        assert!(MAX_EXTENSION_NAME as usize + "-".len() + i32::MAX.to_string().len() <= label::MAX_VALUE);
    }
}
