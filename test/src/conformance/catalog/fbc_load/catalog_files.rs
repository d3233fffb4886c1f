//! The common parts of the suites about catalogs: files in the order of the walk, and comparable texts.

use olm_fbc::{Ignore, ignore, walk_order};
use serde_json::Value;

use crate::conformance::Outcome;

/// The files that belong to the catalog, in the order in which they are read.
pub fn read(files: Option<&Value>) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = files
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(path, text)| (path.clone(), text.as_str().unwrap_or_default().to_owned()))
        .collect();
    files.sort_by(|left, right| walk_order(&left.0, &right.0));
    let mut ignored = Ignore::new();
    for (path, text) in files
        .iter()
        .filter(|(path, _)| path.rsplit('/').next() == Some(ignore::FILE_NAME))
    {
        ignored.add(path, text);
    }
    files.retain(|(path, _)| !ignored.is_ignored(path));
    files
}

/// Compares an error with the recorded one as far as the text is part of the contract. Texts of the reference
/// implementation's parsers are not.
pub fn compare_text(expected: Option<&str>, found: Option<&str>) -> Outcome {
    let (Some(expected), Some(found)) = (expected, found) else {
        return Outcome::Pass;
    };
    let contract = contract(expected.trim_end());
    if found.trim_end().starts_with(contract) {
        Outcome::Pass
    } else {
        Outcome::Fail(format!("the error: expected {expected:?}, got {found:?}"))
    }
}

/// The part of a recorded error that is not the text of a library or the name of a type.
pub fn contract(text: &str) -> &str {
    const FOREIGN: &[&str] = &[
        "error converting YAML to JSON",
        "error unmarshaling JSON",
        "json: ",
        "illegal base64 data",
        "unexpected end of JSON input",
        "unexpected EOF",
        "invalid Yaml document separator",
        "parse property at index",
        "invalid character ",
        "Could not parse Range",
        "Version string empty",
        "No Major.Minor.Patch elements found",
        "Invalid character(s) found",
        " number must not contain leading zeroes",
        "Numeric PreRelease version",
        "a string, got ",
        "\\n' is missing",
        "\n' is missing",
        "declcfg.",
    ];
    let end = FOREIGN
        .iter()
        .filter_map(|part| text.find(part))
        .min()
        .unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}
