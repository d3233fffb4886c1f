//! Text to constraint.

use super::version::{Numbers, Spelling, parse_version, scan};
use super::{Constraint, ConstraintError, Group, MAX_GROUPS, MAX_LENGTH, Operator, Term, Wild};

/// The operators, longer spellings before their beginnings.
const OPERATORS: [(&str, Operator); 11] = [
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterOrEqual),
    ("=>", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("=<", Operator::LessOrEqual),
    ("~>", Operator::Tilde),
    ("=", Operator::Equal),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("~", Operator::Tilde),
    ("^", Operator::Caret),
];

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\u{c}' | '\r')
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}

pub(super) fn constraint(text: &str) -> Result<Constraint, ConstraintError> {
    if text.len() > MAX_LENGTH {
        return Err(ConstraintError::TooLong);
    }
    if text.split("||").count() > MAX_GROUPS {
        return Err(ConstraintError::TooManyGroups);
    }
    let groups = text.split("||").map(group).collect::<Result<_, _>>()?;
    Ok(Constraint { groups })
}

/// The text between separators.
enum Item<'a> {
    Comparison(&'static str, Operator, Numbers<'a>),
    /// `1.2 - 1.4` means `>=1.2 <=1.4`.
    Range(Numbers<'a>, Numbers<'a>),
}

/// A range at the beginning of `text`, and the rest of the text.
fn hyphen_range(text: &str) -> Option<(Item<'_>, &str)> {
    let (low, rest) = scan(text)?;
    let hyphen = skip_blanks(rest);
    let after = hyphen.strip_prefix('-')?;
    let begin_of_high = skip_blanks(after);
    // `1-2` is a version with a pre-release.
    if hyphen.len() == rest.len() || begin_of_high.len() == after.len() {
        return None;
    }
    let (high, rest) = scan(begin_of_high)?;
    Some((Item::Range(low, high), rest))
}

fn comparison(text: &str) -> Option<(Item<'_>, &str)> {
    let (sign, operator) = OPERATORS
        .into_iter()
        .find(|(sign, _)| text.starts_with(sign))
        .unwrap_or(("", Operator::Equal));
    let after_sign = skip_blanks(text.strip_prefix(sign).unwrap_or(text));
    let (numbers, rest) = scan(after_sign)?;
    Some((Item::Comparison(sign, operator, numbers), rest))
}

/// Comparisons and ranges, separated by blanks or a comma. After blanks, a range may only follow another range; after a
/// comparison it needs a comma.
fn group(text: &str) -> Result<Group, ConstraintError> {
    let improper = || ConstraintError::Improper(text.to_owned());
    let mut found = Vec::new();
    let mut rest = skip_blanks(text);
    let mut may_be_range = true;
    loop {
        let range = hyphen_range(rest).filter(|_| may_be_range);
        let (item, after) = range.or_else(|| comparison(rest)).ok_or_else(improper)?;
        let was_range = matches!(item, Item::Range(..));
        found.push(item);
        let next = skip_blanks(after);
        let is_separated = next.len() < after.len();
        (rest, may_be_range) = match next.strip_prefix(',') {
            Some(next) => (skip_blanks(next), true),
            None if next.is_empty() => break,
            None if is_separated => (next, was_range),
            None => return Err(improper()),
        };
    }
    let mut terms = Vec::new();
    for item in found {
        match item {
            Item::Comparison(sign, operator, numbers) => terms.push(term(sign, operator, &numbers)?),
            Item::Range(low, high) => {
                terms.push(term(">=", Operator::GreaterOrEqual, &low)?);
                terms.push(term("<=", Operator::LessOrEqual, &high)?);
            }
        }
    }
    let names_prerelease = terms.iter().any(|term| !term.version.pre.is_empty());
    Ok(Group {
        terms,
        names_prerelease,
    })
}

fn is_wild(number: Option<&str>) -> bool {
    number.is_none_or(|number| matches!(number, "x" | "X" | "*"))
}

fn term(sign: &str, operator: Operator, numbers: &Numbers<'_>) -> Result<Term, ConstraintError> {
    let Numbers {
        major,
        minor,
        patch,
        written,
        ..
    } = *numbers;
    // A single bar is read as part of the number, to distinguish it from two.
    if written.contains('|') {
        return Err(ConstraintError::Version);
    }
    let prerelease = numbers
        .prerelease
        .map(|prerelease| format!("-{prerelease}"))
        .unwrap_or_default();
    let (wild, text) = if is_wild(Some(major)) {
        (Wild::Major, format!("0.0.0{prerelease}"))
    } else if is_wild(minor) {
        (Wild::Minor, format!("{major}.0.0{prerelease}"))
    } else if is_wild(patch) {
        (
            Wild::Patch,
            format!("{major}.{}.0{prerelease}", minor.unwrap_or_default()),
        )
    } else {
        (Wild::None, written.to_owned())
    };
    let version = parse_version(&text, Spelling::Coerced).map_err(|_| ConstraintError::Version)?;
    Ok(Term {
        operator,
        sign: sign.to_owned(),
        written: written.to_owned(),
        version,
        wild,
    })
}
