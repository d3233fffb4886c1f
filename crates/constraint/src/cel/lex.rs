//! Splits text into tokens.

use super::PositionedError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    /// The magnitude; a sign is an operator.
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Sign(&'static str),
    End,
}

/// Operators and brackets, longer ones first.
const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", ",", ".", "(", ")",
    "[", "]", "{", "}",
];

/// All tokens with the bytes they begin at; the last is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, PositionedError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let token = lexer.next()?;
        let is_end = token == Token::End;
        tokens.push((token, at));
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn next(&mut self) -> Result<Token, PositionedError> {
        let Some(first) = self.peek() else {
            return Ok(Token::End);
        };
        if let Some(found) = self.quoted()? {
            return Ok(found);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return Ok(Token::Name(name.to_owned()));
        }
        let begins_fraction = first == '.' && self.byte(1).is_some_and(|next| next.is_ascii_digit());
        if first.is_ascii_digit() || begins_fraction {
            return self.number();
        }
        let sign = SIGNS.into_iter().find(|sign| self.rest().starts_with(sign));
        let sign = sign.ok_or_else(|| {
            PositionedError::new(self.at, format!("Syntax error: unexpected character {first:?}"))
        })?;
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }

    fn number(&mut self) -> Result<Token, PositionedError> {
        let start = self.at;
        let wrong = |kind: &str| PositionedError::new(start, format!("invalid {kind} literal"));
        let is_hex = self.byte(0) == Some(b'0')
            && matches!(self.byte(1), Some(b'x'))
            && self.byte(2).is_some_and(|digit| digit.is_ascii_hexdigit());
        if is_hex {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let number = u64::from_str_radix(digits, 16);
            return if self.suffix() {
                number.map(Token::Uint).map_err(|_| wrong("uint"))
            } else {
                number.map(Token::Int).map_err(|_| wrong("int"))
            };
        }
        self.take_while(|c| c.is_ascii_digit());
        let mut is_double = false;
        if self.byte(0) == Some(b'.') && self.byte(1).is_some_and(|digit| digit.is_ascii_digit()) {
            is_double = true;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if matches!(self.byte(0), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(1), Some(b'+' | b'-')));
            if self.byte(1 + sign).is_some_and(|digit| digit.is_ascii_digit()) {
                is_double = true;
                self.at += 1 + sign;
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        let digits = self.text.get(start..self.at).unwrap_or_default();
        if is_double {
            let number: f64 = digits.parse().map_err(|_| wrong("double"))?;
            return if number.is_finite() {
                Ok(Token::Double(number))
            } else {
                Err(wrong("double"))
            };
        }
        if self.suffix() {
            digits.parse().map(Token::Uint).map_err(|_| wrong("uint"))
        } else {
            digits.parse().map(Token::Int).map_err(|_| wrong("int"))
        }
    }

    /// Consumes the suffix of an unsigned number.
    fn suffix(&mut self) -> bool {
        let is_there = matches!(self.byte(0), Some(b'u' | b'U'));
        self.at += usize::from(is_there);
        is_there
    }

    /// A string or bytes, if one begins here.
    fn quoted(&mut self) -> Result<Option<Token>, PositionedError> {
        let start = self.at;
        let (mut is_raw, mut is_bytes, mut ahead) = (false, false, 0);
        // One prefix of each kind, in any order.
        for _ in 0..2 {
            match self.byte(ahead) {
                Some(b'r' | b'R') if !is_raw => is_raw = true,
                Some(b'b' | b'B') if !is_bytes => is_bytes = true,
                _ => break,
            }
            ahead += 1;
        }
        let Some(quote @ (b'"' | b'\'')) = self.byte(ahead) else {
            return Ok(None);
        };
        self.at += ahead;
        let is_long = self.byte(1) == Some(quote) && self.byte(2) == Some(quote);
        self.at += if is_long { 3 } else { 1 };
        let quote = char::from(quote);
        let closing: String = std::iter::repeat_n(quote, if is_long { 3 } else { 1 }).collect();
        let (mut text, mut bytes) = (String::new(), Vec::new());
        loop {
            if self.rest().starts_with(&closing) {
                self.at += closing.len();
                break;
            }
            let open = || PositionedError::new(start, "Syntax error: the string is not closed");
            let next = self.peek().ok_or_else(open)?;
            if matches!(next, '\n' | '\r') && !is_long {
                return Err(open());
            }
            self.at += next.len_utf8();
            if next != '\\' || is_raw {
                text.push(next);
                bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            match self.escape(is_bytes)? {
                Escape::Character(character) => {
                    text.push(character);
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Escape::Byte(byte) => bytes.push(byte),
            }
        }
        Ok(Some(if is_bytes {
            Token::Bytes(bytes)
        } else {
            Token::Text(text)
        }))
    }

    /// The escape after a backslash.
    fn escape(&mut self, is_bytes: bool) -> Result<Escape, PositionedError> {
        let start = self.at;
        let wrong = || PositionedError::new(start, "Syntax error: unable to unescape string");
        let mark = self.peek().ok_or_else(wrong)?;
        self.at += mark.len_utf8();
        let simple = match mark {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '?' | '"' | '\'' | '`' => mark,
            'x' | 'X' => return self.code(2, 16, is_bytes).ok_or_else(wrong),
            'u' if !is_bytes => return self.code(4, 16, false).ok_or_else(wrong),
            'U' if !is_bytes => return self.code(8, 16, false).ok_or_else(wrong),
            '0'..='3' => {
                self.at -= 1;
                return self.code(3, 8, is_bytes).ok_or_else(wrong);
            }
            _ => return Err(wrong()),
        };
        Ok(Escape::Character(simple))
    }

    /// A character or byte given by a number of digits.
    fn code(&mut self, digits: usize, radix: u32, is_byte: bool) -> Option<Escape> {
        let text = self.rest().get(..digits)?;
        if !text.chars().all(|c| c.is_digit(radix)) {
            return None;
        }
        self.at += digits;
        let code = u32::from_str_radix(text, radix).ok()?;
        if is_byte {
            u8::try_from(code).ok().map(Escape::Byte)
        } else {
            char::from_u32(code).map(Escape::Character)
        }
    }
}

enum Escape {
    Character(char),
    Byte(u8),
}
