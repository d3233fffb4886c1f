//! The selectors of a list, as clients write them.

use std::collections::{BTreeMap, BTreeSet};

use olm_resolve::selector::SelectorError;
use olm_resolve::{Selector, SelectorRequirement};
use olm_version::quoted;

/// A field selector that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// It is not `metadata.name=NAME`.
    #[error("field label not supported: {0}")]
    Field(String),
    /// A part is not a comparison.
    #[error("invalid selector: '{0}'; can't understand '{1}'")]
    Form(String, String),
    /// A backslash does not escape anything.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A value has a letter that must be escaped.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(char),
}

/// The name that a field selector asks for; nothing where it is empty. Where it asks for a name, other fields do not
/// count.
///
/// # Errors
/// When it asks for something else.
pub fn name_of_field_selector(selector: &str) -> Result<Option<String>, FieldSelectorError> {
    let mut terms = terms(selector);
    terms.sort_unstable();
    let (mut name, mut first) = (None, None);
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let (field, is_equal, value) =
            comparison(term).ok_or_else(|| FieldSelectorError::Form(selector.to_owned(), term.to_owned()))?;
        let value = unescaped(value)?;
        first.get_or_insert(field);
        if field == "metadata.name" && is_equal {
            name.get_or_insert(value);
        }
    }
    match (name, first) {
        (None, Some(field)) => Err(FieldSelectorError::Field(field.to_owned())),
        (name, _) => Ok(name.filter(|name| !name.is_empty())),
    }
}

/// The parts between commas that no backslash escapes.
fn terms(selector: &str) -> Vec<&str> {
    let (mut terms, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (index, letter) in selector.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.extend(selector.get(start..index));
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.extend(selector.get(start..));
    terms
}

/// The field, whether it is to be equal, and the value, at the first operator.
fn comparison(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let (field, rest) = term.split_at_checked(index)?;
        [("!=", false), ("==", true), ("=", true)]
            .into_iter()
            .find_map(|(operator, is_equal)| Some((field, is_equal, rest.strip_prefix(operator)?)))
    })
}

fn unescaped(value: &str) -> Result<String, FieldSelectorError> {
    let (mut text, mut is_escaped) = (String::new(), false);
    for letter in value.chars() {
        match (is_escaped, letter) {
            (true, '\\' | ',' | '=') => text.push(letter),
            (true, _) => return Err(FieldSelectorError::Escape(format!("\\{letter}"))),
            (false, '\\') => {
                is_escaped = true;
                continue;
            }
            (false, ',' | '=') => return Err(FieldSelectorError::Unescaped(letter)),
            (false, _) => text.push(letter),
        }
        is_escaped = false;
    }
    if is_escaped {
        return Err(FieldSelectorError::Escape("\\".to_owned()));
    }
    Ok(text)
}

/// A label selector that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    /// A requirement is none, or is for what no label can be.
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// Something else is found at a place.
    #[error("found '{0}', expected: {1}")]
    Found(String, &'static str),
}

/// Reads a label selector as clients write it: `a=b`, `a==b`, `a!=b`, `a`, `!a`, `a in (b, c)`, `a notin (b, c)`, `a>1`
/// and `a<1`, separated by commas.
///
/// # Errors
/// When a part has another form.
pub fn label_selector(text: &str) -> Result<Selector, LabelSelectorError> {
    let mut parser = Parser {
        tokens: tokens(text),
        next: 0,
    };
    let mut requirements = Vec::new();
    while *parser.look() != Token::End {
        if !parser.look().starts_requirement() {
            let found = parser.look().text();
            return Err(LabelSelectorError::Found(
                found,
                "!, identifier, or 'end of string'",
            ));
        }
        let requirement = parser.requirement().map_err(LabelSelectorError::Requirement)?;
        requirements.push(requirement);
        match parser.take() {
            Token::End => break,
            Token::Symbol(",") if parser.look().starts_requirement() => {}
            Token::Symbol(",") => {
                return Err(LabelSelectorError::Found(
                    parser.look().text(),
                    "identifier after ','",
                ));
            }
            other => return Err(LabelSelectorError::Found(other.text(), "',' or 'end of string'")),
        }
    }
    Ok(Selector {
        match_labels: BTreeMap::new(),
        match_expressions: requirements,
    })
}

