//! The `CustomResourceDefinitions`, as files.
//!
//! One set for all clusters: the superset that the reference ships as experimental. Schemas are written with
//! [`schema`]'s few words instead of being derived, because what users and other programs meet is the schema: its
//! rules, messages, defaults and list types are a contract of their own.

mod catalog;
mod change_policy;
mod extension;
mod object_set;
mod pending_change;
mod reference;
mod schema;
mod version_pattern;
mod yaml;

use serde_json::{Value, json};

pub use reference::reference;
pub use version_pattern::{VersionPattern, version_pattern};

use crate::names;
use schema::{Schema, array, boolean_enum, integer, object, string};

/// A DNS-1123 label: letters, digits and hyphens.
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS-1123 subdomain: labels joined by dots.
const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name, without a folder.
    pub name: &'static str,
    /// Its text.
    pub yaml: String,
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
    .map(|(name, definition)| File {
        name,
        yaml: yaml::document(&definition),
    })
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

/// A column of `kubectl get`.
struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
}

/// What `kubectl get` shows of a kind.
struct Columns<'a> {
    /// Always: those of the reference, in its order, and what tells the states of an object apart.
    always: &'a [Column],
    /// With `-o wide`, after the others.
    wide: &'a [Column],
}

/// The column that every kind closes with.
const AGE: Column = Column {
    name: "Age",
    kind: "date",
    path: ".metadata.creationTimestamp",
};

/// Whether something is still to be done.
const PROGRESSING: Column = Column {
    name: "Progressing",
    kind: "string",
    path: ".status.conditions[?(@.type=='Progressing')].status",
};

/// Whether all is well.
const READY: Column = Column {
    name: "Ready",
    kind: "string",
    path: ".status.conditions[?(@.type=='Ready')].status",
};

/// In one word, what state the object is in.
const STATUS: Column = Column {
    name: "Status",
    kind: "string",
    path: ".status.conditions[?(@.type=='Ready')].reason",
};

/// Why the last step was or was not taken.
const REASON: Column = Column {
    name: "Reason",
    kind: "string",
    path: ".status.conditions[?(@.type=='Progressing')].reason",
};

/// A cluster-scoped definition with one version, served and stored, and a status subresource.
fn definition(kind: &str, short_name: &str, columns: &Columns<'_>, root: Schema) -> Value {
    let singular = kind.to_ascii_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    };
    let always = columns
        .always
        .iter()
        .map(|c| json!({"jsonPath": c.path, "name": c.name, "type": c.kind}));
    let wide = columns
        .wide
        .iter()
        .map(|c| json!({"jsonPath": c.path, "name": c.name, "type": c.kind, "priority": 1}));
    let columns: Vec<Value> = always.chain(wide).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{}", names::GROUP),
            "annotations": {names::annotation::GENERATOR: "experimental"},
        },
        "spec": {
            "group": names::GROUP,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": singular,
                "shortNames": [short_name],
                "categories": ["olm"],
            },
            "scope": "Cluster",
            "versions": [{
                "name": names::VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": root.into_value()},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// The root of a kind's schema.
fn root(description: &str, spec: Schema, status: Schema) -> Schema {
    object(description)
        .property(
            "apiVersion",
            string("The version of the schema that this object is written in."),
        )
        .property("kind", string("The kind of this object."))
        .property("metadata", Schema::bare_object())
        .property("spec", spec)
        .property("status", status)
}

/// A list of conditions, keyed by type.
fn conditions(description: &str) -> Schema {
    let qualified = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
    let item = object("One aspect of the object's state.")
        .required(
            "lastTransitionTime",
            string("When the status last changed.").format("date-time"),
        )
        .required(
            "message",
            string("Details for a reader; may be empty.").max_length(32_768),
        )
        .property(
            "observedGeneration",
            integer("The generation of the object that this was said about.", "int64").minimum(0),
        )
        .required(
            "reason",
            string("The reason for the last change, in CamelCase.")
                .length(1, 1024)
                .pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        )
        .required(
            "status",
            boolean_enum("Whether it holds.", &["True", "False", "Unknown"]),
        )
        .required("type", string("Which aspect.").max_length(316).pattern(qualified));
    array(description, item).map_list("type")
}

/// The root of a kind's status. Until its controller has seen an object, the default says so: kstatus takes an object
/// without `observedGeneration` for one whose controller never sets it.
fn status_root(description: &str) -> Schema {
    let observed = "The generation of the object that the conditions are about; -1 before the controller has seen the object.";
    object(description)
        .default_value(json!({"observedGeneration": -1}))
        .property("observedGeneration", integer(observed, "int64"))
}

/// What the conditions for tools mean, the same of every kind.
const TOOLS: &str = "Ready: the object matches its spec and works. Reconciling: the controller works on it. Stalled: a user must change something first.";

/// A label selector as Kubernetes defines it.
fn label_selector(description: &str) -> Schema {
    let expression = object("A requirement on one label.")
        .required("key", string("The label."))
        .required("operator", string("In, NotIn, Exists or DoesNotExist."))
        .property(
            "values",
            array("The values for In and NotIn; absent for the others.", string("")).list_type("atomic"),
        );
    object(description)
        .property(
            "matchExpressions",
            array("Requirements that must all hold.", expression).list_type("atomic"),
        )
        .property(
            "matchLabels",
            Schema::string_map("Labels that must all have these values."),
        )
        .extension("x-kubernetes-map-type", json!("atomic"))
}

#[cfg(test)]
mod tests;
