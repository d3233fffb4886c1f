//! The tokens of a Rust source, without comments and tests: words, texts and signs.

/// A piece of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name, keyword or number.
    Word(String),
    /// The content of a string literal, as written.
    Text(String),
    /// Any other character.
    Sign(char),
}

impl Token {
    fn is(&self, sign: char) -> bool {
        *self == Self::Sign(sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }
}

/// The tokens of a source, but for items that only tests have.
pub(crate) fn production(source: &str) -> Vec<Token> {
    without_tests(&tokens(source))
}

fn tokens(source: &str) -> Vec<Token> {
    let characters: Vec<char> = source.chars().collect();
    let at = |index: usize| characters.get(index).copied().unwrap_or('\0');
    let mut found = Vec::new();
    let mut index = 0;
    while index < characters.len() {
        let character = at(index);
        if character == '/' && at(index + 1) == '/' {
            while index < characters.len() && at(index) != '\n' {
                index += 1;
            }
        } else if character == '/' && at(index + 1) == '*' {
            index += 2;
            while index < characters.len() && !(at(index) == '*' && at(index + 1) == '/') {
                index += 1;
            }
            index += 2;
        } else if let Some(hashes) = raw_text(&characters[index..]) {
            let quote = index
                + characters[index..]
                    .iter()
                    .position(|found| *found == '"')
                    .unwrap_or(0);
            let end: Vec<char> = std::iter::once('"')
                .chain(std::iter::repeat_n('#', hashes))
                .collect();
            let rest = &characters[quote + 1..];
            let length = rest.windows(end.len()).position(|window| window == end);
            let length = length.unwrap_or(rest.len());
            found.push(Token::Text(rest[..length].iter().collect()));
            index = quote + 1 + length + end.len();
        } else if character == '"' {
            let start = index + 1;
            index = start;
            while index < characters.len() && at(index) != '"' {
                index += if at(index) == '\\' { 2 } else { 1 };
            }
            found.push(Token::Text(
                characters[start..index.min(characters.len())].iter().collect(),
            ));
            index += 1;
        } else if character == '\'' && (at(index + 1) == '\\' || at(index + 2) == '\'') {
            // A character literal; otherwise the sign begins a lifetime.
            index += if at(index + 1) == '\\' { 3 } else { 2 };
            while index < characters.len() && at(index) != '\'' {
                index += 1;
            }
            index += 1;
        } else if character.is_alphanumeric() || character == '_' {
            let start = index;
            while at(index).is_alphanumeric() || at(index) == '_' {
                index += 1;
            }
            found.push(Token::Word(characters[start..index].iter().collect()));
        } else {
            if !character.is_whitespace() {
                found.push(Token::Sign(character));
            }
            index += 1;
        }
    }
    found
}

/// The number of `#` of a raw string literal that begins here.
fn raw_text(rest: &[char]) -> Option<usize> {
    let rest = rest.strip_prefix(&['b']).unwrap_or(rest);
    let rest = rest.strip_prefix(&['r'])?;
    let hashes = rest.iter().take_while(|found| **found == '#').count();
    (rest.get(hashes) == Some(&'"')).then_some(hashes)
}

/// Drops each item after `#[cfg(test)]` or `#[test]`.
fn without_tests(all: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < all.len() {
        if let Some(end) = attribute_end(all, index)
            && is_for_tests(&all[index..end])
        {
            index = item_end(all, end);
        } else {
            kept.push(all[index].clone());
            index += 1;
        }
    }
    kept
}

/// The end of the attribute that begins here.
fn attribute_end(all: &[Token], index: usize) -> Option<usize> {
    let begins = all.get(index)?.is('#') && all.get(index + 1)?.is('[');
    begins.then(|| closed(all, index + 1, '[', ']'))
}

fn is_for_tests(attribute: &[Token]) -> bool {
    let words: Vec<&Token> = attribute
        .iter()
        .filter(|token| matches!(token, Token::Word(_)))
        .collect();
    match words[..] {
        [only] => only.is_word("test"),
        [first, second] => first.is_word("cfg") && second.is_word("test"),
        _ => false,
    }
}

/// The end of the item whose attributes continue here.
fn item_end(all: &[Token], mut index: usize) -> usize {
    while let Some(end) = attribute_end(all, index) {
        index = end;
    }
    while index < all.len() {
        match &all[index] {
            Token::Sign('{') => return closed(all, index, '{', '}'),
            Token::Sign(';') => return index + 1,
            _ => index += 1,
        }
    }
    index
}

/// The index after the bracket that closes the one that opens here.
fn closed(all: &[Token], mut index: usize, open: char, close: char) -> usize {
    let mut depth = 0_usize;
    while index < all.len() {
        if all[index].is(open) {
            depth += 1;
        } else if all[index].is(close) {
            depth -= 1;
            if depth == 0 {
                return index + 1;
            }
        }
        index += 1;
    }
    index
}

/// Every path in the tokens: those in expressions and types as they stand, those of imports with all that stands before
/// the braces. `use std::{fs, io::{self, Read}}` gives `std::fs`, `std::io` and `std::io::Read`.
pub(crate) fn paths(all: &[Token]) -> Vec<String> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < all.len() {
        // `use<'a>` declares captures of a type.
        let captures = all.get(index + 1).is_some_and(|next| next.is('<'));
        if all[index].is_word("use") && !captures {
            index = imports(all, index + 1, "", &mut found);
        } else if let Token::Word(first) = &all[index] {
            let mut path = first.clone();
            index += 1;
            while let [Token::Sign(':'), Token::Sign(':'), Token::Word(next), ..] = &all[index..] {
                path = format!("{path}::{next}");
                index += 3;
            }
            found.push(path);
        } else {
            index += 1;
        }
    }
    found
}

