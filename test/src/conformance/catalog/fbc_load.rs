//! `fbc-load`: reading the files of a catalog, both leniently and by type.

use olm_fbc::meta::{limits, metas};
use olm_fbc::{Catalog, Meta};
use serde_json::Value;

use crate::conformance::Outcome;

pub mod catalog_files;

/// Walks the files of the case as the catalog server does, then loads them as the command line does.
pub fn run(case: &Value) -> Outcome {
    let files = catalog_files::read(case.get("files"));
    let expect = case.get("expect").unwrap_or(&Value::Null);
    walk(&files, expect).and(|| load(&files, expect))
}

fn walk(files: &[(String, String)], expect: &Value) -> Outcome {
    let mut found: Vec<(String, Meta)> = Vec::new();
    let mut failure = None;
    'files: for (path, text) in files {
        for meta in metas(text.as_bytes(), &limits()) {
            match meta {
                Ok(meta) => found.push((path.clone(), meta)),
                Err(error) => {
                    failure = Some(error.to_string());
                    break 'files;
                }
            }
        }
    }
    let expected_failure = expect.get("error_from_meta_walk").and_then(Value::as_str);
    Outcome::compare("the walk fails", &expected_failure.is_some(), &failure.is_some())
        .and(|| catalog_files::compare_text(expected_failure, failure.as_deref()))
        .and(|| {
            let Some(expected) = expect.get("metas").and_then(Value::as_array) else {
                return Outcome::Pass;
            };
            let digits = expect.get("digits").and_then(Value::as_str) == Some("kept");
            let mut expected: Vec<Line> = expected.iter().map(|meta| Line::expected(meta, digits)).collect();
            let mut found: Vec<Line> = found
                .iter()
                .map(|(path, meta)| Line::found(path, meta, digits))
                .collect();
            if without_empty_documents(expect) {
                expected.retain(|line| !line.json.is_empty());
                found.retain(|line| !line.json.is_empty());
            }
            Outcome::compare("the blobs", &expected, &found)
        })
}

/// Whether the reference implementation reads objects where ours finds none.
fn without_empty_documents(expect: &Value) -> bool {
    expect.get("empty_documents").and_then(Value::as_str) == Some("none")
}

#[derive(Debug, PartialEq)]
struct Line {
    path: String,
    schema: String,
    package: String,
    name: String,
    json: String,
}

impl Line {
    fn expected(meta: &Value, digits_kept: bool) -> Self {
        let text = |key: &str| {
            meta.get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let json = text("json_line");
        Self {
            path: text("path"),
            schema: text("schema"),
            package: text("package"),
            name: text("name"),
            json: if digits_kept {
                double_precision(&json)
            } else {
                json
            },
        }
    }

    /// With `digits_kept`, ours keeps the digits of the source, and both sides are compared as double-precision
    /// numbers.
    fn found(path: &str, meta: &Meta, digits_kept: bool) -> Self {
        Self {
            path: path.to_owned(),
            schema: meta.schema.clone(),
            package: meta.package.clone(),
            name: meta.name.clone(),
            json: if digits_kept {
                double_precision(&meta.line)
            } else {
                meta.line.clone()
            },
        }
    }
}

/// A text with every number replaced by the number of double precision next to it.
pub fn double_precision(line: &str) -> String {
    let mut out = String::new();
    let mut number = String::new();
    let (mut in_string, mut escaped) = (false, false);
    for letter in line.chars() {
        let in_number = !in_string
            && (letter.is_ascii_digit() || letter == '-' || (!number.is_empty() && "+.eE".contains(letter)));
        if in_number {
            number.push(letter);
            continue;
        }
        let digits = std::mem::take(&mut number);
        match digits.parse::<f64>() {
            Ok(value) => out.push_str(&olm_yaml::json_float(value)),
            Err(_) => out.push_str(&digits),
        }
        out.push(letter);
        match letter {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    out
}

fn load(files: &[(String, String)], expect: &Value) -> Outcome {
    let mut catalog = Catalog::default();
    let failure = files
        .iter()
        .find_map(|(_, text)| catalog.load(text.as_bytes(), &limits()).err());
    let failure = failure.map(|error| error.to_string());
    let expected_failure = expect.get("error").and_then(Value::as_str);
    if without_empty_documents(expect)
        && expected_failure.is_some_and(|text| text.starts_with("object '' is"))
    {
        return Outcome::Pass;
    }
    Outcome::compare("the load fails", &expected_failure.is_some(), &failure.is_some())
        .and(|| catalog_files::compare_text(expected_failure, failure.as_deref()))
        .and(|| {
            let Some(counts) = expect.get("counts") else {
                return Outcome::Pass;
            };
            let found = serde_json::json!({
                "bundles": catalog.bundles.len(),
                "channels": catalog.channels.len(),
                "deprecations": catalog.deprecations.len(),
                "others": catalog.others.len(),
                "packages": catalog.packages.len(),
            });
            Outcome::compare("the counts", counts, &found)
        })
}
