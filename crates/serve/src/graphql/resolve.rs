//! Resolves the fields of a query, blob by blob.

use std::cell::Cell;
use std::time::Instant;

use apollo_compiler::resolvers::{FieldError, ObjectValue, ResolveInfo, ResolvedValue};
use apollo_compiler::response::{JsonMap, JsonValue};
use olm_fbc::index::{Filter, Indexed};
use serde_json::{Map, Value};

use super::{LIGHT_BYTES, MAX_BYTES, QueryPermit};
use crate::graphql_schema::{Field, Fields, Graph, Kind, PAGE, Root, Scalar, field_name};
use crate::store::Snapshot;

/// The memory of a value of an answer without its text, in bytes.
const VALUE_BYTES: usize = 64;

/// The bytes and time of one query.
pub(super) struct Budget<'q> {
    /// Bytes left to read and answer.
    pub(super) bytes: Cell<u64>,
    /// The deadline.
    pub(super) end: Instant,
    /// The turn that a large query waits for.
    pub(super) turn: &'q QueryPermit,
}

impl Budget<'_> {
    fn spend(&self, bytes: usize) -> Result<(), FieldError> {
        let left = self.bytes.get().checked_sub(bytes as u64);
        self.bytes.set(left.unwrap_or(0));
        let is_light = left.is_none_or(|left| MAX_BYTES - left <= LIGHT_BYTES);
        let message = if !is_light && !self.turn.take(self.end) {
            "too many large queries at once; try again, or ask for fewer objects or fields"
        } else if left.is_none() {
            "the answer is too large; ask for fewer objects or fields"
        } else if Instant::now() > self.end {
            "the query takes too long; ask for fewer objects or fields"
        } else {
            return Ok(());
        };
        Err(FieldError {
            message: message.to_owned(),
        })
    }

    /// The items until the budget is spent; then one error.
    fn within<'a>(
        &'a self,
        items: impl Iterator<Item = Result<ResolvedValue<'a>, FieldError>> + 'a,
    ) -> ResolvedValue<'a> {
        let mut over = false;
        ResolvedValue::List(Box::new(items.map_while(move |item| {
            if over {
                return None;
            }
            let item = self.spend(VALUE_BYTES).and(item);
            over = item.is_err();
            Some(item)
        })))
    }
}

/// The root object.
pub(super) struct Query<'a> {
    pub(super) graph: &'a Graph,
    pub(super) snapshot: &'a Snapshot,
    pub(super) budget: &'a Budget<'a>,
}

impl ObjectValue for Query<'_> {
    fn type_name(&self) -> &'static str {
        "Query"
    }

    fn resolve_field<'a>(&'a self, info: &'a ResolveInfo<'a>) -> Result<ResolvedValue<'a>, FieldError> {
        if info.field_name() == "summary" {
            return Ok(ResolvedValue::object(Summary {
                graph: self.graph,
                snapshot: self.snapshot,
            }));
        }
        match self.graph.roots.get(info.field_name()) {
            Some(root) => Ok(self.list(root, info.arguments())),
            None => Err(self.unknown_field_error(info)),
        }
    }
}