/// Reads one tree of imports and returns the index after it.
pub(crate) fn imports(all: &[Token], mut index: usize, before: &str, found: &mut Vec<String>) -> usize {
    let mut path = before.to_owned();
    while let Some(token) = all.get(index) {
        match token {
            Token::Word(word) if word == "as" => index += 2,
            Token::Word(word) if word == "self" => index += 1,
            Token::Word(word) => {
                path = if path.is_empty() {
                    word.clone()
                } else {
                    format!("{path}::{word}")
                };
                index += 1;
            }
            Token::Sign('{') => {
                index += 1;
                while all.get(index).is_some_and(|token| !token.is('}')) {
                    let end = imports(all, index, &path, found);
                    // A token that ends no import is skipped.
                    let is_skipped = end == index || all.get(end).is_some_and(|token| token.is(','));
                    index = end + usize::from(is_skipped);
                }
                return index + 1;
            }
            Token::Sign(',' | ';' | '}') | Token::Text(_) => break,
            Token::Sign(_) => index += 1,
        }
    }
    found.push(path);
    index
}

#[test]
fn paths_are_found_in_nested_imports_and_functions_and_not_in_tests_or_texts() {
    let source = r##"
        //! std::env is not read here.
        use std::{fs as files, io::{self, Read}, time::Duration};
        fn a() -> char { use std::net; let now = jiff::Timestamp::now(); r#"std::process"#; '"' }
        #[cfg(test)]
        #[expect(dead_code)]
        mod tests { fn b() { std::thread::sleep(); } }
        fn c<'a>() -> impl Sized + use<'a> { std::env::var("x"); }
    "##;
    let found = paths(&production(source));
    for path in [
        "std::fs",
        "std::io",
        "std::io::Read",
        "std::net",
        "jiff::Timestamp::now",
        "std::env::var",
    ] {
        assert!(
            found.iter().any(|found| found == path),
            "{path} is not in {found:?}"
        );
    }
    for path in ["std::process", "std::thread"] {
        assert!(!found.iter().any(|found| found.starts_with(path)), "{found:?}");
    }
}
