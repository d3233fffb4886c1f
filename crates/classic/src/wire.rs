//! JSON as the Go types of the API write it: fields in the order of the type, unknown ones dropped, empty optional ones
//! left out. Hashes are made of such texts.

use olm_bundle::names::go_json;
use serde_json::Value;

pub(crate) mod deployment;
pub mod hash;
pub(crate) mod quantity;

/// A label selector.
pub(crate) const SELECTOR: Shape = Shape::Struct(&[
    Field::optional("matchLabels", Shape::Plain),
    Field::optional("matchExpressions", Shape::List(&EXPRESSION)),
]);
const EXPRESSION: Shape = Shape::Struct(&[
    Field::always("key", "\"\"", Shape::Plain),
    Field::always("operator", "\"\"", Shape::Plain),
    Field::optional("values", Shape::Plain),
]);

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Text, a number, a boolean, or a map: written as it is, with the keys sorted.
    Plain,
    /// A quantity, or a map of quantities: written in their canonical form.
    Quantities,
    /// A list.
    List(&'static Self),
    /// An object with these fields.
    Struct(&'static [Field]),
}

/// A field of an object.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    name: &'static str,
    /// The text of an absent field; `None` for a field that is left out then.
    zero: Option<&'static str>,
    /// Whether it is written also when it is empty, as long as it is there.
    keeps_empty: bool,
    shape: Shape,
}

impl Field {
    /// A field that is left out when it is empty.
    pub const fn optional(name: &'static str, shape: Shape) -> Self {
        Self {
            name,
            zero: None,
            keeps_empty: false,
            shape,
        }
    }

    /// A field that is left out when it is absent, and written when it is empty: a pointer.
    pub const fn pointer(name: &'static str, shape: Shape) -> Self {
        Self {
            name,
            zero: None,
            keeps_empty: true,
            shape,
        }
    }

    /// A field that is always written.
    pub const fn always(name: &'static str, zero: &'static str, shape: Shape) -> Self {
        Self {
            name,
            zero: Some(zero),
            keeps_empty: true,
            shape,
        }
    }
}

/// The value as its type writes it.
pub fn write(value: &Value, shape: Shape) -> String {
    let mut text = String::new();
    push(&mut text, value, shape);
    text
}

/// Go's errors for JSON that ends too early: that of `json.Unmarshal` and that of a stream decoder.
pub(crate) const UNEXPECTED_END: &str = "unexpected end of JSON input";
pub(crate) const UNEXPECTED_EOF: &str = "unexpected EOF";

/// The text of a JSON error; `cut` where the JSON ends too early.
pub(crate) fn json_fault(error: &serde_json::Error, cut: &str) -> String {
    if error.is_eof() {
        cut.to_owned()
    } else {
        error.to_string()
    }
}

fn push(text: &mut String, value: &Value, shape: Shape) {
    match (shape, value) {
        (Shape::Struct(fields), Value::Object(object)) => push_struct(text, object, fields),
        (Shape::List(item), Value::Array(items)) => push_list(text, items, *item),
        (_, Value::Array(items)) => push_list(text, items, Shape::Plain),
        (shape, Value::Object(object)) => push_map(text, object, shape),
        (Shape::Quantities, plain) => {
            let given = plain.as_str().map_or_else(|| plain.to_string(), str::to_owned);
            text.push_str(&go_json(&quantity::canonical(&given).unwrap_or(given)));
        }
        (_, plain) => text.push_str(&go_json(plain)),
    }
}

fn push_struct(text: &mut String, object: &serde_json::Map<String, Value>, fields: &[Field]) {
    text.push('{');
    let start = text.len();
    for field in fields {
        let value = object.get(field.name).filter(|value| !value.is_null());
        let value = value.filter(|value| field.keeps_empty || !is_empty(value));
        if value.is_none() && field.zero.is_none() {
            continue;
        }
        if text.len() > start {
            text.push(',');
        }
        text.push_str(&go_json(&field.name));
        text.push(':');
        match value {
            Some(value) => push(text, value, field.shape),
            None => text.push_str(field.zero.unwrap_or_default()),
        }
    }
    text.push('}');
}

fn push_list(text: &mut String, items: &[Value], shape: Shape) {
    text.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        push(text, item, shape);
    }
    text.push(']');
}

/// A map. Its values are quantities where the map is one of quantities, and plain otherwise.
fn push_map(text: &mut String, object: &serde_json::Map<String, Value>, shape: Shape) {
    let shape = if matches!(shape, Shape::Quantities) {
        shape
    } else {
        Shape::Plain
    };
    let mut entries: Vec<(&String, &Value)> = object.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    text.push('{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&go_json(key));
        text.push(':');
        push(text, value, shape);
    }
    text.push('}');
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INNER: Shape = Shape::Struct(&[Field::always("on", "false", Shape::Plain)]);
    const OUTER: Shape = Shape::Struct(&[
        Field::always("z", "\"\"", Shape::Plain),
        Field::optional("a", Shape::Plain),
        Field::always("inner", "{\"on\":false}", INNER),
        Field::optional("list", Shape::List(&INNER)),
    ]);

    #[test]
    fn fields_have_the_order_of_the_type() {
        let value =
            json!({"a": {"y": 1, "x": "<"}, "list": [{"on": true, "other": 1}, {}], "z": "t", "more": 1});
        assert_eq!(
            write(&value, OUTER),
            r#"{"z":"t","a":{"x":"\u003c","y":1},"inner":{"on":false},"list":[{"on":true},{"on":false}]}"#
        );
    }

    #[test]
    fn quantities_are_canonical() {
        const SHAPE: Shape = Shape::Struct(&[Field::optional("limits", Shape::Quantities)]);
        let value = json!({"limits": {"memory": "1024Mi", "cpu": 1}});
        assert_eq!(write(&value, SHAPE), r#"{"limits":{"cpu":"1","memory":"1Gi"}}"#);
    }

    #[test]
    fn empty_optional_fields_are_left_out() {
        let value = json!({"a": "", "list": [], "inner": null});
        assert_eq!(write(&value, OUTER), r#"{"z":"","inner":{"on":false}}"#);
    }
}
