//! The canonical form in which a blob is stored, served and compared.
//!
//! Canonical JSON has no blanks outside strings, keys in the order of their bytes, only the last of equal keys, and
//! strings with the shortest escapes. Numbers keep their digits. The work is proportional to the text whatever its
//! nesting: one pass finds the unordered objects, a second one writes.

use std::borrow::Cow;

/// A member of an object: the ranges of its key (with quotes) and its value in the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    key: (usize, usize),
    value: (usize, usize),
}

impl Member {
    pub(crate) fn key<'a>(&self, text: &'a str) -> Cow<'a, str> {
        unescape(inside_quotes(slice(text, self.key)))
    }

    /// The JSON text of the value.
    pub(crate) fn value<'a>(&self, text: &'a str) -> &'a str {
        slice(text, self.value).trim()
    }
}

/// An object with unordered members: its extent in the text, and its members in `Order::members`.
struct Unordered {
    start: usize,
    end: usize,
    members: (usize, usize),
}

/// The moves that bring a text into canonical form.
pub(crate) struct Order {
    /// The members of the root, of equal keys the last only, in order of their keys.
    pub(crate) root: Vec<Member>,
    /// A key that occurs more than once in an object.
    pub(crate) repeated: Option<String>,
    unordered: Vec<Unordered>,
    members: Vec<Member>,
}

struct Frame {
    /// The position of the bracket.
    start: usize,
    /// For an object, the first of its members among the pending ones.
    object: Option<usize>,
}

/// Finds the objects of `text`, which is valid JSON, that are out of order.
pub(crate) fn order(text: &str) -> Order {
    let bytes = text.as_bytes();
    let mut frames: Vec<Frame> = Vec::new();
    let mut pending: Vec<Member> = Vec::new();
    let mut order = Order {
        root: Vec::new(),
        repeated: None,
        unordered: Vec::new(),
        members: Vec::new(),
    };
    // The key whose value has not begun yet.
    let mut key = None;
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            b'"' => {
                let end = string_end(bytes, at);
                let in_object = frames.last().is_some_and(|frame| frame.object.is_some());
                if in_object && key.is_none() && !open_value(&pending, frames.last()) {
                    key = Some((at, end));
                }
                at = end;
                continue;
            }
            b':' => {
                if let Some(key) = key.take() {
                    pending.push(Member {
                        key,
                        value: (at + 1, 0),
                    });
                }
            }
            b',' => close_value(&mut pending, frames.last(), at),
            b'{' => frames.push(Frame {
                start: at,
                object: Some(pending.len()),
            }),
            b'[' => frames.push(Frame {
                start: at,
                object: None,
            }),
            b'}' | b']' => {
                close_value(&mut pending, frames.last(), at);
                if let Some(Frame {
                    start,
                    object: Some(base),
                }) = frames.pop()
                {
                    let is_root = frames.is_empty();
                    finish_object(
                        text,
                        start..at + 1,
                        pending.get(base..).unwrap_or_default(),
                        is_root,
                        &mut order,
                    );
                    pending.truncate(base);
                }
            }
            _ => {}
        }
        at += 1;
    }
    order.unordered.sort_unstable_by_key(|object| object.start);
    order
}

/// Whether the value of the last member of the object in `frame` has not ended yet.
fn open_value(pending: &[Member], frame: Option<&Frame>) -> bool {
    let Some(Frame {
        object: Some(base), ..
    }) = frame
    else {
        return false;
    };
    pending.len() > *base && pending.last().is_some_and(|member| member.value.1 == 0)
}

fn close_value(pending: &mut [Member], frame: Option<&Frame>, at: usize) {
    if open_value(pending, frame)
        && let Some(member) = pending.last_mut()
    {
        member.value.1 = at;
    }
}

