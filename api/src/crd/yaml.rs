//! Writes a definition as YAML: block style, keys in the order they were written.

use std::fmt::Write as _;

use serde_json::Value;

/// A document.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::from("---\n");
    block(&mut out, value, 0);
    out
}

/// A mapping, a sequence or a scalar at the start of a line, indented by `depth` steps. The depth is that of a
/// schema written in this crate.
fn block(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(out, "{indent}{}:", scalar(key));
                member(out, value, depth + 1);
            }
        }
        Value::Array(list) => {
            for value in list {
                if value.is_object() {
                    let mut item = String::new();
                    block(&mut item, value, depth + 1);
                    let _ = write!(out, "{indent}- {}", item.trim_start());
                } else {
                    let _ = write!(out, "{indent}-");
                    member(out, value, depth + 1);
                }
            }
        }
        other => {
            let _ = writeln!(out, "{indent}{other}");
        }
    }
}

/// The text after a key's colon or an item's dash.
fn member(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if map.is_empty() => out.push_str(" {}\n"),
        Value::Array(list) if list.is_empty() => out.push_str(" []\n"),
        Value::Object(_) | Value::Array(_) => {
            out.push('\n');
            block(out, value, depth);
        }
        Value::String(text) if text.contains('\n') => {
            out.push_str(" |-\n");
            for line in text.lines() {
                let indent = if line.is_empty() {
                    String::new()
                } else {
                    "  ".repeat(depth)
                };
                let _ = writeln!(out, "{indent}{line}");
            }
        }
        Value::String(text) => {
            let _ = writeln!(out, " {}", scalar(text));
        }
        other => {
            let _ = writeln!(out, " {other}");
        }
    }
}

/// A text, quoted unless it can only be read as a text.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if plain {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}
