//! State of a ClusterObjectSet between two runs. All of it can be read again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use olm_rollout::{
    certificates, content::RevisionContent, engine::request::Observation, outline::ObjectPosition,
    phases::Phases,
};

use super::observe::gather::Sources;

/// The most repairs within [`CALM`]. Further ones are delayed.
const MAX_REPAIRS: usize = 10;
/// The window in which repairs are counted.
const CALM: Duration = Duration::from_mins(1);
/// The first delay for a stale cache, and how often it doubles: to 160 ms.
const LAG: (Duration, u32) = (Duration::from_millis(10), 4);

/// The state of one ClusterObjectSet, a part for each stage.
#[derive(Debug, Default)]
pub(crate) struct SetState {
    /// The UID. A set with another UID starts with empty state.
    pub uid: String,
    /// A hash of its probes, on which the state of objects depends.
    pub probes: u64,
    /// Our own writes, and how far the watch is behind them.
    pub cache: CacheState,
    /// The content of the set.
    pub loaded: Loaded,
    /// The objects as the executor last saw them.
    pub objects: Objects,
    /// The course of the rollout.
    pub rollout: RolloutState,
    /// The course of the teardown.
    pub teardown: TeardownState,
}

/// The cache of the set beside our own writes.
#[derive(Debug, Default)]
pub(crate) struct CacheState {
    /// The newest resourceVersion of our own writes.
    pub written: u64,
    /// The number of consecutive runs in which the cache was older than that.
    pub behind: u32,
}

/// The content of a set.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The bodies, only while they are needed.
    pub content: Option<Arc<RevisionContent>>,
    /// The phases without bodies.
    pub phases: Option<Arc<Phases>>,
    /// The Secrets from which the phases were read.
    pub sources: Sources,
}

/// The objects of a set on the cluster.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The objects as they were last seen.
    pub known: HashMap<ObjectPosition, SeenObject>,
    /// The state of certificates.
    pub certificates: certificates::state::CertificateState,
    /// The fingerprints of differences that the server left.
    pub accepted: BTreeMap<ObjectPosition, u64>,
}

/// The course of a rollout.
#[derive(Debug, Default)]
pub(crate) struct RolloutState {
    /// The times of repairs of objects of a complete set.
    repairs: Vec<Instant>,
    /// Whether the kind of an object is missing, so that new kinds start a run.
    pub misses_kinds: bool,
    /// Whether no watch covers one of the objects.
    pub unwatched: bool,
    /// The last known causes of unready workloads, and when they were read.
    pub causes: Option<(Instant, Vec<String>)>,
}

/// The course of a teardown.
#[derive(Debug, Default)]
pub(crate) struct TeardownState {
    /// Objects that are gone.
    pub gone: BTreeSet<ObjectPosition>,
    /// Certificates whose Secrets were deleted although the Certificates were already gone.
    pub swept: BTreeSet<ObjectPosition>,
    /// Whether the set was deleted in the foreground, so that Kubernetes itself deletes its objects.
    pub in_foreground: bool,
    /// Whether our finalizer was removed from a set that is being deleted.
    pub ended: bool,
}

/// An object as it was last seen.
#[derive(Debug, Clone)]
pub(crate) struct SeenObject {
    /// The state.
    pub seen: Observation,
    /// The time at which it first had this state.
    pub at: Instant,
    /// The time at which the server last confirmed it.
    pub asked: Instant,
}

impl SetState {
    /// Drops state that does not apply to this set any more.
    pub(crate) fn renew(&mut self, uid: &str, probes: u64) {
        if self.uid != uid {
            *self = Self {
                uid: uid.to_owned(),
                ..Self::default()
            };
        }
        if self.probes != probes {
            self.objects.known.clear();
            self.probes = probes;
        }
    }
}

impl CacheState {
    /// The delay for a cache that is older than our own last write, increasing each time. The cache usually catches up
    /// within milliseconds, and the rollout may wait for that event.
    pub(crate) fn lag(&mut self) -> Duration {
        let (first, doublings) = LAG;
        let wait = first * 2u32.pow(self.behind.min(doublings));
        self.behind = self.behind.saturating_add(1);
        wait
    }
}

impl RolloutState {
    /// Records a repair of a complete set. Returns a delay if repairs are too frequent because another writer undoes
    /// them.
    pub(crate) fn repaired(&mut self, now: Instant) -> Option<Duration> {
        self.repairs.retain(|at| now.duration_since(*at) < CALM);
        self.repairs.push(now);
        (self.repairs.len() > MAX_REPAIRS).then(|| CALM / 4)
    }

    /// The remaining delay of repairs, if they must wait.
    pub(crate) fn repair_delay(&self, now: Instant) -> Option<Duration> {
        let last = self.repairs.last()?;
        let recent = self
            .repairs
            .iter()
            .filter(|at| now.duration_since(**at) < CALM)
            .count();
        (recent > MAX_REPAIRS)
            .then(|| (CALM / 4).saturating_sub(now.duration_since(*last)))
            .filter(|d| !d.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_lags_is_asked_less_and_less_often() {
        let mut set_state = CacheState::default();
        let waits: Vec<u128> = (0..6).map(|_| set_state.lag().as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 160]);
    }

    #[test]
    fn frequent_repairs_are_spaced() {
        let mut set_state = RolloutState::default();
        let now = Instant::now();
        for _ in 0..MAX_REPAIRS {
            assert_eq!(set_state.repaired(now), None);
        }
        assert_eq!(set_state.repaired(now), Some(CALM / 4));
        assert_eq!(set_state.repair_delay(now), Some(CALM / 4));
        assert_eq!(set_state.repair_delay(now + CALM), None);
    }

    #[test]
    fn another_set_of_the_same_name_is_not_remembered() {
        let mut set_state = SetState::default();
        set_state.renew("a", 1);
        set_state.teardown.gone.insert(ObjectPosition::default());
        set_state.renew("a", 2);
        assert_eq!(set_state.teardown.gone.len(), 1);
        set_state.renew("b", 2);
        assert_eq!(set_state.teardown.gone.len(), 0);
    }
}
