//! The texts of the faults of a configuration.
//!
//! The texts and their order are those of the reference implementation.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::Value;

use super::{ConfigError, OWN_NAMESPACE_FORMAT, SINGLE_NAMESPACE_FORMAT};

/// A fault, with its position in the list.
struct SchemaFault {
    order: Vec<(u8, String)>,
    /// The violated schema and the invalid value.
    place: (String, String),
    stops: bool,
    messages: Vec<String>,
}

/// All faults of `config` by `schema`.
pub(super) fn find(
    schema: &Value,
    config: &Value,
    install_namespace: &str,
) -> Result<Vec<String>, ConfigError> {
    let validator =
        compile(schema, install_namespace).map_err(|error| ConfigError::BadSchema(error.to_string()))?;
    let context = Context {
        schema,
        install_namespace,
    };
    Ok(context.messages(validator.iter_errors(config).collect::<Vec<_>>().iter()))
}

fn compile(schema: &Value, install_namespace: &str) -> Result<Validator, ValidationError<'static>> {
    let (own, other) = (install_namespace.to_owned(), install_namespace.to_owned());
    jsonschema::options()
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        // Without an install namespace these formats are not checked.
        .with_format(OWN_NAMESPACE_FORMAT, move |namespace: &str| {
            own.is_empty() || namespace == own
        })
        .with_format(SINGLE_NAMESPACE_FORMAT, move |namespace: &str| namespace != other)
        .build(schema)
}

struct Context<'a> {
    schema: &'a Value,
    install_namespace: &'a str,
}

impl Context<'_> {
    fn messages<'e>(&self, errors: impl Iterator<Item = &'e ValidationError<'e>>) -> Vec<String> {
        let mut faults: Vec<SchemaFault> = errors.map(|error| self.fault(error)).collect();
        faults.sort_by(|left, right| left.order.cmp(&right.order));
        // A value of the wrong type or format has no further faults. Of unknown or missing fields only one is reported.
        let mut messages = Vec::new();
        let mut stopped: Vec<(String, String)> = Vec::new();
        for fault in faults {
            if stopped.contains(&fault.place) {
                continue;
            }
            if fault.stops {
                stopped.push(fault.place);
            }
            messages.extend(fault.messages);
        }
        messages
    }

    fn fault(&self, error: &ValidationError<'_>) -> SchemaFault {
        let instance = error.instance_path().as_str();
        let schema = error.schema_path().as_str();
        let keyword = error.kind().keyword();
        let parent = schema.rsplit_once('/').map_or("", |(parent, _)| parent);
        let rank = rank(keyword);
        let mut order: Vec<(u8, String)> = instance
            .split('/')
            .skip(1)
            .map(|segment| (1, segment.to_owned()))
            .collect();
        // Faults of an object itself come before or after those of its fields.
        order.push((if rank < LATE { 0 } else { 2 }, format!("{rank:02}")));
        // Several required fields share a schema. The first one is reported.
        let place = if keyword == "required" { schema } else { parent };
        SchemaFault {
            order,
            place: (place.to_owned(), instance.to_owned()),
            stops: rank < CONTINUES || keyword == "required",
            messages: self.describe(error, &instance.trim_start_matches('/').replace('/', "."), parent),
        }
    }

    fn describe(&self, error: &ValidationError<'_>, path: &str, parent: &str) -> Vec<String> {
        let value = error.instance();
        let one = |text: String| vec![text];
        match error.kind() {
            ValidationErrorKind::Required { property } => one(format!(
                "required field \"{}\" is missing",
                property.as_str().unwrap_or_default()
            )),
            ValidationErrorKind::Type { .. } if value.is_null() && self.is_required(path, parent) => {
                one(format!(
                    "required field \"{}\" is missing",
                    path.rsplit('.').next().unwrap_or(path)
                ))
            }
            ValidationErrorKind::Type { kind } => {
                let (got, want) = (type_name(value), wanted(kind));
                if path.is_empty() {
                    one(format!("invalid type: got {got}, want {want}"))
                } else {
                    one(format!(
                        "invalid type for field \"{path}\": got {got}, want {want}"
                    ))
                }
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let mut unexpected: Vec<&String> = unexpected.iter().collect();
                unexpected.sort();
                let first = unexpected.first().map_or("", |name| name.as_str());
                one(format!("unknown field \"{first}\""))
            }
            ValidationErrorKind::Format { format } => {
                let shown = shown(value);
                let reason = self.format_reason(format, value);
                one(format!(
                    "invalid format for field \"{path}\": {shown} is not valid {format}: {reason}"
                ))
            }
            ValidationErrorKind::AnyOf { context } => {
                let mut messages = one(format!("invalid value for field \"{path}\""));
                messages.extend(context.iter().flat_map(|branch| self.messages(branch.iter())));
                messages
            }
            ValidationErrorKind::OneOfNotValid { context } => {
                let mut messages = one("oneOf failed, none matched".to_owned());
                messages.extend(context.iter().flat_map(|branch| self.messages(branch.iter())));
                messages
            }
            ValidationErrorKind::MaxLength { limit } => one(format!(
                "field \"{path}\" must have maximum length of {limit} (len={})",
                value.as_str().map_or(0, |text| text.chars().count())
            )),
            ValidationErrorKind::MinLength { limit } => one(format!(
                "field \"{path}\" must have minimum length of {limit} (len={})",
                value.as_str().map_or(0, |text| text.chars().count())
            )),
            ValidationErrorKind::Pattern { pattern } => {
                one(format!("field \"{path}\" must match pattern \"{pattern}\""))
            }
            _ => one(other(error)),
        }
    }

    /// Whether the field at `path`, whose schema is at `parent`, is required.
    fn is_required(&self, path: &str, parent: &str) -> bool {
        let Some((owner, name)) = parent.rsplit_once("/properties/") else {
            return false;
        };
        let required = self
            .schema
            .pointer(owner)
            .and_then(|owner| owner.get("required"))
            .and_then(Value::as_array);
        !path.is_empty() && required.is_some_and(|required| required.iter().any(|field| field == name))
    }

    fn format_reason(&self, format: &str, value: &Value) -> String {
        let (namespace, value) = (self.install_namespace, value.as_str().unwrap_or_default());
        match format {
            OWN_NAMESPACE_FORMAT => format!(
                "invalid value \"{value}\": must be \"{namespace}\" (the namespace where the operator is installed) \
                 because this operator only supports OwnNamespace install mode"
            ),
            SINGLE_NAMESPACE_FORMAT => format!(
                "invalid value \"{value}\": must be different from \"{namespace}\" (the install namespace) because \
                 this operator uses SingleNamespace install mode to watch a different namespace"
            ),
            _ => format!("invalid value \"{value}\""),
        }
    }
}

