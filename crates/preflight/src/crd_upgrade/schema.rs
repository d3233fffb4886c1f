//! A schema as a list of its nodes.

use std::collections::BTreeMap;

use serde_json::Value;

/// One node of a schema.
pub(super) struct Node<'a> {
    /// The displayed path: `^.spec.list.items`.
    pub(super) path: String,
    /// The node.
    pub(super) schema: &'a Value,
}

/// The most bytes of all paths of a definition's schemas, each counted for every version that it is compared with. Real
/// definitions have less than a tenth.
const MOST_BYTES: usize = 256 << 20;
/// The cost of a node without its paths.
const NODE_BYTES: usize = 64;

/// Whether schemas that are compared pair by pair are small enough. Names may be long, and every path repeats them.
pub(super) fn is_comparable<'a>(schemas: impl Iterator<Item = &'a Value>) -> bool {
    let schemas: Vec<&Value> = schemas.collect();
    let times = schemas.len().saturating_sub(1).max(1);
    let mut left = MOST_BYTES / times;
    schemas
        .into_iter()
        .all(|schema| take_cost(schema, &mut left).is_some())
}

/// Subtracts the bytes of all paths of a schema.
fn take_cost(root: &Value, left: &mut usize) -> Option<()> {
    let mut open = vec![(0usize, root)];
    while let Some((length, schema)) = open.pop() {
        *left = left.checked_sub(length.checked_add(NODE_BYTES)?)?;
        for (place, path, inner) in children(schema) {
            open.push((length + place.len() + path.len() + 2, inner));
        }
    }
    Some(())
}

/// All nodes, by place. A place distinguishes a property called `items` from the items of a list; a path does not.
pub(super) fn flatten(root: &Value) -> BTreeMap<String, Node<'_>> {
    let mut nodes = BTreeMap::new();
    let mut open = vec![("^".to_owned(), "^".to_owned(), root)];
    while let Some((place, path, schema)) = open.pop() {
        if !schema.is_object() {
            continue;
        }
        for (place_step, path_step, inner) in children(schema) {
            open.push((
                format!("{place}/{place_step}"),
                format!("{path}.{path_step}"),
                inner,
            ));
        }
        nodes.insert(place, Node { path, schema });
    }
    nodes
}

/// The schemas within a schema, each with the steps to its place and on its path.
fn children(schema: &Value) -> Vec<(String, String, &Value)> {
    let mut found = Vec::new();
    for keyword in ["items", "not", "additionalProperties", "additionalItems"] {
        if let Some(inner) = schema.get(keyword) {
            found.push((keyword.to_owned(), keyword.to_owned(), inner));
        }
    }
    for keyword in ["items", "allOf", "anyOf", "oneOf"] {
        let list = schema
            .get(keyword)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for (index, inner) in list.enumerate() {
            let step = format!("{keyword}[{index}]");
            found.push((step.clone(), step, inner));
        }
    }
    for (name, inner) in entries(schema, "properties") {
        found.push((format!("properties/{name}"), name.clone(), inner));
    }
    for keyword in ["patternProperties", "definitions", "dependencies"] {
        for (name, inner) in entries(schema, keyword) {
            let step = format!("{keyword}[{name}]");
            found.push((step.clone(), step, inner));
        }
    }
    found
}

fn entries<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    schema
        .get(keyword)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_names_with_many_fields_below_are_not_compared() {
        let fields: serde_json::Map<String, Value> = (0..1000)
            .map(|number| (format!("field{number}"), json!({})))
            .collect();
        let schema = |name: String| json!({ "properties": { name: { "properties": fields } } });
        let (usual, hostile) = (schema("spec".to_owned()), schema("a".repeat(1 << 20)));
        assert!(is_comparable([&usual, &usual, &usual].into_iter()));
        assert!(!is_comparable([&hostile].into_iter()));
        // Every version is compared with every other one.
        assert!(!is_comparable(std::iter::repeat_n(&usual, 2000)));
    }
}
