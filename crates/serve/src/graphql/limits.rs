//! Limits of a query: those of the reference implementation, counted in its way.

use std::collections::{BTreeMap, BTreeSet};

use apollo_compiler::ast::{Definition, Document, Selection};

/// Levels of selection sets; a fragment is a level.
const DEPTH: usize = 10;
/// Fields with an alias.
const ALIASES: usize = 50;
/// Fields; those of a fragment count once.
const FIELDS: usize = 500;

/// Checks a query; the error names the exceeded limit.
pub(super) fn check(document: &Document) -> Result<(), String> {
    let mut walk = Walk::default();
    for definition in &document.definitions {
        if let Definition::FragmentDefinition(fragment) = definition {
            walk.fragments.insert(&fragment.name, &fragment.selection_set);
        }
    }
    for definition in &document.definitions {
        if let Definition::OperationDefinition(operation) = definition {
            walk.selections(&operation.selection_set, 1)?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Walk<'a> {
    fragments: BTreeMap<&'a str, &'a [Selection]>,
    seen: BTreeSet<&'a str>,
    aliases: usize,
    fields: usize,
}

impl<'a> Walk<'a> {
    /// Recurses no deeper than the limit.
    fn selections(&mut self, selections: &'a [Selection], depth: usize) -> Result<(), String> {
        if selections.is_empty() {
            return Ok(());
        }
        if depth > DEPTH {
            return Err(format!("query exceeds maximum depth of {DEPTH}"));
        }
        for selection in selections {
            match selection {
                Selection::Field(field) => {
                    self.fields += 1;
                    if self.fields > FIELDS {
                        return Err(format!("query exceeds maximum field count of {FIELDS}"));
                    }
                    self.aliases += usize::from(field.alias.is_some());
                    if self.aliases > ALIASES {
                        return Err(format!("query exceeds maximum alias count of {ALIASES}"));
                    }
                    self.selections(&field.selection_set, depth + 1)?;
                }
                Selection::InlineFragment(fragment) => self.selections(&fragment.selection_set, depth + 1)?,
                Selection::FragmentSpread(spread) => {
                    if self.seen.insert(&spread.fragment_name) {
                        let fragment = self.fragments.get(spread.fragment_name.as_str()).copied();
                        self.selections(fragment.unwrap_or_default(), depth + 1)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_aliases_and_fields_are_limited() {
        let check = |query: &str, expected: Result<(), &str>| {
            let document = Document::parse(query, "q").unwrap();
            assert_eq!(check(&document), expected.map_err(ToOwned::to_owned), "{query}");
        };
        let nested = |levels: usize| "{a".repeat(levels) + &"}".repeat(levels);
        check(&nested(10), Ok(()));
        check(&nested(11), Err("query exceeds maximum depth of 10"));
        check(&format!("{{ ...F }} fragment F on Q {}", nested(9)), Ok(()));
        check(
            &format!("{{ ...F }} fragment F on Q {}", nested(10)),
            Err("query exceeds maximum depth of 10"),
        );
        let many = |field: &str, count: usize| format!("{{ {} }}", vec![field; count].join(" "));
        check(&many("a: b", 50), Ok(()));
        check(&many("a: b", 51), Err("query exceeds maximum alias count of 50"));
        check(&many("b", 500), Ok(()));
        check(&many("b", 501), Err("query exceeds maximum field count of 500"));
        check("{ ...F } fragment F on Q { ...F }", Ok(()));
        check(
            &format!("{{ ...F ...F }} fragment F on Q {}", many("b", 400)),
            Ok(()),
        );
    }
}
