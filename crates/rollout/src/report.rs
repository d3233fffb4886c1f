//! The texts of conditions for the ends of runs.

pub mod failure;
pub mod status;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use olm_api::command::{Annotated, annotate};
use olm_api::names::{GROUP, annotation, label, user};
use olm_api::text::{escape, first_of};

use crate::engine::request::Observation;
use crate::engine::rollout::NotReady;
use crate::failure::{FailureKind, RequestFailure};
use crate::object::ObjectId;
use crate::outline::{Outline, Owner, PhaseName};
use crate::ownership::{Ownership, RevisionMark};
use crate::probe::Unmet;

/// One line for an object that is not ready, in the words of the reference implementation.
pub fn not_ready(object: &NotReady) -> String {
    let unmet: Vec<String> = object.unmet.iter().map(ToString::to_string).collect();
    let text = format!("Object {}: {}", object.id, unmet.join(" and "));
    escape(&text).into_owned()
}

/// One line for an object that is not ready, in plain words.
pub fn waits_for(object: &NotReady) -> String {
    let unmet: Vec<String> = object.unmet.iter().map(Unmet::plain).collect();
    let text = format!("{}: {}", short_name(&object.id), unmet.join(", and "));
    escape(&text).into_owned()
}

/// The first phase with an object that is not ready, among all phases: `phase 2 of 5 (deploy)`.
pub fn current_phase(outline: &Outline, not_ready: &[NotReady]) -> Option<String> {
    let index = not_ready.iter().map(|object| object.phase).min()?;
    let name = outline.phase(index).name;
    Some(format!(
        "phase {} of {} ({name})",
        index + 1,
        outline.phases.len()
    ))
}

/// The objects of a phase that belong to another owner, each with its owner and a hint.
pub fn collisions(phase: PhaseName<'_>, outline: &Outline, objects: &[(ObjectId, Observation)]) -> String {
    let owner = &outline.owner;
    let reports: Vec<String> = objects
        .iter()
        .map(|(id, seen)| collision(owner, id, &seen.ownership))
        .chain(take_over(outline, objects))
        .collect();
    format!("revision object collisions in {phase}\n{}", reports.join("\n"))
}

/// The commands that let an extension take over all objects without a controller, also in later phases.
fn take_over(outline: &Outline, objects: &[(ObjectId, Observation)]) -> Option<String> {
    let owner = &outline.owner;
    if owner.extension.is_empty() || owner.owner_name.is_empty() {
        return None;
    }
    let free = objects.iter().map(|(_, seen)| &seen.ownership);
    let mut free = free.filter(|live| live.controller.is_none()).peekable();
    free.peek()?;
    let left_by: BTreeSet<&str> = free
        .filter(|live| live.revision != RevisionMark::Absent)
        .filter_map(|live| live.owner_name.as_deref().filter(|name| is_label(name)))
        .collect();
    // kubectl does nothing if the cluster does not serve one of the kinds.
    let ids = outline.all_positions().map(|position| outline.id(position));
    let served = ids.filter(|id| SERVED.contains(&id.group.as_str()));
    let colliding = objects.iter().map(|(id, _)| id.clone());
    let kinds: BTreeSet<String> = served.chain(colliding).map(|id| resource(&id)).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    let mut commands: Vec<String> = left_by
        .into_iter()
        .map(|name| {
            format!(
                "kubectl annotate {} -A -l {}={name} {}-",
                kinds.join(","),
                label::OWNER_NAME,
                annotation::REVISION
            )
        })
        .collect();
    let extension = Annotated::Extension(&owner.owner_name);
    commands.push(annotate(extension, user::ADOPT, Some("unowned")));
    Some(format!(
        "To take over all objects without a controller: {}",
        commands.join(" && ")
    ))
}

/// Groups of bundles' kinds that every cluster serves.
const SERVED: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apps",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
];

/// A kind in the form that kubectl accepts.
fn resource(id: &ObjectId) -> String {
    let kind = id.kind.to_lowercase();
    match id.group.as_str() {
        "" => kind,
        group => format!("{kind}.{group}"),
    }
}

