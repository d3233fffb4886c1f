//! The objects that a pass reads.

use serde_json::Value;

/// Objects as they are on the wire, with `apiVersion` and `kind`. Namespace and name identify an object of a kind.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    objects: Vec<Value>,
}

impl Cluster {
    /// The objects of a kind in a namespace, or with this name at cluster scope: in the order given.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .iter()
            .filter(move |object| text(object, "/kind") == kind)
    }

    /// The objects of a kind in a namespace, in the order given.
    pub fn in_namespace<'a>(&'a self, kind: &'a str, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        self.of_kind(kind)
            .filter(move |object| text(object, "/metadata/namespace") == namespace)
    }

    /// The object of this kind, namespace (empty at cluster scope) and name.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.iter().find(|object| {
            text(object, "/kind") == kind
                && text(object, "/metadata/namespace") == namespace
                && text(object, "/metadata/name") == name
        })
    }
}

impl FromIterator<Value> for Cluster {
    fn from_iter<T: IntoIterator<Item = Value>>(objects: T) -> Self {
        Self {
            objects: objects.into_iter().collect(),
        }
    }
}

/// The text at a JSON pointer, empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
