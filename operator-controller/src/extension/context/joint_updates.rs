//! Extensions that need each other: the one place that decides which of them change. Each run reports the state of its
//! extension. None changes before all can, and one that cannot does not stop the others from trying.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use olm_plan::ChangePlan;
use parking_lot::Mutex;

/// The time after which a change that began together with others may no longer begin outside its windows.
const MAX_DELAY: SignedDuration = SignedDuration::from_hours(1);

/// Another extension that is installed or updated in the same step, and the bundle that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JointChange {
    /// The ClusterExtension.
    pub extension: String,
    pub bundle: String,
}

/// The states of extensions.
#[derive(Debug, Default)]
pub(crate) struct JointUpdates {
    states: Mutex<HashMap<String, JointUpdateState>>,
}

/// A bundle that passed every check. It can be installed as soon as its companions can.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub bundle: String,
    /// The planned change, if policies select the extension.
    pub plan: Option<Arc<ChangePlan>>,
}

#[derive(Debug, Clone, Default)]
struct JointUpdateState {
    /// The bundle that the extension is ready for, if any.
    ready: Option<Ready>,
    /// The bundle that it gets because a companion has changed, and since when.
    begun: Option<(String, Timestamp)>,
    /// Whether the present run confirmed `ready`.
    is_confirmed: bool,
    /// The reason why the last run could not install a bundle that others may be updated with; one line.
    blocker: Option<String>,
    /// Whether a change of another extension may change the outcome.
    awaits_others: bool,
}

impl JointUpdates {
    /// Records that the present run found the bundle ready. Returns the companions that are neither ready nor changed
    /// already (`newest` returns the newest bundle of an extension).
    pub(crate) fn ready<'c>(
        &self,
        extension: &str,
        ready: Ready,
        companions: &'c [JointChange],
        newest: impl Fn(&str) -> Option<String>,
    ) -> Vec<&'c JointChange> {
        // Recorded before the others are read, so that of several runs at the same time one sees all ready.
        self.change(extension, |own| {
            own.ready = Some(ready);
            own.is_confirmed = true;
        });
        let states = self.states.lock();
        let is_ready = |companion: &&JointChange| {
            let state = states.get(&companion.extension);
            let ready = state.and_then(|state| state.ready.as_ref());
            ready.is_some_and(|ready| ready.bundle == companion.bundle)
                || newest(&companion.extension).as_ref() == Some(&companion.bundle)
        };
        companions
            .iter()
            .filter(|companion| !is_ready(companion))
            .collect()
    }

    /// The bundle for which an extension is ready.
    pub(crate) fn readiness(&self, extension: &str) -> Option<Ready> {
        self.states.lock().get(extension)?.ready.clone()
    }

    /// Records that an extension is no longer ready.
    pub(crate) fn withdraw(&self, extension: &str) {
        self.change(extension, |own| own.ready = None);
    }

    /// Records that an extension changes now together with its companions. None of them waits for another window.
    pub(crate) fn begin(&self, extension: &str, companions: &[JointChange], now: Timestamp) {
        self.change(extension, |own| own.begun = None);
        for companion in companions {
            self.change(&companion.extension, |other| {
                other.begun = Some((companion.bundle.clone(), now));
            });
        }
    }

    /// Whether a companion has changed already, so that the extension may get this bundle outside its windows.
    pub(crate) fn has_begun(&self, extension: &str, bundle: &str, now: Timestamp) -> bool {
        let states = self.states.lock();
        let begun = states.get(extension).and_then(|state| state.begun.as_ref());
        begun.is_some_and(|(begun, at)| begun == bundle && now.duration_since(*at) < MAX_DELAY)
    }

    /// Records the end of a run: without a confirmation the extension is no longer ready. The blocker applies if it is
    /// not.
    pub(crate) fn conclude(&self, extension: &str, blocker: Option<String>) {
        self.change(extension, |own| {
            if !std::mem::take(&mut own.is_confirmed) {
                own.ready = None;
            }
            own.blocker = blocker.filter(|_| own.ready.is_none());
        });
    }

    /// The reason why `other` cannot change, if `own` waits for it.
    pub(crate) fn blocker(&self, own: &str, other: &str) -> Option<String> {
        let states = self.states.lock();
        let blocker = |name: &str| states.get(name)?.blocker.clone();
        blocker(other).filter(|_| waits_for(own, blocker(own).is_some(), other))
    }

    /// Records whether a change of another extension may matter to this one.
    pub(crate) fn awaits_others(&self, extension: &str, awaits: bool) {
        self.change(extension, |own| own.awaits_others = awaits);
    }

    /// The extensions to which a change of another one may matter.
    pub(crate) fn awaiting(&self) -> Vec<String> {
        let states = self.states.lock();
        let awaiting = states.iter().filter(|(_, state)| state.awaits_others);
        awaiting.map(|(name, _)| name.clone()).collect()
    }

    /// A hash that changes when an extension becomes ready or blocked, or stops being so.
    pub(crate) fn digest(&self, extension: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        let states = self.states.lock();
        let state = states.get(extension);
        let ready = state.and_then(|state| state.ready.as_ref());
        ready.map(|ready| &ready.bundle).hash(&mut hasher);
        let blocker = state.and_then(|state| state.blocker.as_ref());
        blocker.hash(&mut hasher);
        hasher.finish()
    }

    /// Forgets an extension that is gone.
    pub(crate) fn forget(&self, extension: &str) {
        self.states.lock().remove(extension);
    }

    fn change(&self, extension: &str, change: impl FnOnce(&mut JointUpdateState)) {
        change(self.states.lock().entry(extension.to_owned()).or_default());
    }
}

