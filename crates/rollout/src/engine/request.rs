//! The requests of the engine's machines, and the answers.

use crate::failure::RequestFailure;
use crate::outline::{ObjectPosition, Outline};
use crate::ownership::{Guard, OwnerReference, Ownership};
use crate::probe::ProbeResult;

/// The state of a live object on which decisions depend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The owner.
    pub ownership: Ownership,
    /// A hash of the differences from the wanted object; 0 if there are none.
    pub differences: u64,
    /// The result of the probes.
    pub probe: ProbeResult,
}

/// A server-side apply of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The precondition of the write.
    pub guard: Guard,
    /// Owners that stay on the object as plain owners.
    pub demoted: Vec<OwnerReference>,
}

/// The owner whose reference is removed from an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The revision's.
    Revision,
    /// The extension, as the Helm runtime left it.
    Extension,
}

impl Holder {
    /// The UID in that reference.
    pub fn uid(self, outline: &Outline) -> &str {
        match self {
            Self::Revision => &outline.owner.uid,
            Self::Extension => &outline.owner.extension,
        }
    }
}

/// A request of a machine. All requests of a step may run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads the object. Answered by `Absent` or `Live`.
    Observe(ObjectPosition),
    /// Tests whether the server would accept the write, without writing. Answered by `Live`, or by `Absent` if a dry
    /// run is not possible (a webhook does not support it).
    DryRun(ObjectPosition, Write),
    /// Applies the object. Answered by `Live`.
    Apply(ObjectPosition, Write),
    /// Removes an owner reference from the object. Answered by `Live` or `Absent`.
    Release(ObjectPosition, Guard, Holder),
    /// Removes the authorities that make the server refuse the wanted object, ours and others'. Answered by `Live`, or
    /// by `Absent` if there are none left.
    Clear(ObjectPosition),
    /// Deletes the object. Answered by `Absent`, or `Live` while finalizers hold it.
    Delete(ObjectPosition, Guard),
}

impl Request {
    /// The position of the object.
    pub fn position(&self) -> ObjectPosition {
        match self {
            Self::Observe(position)
            | Self::Clear(position)
            | Self::DryRun(position, _)
            | Self::Apply(position, _)
            | Self::Release(position, ..)
            | Self::Delete(position, _) => *position,
        }
    }

    /// Whether the request can change the cluster.
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Observe(_) | Self::DryRun(..))
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The object does not exist.
    Absent,
    /// The object exists.
    Live(Box<Observation>),
    /// The server refuses the object because of authorities that [`Request::Clear`] removes.
    Blocked(RequestFailure),
    /// The request failed.
    Failed(RequestFailure),
}

/// The next step of a machine.
#[derive(Debug)]
pub enum Step<Machine, End> {
    /// Make these requests, at least one, and return as many answers in the same order.
    Ask(Machine, Vec<Request>),
    /// Done.
    End(End),
}

/// The number of times that a run reads an object again that others change meanwhile.
pub const MAX_ROUNDS: usize = 4;