/// Whether a shell treats the value of a label literally.
fn is_label(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !value.is_empty() && value.bytes().all(is_plain)
}

fn collision(owner: &Owner, id: &ObjectId, live: &Ownership) -> String {
    let delete = if id.kind == "CustomResourceDefinition" {
        "delete it, with all objects of its kind, if it is not needed"
    } else {
        "delete it if it is not needed"
    };
    let adopt = |annotation: &str, protection: &str| {
        if owner.extension.is_empty() {
            format!("set collisionProtection {protection:?} to take it over")
        } else {
            format!(
                "set the annotation {}={annotation:?} on the ClusterExtension to take it over",
                user::ADOPT
            )
        }
    };
    let extension = live.owner_name.as_deref().filter(|name| !name.is_empty());
    let of = extension.map_or_else(String::new, |name| format!(" of ClusterExtension {name}"));
    let (whose, advice) = match (&live.controller, live.revision) {
        (Some(holder), _) => {
            let whose = format!(
                "belongs to {} {}{of} ({})",
                holder.kind, holder.name, holder.api_version
            );
            let group = holder.api_version.split('/').next().unwrap_or_default();
            let advice = match extension {
                Some(name) if group == GROUP && name != owner.owner_name => format!(
                    "only one of two extensions can own it: uninstall ClusterExtension {name}, or its remaining {} {}, or this one",
                    holder.kind, holder.name
                ),
                _ => format!("remove it from its owner, or {}", adopt("all", "None")),
            };
            (whose, advice)
        }
        (None, RevisionMark::Absent) => {
            let writers = match live.writers.as_slice() {
                [] => String::new(),
                writers => format!(" (written by {})", writers.join(", ")),
            };
            let whose = format!("exists already and has no controller{writers}");
            let advice = format!("{delete}, or {}", adopt("unowned", "IfNoController"));
            (whose, advice)
        }
        (None, _) => {
            let whose = format!("was left behind by a revision{of} and has no controller");
            let advice = format!(
                "{delete}, or remove the annotation {} from the object, and {}",
                annotation::REVISION,
                adopt("unowned", "IfNoController")
            );
            (whose, advice)
        }
    };
    let text = format!("Object {id} {whose}; it is not changed: {advice}");
    escape(&text).into_owned()
}

/// The failures in a phase with all objects, with hints.
pub fn failures(phase: PhaseName<'_>, failures: &[(ObjectId, RequestFailure)]) -> String {
    let texts = failures.iter().map(|(id, failure)| match failure.kind {
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
    });
    // The API server quotes values of objects.
    let texts: Vec<String> = texts.map(|text| escape(&text).into_owned()).collect();
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
            "; the rollout waits until the cluster serves the missing kinds: install their provider, or set the annotation {} \
             from \"wait\" (the default) to \"skip\" to skip such objects",
            user::MISSING_KINDS
        );
    }
    text
}

/// The objects that are skipped because the cluster lacks their kinds, and when they will be applied.
pub fn skipped(objects: &[ObjectId]) -> Option<String> {
    (!objects.is_empty()).then(|| {
        format!(
            "Skipped by the annotation {}=\"skip\", because the cluster lacks their kinds: {}; they follow once it has them.",
            user::MISSING_KINDS,
            names(objects)
        )
    })
}

/// The failure that decides the time of the retry: the one that passes soonest.
pub fn most_severe(failures: &[(ObjectId, RequestFailure)]) -> Option<FailureKind> {
    failures.iter().map(|(_, failure)| failure.kind).max()
}

/// The objects that are being deleted, and their finalizers.
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

/// The most objects that are named. Others are only counted.
const NAMED: usize = 10;

/// The names of objects, bounded.
pub fn names(ids: &[ObjectId]) -> String {
    bounded(ids, ToString::to_string)
}

