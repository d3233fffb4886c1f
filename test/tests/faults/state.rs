//! The state of the cluster about a name, as lines for the comparison of two runs.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use olm_api::ClusterObjectSet;
use olm_api::names::{
    CHANGE_POLICY, GROUP, OBJECT_DATA_SECRET_TYPE, PENDING_CHANGE, SYSTEM_NAMESPACE, annotation, label,
    operator_condition,
};
use olm_test::extensions::content;
use olm_test::world::World;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The scope of a search for objects of a kind.
#[derive(Clone, Copy)]
enum Scope {
    Cluster,
    /// The namespace of the extension.
    Own,
    /// The namespace of the managers.
    System,
}

/// Group, version, plural and kind of the compared objects.
const KINDS: &[(&str, &str, &str, &str, Scope)] = &[
    (
        GROUP,
        "v1",
        "clusterextensions",
        "ClusterExtension",
        Scope::Cluster,
    ),
    (
        GROUP,
        "v1",
        "clusterobjectsets",
        "ClusterObjectSet",
        Scope::Cluster,
    ),
    (GROUP, "v1", "clustercatalogs", "ClusterCatalog", Scope::Cluster),
    (GROUP, "v1", "pendingchanges", PENDING_CHANGE, Scope::Cluster),
    (GROUP, "v1", "changepolicies", CHANGE_POLICY, Scope::Cluster),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        Scope::Cluster,
    ),
    (RBAC, "v1", "clusterroles", "ClusterRole", Scope::Cluster),
    (
        RBAC,
        "v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        Scope::Cluster,
    ),
    (RBAC, "v1", "roles", "Role", Scope::Own),
    (RBAC, "v1", "rolebindings", "RoleBinding", Scope::Own),
    ("", "v1", "serviceaccounts", "ServiceAccount", Scope::Own),
    ("", "v1", "services", "Service", Scope::Own),
    ("", "v1", "configmaps", "ConfigMap", Scope::Own),
    ("", "v1", "secrets", "Secret", Scope::Own),
    ("", "v1", "secrets", "Secret", Scope::System),
    ("", "v1", "configmaps", "ConfigMap", Scope::System),
    ("apps", "v1", "deployments", "Deployment", Scope::Own),
    (
        operator_condition::GROUP,
        operator_condition::VERSION,
        operator_condition::PLURAL,
        operator_condition::KIND,
        Scope::Own,
    ),
];
const RBAC: &str = "rbac.authorization.k8s.io";

/// Keys whose values differ from run to run.
const VARYING: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "lastTransitionTime",
    "lastUnpacked",
    "lastSuccessfulPollAttempt",
    "digest",
    "caBundle",
    "clusterIP",
    "clusterIPs",
    "extensionUID",
    annotation::OWNER_UID,
    annotation::PENDING_CHANGE,
    annotation::LAST_APPLIED,
    "deployment.kubernetes.io/revision",
];

/// The prefix of the names of catalogs with many packages; a number follows.
pub(crate) const CATALOG: &str = "packages-";
/// The placeholder for a value that is computed from a name.
const COMPUTED: &str = "COMPUTED";
/// The number of letters of a shortened name that stay before the computed part.
const SHORTENED: usize = 4;

/// The state of the cluster about a name.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The values by path in an object, without the name and computed values.
    lines: BTreeMap<String, String>,
    /// The UIDs.
    uids: BTreeMap<String, String>,
}

/// Whether revisions are compared by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revisions {
    Numbered,
    /// Only the last revision is compared, whatever its number.
    Last,
}

