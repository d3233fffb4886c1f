//! The machine that rolls a revision out.
//!
//! Phase by phase, it reads every object, stops if another owner has one, makes a dry run of all writes of the phase,
//! writes, and continues when every probe passes. A revision that was complete before is kept up instead: a failing
//! probe then does not delay repairs in later phases.

use std::collections::BTreeMap;

use super::decide::{Decision, History, Reclaims, decide};
use super::request::{MAX_ROUNDS, Observation, Request, RequestOutcome, Step, Write};
use crate::failure::{FailureKind, RequestFailure};
use crate::object::ObjectId;
use crate::outline::{ObjectPosition, Outline};
use crate::probe::{ProbeStatus, Unmet};

/// Whether a phase waits for the probes of the previous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// A phase waits.
    #[default]
    RollOut,
    /// No phase waits, because the revision was complete before.
    KeepUp,
}

/// Whether anything may be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Writes {
    /// Writes are allowed.
    #[default]
    Allowed,
    /// The user has paused the revision.
    Paused,
}

/// The action for objects of kinds that the cluster lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MissingKinds {
    /// Wait for the kind.
    #[default]
    Wait,
    /// Continue without the object.
    Skip,
}

/// The settings of a rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether a phase waits for the probes of the previous one.
    pub mode: Mode,
    /// Whether anything may be written.
    pub writes: Writes,
    /// The action for objects of kinds that the cluster lacks.
    pub missing_kinds: MissingKinds,
    /// The fingerprints of the differences that the server left at the last apply of each object.
    pub accepted: BTreeMap<ObjectPosition, u64>,
    /// The objects without our owner reference that get it back.
    pub reclaims: Reclaims,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutEnd {
    /// Every object is as wanted and ready.
    Complete,
    /// The first object that is not ready in each started phase.
    Incomplete(Vec<NotReady>),
    /// Objects of this phase belong to another owner; nothing of the phase was written.
    Collisions {
        /// The phase's index.
        phase: usize,
        /// The objects with their state.
        objects: Vec<(ObjectId, Observation)>,
    },
    /// Requests of this phase failed.
    Failed {
        /// The phase's index.
        phase: usize,
        /// The objects and their failures.
        failures: Vec<(ObjectId, RequestFailure)>,
    },
    /// The revision is paused and these objects are not as wanted.
    Paused(Vec<ObjectId>),
}

/// An object that is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReady {
    /// The object.
    pub id: ObjectId,
    /// The index of its phase.
    pub phase: usize,
    /// The reasons.
    pub unmet: Vec<Unmet>,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The end of the run.
    pub end: RolloutEnd,
    /// The number of objects that a newer revision has taken over.
    pub handed_over: usize,
    /// Objects left out because the cluster lacks their kind.
    pub skipped: Vec<ObjectId>,
    /// The number of applied objects.
    pub written: usize,
    /// The fingerprints for the next run's [`Settings`].
    pub accepted: BTreeMap<ObjectPosition, u64>,
}

#[derive(Debug, Clone)]
enum Stage {
    Observing(Vec<ObjectPosition>),
    Checking(Vec<(ObjectPosition, Write)>),
    Clearing(BlockedObjects),
    Writing(Vec<(ObjectPosition, Write)>),
}

/// Objects that the server refuses because of authorities in the live ones.
#[derive(Debug, Clone, Default)]
struct BlockedObjects {
    /// The objects and their failures.
    objects: Vec<(ObjectPosition, RequestFailure)>,
    /// Other objects that changed meanwhile.
    changed: Vec<ObjectPosition>,
}

#[derive(Debug, Clone)]
enum ObjectState {
    Absent,
    Seen(Observation),
    HandedOver(Observation),
    Terminating,
    Skipped,
}