/// The names of objects as `KIND NAMESPACE/NAME`, bounded.
pub fn short_names(ids: &[ObjectId]) -> String {
    bounded(ids, |id| escape(&short_name(id)).into_owned())
}

fn short_name(id: &ObjectId) -> String {
    match id.namespace.as_str() {
        "" => format!("{} {}", id.kind, id.name),
        namespace => format!("{} {namespace}/{}", id.kind, id.name),
    }
}

fn bounded(ids: &[ObjectId], name: impl Fn(&ObjectId) -> String) -> String {
    first_of(ids.iter().map(name), NAMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outline::{OutlineObject, OutlinePhase};
    use crate::ownership::OwnerReference;
    use crate::probe::ProbeResult;

    const CRDS: PhaseName<'_> = PhaseName {
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
            phase: 1,
            unmet: vec![Unmet::StatusOutdated, Unmet::FieldMissing { field: "b".into() }],
        };
        let phase = |name: &str| OutlinePhase {
            name: name.to_owned(),
            objects: Vec::new(),
        };
        let outline = Outline {
            phases: vec![phase("crds"), phase("deploy"), phase("publish")],
            ..Outline::default()
        };
        assert_eq!(current_phase(&outline, &[]), None);
        assert_eq!(
            current_phase(&outline, std::slice::from_ref(&object)).as_deref(),
            Some("phase 2 of 3 (deploy)")
        );
        assert_eq!(
            not_ready(&object),
            "Object ClusterRole.rbac.authorization.k8s.io/v1 /name: .status outdated and \"b\" missing"
        );
        assert_eq!(
            waits_for(&object),
            "ClusterRole name: the status does not show the last change yet, and b is not set yet"
        );
    }

    #[test]
    fn a_collision_names_the_owner_and_the_remedy() {
        let controller = |api_version: &str, kind: &str| {
            Some(OwnerReference {
                api_version: api_version.into(),
                kind: kind.into(),
                name: "other-1".into(),
                ..OwnerReference::default()
            })
        };
        let ours = Owner {
            extension: "uid".into(),
            ..Owner::default()
        };
        let check = |owner: &Owner, ownership: Ownership, expected: &str| {
            let seen = Observation {
                ownership,
                differences: 1,
                probe: ProbeResult::PASSES,
            };
            let head = "revision object collisions in phase 3 (crds)\n\
                        Object ClusterRole.rbac.authorization.k8s.io/v1 /name ";
            let outline = Outline {
                owner: owner.clone(),
                ..Outline::default()
            };
            let found = collisions(CRDS, &outline, &[(id(), seen)]);
            assert_eq!(found.strip_prefix(head), Some(expected), "{found}");
        };
        check(
            &ours,
            Ownership {
                controller: controller("olm.operatorframework.io/v1", "ClusterObjectSet"),
                owner_name: Some("other".into()),
                ..Ownership::default()
            },
            "belongs to ClusterObjectSet other-1 of ClusterExtension other (olm.operatorframework.io/v1); it is not changed: \
             only one of two extensions can own it: uninstall ClusterExtension other, or its remaining ClusterObjectSet other-1, or this one",
        );
        let adopt = "set the annotation olm.operatorframework.io/adopt";
        check(
            &ours,
            Ownership {
                controller: controller("apps/v1", "Deployment"),
                ..Ownership::default()
            },
            &format!(
                "belongs to Deployment other-1 (apps/v1); it is not changed: remove it from its owner, or {adopt}=\"all\" on the ClusterExtension to take it over"
            ),
        );
        let by_hand = Ownership {
            writers: vec!["kubectl".into(), "helm".into()],
            ..Ownership::default()
        };
        check(
            &ours,
            by_hand.clone(),
            &format!(
                "exists already and has no controller (written by kubectl, helm); it is not changed: delete it if it is not needed, or \
                 {adopt}=\"unowned\" on the ClusterExtension to take it over"
            ),
        );
        check(
            &Owner::default(),
            by_hand,
            "exists already and has no controller (written by kubectl, helm); it is not changed: delete it if it is not needed, or \
             set collisionProtection \"IfNoController\" to take it over",
        );
        check(
            &ours,
            Ownership {
                owner_name: Some("other".into()),
                revision: RevisionMark::Revision(3),
                ..Ownership::default()
            },
            &format!(
                "was left behind by a revision of ClusterExtension other and has no controller; it is not changed: delete it if it is not needed, \
                 or remove the annotation olm.operatorframework.io/revision from the object, and {adopt}=\"unowned\" on the ClusterExtension to take it over"
            ),
        );
    }

    #[test]
    fn the_commands_take_over_objects_without_a_controller_in_all_phases() {
        let definition = ObjectId {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            kind: "CustomResourceDefinition".into(),
            name: "greetings.x.io".into(),
            ..ObjectId::default()
        };
        let account = ObjectId {
            version: "v1".into(),
            kind: "ServiceAccount".into(),
            ..ObjectId::default()
        };
        let elsewhere = ObjectId {
            group: "monitoring.coreos.com".into(),
            kind: "ServiceMonitor".into(),
            ..ObjectId::default()
        };
        let object = |id: &ObjectId| OutlineObject {
            id: id.clone(),
            ..OutlineObject::default()
        };
        let outline = Outline {
            owner: Owner {
                extension: "uid".into(),
                owner_name: "greeter".into(),
                ..Owner::default()
            },
            phases: vec![OutlinePhase {
                name: "p".into(),
                objects: vec![object(&definition), object(&account), object(&elsewhere)],
            }],
            ..Outline::default()
        };
        let adopt =
            "kubectl annotate clusterextension greeter --overwrite olm.operatorframework.io/adopt=unowned";
        let left = Ownership {
            revision: RevisionMark::Revision(3),
            owner_name: Some("greeter".into()),
            ..Ownership::default()
        };
        let held = Ownership {
            controller: Some(OwnerReference::default()),
            ..left.clone()
        };
        let strange = Ownership {
            owner_name: Some("a; reboot".into()),
            ..left.clone()
        };
        let revision = "kubectl annotate customresourcedefinition.apiextensions.k8s.io,serviceaccount -A \
                        -l olm.operatorframework.io/owner-name=greeter olm.operatorframework.io/revision- && ";
        for (live, expected) in [
            (Ownership::default(), Some(adopt.to_owned())),
            (left, Some(format!("{revision}{adopt}"))),
            (strange, Some(adopt.to_owned())),
            (held, None),
        ] {
            let seen = Observation {
                ownership: live,
                differences: 1,
                probe: ProbeResult::PASSES,
            };
            let text = collisions(CRDS, &outline, &[(definition.clone(), seen)]);
            let parts = text.split_once("\nTo take over all objects without a controller: ");
            assert_eq!(parts.map(|(_, command)| command.to_owned()), expected, "{text}");
            assert_eq!(
                text.contains("delete it, with all objects of its kind, if it is not needed"),
                expected.is_some(),
                "{text}"
            );
        }
    }

    #[test]
    fn failures_name_every_object() {
        let failure = |kind| (id(), RequestFailure::new(kind, "no"));
        assert_eq!(
            failures(
                CRDS,
                &[failure(FailureKind::Invalid), failure(FailureKind::UnknownKind)]
            ),
            "phase 3 (crds) error: rbac.authorization.k8s.io/v1, Kind=ClusterRole /name: no, rbac.authorization.k8s.io/v1, \
             Kind=ClusterRole /name: the cluster has no kind ClusterRole in version v1 of group \
             rbac.authorization.k8s.io; the rollout waits until the cluster serves the missing kinds: install their provider, or set the annotation olm.operatorframework.io/missing-kinds from \"wait\" (the default) to \"skip\" to skip such objects"
        );
        assert_eq!(
            failures(CRDS, &[failure(FailureKind::Invalid)]),
            "phase 3 (crds) validation error: rbac.authorization.k8s.io/v1, Kind=ClusterRole /name: no"
        );
    }
}