impl<'a> Query<'a> {
    /// The blobs of a schema.
    fn list<'b>(&'b self, root: &'b Root, arguments: &'b JsonMap) -> ResolvedValue<'b> {
        let number = |name: &str| arguments.get(name).and_then(JsonValue::as_i64).unwrap_or(0);
        let limit = match number("limit") {
            limit @ 1..=100 => usize::try_from(limit).unwrap_or(1),
            _ => PAGE as usize,
        };
        let offset = usize::try_from(number("offset")).unwrap_or(0);
        let wanted = arguments.get("filter").and_then(JsonValue::as_object);
        let text = |field: &str| {
            let value = wanted.and_then(|w| w.get(field)).and_then(JsonValue::as_str);
            // A blob may spell these keys otherwise; the index knows them as the catalog's format does.
            value.filter(|_| root.fields.get(field).is_some_and(|f| f.key == field))
        };
        let selection = Filter {
            schema: &root.schema,
            package: text("package").unwrap_or_default(),
            name: text("name").unwrap_or_default(),
        };
        let fits_index = move |blob: &Indexed<'_>| {
            blob.schema == selection.schema
                && (selection.package.is_empty() || blob.package == selection.package)
                && (selection.name.is_empty() || blob.name == selection.name)
        };
        let by_index_alone = wanted.is_none_or(|wanted| {
            wanted.iter().all(|(field, value)| {
                // A variable that is not given arrives as null.
                value.is_null()
                    || matches!(field.as_str(), "name" | "package")
                        && text(field.as_str()).is_some_and(|t| !t.is_empty())
            })
        });
        let blobs = self.snapshot.index().iter().filter(fits_index);
        if by_index_alone {
            let blobs = blobs.skip(offset).take(limit);
            let items = blobs.map(move |blob| self.blob(root, &blob).map(ResolvedValue::object));
            return self.budget.within(items);
        }
        let fits = move |object: &Object<'_>| {
            wanted.is_none_or(|wanted| {
                wanted.iter().all(|(field, value)| {
                    let fields = root.fields.get_key_value(field.as_str());
                    value.is_null()
                        || fields.is_some_and(|(name, field)| equal(&object.leaf(name, field), value))
                })
            })
        };
        let found = blobs.filter_map(move |blob| match self.blob(root, &blob) {
            Ok(object) => fits(&object).then_some(Ok(object)),
            Err(error) => Some(Err(error)),
        });
        // An error ends the list, so the offset must not skip it.
        let mut left_out = 0;
        let found = found.filter(move |item| {
            let skip = item.is_ok() && left_out < offset;
            left_out += usize::from(skip);
            !skip
        });
        self.budget
            .within(found.take(limit).map(|item| item.map(ResolvedValue::object)))
    }

    fn blob<'b>(&'b self, root: &'b Root, blob: &Indexed<'_>) -> Result<Object<'b>, FieldError>
    where
        'a: 'b,
    {
        let length = usize::try_from(blob.range.end - blob.range.start).unwrap_or(usize::MAX);
        self.budget.spend(length)?;
        let read = self.snapshot.read(blob.range.clone());
        let values = read.and_then(|line| Ok(serde_json::from_slice(&line)?));
        Ok(Object {
            of_type: &root.of_type,
            fields: &root.fields,
            values: Values::Own(values.map_err(|error| FieldError {
                message: format!("cannot read the object: {error}"),
            })?),
            budget: self.budget,
        })
    }
}

enum Values<'a> {
    Own(Map<String, Value>),
    Borrowed(&'a Map<String, Value>),
}

/// A blob, or an object in a list of it.
struct Object<'a> {
    of_type: &'a str,
    fields: &'a Fields,
    values: Values<'a>,
    budget: &'a Budget<'a>,
}

impl Object<'_> {
    fn value(&self, name: &str, field: &Field) -> &Value {
        let values = match &self.values {
            Values::Own(values) => values,
            Values::Borrowed(values) => values,
        };
        let other_spelling = || {
            values
                .iter()
                .find(|(key, _)| field_name(key) == name)
                .map(|(_, v)| v)
        };
        values
            .get(&field.key)
            .or_else(other_spelling)
            .unwrap_or(&Value::Null)
    }

    /// The value of a field that is not a list of objects.
    fn leaf(&self, name: &str, field: &Field) -> JsonValue {
        let value = self.value(name, field);
        match &field.kind {
            Kind::One(scalar) => coerce(value, *scalar),
            Kind::Null => coerce(value, Scalar::String),
            Kind::Many(_) | Kind::Empty | Kind::Objects(_) => {
                let scalar = match &field.kind {
                    Kind::Many(scalar) => *scalar,
                    _ => Scalar::String,
                };
                match value {
                    Value::Array(elements) => {
                        JsonValue::Array(elements.iter().map(|element| coerce(element, scalar)).collect())
                    }
                    _ => JsonValue::Null,
                }
            }
        }
    }
}

