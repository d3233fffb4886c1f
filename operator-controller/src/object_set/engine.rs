//! The engine that rolls a revision out and takes it down, without any input or output of its own.
//!
//! ```text
//! Outline ──► Rollout  ──requests──►  whoever has a cluster   ──answers──►  Rollout  … ──► RolloutEnd
//!         ──► Teardown ──requests──►                          ──answers──►  Teardown … ──► TeardownEnd
//! ```
//!
//! A machine is a value: a step takes it with the answers to its last requests and gives either the machine and new
//! requests, or the end. Nothing is remembered between two runs but what the cluster itself says, so a run may stop
//! after any request and the next one starts from the beginning.

use std::{collections::BTreeSet, fmt};

use olm_api::cluster_object_set::CollisionProtection;
use serde_json::Value;

pub mod decide;
pub mod desired;
pub mod differences;
pub mod inheritance;
pub mod ownership;
pub mod probe;
pub mod report;
pub mod rollout;
pub mod teardown;

pub use ownership::{OwnerReference, Ownership};
pub use probe::{ProbeResult, ProbeStatus};

/// Names an object of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The API group; empty: core.
    pub group: String,
    /// The version in the group.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectId {
    /// The identity that an object's own fields give; absent ones are empty.
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }

    /// Group and version as `apiVersion` holds them.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `GROUP/VERSION, Kind=KIND NAMESPACE/NAME`, as errors name an object.
    pub fn reference(&self) -> String {
        format!(
            "{}, Kind={} {}/{}",
            self.api_version(),
            self.kind,
            self.namespace,
            self.name
        )
    }
}

impl fmt::Display for ObjectId {
    /// `KIND.GROUP/VERSION NAMESPACE/NAME`, as conditions name an object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{} {}/{}",
            self.kind,
            self.api_version(),
            self.namespace,
            self.name
        )
    }
}

/// A revision as its objects' owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The ClusterObjectSet's name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its revision.
    pub revision: i64,
    /// The value of its `owner-name` label; empty when it has none.
    pub owner_name: String,
    /// The UID of the ClusterExtension that controls it; empty when none does.
    pub extension: String,
    /// Whether it was made from a release of the Helm runtime, whose objects the extension itself controls.
    pub migrated: bool,
}

impl Owner {
    /// What the extension is called; a revision made by hand is one of itself.
    pub fn extension_name(&self) -> &str {
        if self.owner_name.is_empty() {
            &self.name
        } else {
            &self.owner_name
        }
    }
}

/// Another revision of the same extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sibling {
    /// The ClusterObjectSet's name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its revision.
    pub revision: i64,
}

/// A revision without the objects' bodies: what decisions need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// The revision.
    pub owner: Owner,
    /// The other revisions of the same extension, in any order.
    pub siblings: Vec<Sibling>,
    /// The phases in order.
    pub phases: Vec<OutlinePhase>,
    /// The CustomResourceDefinitions among the objects.
    pub definitions: Vec<Definition>,
}

/// A CustomResourceDefinition of a revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definition {
    /// Where it stands.
    pub place: Place,
    /// The group that it adds to.
    pub group: String,
    /// The kind that it defines.
    pub kind: String,
}

/// A phase without the objects' bodies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutlinePhase {
    /// Its name.
    pub name: String,
    /// Its objects.
    pub objects: Vec<OutlineObject>,
}

/// An object without its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutlineObject {
    /// Its identity.
    pub id: ObjectId,
    /// What to do when it exists already.
    pub collision_protection: CollisionProtection,
}

impl Outline {
    /// The object at a place.
    pub fn object(&self, place: Place) -> Option<&OutlineObject> {
        self.phases.get(place.phase)?.objects.get(place.object)
    }

    /// The identity of the object at a place; empty for a place that the outline lacks.
    pub fn id(&self, place: Place) -> ObjectId {
        self.object(place)
            .map(|object| object.id.clone())
            .unwrap_or_default()
    }

    /// Has the object at a place taken over when nobody controls it, unless a revision left it on purpose.
    pub fn inherit(&mut self, place: Place) {
        let phase = self.phases.get_mut(place.phase);
        if let Some(object) = phase.and_then(|phase| phase.objects.get_mut(place.object))
            && object.collision_protection == CollisionProtection::Prevent
        {
            object.collision_protection = CollisionProtection::IfNoController;
        }
    }

