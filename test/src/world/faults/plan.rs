//! The faults and their places.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::calls::Call;
use super::numbers::Numbers;

/// The fault of one mutating call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The manager dies before the call arrives.
    CrashBefore,
    /// The manager dies after the call took effect, before it gets the answer.
    CrashAfter,
    /// The call has no effect and gets this status code.
    Answer(u16),
    /// The call takes effect and gets the status code 500.
    LateError,
    /// The call takes effect and the connection ends without an answer.
    LostAnswer,
    /// The connection ends before the call arrives.
    Closed,
    /// The call arrives so much later.
    Delay(Duration),
}

impl Fault {
    /// The faults that the manager survives.
    pub const SURVIVED: &'static [Self] = &[
        Self::Answer(409),
        Self::Answer(429),
        Self::Answer(500),
        Self::Answer(503),
        Self::LateError,
        Self::LostAnswer,
        Self::Closed,
        Self::Delay(Duration::from_millis(1500)),
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrashBefore => f.write_str("crash before"),
            Self::CrashAfter => f.write_str("crash after"),
            Self::Answer(code) => write!(f, "answer {code}"),
            Self::LateError => f.write_str("effect and answer 500"),
            Self::LostAnswer => f.write_str("lost answer"),
            Self::Closed => f.write_str("closed connection"),
            Self::Delay(time) => write!(f, "delay of {} ms", time.as_millis()),
        }
    }
}

/// The fault of every watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watches {
    /// The watch ends after a number of events.
    Close(usize),
    /// The watch ends after a number of events with the error that its resourceVersion is too old, so that the client
    /// lists again.
    Expire(usize),
    /// The events are delayed, so that the manager's state is old.
    Late(Duration),
}

impl Watches {
    /// The faults from which a seed chooses.
    pub const ALL: &'static [Self] = &[
        Self::Close(1),
        Self::Close(3),
        Self::Expire(1),
        Self::Expire(4),
        Self::Late(Duration::from_millis(400)),
    ];
}

impl fmt::Display for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Close(count) => write!(f, "watches end after {count} event(s)"),
            Self::Expire(count) => write!(f, "watches expire after {count} event(s)"),
            Self::Late(time) => write!(f, "watches are {} ms late", time.as_millis()),
        }
    }
}

/// The planned faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Calls count when they are about this name.
    pub focus: String,
    /// Only calls with this method about this kind count.
    pub only: Option<(&'static str, &'static str)>,
    /// The faults by the number of the call, from 1.
    pub at: BTreeMap<usize, Fault>,
    /// The fault of every watch.
    pub watches: Option<Watches>,
}

impl Plan {
    /// No faults; calls about `focus` are counted.
    pub fn undisturbed(focus: &str) -> Self {
        Self {
            focus: focus.to_owned(),
            ..Self::default()
        }
    }

    /// One fault at one call about `focus`.
    pub fn at(focus: &str, number: usize, fault: Fault) -> Self {
        Self {
            at: [(number, fault)].into(),
            ..Self::undisturbed(focus)
        }
    }

    /// One fault at the first call about `focus` with this method about the kind with this plural.
    pub fn first(focus: &str, only: (&'static str, &'static str), fault: Fault) -> Self {
        Self {
            only: Some(only),
            ..Self::at(focus, 1, fault)
        }
    }

    /// Whether a call is one of those that are numbered.
    pub fn numbers(&self, call: &Call) -> bool {
        let is_chosen = self
            .only
            .is_none_or(|(method, resource)| call.method == method && call.place.resource == resource);
        !call.dry_run && !self.focus.is_empty() && is_chosen && call.is_about(&self.focus)
    }

    /// Several faults among some `calls` calls about `focus`, and now and then among watches, from a seed.
    pub fn seeded(focus: &str, seed: u64, calls: usize) -> Self {
        let mut numbers = Numbers::from_seed(seed);
        let mut plan = Self::undisturbed(focus);
        for number in 1..=calls {
            let fault = match numbers.below(12) {
                0 => Some(&Fault::CrashBefore),
                1 => Some(&Fault::CrashAfter),
                2..=4 => numbers.pick(Fault::SURVIVED),
                _ => None,
            };
            plan.at.extend(fault.map(|fault| (number, *fault)));
        }
        if numbers.below(2) == 0 {
            plan.watches = numbers.pick(Watches::ALL).copied();
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another() {
        let plans: Vec<Plan> = (1..40).map(|seed| Plan::seeded("x", seed, 30)).collect();
        let again: Vec<Plan> = (1..40).map(|seed| Plan::seeded("x", seed, 30)).collect();
        assert_eq!(plans, again);
        assert!(plans.windows(2).all(|pair| pair[0] != pair[1]));
        let of = |fault: Fault| plans.iter().any(|plan| plan.at.values().any(|f| *f == fault));
        assert!(Fault::SURVIVED.iter().all(|fault| of(*fault)));
        assert!(of(Fault::CrashBefore) && of(Fault::CrashAfter));
        let watches = |wanted: &Watches| plans.iter().any(|plan| plan.watches == Some(*wanted));
        assert!(Watches::ALL.iter().all(watches));
    }
}
