//! `bundle-validators`: the checks of authors before publication.

use olm_author::lint::{Manifests, Options, RuleFinding, RuleSet, Severity, load, load_object};
use serde_json::Value;

use crate::conformance::{Outcome, files};

/// Runs every validator that the case has a result of.
pub fn run(case: &Value) -> Outcome {
    let expect = case.get("expect").unwrap_or(&Value::Null);
    let text = |key: &str| case.get(key).and_then(Value::as_str).unwrap_or_default();
    let loaded = if text("kind") == "bundle_dir" {
        let files = files(case);
        load(&files)
    } else {
        load_object(text("text").as_bytes())
    };
    let fails = ["load_error", "error"]
        .into_iter()
        .any(|key| expect.get(key).is_some_and(|error| !error.is_null()));
    let mut manifests = match loaded {
        Err(_) if fails => return Outcome::Pass,
        Err(faults) => return Outcome::Fail(format!("cannot be loaded: {faults:?}")),
        Ok(_) if fails => return Outcome::Fail("is loaded although it ought not to be".to_owned()),
        Ok(manifests) => manifests,
    };
    if expect.get("documents").and_then(Value::as_str) == Some("all") {
        // The reference sees the first document of a file only.
        manifests.objects.dedup_by(|next, first| next.file == first.file);
    }
    let told_once = expect.get("repeated_errors").and_then(Value::as_str) == Some("told once");
    let duplicate_modes = expect.get("duplicate_modes").and_then(Value::as_str) == Some("told");
    let results = expect.get("results").and_then(Value::as_object);
    let mut outcome = about(expect, &manifests);
    for (name, expected) in results.into_iter().flatten() {
        let (name, options) = match name.split_once("@k8s-version=") {
            Some((name, version)) => {
                let options = Options {
                    kubernetes_version: version.to_owned(),
                    ..Options::default()
                };
                (name, options)
            }
            None => (name.as_str(), Options::default()),
        };
        let Some(rule_set) = RuleSet::named(name) else {
            return Outcome::Fail(format!("there is no validator {name}"));
        };
        let mut problems = rule_set.run(&manifests, &options);
        if duplicate_modes {
            problems.retain(|problem| !problem.detail.ends_with("duplicate install modes present"));
        }
        for severity in [Severity::Error, Severity::Warning] {
            let list = if severity == Severity::Error {
                "errors"
            } else {
                "warnings"
            };
            let mut wanted: Vec<String> = expected
                .get(list)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|problem| {
                    !(told_once && severity == Severity::Warning && is_among(problem, expected))
                })
                .map(recorded)
                .collect();
            let mut found: Vec<String> = problems
                .iter()
                .filter(|problem| problem.severity == severity)
                .map(ours)
                .collect();
            wanted.sort();
            found.sort();
            outcome = outcome.and(|| Outcome::compare(&format!("{list} of {name}"), &wanted, &found));
        }
    }
    outcome
}

/// Name, package and channels of a bundle directory.
fn about(expect: &Value, manifests: &Manifests) -> Outcome {
    let field = |key: &str| expect.get(key).and_then(Value::as_str);
    let compare = |what: &str, found: &str| match field(what) {
        Some(wanted) => Outcome::compare(what, &wanted, &found),
        None => Outcome::Pass,
    };
    compare("name", &manifests.name)
        .and(|| compare("package", &manifests.package))
        .and(|| compare("default_channel", &manifests.default_channel))
        .and(|| match expect.get("channels") {
            Some(channels) if !channels.is_null() => {
                Outcome::compare("channels", channels, &serde_json::json!(manifests.channels))
            }
            _ => Outcome::Pass,
        })
}

/// Whether a warning repeats an error.
fn is_among(warning: &Value, expected: &Value) -> bool {
    let text = |problem: &Value| {
        let text = problem.get("text").and_then(Value::as_str).unwrap_or_default();
        text.split_once(": ").map(|(_, text)| words(text))
    };
    let errors = expected.get("errors").and_then(Value::as_array);
    errors
        .into_iter()
        .flatten()
        .any(|error| text(error) == text(warning))
}

fn ours(problem: &RuleFinding) -> String {
    normal(problem.kind, &problem.to_string())
}

fn recorded(problem: &Value) -> String {
    let text = |key: &str| problem.get(key).and_then(Value::as_str).unwrap_or_default();
    normal(text("type"), text("text"))
}

/// The words of a text, sorted: lists inside texts have no order.
fn words(text: &str) -> String {
    let mut words: Vec<&str> = text
        .split([' ', ',', '[', ']', '(', ')', '\n'])
        .filter(|word| !word.is_empty())
        .collect();
    words.sort_unstable();
    words.join(" ")
}

/// A problem in a form that can be compared: without printed structures of Go and without the texts of its parsers.
fn normal(kind: &str, text: &str) -> String {
    let last = |separator: &str| text.rsplit_once(separator).map_or(text, |(_, rest)| rest);
    let text = match kind {
        "ObjectFailedValidation" | "ParseError" => last(": ").to_owned(),
        // The field, the kind of fault, and the text after the value.
        kind if kind.starts_with("FieldValue") => {
            let field = text
                .split_once("Field ")
                .and_then(|(_, rest)| rest.split_once(','))
                .map_or("", |(field, _)| field);
            let (_, said) = text.rsplit_once(&format!(": {field}: ")).unwrap_or(("", text));
            let (fault, rest) = said.split_once(": ").unwrap_or((said, ""));
            let rest = rest.rsplit_once(": ").map_or(rest, |(_, rest)| rest);
            format!("{field}: {fault}: {rest}")
        }
        _ => [
            "is invalid: mail: ",
            "is invalid: parse ",
            "invalid image pullspec",
        ]
        .into_iter()
        .find_map(|head| text.split_once(head).map(|(before, _)| format!("{before}{head}")))
        .unwrap_or_else(|| text.to_owned()),
    };
    format!("{kind}: {}", words(&text))
}