    /// A phase as conditions name it.
    pub fn phase(&self, index: usize) -> report::Phase<'_> {
        let name = self.phases.get(index).map_or("", |phase| phase.name.as_str());
        report::Phase { index, name }
    }

    /// The places of a phase.
    pub fn places(&self, phase: usize) -> impl Iterator<Item = Place> + use<> {
        let count = self.phases.get(phase).map_or(0, |p| p.objects.len());
        (0..count).map(move |object| Place { phase, object })
    }

    /// The definition of a kind, if the revision brings it.
    pub fn definition(&self, id: &ObjectId) -> Option<Place> {
        let found = self
            .definitions
            .iter()
            .find(|d| d.group == id.group && d.kind == id.kind);
        found.map(|definition| definition.place)
    }

    /// The CustomResourceDefinitions and the objects of the kinds that they define.
    pub fn custom_resources(&self) -> BTreeSet<Place> {
        let definitions = self.definitions.iter().map(|definition| definition.place);
        let defined = self
            .all_places()
            .filter(|place| self.definition(&self.id(*place)).is_some());
        definitions.chain(defined).collect()
    }

    /// All places, phase by phase.
    pub fn all_places(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.phases.len()).flat_map(|phase| self.places(phase))
    }
}

/// Where in a revision an object stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The phase's index.
    pub phase: usize,
    /// The object's index in the phase.
    pub object: usize,
}

/// What is known of a live object: enough for every decision, and small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Whose it is.
    pub ownership: Ownership,
    /// How it differs from what is wanted; 0 when it does not.
    pub differences: u64,
    /// What the probes say.
    pub probe: ProbeResult,
}

/// On what a write insists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The object does not exist.
    Absent,
    /// It exists just as it was seen.
    Seen {
        /// The UID seen.
        uid: String,
        /// The resourceVersion seen.
        resource_version: String,
    },
}

/// A server-side apply of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// What must hold, or nothing is written.
    pub guard: Guard,
    /// Owners that stay on the object but no longer control it.
    pub demoted: Vec<OwnerReference>,
}

/// Whose reference is taken off an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The revision's.
    Revision,
    /// That of the extension itself, as the Helm runtime left it.
    Extension,
}

impl Outline {
    /// The UID in that reference.
    pub fn uid_of(&self, holder: Holder) -> &str {
        match holder {
            Holder::Revision => &self.owner.uid,
            Holder::Extension => &self.owner.extension,
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
    /// Delete the object. Answered by `Absent`, or `Live` while finalizers hold it.
    Delete(Place, Guard),
}

impl Request {
    /// The place that the request is about.
    pub fn place(&self) -> Place {
        match self {
            Self::Observe(place)
            | Self::DryRun(place, _)
            | Self::Apply(place, _)
            | Self::Release(place, ..)
            | Self::Delete(place, _) => *place,
        }
    }

    /// Whether the request may change the cluster.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Apply(..) | Self::Release(..) | Self::Delete(..))
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The object does not exist, or no longer does.
    Absent,
    /// The object exists, or exists now.
    Live(Box<Observation>),
    /// The request was not fulfilled.
    Failed(Failure),
}

/// Why a request was not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// What the server said.
    pub message: String,
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The object is not as it was seen: look again.
    Conflict,
    /// The cluster has no such kind, said by the server when it was asked for just that.
    UnknownKind,
    /// The object's namespace does not exist.
    MissingNamespace,
    /// The account may not.
    Forbidden,
    /// The server refuses the object as it is.
    Invalid,
    /// Worth another try.
    Transient,
}

/// The next step of a machine.
#[derive(Debug)]
pub enum Step<Machine, End> {
    /// Make these requests, of which there is at least one, and come back with as many answers in the same order.
    Ask(Machine, Vec<Request>),
    /// Done.
    End(End),
}

#[cfg(test)]
mod tests;

/// How often one run looks again at an object that changes while it is worked on.
pub const MAX_ROUNDS: usize = 4;
