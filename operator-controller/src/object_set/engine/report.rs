//! What the ends of runs are called in conditions.

use std::fmt::{self, Write as _};

use olm_api::names::{annotation, user};

use super::{
    Failure, FailureKind, ObjectId, Observation, ProbeStatus, ownership::RevisionMark, rollout::NotReady,
};

/// One line for an object that is not ready.
pub fn not_ready(object: &NotReady) -> String {
    format!("Object {}: {}", object.id, object.messages.join(" and "))
}

/// A phase as conditions name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase<'a> {
    /// Its index.
    pub index: usize,
    /// Its name.
    pub name: &'a str,
}

impl fmt::Display for Phase<'_> {
    /// `phase 3 (crds)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phase {} ({})", self.index, self.name)
    }
}

/// The objects of a phase that belong to somebody else.
pub fn collisions(phase: Phase<'_>, objects: &[(ObjectId, Observation)]) -> String {
    let reports: Vec<String> = objects.iter().map(|(id, seen)| collision(id, seen)).collect();
    format!("revision object collisions in {phase}\n{}", reports.join("\n\n"))
}

fn collision(id: &ObjectId, seen: &Observation) -> String {
    let progress = match seen.probe.status {
        ProbeStatus::Passes => "Succeeded",
        ProbeStatus::Fails => "Failed",
        ProbeStatus::Unknown => "Unknown",
    };
    let lines: Vec<String> = seen
        .probe
        .messages
        .iter()
        .map(|message| format!("\n  - {message}"))
        .collect();
    let messages = lines.concat();
    let extension = match &seen.ownership.owner_name {
        Some(name) if !name.is_empty() => format!(" of ClusterExtension {name}"),
        _ => String::new(),
    };
    let owner = match &seen.ownership.controller {
        Some(owner) => format!("{}.{} {}{extension}", owner.kind, owner.api_version, owner.name),
        None => format!("nil{extension}"),
    };
    let advice = match (&seen.ownership.controller, seen.ownership.revision) {
        (Some(_), _) => String::new(),
        (None, RevisionMark::Absent) => format!(
            "\nNobody controls it: the annotation {}=\"unowned\" on the ClusterExtension lets it be taken over",
            user::ADOPT
        ),
        (None, _) => format!(
            "\nA revision left it behind: take the annotation {} off the object, and {}=\"unowned\" on the \
             ClusterExtension lets it be taken over",
            annotation::REVISION,
            user::ADOPT
        ),
    };
    format!(
        "Object {id}\nAction: \"Collision\"\nProbes:\n- Progress: {progress}{messages}\nConflicting Owner: {owner}{advice}"
    )
}

/// What failed in a phase, every object named, and what the user can decide.
pub fn failures(phase: Phase<'_>, failures: &[(ObjectId, Failure)]) -> String {
    let texts: Vec<String> = failures
        .iter()
        .map(|(id, failure)| match failure.kind {
            FailureKind::UnknownKind => {
                let group = match id.group.as_str() {
                    "" => "the core group".to_owned(),
                    group => format!("group {group}"),
                };
                format!(
                    "{}: the cluster has no kind {} in version {} of {group}",
                    id.reference(),
                    id.kind,
                    id.version
                )
            }
            FailureKind::Conflict
            | FailureKind::MissingNamespace
            | FailureKind::Forbidden
            | FailureKind::Invalid
            | FailureKind::Transient => format!("{}: {}", id.reference(), failure.message),
        })
        .collect();
    let invalid = failures
        .iter()
        .all(|(_, failure)| failure.kind == FailureKind::Invalid);
    let what = if invalid { "validation error" } else { "error" };
    let mut text = format!("{phase} {what}: {}", texts.join(", "));
    let misses_kinds = failures
        .iter()
        .any(|(_, failure)| failure.kind == FailureKind::UnknownKind);
    if misses_kinds {
        let _ = write!(
            text,
            "; the rollout waits until the cluster serves what is missing: install what brings it, or set the annotation {} \
             from \"wait\" (the default) to \"skip\" to go on without such objects",
            user::MISSING_KINDS
        );
    }
    text
}

/// What is left out because the cluster lacks its kind, and when it comes.
pub fn skipped(objects: &[ObjectId]) -> Option<String> {
    (!objects.is_empty()).then(|| {
        format!(
            "Left out, as the annotation {}=\"skip\" says, since the cluster lacks their kinds: {}; they follow once it has \
             them.",
            user::MISSING_KINDS,
            names(objects)
        )
    })
}