fn finish_object(
    text: &str,
    extent: std::ops::Range<usize>,
    members: &[Member],
    is_root: bool,
    order: &mut Order,
) {
    let ordered = members.windows(2).all(|pair| match pair {
        [left, right] => left.key(text) < right.key(text),
        _ => true,
    });
    if ordered {
        if is_root {
            order.root = members.to_vec();
        }
        return;
    }
    let mut keyed: Vec<(Cow<'_, str>, Member)> =
        members.iter().map(|member| (member.key(text), *member)).collect();
    keyed.sort_by(|left, right| left.0.cmp(&right.0));
    let first = order.members.len();
    let mut members = keyed.into_iter().peekable();
    while let Some((key, member)) = members.next() {
        // The sort is stable, so that the last of equal keys is the last in the text.
        if members.peek().is_none_or(|(next, _)| *next != key) {
            order.members.push(member);
        } else if order.repeated.is_none() {
            order.repeated = Some(key.into_owned());
        }
    }
    let last = order.members.len();
    if is_root {
        order.root = order.members.get(first..last).unwrap_or_default().to_vec();
    }
    order.unordered.push(Unordered {
        start: extent.start,
        end: extent.end,
        members: (first, last),
    });
}

enum PendingValue {
    /// A part of the text to copy.
    Text(usize, usize),
    /// Members to write, and whether the next one is the first.
    Members { next: usize, end: usize, first: bool },
}

/// Writes `text`, which is valid JSON, in canonical form. `order` is the text's own.
pub(crate) fn write(text: &str, order: &Order, out: &mut String) {
    let mut stack = vec![PendingValue::Text(0, text.len())];
    while let Some(work) = stack.pop() {
        match work {
            PendingValue::Text(at, end) => copy(text, at, end, order, out, &mut stack),
            PendingValue::Members { next, end, first } => {
                let Some(member) = order.members.get(next).filter(|_| next < end) else {
                    out.push('}');
                    continue;
                };
                if !first {
                    out.push(',');
                }
                write_token(slice(text, member.key), out);
                out.push(':');
                stack.push(PendingValue::Members {
                    next: next + 1,
                    end,
                    first: false,
                });
                stack.push(PendingValue::Text(member.value.0, member.value.1));
            }
        }
    }
}

/// Copies a stretch up to its end or to an object that is out of order.
fn copy(
    text: &str,
    start: usize,
    end: usize,
    order: &Order,
    out: &mut String,
    stack: &mut Vec<PendingValue>,
) {
    let bytes = text.as_bytes();
    let mut at = start;
    let mut copied = start;
    while at < end {
        match bytes.get(at).copied() {
            Some(b'"') => {
                let string_end = string_end(bytes, at);
                if needs_rewriting(slice(text, (at, string_end)).as_bytes()) {
                    out.push_str(slice(text, (copied, at)));
                    write_token(slice(text, (at, string_end)), out);
                    copied = string_end;
                }
                at = string_end;
            }
            Some(b' ' | b'\n' | b'\r' | b'\t') => {
                out.push_str(slice(text, (copied, at)));
                at += 1;
                copied = at;
            }
            Some(b'{') if !order.unordered.is_empty() => {
                let found = order.unordered.binary_search_by_key(&at, |object| object.start);
                if let Some(object) = found.ok().and_then(|found| order.unordered.get(found)) {
                    out.push_str(slice(text, (copied, at)));
                    out.push('{');
                    stack.push(PendingValue::Text(object.end, end));
                    stack.push(PendingValue::Members {
                        next: object.members.0,
                        end: object.members.1,
                        first: true,
                    });
                    return;
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    out.push_str(slice(text, (copied, end)));
}

/// The canonical form of `text`, which is valid JSON.
pub fn canonical(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    write(text, &order(text), &mut out);
    out
}

/// Writes `text` as a JSON string.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) =
        rest.find(|letter: char| letter < ' ' || matches!(letter, '"' | '\\' | '\u{2028}' | '\u{2029}'))
    {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        let mut letters = special.chars();
        if let Some(letter) = letters.next() {
            write_letter(letter, out);
        }
        rest = letters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

fn write_letter(letter: char, out: &mut String) {
    match letter {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\u{2028}' => out.push_str("\\u2028"),
        '\u{2029}' => out.push_str("\\u2029"),
        letter if letter < ' ' => {
            out.push_str("\\u00");
            for shift in [4, 0] {
                out.extend(char::from_digit((u32::from(letter) >> shift) & 0xf, 16));
            }
        }
        letter => out.push(letter),
    }
}

/// Whether the string token can have a shorter or safer spelling. Escapes such as `\n` and `\"` have none.
fn needs_rewriting(token: &[u8]) -> bool {
    let mut rest = token;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        if let Some(b'u' | b'/') = rest.get(at + 1) {
            return true;
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    has_separator(token)
}

/// Whether the token contains one of the two line separators that JavaScript does not allow in strings.
fn has_separator(token: &[u8]) -> bool {
    memchr::memchr_iter(0xe2, token).any(|at| matches!(token.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])))
}

fn write_token(token: &str, out: &mut String) {
    if needs_rewriting(token.as_bytes()) {
        write_string(&unescape(inside_quotes(token)), out);
    } else {
        out.push_str(token);
    }
}

fn slice(text: &str, (start, end): (usize, usize)) -> &str {
    text.get(start..end).unwrap_or_default()
}

fn inside_quotes(token: &str) -> &str {
    token.get(1..token.len().saturating_sub(1)).unwrap_or_default()
}

/// The end of the string that begins at `start`, including its closing quote.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        if bytes.get(at + found) == Some(&b'"') {
            return at + found + 1;
        }
        at += found + 2;
    }
    bytes.len()
}

/// The unescaped content of a JSON string. Half a surrogate pair becomes the replacement character.
pub(crate) fn unescape(inside: &str) -> Cow<'_, str> {
    if !inside.contains('\\') {
        return Cow::Borrowed(inside);
    }
    let mut out = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        out.push_str(plain);
        let mut letters = escape.chars();
        letters.next();
        let escaped = letters.next();
        rest = letters.as_str();
        match escaped {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let (letter, after) = unicode_escape(rest);
                out.push(letter);
                rest = after;
            }
            Some(letter) => out.push(letter),
            None => {}
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The letter of the four digits at the start of `digits`, combined with a second escape for a surrogate pair.
fn unicode_escape(digits: &str) -> (char, &str) {
    let Some((unit, after)) = hex4(digits) else {
        return (char::REPLACEMENT_CHARACTER, digits);
    };
    if let Some(letter) = char::from_u32(unit) {
        return (letter, after);
    }
    if unit < 0xdc00
        && let Some((low, after_low)) = after.strip_prefix("\\u").and_then(hex4)
        && (0xdc00..0xe000).contains(&low)
        && let Some(letter) = char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
    {
        return (letter, after_low);
    }
    (char::REPLACEMENT_CHARACTER, after)
}

fn hex4(text: &str) -> Option<(u32, &str)> {
    let unit = u32::from_str_radix(text.get(..4)?, 16).ok()?;
    Some((unit, text.get(4..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::canonical;

    fn check(text: &str, expected: &str) {
        assert_eq!(canonical(text), expected, "{text}");
        assert_eq!(
            canonical(expected),
            expected,
            "the canonical form of {text} is not its own canonical form"
        );
    }

    #[test]
    fn keys_are_sorted_at_every_level() {
        check(
            r#" { "zeta" : [ 1 , {"b":2,"a":{"d":[],"c":{}}} ] , "alpha" : null } "#,
            r#"{"alpha":null,"zeta":[1,{"a":{"c":{},"d":[]},"b":2}]}"#,
        );
        check(
            r#"{"a":{"y":1,"x":"}"},"A":"{\"b\":1,\"a\":2}"}"#,
            r#"{"A":"{\"b\":1,\"a\":2}","a":{"x":"}","y":1}}"#,
        );
        check("[]", "[]");
        check(" 1 ", "1");
    }

    #[test]
    fn keys_sort_by_their_decoded_value() {
        check(r#"{"b":1,"\u0061":2}"#, r#"{"a":2,"b":1}"#);
        check(r#"{"\u0061":1,"a":2}"#, r#"{"a":2}"#);
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        check(
            r#"{"a":1,"b":{"x":1,"x":[2]},"a":{"c":3}}"#,
            r#"{"a":{"c":3},"b":{"x":[2]}}"#,
        );
    }

    #[test]
    fn strings_have_one_spelling() {
        check(
            r#""\/\u0041\u00e9\ud83d\ude00\b\f\n\r\t\"\\""#,
            "\"/Aé😀\\b\\f\\n\\r\\t\\\"\\\\\"",
        );
        check(r#""\u0000\u001f\u2028\u007f""#, "\"\\u0000\\u001f\\u2028\u{7f}\"");
        check("\"\u{2028}\u{2029}<>&\"", r#""\u2028\u2029<>&""#);
    }

    #[test]
    fn half_a_surrogate_pair_becomes_the_replacement_character() {
        check(
            r#""\ud800x\udc00\ud800A\ud800""#,
            "\"\u{fffd}x\u{fffd}\u{fffd}A\u{fffd}\"",
        );
    }

    #[test]
    fn numbers_keep_their_digits() {
        check(
            "[1e3, 1.10, 12345678901234567890, -0]",
            "[1e3,1.10,12345678901234567890,-0]",
        );
    }

    #[test]
    fn deep_nesting_that_is_out_of_order_takes_no_more_than_its_share() {
        let depth = 100_000;
        let text = format!("{}0{}", r#"{"b":1,"a":"#.repeat(depth), "}".repeat(depth));
        let expected = format!("{}0{}", r#"{"a":"#.repeat(depth), r#","b":1}"#.repeat(depth));
        assert_eq!(canonical(&text), expected);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn sorted(value: &Value) -> Value {
        match value {
            Value::Array(elements) => elements.iter().map(sorted).collect(),
            Value::Object(members) => {
                let mut members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| (key.clone(), sorted(value)))
                    .collect();
                members.sort_by(|left, right| left.0.cmp(&right.0));
                Value::Object(members.into_iter().collect())
            }
            other => other.clone(),
        }
    }

    proptest! {
        #[test]
        fn the_meaning_stays_and_the_form_is_unique(value in value()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let canonical = canonical(&pretty);
            prop_assert_eq!(&serde_json::from_str::<Value>(&canonical).unwrap(), &value);
            prop_assert_eq!(super::canonical(&sorted(&value).to_string()), canonical);
        }
    }
}
