//! The choice between two alternatives of which an account has neither: the rules of a role, or `escalate` or `bind` on
//! it.

use std::collections::BTreeSet;

use super::{Either, RBAC, Right};
use crate::rules::{ALL, Object};

/// The most accesses of all roles together that are proposed one by one. Beyond that, `escalate` or `bind` is proposed.
const MAX_PROPOSED: usize = 200;

/// The rules that the account must hold in order to grant them, and `escalate` or `bind` for the other roles.
///
/// `open` has the alternatives of which the account lacks the verb.
pub(super) fn choose(
    open: &[&Either],
    lacks: impl Fn(&&Right) -> bool + Copy,
) -> (BTreeSet<Right>, Vec<Right>) {
    let (proposed, beyond) = proposals(open, lacks);
    let powers: BTreeSet<&Right> = proposed
        .iter()
        .flat_map(|(_, rights)| rights.iter().copied())
        .filter(|right| right.is_power() && open.iter().any(|either| right.covers(&either.right)))
        .collect();
    let powers = without_idle(powers, open, &proposed, lacks);
    let follows = |either: &Either| powers.iter().any(|power| power.covers(&either.right));
    let granted: BTreeSet<Right> = proposed
        .iter()
        .flat_map(|(either, rights)| {
            let all = !follows(either);
            let powers = &powers;
            rights.iter().filter(move |right| all || powers.contains(*right))
        })
        .map(|right| (*right).clone())
        .collect();
    let is_granted = |right: &Right| granted.iter().any(|other| other.covers(right));
    let mut verbs = Vec::new();
    for either in beyond {
        let instead = either.instead.as_ref();
        let is_covered = instead.is_some_and(|all| all.iter().filter(lacks).all(&is_granted));
        if !is_covered && !follows(either) {
            verbs.push(either.right.clone());
        }
    }
    (granted, verbs)
}

/// The alternatives for which rules are proposed, each with the rules that the account lacks; and the other
/// alternatives.
fn proposals<'a>(
    open: &[&'a Either],
    lacks: impl Fn(&&Right) -> bool,
) -> (Vec<(&'a Either, Vec<&'a Right>)>, Vec<&'a Either>) {
    let (mut proposed, mut beyond) = (Vec::new(), Vec::new());
    let mut known: BTreeSet<&Right> = BTreeSet::new();
    for either in open {
        let rules: Option<Vec<&Right>> = either
            .instead
            .as_ref()
            .map(|all| all.iter().filter(|right| lacks(right)).collect());
        // A binding often grants rules that a role among the objects has already added.
        let fits = rules.as_ref().is_some_and(|rules| {
            let new: Vec<_> = rules.iter().filter(|right| !known.contains(*right)).collect();
            new.iter().all(|right| is_modest(right)) && known.len() + new.len() <= MAX_PROPOSED
        });
        match rules {
            Some(rules) if fits => {
                known.extend(rules.iter().copied());
                proposed.push((*either, rules));
            }
            _ => beyond.push(*either),
        }
    }
    (proposed, beyond)
}

/// The powers that make a rule unnecessary. A power is dropped if the rules that are proposed anyway already allow
/// everything that it covers.
fn without_idle<'a>(
    powers: BTreeSet<&'a Right>,
    open: &[&Either],
    proposed: &[(&Either, Vec<&'a Right>)],
    lacks: impl Fn(&&Right) -> bool,
) -> BTreeSet<&'a Right> {
    let follows = |either: &Either| powers.iter().any(|power| power.covers(&either.right));
    let in_any_case: BTreeSet<&Right> = proposed
        .iter()
        .filter(|(either, _)| !follows(either))
        .flat_map(|(_, rights)| rights.iter().copied())
        .collect();
    let has =
        |right: &Right| in_any_case.contains(right) || in_any_case.iter().any(|other| other.covers(right));
    let unmet: Vec<&Right> = open
        .iter()
        .filter(|either| {
            let instead = either.instead.as_ref();
            !instead.is_some_and(|all| all.iter().filter(&lacks).all(has))
        })
        .map(|either| &either.right)
        .collect();
    powers
        .into_iter()
        .filter(|power| in_any_case.contains(power) || unmet.iter().any(|right| power.covers(right)))
        .collect()
}

impl Right {
    /// Whether it allows an account to write roles and bindings with rights that the account lacks.
    fn is_power(&self) -> bool {
        let is_verb = ["escalate", "bind", ALL].contains(&self.access.verb.as_str());
        match &self.access.object {
            Object::Resource { group, .. } => is_verb && [RBAC, ALL].contains(&group.as_str()),
            Object::Path(_) => false,
        }
    }
}

/// Whether a role in the namespace can contain the right, and it does not allow everything.
fn is_modest(right: &Right) -> bool {
    match &right.access.object {
        Object::Resource { group, resource, .. } => group != ALL || resource != ALL,
        Object::Path(path) => path != ALL && right.namespace.is_none(),
    }
}
