//! The shared parts of all runs over ClusterExtensions: clients, stores that watches fill, and caches.

pub(crate) mod account;
pub(crate) mod claims;
pub(crate) mod cluster_info;
pub(crate) mod helm;
pub(crate) mod joint_updates;
pub(crate) mod providers;
pub(crate) mod release;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use olm_api::cluster_extension::controlling_extension;
use olm_api::{ChangePolicy, ClusterCatalog, ClusterExtension, PendingChange};
use olm_platform::events::Events;
use olm_resolve::ReleaseField;

use self::claims::Claims;
use self::cluster_info::ClusterInfo;
use self::helm::Releases;
use self::joint_updates::JointUpdates;
use self::providers::CertificateProviders;
use super::revisions::{BundleIdentity, ConflictingSets, Revisions, is_left_behind};
use crate::bundles::Bundles;
use crate::catalogs::Catalogs;
use crate::certificates::choose::Providers;
use crate::conditions::watch::Deletions;
use crate::metrics::counters::Counters;
use crate::object_set::store::Sets;
use crate::object_set::teardown_records::TeardownRecords;
use olm_cluster::discover::Discovery;
use olm_cluster::follow::UnreadableObjects;
use olm_cluster::identity::{AccountName, Accounts};
use olm_cluster::image_policies::ImagePolicies;
use olm_cluster::permissions::Reviews;

/// Feature gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a gate that users switch by name"
)]
pub struct Gates {
    /// Bundles may be installed for single namespaces.
    pub single_namespace: bool,
    /// Certificates for webhooks may come from cert-manager.
    pub cert_manager: bool,
    /// Certificates for webhooks may come from OpenShift's service CA.
    pub service_ca: bool,
    /// Users may change the operator's deployments.
    pub deployment_config: bool,
    /// Bundles may state a release beside their version.
    pub releases: bool,
}

impl Gates {
    /// Whether the release field of a bundle is used.
    pub(crate) fn release_field(self) -> ReleaseField {
        if self.releases {
            ReleaseField::Counts
        } else {
            ReleaseField::Ignored
        }
    }

    /// The certificate providers that may be used besides the controller itself.
    pub(crate) fn providers(self) -> Providers {
        Providers {
            cert_manager: self.cert_manager,
            service_ca: self.service_ca,
        }
    }
}

/// The shared parts of all runs.
pub(crate) struct Context {
    /// A client with the controller's own rights.
    pub client: Client,
    /// Publishes events.
    pub events: Events,
    /// The namespace of OLM.
    pub system_namespace: String,
    /// The account of extensions without one.
    pub default_account: Option<AccountName>,
    /// The catalogs of extensions without a selector; empty for all, in a first installation.
    pub default_catalogs: Vec<String>,
    /// Feature gates.
    pub gates: Gates,
    /// The time for which one run writes objects to migrate stored versions.
    pub migration_time: Duration,
    /// All ClusterExtensions.
    pub extensions: Store<ClusterExtension>,
    /// All ClusterCatalogs.
    pub cluster_catalogs: Store<ClusterCatalog>,
    /// All ChangePolicies.
    pub policies: Store<ChangePolicy>,
    /// All PendingChanges.
    pub changes: Store<PendingChange>,
    /// Those of them that cannot be read at the moment.
    pub unreadable: UnreadableObjects,
    /// All ClusterObjectSets.
    pub sets: Arc<Sets>,
    /// Content of catalogs.
    pub catalogs: Catalogs,
    /// Bundle images.
    pub bundles: Bundles,
    /// OpenShift's signature policies.
    pub image_policies: ImagePolicies,
    /// The kinds that the cluster serves.
    pub discovery: Arc<Discovery>,
    /// Clients that act as service accounts.
    pub accounts: Arc<Accounts>,
    /// The rights of accounts.
    pub reviews: Arc<Reviews>,
    /// Certificate providers that the cluster has.
    pub providers: CertificateProviders,
    /// Releases of the Helm runtime.
    pub releases: Releases,
    /// Version and architectures of the cluster.
    pub cluster: ClusterInfo,
    /// The teardown records of deleted revisions.
    pub teardown_records: Arc<TeardownRecords>,
    /// OperatorConditions that were deleted.
    pub deletions: Arc<Deletions>,
    /// The state of extensions that need each other.
    pub joint_updates: JointUpdates,
    /// The extensions that may claim a package before they have a revision.
    pub claims: Claims,
    /// Counters and timers.
    pub counters: Counters,
}

