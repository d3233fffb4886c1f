//! The resolution of a namespace in which Subscriptions cannot be satisfied: these are refused, and the others move.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::entry::Entry;
use super::steps::is_for;
use super::{Request, Resolved, attempt, resolve, subscriptions_here};
use crate::cluster::text;
use crate::subscription::ResolveError;

/// Resolves the Subscriptions of a namespace without those that cannot be satisfied for themselves. The versions that
/// these have installed stay. `whole` is the error of the resolution of all. `None` where that error concerns all of them.
pub(super) fn without_refused(request: &Request<'_>, whole: &ResolveError) -> Option<Resolved> {
    let all = subscriptions_here(request);
    let (mut refused, mut satisfied) = (BTreeMap::new(), Vec::new());
    for subscription in &all {
        match attempt(request, &[*subscription]) {
            Ok(resolved) => satisfied.push((*subscription, resolved.operators)),
            Err(error) => {
                refused.insert(text(subscription, "/metadata/name").to_owned(), error.explained());
            }
        }
    }
    if refused.is_empty() {
        return None;
    }
    let is_refused = |found: &&&Value| refused.contains_key(text(found, "/metadata/name"));
    let packages: BTreeSet<&str> = all
        .iter()
        .filter(is_refused)
        .map(|found| text(found, "/spec/name"))
        .collect();
    let mut kept = Vec::new();
    for (subscription, operators) in satisfied {
        if brings(&operators, &[subscription], &packages) {
            refused.insert(text(subscription, "/metadata/name").to_owned(), whole.clone());
        } else {
            kept.push(subscription);
        }
    }
    if kept.is_empty() {
        return None;
    }
    let reduced = Request {
        subscriptions: kept.clone(),
        ..request.clone()
    };
    let mut resolved = resolve(&reduced).ok()?;
    if brings(&resolved.operators, &kept, &packages) {
        return None;
    }
    resolved.resolution.refused = refused;
    Some(resolved)
}

/// Whether operators that no Subscription asks for are of these packages. A refused Subscription decides about its
/// package: another one does not install it as a dependency.
fn brings(operators: &[Entry], subscriptions: &[&Value], packages: &BTreeSet<&str>) -> bool {
    operators.iter().any(|entry| {
        packages.contains(entry.package.as_str())
            && !subscriptions
                .iter()
                .any(|subscription| is_for(subscription, entry))
    })
}
