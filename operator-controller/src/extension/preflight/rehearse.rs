//! Asks the API server about the objects of a revision before anything is written, and on an upgrade before the installed
//! revision is touched: a server-side dry run under the account catches what reviews of rights cannot (admission, schema,
//! fields that never change).
//!
//! A dry run that cannot be made (a namespace or a kind that is missing, a webhook without dry run) says nothing; that is
//! told and does not stand in the way. What builds upon others of the same bundle is asked about again when these are there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;

use futures::{StreamExt as _, stream};
use olm_api::names::user;
use olm_preflight::crd_upgrade::{definition_name, within};
use serde_json::Value;

use super::{Asking, MAX_FINDINGS, PreflightError};
use crate::certificates::authority;
use crate::cluster::apply::{self, Commit, Target};
use crate::object_set::engine::{Failure, FailureKind, ObjectId, report};

/// Objects beyond which no more are asked about.
const MAX_OBJECTS: usize = 500;
/// How many are asked about at once.
const AT_ONCE: usize = 8;
/// What the API server says of fields that never change.
const IMMUTABLE: &str = "immutable";

/// What the API server said.
#[derive(Debug, Default)]
pub(super) struct Rehearsal {
    /// What it refuses, a line for each object.
    refused: Vec<String>,
    /// Objects that it could not be asked about.
    unchecked: Vec<ObjectId>,
    /// Whether it refuses some to the account.
    forbidden: bool,
}

/// Asks about objects of a bundle that are added or changed.
pub(super) async fn rehearse(asking: &Asking<'_>, brought: &Brought, touched: &[&Value]) -> Rehearsal {
    let mut rehearsal = Rehearsal::default();
    let asked = Instant::now();
    let work: Vec<_> = touched
        .iter()
        .take(MAX_OBJECTS)
        .map(|object| one(asking, object, asked))
        .collect();
    let answers: Vec<Result<(), Failure>> = stream::iter(work).buffered(AT_ONCE).collect().await;
    for (object, answer) in touched.iter().zip(answers) {
        let Err(failure) = answer else { continue };
        let id = ObjectId::of(object);
        match judge(object, &failure, brought) {
            Answer::Refused => {
                rehearsal.forbidden |= failure.kind == FailureKind::Forbidden;
                rehearsal
                    .refused
                    .push(format!("{}: {}", id.reference(), failure.message));
            }
            Answer::Unchecked => rehearsal.unchecked.push(id),
            Answer::Later => {}
        }
    }
    let beyond = touched.iter().skip(MAX_OBJECTS);
    rehearsal
        .unchecked
        .extend(beyond.map(|object| ObjectId::of(object)));
    rehearsal
}

impl Rehearsal {
    /// Whether the account may have lost rights since it was asked for them.
    pub(super) fn is_forbidden(&self) -> bool {
        self.forbidden
    }

    /// The objects that the server could not be asked about.
    ///
    /// # Errors
    /// It refuses others.
    pub(super) fn passed(self) -> Result<Vec<ObjectId>, PreflightError> {
        if self.refused.is_empty() {
            return Ok(self.unchecked);
        }
        let refused = within(&self.refused.join("\n"), MAX_FINDINGS);
        let mut text = format!(
            "the API server refuses objects of this revision (dry run); nothing is applied:\n{refused}"
        );
        if refused.contains(IMMUTABLE) {
            let _ = write!(
                text,
                "\nA field that never changes can be had only in a new object. To have an object made anew: set the annotation \
                 {key} to \"true\", delete the object, with which goes what it holds, take the annotation off; or ask for the \
                 installed version again",
                key = user::PAUSED
            );
        }
        Err(PreflightError::Refused(text))
    }
}

/// What is told of objects that the server could not be asked about.
pub(super) fn note(unchecked: &[ObjectId]) -> Option<String> {
    (!unchecked.is_empty()).then(|| {
        format!(
            "not checked by a dry run, which cannot be made for them yet: {}",
            report::short_names(unchecked)
        )
    })
}

/// What an answer other than yes means.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The server would refuse the object.
    Refused,
    /// Nothing is known.
    Unchecked,
    /// Nothing is known as long as other objects of the bundle are not there.
    Later,
}

