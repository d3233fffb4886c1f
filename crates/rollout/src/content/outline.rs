//! A revision without the bodies of its objects: the input of decisions.

use std::collections::BTreeSet;
use std::fmt;

use olm_api::cluster_object_set::CollisionProtection;

use crate::object::ObjectId;

/// A revision as the owner of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The ClusterObjectSet's name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The revision.
    pub revision: i64,
    /// The value of the `owner-name` label; empty if absent.
    pub owner_name: String,
    /// The UID of the controlling ClusterExtension; empty if there is none.
    pub extension: String,
    /// Whether it was created from a release of the Helm runtime, whose objects the extension itself controls.
    pub migrated: bool,
}

/// Another revision of the same extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sibling {
    /// The ClusterObjectSet's name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The revision.
    pub revision: i64,
}

/// A revision without the bodies of its objects.
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
    /// The position.
    pub position: ObjectPosition,
    /// The group of the kind.
    pub group: String,
    /// The kind that it defines.
    pub kind: String,
}

/// A phase without the objects' bodies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutlinePhase {
    /// The name.
    pub name: String,
    /// The objects.
    pub objects: Vec<OutlineObject>,
}

/// An object without its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutlineObject {
    /// The identity.
    pub id: ObjectId,
    /// The action when it exists already.
    pub collision_protection: CollisionProtection,
}

impl Outline {
    /// The object at a position.
    pub fn object(&self, position: ObjectPosition) -> Option<&OutlineObject> {
        self.phases.get(position.phase)?.objects.get(position.object)
    }

    /// The identity of the object at a position; empty for a position that the outline lacks.
    pub fn id(&self, position: ObjectPosition) -> ObjectId {
        self.object(position)
            .map(|object| object.id.clone())
            .unwrap_or_default()
    }

    /// Lets the revision take over the object at a position if it has no controller, unless a revision released it on
    /// purpose.
    pub fn inherit(&mut self, position: ObjectPosition) {
        let phase = self.phases.get_mut(position.phase);
        if let Some(object) = phase.and_then(|phase| phase.objects.get_mut(position.object))
            && object.collision_protection == CollisionProtection::Prevent
        {
            object.collision_protection = CollisionProtection::IfNoController;
        }
    }

    /// A phase in the form of conditions.
    pub fn phase(&self, index: usize) -> PhaseName<'_> {
        let name = self.phases.get(index).map_or("", |phase| phase.name.as_str());
        PhaseName { index, name }
    }

    /// The positions of a phase.
    pub fn positions(&self, phase: usize) -> impl Iterator<Item = ObjectPosition> + use<> {
        let count = self.phases.get(phase).map_or(0, |p| p.objects.len());
        (0..count).map(move |object| ObjectPosition { phase, object })
    }

    /// The definition of a kind, if the revision contains it.
    pub fn definition(&self, id: &ObjectId) -> Option<ObjectPosition> {
        let found = self
            .definitions
            .iter()
            .find(|d| d.group == id.group && d.kind == id.kind);
        found.map(|definition| definition.position)
    }

    /// The CustomResourceDefinitions and the objects of the kinds that they define.
    pub fn custom_resources(&self) -> BTreeSet<ObjectPosition> {
        let definitions = self.definitions.iter().map(|definition| definition.position);
        let defined = self
            .all_positions()
            .filter(|position| self.definition(&self.id(*position)).is_some());
        definitions.chain(defined).collect()
    }

    /// All positions, phase by phase.
    pub fn all_positions(&self) -> impl Iterator<Item = ObjectPosition> + '_ {
        (0..self.phases.len()).flat_map(|phase| self.positions(phase))
    }
}

/// The position of an object in a revision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectPosition {
    /// The phase's index.
    pub phase: usize,
    /// The object's index in the phase.
    pub object: usize,
}

/// A phase in the form of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseName<'a> {
    /// The index.
    pub index: usize,
    /// The name.
    pub name: &'a str,
}

impl fmt::Display for PhaseName<'_> {
    /// `phase 3 (crds)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phase {} ({})", self.index, self.name)
    }
}