/// A rollout in progress.
#[derive(Debug, Clone)]
pub struct Rollout {
    settings: Settings,
    phase: usize,
    stage: Stage,
    round: usize,
    states: BTreeMap<ObjectPosition, ObjectState>,
    not_ready: Vec<NotReady>,
    handed_over: usize,
    skipped: Vec<ObjectId>,
    written: usize,
}

type Next = Step<Rollout, Report>;

impl Rollout {
    /// Begins a run.
    pub fn start(outline: &Outline, settings: Settings) -> Next {
        let rollout = Self {
            settings,
            phase: 0,
            stage: Stage::Observing(Vec::new()),
            round: 0,
            states: BTreeMap::new(),
            not_ready: Vec::new(),
            handed_over: 0,
            skipped: Vec::new(),
            written: 0,
        };
        rollout.enter(outline, 0)
    }

    /// Takes the answers to the last requests, in their order.
    pub fn step(mut self, outline: &Outline, answers: Vec<RequestOutcome>) -> Next {
        match std::mem::replace(&mut self.stage, Stage::Observing(Vec::new())) {
            Stage::Observing(positions) => self.observed(outline, &positions, answers),
            Stage::Checking(writes) => self.checked(outline, writes, answers),
            Stage::Clearing(blocked) => self.cleared(outline, blocked, answers),
            Stage::Writing(writes) => self.wrote(outline, &writes, answers),
        }
    }

    fn enter(mut self, outline: &Outline, first: usize) -> Next {
        for phase in first..outline.phases.len() {
            let positions: Vec<ObjectPosition> = outline.positions(phase).collect();
            if !positions.is_empty() {
                self.phase = phase;
                self.round = 0;
                self.states.clear();
                return self.observe(positions);
            }
        }
        let end = if self.not_ready.is_empty() {
            RolloutEnd::Complete
        } else {
            RolloutEnd::Incomplete(std::mem::take(&mut self.not_ready))
        };
        self.end(end)
    }

    fn observe(mut self, positions: Vec<ObjectPosition>) -> Next {
        let requests = positions
            .iter()
            .map(|position| Request::Observe(*position))
            .collect();
        self.stage = Stage::Observing(positions);
        Step::Ask(self, requests)
    }

    fn observed(
        mut self,
        outline: &Outline,
        positions: &[ObjectPosition],
        answers: Vec<RequestOutcome>,
    ) -> Next {
        let mut failures = Vec::new();
        for (position, answer) in positions.iter().zip(answers) {
            match answer {
                RequestOutcome::Absent => drop(self.states.insert(*position, ObjectState::Absent)),
                RequestOutcome::Live(seen) => drop(self.states.insert(*position, ObjectState::Seen(*seen))),
                RequestOutcome::Failed(failure) | RequestOutcome::Blocked(failure) => {
                    self.failed(outline, *position, failure, &mut failures);
                }
            }
        }
        if !failures.is_empty() {
            return self.end_failed(failures);
        }
        self.decide(outline)
    }

    /// Records a failure, unless the object can be left out.
    fn failed(
        &mut self,
        outline: &Outline,
        position: ObjectPosition,
        failure: RequestFailure,
        failures: &mut Vec<(ObjectId, RequestFailure)>,
    ) {
        let id = outline.id(position);
        if failure.kind == FailureKind::UnknownKind && self.settings.missing_kinds == MissingKinds::Skip {
            self.states.insert(position, ObjectState::Skipped);
            self.skipped.push(id);
        } else {
            failures.push((id, failure));
        }
    }

