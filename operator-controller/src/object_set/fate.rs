//! What became of the objects of revisions that are gone: the last word on their extension tells it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    engine::{ObjectId, Outline, Owner, Place},
    memory::Memory,
    policy::Uninstall,
};

/// What became of the objects of a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fate {
    /// What its deletion was to leave behind in the end; before, that may have been something else.
    pub policy: Uninstall,
    /// Objects that are gone, or were let go to a newer revision.
    pub gone: BTreeSet<ObjectId>,
    /// Those of them that were seen to be gone.
    pub seen_gone: BTreeSet<ObjectId>,
    /// Objects that were let go.
    pub left: BTreeSet<ObjectId>,
    /// Those of the latter that were being deleted already, and go as soon as nothing holds them.
    pub going: BTreeSet<ObjectId>,
    /// Whether Kubernetes itself deleted what the revision owned, whatever was to be left.
    pub in_foreground: bool,
}

/// The objects that the user wants to keep.
pub fn kept(policy: Uninstall, outline: &Outline) -> BTreeSet<Place> {
    match policy {
        Uninstall::Delete => BTreeSet::new(),
        Uninstall::KeepCrds => outline.custom_resources(),
        Uninstall::Orphan => outline.all_places().collect(),
    }
}

impl Fate {
    /// Of a revision that was just taken down; nothing when it is not known which objects it had.
    pub fn of(memory: &Memory, policy: Uninstall) -> Option<Self> {
        let outline = memory.phases.as_ref()?.outline(Owner::default(), Vec::new());
        let kept = kept(policy, &outline);
        let mut fate = Self {
            policy,
            ..Self::default()
        };
        for place in outline.all_places() {
            let id = outline.id(place);
            let seen_gone = memory.gone.contains(&place);
            if seen_gone {
                fate.seen_gone.insert(id.clone());
            }
            if seen_gone || !kept.contains(&place) {
                fate.gone.insert(id);
                continue;
            }
            let known = memory.known.get(&place);
            if known.is_some_and(|known| known.seen.ownership.deleting.is_some()) {
                fate.going.insert(id.clone());
            }
            fate.left.insert(id);
        }
        Some(fate)
    }

    /// Of all revisions of an extension: what one of them found gone is not left, and what one of them left is not gone
    /// because another, which it had superseded, let it go.
    pub fn together(fates: &[Self]) -> Self {
        let mut all = Self::default();
        for fate in fates {
            all.policy = fate.policy;
            all.gone.extend(fate.gone.iter().cloned());
            all.seen_gone.extend(fate.seen_gone.iter().cloned());
            all.left.extend(fate.left.iter().cloned());
            all.going.extend(fate.going.iter().cloned());
            all.in_foreground |= fate.in_foreground;
        }
        let Self {
            gone,
            seen_gone,
            left,
            going,
            ..
        } = &mut all;
        left.retain(|id| !seen_gone.contains(id));
        going.retain(|id| !seen_gone.contains(id));
        gone.retain(|id| !left.contains(id));
        all
    }
}

/// The fates of revisions by the UID of their extension and their name, until its last word is said.
#[derive(Debug, Default)]
pub struct Fates(Mutex<HashMap<String, BTreeMap<String, Fate>>>);

impl Fates {
    /// Notes what became of a revision.
    pub fn note(&self, extension: &str, revision: &str, fate: Fate) {
        self.lock()
            .entry(extension.to_owned())
            .or_default()
            .insert(revision.to_owned(), fate);
    }

    /// What became of the revisions of an extension; it is told once.
    pub fn take(&self, extension: &str) -> Vec<Fate> {
        let taken = self.lock().remove(extension).unwrap_or_default();
        taken.into_values().collect()
    }

    /// Forgets extensions that are gone.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.lock().retain(|extension, _| keep(extension));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<String, Fate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::cluster_object_set::CollisionProtection;
    use serde_json::json;

    use super::*;
    use crate::object_set::content::{Content, ContentObject, ContentPhase};
    use crate::object_set::memory::Phases;

    fn memory(names: &[&str]) -> Memory {
        let objects = names
            .iter()
            .map(|name| ContentObject {
                object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}}),
                collision_protection: CollisionProtection::Prevent,
            })
            .collect();
        let content = Content {
            phases: vec![ContentPhase {
                objects,
                ..ContentPhase::default()
            }],
        };
        Memory {
            phases: Some(Arc::new(Phases::of(&content))),
            ..Memory::default()
        }
    }

    fn names(ids: &BTreeSet<ObjectId>) -> Vec<&str> {
        ids.iter().map(|id| id.name.as_str()).collect()
    }

    #[test]
    fn what_is_gone_before_the_rest_is_left_is_known() {
        let mut memory = memory(&["a", "b", "c"]);
        let deleted = Fate::of(&memory, Uninstall::Delete).unwrap();
        assert_eq!(
            (names(&deleted.gone), names(&deleted.left)),
            (vec!["a", "b", "c"], vec![])
        );
        memory.gone.insert(Place { phase: 0, object: 1 });
        let left = Fate::of(&memory, Uninstall::Orphan).unwrap();
        assert_eq!(
            (names(&left.gone), names(&left.left)),
            (vec!["b"], vec!["a", "c"])
        );
        assert_eq!(Fate::of(&Memory::default(), Uninstall::Orphan), None);
    }

    #[test]
    fn what_one_revision_found_gone_is_not_left_by_another() {
        let mut first = memory(&["a", "b"]);
        first.gone.insert(Place { phase: 0, object: 0 });
        let fates = [first, memory(&["a", "c"])].map(|memory| Fate::of(&memory, Uninstall::Orphan).unwrap());
        let all = Fate::together(&fates);
        assert_eq!((names(&all.gone), names(&all.left)), (vec!["a"], vec!["b", "c"]));
    }

    #[test]
    fn what_a_superseded_revision_let_go_to_its_successor_is_left_with_it() {
        let mut older = memory(&["a", "b", "old"]);
        older.gone.insert(Place { phase: 0, object: 2 });
        let mut newer = memory(&["a", "b", "new"]);
        newer.gone.insert(Place { phase: 0, object: 1 });
        let fates = [(older, Uninstall::Delete), (newer, Uninstall::Orphan)]
            .map(|(memory, policy)| Fate::of(&memory, policy).unwrap());
        let all = Fate::together(&fates);
        assert_eq!(
            (names(&all.gone), names(&all.left)),
            (vec!["b", "old"], vec!["a", "new"])
        );
    }

    #[test]
    fn a_fate_is_told_once() {
        let fates = Fates::default();
        fates.note("uid", "pot-1", Fate::default());
        fates.note("uid", "pot-1", Fate::default());
        fates.note("other", "pan-1", Fate::default());
        assert_eq!(fates.take("uid").len(), 1);
        assert_eq!(fates.take("uid").len(), 0);
        fates.retain(|extension| extension != "other");
        assert_eq!(fates.take("other").len(), 0);
    }
}
