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
    let text = rewrite_hyphens(text);
    if text.split("||").count() > MAX_GROUPS {
        return Err(ConstraintError::TooManyGroups);
    }
    let groups = text.split("||").map(group).collect::<Result<_, _>>()?;
    Ok(Constraint { groups })
}

/// Replaces `1.2 - 1.4` by `>= 1.2, <= 1.4`.
fn rewrite_hyphens(text: &str) -> String {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some((whole, low, high)) = hyphen_range(rest) {
            found.push((whole, format!(">= {low}, <= {high} ")));
            rest = rest.get(whole.len()..).unwrap_or_default();
        } else {
            let mut characters = rest.chars();
            characters.next();
            rest = characters.as_str();
        }
    }
    found
        .into_iter()
        .fold(text.to_owned(), |text, (whole, replacement)| {
            text.replacen(whole, &replacement, 1)
        })
}

/// A hyphen range at the very beginning of `text`: all of it with the blanks around it, and its two versions.
fn hyphen_range(text: &str) -> Option<(&str, &str, &str)> {
    let begin = skip_blanks(text);
    let (low, rest) = scan(begin)?;
    let hyphen = skip_blanks(rest);
    let after = hyphen.strip_prefix('-')?;
    let begin_of_high = skip_blanks(after);
    if hyphen.len() == rest.len() || begin_of_high.len() == after.len() {
        return None;
    }
    let (high, rest) = scan(begin_of_high)?;
    let end = skip_blanks(rest);
    let whole = text.get(..text.len() - end.len())?;
    Some((whole, low.written, high.written))
}

fn group(text: &str) -> Result<Group, ConstraintError> {
    let improper = || ConstraintError::Improper(text.to_owned());
    let mut found = Vec::new();
    let mut rest = skip_blanks(text);
    loop {
        let (sign, operator) = OPERATORS
            .into_iter()
            .find(|(sign, _)| rest.starts_with(sign))
            .unwrap_or(("", Operator::Equal));
        let after_sign = skip_blanks(rest.strip_prefix(sign).unwrap_or(rest));
        let (numbers, after) = scan(after_sign).ok_or_else(improper)?;
        found.push((sign, operator, numbers));
        let next = skip_blanks(after);
        let is_separated = next.len() < after.len();
        rest = match next.strip_prefix(',') {
            Some(next) => skip_blanks(next),
            None if next.is_empty() => break,
            None if is_separated => next,
            None => return Err(improper()),
        };
    }
    let terms: Vec<Term> = found
        .into_iter()
        .map(|(sign, operator, numbers)| term(sign, operator, &numbers))
        .collect::<Result<_, _>>()?;
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