/// The failure that decides when to try again: the one that passes soonest.
pub fn gravest(failures: &[(ObjectId, Failure)]) -> Option<FailureKind> {
    failures.iter().map(|(_, failure)| failure.kind).max()
}

/// The objects that are being deleted and what holds them.
pub fn remaining(objects: &[(ObjectId, Vec<String>)]) -> String {
    let texts: Vec<String> = objects
        .iter()
        .map(|(id, finalizers)| {
            if finalizers.is_empty() {
                id.to_string()
            } else {
                format!("{id} (held by finalizers {})", finalizers.join(", "))
            }
        })
        .collect();
    texts.join(", ")
}

/// How many objects are named before the others are only counted.
const NAMED: usize = 10;

/// The objects' names, bounded.
pub fn names(ids: &[ObjectId]) -> String {
    bounded(ids, ToString::to_string)
}

/// The same with no more than `KIND NAMESPACE/NAME` of each.
pub fn short_names(ids: &[ObjectId]) -> String {
    bounded(ids, |id| match id.namespace.as_str() {
        "" => format!("{} {}", id.kind, id.name),
        namespace => format!("{} {namespace}/{}", id.kind, id.name),
    })
}

fn bounded(ids: &[ObjectId], name: impl Fn(&ObjectId) -> String) -> String {
    let named: Vec<String> = ids.iter().take(NAMED).map(name).collect();
    let more = match ids.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_set::engine::{OwnerReference, Ownership, ProbeResult};

    const CRDS: Phase<'_> = Phase {
        index: 3,
        name: "crds",
    };

    fn id() -> ObjectId {
        ObjectId {
            group: "rbac.authorization.k8s.io".into(),
            version: "v1".into(),
            kind: "ClusterRole".into(),
            namespace: String::new(),
            name: "name".into(),
        }
    }

    #[test]
    fn an_object_that_is_not_ready_is_named_with_all_reasons() {
        let object = NotReady {
            id: id(),
            messages: vec!["a".into(), "b".into()],
        };
        assert_eq!(
            not_ready(&object),
            "Object ClusterRole.rbac.authorization.k8s.io/v1 /name: a and b"
        );
    }

    #[test]
    fn a_collision_names_the_other_owner() {
        let seen = Observation {
            ownership: Ownership {
                controller: Some(OwnerReference {
                    api_version: "olm.operatorframework.io/v1".into(),
                    kind: "ClusterObjectSet".into(),
                    name: "other-1".into(),
                    ..OwnerReference::default()
                }),
                owner_name: Some("other".into()),
                ..Ownership::default()
            },
            differences: 1,
            probe: ProbeResult {
                status: ProbeStatus::Fails,
                messages: vec!["m".into()],
            },
        };
        assert_eq!(
            collisions(CRDS, &[(id(), seen)]),
            "revision object collisions in phase 3 (crds)\n\
             Object ClusterRole.rbac.authorization.k8s.io/v1 /name\nAction: \"Collision\"\nProbes:\n\
             - Progress: Failed\n  - m\n\
             Conflicting Owner: ClusterObjectSet.olm.operatorframework.io/v1 other-1 of ClusterExtension other"
        );
    }

    #[test]
    fn failures_name_every_object() {
        let failure = |kind| {
            (
                id(),
                Failure {
                    kind,
                    message: "no".into(),
                },
            )
        };
        assert_eq!(
            failures(
                CRDS,
                &[failure(FailureKind::Invalid), failure(FailureKind::UnknownKind)]
            ),
            "phase 3 (crds) error: rbac.authorization.k8s.io/v1, Kind=ClusterRole /name: no, rbac.authorization.k8s.io/v1, \
             Kind=ClusterRole /name: the cluster has no kind ClusterRole in version v1 of group \
             rbac.authorization.k8s.io; the rollout waits until the cluster serves what is missing: install what brings \
             it, or set the annotation olm.operatorframework.io/missing-kinds from \"wait\" (the default) to \"skip\" to go \
             on without such objects"
        );
        assert_eq!(
            failures(CRDS, &[failure(FailureKind::Invalid)]),
            "phase 3 (crds) validation error: rbac.authorization.k8s.io/v1, Kind=ClusterRole /name: no"
        );
    }
}
