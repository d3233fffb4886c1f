//! What the ends of runs are called in conditions.

use olm_api::names::{annotation, user};

use super::{
    Failure, FailureKind, ObjectId, Observation, ProbeStatus, ownership::RevisionMark, rollout::NotReady,
};

/// One line for an object that is not ready.
pub fn not_ready(object: &NotReady) -> String {
    format!("Object {}: {}", object.id, object.messages.join(" and "))
}

/// The objects of a phase that belong to somebody else.
pub fn collisions(phase: usize, objects: &[(ObjectId, Observation)]) -> String {
    let reports: Vec<String> = objects.iter().map(|(id, seen)| collision(id, seen)).collect();
    format!(
        "revision object collisions in phase {phase}\n{}",
        reports.join("\n\n")
    )
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

/// What failed in a phase, every object named.
pub fn failures(phase: usize, failures: &[(ObjectId, Failure)]) -> String {
    let texts: Vec<String> = failures
        .iter()
        .map(|(id, failure)| match failure.kind {
            FailureKind::UnknownKind => {
                format!(
                    "{}: the cluster has no kind {} in {}",
                    id.reference(),
                    id.kind,
                    id.api_version()
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
    format!("phase {phase} {what}: {}", texts.join(", "))
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
            collisions(3, &[(id(), seen)]),
            "revision object collisions in phase 3\n\
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
                1,
                &[failure(FailureKind::Invalid), failure(FailureKind::UnknownKind)]
            ),
            "phase 1 error: rbac.authorization.k8s.io/v1, Kind=ClusterRole /name: no, rbac.authorization.k8s.io/v1, \
             Kind=ClusterRole /name: the cluster has no kind ClusterRole in rbac.authorization.k8s.io/v1"
        );
        assert_eq!(
            failures(0, &[failure(FailureKind::Invalid)]),
            "phase 0 validation error: rbac.authorization.k8s.io/v1, Kind=ClusterRole /name: no"
        );
    }
}
