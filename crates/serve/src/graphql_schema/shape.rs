//! The fields of each catalog schema and their types, inferred from every blob.
//!
//! Names and types are those of the reference implementation: the first value of a field decides its type, a list of
//! objects becomes a type of its own, and deeper values are text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most schemas, and the most fields of one type; the rest is left out.
const MAX_NAMES: usize = 500;
/// The number of elements of a list whose fields are read.
const SAMPLED_ELEMENTS: usize = 10;
/// The longest name of a schema or field that a query can use, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The cost bound of all schemas and fields of a catalog: the bytes of their names and [`OVERHEAD`] for each.
const BUDGET: usize = 1 << 20;
/// The cost of a schema or field without its names.
const OVERHEAD: usize = 64;

/// The fields of a type by their names in GraphQL.
pub(crate) type Fields = BTreeMap<String, Field>;

/// Every schema of a catalog by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Shapes {
    pub(crate) schemas: BTreeMap<String, Fields>,
    /// The used part of [`BUDGET`], counted only while blobs are added.
    #[serde(skip)]
    used: usize,
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Field {
    /// The name in the blob.
    pub(crate) key: String,
    /// The type of its values.
    pub(crate) kind: Kind,
}

/// The type of the values of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Only null values so far.
    Null,
    /// Only empty lists so far.
    Empty,
    /// A plain value.
    One(Scalar),
    /// A list of plain values.
    Many(Scalar),
    /// A list of objects.
    Objects(Fields),
}

/// The type of a plain value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scalar {
    /// Text, and any object as JSON text.
    String,
    /// True or false.
    Boolean,
    /// A whole number.
    Int,
    /// Any number.
    Float,
}

impl Scalar {
    /// The name in GraphQL.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "String",
            Self::Boolean => "Boolean",
            Self::Int => "Int",
            Self::Float => "Float",
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) => match number.as_f64() {
                Some(float) if float.fract() == 0.0 => Self::Int,
                _ => Self::Float,
            },
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => Self::String,
        }
    }
}

impl Shapes {
    /// Adds the fields of a blob, as far as the budget allows.
    pub(crate) fn add(&mut self, schema: &str, blob: &Map<String, Value>) {
        if schema.is_empty() || schema.len() > MAX_NAME_BYTES {
            return;
        }
        let mut left = BUDGET.saturating_sub(self.used);
        if !self.schemas.contains_key(schema) {
            if self.schemas.len() >= MAX_NAMES || !spend(&mut left, schema.len() + OVERHEAD) {
                return;
            }
            self.schemas.insert(schema.to_owned(), Fields::new());
        }
        let Some(fields) = self.schemas.get_mut(schema) else {
            return;
        };
        note(fields, blob, &mut left, |value| match value.as_array() {
            Some(elements) if elements.first().is_some_and(Value::is_object) => {
                let mut nested = Fields::new();
                // The fields of one blob cost when they are merged.
                let mut unlimited = usize::MAX;
                for element in elements
                    .iter()
                    .take(SAMPLED_ELEMENTS)
                    .filter_map(Value::as_object)
                {
                    note(&mut nested, element, &mut unlimited, plain);
                }
                Kind::Objects(nested)
            }
            _ => plain(value),
        });
        self.used = BUDGET.saturating_sub(left);
    }
}

/// Subtracts the cost, if enough is left.
fn spend(left: &mut usize, cost: usize) -> bool {
    let enough = cost <= *left;
    if enough {
        *left -= cost;
    }
    enough
}

/// The cost of fields.
fn cost(fields: &Fields) -> usize {
    let each = fields.iter().map(|(name, field)| {
        let nested = match &field.kind {
            // Nested objects contain only plain values, so the recursion ends here.
            Kind::Objects(nested) => cost(nested),
            _ => 0,
        };
        name.len() + field.key.len() + OVERHEAD + nested
    });
    each.sum()
}

fn plain(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Array(elements) => match elements.first() {
            None => Kind::Empty,
            Some(first) => Kind::Many(Scalar::of(first)),
        },
        other => Kind::One(Scalar::of(other)),
    }
}

fn note(fields: &mut Fields, object: &Map<String, Value>, left: &mut usize, kind: impl Fn(&Value) -> Kind) {
    for (key, value) in object.iter().filter(|(key, _)| key.len() <= MAX_NAME_BYTES) {
        let kind = kind(value);
        let key = key.clone();
        put(fields, field_name(&key), Field { key, kind }, left);
    }
}

/// Adds a field, or refines the field of that name.
fn put(fields: &mut Fields, name: String, field: Field, left: &mut usize) {
    if let Some(known) = fields.get_mut(&name) {
        known.kind.see(field.kind, left);
    } else if fields.len() < MAX_NAMES {
        let one = Fields::from([(name, field)]);
        if spend(left, cost(&one)) {
            fields.extend(one);
        }
    }
}

impl Kind {
    /// Merges a type. A value replaces null or an empty list, and objects replace plain values; otherwise the first
    /// type stays.
    fn see(&mut self, seen: Self, left: &mut usize) {
        match (&mut *self, seen) {
            (Self::Objects(fields), Self::Objects(more)) => {
                for (name, field) in more {
                    put(fields, name, field, left);
                }
            }
            (Self::Null | Self::Empty | Self::One(_) | Self::Many(_), Self::Objects(fields)) => {
                let room = spend(left, cost(&fields));
                *self = Self::Objects(if room { fields } else { Fields::new() });
            }
            (Self::Null, other) => *self = other,
            (Self::Empty, many @ Self::Many(_)) => *self = many,
            _ => {}
        }
    }
}

