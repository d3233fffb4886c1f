//! What every run over a ClusterExtension needs.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use olm_api::cluster_extension::controlling_extension;
use olm_api::names::label;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_platform::events::Events;
use olm_resolve::Platform;

use crate::bundles::Bundles;
use crate::catalogs::Catalogs;
use crate::certificates::choose::Providers;
use crate::cluster::discover::Discovery;
use crate::cluster::identity::{AccountName, Accounts};
use crate::cluster::permissions::Reviews;
use crate::extension::act::adopt;
use crate::extension::delete::data_loss;
use crate::extension::observe::revisions::{Others, Revisions, is_left_behind};
use crate::extension::preflight;
use crate::extension::resolve::inventory::{self, Known};
use crate::object_set::fate::Fates;
use crate::object_set::policy::Uninstall;

/// What is switched on.
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

/// What every run needs. The stores are filled by watches.
pub struct Context {
    /// The controller's own rights.
    pub client: Client,
    /// Tells what happened.
    pub events: Events,
    /// Where our own records with a namespace lie.
    pub system_namespace: String,
    /// The account of extensions that name none.
    pub default_account: Option<AccountName>,
    /// What is switched on.
    pub gates: Gates,
    /// How long one run writes the objects of a definition again from which stored versions go.
    pub migration_time: Duration,
    /// All ClusterExtensions.
    pub extensions: Store<ClusterExtension>,
    /// All ClusterCatalogs.
    pub cluster_catalogs: Store<ClusterCatalog>,
    /// All ClusterObjectSets.
    pub sets: Store<ClusterObjectSet>,
    /// Asks catalogs.
    pub catalogs: Catalogs,
    /// Fetches bundles.
    pub bundles: Bundles,
    /// Which kinds the cluster serves.
    pub discovery: Arc<Discovery>,
    /// Clients that act as service accounts.
    pub accounts: Arc<Accounts>,
    /// What accounts may do.
    pub reviews: Arc<Reviews>,
    /// Who besides ourselves could provide certificates, and when that was found out.
    pub certificates: Mutex<Option<(Instant, Providers)>>,
    /// Which releases of the Helm runtime there were.
    pub releases: adopt::Known,
    /// What was found out of the cluster itself.
    pub known: Known,
    /// What became of the objects of revisions that are gone.
    pub fates: Arc<Fates>,
    /// What the last run over each extension saw and did.
    pub memory: Mutex<HashMap<String, Memory>>,
}

/// What the last run over an extension saw and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The digest of everything that the newest revision follows from, when it was last found to be the wanted one.
    pub settled: Option<[u8; 32]>,
    /// What the bundle that is to be there asks of the cluster itself.
    pub platform: Option<Arc<Platform>>,
    /// What its newest revision said was in its way when [`Memory::settled`] was found out.
    pub trouble: Option<String>,
    /// The OperatorConditions that its revisions name, when the others were last removed.
    pub operator_conditions: Option<BTreeSet<String>>,
    /// How often in a row a run had to wait for somebody.
    pub waits: u32,
    /// What its deletion leaves, once that was told.
    pub announced: Option<Uninstall>,
    /// What its deletion takes away besides what its bundle brought, once that was told.
    pub losses: Option<String>,
    /// What was found to hold the objects of its kinds when it was deleted.
    pub held: Option<data_loss::Held>,
    /// What was found in the way of its bundle on this cluster.
    pub doubts: Option<inventory::Doubts>,
    /// How far stored versions of one of its definitions were migrated.
    pub migration: preflight::Known,
    /// Whether a change of another extension may lead to another outcome.
    pub awaits_others: bool,
    /// The bundle that could be installed now if those were ready that go along.
    pub ready: Option<String>,
    /// What kept the last run from installing a bundle that others may go along with; one line.
    pub kept: Option<String>,
}

impl Context {
    /// An extension as the watch saw it last.
    pub fn extension(&self, name: &str) -> Option<Arc<ClusterExtension>> {
        self.extensions.get(&ObjectRef::new(name))
    }

    /// An extension's revisions as the watch saw them last: the sets that it controls. The label alone is anybody's to
    /// write.
    pub fn revisions(&self, name: &str) -> Revisions {
        let Some(uid) = self.extension(name).and_then(|found| found.metadata.uid.clone()) else {
            return Revisions::default();
        };
        let ours = |set: &Arc<ClusterObjectSet>| controlling_extension(&set.metadata) == Some(uid.as_str());
        Revisions::new(self.sets.state().into_iter().filter(ours).collect())
    }

    /// The UIDs of an extension, of its revisions, and of what an earlier extension of the same name left behind under
    /// the same account: its next revision takes over from all of them.
    pub fn predecessors(&self, extension: &ClusterExtension, account: &AccountName) -> Vec<String> {
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

    /// Sets that stand in the way of a name or a number of an extension's next revision.
    pub fn others(&self, extension: &ClusterExtension) -> Others {
        let uid = extension.metadata.uid.as_deref();
        let mut others = Others::default();
        for set in self.sets.state() {
            let extension_of = controlling_extension(&set.metadata);
            if extension_of.is_some() && extension_of == uid {
                continue;
            }
            if set.name().starts_with(extension.name()) {
                others.names.insert(set.name().to_owned());
            }
            let is_of = extension_of.is_none() && set.label(label::OWNER_NAME) == Some(extension.name());
            // The label is anybody's to write, and there must be a next number.
            if is_of && set.spec.revision < i64::MAX / 2 {
                others.highest = others.highest.max(set.spec.revision);
            }
        }
        others
    }

    /// What the last run over an extension saw and did.
    pub fn remember(&self, name: &str) -> Memory {
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
            .unwrap_or_default()
    }

    /// Changes what is remembered of an extension.
    pub fn memorise(&self, name: &str, change: impl FnOnce(&mut Memory)) {
        change(
            self.memory
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(name.to_owned())
                .or_default(),
        );
    }

    /// The extensions to which a change of another one may matter.
    pub fn awaiting_others(&self) -> Vec<String> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let awaiting = memory.iter().filter(|(_, memory)| memory.awaits_others);
        awaiting.map(|(name, _)| name.clone()).collect()
    }

    /// Forgets an extension that is gone.
    pub fn forget(&self, name: &str) {
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}
