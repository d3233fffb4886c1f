//! The reference of the API for people, generated from the same schemas.

use std::fmt::Write as _;

use crate::object;
use serde_json::Value;

use super::definitions;

/// The longest rule that is shown; longer ones appear as their message only.
const SHOWN: usize = 80;

/// The longest line of a page, in characters.
const WIDTH: usize = 120;

/// Text in lines of at most [`WIDTH`], broken between words.
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            lines.push('\n');
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}

/// A page in Markdown with every field of every kind: path, type, constraints and description.
pub fn reference() -> String {
    let mut out = String::from(
        "# API reference\n\nGenerated from the schemas by `make crds`. Fields in **bold** are required where their parent is given.\n",
    );
    for definition in definitions() {
        let text = |pointer: &str| object::text(&definition, pointer);
        let schema = definition
            .pointer("/spec/versions/0/schema/openAPIV3Schema")
            .unwrap_or(&Value::Null);
        let _ = write!(
            out,
            "\n## {}\n\n{}\n\n`{}/v1`, cluster-scoped, `kubectl get {}`.\n\n| field | type | must be | meaning |\n|---|---|---|---|\n",
            text("/spec/names/kind"),
            wrapped(object::text(schema, "/description")),
            text("/spec/group"),
            text("/spec/names/plural"),
        );
        for part in ["spec", "status"] {
            let member = schema
                .pointer(&format!("/properties/{part}"))
                .unwrap_or(&Value::Null);
            fields(&mut out, part, member);
        }
    }
    out
}

/// A line for each field below `schema`. The depth is that of a schema written in this crate.
fn fields(out: &mut String, path: &str, schema: &Value) {
    let required = |name: &str| {
        schema
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|given| given == name))
    };
    for (name, member) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = format!("{path}.{name}");
        let shown = if required(name) {
            format!("**`{path}`**")
        } else {
            format!("`{path}`")
        };
        let description = member
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "| {shown} | {} | {} | {} |",
            kind(member),
            cell(&constraints(member)),
            cell(&description.replace("\n\n", " "))
        );
        fields(out, &path, member);
        if let Some(items) = member.get("items") {
            fields(out, &format!("{path}[]"), items);
        }
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('\n', " ")
}

fn kind(schema: &Value) -> String {
    let name = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    match (
        name,
        schema
            .get("items")
            .and_then(|items| items.get("type"))
            .and_then(Value::as_str),
    ) {
        ("array", Some(of)) => format!("list of {of}"),
        ("object", _) if schema.get("additionalProperties").is_some() => "map of string".to_owned(),
        _ => name.to_owned(),
    }
}

fn constraints(schema: &Value) -> String {
    let mut all = Vec::new();
    let values = |list: &Value| {
        list.as_array()
            .into_iter()
            .flatten()
            .map(|v| format!("`{}`", v.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    if let Some(list) = schema.get("enum") {
        all.push(format!("one of {}", values(list).join(", ")));
    }
    for (keyword, words) in [
        ("default", "default"),
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters, at least"),
        ("maxLength", "characters, at most"),
        ("minItems", "items, at least"),
        ("maxItems", "items, at most"),
        ("minProperties", "members, at least"),
    ] {
        if let Some(value) = schema.get(keyword) {
            all.push(format!("{words} {value}"));
        }
    }
    if let Some(pattern) = schema
        .get("pattern")
        .and_then(Value::as_str)
        .filter(|pattern| pattern.len() <= SHOWN)
    {
        all.push(format!("matches `{pattern}`"));
    }
    for item in schema.get("items").into_iter().flat_map(rules) {
        all.push(format!("each: {item}"));
    }
    all.extend(rules(schema));
    all.join("; ")
}

/// The messages of the rules.
fn rules(schema: &Value) -> Vec<String> {
    let rules = schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    rules
        .filter_map(|rule| Some(rule.get("message")?.as_str()?.to_owned()))
        .collect()
}
