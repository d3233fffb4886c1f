//! A rate limit for objects that must be read one by one. It holds per account and kind, for all callers together.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::discover::Resource;
use crate::identity::AccountName;

/// The most objects of a kind that are read under an account in a [`WINDOW`].
pub const READS: usize = 100;
/// The window of the limit, and the time after which an object is read again if the limit allows it.
pub const WINDOW: Duration = Duration::from_secs(100);

/// Objects of a kind that are read under an account.
type Group = (AccountName, Arc<Resource>);

/// The rate limit.
#[derive(Debug, Default)]
pub struct RateLimit {
    groups: Mutex<HashMap<Group, RateLimitState>>,
}

#[derive(Debug, Default)]
struct RateLimitState {
    /// The number of objects of each user.
    objects: HashMap<String, usize>,
    /// The times of the last reads, oldest first.
    reads: VecDeque<Instant>,
}

impl RateLimit {
    /// Sets which objects a user reads one by one under an account: how many of which kinds.
    pub fn want(&self, user: &str, account: Option<&AccountName>, objects: &[(Arc<Resource>, usize)]) {
        let mut groups = self.lock();
        for turn in groups.values_mut() {
            turn.objects.remove(user);
        }
        for (resource, count) in objects {
            if let Some(account) = account {
                let turn = groups.entry((account.clone(), Arc::clone(resource))).or_default();
                turn.objects.insert(user.to_owned(), *count);
            }
        }
        groups.retain(|_, turn| !turn.objects.is_empty());
    }

    /// Whether an object that was read `last` may be read now. If so, the read counts.
    pub fn take(&self, account: &AccountName, resource: &Arc<Resource>, last: Instant, now: Instant) -> bool {
        let mut groups = self.lock();
        let Some(turn) = groups.get_mut(&(account.clone(), Arc::clone(resource))) else {
            return true;
        };
        let objects: usize = turn.objects.values().sum();
        let rounds = u32::try_from(objects.div_ceil(READS)).unwrap_or(u32::MAX);
        if now.saturating_duration_since(last) < WINDOW.saturating_mul(rounds) {
            return false;
        }
        while turn
            .reads
            .front()
            .is_some_and(|read| now.saturating_duration_since(*read) >= WINDOW)
        {
            turn.reads.pop_front();
        }
        let is_free = turn.reads.len() < READS;
        if is_free {
            turn.reads.push_back(now);
        }
        is_free
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Group, RateLimitState>> {
        self.groups.lock()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;
    use crate::discover::Scope;

    fn resource() -> Arc<Resource> {
        Arc::new(Resource {
            api: ApiResource::from_gvk(&GroupVersionKind::gvk("x.io", "v1", "Foo")),
            scope: Scope::Namespaced,
            watchable: true,
        })
    }

    /// Simulates reads of all users' objects: how many in each window, and how often each object.
    fn reads(users: usize, each: usize, looks: u32) -> (Vec<usize>, Vec<u32>) {
        let (rate_limit, resource, account) = (RateLimit::default(), resource(), "n/a".parse().unwrap());
        let begin = Instant::now();
        for user in 0..users {
            rate_limit.want(
                &user.to_string(),
                Some(&account),
                &[(Arc::clone(&resource), each)],
            );
        }
        let mut last = vec![begin; users * each];
        let mut times = vec![0; users * each];
        let mut counts = Vec::new();
        for look in 1..=looks {
            let now = begin + WINDOW * look;
            let mut count = 0;
            for (last, times) in last.iter_mut().zip(&mut times) {
                if rate_limit.take(&account, &resource, *last, now) {
                    *last = now;
                    *times += 1;
                    count += 1;
                }
            }
            counts.push(count);
        }
        (counts, times)
    }

    #[test]
    fn every_object_is_read_in_its_time_and_never_more_than_the_bound() {
        assert_eq!(reads(4, 25, 3).0, [100, 100, 100]);
        let (counts, times) = reads(5, 50, 9);
        assert!(counts.iter().all(|count| *count <= READS), "{counts:?}");
        assert!(
            times.iter().all(|times| *times >= 2),
            "an object has no turn: {times:?}"
        );
    }

    #[test]
    fn unwanted_objects_are_forgotten_and_each_account_has_its_own_turns() {
        let (rate_limit, resource) = (RateLimit::default(), resource());
        let [a, b]: [AccountName; 2] = ["n/a", "n/b"].map(|name| name.parse().unwrap());
        rate_limit.want("x", Some(&a), &[(Arc::clone(&resource), 1)]);
        let begin = Instant::now();
        assert!(!rate_limit.take(&a, &resource, begin, begin));
        assert!(rate_limit.take(&b, &resource, begin, begin));
        assert!(rate_limit.take(&a, &resource, begin, begin + WINDOW));
        rate_limit.want("x", Some(&a), &[]);
        assert!(rate_limit.lock().is_empty());
    }
}
