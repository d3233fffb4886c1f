//! The objects that a pass reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::names;

/// Kinds of which only objects labelled as managed are watched.
const FILTERED_KINDS: &[&str] = &[
    "ClusterRole",
    "ClusterRoleBinding",
    "Deployment",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
];

/// The objects of a kind, by namespace and name.
type Objects = BTreeMap<(String, String), Arc<Value>>;

/// Objects as they are on the wire. Kind, namespace and name identify an object: the kinds that the rules read have
/// different names.
///
/// A clone shares the objects: it costs the same whatever they hold.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    kinds: BTreeMap<String, Arc<Objects>>,
}

impl Cluster {
    /// The objects of a kind, sorted by namespace and name.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let objects = self.kinds.get(kind).into_iter();
        objects.flat_map(|objects| objects.values()).map(Arc::as_ref)
    }

    /// The objects of a kind in a namespace, sorted by name.
    pub fn in_namespace<'a>(&'a self, kind: &str, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        let start = (namespace.to_owned(), String::new());
        self.kinds
            .get(kind)
            .into_iter()
            .flat_map(move |objects| objects.range(start.clone()..))
            .take_while(move |((found, _), _)| found == namespace)
            .map(|(_, object)| object.as_ref())
    }

    /// The object of this kind, namespace (empty at cluster scope) and name.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.shared(kind, namespace, name).map(Arc::as_ref)
    }

    /// The same where a watch shows it: not one that OLM does not manage, of the kinds where it watches its own only.
    pub fn get_watched(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let is_filtered = FILTERED_KINDS.contains(&kind);
        self.get(kind, namespace, name)
            .filter(|object| !is_filtered || label(object, names::MANAGED_LABEL) == "true")
    }

    /// The same, to be kept.
    pub fn shared(&self, kind: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.kinds
            .get(kind)?
            .get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Adds an object, or replaces the one of the same kind, namespace and name, which is returned.
    pub fn insert(&mut self, object: Arc<Value>) -> Option<Arc<Value>> {
        let kind = text(&object, "/kind").to_owned();
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let name = text(&object, "/metadata/name").to_owned();
        Arc::make_mut(self.kinds.entry(kind).or_default()).insert((namespace, name), object)
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let objects = self.kinds.get_mut(kind)?;
        Arc::make_mut(objects).remove(&(namespace.to_owned(), name.to_owned()))
    }

    /// Objects that a watch shows: without objects that OLM does not manage, of the kinds where it watches its own
    /// only.
    #[must_use]
    pub fn watched(&self) -> Self {
        let kinds = self.kinds.iter().map(|(kind, objects)| {
            if !FILTERED_KINDS.contains(&kind.as_str()) {
                return (kind.clone(), Arc::clone(objects));
            }
            let watched = objects.iter();
            let watched = watched.filter(|(_, object)| label(object, names::MANAGED_LABEL) == "true");
            let watched = watched.map(|(key, object)| (key.clone(), Arc::clone(object)));
            (kind.clone(), Arc::new(watched.collect()))
        });
        Self {
            kinds: kinds.collect(),
        }
    }
}

impl FromIterator<Value> for Cluster {
    fn from_iter<T: IntoIterator<Item = Value>>(objects: T) -> Self {
        let mut cluster = Self::default();
        for object in objects {
            cluster.insert(Arc::new(object));
        }
        cluster
    }
}

/// The kinds that the API server serves, by `group/version`; the core group is `version` alone.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    served: BTreeMap<String, BTreeSet<String>>,
    /// Versions of groups whose server, behind the API server, is unavailable.
    unavailable: BTreeSet<String>,
}

impl Discovery {
    /// Notes a version of a group that is served, and a kind of it.
    pub fn note(&mut self, group: &str, version: &str, kind: Option<&str>) {
        let kinds = self.served.entry(group_version(group, version)).or_default();
        kinds.extend(kind.map(str::to_owned));
    }

    /// Notes a version of a group whose server, behind the API server, is unavailable.
    pub fn note_unavailable(&mut self, group: &str, version: &str) {
        self.unavailable.insert(group_version(group, version));
    }

    /// Whether the server of the version of the group, behind the API server, is unavailable.
    pub fn is_unavailable(&self, group: &str, version: &str) -> bool {
        self.unavailable.contains(&group_version(group, version))
    }

