//! The record of a teardown: the results for the objects of a revision.

use std::collections::BTreeSet;

use crate::object::ObjectId;
use crate::outline::{ObjectPosition, Outline};
use crate::policy::Uninstall;

/// The results of a teardown for the objects of a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TeardownRecord {
    /// The policy of the deletion at its end. It may have been another one before.
    pub policy: Uninstall,
    /// Objects that are gone, or were released to a newer revision.
    pub gone: BTreeSet<ObjectId>,
    /// Objects among them that were seen to be gone.
    pub seen_gone: BTreeSet<ObjectId>,
    /// Objects that were released.
    pub left: BTreeSet<ObjectId>,
    /// Released objects that were already being deleted. They go when their finalizers are removed.
    pub going: BTreeSet<ObjectId>,
    /// Objects that no account could remove. Kubernetes collects them because they have no owner any more.
    pub collected: BTreeSet<ObjectId>,
    /// Whether Kubernetes itself deleted the objects of the revision, regardless of the policy.
    pub in_foreground: bool,
}

/// The objects that the user wants to keep.
pub fn kept(policy: Uninstall, outline: &Outline) -> BTreeSet<ObjectPosition> {
    match policy {
        Uninstall::Delete => BTreeSet::new(),
        Uninstall::KeepCrds => outline.custom_resources(),
        Uninstall::Orphan => outline.all_positions().collect(),
    }
}

impl TeardownRecord {
    /// The record of a revision that was just torn down. `gone` are the positions of objects that were seen to be gone;
    /// `going` returns whether an object was being deleted when it was last seen.
    pub fn of(
        outline: &Outline,
        policy: Uninstall,
        gone: &BTreeSet<ObjectPosition>,
        going: impl Fn(ObjectPosition) -> bool,
    ) -> Self {
        let kept = kept(policy, outline);
        let mut record = Self {
            policy,
            ..Self::default()
        };
        for position in outline.all_positions() {
            let id = outline.id(position);
            let seen_gone = gone.contains(&position);
            if seen_gone {
                record.seen_gone.insert(id.clone());
            }
            if seen_gone || !kept.contains(&position) {
                record.gone.insert(id);
                continue;
            }
            if going(position) {
                record.going.insert(id.clone());
            }
            record.left.insert(id);
        }
        record
    }

    /// Records objects that were left to the garbage collector.
    pub fn collect(&mut self, objects: Vec<ObjectId>) {
        for id in objects {
            self.gone.remove(&id);
            self.collected.insert(id);
        }
    }

    /// The records of all revisions of an extension together. An object that one of them found gone is not left, and an
    /// object that one of them left is not gone because a superseded revision released it.
    pub fn together(records: &[Self]) -> Self {
        let mut all = Self::default();
        for record in records {
            all.policy = record.policy;
            all.gone.extend(record.gone.iter().cloned());
            all.seen_gone.extend(record.seen_gone.iter().cloned());
            all.left.extend(record.left.iter().cloned());
            all.going.extend(record.going.iter().cloned());
            all.collected.extend(record.collected.iter().cloned());
            all.in_foreground |= record.in_foreground;
        }
        let Self {
            gone,
            seen_gone,
            left,
            going,
            collected,
            ..
        } = &mut all;
        left.retain(|id| !seen_gone.contains(id));
        going.retain(|id| !seen_gone.contains(id));
        collected.retain(|id| !seen_gone.contains(id));
        gone.retain(|id| !left.contains(id) && !collected.contains(id));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outline::{OutlineObject, OutlinePhase};

    fn outline(names: &[&str]) -> Outline {
        let objects = names.iter().map(|name| OutlineObject {
            id: ObjectId {
                name: (*name).to_owned(),
                ..ObjectId::default()
            },
            ..OutlineObject::default()
        });
        Outline {
            phases: vec![OutlinePhase {
                objects: objects.collect(),
                ..OutlinePhase::default()
            }],
            ..Outline::default()
        }
    }

    /// The record of a revision with objects of these names, of which those at the indices are gone.
    fn record(names: &[&str], gone: &[usize], policy: Uninstall) -> TeardownRecord {
        let gone = gone.iter().map(|object| ObjectPosition {
            phase: 0,
            object: *object,
        });
        TeardownRecord::of(&outline(names), policy, &gone.collect(), |_| false)
    }

    fn names(ids: &BTreeSet<ObjectId>) -> Vec<&str> {
        ids.iter().map(|id| id.name.as_str()).collect()
    }

    #[test]
    fn objects_gone_before_the_release_are_recorded() {
        let deleted = record(&["a", "b", "c"], &[], Uninstall::Delete);
        assert_eq!(
            (names(&deleted.gone), names(&deleted.left)),
            (vec!["a", "b", "c"], vec![])
        );
        let left = record(&["a", "b", "c"], &[1], Uninstall::Orphan);
        assert_eq!(
            (names(&left.gone), names(&left.left)),
            (vec!["b"], vec!["a", "c"])
        );
    }

    #[test]
    fn an_object_found_gone_is_not_released_by_another_revision() {
        let records = [
            record(&["a", "b"], &[0], Uninstall::Orphan),
            record(&["a", "c"], &[], Uninstall::Orphan),
        ];
        let all = TeardownRecord::together(&records);
        assert_eq!((names(&all.gone), names(&all.left)), (vec!["a"], vec!["b", "c"]));
    }

    #[test]
    fn objects_handed_to_a_successor_stay_with_it() {
        let records = [
            record(&["a", "b", "old"], &[2], Uninstall::Delete),
            record(&["a", "b", "new"], &[1], Uninstall::Orphan),
        ];
        let all = TeardownRecord::together(&records);
        assert_eq!(
            (names(&all.gone), names(&all.left)),
            (vec!["b", "old"], vec!["a", "new"])
        );
    }
}
