//! The names in queries.

use std::collections::BTreeSet;

/// Words of PromQL that are not metrics, besides functions and labels.
const KEYWORDS: &[&str] = &[
    "and", "or", "unless", "bool", "offset", "by", "on", "without", "ignoring", "sum", "min", "max", "count",
];
/// Words before a list of labels in parentheses.
const BEFORE_LABELS: &[&str] = &["by", "on", "without", "ignoring"];

/// The metrics that a query reads.
pub(crate) fn metrics(query: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = query;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    while let Some(first) = rest.chars().next() {
        if first == '{' || first == '[' {
            let close = if first == '{' { '}' } else { ']' };
            rest = rest.split_once(close).map_or("", |(_, rest)| rest);
        } else if first.is_ascii_alphabetic() || first == '_' {
            let (word, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
            let next = after.trim_start();
            rest = after;
            if BEFORE_LABELS.contains(&word) && next.starts_with('(') {
                rest = next.split_once(')').map_or("", |(_, rest)| rest);
            } else if !KEYWORDS.contains(&word) && !next.starts_with('(') {
                found.insert(word.to_owned());
            }
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// The family of a sample, as tables and `# TYPE` lines have it apart from `_total`.
pub(crate) fn family(sample: &str) -> &str {
    ["_bucket", "_count", "_sum"]
        .iter()
        .find_map(|suffix| sample.strip_suffix(suffix))
        .unwrap_or(sample)
}

#[test]
fn functions_labels_and_keywords_are_no_metrics() {
    let check = |query: &str, expected: &[&str]| {
        let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(metrics(query), expected, "{query}");
    };
    check("absent(up{job=\"x\"} == 1)", &["up"]);
    check(
        "time() - max by (extension) (a_seconds{a=\"b\"}) > 1e3",
        &["a_seconds"],
    );
    check(
        "sum by (le) (rate(a_bucket[5m])) unless on (x) b or vector(0)",
        &["a_bucket", "b"],
    );
}
