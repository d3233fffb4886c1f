//! The decision about one object, given its state.

use olm_api::cluster_object_set::CollisionProtection;

use super::request::{Observation, Write};
use crate::outline::{Outline, OutlineObject, Sibling};
use crate::ownership::{Guard, OwnerReference, Ownership, RevisionMark};

/// The decision about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: the revision owns the object, which matches the last apply.
    Keep,
    /// Apply it.
    Write(Write),
    /// Nothing: a newer revision has taken the object over.
    HandedOver,
    /// Nothing yet: the object is being deleted, and can be created again when it is gone.
    Terminating,
    /// Nothing: the object belongs to another owner.
    Collision,
}

/// State in addition to the observed objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// The fingerprint of the differences that the server left at the last apply.
    pub accepted: Option<u64>,
    /// The objects without an owner reference that get it back.
    pub reclaims: Reclaims,
}

/// The objects without our owner reference that a revision takes back. Without the reference, Kubernetes would collect
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reclaims {
    /// None.
    #[default]
    Nothing,
    /// Objects of which our server-side apply still owns fields: the revision owned all of them before.
    Applied,
    /// Objects whose annotations name the revision: both were restored from a backup.
    Named,
}

/// Decides about one object.
pub fn decide(
    outline: &Outline,
    object: &OutlineObject,
    observed: Option<&Observation>,
    known: History,
) -> Decision {
    let Some(observed) = observed else {
        return Decision::Write(Write {
            guard: Guard::Absent,
            demoted: Vec::new(),
        });
    };
    let decision = match claim(outline, object.collision_protection, &observed.ownership) {
        Claim::Theirs if reclaims(known.reclaims, &observed.ownership, outline) => Decision::Write(Write {
            guard: observed.ownership.guard(),
            demoted: Vec::new(),
        }),
        Claim::Ours if observed.differences == 0 || known.accepted == Some(observed.differences) => {
            Decision::Keep
        }
        Claim::Ours | Claim::Adopt => Decision::Write(Write {
            guard: observed.ownership.guard(),
            demoted: demoted(outline, &observed.ownership),
        }),
        Claim::Newer => return Decision::HandedOver,
        Claim::Theirs => return Decision::Collision,
    };
    if observed.ownership.deleting.is_some() {
        Decision::Terminating
    } else {
        decision
    }
}

fn reclaims(reclaims: Reclaims, live: &Ownership, outline: &Outline) -> bool {
    live.is_stripped_of(&outline.owner)
        && match reclaims {
            Reclaims::Nothing => false,
            Reclaims::Applied => live.applied_by_us,
            Reclaims::Named => true,
        }
}

/// The claim of a revision to a live object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Ours,
    Adopt,
    Newer,
    Theirs,
}

fn claim(outline: &Outline, protection: CollisionProtection, live: &Ownership) -> Claim {
    let Some(controller) = &live.controller else {
        // An object with a revision but without a controller was released on purpose.
        return match (live.owned, protection, live.revision) {
            (true, ..) => Claim::Ours,
            (false, CollisionProtection::Prevent, _) => Claim::Theirs,
            (false, _, RevisionMark::Absent) => Claim::Adopt,
            (false, ..) => Claim::Theirs,
        };
    };
    if controller.uid == outline.owner.uid {
        return Claim::Ours;
    }
    // The Helm runtime has no revisions: the extension itself controls its objects.
    if !controller.uid.is_empty() && controller.uid == outline.owner.extension {
        return Claim::Adopt;
    }
    if let Some(sibling) = outline
        .siblings
        .iter()
        .find(|sibling| sibling.uid == controller.uid)
    {
        return match applied_by(live, sibling).cmp(&outline.owner.revision) {
            std::cmp::Ordering::Less => Claim::Adopt,
            std::cmp::Ordering::Equal => Claim::Theirs,
            std::cmp::Ordering::Greater => Claim::Newer,
        };
    }
    match protection {
        CollisionProtection::None => Claim::Adopt,
        CollisionProtection::Prevent | CollisionProtection::IfNoController => Claim::Theirs,
    }
}

fn applied_by(live: &Ownership, controller: &Sibling) -> i64 {
    match live.revision {
        RevisionMark::Revision(revision) => revision,
        RevisionMark::Absent | RevisionMark::Unreadable => controller.revision,
    }
}

