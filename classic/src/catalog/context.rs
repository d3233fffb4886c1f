//! State that the controllers of Subscriptions and InstallPlans share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use olm_classic::cluster::{Cluster, items, text};
use olm_cluster::identity::AccountName;
use olm_platform::events::Notice;
use olm_platform::queue::Queue;
use parking_lot::Mutex;
use serde_json::Value;

use super::metrics::CatalogMetrics;
use super::repeats::Repeats;
use super::resolution::Resolutions;
use super::unpack::Unpacker;
use super::verdicts::Verdicts;
use crate::base::{Base, reference};
use crate::registry::policies::Policies;
use crate::registry::sources::Sources;

/// Shared state of the controllers.
pub struct Context {
    /// The shared state of the program.
    pub base: Arc<Base>,
    /// The catalogs.
    pub sources: Arc<Sources>,
    /// The namespace whose catalogs are visible everywhere.
    pub global: String,
    /// The signature policies.
    pub policies: Arc<Policies>,
    /// Unpacks bundles.
    pub unpacker: Unpacker,
    /// The default time limit for unpacking, for OperatorGroups that set none.
    pub unpack_timeout: SignedDuration,
    /// The time during which a failing plan is retried.
    pub retry_for: SignedDuration,
    /// The account that CustomResourceDefinitions are written under; `None`: that of the other content.
    pub definitions: Option<AccountName>,
    /// Earlier resolutions.
    pub resolutions: Resolutions,
    /// The metrics.
    pub metrics: CatalogMetrics,
    /// Namespaces to work on.
    pub namespaces: Queue<String>,
    /// InstallPlans to work on, by namespace and name.
    pub plans: Queue<(String, String)>,
    /// What the signature policies say about installed bundles.
    pub verdicts: Verdicts,
    /// Failed InstallPlans whose account may have other rights now.
    pub resumed: Mutex<BTreeSet<(String, String)>>,
    /// Complete InstallPlans of which somebody may have deleted objects, with the times from which they are repaired.
    pub repairs: Mutex<BTreeMap<(String, String), Instant>>,
    /// What InstallPlans that wait for their approval would replace, as it was looked at last.
    pub previews: Mutex<BTreeMap<(String, String), u64>>,
    /// When events of namespaces were recorded.
    pub repeats: Repeats,
}

impl Context {
    /// Records warning events of an object, as reason and message.
    pub fn warn(&self, object: &Value, warnings: impl IntoIterator<Item = (String, String)>) {
        self.warn_of(reference(object), warnings);
    }

    /// Records warning events of a part of an object, as reason and message.
    pub fn warn_about(&self, object: &Value, part: String, warning: (String, String)) {
        let reference = ObjectReference {
            field_path: Some(part),
            ..reference(object)
        };
        self.warn_of(reference, [warning]);
    }

    fn warn_of(&self, about: ObjectReference, warnings: impl IntoIterator<Item = (String, String)>) {
        let notices = warnings.into_iter().map(|(reason, note)| Notice {
            is_fault: true,
            reason,
            note,
        });
        self.base.events.publish(about, notices.collect());
    }
}

/// The one OperatorGroup of a namespace.
///
/// # Errors
/// Their names, where there is not exactly one.
pub fn operator_group<'a>(cluster: &'a Cluster, namespace: &'a str) -> Result<&'a Value, Vec<&'a str>> {
    let groups: Vec<&Value> = cluster
        .in_namespace(olm_classic::names::OPERATOR_GROUP_KIND, namespace)
        .collect();
    match groups[..] {
        [group] => Ok(group),
        _ => Err(groups.iter().map(|group| text(group, "/metadata/name")).collect()),
    }
}

/// The names in a list of Subscriptions' conditions that hold, for logs.
pub fn holding(object: &Value) -> Vec<&str> {
    let conditions = items(object, "/status/conditions");
    let conditions = conditions.filter(|found| text(found, "/status") == "True");
    conditions.map(|found| text(found, "/type")).collect()
}
