//! The best bundle of a catalog, and the best catalog.

use std::cmp::Ordering;

use olm_version::masterminds::Constraint;

use crate::blocker::Blocker;
use crate::catalog::Selected;
use crate::channels;
use crate::cluster::compatibility::{Compatibility, CompatibilityCheck};
use crate::package::Candidate;
use crate::range::{Fit, fit};
use crate::refusal::{Reason, Refusal};
use crate::request::{Installed, Request, UpgradeConstraintPolicy};
use crate::successors::{Current, Edge, Successors};

/// A request after parsing.
pub(crate) struct Context<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) range: Option<Constraint>,
    pub(crate) installed: Option<Installed<'a>>,
    /// The installed bundle, if edges are enforced.
    pub(crate) current: Option<Current<'a>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(request: &'a Request<'a>, installed: Option<&Installed<'a>>) -> Result<Self, Refusal> {
        if let Some(selector) = request.selector {
            selector
                .validate()
                .map_err(|fault| Refusal::new(Reason::Selector(fault)))?;
        }
        let range = request.version.map(|text| {
            Constraint::parse(text).map_err(|fault| {
                Refusal::new(Reason::Range {
                    range: text.to_owned(),
                    fault,
                })
                .with_hint_or(
                    "correct spec.source.catalog.version; examples: 1.2.3, 1.x, >=1.2 <2, ~1.4 || ^2.1",
                    "correct --version; examples: 1.2.3, 1.x, '>=1.2 <2', '~1.4 || ^2.1'",
                )
            })
        });
        Ok(Self {
            request,
            range: range.transpose()?,
            installed: installed.copied(),
            current: None,
        })
    }

    /// Parses the version of the installed bundle, if edges are enforced.
    pub(crate) fn with_current(mut self) -> Result<Self, Refusal> {
        let binds = self.request.policy == UpgradeConstraintPolicy::CatalogProvided;
        if let Some(installed) = self.installed.filter(|_| binds) {
            self.current = Some(Current::read(&installed)?);
        }
        Ok(self)
    }
}

/// The best bundle of a catalog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) catalog: Selected<'a>,
    pub(crate) candidate: &'a Candidate,
    pub(crate) edge: Option<Edge>,
    /// Never [`Compatibility::Incompatible`].
    pub(crate) compatibility: Compatibility,
}

/// The order of bundles: bundles that are not deprecated first, then the highest version and release. Unreadable
/// versions come last.
pub(crate) fn rank(left: &Candidate, right: &Candidate) -> Ordering {
    right
        .is_deprecated
        .cmp(&left.is_deprecated)
        .then_with(|| left.compare_versions(right))
}

/// A bundle that fits the request and is blocked on this cluster.
#[derive(Clone, Debug)]
pub struct BlockedBundle<'a> {
    /// The bundle.
    pub bundle: &'a Candidate,
    /// The catalog it comes from.
    pub catalog: &'a str,
    /// The blockers.
    pub blockers: Vec<Blocker>,
}

/// The most blocked bundles that an explanation lists.
const MAX_LISTED: usize = 5;

/// The bundles of a catalog that pass every filter, in its order.
fn fitting<'a>(catalog: &Selected<'a>, context: &Context<'_>) -> impl Iterator<Item = Choice<'a>> {
    let package = catalog.package;
    let members = channels::members(package, context.request);
    let successors = context
        .current
        .as_ref()
        .map(|current| Successors::new(package, context.request, current));
    package.candidates().iter().filter_map(move |candidate| {
        let edge = successors
            .as_ref()
            .and_then(|successors| successors.to(candidate));
        let passes = members
            .as_ref()
            .is_none_or(|members| members.contains(candidate.name.as_str()))
            && (successors.is_none() || edge.is_some())
            && fit(candidate, context.range.as_ref()) == Fit::Inside;
        passes.then_some(Choice {
            catalog: *catalog,
            candidate,
            edge,
            compatibility: Compatibility::Full,
        })
    })
}

/// The bundles of a catalog that pass every filter, highest first. Equal ones keep the order of the catalog.
pub(crate) fn all_of<'a>(catalog: &Selected<'a>, context: &Context<'_>) -> Vec<Choice<'a>> {
    let mut choices: Vec<Choice<'a>> = fitting(catalog, context).collect();
    choices.sort_by(|left, right| rank(right.candidate, left.candidate));
    choices
}

/// The highest bundle of a catalog that passes every filter and has no blockers; if all have some, the highest without
/// a blocker that forbids it. Also returns the higher bundles that are passed over, highest first.
pub(crate) fn best_of<'a: 'j, 'j>(
    catalog: &Selected<'a>,
    context: &Context<'_>,
    check: Option<&mut CompatibilityCheck<'j>>,
) -> (Option<Choice<'a>>, Vec<BlockedBundle<'a>>) {
    let Some(check) = check else {
        // The first of equal ones, unlike `max_by`.
        let best = fitting(catalog, context).reduce(|best, next| {
            if rank(next.candidate, best.candidate).is_gt() {
                next
            } else {
                best
            }
        });
        return (best, Vec::new());
    };
    let (mut blocked, mut second) = (Vec::new(), None);
    for choice in all_of(catalog, context) {
        let is_installed = context
            .installed
            .is_some_and(|installed| installed.name == choice.candidate.name);
        // The installed bundle stays even if other extensions break its requirements.
        let compatibility = if is_installed {
            check
                .platform_compatibility(choice.candidate)
                .max(Compatibility::Partial)
        } else {
            check.admits(choice.candidate)
        };
        match compatibility {
            Compatibility::Full => return (Some(choice), blocked),
            Compatibility::Partial => {
                second.get_or_insert((choice, blocked.len()));
            }
            Compatibility::Incompatible => {}
        }
        if is_installed {
            break;
        }
        if blocked.len() < MAX_LISTED {
            blocked.push(BlockedBundle {
                bundle: choice.candidate,
                catalog: choice.catalog.name,
                blockers: check.blockers(choice.candidate),
            });
        }
    }
    let second = second.map(|(choice, above)| {
        blocked.truncate(above);
        Choice {
            compatibility: Compatibility::Partial,
            ..choice
        }
    });
    (second, blocked)
}

/// The choice between catalogs: first a bundle without blockers, then one that is not deprecated, then the highest
/// priority. The error has the contenders: none, or all with the highest priority.
pub(crate) fn between(mut choices: Vec<Choice<'_>>) -> Result<Choice<'_>, Vec<Choice<'_>>> {
    if choices
        .iter()
        .any(|choice| choice.compatibility == Compatibility::Full)
    {
        choices.retain(|choice| choice.compatibility == Compatibility::Full);
    }
    if choices.iter().any(|choice| !choice.candidate.is_deprecated) {
        choices.retain(|choice| !choice.candidate.is_deprecated);
    }
    let highest = choices.iter().map(|choice| choice.catalog.priority).max();
    choices.retain(|choice| Some(choice.catalog.priority) == highest);
    match choices.as_slice() {
        [chosen] => Ok(*chosen),
        _ => Err(choices),
    }
}
