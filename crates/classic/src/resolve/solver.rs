//! A search for a set of variables that satisfies all constraints and prefers the options that are named first.
//!
//! The solver chooses mandatory variables in their order. The dependencies of a chosen variable go to the end of a
//! queue; for each of them the solver takes the first option that violates no constraint. It chooses no variable
//! without a dependency on it, so there are no extras to remove.

use std::collections::{BTreeMap, BTreeSet};

/// The most options that one problem may try.
const MOST_STEPS: usize = 2_000_000;

/// Demand of a constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The variable is chosen.
    Mandatory,
    /// The variable is not chosen.
    Prohibited,
    /// With the variable one of these is chosen, the first if possible.
    Dependency(Vec<String>),
    /// The variable and this one are not both chosen.
    Conflict(String),
    /// At most this number of these is chosen, whether the variable is chosen or not.
    AtMost(usize, Vec<String>),
}

/// A rule with the text that a failure shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// Its demand.
    pub rule: Rule,
    /// Its text.
    pub text: String,
}

/// A variable with its constraints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variable {
    /// Its unique name.
    pub id: String,
    /// Its constraints.
    pub constraints: Vec<Constraint>,
}

/// Error of a search for a solution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SolveError {
    /// The texts of constraints that contradict each other, sorted; without any one of them there is a solution.
    #[error("constraints not satisfiable: {}", .0.join(", "))]
    NotSatisfiable(Vec<String>),
    /// Two variables have the same name.
    #[error("duplicate identifier {0:?} in input")]
    Duplicate(String),
    /// Constraints name variables that do not exist.
    #[error("{} errors encountered: {}", .0.len(), missing(.0))]
    Missing(Vec<String>),
    /// The search takes too long.
    #[error("the constraints take more than {MOST_STEPS} steps to solve")]
    TooHard,
}

fn missing(names: &[String]) -> String {
    let texts: Vec<String> = names
        .iter()
        .map(|name| format!("variable {name:?} referenced but not provided"))
        .collect();
    texts.join(", ")
}

/// The names of the chosen variables, in the order of the input.
///
/// # Errors
/// When the input is inconsistent, there is no solution, or it takes too long to find.
pub fn solve(variables: &[Variable]) -> Result<Vec<String>, SolveError> {
    let problem = ConstraintProblem::new(variables)?;
    let mut active: BTreeSet<usize> = (0..problem.rules.len()).collect();
    let mut steps = MOST_STEPS;
    let mut core = match problem.search(&active, &mut steps) {
        SearchResult::Chosen(chosen) => {
            let chosen = chosen.iter().filter_map(|index| variables.get(*index));
            return Ok(chosen.map(|variable| variable.id.clone()).collect());
        }
        SearchResult::Contradiction(core) => core,
        SearchResult::OutOfSteps => return Err(SolveError::TooHard),
    };
    // Remove each constraint without which the others still contradict each other. When the steps run out, the core
    // stays larger.
    for constraint in core.clone() {
        if !core.contains(&constraint) {
            continue;
        }
        active.clone_from(&core);
        active.remove(&constraint);
        if let SearchResult::Contradiction(smaller) = problem.search(&active, &mut steps) {
            core = smaller;
        }
    }
    let texts = core.iter().filter_map(|index| problem.rules.get(*index));
    let mut texts: Vec<String> = texts.map(|rule| rule.text.to_owned()).collect();
    texts.sort();
    texts.dedup();
    Err(SolveError::NotSatisfiable(texts))
}

/// Result of a search; variables and constraints by their index.
enum SearchResult {
    Chosen(BTreeSet<usize>),
    Contradiction(BTreeSet<usize>),
    OutOfSteps,
}

struct IndexedConstraint<'a> {
    subject: usize,
    kind: ConstraintKind,
    text: &'a str,
}

enum ConstraintKind {
    Mandatory,
    Prohibited,
    Dependency(Vec<usize>),
    Conflict(usize),
    AtMost(usize, Vec<usize>),
}

/// The constraints with variables as indices, and for each variable the constraints that speak of it.
struct ConstraintProblem<'a> {
    rules: Vec<IndexedConstraint<'a>>,
    about: Vec<Vec<usize>>,
}

/// A point of the search at which one of several variables must be chosen.
struct Choice<'a> {
    options: &'a [usize],
    /// The depth that this follows from.
    parent: Option<usize>,
    rule: usize,
    next: usize,
    chosen: Option<usize>,
    /// Number of choices before this one added its own.
    queued: usize,
    /// The earlier depths that made options fail.
    blamed: BTreeSet<usize>,
}

