//! Installation of a ClusterServiceVersion: the Deployments of its install strategy, and the objects that the API
//! server needs to call them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, items, label, text};
use crate::csv::ClusterServiceVersion;
use crate::{hash, names, wire};

pub(crate) mod certificate;
pub mod ownership;
pub mod rbac;
pub mod serving;

mod callers;
mod deployment;
mod overrides;
mod proxy;

pub use callers::webhook_hash;

/// A certificate with its key and authority, each PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The authority that signed it.
    pub authority: String,
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The expiry time.
    pub expires: Timestamp,
}

/// Issuer of certificates. One installation has one authority.
pub trait Issuer {
    /// Makes a certificate for these hosts; the first is its common name.
    ///
    /// # Errors
    /// The reason why the certificate cannot be made.
    fn issue(&self, hosts: &[String]) -> Result<IssuedCertificate, String>;

    /// Time when the earlier one of a certificate and its authority, both PEM, must be renewed; `None` where that is
    /// unknown. A text that is no certificate must be renewed at once.
    fn due(&self, _certificate: &str, _authority: &str) -> Option<Timestamp> {
        None
    }
}

/// Input of an installation.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The existing objects.
    pub cluster: &'a Cluster,
    /// The issuer of certificates.
    pub issuer: &'a dyn Issuer,
    /// The time.
    pub now: Timestamp,
}

/// Result of an installation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Installed {
    /// The objects to write, whole, in their order: those that the cluster lacks or holds with other content.
    pub written: Vec<Value>,
    /// The names of Deployments of this ClusterServiceVersion that its strategy no longer names.
    pub deleted: Vec<String>,
    /// The time at which the first of the certificates is due, where its end can be read.
    pub due: Option<Timestamp>,
    /// Whether a certificate was made.
    pub is_certified: bool,
    /// Error that keeps the rest from being installed.
    pub error: Option<String>,
}

/// The Deployments that a ClusterServiceVersion wants, with their labels and owner, where the certificates are those by
/// which they are called. Nothing where that is not known: an APIService, a webhook configuration, a Secret or a
/// Deployment is missing.
///
/// `object` is the ClusterServiceVersion on the wire, and `csv` the same object, parsed.
pub fn deployments(object: &Value, csv: &ClusterServiceVersion, cluster: &Cluster) -> Option<Vec<Value>> {
    let authorities = callers::authorities(csv, cluster)?;
    Some(strategy_deployments(object, csv, cluster, &authorities))
}

fn strategy_deployments(
    object: &Value,
    csv: &ClusterServiceVersion,
    cluster: &Cluster,
    authorities: &callers::Authorities<'_>,
) -> Vec<Value> {
    let overrides = overrides::Overrides::of(csv, cluster);
    let strategy = csv.spec.install.spec.deployments.iter();
    strategy
        .map(|entry| {
            let authority = authorities.get(entry.name.as_str()).map(Vec::as_slice);
            deployment::deployment(object, csv, entry, &overrides, authority)
        })
        .collect()
}

/// The objects to write and delete so that all Deployments of the strategy run and are called.
pub fn install(object: &Value, csv: &ClusterServiceVersion, setting: Setting<'_>) -> Installed {
    let cluster = setting.cluster;
    let mut installed = Installed::default();
    let mut authorities = BTreeMap::new();
    for deployment in serving::called(csv) {
        match serving::serve(object, csv, deployment, setting) {
            Ok(served) => {
                installed.written.extend(served.objects);
                authorities.insert(deployment, served.authority);
                installed.due = installed.due.into_iter().chain(served.due).min();
                installed.is_certified |= served.is_made;
            }
            Err(error) => {
                installed.error = Some(error);
                return installed;
            }
        }
    }
    let mut callers = Vec::new();
    for (index, deployment) in strategy_deployments(object, csv, cluster, &authorities)
        .into_iter()
        .enumerate()
    {
        installed.written.push(deployment);
        if index > 0 {
            continue;
        }
        if let Err(error) = callers::write(csv, &authorities, cluster, &mut callers) {
            installed.error = Some(error);
            break;
        }
    }
    // Existing callers trust a new authority before anything serves with its certificate.
    let (calling, mut later): (Vec<Value>, Vec<Value>) = callers
        .into_iter()
        .partition(|object| callers::is_calling(object, cluster));
    installed.written.splice(..0, calling);
    installed.written.append(&mut later);
    installed.written.retain(|object| {
        let found = cluster.get(
            text(object, "/kind"),
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        );
        found != Some(object)
    });
    if installed.error.is_none() {
        installed.deleted = orphans(csv, cluster);
    }
    installed
}

/// Deployments of a ClusterServiceVersion that its strategy does not name.
fn orphans(csv: &ClusterServiceVersion, cluster: &Cluster) -> Vec<String> {
    let strategy = &csv.spec.install.spec.deployments;
    let is_orphan = |found: &&Value| {
        let name = text(found, "/metadata/name");
        let mut owners = items(found, "/metadata/ownerReferences");
        label(found, names::MANAGED_LABEL) == "true"
            && is_of(found, csv)
            && owners.any(|owner| text(owner, "/uid") == csv.metadata.uid)
            && !strategy.iter().any(|entry| entry.name == name)
    };
    let orphans = cluster
        .in_namespace(names::DEPLOYMENT_KIND, &csv.metadata.namespace)
        .filter(is_orphan);
    orphans
        .map(|found| text(found, "/metadata/name").to_owned())
        .collect()
}

/// Whether the labels of an object name this ClusterServiceVersion as its owner.
pub fn is_of(object: &Value, csv: &ClusterServiceVersion) -> bool {
    let labels = [
        names::OWNER_LABEL,
        names::OWNER_NAMESPACE_LABEL,
        names::OWNER_KIND_LABEL,
    ];
    labels.map(|key| label(object, key)) == [&csv.metadata.name, &csv.metadata.namespace, names::CSV_KIND]
}

/// The labels by which the objects of a ClusterServiceVersion are found.
fn owner_labels(csv: &ClusterServiceVersion) -> Map<String, Value> {
    let labels = [
        (names::OWNER_LABEL, csv.metadata.name.as_str()),
        (names::OWNER_NAMESPACE_LABEL, csv.metadata.namespace.as_str()),
        (names::OWNER_KIND_LABEL, names::CSV_KIND),
    ];
    labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
}

/// The owner reference to a ClusterServiceVersion.
pub(crate) fn owner_reference(csv: &Value) -> Value {
    json!({
        "apiVersion": names::CSV_API_VERSION,
        "kind": names::CSV_KIND,
        "name": text(csv, "/metadata/name"),
        "uid": text(csv, "/metadata/uid"),
        "controller": false,
        "blockOwnerDeletion": false,
    })
}

/// The value of the label `olm.deployment-spec-hash`.
pub fn spec_hash(spec: &Value) -> String {
    hash::text(&format!(
        "{}\n",
        wire::write(spec, wire::deployment::DEPLOYMENT_SPEC)
    ))
}