/// The name of a field in GraphQL: camel case of letters and digits.
pub(crate) fn field_name(key: &str) -> String {
    if key.is_empty() {
        return "value".to_owned();
    }
    let mut name = String::with_capacity(key.len());
    for part in key
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
    {
        if !name.is_empty() {
            name.push_str(&title(part));
        } else if part.bytes().any(|b| b.is_ascii_lowercase()) {
            let (first, rest) = part.split_at(1);
            name.push_str(&first.to_ascii_lowercase());
            name.push_str(rest);
        } else {
            name.push_str(&part.to_ascii_lowercase());
        }
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "field_");
    }
    name
}

/// The name of a type in GraphQL: words of letters and digits, each with a capital.
pub(crate) fn type_name(schema: &str) -> String {
    let name: String = schema
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(title)
        .collect();
    match name.chars().next() {
        None => "Unknown".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        Some(_) => name,
    }
}

/// The name of the field of the query that lists the blobs of a schema.
pub(crate) fn root_name(schema: &str) -> String {
    let letters: String = schema.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = letters.to_ascii_lowercase() + "s";
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("field_{name}")
    } else {
        name
    }
}

fn title(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_camel_case() {
        let field = |key: &str, expected: &str| assert_eq!(field_name(key), expected, "{key}");
        field("", "value");
        field("name", "name");
        field("Name", "name");
        field("URL", "url");
        field("defaultChannel", "defaultChannel");
        field("DefaultChannel", "defaultChannel");
        field("skip-range", "skipRange");
        field("a.b__c-", "aBC");
        field("__typename", "typename");
        field("1st", "field_1st");
        field("é", "field_");
        let of_type = |schema: &str, expected: &str| assert_eq!(type_name(schema), expected, "{schema}");
        of_type("olm.bundle", "OlmBundle");
        of_type("relatedImages", "Relatedimages");
        of_type("", "Unknown");
        of_type("..", "Unknown");
        of_type("1.2", "_2");
        let root = |schema: &str, expected: &str| assert_eq!(root_name(schema), expected, "{schema}");
        root("olm.bundle", "olmbundles");
        root("io.X-y", "ioxys");
        root("3scale", "field_3scales");
    }

    fn shapes(blobs: &[&str]) -> Fields {
        let mut shapes = Shapes::default();
        for blob in blobs {
            let blob: Map<String, Value> = serde_json::from_str(blob).unwrap();
            shapes.add("s", &blob);
        }
        shapes.schemas.remove("s").unwrap_or_default()
    }

    #[test]
    fn the_first_value_decides_unless_it_says_nothing() {
        let check = |blobs: &[&str], expected: Kind| {
            assert_eq!(shapes(blobs).get("a").unwrap().kind, expected, "{blobs:?}");
        };
        check(&[r#"{"a":"x"}"#, r#"{"a":1}"#], Kind::One(Scalar::String));
        check(&[r#"{"a":1.0}"#, r#"{"a":1.5}"#], Kind::One(Scalar::Int));
        check(&[r#"{"a":1.5}"#], Kind::One(Scalar::Float));
        check(&[r#"{"a":null}"#, r#"{"a":true}"#], Kind::One(Scalar::Boolean));
        check(&[r#"{"a":{"b":1}}"#], Kind::One(Scalar::String));
        check(&[r#"{"a":[[1]]}"#], Kind::Many(Scalar::String));
        check(&[r#"{"a":[]}"#], Kind::Empty);
        check(&[r#"{"a":[]}"#, r#"{"a":[1]}"#], Kind::Many(Scalar::Int));
        let Kind::Objects(nested) =
            &shapes(&[r#"{"a":[{"x":[{"deep":1}]},{"y":true}]}"#, r#"{"a":[{"z":{}}]}"#])["a"].kind
        else {
            panic!("a list of objects");
        };
        let found: Vec<(&str, &Kind)> = nested.iter().map(|(n, f)| (n.as_str(), &f.kind)).collect();
        assert_eq!(
            found,
            [
                ("x", &Kind::Many(Scalar::String)),
                ("y", &Kind::One(Scalar::Boolean)),
                ("z", &Kind::One(Scalar::String)),
            ]
        );
    }

    #[test]
    fn hostile_catalogs_cost_no_more_than_the_budget() {
        let mut shapes = Shapes::default();
        // The longest when they are written out: each letter is six in JSON.
        let filler = "\u{1}".repeat(200);
        for schema in 0..30 {
            let nested: Map<String, Value> = (0..60).map(|n| (format!("{n}{filler}"), Value::Null)).collect();
            let fields = (0..60).map(|n| (format!("{n}{filler}"), Value::from(vec![nested.clone()])));
            let too_long = ("x".repeat(MAX_NAME_BYTES + 1), Value::Null);
            shapes.add(&format!("{schema}{filler}"), &fields.chain([too_long]).collect());
        }
        shapes.add(&"x".repeat(MAX_NAME_BYTES + 1), &Map::new());
        let names = shapes.schemas.keys().map(String::len).sum::<usize>();
        let total = shapes.schemas.values().map(cost).sum::<usize>() + names;
        assert!(total > BUDGET / 2 && total <= BUDGET, "{total}");
        assert!(shapes.used <= BUDGET);
        let written = serde_json::to_vec(&shapes).unwrap();
        assert!(written.len() < 8 * BUDGET, "{}", written.len());
        let read: Shapes = serde_json::from_slice(&written).unwrap();
        assert_eq!(read.schemas, shapes.schemas);
        let longest = shapes
            .schemas
            .values()
            .flat_map(Fields::keys)
            .map(String::len)
            .max();
        assert!(longest <= Some(MAX_NAME_BYTES + "field_".len()), "{longest:?}");
    }
}
