//! Objects in a cluster: identities and owners.

pub mod canonical;
pub mod inheritance;
pub mod ownership;

use std::fmt;

use olm_api::object::text;
use olm_api::text::escape;
use serde_json::Value;

/// Names an object of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The API group; empty: core.
    pub group: String,
    /// The version in the group.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectId {
    /// The identity in an object's fields. Absent fields are empty.
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| text(object, pointer);
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("/kind").to_owned(),
            namespace: text("/metadata/namespace").to_owned(),
            name: text("/metadata/name").to_owned(),
        }
    }

    /// Group and version in the form of `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `GROUP/VERSION, Kind=KIND NAMESPACE/NAME`, the form of errors.
    pub fn reference(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
            ..
        } = self;
        let text = format!("{}, Kind={kind} {namespace}/{name}", self.api_version());
        escape(&text).into_owned()
    }
}

impl fmt::Display for ObjectId {
    /// `KIND.GROUP/VERSION NAMESPACE/NAME`, the form of conditions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
            ..
        } = self;
        let text = format!("{kind}.{} {namespace}/{name}", self.api_version());
        f.write_str(&escape(&text))
    }
}
