//! A schema as a list of its nodes.

use std::collections::BTreeMap;

use serde_json::Value;

/// One node of a schema.
pub(super) struct Node<'a> {
    /// The path as it is shown: `^.spec.list.items`.
    pub(super) path: String,
    /// The node.
    pub(super) schema: &'a Value,
}

/// Every node, by its place. Places tell a property called `items` from the items of a list, which the paths do not.
pub(super) fn flatten(root: &Value) -> BTreeMap<String, Node<'_>> {
    let mut nodes = BTreeMap::new();
    let mut open = vec![("^".to_owned(), "^".to_owned(), root)];
    while let Some((place, path, schema)) = open.pop() {
        if !schema.is_object() {
            continue;
        }
        for keyword in ["items", "not", "additionalProperties", "additionalItems"] {
            if let Some(inner) = schema.get(keyword) {
                open.push((format!("{place}/{keyword}"), format!("{path}.{keyword}"), inner));
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
                open.push((format!("{place}/{step}"), format!("{path}.{step}"), inner));
            }
        }
        for (name, inner) in entries(schema, "properties") {
            open.push((
                format!("{place}/properties/{name}"),
                format!("{path}.{name}"),
                inner,
            ));
        }
        for keyword in ["patternProperties", "definitions", "dependencies"] {
            for (name, inner) in entries(schema, keyword) {
                let step = format!("{keyword}[{name}]");
                open.push((format!("{place}/{step}"), format!("{path}.{step}"), inner));
            }
        }
        nodes.insert(place, Node { path, schema });
    }
    nodes
}

fn entries<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    schema
        .get(keyword)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}