/// Keywords below this rank end the checks of a value.
const CONTINUES: u8 = 4;
/// Keywords from this rank on are checked after the fields of an object.
const LATE: u8 = 30;

fn rank(keyword: &str) -> u8 {
    const ORDER: [&str; 10] = [
        "type",
        "const",
        "enum",
        "format",
        "minProperties",
        "maxProperties",
        "required",
        "minItems",
        "maxItems",
        "uniqueItems",
    ];
    const TEXT_AND_NUMBERS: [&str; 8] = [
        "minLength",
        "maxLength",
        "pattern",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ];
    const LATE_ORDER: [&str; 5] = [
        "additionalProperties",
        "propertyNames",
        "contains",
        "not",
        "anyOf",
    ];
    let position = |list: &[&str], base: u8| {
        list.iter()
            .position(|entry| *entry == keyword)
            .and_then(|at| Some(base + u8::try_from(at).ok()?))
    };
    position(&ORDER, 0)
        .or_else(|| position(&TEXT_AND_NUMBERS, 15))
        .or_else(|| position(&LATE_ORDER, LATE))
        .unwrap_or(LATE + 10)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wanted(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(single) => single.as_str().to_owned(),
        TypeKind::Multiple(several) => several
            .iter()
            .map(JsonType::as_str)
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

/// Text in single quotes, other scalars as they are.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let quoted = format!("{text:?}").replace("\\\"", "\"").replace('\'', "\\'");
            let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
            format!("'{inner}'")
        }
        Value::Array(_) | Value::Object(_) => "value".to_owned(),
        scalar => scalar.to_string(),
    }
}

/// Keywords that our own schemas do not use.
fn other(error: &ValidationError<'_>) -> String {
    let value = error.instance();
    let keyword = error.kind().keyword().to_owned();
    let counted = |limit: &u64| {
        let size = match &**value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        };
        format!("{keyword}: got {size}, want {limit}")
    };
    match error.kind() {
        ValidationErrorKind::Minimum { limit }
        | ValidationErrorKind::Maximum { limit }
        | ValidationErrorKind::ExclusiveMinimum { limit }
        | ValidationErrorKind::ExclusiveMaximum { limit } => format!("{keyword}: got {value}, want {limit}"),
        ValidationErrorKind::MultipleOf { multiple_of } => {
            format!("{keyword}: got {value}, want {multiple_of}")
        }
        ValidationErrorKind::MinItems { limit }
        | ValidationErrorKind::MaxItems { limit }
        | ValidationErrorKind::MinProperties { limit }
        | ValidationErrorKind::MaxProperties { limit } => counted(limit),
        ValidationErrorKind::Enum { options } => {
            let options: Vec<String> = options.as_array().into_iter().flatten().map(shown).collect();
            match options.as_slice() {
                [only] => format!("value must be {only}"),
                several => format!("value must be one of {}", several.join(", ")),
            }
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("value must be {}", shown(expected_value))
        }
        ValidationErrorKind::FalseSchema => "false schema".to_owned(),
        ValidationErrorKind::Not { .. } => "not failed".to_owned(),
        ValidationErrorKind::Contains => "no items match contains schema".to_owned(),
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            "oneOf failed, several subschemas matched".to_owned()
        }
        _ => error.to_string(),
    }
}
