//! Safe display of text from outside: catalogs, bundles, registries and users may put any character into a name or
//! message. And [`first_of`], the display of a list that may be long, and [`counted`], that of a number.
//!
//! [`escape`] is for one value or line that becomes part of a text, [`escape_lines`] for a text of several lines that
//! is written, and [`escape_json`] for JSON, whose data it does not change.
//!
//! [`names`] and [`duration`] are grammars of texts that several crates read.

pub mod duration;
pub mod names;

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

/// The first `most` names, and the number of the others: `a, b and 3 more`. Names from outside must be escaped before.
pub fn first_of<S: Display>(names: impl ExactSizeIterator<Item = S>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let shown: Vec<String> = names.take(most).map(|name| name.to_string()).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A number of things, with the noun in the singular or the plural: `1 object`, `2 objects`. The noun takes an `s`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The text with all control, bidirectional and invisible characters written as escapes such as `\n`, `\u001b` or
/// `\u202e`. Printable text stays as it is. Escaping twice changes nothing.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_where(text, is_hidden)
}

/// [`escape`] for text of several lines: line feeds and tabs stay.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_where(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t'))
}

/// JSON with the same data, without hidden characters in its strings. Line feeds and tabs, which are layout, stay.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |c| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t');
    escape_by(json, is_escaped, |c, out| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn escape_where(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    escape_by(text, is_escaped, |c, out| match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if u32::from(c) > 0xffff => drop(write!(out, "\\U{:08x}", u32::from(c))),
        c => drop(write!(out, "\\u{:04x}", u32::from(c))),
    })
}

fn escape_by(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    write_escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            write_escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a character is invisible or changes the display of its neighbours.
const fn is_hidden(c: char) -> bool {
    matches!(c,
        // Control characters.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Bidirectional controls.
        | '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Line and paragraph separators.
        | '\u{2028}'..='\u{2029}'
        // Characters without width, and fillers.
        | '\u{ad}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        // Tags and further variation selectors.
        | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_noun_in_the_singular_or_the_plural() {
        let texts = [0_u64, 1, 2].map(|count| counted(count, "object"));
        assert_eq!(texts, ["0 objects", "1 object", "2 objects"]);
    }

    #[test]
    fn hidden_characters_are_escaped_and_printable_text_stays() {
        let check = |text: &str, expected: &str| {
            assert_eq!(escape(text), expected);
            assert_eq!(escape(expected), expected, "escaping twice changes nothing");
        };
        check(
            "plain \"text\", Ünïcödé 漢字 \\n",
            "plain \"text\", Ünïcödé 漢字 \\n",
        );
        check("a\nb\r\tc", "a\\nb\\r\\tc");
        check("\u{1b}[31mred\u{7f}\u{9b}", "\\u001b[31mred\\u007f\\u009b");
        check(
            "safe\u{202e}exe.\u{2066}x\u{2069}",
            "safe\\u202eexe.\\u2066x\\u2069",
        );
        check("pay\u{200b}pal\u{feff}", "pay\\u200bpal\\ufeff");
        check("a\u{e0041}", "a\\U000e0041");
        check("\u{2800}\u{13430}\u{1bca3}", "\\u2800\\U00013430\\U0001bca3");
    }

    #[test]
    fn the_names_beyond_the_most_are_counted() {
        let names = ["a", "b", "c"];
        for (count, expected) in [(0, ""), (2, "a, b"), (3, "a, b and 1 more")] {
            assert_eq!(first_of(names.iter().take(count), 2), expected);
        }
    }

    #[test]
    fn lines_stay_where_a_text_has_several() {
        assert_eq!(escape_lines("a\n\tb\r\u{1b}"), "a\n\tb\\r\\u001b");
    }

    #[test]
    fn json_keeps_its_layout_and_its_data() {
        assert_eq!(
            escape_json("{\n\t\"a\u{202e}\": \"\u{9b}31m\u{e0041}\\u001b\"\n}\n"),
            "{\n\t\"a\\u202e\": \"\\u009b31m\\udb40\\udc41\\u001b\"\n}\n"
        );
    }

    #[test]
    fn text_without_hidden_characters_is_not_copied() {
        assert!(matches!(escape("plain"), Cow::Borrowed(_)));
    }

    proptest::proptest! {
        #[test]
        fn no_control_character_passes(text in "\\PC*[\\x00-\\x1f\\x7f-\\x9f]*\\PC*") {
            proptest::prop_assert!(!escape(&text).chars().any(char::is_control));
        }
    }
}