    /// Whether the kind is served. The core group is empty.
    pub fn serves(&self, group: &str, version: &str, kind: &str) -> bool {
        self.served
            .get(&group_version(group, version))
            .is_some_and(|kinds| kinds.contains(kind))
    }

    /// Whether the version of the group is served.
    pub fn has(&self, group: &str, version: &str) -> bool {
        self.served.contains_key(&group_version(group, version))
    }
}

/// The core group is empty, and left out.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

impl FromIterator<(String, BTreeSet<String>)> for Discovery {
    fn from_iter<T: IntoIterator<Item = (String, BTreeSet<String>)>>(served: T) -> Self {
        Self {
            served: served.into_iter().collect(),
            unavailable: BTreeSet::new(),
        }
    }
}

/// The value at a JSON pointer without escapes. `Value::pointer` allocates for each key, and passes look up thousands.
fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut keys = pointer.split('/');
    if keys.next() != Some("") {
        return None;
    }
    keys.try_fold(object, |here, key| match here {
        Value::Object(fields) => fields.get(key),
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The text at a JSON pointer without escapes, empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The value of a label, empty where there is none.
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    at(object, "/metadata/labels")
        .and_then(|labels| labels.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// An annotation; empty where there is none.
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    at(object, "/metadata/annotations")
        .and_then(|annotations| annotations.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The items of a list at a JSON pointer without escapes; none where there is no list.
pub fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    at(object, pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The object at a path, made where it is absent or null; `None` where something else is on the way.
pub(crate) fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut here = value;
    for key in path {
        here = here.as_object_mut()?.entry(*key).or_insert(Value::Null);
        if here.is_null() {
            *here = json!({});
        }
    }
    here.as_object_mut()
}

/// Sets a field of the object at a path.
pub(crate) fn put(value: &mut Value, path: &[&str], key: &str, field: impl Into<Value>) {
    if let Some(object) = object_at(value, path) {
        object.insert(key.to_owned(), field.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, namespace: &str, name: &str) -> Value {
        json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}})
    }

    #[test]
    fn a_namespace_has_only_its_own_objects() {
        let cluster: Cluster = [
            object("Role", "b", "x"),
            object("Role", "a", "z"),
            object("Role", "a", "y"),
            object("Other", "a", "y"),
        ]
        .into_iter()
        .collect();
        let names: Vec<&str> = cluster
            .in_namespace("Role", "a")
            .map(|role| text(role, "/metadata/name"))
            .collect();
        assert_eq!(names, ["y", "z"]);
        assert!(cluster.get("Role", "b", "x").is_some());
        assert!(cluster.get("Role", "b", "y").is_none());
    }

    #[test]
    fn a_pointer_finds_what_that_of_json_finds() {
        let object = json!({"a": {"b": ["x", {"c": "y"}], "": "z"}, "0": "w"});
        let pointers = [
            "", "/", "/a", "/a/", "/a/b/0", "/a/b/1/c", "/a/b/2", "/a/b/x", "/a/c", "/a/b/0/d", "/0", "a",
        ];
        for pointer in pointers {
            assert_eq!(at(&object, pointer), object.pointer(pointer), "{pointer}");
        }
    }

    #[test]
    fn a_watch_shows_only_managed_roles() {
        let mut managed = object("Role", "a", "managed");
        managed["metadata"]["labels"] = json!({"olm.managed": "true"});
        let cluster: Cluster = [
            managed,
            object("Role", "a", "foreign"),
            object("Namespace", "", "a"),
        ]
        .into_iter()
        .collect();
        let watched = cluster.watched();
        assert_eq!(watched.of_kind("Role").count(), 1);
        assert_eq!(watched.of_kind("Namespace").count(), 1);
        assert!(cluster.get_watched("Role", "a", "managed").is_some());
        assert!(cluster.get_watched("Role", "a", "foreign").is_none());
        assert!(cluster.get_watched("Namespace", "", "a").is_some());
    }

    #[test]
    fn the_core_group_has_no_name() {
        let served = [
            ("v1".to_owned(), BTreeSet::from(["Pod".to_owned()])),
            ("apps/v1".to_owned(), BTreeSet::from(["Deployment".to_owned()])),
        ];
        let discovery: Discovery = served.into_iter().collect();
        assert!(discovery.serves("", "v1", "Pod"));
        assert!(discovery.serves("apps", "v1", "Deployment"));
        assert!(!discovery.serves("apps", "v1", "Pod"));
    }
}
