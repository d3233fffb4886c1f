//! `blang-ranges.json`: the grammar of `skipRange` and of dependency ranges.

use olm_version::blang::{Range, parse_version};
use serde_json::Value;

use crate::conformance::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    let text = |key: &str| case.get(key).and_then(Value::as_str).unwrap_or_default();
    let range = Range::parse(text("range")).map_err(|fault| fault.to_string());
    match text("kind") {
        "range_match" => {
            let found = range.and_then(|range| {
                let version = parse_version(text("version")).map_err(|fault| fault.to_string())?;
                Ok(range.contains(&version))
            });
            let expected = case
                .get("expected")
                .and_then(Value::as_bool)
                .ok_or("no expectation".to_owned());
            Outcome::compare("expected", &expected, &found)
        }
        "range_parse" => {
            let expected = match case.get("valid").and_then(Value::as_bool) {
                Some(true) => Ok(()),
                _ => Err(case.get("error").and_then(Value::as_str).map(str::to_owned)),
            };
            match (expected, range) {
                (Ok(()), Ok(_)) | (Err(None), Err(_)) => Outcome::Pass,
                (Err(Some(expected)), Err(found)) => Outcome::compare("error", &expected, &found),
                (expected, found) => Outcome::Fail(format!("expected {expected:?}, got {found:?}")),
            }
        }
        other => Outcome::Fail(format!("unknown kind {other:?}")),
    }
}
