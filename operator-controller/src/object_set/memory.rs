//! What the controller remembers of a ClusterObjectSet between two runs. All of it can be found out again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use olm_rollout::{
    certificates, content::Content, engine::request::Observation, outline::Place, phases::Phases,
};

use super::observe::gather::Sources;

/// How many repairs in [`CALM`] are made at once; more are spaced.
const MAX_REPAIRS: usize = 10;
/// The time in which repairs are counted.
const CALM: Duration = Duration::from_mins(1);
/// How long the cache is waited for at first, and how often that is doubled: to 160 ms.
const LAG: (Duration, u32) = (Duration::from_millis(10), 4);

/// What is remembered of one ClusterObjectSet.
#[derive(Debug, Default)]
pub struct Memory {
    /// Its UID; another one is another set.
    pub uid: String,
    /// Its probes, of which what was seen of an object depends.
    pub probes: u64,
    /// The newest resourceVersion that we wrote.
    pub written: u64,
    /// How many times in a row the cache was older than that.
    pub behind: u32,
    /// The bodies, only while they are needed.
    pub content: Option<Arc<Content>>,
    /// The phases without bodies.
    pub phases: Option<Arc<Phases>>,
    /// The Secrets that the phases were read from.
    pub sources: Sources,
    /// The objects as they were seen last.
    pub known: HashMap<Place, SeenObject>,
    /// What was seen of certificates.
    pub certificates: certificates::memory::CertificateMemory,
    /// The fingerprints of differences that the server left.
    pub accepted: BTreeMap<Place, u64>,
    /// Objects of a set that is taken down of which nothing is left.
    pub gone: BTreeSet<Place>,
    /// Certificates of a set that is taken down whose Secrets were looked after although they are gone themselves.
    pub swept: BTreeSet<Place>,
    /// Whether the set was deleted in the foreground, so that Kubernetes itself deletes what it owns.
    pub in_foreground: bool,
    /// When objects of a complete set were repaired.
    pub repairs: Vec<Instant>,
    /// Whether an object's kind is missing, so that new kinds matter.
    pub misses_kinds: bool,
    /// Whether one of the objects is not watched.
    pub unwatched: bool,
    /// Why workloads were not ready when that was asked last.
    pub causes: Option<(Instant, Vec<String>)>,
    /// Whether our finalizer was taken off a set that is being deleted, which ends it.
    pub ended: bool,
}

/// An object as it was seen.
#[derive(Debug, Clone)]
pub struct SeenObject {
    /// What was seen.
    pub seen: Observation,
    /// When it was seen like this first.
    pub at: Instant,
    /// When the server said so last.
    pub asked: Instant,
}

impl Memory {
    /// Forgets what does not hold for this set any more.
    pub fn renew(&mut self, uid: &str, probes: u64) {
        if self.uid != uid {
            *self = Self {
                uid: uid.to_owned(),
                ..Self::default()
            };
        }
        if self.probes != probes {
            self.known.clear();
            self.probes = probes;
        }
    }

    /// Notes that a complete set had to be repaired, and says how long to wait when that happens too often: another
    /// writer undoes the repairs.
    pub fn repaired(&mut self, now: Instant) -> Option<Duration> {
        self.repairs.retain(|at| now.duration_since(*at) < CALM);
        self.repairs.push(now);
        (self.repairs.len() > MAX_REPAIRS).then(|| CALM / 4)
    }

    /// How long to wait for a cache that is older than our own last write: longer each time. It nearly always sees it within
    /// milliseconds, and what woke us may be what the rollout waits for.
    pub fn lag(&mut self) -> Duration {
        let (first, doublings) = LAG;
        let wait = first * 2u32.pow(self.behind.min(doublings));
        self.behind = self.behind.saturating_add(1);
        wait
    }

    /// Whether repairs are to wait, and for how long.
    pub fn calming(&self, now: Instant) -> Option<Duration> {
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
        let mut memory = Memory::default();
        let waits: Vec<u128> = (0..6).map(|_| memory.lag().as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 160]);
    }

    #[test]
    fn frequent_repairs_are_spaced() {
        let mut memory = Memory::default();
        let now = Instant::now();
        for _ in 0..MAX_REPAIRS {
            assert_eq!(memory.repaired(now), None);
        }
        assert_eq!(memory.repaired(now), Some(CALM / 4));
        assert_eq!(memory.calming(now), Some(CALM / 4));
        assert_eq!(memory.calming(now + CALM), None);
    }

    #[test]
    fn another_set_of_the_same_name_is_not_remembered() {
        let mut memory = Memory::default();
        memory.renew("a", 1);
        memory.gone.insert(Place::default());
        memory.renew("a", 2);
        assert_eq!(memory.gone.len(), 1);
        memory.renew("b", 2);
        assert_eq!(memory.gone.len(), 0);
    }
}
