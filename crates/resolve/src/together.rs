//! Updates that only go together (requirement 5.41): two extensions that need each other's new version. First
//! installations of extensions that need each other are the same.

use std::collections::{BTreeMap, HashSet};

use olm_constraint::cel::Budget;
use olm_constraint::{Gvk, Present, Requirement, Subject};

use crate::catalog::Catalog;
use crate::choose;
use crate::judge::{Dependents, Facts, Neighbour};
use crate::package::Candidate;
use crate::refusal::Refusal;
use crate::request::{Installed, Request};
use crate::{Resolution, fitting, resolution};

/// How many bundles of one extension are tried.
const TRIED: usize = 5;
/// How many extensions move along with one.
const MOST_MOVED: usize = 20;
/// How many sets of bundles are looked at before it is given up.
const LOOKED_AT: usize = 2_000;

/// An extension that may be updated along, or installed.
#[derive(Clone, Debug)]
pub struct Mover<'a> {
    /// The ClusterExtension.
    pub extension: &'a str,
    /// The bundles that it may get, best first.
    pub options: Vec<Resolution<'a>>,
}

/// The bundles that fit a request and wholly the cluster itself, best first, without what is installed; whatever they require.
///
/// # Errors
/// When the request or a catalog cannot be read.
pub fn options<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    facts: &Facts<'_>,
) -> Result<Vec<Resolution<'a>>, Refusal> {
    let (mut selected, context) = fitting(catalogs, request, installed)?;
    selected.sort_by(|left, right| right.priority.cmp(&left.priority).then(left.name.cmp(right.name)));
    let mut found = Vec::new();
    for catalog in &selected {
        let choices = choose::all_of(catalog, &context).into_iter().filter(|choice| {
            let is_installed = installed.is_some_and(|installed| installed.name == choice.candidate.name);
            let platform = choice.candidate.platform.as_ref();
            !is_installed
                && choice.candidate.version.is_ok()
                && platform.is_none_or(|platform| platform.hindrances(facts.ground, facts.served).is_empty())
        });
        found.extend(
            choices
                .take(TRIED)
                .map(|choice| resolution(&choice, request, Vec::new())),
        );
    }
    found.truncate(TRIED);
    Ok(found)
}

/// The extensions that move, and to which bundle.
type Moved<'a> = BTreeMap<&'a str, &'a Candidate>;

/// The best update of an extension that goes when others are updated along, and which those are; `None` when there is
/// none. Everybody whose update is part of it comes to the same answer: that of the first of them by name.
pub fn together<'a>(
    own: &Mover<'a>,
    others: &[Mover<'a>],
    facts: &Facts<'_>,
) -> Option<(Resolution<'a>, Moved<'a>)> {
    let (mut chosen, mut moved) = alone(own, others, facts)?;
    let mut seen_from = own.extension;
    // Names only get smaller.
    while let Some(first) = moved.keys().next().copied().filter(|first| *first < seen_from) {
        let Some((bundle, along)) = seen_by(first, own, others, facts) else {
            break;
        };
        let option = along.get(own.extension).and_then(|bundle| {
            own.options
                .iter()
                .find(|option| option.bundle.name == bundle.name)
        });
        let Some(option) = option else { break };
        chosen = option.clone();
        moved = along;
        moved.remove(own.extension);
        moved.insert(first, bundle);
        seen_from = first;
    }
    Some((chosen, moved))
}

/// What another extension comes to.
fn seen_by<'a>(
    viewer: &str,
    own: &Mover<'a>,
    others: &[Mover<'a>],
    facts: &Facts<'_>,
) -> Option<(&'a Candidate, Moved<'a>)> {
    let mover = others.iter().find(|other| other.extension == viewer)?;
    let is_viewer = |neighbour: &&Neighbour| neighbour.subject.name == viewer;
    let neighbours = facts.neighbours.iter().filter(|other| !is_viewer(other));
    let mut neighbours: Vec<Neighbour> = neighbours.cloned().collect();
    neighbours.extend(facts.own.cloned().map(|mut neighbour| {
        own.extension.clone_into(&mut neighbour.subject.name);
        neighbour
    }));
    let facts = Facts {
        neighbours: &neighbours,
        own: facts.neighbours.iter().find(is_viewer),
        dependents: Dependents::Protected,
        ..*facts
    };
    let mut rest: Vec<Mover<'a>> = others
        .iter()
        .filter(|other| other.extension != viewer)
        .cloned()
        .collect();
    rest.push(own.clone());
    rest.sort_unstable_by_key(|other| other.extension);
    alone(mover, &rest, &facts).map(|(found, along)| (found.bundle, along))
}

/// The best update of an extension that goes when others are updated along, whatever these come to.
fn alone<'a>(
    own: &Mover<'a>,
    others: &[Mover<'a>],
    facts: &Facts<'_>,
) -> Option<(Resolution<'a>, Moved<'a>)> {
    let mut left = LOOKED_AT;
    own.options.iter().find_map(|option| {
        let moved = search(option.bundle, Moved::new(), others, facts, &mut left)?;
        Some((option.clone(), moved))
    })
}