/// Whether an extension waits for another one that cannot change. Of several that cannot, the first by name keeps
/// trying: if each waited for the others, none would count as blocked, and all would try again for ever.
fn waits_for(own: &str, is_blocked: bool, other: &str) -> bool {
    !is_blocked || other < own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(bundle: &str) -> Ready {
        Ready {
            bundle: bundle.to_owned(),
            plan: None,
        }
    }

    fn companion(extension: &str, bundle: &str) -> JointChange {
        JointChange {
            extension: extension.to_owned(),
            bundle: bundle.to_owned(),
        }
    }

    #[test]
    fn no_extension_moves_before_all_are_ready_or_there_already() {
        let joint_updates = JointUpdates::default();
        let nothing = |_: &str| None;
        let with_b = [companion("b", "b.v2")];
        assert_eq!(
            joint_updates.ready("a", ready("a.v2"), &with_b, nothing),
            [&with_b[0]]
        );
        joint_updates.conclude("a", None);
        let with_a = [companion("a", "a.v2")];
        assert!(
            joint_updates
                .ready("b", ready("b.v2"), &with_a, nothing)
                .is_empty()
        );
        assert!(
            joint_updates
                .ready("a", ready("a.v2"), &with_b, nothing)
                .is_empty()
        );
        // A run that ends earlier withdraws it.
        joint_updates.conclude("b", None);
        joint_updates.conclude("b", Some("no rights".to_owned()));
        assert_eq!(
            joint_updates.ready("a", ready("a.v2"), &with_b, nothing),
            [&with_b[0]]
        );
        let there = |name: &str| (name == "b").then(|| "b.v2".to_owned());
        assert!(joint_updates.ready("a", ready("a.v2"), &with_b, there).is_empty());
    }

    #[test]
    fn a_change_that_began_with_a_companion_waits_for_no_window() {
        let joint_updates = JointUpdates::default();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert!(!joint_updates.has_begun("a", "a.v2", at(9)));
        joint_updates.begin("b", &[companion("a", "a.v2")], at(9));
        assert!(joint_updates.has_begun("a", "a.v2", at(11)));
        assert!(!joint_updates.has_begun("a", "a.v3", at(11)), "another bundle");
        assert!(!joint_updates.has_begun("a", "a.v2", at(3609)), "too long ago");
        joint_updates.begin("a", &[], at(11));
        assert!(!joint_updates.has_begun("a", "a.v2", at(12)), "once");
    }

    #[test]
    fn a_blocker_counts_until_a_run_is_ready() {
        let joint_updates = JointUpdates::default();
        joint_updates.conclude("b", Some("no rights".to_owned()));
        let blocked = joint_updates.digest("b");
        assert_eq!(joint_updates.blocker("a", "b").as_deref(), Some("no rights"));
        joint_updates.ready("b", ready("b.v2"), &[], |_| None);
        joint_updates.conclude("b", Some("its companion is not ready".to_owned()));
        assert_eq!(joint_updates.blocker("a", "b"), None);
        assert_ne!(joint_updates.digest("b"), blocked);
    }

    #[test]
    fn several_blocked_extensions_come_to_rest_though_they_look_at_each_other_at_the_same_time() {
        let names = ["a", "b", "c"];
        let round = |before: [bool; 3], may: [bool; 3]| {
            let tries = |own: usize| {
                let waits = |other: usize| {
                    other != own && before[other] && waits_for(names[own], before[own], names[other])
                };
                !(0..3).any(waits)
            };
            [0, 1, 2].map(|own| tries(own) && !may[own])
        };
        for bits in 0..8 {
            let may = [1, 2, 4].map(|bit| bits & bit != 0);
            let mut blocked = [false; 3];
            for _ in 0..4 {
                blocked = round(blocked, may);
            }
            assert_eq!(blocked, round(blocked, may), "{may:?}");
            assert_eq!(
                blocked.contains(&true),
                may.contains(&false),
                "one of them says why: {may:?}"
            );
        }
    }
}
