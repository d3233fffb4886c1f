//! What is wrong with a query that is well-formed, in the words that clients of the reference implementation know, as far as
//! the library that validates tells enough. It has other words, and finds a field without a selection, too, where all that
//! was selected is unknown.

use std::collections::BTreeSet;

use apollo_compiler::Schema;
use apollo_compiler::ast::{Definition, Document, Selection};
use apollo_compiler::response::GraphQLError;

/// How the library says that a field with fields of its own is asked for as a whole.
const NO_SELECTION: &str = " must have a selection of subfields";

/// The errors to tell of those that validation found.
pub(super) fn told(errors: Vec<GraphQLError>, document: &Document, schema: &Schema) -> Vec<GraphQLError> {
    let selected = selected(document);
    let is_consequence = |error: &GraphQLError| {
        let places = error.locations.iter();
        error.message.contains(NO_SELECTION)
            && places
                .map(|place| (place.line, place.column))
                .any(|place| selected.contains(&place))
    };
    let all_are = errors.iter().all(is_consequence);
    let kept = errors
        .into_iter()
        .filter(|error| all_are || !is_consequence(error));
    let mut told: Vec<GraphQLError> = kept.collect();
    for error in &mut told {
        if let Some(words) = known(&error.message, schema) {
            error.message = words;
        }
    }
    told
}

/// Where the fields stand of which something is selected.
fn selected(document: &Document) -> BTreeSet<(usize, usize)> {
    let mut todo: Vec<&Selection> = Vec::new();
    for definition in &document.definitions {
        match definition {
            Definition::OperationDefinition(operation) => todo.extend(&operation.selection_set),
            Definition::FragmentDefinition(fragment) => todo.extend(&fragment.selection_set),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    while let Some(selection) = todo.pop() {
        match selection {
            Selection::Field(field) => {
                let place = field.line_column_range(&document.sources);
                if let Some(place) = place.filter(|_| !field.selection_set.is_empty()) {
                    found.insert((place.start.line, place.start.column));
                }
                todo.extend(&field.selection_set);
            }
            Selection::InlineFragment(fragment) => todo.extend(&fragment.selection_set),
            Selection::FragmentSpread(_) => {}
        }
    }
    found
}

/// The words for what the library says in others; nothing where they are the same, or nobody knows them.
fn known(message: &str, schema: &Schema) -> Option<String> {
    /// What stands in the double quotes at the beginning of a text, and what follows.
    fn quoted(text: &str) -> Option<(&str, &str)> {
        text.strip_prefix('"')?.split_once('"')
    }
    if let Some(before) = message.strip_suffix(REQUIRED) {
        return Some(format!("{before} is required but not provided."));
    }
    if let Some(rest) = message.strip_prefix("Field ") {
        let (field, rest) = quoted(rest)?;
        if let Some(rest) = rest.strip_prefix(" must not have a selection since type ") {
            let (of, _) = quoted(rest)?;
            return Some(format!(
                "Field \"{field}\" of type \"{of}\" must not have a sub selection."
            ));
        }
        let (parent, rest) = quoted(rest.strip_prefix(" of type ")?)?;
        rest.strip_prefix(NO_SELECTION)?;
        let of = &schema.type_field(parent, field).ok()?.ty;
        return Some(format!(
            "Field \"{field}\" of type \"{of}\" must have a sub selection."
        ));
    }
    if let Some(rest) = message.strip_prefix("Unknown argument ") {
        let (argument, rest) = quoted(rest)?;
        let (place, _) = quoted(rest.strip_prefix(" on field ")?)?;
        let (parent, field) = place.split_once('.')?;
        return Some(format!(
            "Unknown argument \"{argument}\" on field \"{field}\" of type \"{parent}\"."
        ));
    }
    if let Some(kind) = message.strip_prefix("The schema has no ") {
        let (kind, _) = quoted(kind)?;
        return Some(format!("Schema is not configured for {kind}s"));
    }
    if let Some(name) = message.strip_prefix("There can be only one operation ") {
        return Some(format!("There can only be one operation {name}"));
    }
    if let Some(name) = message.strip_prefix("There can be only one variable named ") {
        let name = name.replace('$', "");
        return Some(format!("There can only be one variable named {name}"));
    }
    for start in ["Unknown directive \"", "Directive \""] {
        let rest = message
            .strip_prefix(start)
            .and_then(|rest| rest.strip_prefix('@'));
        if let Some(rest) = rest {
            return Some(format!("{start}{rest}"));
        }
    }
    None
}

/// How the library ends what it says of something that is missing.
const REQUIRED: &str = " is required, but it was not provided.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_in_known_words() {
        let schema = "type Query { foos(limit: Int): [Foo] total: Int } type Foo { name: String }";
        let schema = Schema::parse_and_validate(schema, "schema").unwrap();
        let check = |query: &str, expected: &[&str]| {
            let document = Document::parse(query, "query").unwrap();
            let broken = document.to_executable_validate(&schema).unwrap_err();
            let errors = broken
                .errors
                .iter()
                .map(|error| error.unstable_to_json_compat())
                .collect();
            let told = told(errors, &document, &schema);
            let told: Vec<&str> = told.iter().map(|error| error.message.as_str()).collect();
            assert_eq!(told, expected, "{query}");
        };
        check("{ nope }", &["Cannot query field \"nope\" on type \"Query\"."]);
        check(
            "{ foos }",
            &["Field \"foos\" of type \"[Foo]\" must have a sub selection."],
        );
        check(
            "{ __schema }",
            &["Field \"__schema\" of type \"__Schema!\" must have a sub selection."],
        );
        check(
            "{ foos { nope } }",
            &["Cannot query field \"nope\" on type \"Foo\"."],
        );
        check("{ foos { ... on Nope { name } } }", &["Unknown type \"Nope\"."]);
        check(
            "{ total { x } }",
            &["Field \"total\" of type \"Int\" must not have a sub selection."],
        );
        check(
            "{ foos(limt: 1) { name } }",
            &["Unknown argument \"limt\" on field \"foos\" of type \"Query\"."],
        );
        check("{ total @nope }", &["Unknown directive \"nope\"."]);
        check(
            "{ total @skip }",
            &["Directive \"@skip\" argument \"if\" of type \"Boolean!\" is required but not provided."],
        );
        check(
            "query @skip(if: true) { total }",
            &["Directive \"skip\" may not be used on QUERY."],
        );
        check(
            "{ __type { name } }",
            &["Field \"__type\" argument \"name\" of type \"String!\" is required but not provided."],
        );
        check("mutation { x }", &["Schema is not configured for mutations"]);
        check(
            "query A { total } query A { total }",
            &["There can only be one operation named \"A\"."],
        );
        check(
            "query ($a: Int, $a: Int) { foos(limit: $a) { name } }",
            &["There can only be one variable named \"a\"."],
        );
    }
}
