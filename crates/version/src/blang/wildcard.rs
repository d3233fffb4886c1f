//! `x` in place of a minor or patch number.

use super::{RangeError, operator_and_version};

/// The number that a final `x` replaces.
#[derive(Clone, Copy)]
enum Wildcard {
    Minor,
    Patch,
}

/// Replaces comparisons with an `x` by comparisons without one: `<=1.x` by `<2.0.0`, `1.2.x` by `>=1.2.0` and `<1.3.0`.
///
/// The grammar joins both bounds of `!=1.x` by *and* instead of *or*, so that no version passes, and `1.x.x` covers
/// only the minor version 0. Catalogs rely on these results.
pub(super) fn expand(words: &[String]) -> Result<Vec<String>, RangeError> {
    let mut expanded = Vec::with_capacity(words.len());
    for word in words {
        if !word.contains('x') {
            expanded.push(word.clone());
            continue;
        }
        let (operator, version) = operator_and_version(word)?;
        let lowest = lowest(version);
        let (operator, is_next) = match operator.trim() {
            ">" => (">=", true),
            ">=" => (">=", false),
            "<" => ("<", false),
            "<=" => ("<", true),
            "" | "=" | "==" => {
                expanded.push(format!(">={lowest}"));
                ("<", true)
            }
            "!" | "!=" => {
                expanded.push(format!("<{lowest}"));
                (">=", true)
            }
            _ => ("", false),
        };
        let bound = match (is_next, wildcard(version)) {
            (false, _) => lowest,
            (true, Some(number)) => next(&lowest, number).unwrap_or_default(),
            (true, None) => String::new(),
        };
        expanded.push(format!("{operator}{bound}"));
    }
    Ok(expanded)
}

fn wildcard(version: &str) -> Option<Wildcard> {
    let (rest, last) = version.rsplit_once('.')?;
    match (last, rest.split('.').count()) {
        ("x", 1) => Some(Wildcard::Minor),
        ("x", 2) => Some(Wildcard::Patch),
        _ => None,
    }
}

/// The lowest version that a version with an `x` covers.
fn lowest(version: &str) -> String {
    let version = version.replacen(".x.x", ".x", 1).replacen(".x", ".0", 1);
    if version.split('.').count() == 2 {
        version + ".0"
    } else {
        version
    }
}

/// The first version above all versions that share the numbers before `wildcard`.
fn next(lowest: &str, wildcard: Wildcard) -> Option<String> {
    let mut numbers: Vec<String> = lowest.split('.').map(str::to_owned).collect();
    let number = match wildcard {
        Wildcard::Minor => numbers.get_mut(0)?,
        Wildcard::Patch => numbers.get_mut(1)?,
    };
    *number = number.parse::<i64>().ok()?.checked_add(1)?.to_string();
    Some(numbers.join("."))
}
