//! The GraphQL schema of a catalog, made from the shapes of its blobs. The store keeps it, `graphql` answers queries
//! with it.

mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use apollo_compiler::Schema;
use apollo_compiler::validation::Valid;

pub(crate) use shape::{Field, Fields, Kind, Scalar, Shapes, field_name};
use shape::{root_name, type_name};

/// The maximum and the default of `limit`.
pub(crate) const PAGE: u32 = 100;

/// Type names that are taken.
const TAKEN: [&str; 9] = [
    "Query",
    "CatalogSummary",
    "SchemaSummary",
    "String",
    "Boolean",
    "Int",
    "Float",
    "ID",
    "Subscription",
];

/// The GraphQL schema of a catalog and the blobs behind its root fields.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) schema: Valid<Schema>,
    /// The roots by the field of the query.
    pub(crate) roots: BTreeMap<String, Root>,
}

/// A field of the query.
#[derive(Debug)]
pub(crate) struct Root {
    /// The schema of the blobs it lists.
    pub(crate) schema: String,
    /// The name of their type.
    pub(crate) of_type: String,
    /// Their fields.
    pub(crate) fields: Fields,
}

impl Graph {
    /// Builds the schema. A number distinguishes catalog schemas with the same GraphQL name.
    ///
    /// # Errors
    /// When the names of the catalog violate the rules of GraphQL.
    pub(crate) fn new(shapes: Shapes) -> Result<Self, String> {
        let mut types: BTreeSet<String> = TAKEN.map(ToOwned::to_owned).into();
        let mut roots = BTreeMap::new();
        for (schema, fields) in shapes.schemas {
            let of_type = unique(&type_name(&schema), |name| !types.contains(name));
            types.insert(of_type.clone());
            let name = unique(&root_name(&schema), |name| {
                name != "summary" && !roots.contains_key(name)
            });
            let root = Root {
                schema,
                of_type,
                fields,
            };
            roots.insert(name, root);
        }
        let text = describe(&roots, types);
        let schema =
            Schema::parse_and_validate(text, "catalog.graphql").map_err(|faults| faults.to_string())?;
        Ok(Self { schema, roots })
    }
}

fn unique(name: &str, free: impl Fn(&str) -> bool) -> String {
    let mut candidate = name.to_owned();
    let mut number = 2_u32;
    while !free(&candidate) {
        candidate = format!("{name}{number}");
        number += 1;
    }
    candidate
}

/// The schema in the GraphQL schema language.
fn describe(roots: &BTreeMap<String, Root>, mut taken: BTreeSet<String>) -> String {
    let mut query = String::from(
        "type Query {\n\"The schemas of the catalog and their sizes.\"\nsummary: CatalogSummary\n",
    );
    let mut types = String::from(
        "type CatalogSummary { totalSchemas: Int schemas: [SchemaSummary] }\n\
         type SchemaSummary { name: String totalObjects: Int totalFields: Int }\n",
    );
    for (name, root) in roots {
        let _ = write!(
            query,
            "{name}(\n\"The number of objects, at most 100.\"\nlimit: Int = {PAGE}\n\"The number of objects to skip.\"\noffset: Int = 0\n"
        );
        let filter = format!("{}_Filter", root.of_type);
        let filters = filters(&root.fields);
        if !filters.is_empty() {
            let _ = writeln!(
                query,
                "\"Selects objects whose fields have these values.\"\nfilter: {filter}"
            );
            let _ = writeln!(types, "input {filter} {{ {filters}}}");
        }
        let _ = writeln!(query, "): [{}]", root.of_type);
        let members = members(&root.of_type, &root.fields, &mut taken, &mut types);
        let _ = writeln!(types, "type {} {{ {members}}}", root.of_type);
    }
    query.push_str("}\n");
    query + &types
}

fn filters(fields: &Fields) -> String {
    fields.iter().fold(String::new(), |mut text, (name, field)| {
        if let Kind::One(scalar) = &field.kind {
            let _ = write!(text, "{name}: {} ", scalar.name());
        }
        text
    })
}

/// The fields of a type; the types of nested objects are written to `types`.
fn members(parent: &str, fields: &Fields, taken: &mut BTreeSet<String>, types: &mut String) -> String {
    let mut text = String::new();
    for (name, field) in fields {
        let of_type = match &field.kind {
            Kind::Null => Scalar::String.name().to_owned(),
            Kind::Empty => format!("[{}]", Scalar::String.name()),
            Kind::One(scalar) => scalar.name().to_owned(),
            Kind::Many(scalar) => format!("[{}]", scalar.name()),
            Kind::Objects(nested) if nested.is_empty() => format!("[{}]", Scalar::String.name()),
            Kind::Objects(nested) => {
                let of_type = unique(&(parent.to_owned() + &type_name(name)), |name| {
                    !taken.contains(name)
                });
                taken.insert(of_type.clone());
                // Nested objects contain only plain values, so the recursion ends here.
                let inner = members(&of_type, nested, taken, types);
                let _ = writeln!(types, "type {of_type} {{ {inner}}}");
                format!("[{of_type}]")
            }
        };
        let _ = write!(text, "{name}: {of_type} ");
    }
    if fields.is_empty() {
        text.push_str("value: String ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(blobs: &[(&str, &str)]) -> Graph {
        let mut shapes = Shapes::default();
        for (schema, blob) in blobs {
            shapes.add(schema, &serde_json::from_str(blob).unwrap());
        }
        Graph::new(shapes).unwrap()
    }

    #[test]
    fn schemas_become_fields_of_the_query() {
        let graph = graph(&[
            (
                "olm.bundle",
                r#"{"name":"a","relatedImages":[{"image":"x"}],"n":1,"tags":["a"]}"#,
            ),
            ("custom", r#"{"props":{}}"#),
        ]);
        let text = graph.schema.serialize().to_string();
        for part in [
            "olmbundles(",
            "customs(",
            "relatedImages: [OlmBundleRelatedimages]",
            "tags: [String]",
            "n: Int",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn names_that_map_to_the_same_field_are_distinguished() {
        let graph = graph(&[
            ("a.b", "{\"x\":1}"),
            ("A-B", "{\"x\":1}"),
            ("query", "{\"x\":1}"),
            ("string", "{\"x\":1}"),
            ("ä", "{\"x\":1}"),
            ("ö", "{}"),
            ("a.b.c", "{\"x\":1}"),
            ("a.b", "{\"c\":[{\"x\":1}]}"),
            ("1.2", "{\"x\":1}"),
        ]);
        let found: Vec<(&str, &str)> = graph
            .roots
            .values()
            .map(|root| (root.schema.as_str(), root.of_type.as_str()))
            .collect();
        assert_eq!(found.len(), 8);
        let types: BTreeSet<&str> = found.iter().map(|(_, of_type)| *of_type).collect();
        assert_eq!(types.len(), 8, "{found:?}");
        assert!(types.contains("Query2") && types.contains("String2"), "{found:?}");
    }
}
