//! The words and marks of a GraphQL query.

use std::fmt;

use super::syntax::Fault;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Bang,
    Dollar,
    Ampersand,
    OpenParenthesis,
    CloseParenthesis,
    Spread,
    Colon,
    Equals,
    At,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    Pipe,
    CloseBrace,
    Name,
    Integer,
    Float,
    Text,
    Block,
}

impl Kind {
    /// How messages call it.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::End => "EOF",
            Self::Bang => "!",
            Self::Dollar => "$",
            Self::Ampersand => "&",
            Self::OpenParenthesis => "(",
            Self::CloseParenthesis => ")",
            Self::Spread => "...",
            Self::Colon => ":",
            Self::Equals => "=",
            Self::At => "@",
            Self::OpenBracket => "[",
            Self::CloseBracket => "]",
            Self::OpenBrace => "{",
            Self::Pipe => "|",
            Self::CloseBrace => "}",
            Self::Name => "Name",
            Self::Integer => "Int",
            Self::Float => "Float",
            Self::Text => "String",
            Self::Block => "BlockString",
        }
    }

    fn of_mark(mark: u8) -> Option<Self> {
        Some(match mark {
            b'!' => Self::Bang,
            b'$' => Self::Dollar,
            b'&' => Self::Ampersand,
            b'(' => Self::OpenParenthesis,
            b')' => Self::CloseParenthesis,
            b':' => Self::Colon,
            b'=' => Self::Equals,
            b'@' => Self::At,
            b'[' => Self::OpenBracket,
            b']' => Self::CloseBracket,
            b'{' => Self::OpenBrace,
            b'|' => Self::Pipe,
            b'}' => Self::CloseBrace,
            _ => return None,
        })
    }
}

/// A word or mark, and where it starts. Only words have a text; that of a string is as it is written, without quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) text: &'a str,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.label())?;
        if self.text.is_empty() {
            Ok(())
        } else {
            write!(formatter, " \"{}\"", self.text)
        }
    }
}

/// Cuts a query into tokens.
pub(super) struct Lexer<'a> {
    query: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(query: &'a str) -> Self {
        Self { query, at: 0 }
    }

    /// The next token; [`Kind::End`] again and again at the end.
    pub(super) fn next(&mut self) -> Result<Token<'a>, Fault> {
        self.skip_blanks();
        let start = self.at;
        let Some(byte) = self.byte(0) else {
            return Ok(self.token(Kind::End, start, start..start));
        };
        if let Some(kind) = Kind::of_mark(byte) {
            self.at += 1;
            return Ok(self.token(kind, start, start..start));
        }
        match byte {
            b'.' if self.rest().starts_with("...") => {
                self.at += 3;
                Ok(self.token(Kind::Spread, start, start..start))
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.skip_while(|b| b == b'_' || b.is_ascii_alphanumeric());
                Ok(self.token(Kind::Name, start, start..self.at))
            }
            b'-' | b'0'..=b'9' => self.number(),
            b'"' if self.rest().starts_with("\"\"\"") => self.block(),
            b'"' => self.text(),
            _ => {
                let what = if byte < b' ' { "Invalid" } else { "Unexpected" };
                Err(self.fault(format!("{what} character {}.", self.character())))
            }
        }
    }

    fn number(&mut self) -> Result<Token<'a>, Fault> {
        let start = self.at;
        let mut kind = Kind::Integer;
        if self.byte(0) == Some(b'-') {
            self.at += 1;
        }
        if self.byte(0) == Some(b'0') {
            self.at += 1;
            if self.byte(0).is_some_and(|b| b.is_ascii_digit()) {
                let character = self.character();
                return Err(self.fault(format!("Invalid number, unexpected digit after 0: {character}.")));
            }
        } else {
            self.digits()?;
        }
        if self.byte(0) == Some(b'.') {
            kind = Kind::Float;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(0), Some(b'e' | b'E')) {
            kind = Kind::Float;
            self.at += 1;
            if matches!(self.byte(0), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.token(kind, start, start..self.at))
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let before = self.at;
        self.skip_while(|b| b.is_ascii_digit());
        if self.at > before {
            return Ok(());
        }
        let character = self.character();
        Err(self.fault(format!("Invalid number, expected digit but got: {character}.")))
    }

    fn text(&mut self) -> Result<Token<'a>, Fault> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.byte(0) {
                Some(b'"') => break,
                None | Some(b'\n' | b'\r') => return Err(self.fault("Unterminated string.".to_owned())),
                Some(byte) if byte < b' ' && byte != b'\t' => {
                    let character = self.character();
                    return Err(self.fault(format!("Invalid character within String: {character}.")));
                }
                Some(b'\\') => self.escape()?,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(self.token(Kind::Text, start, start + 1..self.at - 1))
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let digits = self.rest().get(2..6).unwrap_or_default();
        match self.byte(1) {
            Some(b'"' | b'/' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') if digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit()) => self.at += 6,
            Some(b'u') => return Err(self.fault(format!("Invalid character escape sequence: \\u{digits}."))),
            _ => {
                let character = self.rest().chars().nth(1).map(String::from).unwrap_or_default();
                return Err(self.fault(format!("Invalid character escape sequence: \\{character}.")));
            }
        }
        Ok(())
    }

    fn block(&mut self) -> Result<Token<'a>, Fault> {
        let start = self.at;
        self.at += 3;
        loop {
            let rest = self.rest();
            if rest.starts_with("\"\"\"") {
                break;
            }
            match self.byte(0) {
                None => return Err(self.fault("Unterminated string.".to_owned())),
                Some(byte) if byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') => {
                    let character = self.character();
                    return Err(self.fault(format!("Invalid character within String: {character}.")));
                }
                Some(_) if rest.starts_with("\\\"\"\"") => self.at += 4,
                Some(_) => self.at += 1,
            }
        }
        self.at += 3;
        Ok(self.token(Kind::Block, start, start + 3..self.at - 3))
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.byte(0) {
                Some(b'#') => self.skip_while(|b| !matches!(b, b'\n' | b'\r')),
                Some(b' ' | b'\t' | b'\n' | b'\r' | b',') => self.at += 1,
                _ if self.rest().starts_with('\u{feff}') => self.at += '\u{feff}'.len_utf8(),
                _ => return,
            }
        }
    }

    fn skip_while(&mut self, accept: impl Fn(u8) -> bool) {
        while self.byte(0).is_some_and(&accept) {
            self.at += 1;
        }
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.query.as_bytes().get(self.at + ahead).copied()
    }

    /// What is left; nothing inside a character of several bytes, which no token begins with.
    fn rest(&self) -> &'a str {
        self.query.get(self.at..).unwrap_or_default()
    }

    fn token(&self, kind: Kind, start: usize, text: std::ops::Range<usize>) -> Token<'a> {
        Token {
            kind,
            start,
            text: self.query.get(text).unwrap_or_default(),
        }
    }

    /// The character that is next, as messages write it.
    fn character(&self) -> String {
        match self.rest().chars().next() {
            None => "<EOF>".to_owned(),
            Some(character @ ' '..='~') => format!("\"{character}\""),
            Some(character) => format!("\"\\\\u{:04X}\"", u32::from(character)),
        }
    }

    fn fault(&self, what: String) -> Fault {
        Fault { at: self.at, what }
    }
}
