//! Builders for the schemas of all definitions.

use serde_json::{Map, Value, json};

/// A node of an OpenAPI v3 schema.
#[must_use = "a schema says something only as a part of a definition"]
#[derive(Debug, Clone)]
pub struct Schema(Map<String, Value>);

fn described(description: &str) -> Schema {
    let mut map = Map::new();
    if !description.is_empty() {
        map.insert("description".to_owned(), json!(description));
    }
    Schema(map)
}

fn node(kind: &str, description: &str) -> Schema {
    described(description).extension("type", json!(kind))
}

/// An object; its members follow by [`Schema::property`] and [`Schema::required`].
pub fn object(description: &str) -> Schema {
    node("object", description)
}

/// A text.
pub fn string(description: &str) -> Schema {
    node("string", description)
}

/// A number without a fraction; `format` is `int32`, `int64` or empty.
pub fn integer(description: &str, format: &str) -> Schema {
    let schema = node("integer", description);
    if format.is_empty() {
        schema
    } else {
        schema.format(format)
    }
}

/// A list.
pub fn array(description: &str, items: Schema) -> Schema {
    node("array", description).extension("items", items.into_value())
}

/// Yes or no.
pub fn boolean(description: &str) -> Schema {
    node("boolean", description)
}

/// A number without a fraction, or a text.
pub fn int_or_string(description: &str) -> Schema {
    described(description)
        .extension("anyOf", json!([{"type": "integer"}, {"type": "string"}]))
        .extension("x-kubernetes-int-or-string", json!(true))
}

/// A text that is one of a few.
pub fn choice(description: &str, values: &[&str]) -> Schema {
    string(description).extension("enum", json!(values))
}

impl Schema {
    /// An object without further rules.
    pub fn bare_object() -> Self {
        object("")
    }

    /// A map from text to text.
    pub fn string_map(description: &str) -> Self {
        object(description).extension("additionalProperties", json!({"type": "string"}))
    }

    /// The schema as JSON.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// A keyword of the schema language.
    pub fn extension(mut self, keyword: &str, value: Value) -> Self {
        self.0.insert(keyword.to_owned(), value);
        self
    }

    /// A member that may be absent.
    pub fn property(mut self, name: &str, schema: Self) -> Self {
        if let Value::Object(properties) = self.0.entry("properties").or_insert_with(|| json!({})) {
            properties.insert(name.to_owned(), schema.into_value());
        }
        self
    }

    /// A member that must be present.
    pub fn required(mut self, name: &str, schema: Self) -> Self {
        if let Value::Array(required) = self.0.entry("required").or_insert_with(|| json!([])) {
            required.push(json!(name));
        }
        self.property(name, schema)
    }

    /// Members of the same schema that may be absent.
    pub fn properties(self, names: &[&str], schema: &Self) -> Self {
        let add = |object: Self, name: &&str| object.property(name, schema.clone());
        names.iter().fold(self, add)
    }

    /// Members of the same schema that must be present.
    pub fn all_required(self, names: &[&str], schema: &Self) -> Self {
        let add = |object: Self, name: &&str| object.required(name, schema.clone());
        names.iter().fold(self, add)
    }

    /// A member that must be present elsewhere may be absent here.
    pub fn optional(mut self, name: &str) -> Self {
        if let Some(Value::Array(required)) = self.0.get_mut("required") {
            required.retain(|given| given != name);
        }
        self
    }

    /// A CEL rule and its message.
    pub fn rule(mut self, rule: &str, message: &str) -> Self {
        if let Value::Array(rules) = self
            .0
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]))
        {
            rules.push(json!({"message": message, "rule": rule}));
        }
        self
    }

    /// The member `member` is present exactly when `discriminator` has the value `value`.
    pub fn union_member(self, discriminator: &str, value: &str, member: &str, message: &str) -> Self {
        self.rule(
            &format!(
                "has(self.{discriminator}) && self.{discriminator} == '{value}' ? has(self.{member}) : !has(self.{member})"
            ),
            message,
        )
    }

    /// A regular expression that the text must match, as a rule with a message of its own.
    pub fn matches(self, pattern: &str, message: &str) -> Self {
        self.rule(&format!("self.matches(r'{pattern}')"), message)
    }

    /// A value that never changes once it is set.
    pub fn immutable(self, message: &str) -> Self {
        self.rule("self == oldSelf", message)
    }

    /// The value that the API server fills in.
    pub fn default_value(self, value: Value) -> Self {
        self.extension("default", value)
    }

    /// A format such as `date-time`.
    pub fn format(self, format: &str) -> Self {
        self.extension("format", json!(format))
    }

    /// A regular expression in the schema language.
    pub fn pattern(self, pattern: &str) -> Self {
        self.extension("pattern", json!(pattern))
    }

    /// The largest number of characters.
    pub fn max_length(self, limit: u32) -> Self {
        self.extension("maxLength", json!(limit))
    }

    /// The smallest and largest number of characters.
    pub fn length(self, least: u32, most: u32) -> Self {
        self.extension("minLength", json!(least)).max_length(most)
    }

    /// The smallest and largest number of items.
    pub fn items(self, least: u32, most: u32) -> Self {
        self.extension("minItems", json!(least)).max_items(most)
    }

    /// The largest number of items.
    pub fn max_items(self, limit: u32) -> Self {
        self.extension("maxItems", json!(limit))
    }

    /// The smallest number.
    pub fn minimum(self, limit: i64) -> Self {
        self.extension("minimum", json!(limit))
    }

    /// The smallest and largest number.
    pub fn range(self, least: i64, most: i64) -> Self {
        self.minimum(least).extension("maximum", json!(most))
    }

    /// The merge strategy of server-side apply for the list.
    pub fn list_type(self, list_type: &str) -> Self {
        self.extension("x-kubernetes-list-type", json!(list_type))
    }

    /// A list whose items have these members as their key.
    pub fn map_list(self, keys: &[&str]) -> Self {
        self.list_type("map")
            .extension("x-kubernetes-list-map-keys", json!(keys))
    }

    /// An object that server-side apply replaces as a whole.
    pub fn atomic_map(self) -> Self {
        self.extension("x-kubernetes-map-type", json!("atomic"))
    }

    /// Members that the schema does not name are kept.
    pub fn open(self) -> Self {
        self.extension("x-kubernetes-preserve-unknown-fields", json!(true))
    }
}