impl Context {
    /// An extension as the watch last saw it.
    pub(crate) fn extension(&self, name: &str) -> Option<Arc<ClusterExtension>> {
        self.extensions.get(&ObjectRef::new(name))
    }

    /// An extension's revisions as the watch last saw them: the sets that it controls. The label proves nothing,
    /// because any user can write it.
    pub(crate) fn revisions(&self, name: &str) -> Revisions {
        let Some(uid) = self.extension(name).and_then(|found| found.metadata.uid.clone()) else {
            return Revisions::default();
        };
        Revisions::new(self.sets.of_extension(&uid))
    }

    /// The UIDs of an extension, of its revisions, and of objects that an earlier extension of the same name left under
    /// the same account. Its next revision takes over from all of them.
    pub(crate) fn predecessors(&self, extension: &ClusterExtension, account: &AccountName) -> Vec<String> {
        let uid = extension.metadata.uid.clone();
        let sets = self.sets.state().into_iter();
        let sets = sets.filter(|set| {
            let controller = controlling_extension(&set.metadata);
            (controller.is_some() && controller == uid.as_deref())
                || is_left_behind(set, extension.name(), account)
        });
        sets.filter_map(|set| set.metadata.uid.clone())
            .chain(uid.clone())
            .collect()
    }

    /// The bundle of the newest revision of an extension.
    pub(crate) fn newest_bundle(&self, extension: &str) -> Option<String> {
        let newest = self.revisions(extension).newest_active().map(BundleIdentity::of);
        newest.map(|newest| newest.metadata.name)
    }

    /// A ChangePolicy.
    pub(crate) fn policy(&self, name: &str) -> Option<Arc<ChangePolicy>> {
        self.policies.get(&ObjectRef::new(name))
    }

    /// The PendingChanges of extensions of that name that can be read.
    pub(crate) fn pending_changes(&self, name: &str) -> Vec<Arc<PendingChange>> {
        let mut all = self.changes.state();
        let is_readable = |change: &PendingChange| !self.unreadable.contains::<PendingChange>(change.name());
        all.retain(|change| change.spec.extension == name && is_readable(change));
        all
    }

    /// Sets that already have a possible name or number of an extension's next revision. Any user can write the label
    /// of an owner, so only sets under the extension's account count.
    pub(crate) fn others(&self, extension: &ClusterExtension) -> ConflictingSets {
        let uid = extension.metadata.uid.as_deref();
        let account = account::choose(extension, self.default_account.as_ref()).ok();
        let mut others = ConflictingSets::default();
        for set in self.sets.state() {
            let extension_of = controlling_extension(&set.metadata);
            if extension_of.is_some() && extension_of == uid {
                continue;
            }
            if set.name().starts_with(extension.name()) {
                others.names.insert(set.name().to_owned());
            }
            let is_left = |account| is_left_behind(&set, extension.name(), account);
            // Another number must be possible after it.
            if account.as_ref().is_some_and(is_left) && set.spec.revision < i64::MAX / 2 {
                others.highest = others.highest.max(set.spec.revision);
                others.left.push(set);
            }
        }
        others
    }

    /// Forgets an extension that is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.joint_updates.forget(name);
        self.claims.forget(name);
        self.counters.forget(name);
        self.deletions.forget(name);
        self.bundles.forget(name);
        // A large answer must not outlive its caller.
        let extensions = self.extensions.state();
        self.catalogs.retain(|_, package| {
            let mut sources = extensions
                .iter()
                .filter(|other| other.name() != name)
                .filter_map(|other| other.spec.source.catalog.as_ref());
            sources.any(|catalog| catalog.package_name == package)
        });
    }
}
