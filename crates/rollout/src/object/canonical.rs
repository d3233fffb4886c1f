//! JSON in exactly the form of the reference implementation, so that digests are equal.
//!
//! Keys are sorted by their bytes, there is no white space, `<`, `>`, `&` and the two Unicode line separators are
//! escaped, and numbers have the form of Go.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

/// The value as canonical JSON, without a newline at the end.
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(value, &mut out);
    out
}

/// The digest of a phase as in `status.observedPhases`: `sha256:` and hexadecimal digits.
pub fn phase_digest<'a>(name: &str, objects: impl IntoIterator<Item = &'a Value>) -> String {
    let mut out = b"{\"name\":".to_vec();
    write_string(name, &mut out);
    out.extend_from_slice(b",\"objects\":[");
    for (index, object) in objects.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_value(object, &mut out);
    }
    out.extend_from_slice(b"]}");
    format!("sha256:{}", hex::encode(Sha256::digest(&out)))
}

// The parser that created a value bounds its depth.
fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => out.extend_from_slice(go_number(number).as_bytes()),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => write_object(map, out),
    }
}

fn write_object(map: &Map<String, Value>, out: &mut Vec<u8>) {
    let sorted: BTreeMap<&String, &Value> = map.iter().collect();
    out.push(b'{');
    for (index, (key, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write_value(value, out);
    }
    out.push(b'}');
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
            }
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// A number as Go's encoder writes it: integers plainly, others in the shortest form, with an exponent only below a
/// millionth and from 1e21.
fn go_number(number: &Number) -> String {
    if number.is_i64() {
        return number.to_string();
    }
    let float = number.as_f64().unwrap_or_default();
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent}"),
            _ => text,
        };
    }
    float.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        let value: Value = serde_json::from_str(input).unwrap();
        assert_eq!(String::from_utf8(to_vec(&value)).unwrap(), expected);
    }

    #[test]
    fn keys_are_sorted_and_html_is_escaped() {
        check(
            r#"{"b":1,"a":"<&>","B":[true,null]}"#,
            r#"{"B":[true,null],"a":"\u003c\u0026\u003e","b":1}"#,
        );
        check(
            "\"\\u2028\\u0001\\u0008\\u000c\\n\\t\\u007fé🦀\"",
            "\"\\u2028\\u0001\\b\\f\\n\\t\u{7f}é🦀\"",
        );
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (input, expected) in [
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-7", "-7"),
            ("0.5", "0.5"),
            ("1e21", "1e+21"),
            ("1.5e300", "1.5e+300"),
            ("1e20", "100000000000000000000"),
            ("1e-7", "1e-7"),
            ("0.000001", "0.000001"),
            ("9223372036854775807", "9223372036854775807"),
            ("18446744073709551615", "18446744073709552000"),
            ("-0.0", "-0"),
        ] {
            check(input, expected);
        }
    }

    #[test]
    fn a_phase_digest_covers_the_name_and_the_objects_in_their_order() {
        let objects = [
            json!({"kind": "ConfigMap", "apiVersion": "v1"}),
            json!({"a": "<"}),
        ];
        // printf '{"name":"deploy","objects":[{"apiVersion":"v1","kind":"ConfigMap"},{"a":"\\u003c"}]}' | sha256sum
        let expected = "sha256:4b1e5fc8cf4701a46b90c5c1b55ac0fdb28ab7b976fa4a2e97817f852105e813";
        assert_eq!(phase_digest("deploy", &objects), expected);
        assert_ne!(phase_digest("deploy", objects.iter().rev()), expected);
    }
}