/// The operators, longer ones first.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Symbol(symbol) => (*symbol).to_owned(),
            Self::End => String::new(),
        }
    }

    fn starts_requirement(&self) -> bool {
        matches!(self, Self::Word(_) | Self::Symbol("!"))
    }

    fn ends_requirement(&self) -> bool {
        matches!(self, Self::End | Self::Symbol(","))
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let is_space = |letter: char| matches!(letter, ' ' | '\t' | '\r' | '\n');
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start_matches(is_space));
    while !rest.is_empty() {
        let symbol = SYMBOLS
            .into_iter()
            .find_map(|symbol| Some((symbol, rest.strip_prefix(symbol)?)));
        if let Some((symbol, after)) = symbol {
            tokens.push(Token::Symbol(symbol));
            rest = after;
        } else {
            let is_end = |letter: char| is_space(letter) || "=!(),><".contains(letter);
            let (word, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
            tokens.push(Token::Word(word.to_owned()));
            rest = after;
        }
        rest = rest.trim_start_matches(is_space);
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn look(&self) -> &Token {
        self.tokens.get(self.next).unwrap_or(&Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.look().clone();
        self.next += 1;
        token
    }

    fn requirement(&mut self) -> Result<SelectorRequirement, String> {
        let mut token = self.take();
        let is_absence = token == Token::Symbol("!");
        if is_absence {
            token = self.take();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        checked(&key, "Exists", Vec::new())?;
        if is_absence {
            return checked(&key, "DoesNotExist", Vec::new());
        }
        if self.look().ends_requirement() {
            return checked(&key, "Exists", Vec::new());
        }
        let operator = self.take();
        match operator.text().as_str() {
            "in" => checked(&key, "In", self.list()?),
            "notin" => checked(&key, "NotIn", self.list()?),
            "=" | "==" => checked(&key, "In", self.value()?),
            "!=" => checked(&key, "NotIn", self.value()?),
            symbol @ (">" | "<") => {
                let values = self.value()?;
                for value in &values {
                    if value.parse::<i64>().is_err() {
                        return Err(format!(
                            "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                            quoted(value)
                        ));
                    }
                }
                checked(&key, if symbol == ">" { "Gt" } else { "Lt" }, values)
            }
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// The value of a comparison, which may be empty.
    fn value(&mut self) -> Result<Vec<String>, String> {
        if self.look().ends_requirement() {
            return Ok(vec![String::new()]);
        }
        match self.take() {
            Token::Word(word) => Ok(vec![word]),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// The values in parentheses, sorted, each once; those between two commas are empty.
    fn list(&mut self) -> Result<Vec<String>, String> {
        let open = self.take();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = BTreeSet::new();
        match self.look() {
            Token::Symbol(")") => {
                values.insert(String::new());
                self.next += 1;
                return Ok(values.into_iter().collect());
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => {
                return Err(format!(
                    "found '{}', expected: ',', ')' or identifier",
                    other.text()
                ));
            }
        }
        loop {
            match self.take() {
                Token::Word(word) => {
                    values.insert(word);
                    match self.look() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() || matches!(self.look(), Token::Symbol("," | ")")) {
                        values.insert(String::new());
                    }
                    if *self.look() == Token::Symbol(")") {
                        break;
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
        self.next += 1;
        Ok(values.into_iter().collect())
    }
}

/// The requirement, where labels can have the key and the values.
fn checked(key: &str, operator: &str, values: Vec<String>) -> Result<SelectorRequirement, String> {
    let requirement = SelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    };
    let mut known = requirement.clone();
    if matches!(operator, "Gt" | "Lt") {
        "In".clone_into(&mut known.operator);
    }
    let selector = Selector {
        match_labels: BTreeMap::new(),
        match_expressions: vec![known],
    };
    match selector.validate() {
        Ok(()) => Ok(requirement),
        Err(SelectorError::Key { key, fault }) => {
            Err(format!("<nil>: Invalid value: {}: {fault}", quoted(&key)))
        }
        Err(other) => Err(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_requirement_is_read() {
        let labels = [("a", "1"), ("b", "2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = BTreeMap::from(labels);
        for (selector, expected) in [
            ("", true),
            ("a", true),
            ("!a", false),
            ("a=1,b==2", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1, 3),b notin (3)", true),
            ("a in (2)", false),
            ("b in (,2)", true),
            ("in = 1", false),
            ("a=,b", false),
        ] {
            let read = label_selector(selector).unwrap();
            assert_eq!(read.matches(&labels), expected, "{selector}");
        }
        for (selector, error) in [
            (
                "a of (b)",
                "unable to parse requirement: found 'of', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            (
                "a==!",
                "unable to parse requirement: found '!', expected: identifier",
            ),
            (
                "a in (b c)",
                "unable to parse requirement: found 'c', expected: ',' or ')'",
            ),
        ] {
            assert_eq!(
                label_selector(selector).unwrap_err().to_string(),
                error,
                "{selector}"
            );
        }
        let error = label_selector("a=b/c").unwrap_err().to_string();
        let start =
            "unable to parse requirement: values[0][a]: Invalid value: \"b/c\": a valid label must be";
        assert!(error.starts_with(start), "{error}");
        let error = label_selector("-a").unwrap_err().to_string();
        let start = "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn only_the_name_is_a_field() {
        assert_eq!(
            name_of_field_selector("metadata.name=a"),
            Ok(Some("a".to_owned()))
        );
        assert_eq!(name_of_field_selector(""), Ok(None));
        assert_eq!(
            name_of_field_selector("status.x=y,metadata.name==a"),
            Ok(Some("a".to_owned()))
        );
        assert_eq!(name_of_field_selector("metadata.name="), Ok(None));
        for other in [
            "metadata.name!=a",
            "status.x=y",
            "metadata.name",
            "metadata.name=a=b",
        ] {
            assert!(name_of_field_selector(other).is_err(), "{other}");
        }
    }
}