impl ObjectValue for Object<'_> {
    fn type_name(&self) -> &str {
        self.of_type
    }

    fn resolve_field<'a>(&'a self, info: &'a ResolveInfo<'a>) -> Result<ResolvedValue<'a>, FieldError> {
        let Some((name, field)) = self.fields.get_key_value(info.field_name()) else {
            return Ok(ResolvedValue::null());
        };
        let value = self.value(name, field);
        match (&field.kind, value) {
            (Kind::Objects(nested), Value::Array(elements)) if !nested.is_empty() => {
                let of_type = info.field_definition().ty.inner_named_type();
                let items = elements.iter().map(move |element| {
                    Ok(ResolvedValue::nullable_object(element.as_object().map(
                        |values| Object {
                            of_type,
                            fields: nested,
                            values: Values::Borrowed(values),
                            budget: self.budget,
                        },
                    )))
                });
                Ok(self.budget.within(items))
            }
            _ => match self.leaf(name, field) {
                JsonValue::Array(elements) => Ok(self
                    .budget
                    .within(elements.into_iter().map(|element| self.charged(element)))),
                leaf => self.charged(leaf),
            },
        }
    }
}

impl Object<'_> {
    fn charged<'a>(&self, leaf: JsonValue) -> Result<ResolvedValue<'a>, FieldError> {
        self.budget
            .spend(VALUE_BYTES + leaf.as_str().map_or(0, written))?;
        Ok(ResolvedValue::Leaf(leaf))
    }
}

/// The length of a text in JSON.
fn written(text: &str) -> usize {
    let escapes = |byte: u8| match byte {
        b'"' | b'\\' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(escapes).sum::<usize>()
}

/// The value converted to the type of its field; null if that is impossible.
fn coerce(value: &Value, scalar: Scalar) -> JsonValue {
    match (scalar, value) {
        (_, Value::Null) => JsonValue::Null,
        (Scalar::String, Value::String(text)) => text.as_str().into(),
        (Scalar::String, other) => other.to_string().into(),
        (Scalar::Boolean, Value::Bool(value)) => (*value).into(),
        (Scalar::Int, Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| {
                let float = number.as_f64().filter(|f| f.abs() < 2_147_483_648.0)?;
                format!("{:.0}", float.trunc()).parse().ok()
            });
            whole
                .and_then(|whole| i32::try_from(whole).ok())
                .map_or(JsonValue::Null, Into::into)
        }
        (Scalar::Float, Value::Number(number)) => number.as_f64().map_or(JsonValue::Null, Into::into),
        _ => JsonValue::Null,
    }
}

/// Equality in which 1 equals 1.0.
fn equal(left: &JsonValue, right: &JsonValue) -> bool {
    left == right || left.as_f64().is_some_and(|left| right.as_f64() == Some(left))
}

/// The field `summary`.
struct Summary<'a> {
    graph: &'a Graph,
    snapshot: &'a Snapshot,
}

impl ObjectValue for Summary<'_> {
    fn type_name(&self) -> &'static str {
        "CatalogSummary"
    }

    fn resolve_field<'a>(&'a self, info: &'a ResolveInfo<'a>) -> Result<ResolvedValue<'a>, FieldError> {
        match info.field_name() {
            "totalSchemas" => Ok(ResolvedValue::leaf(self.graph.roots.len())),
            "schemas" => Ok(ResolvedValue::list(self.graph.roots.values().map(|root| {
                ResolvedValue::object(SchemaSummary {
                    root,
                    objects: self
                        .snapshot
                        .record()
                        .schemas
                        .get(&root.schema)
                        .copied()
                        .unwrap_or(0),
                })
            }))),
            _ => Err(self.unknown_field_error(info)),
        }
    }
}

struct SchemaSummary<'a> {
    root: &'a Root,
    objects: u64,
}

impl ObjectValue for SchemaSummary<'_> {
    fn type_name(&self) -> &'static str {
        "SchemaSummary"
    }

    fn resolve_field<'a>(&'a self, info: &'a ResolveInfo<'a>) -> Result<ResolvedValue<'a>, FieldError> {
        match info.field_name() {
            "name" => Ok(ResolvedValue::leaf(self.root.schema.as_str())),
            "totalObjects" => Ok(ResolvedValue::leaf(self.objects)),
            "totalFields" => Ok(ResolvedValue::leaf(self.root.fields.len())),
            _ => Err(self.unknown_field_error(info)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_counts_as_long_as_it_is_in_json() {
        for text in ["", "plain", "\u{1}\"\\\n", "ä\u{200b}"] {
            let json = serde_json::to_string(text).unwrap();
            assert!(written(text) + 2 >= json.len(), "{json}");
        }
    }
}
