//! `semver-constraints.json`: the grammar of `spec.source.catalog.version`.

use olm_version::Component;
use olm_version::Version;
use olm_version::masterminds::{Constraint, Operator, Prereleases, Spelling, increment, parse_version};
use serde_json::Value;

use crate::conformance::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    match text(case, "kind") {
        "check" => check(case),
        "constraint_parse" => constraint_parse(case),
        "single_term_parse" => single_term_parse(case),
        "version_parse" => version_parse(case),
        "compare" => compare(case),
        "relation" => relation(case),
        "increment" => raise(case),
        "constraint_to_string"
        | "constraint_text_roundtrip"
        | "version_coerce_to_string"
        | "hyphen_range_rewrite"
        | "first_failure_message" => Outcome::Informative,
        other => Outcome::Fail(format!("unknown kind {other:?}")),
    }
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn expected(case: &Value) -> &Value {
    case.get("expected").unwrap_or(&Value::Null)
}

fn version(case: &Value, key: &str) -> Result<Version, String> {
    let text = text(case, key);
    parse_version(text, Spelling::Coerced).map_err(|fault| format!("{text}: {fault}"))
}

/// Compares a computed value with `expected`; a refusal is a failure.
fn outcome(case: &Value, found: Result<Value, String>) -> Outcome {
    match found {
        Ok(found) => Outcome::compare("expected", expected(case), &found),
        Err(fault) => Outcome::Fail(fault),
    }
}

fn check(case: &Value) -> Outcome {
    let everywhere = case
        .get("include_prerelease")
        .and_then(Value::as_bool)
        .unwrap_or_default();
    let prereleases = if everywhere {
        Prereleases::Everywhere
    } else {
        Prereleases::WhereNamed
    };
    let found = Constraint::parse(text(case, "constraint"))
        .map_err(|fault| fault.to_string())
        .and_then(|constraint| {
            Ok(constraint
                .check_with(&version(case, "version")?, prereleases)
                .into())
        });
    outcome(case, found)
}

fn constraint_parse(case: &Value) -> Outcome {
    match (
        Constraint::parse(text(case, "constraint")),
        case.get("valid").and_then(Value::as_bool),
    ) {
        (Ok(constraint), Some(true)) => {
            let groups: Vec<u64> = constraint.groups().map(|group| group.count() as u64).collect();
            let count = |key: &str, found: u64| match case.get(key).and_then(Value::as_u64) {
                Some(expected) => Outcome::compare(key, &expected, &found),
                None => Outcome::Pass,
            };
            count("or_groups", groups.len() as u64).and(|| {
                count(
                    "terms_in_first_group",
                    groups.first().copied().unwrap_or_default(),
                )
            })
        }
        (Err(fault), Some(false)) => match case.get("error").and_then(Value::as_str) {
            Some(expected) => Outcome::compare("error", &expected.to_owned(), &fault.to_string()),
            None => Outcome::Pass,
        },
        (Ok(constraint), _) => Outcome::Fail(format!("accepted as {constraint}")),
        (Err(fault), _) => Outcome::Fail(format!("refused: {fault}")),
    }
}

fn single_term_parse(case: &Value) -> Outcome {
    let constraint = Constraint::parse(text(case, "constraint"));
    if case.get("valid").and_then(Value::as_bool) == Some(false) {
        return match constraint {
            Ok(constraint) => Outcome::Fail(format!("accepted as {constraint}")),
            Err(_) => Outcome::Pass,
        };
    }
    let found = constraint
        .map_err(|fault| fault.to_string())
        .and_then(|constraint| {
            let mut groups = constraint.groups();
            let term = groups
                .next()
                .and_then(|mut group| group.next())
                .ok_or("no comparison")?;
            Ok((name(term.0), term.1.to_string()))
        });
    match found {
        Ok((operator, version)) => Outcome::compare("version", &text(case, "version"), &version.as_str())
            .and(|| match case.get("operator").and_then(Value::as_str) {
                Some(expected) => Outcome::compare("operator", &expected, &operator),
                None => Outcome::Pass,
            }),
        Err(fault) => Outcome::Fail(fault),
    }
}

fn name(operator: Operator) -> &'static str {
    match operator {
        Operator::Equal => "TildeOrEqual",
        Operator::NotEqual => "NotEqual",
        Operator::Greater => "GreaterThan",
        Operator::GreaterOrEqual => "GreaterThanEqual",
        Operator::Less => "LessThan",
        Operator::LessOrEqual => "LessThanEqual",
        Operator::Tilde => "Tilde",
        Operator::Caret => "Caret",
    }
}

fn version_parse(case: &Value) -> Outcome {
    let spelling = match text(case, "mode") {
        "strict" => Spelling::Strict,
        "no-coerce" => Spelling::Partial,
        _ => Spelling::Coerced,
    };
    let found = parse_version(text(case, "version"), spelling).is_ok();
    Outcome::compare("valid", &case.get("valid").and_then(Value::as_bool), &Some(found))
}

fn compare(case: &Value) -> Outcome {
    let found = version(case, "v1")
        .and_then(|left| Ok(Value::from(left.cmp_precedence(&version(case, "v2")?) as i8)));
    outcome(case, found)
}

fn relation(case: &Value) -> Outcome {
    let found = version(case, "v1").and_then(|left| {
        let order = left.cmp_precedence(&version(case, "v2")?);
        match text(case, "op") {
            "Equal" => Ok(order.is_eq().into()),
            "GreaterThan" => Ok(order.is_gt().into()),
            "GreaterThanEqual" => Ok(order.is_ge().into()),
            "LessThan" => Ok(order.is_lt().into()),
            "LessThanEqual" => Ok(order.is_le().into()),
            other => Err(format!("unknown relation {other:?}")),
        }
    });
    outcome(case, found)
}

fn raise(case: &Value) -> Outcome {
    let part = match text(case, "part") {
        "major" => Component::Major,
        "minor" => Component::Minor,
        _ => Component::Patch,
    };
    outcome(
        case,
        version(case, "version").map(|version| increment(&version, part).to_string().into()),
    )
}
