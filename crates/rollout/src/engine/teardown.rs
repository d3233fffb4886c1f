//! The machine that tears a revision down: phases in reverse order, each after the objects of the last one are gone. In
//! a phase, CRDs go last, because all custom resources go with them.
//!
//! It deletes only objects that the revision controls, and only if they are unchanged since they were read. It releases
//! objects that the revision merely owns. An object that the extension itself controls comes from the Helm runtime and
//! was never taken over: it is deleted with the revision that was created from it.

use std::collections::BTreeSet;

use super::request::{Holder, MAX_ROUNDS, Observation, Request, RequestOutcome, Step};
use crate::failure::{FailureKind, RequestFailure};
use crate::object::ObjectId;
use crate::outline::{ObjectPosition, Outline};
use crate::ownership::Ownership;

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TeardownEnd {
    /// No object of the revision is left.
    Complete,
    /// Objects of a phase are deleted but not gone yet.
    Waiting {
        /// The phase's index.
        phase: usize,
        /// The objects and the finalizers that hold them.
        objects: Vec<(ObjectId, Vec<String>)>,
    },
    /// Only objects remain that another revision will take over.
    Held(Vec<ObjectId>),
    /// Requests of this phase failed.
    Failed {
        /// The phase's index.
        phase: usize,
        /// The objects and their failures.
        failures: Vec<(ObjectId, RequestFailure)>,
    },
}

/// The objects that are not deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetainedObjects {
    /// Objects to release.
    pub kept: BTreeSet<ObjectPosition>,
    /// Objects to leave unchanged until another revision has taken them over.
    pub held: BTreeSet<ObjectPosition>,
}

#[derive(Debug, Clone)]
enum TeardownStage {
    Observing(Vec<ObjectPosition>),
    Acting(Vec<ObjectPosition>),
}

/// A teardown in progress.
#[derive(Debug, Clone)]
pub struct Teardown {
    retained: RetainedObjects,
    /// The remaining stops, the next one last.
    stops: Vec<DeletionBatch>,
    phase: usize,
    stage: TeardownStage,
    round: usize,
    waiting: Vec<(ObjectId, Vec<String>)>,
    held: Vec<ObjectId>,
    failures: Vec<(ObjectId, RequestFailure)>,
}

/// Objects of a phase that are deleted at the same time.
#[derive(Debug, Clone)]
struct DeletionBatch {
    phase: usize,
    positions: Vec<ObjectPosition>,
}

type Next = Step<Teardown, TeardownEnd>;

impl Teardown {
    /// Begins a run.
    pub fn start(outline: &Outline, retained: RetainedObjects) -> Next {
        let is_definition =
            |position: &ObjectPosition| outline.definitions.iter().any(|d| d.position == *position);
        let stops = (0..outline.phases.len())
            .flat_map(|phase| {
                let (definitions, others) = outline.positions(phase).partition(is_definition);
                [definitions, others].map(|positions| DeletionBatch { phase, positions })
            })
            .filter(|stop| !stop.positions.is_empty())
            .collect();
        let teardown = Self {
            retained,
            stops,
            phase: 0,
            stage: TeardownStage::Observing(Vec::new()),
            round: 0,
            waiting: Vec::new(),
            held: Vec::new(),
            failures: Vec::new(),
        };
        teardown.enter()
    }

    /// Takes the answers to the last requests, in their order.
    pub fn step(mut self, outline: &Outline, answers: Vec<RequestOutcome>) -> Next {
        match std::mem::replace(&mut self.stage, TeardownStage::Observing(Vec::new())) {
            TeardownStage::Observing(positions) => self.observed(outline, &positions, answers),
            TeardownStage::Acting(positions) => self.acted(outline, &positions, answers),
        }
    }

    fn enter(mut self) -> Next {
        let Some(DeletionBatch { phase, positions }) = self.stops.pop() else {
            return Step::End(if self.held.is_empty() {
                TeardownEnd::Complete
            } else {
                TeardownEnd::Held(self.held)
            });
        };
        self.phase = phase;
        self.round = 0;
        self.observe(positions)
    }

