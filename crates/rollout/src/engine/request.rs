//! What the engine's machines ask for, and what they are answered.

use crate::failure::Failure;
use crate::outline::{Outline, Place};
use crate::ownership::{Guard, OwnerReference, Ownership};
use crate::probe::ProbeResult;

/// The facts about a live object that decisions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The owner.
    pub ownership: Ownership,
    /// How it differs from what is wanted; 0 when it does not.
    pub differences: u64,
    /// What the probes say.
    pub probe: ProbeResult,
}

/// A server-side apply of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// What must hold, or nothing is written.
    pub guard: Guard,
    /// Owners that stay on the object but no longer control it.
    pub demoted: Vec<OwnerReference>,
}

/// The owner whose reference is removed from an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The revision's.
    Revision,
    /// That of the extension itself, as the Helm runtime left it.
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

/// What a machine asks for. All requests of one step may be made at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Say how the object is. Answered by `Absent` or `Live`.
    Observe(Place),
    /// Say whether the server would take the write; nothing is written. Answered by `Live`, or by `Absent` when the server
    /// cannot tell (a webhook without dry run).
    DryRun(Place, Write),
    /// Apply the object. Answered by `Live`.
    Apply(Place, Write),
    /// Take an owner reference off the object. Answered by `Live` or `Absent`.
    Release(Place, Guard, Holder),
    /// Take off our object the authorities, ours and others', that keep the server from taking the wanted one. Answered by
    /// `Live`, or by `Absent` when nothing is in the way any more.
    Clear(Place),
    /// Delete the object. Answered by `Absent`, or `Live` while finalizers hold it.
    Delete(Place, Guard),
}

impl Request {
    /// The place that the request is about.
    pub fn place(&self) -> Place {
        match self {
            Self::Observe(place)
            | Self::Clear(place)
            | Self::DryRun(place, _)
            | Self::Apply(place, _)
            | Self::Release(place, ..)
            | Self::Delete(place, _) => *place,
        }
    }

    /// Whether the request may change the cluster.
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Observe(_) | Self::DryRun(..))
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The object does not exist, or no longer does.
    Absent,
    /// The object exists, or exists now.
    Live(Box<Observation>),
    /// The server refuses the object as long as authorities that [`Request::Clear`] takes off stand in the live one.
    Obstructed(Failure),
    /// The request was not fulfilled.
    Failed(Failure),
}

/// The next step of a machine.
#[derive(Debug)]
pub enum Step<Machine, End> {
    /// Make these requests, of which there is at least one, and come back with as many answers in the same order.
    Ask(Machine, Vec<Request>),
    /// Done.
    End(End),
}

/// How often one run looks again at an object that changes while it is worked on.
pub const MAX_ROUNDS: usize = 4;
