//! Updates that are only possible together: two extensions that need each other's new version. The same holds for first
//! installations.
//!
//! Catalogs determine the difficulty of the search, so one [`SearchBudget`] limits all of it.

use std::collections::{BTreeMap, HashSet};

use olm_constraint::cel::Budget;
use olm_constraint::{Gvk, Present, Requirement, Subject, Undecided};

use crate::catalog::Catalog;
use crate::choose;
use crate::cluster::compatibility::{ClusterState, Dependents, InstalledExtension};
use crate::package::Candidate;
use crate::refusal::Refusal;
use crate::request::{Installed, Request};
use crate::{Resolution, fitting, resolution};

/// The most bundles of one extension that are tried.
const TRIED: usize = 5;
/// The most extensions that are updated along.
const MOST_MOVED: usize = 20;
/// The most steps of a search: some thousand sets of bundles on a cluster of a hundred extensions.
const STEPS: u64 = 50_000_000;
/// Steps for each extension and each API when a state is assembled.
const STEPS_TO_PLACE: u64 = 10;
/// Bytes of a requirement that are read in a step, without the cost of its rules.
const BYTES_IN_A_STEP: usize = 16;

/// The remaining budget of the search.
#[derive(Debug)]
pub struct SearchBudget(Budget);

/// The search exceeded its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the search for a joint change takes too many steps")]
pub struct BudgetExceeded;

impl Default for SearchBudget {
    fn default() -> Self {
        Self::new(STEPS)
    }
}

impl SearchBudget {
    /// A budget of this many steps.
    pub fn new(steps: u64) -> Self {
        Self(Budget::new(steps))
    }

    /// Whether the budget is used up.
    pub fn is_spent(&self) -> bool {
        self.0.is_spent()
    }

    fn spend(&mut self, steps: u64) -> Result<(), BudgetExceeded> {
        self.0.spend(steps).then_some(()).ok_or(BudgetExceeded)
    }

    /// The state of the cluster, for [`Self::holds`].
    fn place<'s>(
        &mut self,
        subjects: Vec<&'s Subject>,
        served: &'s HashSet<Gvk>,
    ) -> Result<Present<'s>, BudgetExceeded> {
        let apis: usize = subjects.iter().map(|subject| subject.apis.len()).sum();
        let size = subjects.len() + apis + served.len();
        self.spend(STEPS_TO_PLACE.saturating_mul(size as u64))?;
        Ok(Present::new(subjects, served, Budget::new(0)))
    }

    /// Whether a requirement is met. A requirement whose rule alone takes too long is not.
    fn holds(&mut self, requirement: &Requirement, present: &Present<'_>) -> Result<bool, BudgetExceeded> {
        self.spend(1 + (requirement.text.len() / BYTES_IN_A_STEP) as u64)?;
        present.renew(self.0);
        let holds = requirement.holds(present);
        self.0 = present.left();
        match holds {
            Ok(holds) => Ok(holds),
            Err(Undecided) if self.0.is_spent() => Err(BudgetExceeded),
            Err(Undecided) => Ok(false),
        }
    }
}

/// An extension that may be updated along or installed.
#[derive(Clone, Debug)]
pub struct Participant<'a> {
    /// The ClusterExtension.
    pub extension: &'a str,
    /// The bundles that it may get, best first.
    pub options: Vec<Resolution<'a>>,
}

