//! What a ClusterServiceVersion installs: the Deployments of its install strategy.

use serde_json::Value;

use crate::cluster::{Cluster, items, label, text};
use crate::csv::ClusterServiceVersion;
use crate::{hash, names, wire};

mod deployment;
mod overrides;
mod shapes;

/// What an installation wants done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Installed {
    /// The Deployments, whole, in the order of the strategy.
    pub written: Vec<Value>,
    /// The names of Deployments of this ClusterServiceVersion that its strategy no longer names.
    pub deleted: Vec<String>,
}

/// The Deployments that a ClusterServiceVersion wants, with their labels and owner.
///
/// `object` is the ClusterServiceVersion on the wire, and `csv` what was read of it.
pub fn deployments(object: &Value, csv: &ClusterServiceVersion, cluster: &Cluster) -> Vec<Value> {
    let config = overrides::config(csv, cluster);
    let strategy = csv.spec.install.spec.deployments.iter();
    strategy
        .map(|entry| deployment::deployment(object, csv, entry, config))
        .collect()
}

/// What is to be written and deleted so that the Deployments are those of the strategy.
pub fn install(object: &Value, csv: &ClusterServiceVersion, cluster: &Cluster) -> Installed {
    let strategy = &csv.spec.install.spec.deployments;
    let is_orphan = |found: &&Value| {
        let name = text(found, "/metadata/name");
        let mut owners = items(found, "/metadata/ownerReferences");
        is_of(found, csv)
            && owners.any(|owner| text(owner, "/uid") == csv.metadata.uid)
            && !strategy.iter().any(|entry| entry.name == name)
    };
    let watched = cluster.watched();
    let orphans = watched
        .in_namespace(names::DEPLOYMENT_KIND, &csv.metadata.namespace)
        .filter(is_orphan);
    Installed {
        written: deployments(object, csv, cluster),
        deleted: orphans
            .map(|found| text(found, "/metadata/name").to_owned())
            .collect(),
    }
}

/// Whether the labels of an object name this ClusterServiceVersion as its owner.
pub fn is_of(object: &Value, csv: &ClusterServiceVersion) -> bool {
    label(object, names::OWNER_LABEL) == csv.metadata.name
        && label(object, names::OWNER_NAMESPACE_LABEL) == csv.metadata.namespace
        && label(object, names::OWNER_KIND_LABEL) == names::CSV_KIND
}

/// The value of the label `olm.deployment-spec-hash`.
pub fn spec_hash(spec: &Value) -> String {
    hash::text(&format!("{}\n", wire::write(spec, shapes::DEPLOYMENT_SPEC)))
}