    fn decide(mut self, outline: &Outline) -> Next {
        let mut writes = Vec::new();
        let mut collisions = Vec::new();
        for (position, state) in &mut self.states {
            let Some(object) = outline.object(*position) else {
                continue;
            };
            let seen = match state {
                ObjectState::Absent => None,
                ObjectState::Seen(seen) => Some(&*seen),
                ObjectState::HandedOver(_) | ObjectState::Terminating | ObjectState::Skipped => continue,
            };
            let known = History {
                accepted: self.settings.accepted.get(position).copied(),
                reclaims: self.settings.reclaims,
            };
            match (decide(outline, object, seen, known), seen) {
                (Decision::Write(write), _) => writes.push((*position, write)),
                (Decision::Terminating, _) => *state = ObjectState::Terminating,
                (Decision::HandedOver, Some(seen)) => *state = ObjectState::HandedOver(seen.clone()),
                (Decision::Collision, Some(seen)) => collisions.push((object.id.clone(), seen.clone())),
                (Decision::Keep | Decision::HandedOver | Decision::Collision, _) => {}
            }
        }
        if !collisions.is_empty() {
            let phase = self.phase;
            return self.end(RolloutEnd::Collisions {
                phase,
                objects: collisions,
            });
        }
        match (self.settings.writes, self.settings.mode) {
            _ if writes.is_empty() => self.conclude(outline),
            (Writes::Paused, _) => {
                let ids = writes.iter().map(|(position, _)| outline.id(*position)).collect();
                self.end(RolloutEnd::Paused(ids))
            }
            // A single apply succeeds or fails as a whole. Several are tested first, so that a phase that the server
            // refuses does not begin.
            (Writes::Allowed, Mode::RollOut) if writes.len() > 1 && self.round == 0 => {
                let requests = writes
                    .iter()
                    .map(|(position, write)| Request::DryRun(*position, write.clone()))
                    .collect();
                self.stage = Stage::Checking(writes);
                Step::Ask(self, requests)
            }
            (Writes::Allowed, _) => self.write(writes),
        }
    }

    fn write(mut self, writes: Vec<(ObjectPosition, Write)>) -> Next {
        let requests = writes
            .iter()
            .map(|(position, write)| Request::Apply(*position, write.clone()))
            .collect();
        self.stage = Stage::Writing(writes);
        Step::Ask(self, requests)
    }

    fn checked(
        mut self,
        outline: &Outline,
        writes: Vec<(ObjectPosition, Write)>,
        answers: Vec<RequestOutcome>,
    ) -> Next {
        let mut failures = Vec::new();
        let mut again = Vec::new();
        let mut blocked = Vec::new();
        for ((position, _), answer) in writes.iter().zip(answers) {
            match answer {
                RequestOutcome::Blocked(failure) => blocked.push((*position, failure)),
                RequestOutcome::Failed(failure) => match failure.kind {
                    FailureKind::Conflict => again.push(*position),
                    // An object of the same phase may bring the kind or the namespace.
                    FailureKind::UnknownKind | FailureKind::MissingNamespace => {}
                    FailureKind::Forbidden | FailureKind::Invalid | FailureKind::Transient => {
                        failures.push((outline.id(*position), failure));
                    }
                },
                RequestOutcome::Absent | RequestOutcome::Live(_) => {}
            }
        }
        if !failures.is_empty() {
            return self.end_failed(failures);
        }
        if !blocked.is_empty() {
            return self.clear(blocked, again);
        }
        if !again.is_empty() {
            self.round += 1;
            return self.observe(again);
        }
        self.write(writes)
    }

    fn clear(mut self, objects: Vec<(ObjectPosition, RequestFailure)>, changed: Vec<ObjectPosition>) -> Next {
        let requests = objects
            .iter()
            .map(|(position, _)| Request::Clear(*position))
            .collect();
        self.stage = Stage::Clearing(BlockedObjects { objects, changed });
        Step::Ask(self, requests)
    }

    /// An object that could not be cleared keeps the first failure.
    fn cleared(mut self, outline: &Outline, blocked: BlockedObjects, answers: Vec<RequestOutcome>) -> Next {
        let BlockedObjects {
            objects,
            changed: mut again,
        } = blocked;
        let mut failures = Vec::new();
        for ((position, refusal), answer) in objects.into_iter().zip(answers) {
            match answer {
                RequestOutcome::Absent | RequestOutcome::Live(_) => again.push(position),
                RequestOutcome::Failed(failure) if failure.kind == FailureKind::Conflict => {
                    again.push(position);
                }
                RequestOutcome::Failed(_) | RequestOutcome::Blocked(_) => {
                    failures.push((outline.id(position), refusal));
                }
            }
        }
        if !failures.is_empty() {
            return self.end_failed(failures);
        }
        self.round += 1;
        self.observe(again)
    }