/// The controllers that become plain owners. An object has at most one controller. One that only our apply set is left
/// out, so that the apply removes it.
fn demoted(outline: &Outline, live: &Ownership) -> Vec<OwnerReference> {
    let other = live
        .controller
        .iter()
        .filter(|c| c.uid != outline.owner.uid && !c.applied_by_us);
    other.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outline::Owner;
    use crate::probe::ProbeResult;

    fn outline() -> Outline {
        Outline {
            owner: Owner {
                uid: "us".into(),
                revision: 5,
                extension: "extension".into(),
                ..Owner::default()
            },
            siblings: vec![
                Sibling {
                    uid: "old".into(),
                    revision: 4,
                    ..Sibling::default()
                },
                Sibling {
                    uid: "new".into(),
                    revision: 6,
                    ..Sibling::default()
                },
            ],
            ..Outline::default()
        }
    }

    fn seen(controller: Option<&str>, revision: RevisionMark) -> Observation {
        Observation {
            ownership: Ownership {
                uid: "x".into(),
                resource_version: "7".into(),
                controller: controller.map(|uid| OwnerReference {
                    uid: uid.into(),
                    ..OwnerReference::default()
                }),
                owned: controller == Some("us"),
                revision,
                ..Ownership::default()
            },
            differences: 9,
            probe: ProbeResult::PASSES,
        }
    }

    fn accepted(fingerprint: u64) -> History {
        History {
            accepted: Some(fingerprint),
            ..History::default()
        }
    }

    fn name(decision: &Decision) -> &'static str {
        match decision {
            Decision::Keep => "keep",
            Decision::Write(Write {
                guard: Guard::Absent, ..
            }) => "create",
            Decision::Write(_) => "apply",
            Decision::HandedOver => "handed over",
            Decision::Terminating => "terminating",
            Decision::Collision => "collision",
        }
    }

    #[test]
    fn an_object_is_touched_only_by_its_owner_or_as_collision_protection_allows() {
        use CollisionProtection::{IfNoController, None as Never, Prevent};
        use RevisionMark::{Absent, Revision, Unreadable};
        for (controller, mark, [prevent, if_no_controller, none]) in [
            (Some("us"), Revision(5), ["apply"; 3]),
            (Some("us"), Absent, ["apply"; 3]),
            (Some("old"), Revision(4), ["apply"; 3]),
            (Some("old"), Unreadable, ["apply"; 3]),
            (Some("old"), Revision(5), ["collision"; 3]),
            (Some("new"), Revision(6), ["handed over"; 3]),
            (Some("new"), Absent, ["handed over"; 3]),
            (Some("extension"), Absent, ["apply"; 3]),
            (Some("stranger"), Absent, ["collision", "collision", "apply"]),
            (Some("stranger"), Revision(1), ["collision", "collision", "apply"]),
            (None, Absent, ["collision", "apply", "apply"]),
            (None, Revision(1), ["collision"; 3]),
        ] {
            for (protection, expected) in [
                (Prevent, prevent),
                (IfNoController, if_no_controller),
                (Never, none),
            ] {
                let object = OutlineObject {
                    collision_protection: protection,
                    ..OutlineObject::default()
                };
                let decision = decide(
                    &outline(),
                    &object,
                    Some(&seen(controller, mark)),
                    History::default(),
                );
                assert_eq!(
                    name(&decision),
                    expected,
                    "{controller:?} {mark:?} {protection:?}"
                );
            }
        }
        let object = OutlineObject::default();
        assert_eq!(
            name(&decide(&outline(), &object, None, History::default())),
            "create"
        );
    }

    #[test]
    fn our_object_is_kept_when_it_is_as_the_server_took_it() {
        let object = OutlineObject::default();
        let mut live = seen(Some("us"), RevisionMark::Revision(5));
        assert_eq!(
            name(&decide(&outline(), &object, Some(&live), accepted(9))),
            "keep"
        );
        assert_eq!(
            name(&decide(&outline(), &object, Some(&live), accepted(8))),
            "apply"
        );
        live.differences = 0;
        assert_eq!(
            name(&decide(&outline(), &object, Some(&live), History::default())),
            "keep"
        );
        live.ownership.deleting = Some(Vec::new());
        assert_eq!(
            name(&decide(&outline(), &object, Some(&live), History::default())),
            "terminating"
        );
    }

    #[test]
    fn another_controller_steps_back_unless_we_applied_it_ourselves() {
        let object = OutlineObject {
            collision_protection: CollisionProtection::None,
            ..OutlineObject::default()
        };
        let mut live = seen(Some("stranger"), RevisionMark::Absent);
        let Decision::Write(write) = decide(&outline(), &object, Some(&live), History::default()) else {
            panic!()
        };
        assert_eq!(write.demoted.len(), 1);
        live = seen(Some("old"), RevisionMark::Revision(4));
        live.ownership.controller.as_mut().unwrap().applied_by_us = true;
        let Decision::Write(write) = decide(&outline(), &object, Some(&live), History::default()) else {
            panic!()
        };
        assert_eq!(write.demoted, []);
    }

    #[test]
    fn an_owner_reference_that_was_taken_off_comes_back_while_the_revision_keeps_up() {
        let object = OutlineObject::default();
        let mut live = seen(None, RevisionMark::Revision(5));
        live.ownership.applied_by_us = true;
        live.ownership.owner_name = Some(String::new());
        let reclaims = History {
            reclaims: Reclaims::Applied,
            ..History::default()
        };
        let restored = History {
            reclaims: Reclaims::Named,
            ..History::default()
        };
        let decided = |live: &Observation, known| name(&decide(&outline(), &object, Some(live), known));
        assert_eq!(decided(&live, History::default()), "collision");
        assert_eq!(decided(&live, reclaims), "apply");
        let change = |change: &dyn Fn(&mut Ownership)| {
            let mut live = live.clone();
            change(&mut live.ownership);
            decided(&live, reclaims)
        };
        assert_eq!(change(&|live| live.applied_by_us = false), "collision");
        let mut named = live.clone();
        named.ownership.applied_by_us = false;
        assert_eq!(decided(&named, restored), "apply");
        assert_eq!(
            change(&|live| live.revision = RevisionMark::Revision(4)),
            "collision"
        );
        assert_eq!(
            change(&|live| live.owner_name = Some("other".to_owned())),
            "collision"
        );
        assert_eq!(
            change(&|live| live.controller = Some(OwnerReference::default())),
            "collision"
        );
        assert_eq!(change(&|live| live.deleting = Some(Vec::new())), "terminating");
    }
}