impl State {
    /// The state of the cluster about an extension.
    pub(crate) async fn of(world: &World, name: &str, revisions: Revisions) -> Result<Self> {
        let mut found = Vec::new();
        let stored = (
            format!("{name}.olm.example"),
            "v1".to_owned(),
            "greetings".to_owned(),
            "Greeting".to_owned(),
            Scope::Own,
        );
        let kinds = KINDS.iter().map(|(group, version, plural, kind, scope)| {
            let [group, version, plural, kind] =
                [group, version, plural, kind].map(|text| (*text).to_owned());
            (group, version, plural, kind, *scope)
        });
        for (group, version, plural, kind, scope) in kinds.chain([stored]) {
            let resource = ApiResource {
                api_version: if group.is_empty() {
                    version.clone()
                } else {
                    format!("{group}/{version}")
                },
                group,
                version,
                kind: kind.clone(),
                plural,
            };
            let client = world.client.clone();
            let api: Api<DynamicObject> = match scope {
                Scope::Cluster => Api::all_with(client, &resource),
                Scope::Own => Api::namespaced_with(client, name, &resource),
                Scope::System => Api::namespaced_with(client, SYSTEM_NAMESPACE, &resource),
            };
            let listed = match api.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                listed => listed?,
            };
            for object in listed {
                let object = serde_json::to_value(object)?;
                if object.to_string().contains(name) {
                    found.push((kind.clone(), object));
                }
            }
        }
        Self::from_objects(world, name, revisions, found).await
    }

    async fn from_objects(
        world: &World,
        name: &str,
        revisions: Revisions,
        mut found: Vec<(String, Value)>,
    ) -> Result<Self> {
        for (kind, object) in &mut found {
            if kind == "ClusterObjectSet" {
                let set: ClusterObjectSet = serde_json::from_value(object.clone())?;
                let objects = content(&world.client, &set).await;
                object["spec"]["phases"] = match objects {
                    // Names that are computed decide about the order.
                    Ok(mut objects) => {
                        objects.sort_by_cached_key(|object| steady(&object.to_string(), name, None));
                        json!(objects)
                    }
                    Err(error) => json!(format!("no content: {error:#}")),
                };
            }
        }
        let last = match revisions {
            Revisions::Numbered => None,
            Revisions::Last => last_revision(&mut found),
        };
        let mut state = Self::default();
        for (kind, mut object) in found {
            let text = |pointer: &str| {
                let value = object.pointer(pointer).and_then(Value::as_str);
                value.unwrap_or_default().to_owned()
            };
            let (own_name, uid) = (text("/metadata/name"), text("/metadata/uid"));
            let key = if text("/type") == OBJECT_DATA_SECRET_TYPE {
                let revision = object["metadata"]["labels"][label::REVISION_NAME].as_str();
                let key = format!("{kind} with content of {}", revision.unwrap_or_default());
                object["metadata"]["name"] = Value::Null;
                key
            } else if kind == PENDING_CHANGE {
                // Its name ends with digits of the digest.
                let key = format!("{kind} to {}", text("/spec/to"));
                object["metadata"]["name"] = Value::Null;
                key
            } else {
                format!("{kind} {own_name}")
            };
            tidy(&kind, &mut object, last.is_some());
            let mut key = steady(&key, name, last);
            if key.contains(COMPUTED) {
                // Its content distinguishes it from others.
                let text = steady(&object.to_string(), name, last);
                let digest = hex::encode(Sha256::digest(text));
                key = format!("{key} {}", digest.get(..6).unwrap_or_default());
            }
            while state.uids.contains_key(&key) {
                key.push_str(" again");
            }
            state.uids.insert(key.clone(), uid);
            flatten(&key, &object, &|text| steady(text, name, last), &mut state.lines);
        }
        Ok(state)
    }

    /// Adds which objects are still the same as before.
    pub(crate) fn keep(&mut self, before: &Self) {
        for (key, uid) in &before.uids {
            if self.uids.get(key) == Some(uid) {
                self.lines
                    .insert(format!("{key} is the same object"), "yes".to_owned());
            }
        }
    }

    /// The differences from the wanted state, a line each.
    pub(crate) fn difference(&self, wanted: &Self) -> Vec<String> {
        let ours = self
            .lines
            .iter()
            .filter(|(key, value)| wanted.lines.get(*key) != Some(*value));
        let ours = ours.map(|(key, value)| {
            let other = wanted.lines.get(key).map_or("nothing", String::as_str);
            format!("{key}: {value} instead of {other}")
        });
        let theirs = wanted
            .lines
            .iter()
            .filter(|(key, _)| !self.lines.contains_key(*key));
        let theirs = theirs.map(|(key, value)| format!("{key}: nothing instead of {value}"));
        ours.chain(theirs).collect()
    }

    /// The number of its lines.
    pub(crate) fn size(&self) -> usize {
        self.lines.len()
    }
}

/// Removes archived revisions with their Secrets. Returns the number of the last one.
fn last_revision(found: &mut Vec<(String, Value)>) -> Option<i64> {
    let sets = found.iter().filter(|(kind, _)| kind == "ClusterObjectSet");
    let last = sets
        .filter_map(|(_, object)| object["spec"]["revision"].as_i64())
        .max()?;
    let suffix = format!("-{last}");
    found.retain(|(kind, object)| {
        let labelled = object["metadata"]["labels"][label::REVISION_NAME].as_str();
        match kind.as_str() {
            "ClusterObjectSet" => object["spec"]["revision"].as_i64() == Some(last),
            "Secret" => labelled.is_none_or(|revision| revision.ends_with(&suffix)),
            _ => true,
        }
    });
    Some(last)
}

/// Removes fields that other controllers write, and fields that differ from run to run.
fn tidy(kind: &str, object: &mut Value, without_numbers: bool) {
    let is_ours = [
        "ClusterExtension",
        "ClusterObjectSet",
        "ClusterCatalog",
        PENDING_CHANGE,
        CHANGE_POLICY,
    ]
    .contains(&kind);
    if let (false, Some(fields)) = (is_ours, object.as_object_mut()) {
        let stored = fields
            .get("status")
            .and_then(|status| status.get("storedVersions"))
            .cloned();
        fields.remove("status");
        if kind == "Secret" {
            fields.remove("data");
        }
        fields.extend(stored.map(|stored| ("storedVersions".to_owned(), stored)));
    }
    if let (Some(current), Some(status)) = (
        object["metadata"]["generation"].as_i64(),
        object.get_mut("status"),
    ) {
        observed(status, current);
    }
    strip(object, without_numbers);
}

