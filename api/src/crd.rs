//! The `CustomResourceDefinitions`, as files.
//!
//! One set for all clusters: the superset that the reference implementation ships as experimental. Schemas are written
//! with the builders in [`schema`] instead of being derived, because users and other programs depend on the schema
//! itself: its rules, messages, defaults and list types.

mod catalog;
mod change_policy;
pub mod definition;
mod extension;
pub mod meta;
mod object_set;
mod operator_condition;
mod pending_change;
mod reference;
pub mod schema;
mod version_pattern;
mod yaml;

use serde_json::{Value, json};

pub use operator_condition::definition as operator_condition;
pub use reference::reference;
pub use version_pattern::{VersionPattern, version_pattern};

use crate::names;
use definition::{Column, Columns, Kind, Scope, Version};
use meta::{condition, label_selector, root};
use schema::{Schema, array, integer, object};

/// A DNS-1123 label: letters, digits and hyphens.
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS-1123 subdomain: labels joined by dots.
const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The name, without a folder.
    pub name: &'static str,
    /// The text.
    pub yaml: String,
}

impl File {
    /// A file with an object.
    pub fn new(name: &'static str, object: &Value) -> Self {
        Self {
            name,
            yaml: yaml::document(object),
        }
    }
}

/// Every `CustomResourceDefinition` as a file for `manifests/crds`.
pub fn files() -> Vec<File> {
    [
        (
            "olm.operatorframework.io_changepolicies.yaml",
            change_policy::definition(),
        ),
        (
            "olm.operatorframework.io_clustercatalogs.yaml",
            catalog::definition(),
        ),
        (
            "olm.operatorframework.io_clusterextensions.yaml",
            extension::definition(),
        ),
        (
            "olm.operatorframework.io_clusterobjectsets.yaml",
            object_set::definition(),
        ),
        (
            "olm.operatorframework.io_pendingchanges.yaml",
            pending_change::definition(),
        ),
    ]
    .into_iter()
    .map(|(name, definition)| File::new(name, &definition))
    .collect()
}

/// Every `CustomResourceDefinition` as an object.
pub fn definitions() -> Vec<Value> {
    vec![
        catalog::definition(),
        extension::definition(),
        object_set::definition(),
        change_policy::definition(),
        pending_change::definition(),
    ]
}

/// The column that every kind closes with.
const AGE: Column = Column {
    name: "Age",
    kind: "date",
    path: ".metadata.creationTimestamp",
};

/// Whether work remains.
const PROGRESSING: Column = Column {
    name: "Progressing",
    kind: "string",
    path: ".status.conditions[?(@.type=='Progressing')].status",
};

/// Whether the object is ready.
const READY: Column = Column {
    name: "Ready",
    kind: "string",
    path: ".status.conditions[?(@.type=='Ready')].status",
};

/// The state of the object in one word.
const STATUS: Column = Column {
    name: "Status",
    kind: "string",
    path: ".status.conditions[?(@.type=='Ready')].reason",
};

/// The reason for the last step or its omission.
const REASON: Column = Column {
    name: "Reason",
    kind: "string",
    path: ".status.conditions[?(@.type=='Progressing')].reason",
};

/// A definition of OLM v1: cluster-scoped, with one version, served and stored.
fn definition(kind: &str, short_name: &str, columns: &Columns<'_>, root: Schema) -> Value {
    let kind = Kind {
        group: names::GROUP,
        kind,
        short_names: &[short_name],
        scope: Scope::Cluster,
        annotations: &[(names::annotation::GENERATOR, "experimental")],
    };
    let version = Version {
        name: names::VERSION,
        storage: true,
        columns,
        root,
    };
    kind.definition([version])
}

/// A list of conditions, keyed by type.
fn conditions(description: &str) -> Schema {
    array(description, condition()).map_list(&["type"])
}

/// The root of a kind's status. Its default marks an object that its controller has not processed yet, because kstatus
/// treats an object without `observedGeneration` as one whose controller never sets it.
fn status_root(description: &str) -> Schema {
    let observed = "The generation of the object that the conditions are about; -1 before the controller has seen the object.";
    object(description)
        .default_value(json!({"observedGeneration": -1}))
        .property("observedGeneration", integer(observed, "int64"))
}

/// The meaning of the conditions for tools, which is the same for every kind.
const TOOLS: &str = "Ready: the object matches its spec and works. Reconciling: the controller works on it. Stalled: a user must change something first.";

#[cfg(test)]
mod tests;
