//! Work of the controllers, as keys of the queue.

use olm_classic::cluster::text;
use serde_json::Value;

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Name {
    /// The name in a namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The name of an object.
    pub fn of(object: &Value) -> Self {
        Self::new(
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        )
    }
}

impl std::fmt::Display for Name {
    /// `NAMESPACE/NAME`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Passes over a ClusterServiceVersion.
    Csv(Name),
    /// A pass over an OperatorGroup.
    Group(Name),
    /// The labels of a namespace.
    Namespace(String),
    /// The copies of a ClusterServiceVersion.
    Copies(Name),
    /// The OperatorCondition of a ClusterServiceVersion.
    Condition(Name),
    /// The label of objects that a Subscription has installed.
    Subscription(Name),
    /// The labels of objects that a ClusterServiceVersion owns.
    Owned(Name),
    /// An Operator.
    Component(String),
    /// An OLMConfig.
    Config(String),
}