/// Replaces observed generations by a flag whether they are current.
fn observed(value: &mut Value, current: i64) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == "observedGeneration" {
                    *value = json!(value.as_i64() == Some(current));
                } else {
                    observed(value, current);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| observed(item, current)),
        _ => {}
    }
}

fn strip(value: &mut Value, without_numbers: bool) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| {
                let is_number = key == "revision" || key == annotation::REVISION;
                !(VARYING.contains(&key.as_str()) || without_numbers && is_number)
            });
            fields
                .values_mut()
                .for_each(|value| strip(value, without_numbers));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, without_numbers)),
        _ => {}
    }
}

/// A text without the name and without values computed from it.
fn steady(text: &str, name: &str, last: Option<i64>) -> String {
    let mut text = text.replace(name, "NAME");
    if let Some((before, after)) = text.split_once(CATALOG) {
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
        text = format!("{before}CATALOG{}", steady(after, name, last));
    }
    if let Some(last) = last {
        text = text.replace(&format!("NAME-{last}"), "NAME-LAST");
    }
    let mut steady = String::new();
    let mut word = String::new();
    for character in text.chars().chain(['\n']) {
        if character.is_ascii_alphanumeric() {
            word.push(character);
            continue;
        }
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_computed = word.len() >= 25 && digits >= 3;
        if is_computed {
            // The text before it is a name, truncated to fit.
            let kept = steady.trim_end_matches(|c: char| c == '-' || c.is_ascii_lowercase());
            if steady.len() - kept.len() <= SHORTENED {
                steady.truncate(kept.len());
            }
            steady.push_str(COMPUTED);
        } else {
            steady.push_str(&word);
        }
        word.clear();
        steady.push(character);
    }
    steady.pop();
    steady
}

fn flatten(path: &str, value: &Value, steady: &dyn Fn(&str) -> String, lines: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(&format!("{path} .{}", steady(key)), value, steady, lines);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                // Conditions have an order of their own.
                let place = item["type"]
                    .as_str()
                    .map_or_else(|| index.to_string(), str::to_owned);
                flatten(&format!("{path} [{place}]"), item, steady, lines);
            }
        }
        Value::Null => {}
        Value::String(text) => {
            lines.insert(path.to_owned(), steady(text));
        }
        other => {
            lines.insert(path.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(object: Value) -> State {
        let mut object = object;
        tidy("ClusterExtension", &mut object, false);
        let mut state = State::default();
        flatten(
            "X",
            &object,
            &|text| steady(text, "fault-0001", None),
            &mut state.lines,
        );
        state
    }

    #[test]
    fn states_differ_in_content_and_not_in_times_names_and_order() {
        let object = |name: &str, time: &str, types: [&str; 2], message: &str| {
            let conditions = types.map(|kind| {
                json!({"type": kind, "lastTransitionTime": time, "message": message, "observedGeneration": 2})
            });
            json!({
                "metadata": {"name": name, "uid": time, "generation": 2},
                "status": {"conditions": conditions},
            })
        };
        let one = state(object("fault-0001", "1", ["A", "B"], "of fault-0001"));
        let same = state(object("fault-0001", "2", ["B", "A"], "of fault-0001"));
        assert!(one.size() > 4 && one.difference(&same).is_empty());
        let other = state(object("fault-0001", "1", ["A", "B"], "of another"));
        assert_eq!(
            other.difference(&one),
            ["A", "B"].map(|kind| format!(
                "X .status .conditions [{kind}] .message: of another instead of of NAME"
            ))
        );
        let mut stale = object("fault-0001", "1", ["A", "B"], "of fault-0001");
        stale["metadata"]["generation"] = json!(3);
        assert_eq!(state(stale).difference(&one).len(), 2);
    }

    #[test]
    fn what_is_computed_from_a_name_is_left_out() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        assert_eq!(steady(digest, "x-1", None), "sha256:COMPUTED");
        let hash = "1ymxsw390iinyalu5tgo9ecksst8mnplg3g35jyf4s4s";
        for name in [format!("x.v1.0.0--{hash}"), format!("x.v1.0.0-f-{hash}")] {
            assert_eq!(steady(&name, "x", None), "NAME.v1.0.0COMPUTED");
        }
        assert_eq!(
            steady("packages-1 and packages-23.", "x", None),
            "CATALOG and CATALOG."
        );
        assert_eq!(steady("x-1-2 of x-1", "x-1", Some(2)), "NAME-LAST of NAME");
    }

    #[test]
    fn an_object_that_was_made_anew_is_another() {
        let of = |uid: &str| State {
            uids: [("X".to_owned(), uid.to_owned())].into(),
            ..State::default()
        };
        let (mut same, mut other) = (of("1"), of("2"));
        same.keep(&of("1"));
        other.keep(&of("1"));
        assert_eq!(other.difference(&same).len(), 1);
    }
}