fn judge(object: &Value, failure: &Failure, brought: &Brought) -> Answer {
    if apply::cannot_dry_run(failure) {
        return Answer::Unchecked;
    }
    if brought.is_built_upon_by(object) {
        return Answer::Later;
    }
    match failure.kind {
        // Authorities that we wrote ourselves may stand in the way until the new object is applied.
        FailureKind::Invalid if authority::is_caller(object) => Answer::Unchecked,
        FailureKind::Forbidden | FailureKind::Invalid => Answer::Refused,
        FailureKind::Conflict
        | FailureKind::UnknownKind
        | FailureKind::MissingNamespace
        | FailureKind::Transient => Answer::Unchecked,
    }
}

async fn one(asking: &Asking<'_>, object: &Value, asked: Instant) -> Result<(), Failure> {
    let id = ObjectId::of(object);
    let unknown = || Failure {
        kind: FailureKind::UnknownKind,
        message: format!("no kind {}", id.kind),
    };
    let found = asking
        .discovery
        .find_since(&id.group, &id.version, &id.kind, asked);
    let resource = found
        .await
        .map_err(|error| apply::classify(&error))?
        .ok_or_else(unknown)?;
    let target = Target {
        client: asking.client,
        resource: &resource,
        namespace: &id.namespace,
        name: &id.name,
    };
    let mut body = object.clone();
    if let Some(body) = body.as_object_mut() {
        body.shift_remove("status");
    }
    target.apply(&body, Commit::DryRun).await.map(drop)
}

/// What a bundle brings that others of its objects may build upon.
pub(super) struct Brought {
    kinds: BTreeSet<(String, String)>,
    roles: BTreeSet<(String, String)>,
    namespaces: BTreeSet<String>,
}

impl Brought {
    pub(super) fn of(objects: &[&Value]) -> Self {
        let text = |object: &Value, pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut brought = Self {
            kinds: BTreeSet::new(),
            roles: BTreeSet::new(),
            namespaces: BTreeSet::new(),
        };
        for object in objects {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            if definition_name(object).is_some() {
                let kind = text(object, "/spec/names/kind");
                brought.kinds.insert((text(object, "/spec/group"), kind));
            } else if matches!(kind.as_str(), "Role" | "ClusterRole") {
                brought.roles.insert((kind, name));
            } else if kind == "Namespace" {
                brought.namespaces.insert(name);
            }
        }
        brought
    }

    /// Whether an object may be refused only because others of its bundle are not there or not changed yet.
    fn is_built_upon_by(&self, object: &Value) -> bool {
        let id = ObjectId::of(object);
        let role = |field: &str| {
            let value = object.get("roleRef").and_then(|role| role.get(field));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        self.kinds.contains(&(id.group, id.kind))
            || self.namespaces.contains(&id.namespace)
            || self.roles.contains(&(role("kind"), role("name")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Answer::{Later, Refused, Unchecked};
    use super::*;

    #[test]
    fn a_field_that_never_changes_comes_with_the_way_to_a_new_object() {
        for (said, expected) in [("field is immutable", true), ("must be lower case", false)] {
            let rehearsal = Rehearsal {
                refused: vec![format!("ConfigMap n/a: {said}")],
                ..Rehearsal::default()
            };
            let text = rehearsal.passed().unwrap_err().to_string();
            assert!(text.contains(said));
            assert_eq!(text.contains(user::PAUSED), expected, "{text}");
        }
    }

    #[test]
    fn only_what_the_server_would_refuse_in_the_end_stands_in_the_way() {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "pots.x.io"}, "spec": {"group": "x.io", "names": {"kind": "Pot"}},
        });
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
        let brought = Brought::of(&[&definition, &role]);
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        let pot =
            json!({"apiVersion": "x.io/v1", "kind": "Pot", "metadata": {"name": "a", "namespace": "n"}});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
        });
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "w"}, "webhooks": [],
        });
        for (object, kind, message, expected) in [
            (&map, FailureKind::Forbidden, "quota", Refused),
            (&map, FailureKind::Invalid, "field is immutable", Refused),
            (
                &map,
                FailureKind::Invalid,
                "admission webhook \"w\" does not support dry run",
                Unchecked,
            ),
            (&map, FailureKind::MissingNamespace, "no namespace", Unchecked),
            (&map, FailureKind::UnknownKind, "no kind", Unchecked),
            (&map, FailureKind::Transient, "webhook is down", Unchecked),
            (&pot, FailureKind::Invalid, "unknown field", Later),
            (&binding, FailureKind::Forbidden, "escalation", Later),
            (&webhook, FailureKind::Invalid, "caBundle", Unchecked),
        ] {
            let failure = Failure {
                kind,
                message: message.to_owned(),
            };
            assert_eq!(judge(object, &failure, &brought), expected, "{object} {message}");
        }
    }
}