    fn wrote(
        mut self,
        outline: &Outline,
        writes: &[(ObjectPosition, Write)],
        answers: Vec<RequestOutcome>,
    ) -> Next {
        let mut failures = Vec::new();
        let mut again = Vec::new();
        let mut blocked = Vec::new();
        for ((position, write), answer) in writes.iter().zip(answers) {
            match answer {
                RequestOutcome::Blocked(failure) if self.round < MAX_ROUNDS => {
                    blocked.push((*position, failure));
                }
                RequestOutcome::Live(seen) => {
                    // An apply without changes does not change the version of the object.
                    self.written += usize::from(write.guard != seen.ownership.guard());
                    self.settings.accepted.insert(*position, seen.differences);
                    self.states.insert(*position, ObjectState::Seen(*seen));
                }
                RequestOutcome::Failed(failure)
                    if failure.kind == FailureKind::Conflict && self.round < MAX_ROUNDS =>
                {
                    again.push(*position);
                }
                RequestOutcome::Failed(failure) | RequestOutcome::Blocked(failure) => {
                    self.failed(outline, *position, failure, &mut failures);
                }
                RequestOutcome::Absent => again.push(*position),
            }
        }
        if !failures.is_empty() {
            return self.end_failed(failures);
        }
        if !blocked.is_empty() {
            return self.clear(blocked, again);
        }
        if again.is_empty() {
            return self.conclude(outline);
        }
        self.round += 1;
        if self.round > MAX_ROUNDS {
            let message = "the object keeps changing while it is applied".to_owned();
            let failure = RequestFailure::new(FailureKind::Conflict, message);
            let failures = again
                .iter()
                .map(|position| (outline.id(*position), failure.clone()))
                .collect();
            return self.end_failed(failures);
        }
        self.observe(again)
    }

    fn conclude(mut self, outline: &Outline) -> Next {
        let mut first = None;
        for (position, state) in &self.states {
            let unmet = match state {
                ObjectState::Seen(seen) => not_passing(seen),
                ObjectState::HandedOver(seen) => {
                    self.handed_over += 1;
                    not_passing(seen)
                }
                ObjectState::Terminating => Some(vec![Unmet::Terminating]),
                ObjectState::Skipped => None,
                ObjectState::Absent => Some(vec![Unmet::Absent]),
            };
            if first.is_none() {
                first = unmet.map(|unmet| NotReady {
                    id: outline.id(*position),
                    phase: position.phase,
                    unmet,
                });
            }
        }
        let complete = first.is_none();
        self.not_ready.extend(first);
        if !complete && self.settings.mode == Mode::RollOut {
            let end = RolloutEnd::Incomplete(std::mem::take(&mut self.not_ready));
            return self.end(end);
        }
        let next = self.phase + 1;
        self.enter(outline, next)
    }

    fn end_failed(self, failures: Vec<(ObjectId, RequestFailure)>) -> Next {
        let phase = self.phase;
        self.end(RolloutEnd::Failed { phase, failures })
    }

    fn end(self, end: RolloutEnd) -> Next {
        let Self {
            settings,
            handed_over,
            skipped,
            written,
            ..
        } = self;
        Step::End(Report {
            end,
            handed_over,
            skipped,
            written,
            accepted: settings.accepted,
        })
    }
}

fn not_passing(seen: &Observation) -> Option<Vec<Unmet>> {
    (seen.probe.status != ProbeStatus::Passes).then(|| seen.probe.unmet.clone())
}