/// The bundles that fit the request and the cluster itself, best first, without the installed one; requirements are
/// ignored.
///
/// # Errors
/// When the request or a catalog cannot be read.
pub fn options<'a>(
    catalogs: &[Catalog<'a>],
    request: &Request<'_>,
    installed: Option<&Installed<'_>>,
    facts: &ClusterState<'_>,
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
                && platform.is_none_or(|platform| platform.blockers(facts.platform, facts.served).is_empty())
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

/// The extensions that are updated, each with its bundle.
type Moved<'a> = BTreeMap<&'a str, &'a Candidate>;

/// The best update of an extension that is possible when others are updated along, and these others; `None` if there is
/// none. Every extension of the update finds the same answer: that of the first of them by name.
///
/// # Errors
/// When the budget is used up before there is an answer.
pub fn joint_update<'a>(
    own: &Participant<'a>,
    others: &[Participant<'a>],
    facts: &ClusterState<'_>,
    budget: &mut SearchBudget,
) -> Result<Option<(Resolution<'a>, Moved<'a>)>, BudgetExceeded> {
    let Some((mut chosen, mut moved)) = alone(own, others, facts, budget)? else {
        return Ok(None);
    };
    let mut seen_from = own.extension;
    // Names only get smaller.
    while let Some(first) = moved.keys().next().copied().filter(|first| *first < seen_from) {
        let Some((bundle, along)) = seen_by(first, own, others, facts, budget)? else {
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
    Ok(Some((chosen, moved)))
}

/// The joint update that another extension finds.
fn seen_by<'a>(
    viewer: &str,
    own: &Participant<'a>,
    others: &[Participant<'a>],
    facts: &ClusterState<'_>,
    budget: &mut SearchBudget,
) -> Result<Option<(&'a Candidate, Moved<'a>)>, BudgetExceeded> {
    let Some(participant) = others.iter().find(|other| other.extension == viewer) else {
        return Ok(None);
    };
    let is_viewer = |other: &&InstalledExtension| other.subject.name == viewer;
    let installed = facts.others.iter().filter(|other| !is_viewer(other));
    let mut installed: Vec<InstalledExtension> = installed.cloned().collect();
    installed.extend(facts.own.cloned().map(|mut own_installed| {
        own.extension.clone_into(&mut own_installed.subject.name);
        own_installed
    }));
    let facts = ClusterState {
        others: &installed,
        own: facts.others.iter().find(is_viewer),
        dependents: Dependents::Protected,
        ..*facts
    };
    let mut rest: Vec<Participant<'a>> = others
        .iter()
        .filter(|other| other.extension != viewer)
        .cloned()
        .collect();
    rest.push(own.clone());
    rest.sort_unstable_by_key(|other| other.extension);
    let found = alone(participant, &rest, &facts, budget)?;
    Ok(found.map(|(found, along)| (found.bundle, along)))
}

/// The best joint update of an extension, without regard to the updates of others.
fn alone<'a>(
    own: &Participant<'a>,
    others: &[Participant<'a>],
    facts: &ClusterState<'_>,
    budget: &mut SearchBudget,
) -> Result<Option<(Resolution<'a>, Moved<'a>)>, BudgetExceeded> {
    for option in &own.options {
        if let Some(moved) = search(option.bundle, Moved::new(), others, facts, budget)? {
            return Ok(Some((option.clone(), moved)));
        }
    }
    Ok(None)
}

/// The extensions that must be updated in addition. The recursion has one level for each of them.
fn search<'a>(
    own: &'a Candidate,
    moved: Moved<'a>,
    others: &[Participant<'a>],
    facts: &ClusterState<'_>,
    budget: &mut SearchBudget,
) -> Result<Option<Moved<'a>>, BudgetExceeded> {
    let Some(conflict) = conflict(own, &moved, facts, budget)? else {
        return Ok(Some(moved));
    };
    if moved.len() == MOST_MOVED {
        return Ok(None);
    }
    for (extension, bundle) in solutions(&conflict, own, &moved, others, facts, budget)? {
        let mut next = moved.clone();
        next.insert(extension, bundle);
        if let Some(found) = search(own, next, others, facts, budget)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The conflict that makes a joint update impossible.
enum JointUpdateConflict {
    /// A requirement of a new bundle is invalid.
    Unsound,
    /// A requirement of a new bundle is not met.
    Lack(Requirement),
    /// A requirement of an extension that is not updated would no longer be met.
    Broken(String),
}

/// The state with the new bundles and the unchanged other extensions.
fn subjects<'s>(own: &'s Candidate, moved: &Moved<'s>, facts: &ClusterState<'s>) -> Vec<&'s Subject> {
    let others = facts.others.iter().map(|other| {
        let moving = moved.get(other.subject.name.as_str());
        moving.map_or(&other.subject, |candidate| candidate.subject())
    });
    let is_there = |extension: &str| {
        let mut others = facts.others.iter();
        others.any(|other| other.subject.name == extension)
    };
    let newcomers = moved.iter().filter(|(extension, _)| !is_there(extension));
    let newcomers = newcomers.map(|(_, candidate)| candidate.subject());
    std::iter::once(own.subject())
        .chain(others)
        .chain(newcomers)
        .collect()
}

/// The APIs that are served without any of the extensions that are updated.
fn served(moved: &Moved<'_>, facts: &ClusterState<'_>) -> HashSet<Gvk> {
    let leaves = |other: &&InstalledExtension| moved.contains_key(other.subject.name.as_str());
    let leaving: HashSet<&Gvk> = facts
        .others
        .iter()
        .filter(leaves)
        .chain(facts.own)
        .flat_map(|other| &other.subject.apis)
        .collect();
    facts
        .served
        .iter()
        .filter(|api| !leaving.contains(api))
        .cloned()
        .collect()
}

fn conflict(
    own: &Candidate,
    moved: &Moved<'_>,
    facts: &ClusterState<'_>,
    budget: &mut SearchBudget,
) -> Result<Option<JointUpdateConflict>, BudgetExceeded> {
    let served = served(moved, facts);
    let present = budget.place(subjects(own, moved, facts), &served)?;
    for coming in std::iter::once(own).chain(moved.values().copied()) {
        for declared in &coming.requirements {
            let Ok(requirement) = declared.read() else {
                return Ok(Some(JointUpdateConflict::Unsound));
            };
            if !budget.holds(requirement, &present)? {
                return Ok(Some(JointUpdateConflict::Lack(requirement.clone())));
            }
        }
    }
    if facts.dependents == Dependents::MayBreak {
        return Ok(None);
    }
    let now = facts.others.iter().chain(facts.own);
    let now = budget.place(now.map(|other| &other.subject).collect(), facts.served)?;
    let stays = |other: &&InstalledExtension| !moved.contains_key(other.subject.name.as_str());
    for other in facts.others.iter().filter(stays) {
        for requirement in &other.requirements {
            if budget.holds(requirement, &now)? && !budget.holds(requirement, &present)? {
                return Ok(Some(JointUpdateConflict::Broken(other.subject.name.clone())));
            }
        }
    }
    Ok(None)
}

/// The bundles of one more extension that resolve the conflict, first those without unmet requirements.
fn solutions<'a>(
    conflict: &JointUpdateConflict,
    own: &'a Candidate,
    moved: &Moved<'a>,
    others: &[Participant<'a>],
    facts: &ClusterState<'_>,
    budget: &mut SearchBudget,
) -> Result<Vec<(&'a str, &'a Candidate)>, BudgetExceeded> {
    let may_move = |participant: &&Participant<'a>| match conflict {
        JointUpdateConflict::Unsound => false,
        JointUpdateConflict::Broken(extension) => participant.extension == extension,
        JointUpdateConflict::Lack(_) => !moved.contains_key(participant.extension),
    };
    let mut found = Vec::new();
    for participant in others.iter().filter(may_move) {
        for option in &participant.options {
            let mut next = moved.clone();
            next.insert(participant.extension, option.bundle);
            let served = served(&next, facts);
            let present = budget.place(subjects(own, &next, facts), &served)?;
            let helps = match conflict {
                JointUpdateConflict::Lack(requirement) => budget.holds(requirement, &present)?,
                JointUpdateConflict::Unsound | JointUpdateConflict::Broken(_) => true,
            };
            if helps {
                let is_whole = is_whole(option.bundle, &present, budget)?;
                found.push((is_whole, participant.extension, option.bundle));
            }
        }
    }
    found.sort_by_key(|(is_whole, ..)| !is_whole);
    Ok(found
        .into_iter()
        .map(|(_, extension, bundle)| (extension, bundle))
        .collect())
}

/// Whether all requirements of a bundle are met.
fn is_whole(
    bundle: &Candidate,
    present: &Present<'_>,
    budget: &mut SearchBudget,
) -> Result<bool, BudgetExceeded> {
    for declared in &bundle.requirements {
        let Ok(requirement) = declared.read() else {
            return Ok(false);
        };
        if !budget.holds(requirement, present)? {
            return Ok(false);
        }
    }
    Ok(true)
}