/// Those that have to move along beside those that do. It calls itself once for each extension that moves, and looks at
/// so many sets as are `left`.
fn search<'a>(
    own: &'a Candidate,
    moved: Moved<'a>,
    others: &[Mover<'a>],
    facts: &Facts<'_>,
    left: &mut usize,
) -> Option<Moved<'a>> {
    let Some(problem) = problem(own, &moved, facts) else {
        return Some(moved);
    };
    if moved.len() == MOST_MOVED {
        return None;
    }
    solutions(&problem, own, &moved, others, facts, left)
        .into_iter()
        .find_map(|(extension, bundle)| {
            let mut next = moved.clone();
            next.insert(extension, bundle);
            search(own, next, others, facts, left)
        })
}

/// Why a set of bundles cannot be there.
enum Problem {
    /// A bundle that is to come declares what is not sound.
    Unsound,
    /// A bundle that is to come requires what would not hold.
    Lack(Requirement),
    /// An extension that stays requires what would no longer hold.
    Broken(String),
}

/// What there would be: the bundle, those that move or come, and the others as they are.
fn subjects<'s>(own: &'s Candidate, moved: &Moved<'s>, facts: &Facts<'s>) -> Vec<&'s Subject> {
    let others = facts.neighbours.iter().map(|neighbour| {
        let moving = moved.get(neighbour.subject.name.as_str());
        moving.map_or(&neighbour.subject, |candidate| candidate.subject())
    });
    let is_there = |extension: &str| {
        let mut neighbours = facts.neighbours.iter();
        neighbours.any(|neighbour| neighbour.subject.name == extension)
    };
    let newcomers = moved.iter().filter(|(extension, _)| !is_there(extension));
    let newcomers = newcomers.map(|(_, candidate)| candidate.subject());
    std::iter::once(own.subject())
        .chain(others)
        .chain(newcomers)
        .collect()
}

/// The APIs that would be served without any of those that move.
fn served(moved: &Moved<'_>, facts: &Facts<'_>) -> HashSet<Gvk> {
    let leaves = |neighbour: &&Neighbour| moved.contains_key(neighbour.subject.name.as_str());
    let leaving: HashSet<&Gvk> = facts
        .neighbours
        .iter()
        .filter(leaves)
        .chain(facts.own)
        .flat_map(|neighbour| &neighbour.subject.apis)
        .collect();
    facts
        .served
        .iter()
        .filter(|api| !leaving.contains(api))
        .cloned()
        .collect()
}

fn problem(own: &Candidate, moved: &Moved<'_>, facts: &Facts<'_>) -> Option<Problem> {
    let served = served(moved, facts);
    let present = Present::new(subjects(own, moved, facts), &served, Budget::default());
    for coming in std::iter::once(own).chain(moved.values().copied()) {
        for declared in &coming.requirements {
            match declared.read() {
                Err(_) => return Some(Problem::Unsound),
                Ok(requirement) if requirement.holds(&present) != Ok(true) => {
                    return Some(Problem::Lack(requirement.clone()));
                }
                Ok(_) => {}
            }
        }
    }
    if facts.dependents == Dependents::MayBreak {
        return None;
    }
    let now = facts
        .neighbours
        .iter()
        .chain(facts.own)
        .map(|neighbour| &neighbour.subject);
    let now = Present::new(now, facts.served, Budget::default());
    let stays = |neighbour: &&Neighbour| !moved.contains_key(neighbour.subject.name.as_str());
    let is_broken = |neighbour: &&Neighbour| {
        let mut requirements = neighbour.requirements.iter();
        requirements.any(|one| one.holds(&now) == Ok(true) && one.holds(&present) != Ok(true))
    };
    let mut staying = facts.neighbours.iter().filter(stays);
    let broken = staying.find(is_broken)?;
    Some(Problem::Broken(broken.subject.name.clone()))
}

/// What one more extension may move to, so that the problem is none; what lacks nothing itself first.
fn solutions<'a>(
    problem: &Problem,
    own: &'a Candidate,
    moved: &Moved<'a>,
    others: &[Mover<'a>],
    facts: &Facts<'_>,
    left: &mut usize,
) -> Vec<(&'a str, &'a Candidate)> {
    let may_move = |mover: &&Mover<'a>| match problem {
        Problem::Unsound => false,
        Problem::Broken(extension) => mover.extension == extension,
        Problem::Lack(_) => !moved.contains_key(mover.extension),
    };
    let mut found = Vec::new();
    for mover in others.iter().filter(may_move) {
        for option in &mover.options {
            let Some(rest) = left.checked_sub(1) else {
                return Vec::new();
            };
            *left = rest;
            let mut next = moved.clone();
            next.insert(mover.extension, option.bundle);
            let served = served(&next, facts);
            let present = Present::new(subjects(own, &next, facts), &served, Budget::default());
            let helps = match problem {
                Problem::Lack(requirement) => requirement.holds(&present) == Ok(true),
                Problem::Unsound | Problem::Broken(_) => true,
            };
            let is_whole = option.bundle.requirements.iter().all(|declared| {
                let read = declared.read();
                read.is_ok_and(|requirement| requirement.holds(&present) == Ok(true))
            });
            if helps {
                found.push((is_whole, mover.extension, option.bundle));
            }
        }
    }
    found.sort_by_key(|(is_whole, ..)| !is_whole);
    found
        .into_iter()
        .map(|(_, extension, bundle)| (extension, bundle))
        .collect()
}
