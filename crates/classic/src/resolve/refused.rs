//! The resolution of a namespace in which Subscriptions cannot be satisfied, or need bundles that cannot be unpacked:
//! these are left out, and the others move.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::entry::Entry;
use super::steps::is_for;
use super::{
    BundleName, CatalogContent, Request, Resolved, attempt, is_certain, readable, resolve, subscriptions_here,
};
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

/// Resolves the Subscriptions of a namespace without those that need one of the bundles `failed`, which cannot be
/// unpacked. The versions that these have installed stay. `whole` is the resolution with them. `None` where all need
/// such a bundle, or the others do not do without.
pub fn without_bundles(
    request: &Request<'_>,
    whole: &Resolved,
    failed: &BTreeSet<BundleName>,
) -> Option<Resolved> {
    let readable: Vec<CatalogContent> = readable(request).cloned().collect();
    let known = Request {
        catalogs: &readable,
        ..request.clone()
    };
    let refused = &whole.resolution.refused;
    let all = subscriptions_here(request).into_iter();
    let all = all.filter(|found| !refused.contains_key(text(found, "/metadata/name")));
    let failed_of = |operators: &[Entry]| {
        let mut failed = failed.iter();
        failed.find(|bundle| operators.iter().any(|entry| bundle.is_of(entry)))
    };
    let mut left_out: BTreeMap<String, BundleName> = BTreeMap::new();
    let mut packages: BTreeMap<&str, &BundleName> = BTreeMap::new();
    let mut satisfied = Vec::new();
    for subscription in all {
        // What is satisfied with the others alone brings nothing of its own.
        let operators = attempt(&known, &[subscription]).map_or_else(|_| Vec::new(), |found| found.operators);
        match failed_of(&operators) {
            Some(bundle) => {
                left_out.insert(text(subscription, "/metadata/name").to_owned(), bundle.clone());
                packages.insert(text(subscription, "/spec/name"), bundle);
            }
            None => satisfied.push((subscription, operators)),
        }
    }
    let mut kept = Vec::new();
    for (subscription, operators) in satisfied {
        let mut needed = packages.iter();
        let needed = needed.find(|(package, _)| brings(&operators, &[subscription], &[**package].into()));
        match needed {
            Some((_, bundle)) => {
                left_out.insert(text(subscription, "/metadata/name").to_owned(), (*bundle).clone());
            }
            None => kept.push(subscription),
        }
    }
    if left_out.is_empty() || kept.is_empty() {
        return None;
    }
    let reduced = Request {
        subscriptions: kept.clone(),
        ..known.clone()
    };
    let mut resolved = resolve(&reduced).ok()?;
    let names: BTreeSet<&str> = left_out
        .keys()
        .chain(refused.keys())
        .map(String::as_str)
        .collect();
    let is_certain = readable.len() == request.catalogs.len() || is_certain(&resolved, request, &names);
    let packages = packages.into_keys().collect();
    if !is_certain
        || brings(&resolved.operators, &kept, &packages)
        || failed_of(&resolved.operators).is_some()
    {
        return None;
    }
    resolved.resolution.refused.clone_from(refused);
    resolved.left_out = left_out;
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