    fn observe(mut self, positions: Vec<ObjectPosition>) -> Next {
        let requests = positions
            .iter()
            .map(|position| Request::Observe(*position))
            .collect();
        self.stage = TeardownStage::Observing(positions);
        Step::Ask(self, requests)
    }

    fn observed(
        mut self,
        outline: &Outline,
        positions: &[ObjectPosition],
        answers: Vec<RequestOutcome>,
    ) -> Next {
        let mut requests = Vec::new();
        for (position, answer) in positions.iter().zip(answers) {
            match answer {
                RequestOutcome::Absent => {}
                RequestOutcome::Failed(failure) if failure.kind == FailureKind::UnknownKind => {}
                RequestOutcome::Failed(failure) | RequestOutcome::Blocked(failure) => {
                    self.failures.push((outline.id(*position), failure));
                }
                RequestOutcome::Live(seen) => requests.extend(self.request(outline, *position, &seen)),
            }
        }
        if requests.is_empty() {
            return self.conclude();
        }
        self.stage = TeardownStage::Acting(requests.iter().map(Request::position).collect());
        Step::Ask(self, requests)
    }

    fn request(
        &mut self,
        outline: &Outline,
        position: ObjectPosition,
        seen: &Observation,
    ) -> Option<Request> {
        let live = &seen.ownership;
        let inherited = is_inherited(outline, live);
        let controlled = inherited || live.is_controlled_by(&outline.owner.uid);
        match &live.deleting {
            _ if !live.owned && !inherited => None,
            None if controlled && self.retained.held.contains(&position) => {
                self.held.push(outline.id(position));
                None
            }
            _ if !controlled || self.retained.kept.contains(&position) => {
                // The deletion of the extension would also delete the objects that it controls.
                let holder = if inherited {
                    Holder::Extension
                } else {
                    Holder::Revision
                };
                Some(Request::Release(position, live.guard(), holder))
            }
            Some(finalizers) => {
                self.waiting.push((outline.id(position), finalizers.clone()));
                None
            }
            None => Some(Request::Delete(position, live.guard())),
        }
    }

    fn acted(
        mut self,
        outline: &Outline,
        positions: &[ObjectPosition],
        answers: Vec<RequestOutcome>,
    ) -> Next {
        let mut again = Vec::new();
        for (position, answer) in positions.iter().zip(answers) {
            match answer {
                RequestOutcome::Absent => {}
                RequestOutcome::Live(seen)
                    if !seen.ownership.owned && !is_inherited(outline, &seen.ownership) => {}
                RequestOutcome::Live(seen) => {
                    self.waiting
                        .push((outline.id(*position), seen.ownership.deleting.unwrap_or_default()));
                }
                RequestOutcome::Failed(failure) if failure.kind == FailureKind::UnknownKind => {}
                RequestOutcome::Failed(failure)
                    if failure.kind == FailureKind::Conflict && self.round < MAX_ROUNDS =>
                {
                    again.push(*position);
                }
                RequestOutcome::Failed(failure) | RequestOutcome::Blocked(failure) => {
                    self.failures.push((outline.id(*position), failure));
                }
            }
        }
        if again.is_empty() {
            return self.conclude();
        }
        self.round += 1;
        self.observe(again)
    }

    fn conclude(self) -> Next {
        let phase = self.phase;
        if !self.failures.is_empty() {
            return Step::End(TeardownEnd::Failed {
                phase,
                failures: self.failures,
            });
        }
        if !self.waiting.is_empty() {
            return Step::End(TeardownEnd::Waiting {
                phase,
                objects: self.waiting,
            });
        }
        self.enter()
    }
}

/// Whether the extension itself controls the object, left by the Helm runtime, and the revision was created from that.
fn is_inherited(outline: &Outline, live: &Ownership) -> bool {
    let extension = &outline.owner.extension;
    outline.owner.migrated && !extension.is_empty() && live.is_controlled_by(extension)
}