impl<'a> ConstraintProblem<'a> {
    fn new(variables: &'a [Variable]) -> Result<Self, SolveError> {
        let mut ids = BTreeMap::new();
        for (index, variable) in variables.iter().enumerate() {
            if ids.insert(variable.id.as_str(), index).is_some() {
                return Err(SolveError::Duplicate(variable.id.clone()));
            }
        }
        let mut absent = Vec::new();
        let mut at = |id: &String| {
            let found = ids.get(id.as_str()).copied();
            if found.is_none() {
                absent.push(id.clone());
            }
            found
        };
        let (mut rules, mut about) = (Vec::new(), vec![Vec::new(); variables.len()]);
        for (subject, variable) in variables.iter().enumerate() {
            for constraint in &variable.constraints {
                let kind = match &constraint.rule {
                    Rule::Mandatory => ConstraintKind::Mandatory,
                    Rule::Prohibited => ConstraintKind::Prohibited,
                    Rule::Dependency(named) => {
                        ConstraintKind::Dependency(named.iter().filter_map(&mut at).collect())
                    }
                    Rule::Conflict(named) => match at(named) {
                        Some(other) => ConstraintKind::Conflict(other),
                        None => continue,
                    },
                    Rule::AtMost(most, named) => {
                        let mut named: Vec<usize> = named.iter().filter_map(&mut at).collect();
                        named.sort_unstable();
                        ConstraintKind::AtMost(*most, named)
                    }
                };
                let mut touched = match &kind {
                    ConstraintKind::Conflict(other) => vec![subject, *other],
                    ConstraintKind::AtMost(_, named) => named.clone(),
                    _ => vec![subject],
                };
                touched.dedup();
                for variable in touched {
                    if let Some(list) = about.get_mut(variable) {
                        list.push(rules.len());
                    }
                }
                rules.push(IndexedConstraint {
                    subject,
                    kind,
                    text: &constraint.text,
                });
            }
        }
        if absent.is_empty() {
            Ok(Self { rules, about })
        } else {
            Err(SolveError::Missing(absent))
        }
    }

    /// The active constraints that speak of a variable.
    fn of<'p>(
        &'p self,
        variable: usize,
        active: &'p BTreeSet<usize>,
    ) -> impl Iterator<Item = (usize, &'p IndexedConstraint<'a>)> {
        let about = self.about.get(variable).into_iter().flatten();
        about
            .filter(|index| active.contains(index))
            .filter_map(|index| Some((*index, self.rules.get(*index)?)))
    }

    /// The constraint that forbids a variable now, and the depths of the chosen variables that it conflicts with.
    fn obstacle(
        &self,
        variable: usize,
        active: &BTreeSet<usize>,
        depths: &BTreeMap<usize, usize>,
    ) -> Option<(usize, Vec<usize>)> {
        self.of(variable, active).find_map(|(index, rule)| {
            let with = match &rule.kind {
                ConstraintKind::Prohibited => Vec::new(),
                ConstraintKind::Dependency(options) if options.is_empty() => Vec::new(),
                ConstraintKind::Conflict(other) => {
                    let other = if *other == variable { rule.subject } else { *other };
                    if other == variable {
                        Vec::new()
                    } else {
                        vec![*depths.get(&other)?]
                    }
                }
                ConstraintKind::AtMost(most, named) => {
                    let chosen = named.iter().filter_map(|name| depths.get(name).copied());
                    let chosen: Vec<usize> = chosen.collect();
                    // A variable counts as often as it is named.
                    let own = named.iter().filter(|name| **name == variable).count();
                    if chosen.len() + own <= *most {
                        return None;
                    }
                    chosen
                }
                _ => return None,
            };
            Some((index, with))
        })
    }

    /// The first solution in the order of preference. A dead end goes back to the last choice that has to do with it.
    fn search(&self, active: &BTreeSet<usize>, steps: &mut usize) -> SearchResult {
        let mut used = BTreeSet::new();
        let mut depths: BTreeMap<usize, usize> = BTreeMap::new();
        let subjects: Vec<usize> = self.rules.iter().map(|rule| rule.subject).collect();
        let mut choices: Vec<Choice<'_>> = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            if matches!(rule.kind, ConstraintKind::Mandatory) && active.contains(&index) {
                let options = subjects.get(index..=index).unwrap_or_default();
                choices.push(Choice::new(options, None, index));
            }
        }
        let mut depth = 0;
        loop {
            let queued = choices.len();
            let Some(choice) = choices.get_mut(depth) else {
                return SearchResult::Chosen(depths.into_keys().collect());
            };
            if choice.next == 0 && choice.options.iter().any(|option| depths.contains_key(option)) {
                choice.queued = queued;
                depth += 1;
                continue;
            }
            choice.queued = queued;
            while let Some(option) = choice.options.get(choice.next).copied() {
                choice.next += 1;
                if *steps == 0 {
                    return SearchResult::OutOfSteps;
                }
                *steps -= 1;
                let Some((index, with)) = self.obstacle(option, active, &depths) else {
                    choice.chosen = Some(option);
                    break;
                };
                used.insert(index);
                choice.blamed.extend(with);
            }
            if let Some(chosen) = choice.chosen {
                depths.insert(chosen, depth);
                for (index, rule) in self.of(chosen, active) {
                    if let ConstraintKind::Dependency(options) = &rule.kind {
                        choices.push(Choice::new(options, Some(depth), index));
                    }
                }
                depth += 1;
                continue;
            }
            used.insert(choice.rule);
            let mut blamed = std::mem::take(&mut choice.blamed);
            blamed.extend(choice.parent);
            let Some(target) = blamed.pop_last() else {
                return SearchResult::Contradiction(used);
            };
            let first_queued = choices.get(target).map_or(0, |choice| choice.queued);
            choices.truncate(first_queued);
            for choice in choices.iter_mut().skip(target) {
                if let Some(undone) = choice.chosen.take() {
                    depths.remove(&undone);
                }
            }
            for choice in choices.iter_mut().skip(target + 1) {
                choice.next = 0;
                choice.blamed.clear();
            }
            // The choices that `truncate` removed had chosen variables, too.
            depths.retain(|_, found| *found < target);
            if let Some(choice) = choices.get_mut(target) {
                choice.blamed.extend(blamed);
            }
            depth = target;
        }
    }
}

impl<'a> Choice<'a> {
    fn new(options: &'a [usize], parent: Option<usize>, rule: usize) -> Self {
        Self {
            options,
            parent,
            rule,
            next: 0,
            chosen: None,
            queued: 0,
            blamed: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests;
