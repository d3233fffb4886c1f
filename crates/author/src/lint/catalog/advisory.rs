//! Advisory findings: valid content that probably is a mistake, such as misspelled fields and schemas.

use olm_fbc::check::Rule;
use olm_fbc::decode::{elements, spelled};
use olm_fbc::similar::nearest;
use olm_fbc::{Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE};
use olm_version::quoted;

use crate::template::kind::Kind;

/// The schemas with a meaning in a catalog.
const SCHEMAS: [&str; 4] = [SCHEMA_PACKAGE, SCHEMA_CHANNEL, SCHEMA_BUNDLE, SCHEMA_DEPRECATIONS];

/// A known field, and the known fields within it.
struct Field(&'static str, &'static [Self]);

const PROPERTIES: Field = Field("properties", &[Field("type", &[]), Field("value", &[])]);
const PACKAGE: &[Field] = &[
    Field("schema", &[]),
    Field("name", &[]),
    Field("defaultChannel", &[]),
    Field("icon", &[Field("base64data", &[]), Field("mediatype", &[])]),
    Field("description", &[]),
    PROPERTIES,
];
const CHANNEL: &[Field] = &[
    Field("schema", &[]),
    Field("package", &[]),
    Field("name", &[]),
    Field(
        "entries",
        &[
            Field("name", &[]),
            Field("replaces", &[]),
            Field("skips", &[]),
            Field("skipRange", &[]),
        ],
    ),
    PROPERTIES,
];
const BUNDLE: &[Field] = &[
    Field("schema", &[]),
    Field("package", &[]),
    Field("name", &[]),
    Field("image", &[]),
    PROPERTIES,
    Field("relatedImages", &[Field("name", &[]), Field("image", &[])]),
];
const DEPRECATIONS: &[Field] = &[
    Field("schema", &[]),
    Field("package", &[]),
    Field("name", &[]),
    Field(
        "entries",
        &[
            Field("message", &[]),
            Field("reference", &[Field("schema", &[]), Field("name", &[])]),
        ],
    ),
];

/// The probable misspellings in a blob: the rule and the message of each finding.
pub(super) fn advisories(meta: &Meta) -> Vec<(Rule, String)> {
    let mut found = Vec::new();
    if let Some(key) = &meta.repeated {
        let message = format!("duplicate key {}: the last value counts", quoted(key));
        found.push((Rule::KeyRepeated, message));
    }
    let fields = match meta.schema.as_str() {
        SCHEMA_PACKAGE => PACKAGE,
        SCHEMA_CHANNEL => CHANNEL,
        SCHEMA_BUNDLE => BUNDLE,
        SCHEMA_DEPRECATIONS => DEPRECATIONS,
        other => {
            found.extend(schema(other).map(|message| (Rule::SchemaUnknown, message)));
            return found;
        }
    };
    let unknown = unknown_fields(meta.json(), fields).into_iter();
    found.extend(unknown.map(|message| (Rule::FieldUnknown, message)));
    found
}

/// The fault of an unknown schema that resembles a known one.
fn schema(schema: &str) -> Option<String> {
    if Kind::ALL.iter().any(|kind| kind.schema() == schema) {
        return Some(format!(
            "{} is a template, not part of a catalog; render it with `olm catalog template`",
            quoted(schema)
        ));
    }
    let meant = nearest(schema, SCHEMAS).or_else(|| nearest(&format!("olm.{schema}"), SCHEMAS));
    let advice = match meant {
        Some(meant) => format!("; did you mean {}?", quoted(meant)),
        None if schema.starts_with("olm.") => {
            ": the prefix olm. is reserved; use a prefix of your own".to_owned()
        }
        None => return None,
    };
    Some(format!("unknown schema {}{advice}", quoted(schema)))
}

/// A message for each unused field of a blob.
fn unknown_fields(json: &str, fields: &'static [Field]) -> Vec<String> {
    let mut messages = Vec::new();
    let mut todo = vec![(String::new(), json, fields)];
    // Goes no deeper than the fields above do.
    while let Some((path, object, fields)) = todo.pop() {
        let Ok(members) = spelled(object) else {
            continue;
        };
        for (key, value) in members {
            let at = if path.is_empty() {
                key.to_string()
            } else {
                format!("{path}.{key}")
            };
            let Some(Field(_, inner)) = fields.iter().find(|field| field.0.eq_ignore_ascii_case(&key)) else {
                let meant = nearest(&key, fields.iter().map(|field| field.0))
                    .map_or_else(String::new, |meant| format!("; did you mean {}?", quoted(meant)));
                messages.push(format!("unknown field {}{meant}", quoted(&at)));
                continue;
            };
            if inner.is_empty() {
                continue;
            }
            match elements(value) {
                Ok(elements) => {
                    let elements = elements.into_iter().enumerate();
                    todo.extend(elements.map(|(index, element)| (format!("{at}[{index}]"), element, *inner)));
                }
                Err(_) => todo.push((at, value, inner)),
            }
        }
    }
    messages.sort_unstable();
    messages
}
