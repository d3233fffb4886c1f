//! Text in double quotes, as the messages of the wire contract quote it.

use std::fmt::Write;

/// `text` in double quotes, control characters and quotes escaped: `"a\tb"`, `"\x00"`, `"\u200b"`.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        let escaped = match character {
            '"' | '\\' => Some(character),
            '\u{7}' => Some('a'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            '\u{b}' => Some('v'),
            _ => None,
        };
        let code = u32::from(character);
        // Writing to a string cannot fail.
        let _ = match escaped {
            Some(letter) => write!(out, "\\{letter}"),
            None if code < 0x20 || code == 0x7f => write!(out, "\\x{code:02x}"),
            None if is_hidden(character) && code > 0xffff => write!(out, "\\U{code:08x}"),
            None if is_hidden(character) => write!(out, "\\u{code:04x}"),
            None => write!(out, "{character}"),
        };
    }
    out.push('"');
    out
}

/// Characters that are invisible or change the display of their neighbours.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || (character.is_whitespace() && character != ' ')
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}'
                | '\u{e0000}'..='\u{10ffff}'
        )
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn invisible_characters_are_escaped() {
        for (text, expected) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("a\"\\\t\n", r#""a\"\\\t\n""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("é\u{200b}\u{feff}\u{e0001}", "\"é\\u200b\\ufeff\\U000e0001\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
