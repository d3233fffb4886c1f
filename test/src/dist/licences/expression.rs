//! Expressions of SPDX: `A OR B`, `A AND (B OR C)`, `A WITH B`, and the older `A/B`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

/// Whether the allowed licences satisfy an expression.
///
/// # Errors
/// When it is not an expression.
pub(super) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool> {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    // Values, and operators that wait for their right side; a bracket is an operator that waits for its end.
    let (mut values, mut operators): (Vec<bool>, Vec<&str>) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word {
            "(" => operators.push(word),
            ")" => {
                while operators.last().is_some_and(|last| *last != "(") {
                    apply(&mut values, &mut operators);
                }
                ensure!(operators.pop().is_some(), "{expression:?} has no end");
            }
            "AND" | "OR" => {
                // AND binds first.
                while operators
                    .last()
                    .is_some_and(|last| *last == "AND" || *last == word)
                {
                    apply(&mut values, &mut operators);
                }
                operators.push(word);
            }
            name => {
                let mut name = name.to_owned();
                if words.next_if_eq(&"WITH").is_some() {
                    name = format!("{name} WITH {}", words.next().unwrap_or_default());
                }
                values.push(allowed.contains(&name));
            }
        }
    }
    while !operators.is_empty() {
        apply(&mut values, &mut operators);
    }
    ensure!(
        values.len() == 1,
        "{expression:?} is not an expression of licences"
    );
    Ok(values == [true])
}

/// Replaces the last two values by the result of the last operator.
fn apply(values: &mut Vec<bool>, operators: &mut Vec<&str>) {
    let operator = operators.pop();
    if let (Some(right), Some(left)) = (values.pop(), values.pop()) {
        values.push(if operator == Some("AND") {
            left && right
        } else {
            left || right
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_of_or_and_both_sides_of_and_must_be_allowed() {
        let allowed = BTreeSet::from(["MIT", "Apache-2.0", "X WITH Y"].map(str::to_owned));
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("MIT OR GPL-3.0 AND GPL-2.0", true),
            ("(MIT OR GPL-3.0) AND GPL-2.0", false),
            ("(MIT OR GPL-3.0) AND Apache-2.0", true),
            ("X WITH Y", true),
            ("X WITH Z", false),
        ] {
            assert_eq!(
                is_allowed(expression, &allowed).unwrap(),
                expected,
                "{expression}"
            );
        }
        for wrong in ["", "MIT MIT", "()", "MIT)"] {
            assert!(is_allowed(wrong, &allowed).is_err(), "{wrong}");
        }
    }
}
