//! Merges two objects with the same name.
//!
//! Some bundles contain the ServiceAccount or Service that is also generated for them. Applying both would let the
//! second undo the first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::Value;

use super::RenderError;
use crate::object::{object_name, text};

/// The origin of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Generated from the ClusterServiceVersion.
    Generated,
    /// A manifest of the bundle.
    Brought,
}

/// The objects in order, each once. Generated objects override those of the bundle.
pub(super) fn unify<const N: usize>(groups: [(Origin, Vec<Value>); N]) -> Result<Vec<Value>, RenderError> {
    let mut objects: Vec<(Origin, Value)> = Vec::new();
    let mut places: BTreeMap<[String; 4], usize> = BTreeMap::new();
    let all = groups
        .into_iter()
        .flat_map(|(origin, group)| group.into_iter().map(move |object| (origin, object)));
    for (origin, object) in all {
        match places.entry(key(&object)) {
            Entry::Vacant(place) => {
                place.insert(objects.len());
                objects.push((origin, object));
            }
            Entry::Occupied(place) => {
                let Some((first_origin, first)) = objects.get_mut(*place.get()) else {
                    continue;
                };
                match (*first_origin, origin) {
                    _ if *first == object => {}
                    (Origin::Brought, Origin::Generated) => overlay(first, object),
                    (Origin::Generated, Origin::Brought) => {
                        let generated = std::mem::replace(first, object);
                        overlay(first, generated);
                    }
                    (Origin::Generated, Origin::Generated) | (Origin::Brought, Origin::Brought) => {
                        let kind = text(&object, "/kind");
                        return Err(RenderError::Conflict {
                            kind: kind.to_owned(),
                            name: object_name(&object).to_owned(),
                        });
                    }
                }
            }
        }
    }
    Ok(objects.into_iter().map(|(_, object)| object).collect())
}

/// Group, kind, namespace and name: the identity of an object without its version.
fn key(object: &Value) -> [String; 4] {
    let text = |pointer: &str| text(object, pointer);
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    [
        group,
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    ]
    .map(str::to_owned)
}

/// Sets the fields of `upper` in `lower`: labels and annotations one by one, all others below `metadata` and `spec` by
/// field.
fn overlay(lower: &mut Value, upper: Value) {
    let (Value::Object(lower), Value::Object(upper)) = (lower, upper) else {
        return;
    };
    for (field, value) in upper {
        match (field.as_str(), lower.get_mut(&field), value) {
            ("metadata" | "spec", Some(Value::Object(below)), Value::Object(above)) => {
                for (field, value) in above {
                    match (field.as_str(), below.get_mut(&field), value) {
                        ("labels" | "annotations", Some(Value::Object(entries)), Value::Object(added)) => {
                            entries.extend(added);
                        }
                        (_, _, value) => {
                            below.insert(field, value);
                        }
                    }
                }
            }
            (_, _, value) => {
                lower.insert(field, value);
            }
        }
    }
}
