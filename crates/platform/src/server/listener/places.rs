//! Slots for connections. A listener has a limited number, and so has each peer.
//!
//! No connection waits for a slot. If none is free, the idlest connection of the peer with the most connections is
//! closed, so that one peer cannot lock the others out. If all peers have few, the idlest connection of all without an
//! answer in progress is closed, so that many peers with idle connections cannot either.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The slots of a listener.
#[derive(Debug, Clone)]
pub(super) struct Slots(Arc<Mutex<PlacesState>>);

#[derive(Debug)]
struct PlacesState {
    total: usize,
    per_peer: usize,
    next: u64,
    taken: BTreeMap<u64, Connection>,
    peers: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    /// Answers in progress.
    answers: usize,
    /// The time at which it was accepted, or at which its last answer began or ended.
    active: Instant,
    evicted: CancellationToken,
}

impl Slots {
    /// `total` slots, of which one peer gets at most `per_peer`.
    pub(super) fn new(total: usize, per_peer: usize) -> Self {
        Self(Arc::new(Mutex::new(PlacesState {
            total: total.max(1),
            per_peer: per_peer.max(1),
            next: 0,
            taken: BTreeMap::new(),
            peers: HashMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, PlacesState> {
        self.0.lock()
    }

    /// A slot for a new connection of `peer`. `None` if that peer has reached its limit and each of its connections has
    /// an answer in progress, or if all slots are taken and no peer has more connections than it would have.
    pub(super) fn take(&self, peer: IpAddr) -> Option<Slot> {
        let peer = peer.to_canonical();
        let mut state = self.lock();
        state.make_room(peer).then_some(())?;
        let number = state.next;
        state.next += 1;
        let evicted = CancellationToken::new();
        let connection = Connection {
            peer,
            answers: 0,
            active: Instant::now(),
            evicted: evicted.clone(),
        };
        state.taken.insert(number, connection);
        *state.peers.entry(peer).or_default() += 1;
        drop(state);
        Some(Slot {
            places: self.clone(),
            number,
            evicted,
        })
    }
}

impl PlacesState {
    /// Whether there is a slot for one more connection of this peer, possibly after one is evicted.
    fn make_room(&mut self, newcomer: IpAddr) -> bool {
        let held = self.peers.get(&newcomer).copied().unwrap_or_default();
        if held >= self.per_peer {
            // The peer's answers in progress have precedence over one more connection.
            return self.evict(Busy::Spared, |peer| peer == newcomer);
        }
        if self.taken.len() < self.total {
            return true;
        }
        let most = self.peers.iter().max_by_key(|(_, held)| **held);
        match most.map(|(peer, most)| (*peer, *most)) {
            Some((greedy, most)) if most > held + 1 => self.evict(Busy::Evicted, |peer| peer == greedy),
            _ => {
                let holding_more: HashSet<IpAddr> = self
                    .peers
                    .iter()
                    .filter(|(_, others)| **others > held)
                    .map(|(peer, _)| *peer)
                    .collect();
                self.evict(Busy::Spared, |peer| peer == newcomer)
                    || self.evict(Busy::Spared, |peer| holding_more.contains(&peer))
            }
        }
    }

    /// Closes the idlest connection of some peers: one without an answer in progress, otherwise the one with the oldest
    /// activity.
    fn evict(&mut self, busy: Busy, is_of: impl Fn(IpAddr) -> bool) -> bool {
        let of_peers = self.taken.iter().filter(|(_, connection)| is_of(connection.peer));
        let candidates = of_peers.filter(|(_, connection)| busy == Busy::Evicted || connection.answers == 0);
        let idlest = candidates.min_by_key(|(_, connection)| (connection.answers > 0, connection.active));
        let Some(number) = idlest.map(|(number, _)| *number) else {
            return false;
        };
        if let Some(connection) = self.free(number) {
            connection.evicted.cancel();
        }
        true
    }

    fn free(&mut self, number: u64) -> Option<Connection> {
        let connection = self.taken.remove(&number)?;
        if let Some(held) = self.peers.get_mut(&connection.peer) {
            *held -= 1;
            if *held == 0 {
                self.peers.remove(&connection.peer);
            }
        }
        Some(connection)
    }

    fn touch(&mut self, number: u64, change: impl FnOnce(&mut Connection)) {
        // An evicted connection may still be ending.
        if let Some(connection) = self.taken.get_mut(&number) {
            change(connection);
            connection.active = Instant::now();
        }
    }
}

/// The treatment of connections with an answer in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    Spared,
    Evicted,
}

/// The slot of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    places: Slots,
    number: u64,
    evicted: CancellationToken,
}

impl Slot {
    /// Resolves when the connection must end.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// An answer begins; it ends when the result is dropped.
    pub(super) fn answers(&self) -> RequestGuard {
        self.places
            .lock()
            .touch(self.number, |connection| connection.answers += 1);
        RequestGuard {
            places: self.places.clone(),
            number: self.number,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.places.lock().free(self.number);
    }
}

/// An answer in progress.
#[derive(Debug)]
pub(super) struct RequestGuard {
    places: Slots,
    number: u64,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.places.lock().touch(self.number, |connection| {
            connection.answers = connection.answers.saturating_sub(1);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn is_evicted(place: &Slot) -> bool {
        place.evicted.is_cancelled()
    }

    #[test]
    fn a_peer_gives_up_its_own_idlest_connection() {
        let places = Slots::new(100, 3);
        let mut held: Vec<Slot> = (0..3).filter_map(|_| places.take(peer(1))).collect();
        let answering = held[0].answers();
        let fourth = places.take(peer(1)).unwrap();
        assert!(!is_evicted(&held[0]) && is_evicted(&held[1]) && !is_evicted(&held[2]));
        // A mapped address is the same peer.
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let fifth = places.take(mapped).unwrap();
        assert!(is_evicted(&held[2]) && !is_evicted(&fourth));
        let busy = [fourth.answers(), fifth.answers()];
        assert!(places.take(peer(1)).is_none(), "each has an answer under way");
        assert!(places.take(peer(2)).is_some());
        drop((answering, busy));
        held.truncate(1);
        assert!(places.take(peer(1)).is_some());
    }

    #[test]
    fn whoever_holds_the_most_makes_room_for_others_also_with_answers_under_way() {
        let places = Slots::new(8, 6);
        let greedy: Vec<Slot> = (0..6).filter_map(|_| places.take(peer(1))).collect();
        let answering: Vec<RequestGuard> = greedy.iter().map(Slot::answers).collect();
        let others: Vec<Slot> = (2..6).filter_map(|number| places.take(peer(number))).collect();
        assert_eq!(others.len(), 4);
        assert_eq!(greedy.iter().filter(|place| is_evicted(place)).count(), 2);
        assert!(others.iter().all(|place| !is_evicted(place)));
        assert_eq!(places.lock().taken.len(), 8);
        // An evicted connection that ends does not free its slot twice.
        drop(answering);
        drop(greedy);
        assert_eq!(places.lock().taken.len(), 4);
        assert_eq!(places.lock().peers.len(), 4);
    }

    #[test]
    fn peers_with_as_much_as_a_newcomer_keep_their_places() {
        let places = Slots::new(3, 3);
        let held: Vec<Slot> = (1..4).filter_map(|number| places.take(peer(number))).collect();
        let mut answering: Vec<RequestGuard> = held.iter().map(Slot::answers).collect();
        assert!(places.take(peer(4)).is_none());
        drop(answering.remove(0));
        let again = places.take(peer(1));
        assert!(again.is_some() && is_evicted(&held[0]), "its own first one");
        assert!(!is_evicted(&held[1]) && !is_evicted(&held[2]));
    }

    #[test]
    fn peers_with_one_idle_connection_each_cannot_lock_a_newcomer_out() {
        let places = Slots::new(3, 3);
        let held: Vec<Slot> = (1..4).filter_map(|number| places.take(peer(number))).collect();
        let answering = held[0].answers();
        let newcomer = places.take(peer(4));
        assert!(newcomer.is_some() && is_evicted(&held[1]), "the idlest");
        assert!(!is_evicted(&held[0]) && !is_evicted(&held[2]));
        assert!(places.take(peer(1)).is_none(), "no peer holds more than it");
        drop(answering);
    }
}
