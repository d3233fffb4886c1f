//! The part of a revision's content that is kept after the bodies of its objects are dropped.

use olm_api::cluster_object_set::ObservedPhase;
use olm_api::object::text;

use crate::certificates::layout::Layout;
use crate::content::RevisionContent;
use crate::object::ObjectId;
use crate::outline::{Definition, ObjectPosition, Outline, OutlineObject, OutlinePhase, Owner, Sibling};

/// The part of a set's content that is kept after the bodies are dropped.
#[derive(Debug, Default)]
pub struct Phases {
    /// The phases without bodies.
    pub phases: Vec<OutlinePhase>,
    /// Their digests.
    pub observed: Vec<ObservedPhase>,
    /// The positions of certificates.
    pub certificates: Layout,
    /// The CustomResourceDefinitions.
    pub definitions: Vec<Definition>,
}

impl Phases {
    /// The part of a content that is kept.
    pub fn of(content: &RevisionContent) -> Self {
        let phases = content
            .phases
            .iter()
            .map(|phase| OutlinePhase {
                name: phase.name.clone(),
                objects: phase
                    .objects
                    .iter()
                    .map(|object| OutlineObject {
                        id: ObjectId::of(&object.object),
                        collision_protection: object.collision_protection,
                    })
                    .collect(),
            })
            .collect();
        Self {
            phases,
            observed: content.observed_phases(),
            certificates: Layout::of(content),
            definitions: definitions(content),
        }
    }

    /// The outline of a set with this owner and these siblings.
    pub fn outline(&self, owner: Owner, siblings: Vec<Sibling>) -> Outline {
        Outline {
            owner,
            siblings,
            phases: self.phases.clone(),
            definitions: self.definitions.clone(),
        }
    }
}

/// The CustomResourceDefinitions of a content.
fn definitions(content: &RevisionContent) -> Vec<Definition> {
    let mut found = Vec::new();
    for (phase, objects) in content.phases.iter().map(|phase| &phase.objects).enumerate() {
        for (object, content) in objects.iter().enumerate() {
            let id = ObjectId::of(&content.object);
            if id.group == "apiextensions.k8s.io" && id.kind == "CustomResourceDefinition" {
                found.push(Definition {
                    position: ObjectPosition { phase, object },
                    group: text(&content.object, "/spec/group").to_owned(),
                    kind: text(&content.object, "/spec/names/kind").to_owned(),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::CollisionProtection;
    use serde_json::json;

    use super::*;
    use crate::content::{ContentObject, ContentPhase};

    #[test]
    fn definitions_and_their_kinds_are_known() {
        let object = |object| ContentObject {
            object,
            collision_protection: CollisionProtection::Prevent,
        };
        let content = RevisionContent {
            phases: vec![ContentPhase {
                objects: vec![
                    object(json!({"apiVersion": "v1", "kind": "ConfigMap"})),
                    object(json!({"apiVersion": "x.io/v1", "kind": "Foo"})),
                    object(
                        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                        "spec": {"group": "x.io", "names": {"kind": "Foo"}}}),
                    ),
                    object(json!({"apiVersion": "y.io/v1", "kind": "Foo"})),
                ],
                ..ContentPhase::default()
            }],
        };
        let phases = Phases::of(&content);
        let [definition] = &phases.definitions[..] else {
            panic!("{phases:?}")
        };
        assert_eq!(definition.position.object, 2);
        let outline = phases.outline(Owner::default(), Vec::new());
        let found: Vec<usize> = outline
            .custom_resources()
            .iter()
            .map(|position| position.object)
            .collect();
        assert_eq!(found, [1, 2]);
    }
}
