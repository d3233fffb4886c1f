//! The objects that a server-side dry run covers, and the meaning of its answers.
//!
//! A dry run that is not possible, because a namespace or kind is missing or a webhook does not support it, proves
//! nothing: a note lists its objects, and the bundle is applied. Objects that depend on others of the same bundle are
//! checked again when those exist.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::crd_upgrade::definition_name;
use crate::permissions::{group_kind, text as text_if_any};

/// The most objects that are checked.
pub const MAX_OBJECTS: usize = 500;
/// The reason of the API server for a malformed request.
const BAD_REQUEST: &str = "BadRequest";
/// The API group of webhook configurations, whose certificate authorities are added after they are applied.
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The class of a refusal by the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The object is invalid.
    Invalid,
    /// The account that will apply the object lacks the permission.
    Forbidden,
    /// The dry run cannot be made: a webhook does not support it.
    NoDryRun,
    /// Another reason, which may pass.
    Other,
}

/// The meaning of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunOutcome {
    /// The server would refuse the object.
    Refused,
    /// The result is unknown.
    Unchecked,
    /// The result is unknown until other objects of the bundle exist.
    Deferred,
}

/// The meaning of a denial of an object of a bundle that brings others with it.
#[must_use]
pub fn assess(object: &Value, denial: Denial, bundle_content: &BundleContent) -> DryRunOutcome {
    if denial == Denial::NoDryRun {
        return DryRunOutcome::Unchecked;
    }
    if bundle_content.explains(denial, object) {
        return DryRunOutcome::Deferred;
    }
    match denial {
        Denial::Invalid | Denial::Forbidden => DryRunOutcome::Refused,
        Denial::NoDryRun | Denial::Other => DryRunOutcome::Unchecked,
    }
}

/// Whether a denial with this reason, without a field, means that a dry run is not possible. Our objects are
/// well-formed, so the server has no other reason to call the request malformed.
#[must_use]
pub fn cannot_be_made(reason: &str) -> bool {
    reason == BAD_REQUEST
}

/// Whether an answer means that an object does not match its kind: an unknown field, a value of another type, two list
/// entries with one key. For these the API server answers 500 and, unlike for its own faults, without a reason.
#[must_use]
pub fn does_not_fit(code: u16, reason: &str) -> bool {
    code == 500 && reason.is_empty()
}

/// The object to send, without status.
#[must_use]
pub fn body(object: &Value) -> Value {
    let mut body = object.clone();
    if let Some(body) = body.as_object_mut() {
        body.shift_remove("status");
    }
    body
}

/// The parts of a bundle that do not exist yet and on which its other objects may depend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleContent {
    kinds: BTreeSet<(String, String)>,
    roles: BTreeSet<(String, String)>,
    namespaces: BTreeSet<String>,
}

impl BundleContent {
    /// The parts that these objects bring.
    #[must_use]
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut bundle_content = Self::default();
        for object in objects {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name").to_owned());
            if definition_name(object).is_some() {
                let group = text(object, "/spec/group").to_owned();
                let kind = text(object, "/spec/names/kind").to_owned();
                bundle_content.kinds.insert((group, kind));
            } else if matches!(kind, "Role" | "ClusterRole") {
                bundle_content.roles.insert((kind.to_owned(), name));
            } else if kind == "Namespace" {
                bundle_content.namespaces.insert(name);
            }
        }
        bundle_content
    }

    /// Whether an object is of a kind that the bundle defines.
    fn defines(&self, object: &Value) -> bool {
        self.kinds.contains(&group_kind(object))
    }

    /// Whether an object may be refused only because others of its bundle do not exist or are not changed yet. A
    /// missing role affects who may bind it, not the form of a binding: its role never changes.
    fn explains(&self, denial: Denial, object: &Value) -> bool {
        let role = |field: &str| text(object, &format!("/roleRef/{field}")).to_owned();
        self.defines(object)
            || self.namespaces.contains(text(object, "/metadata/namespace"))
            || (denial != Denial::Invalid && self.roles.contains(&(role("kind"), role("name"))))
    }
}

/// The objects of an older revision that the present one has, too. They are checked before a rollback. Definitions have
/// separate checks, and objects of their kinds are applied after them. The certificate authorities of webhook
/// configurations are added later.
#[must_use]
pub fn in_both<'a>(present: &[Value], older: &'a [Value]) -> Vec<&'a Value> {
    let there: BTreeSet<_> = present.iter().map(identity).collect();
    let bundle_content = BundleContent::of(present.iter().chain(older));
    let is_asked = |object: &&Value| {
        definition_name(object).is_none()
            && !bundle_content.defines(object)
            && group_kind(object).0 != ADMISSION
            && there.contains(&identity(object))
    };
    older.iter().filter(is_asked).collect()
}

/// Group and kind, namespace, and name.
fn identity(object: &Value) -> ((String, String), &str, &str) {
    (
        group_kind(object),
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    )
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    text_if_any(object, pointer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::DryRunOutcome::{Deferred, Refused, Unchecked};
    use super::*;

    fn object(api_version: &str, kind: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"}})
    }

    fn definition() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "greetings.x.io"}, "spec": {"group": "x.io", "names": {"kind": "Greeting"}},
        })
    }

    #[test]
    fn only_final_refusals_of_the_server_block() {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}});
        let bundle_content = BundleContent::of([&definition(), &role, &namespace]);
        let map = object("v1", "ConfigMap");
        let mut in_new = map.clone();
        in_new["metadata"]["namespace"] = "new".into();
        let greeting = object("x.io/v1", "Greeting");
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
        });
        for (object, denial, expected) in [
            (&map, Denial::Forbidden, Refused),
            (&map, Denial::Invalid, Refused),
            (&map, Denial::NoDryRun, Unchecked),
            (&map, Denial::Other, Unchecked),
            (&in_new, Denial::Other, Deferred),
            (&greeting, Denial::Invalid, Deferred),
            (&greeting, Denial::NoDryRun, Unchecked),
            (&binding, Denial::Forbidden, Deferred),
            (&binding, Denial::Other, Deferred),
            (&binding, Denial::Invalid, Refused),
        ] {
            assert_eq!(
                assess(object, denial, &bundle_content),
                expected,
                "{object} {denial:?}"
            );
        }
        // Nothing is deferred if everything exists.
        let answer = assess(&greeting, Denial::Invalid, &BundleContent::default());
        assert_eq!(answer, Refused);
    }

    #[test]
    fn objects_of_both_revisions_are_rehearsed_unless_others_decide() {
        let both = [
            object("v1", "ConfigMap"),
            object("x.io/v1", "Greeting"),
            object(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
            ),
            definition(),
        ];
        let mut older = both.to_vec();
        older.push(object("v1", "Secret"));
        let asked: Vec<&str> = in_both(&both, &older)
            .into_iter()
            .map(|object| text(object, "/kind"))
            .collect();
        assert_eq!(asked, ["ConfigMap"]);
    }

    #[test]
    fn the_status_is_not_sent() {
        let with = json!({"kind": "Greeting", "status": {"a": 1}, "spec": {}});
        assert_eq!(body(&with), json!({"kind": "Greeting", "spec": {}}));
    }
}
