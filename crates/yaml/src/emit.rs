//! A JSON value as YAML text, byte for byte as Kubernetes tooling writes it.

use serde_json::{Number, Value};

use crate::number::yaml_float;
use crate::order::sort_by_key;
use crate::scalar::{Scalar, resolve};

/// Lines are folded at the first blank after this column.
const WIDTH: usize = 80;
/// Columns per level.
const INDENT: usize = 2;
/// The longest key, in bytes, that is written before a colon instead of after a question mark.
const SIMPLE_KEY: usize = 128;

/// A value as one YAML document without `---`, ending in a line break.
///
/// Keys are sorted with numbers inside them as numbers. Sequences begin at the column of their key. Text that would be
/// read as another type is quoted. Text of several lines is written as a block.
pub fn to_yaml(value: &Value) -> String {
    let mut writer = Writer::default();
    let mut frames = Vec::new();
    writer.node(value, Prefix::Root, &mut frames);
    while let Some(frame) = frames.last_mut() {
        let indent = frame.indent;
        let first = std::mem::take(&mut frame.inline);
        match &mut frame.rest {
            Rest::Mapping(entries) => match entries.pop() {
                Some((key, value)) => {
                    writer.begin_line(indent, first);
                    writer.entry(key, value, indent, &mut frames);
                }
                None => drop(frames.pop()),
            },
            Rest::Sequence(values) => match values.next() {
                Some(value) => {
                    writer.begin_line(indent, first);
                    writer.put("-");
                    writer.node(value, Prefix::AfterIndicator(indent), &mut frames);
                }
                None => drop(frames.pop()),
            },
        }
    }
    writer.end_line();
    writer.out
}

enum Rest<'a> {
    /// The rest of a mapping, last entry first.
    Mapping(Vec<(&'a str, &'a Value)>),
    Sequence(std::slice::Iter<'a, Value>),
}

struct Frame<'a> {
    rest: Rest<'a>,
    indent: usize,
    /// Whether the next entry continues the line, after `- `, `? ` or `: `.
    inline: bool,
}

/// The text before a value.
#[derive(Clone, Copy)]
enum Prefix {
    Root,
    /// `key:`, in a mapping at the column.
    AfterKey(usize),
    /// `-`, or `:` after a long key, at the column.
    AfterIndicator(usize),
}

impl Prefix {
    /// The column of continuation lines of a scalar.
    fn text_indent(self) -> usize {
        match self {
            Self::Root => INDENT,
            Self::AfterKey(indent) | Self::AfterIndicator(indent) => indent + INDENT,
        }
    }

    fn collection(self, is_sequence: bool) -> (usize, bool) {
        match self {
            Self::Root => (0, false),
            Self::AfterKey(indent) if is_sequence => (indent, false),
            Self::AfterKey(indent) => (indent + INDENT, false),
            Self::AfterIndicator(indent) => (indent + INDENT, true),
        }
    }
}

#[derive(Default)]
struct Writer {
    out: String,
    /// The column, in characters.
    column: usize,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_char(&mut self, character: char) {
        self.out.push(character);
        self.column = if is_break(character) { 0 } else { self.column + 1 };
    }

    fn end_line(&mut self) {
        if self.column > 0 {
            self.put_char('\n');
        }
    }

    fn pad(&mut self, indent: usize) {
        while self.column < indent {
            self.put_char(' ');
        }
    }

    fn begin_line(&mut self, indent: usize, inline: bool) {
        if !inline {
            self.end_line();
        }
        self.pad(indent);
    }

    /// Breaks a folded line.
    fn fold(&mut self, indent: usize) {
        self.put_char('\n');
        self.pad(indent);
    }

    fn blank(&mut self) {
        if self.column > 0 {
            self.put_char(' ');
        }
    }

    fn node<'a>(&mut self, value: &'a Value, place: Prefix, frames: &mut Vec<Frame<'a>>) {
        match value {
            Value::Null => self.word("null"),
            Value::Bool(true) => self.word("true"),
            Value::Bool(false) => self.word("false"),
            Value::Number(value) => self.word(&number(value)),
            Value::String(text) => self.text(text, place.text_indent(), Context::Value),
            Value::Array(values) if values.is_empty() => self.word("[]"),
            Value::Object(entries) if entries.is_empty() => self.word("{}"),
            Value::Array(values) => {
                let (indent, inline) = place.collection(true);
                frames.push(Frame {
                    rest: Rest::Sequence(values.iter()),
                    indent,
                    inline,
                });
            }
            Value::Object(entries) => {
                let (indent, inline) = place.collection(false);
                let mut rest =
                    sort_by_key(entries.iter().map(|(key, value)| (key.as_str(), value)).collect());
                rest.reverse();
                frames.push(Frame {
                    rest: Rest::Mapping(rest),
                    indent,
                    inline,
                });
            }
        }
    }

    fn entry<'a>(&mut self, key: &'a str, value: &'a Value, indent: usize, frames: &mut Vec<Frame<'a>>) {
        let place = if key.len() <= SIMPLE_KEY && !key.chars().any(is_break) {
            self.text(key, indent, Context::Key);
            self.put(":");
            Prefix::AfterKey(indent)
        } else {
            self.put("?");
            self.text(key, indent + INDENT, Context::Value);
            self.begin_line(indent, false);
            self.put(":");
            Prefix::AfterIndicator(indent)
        };
        self.node(value, place, frames);
    }

    fn word(&mut self, text: &str) {
        self.blank();
        self.put(text);
    }

    fn text(&mut self, text: &str, indent: usize, context: Context) {
        let allowed = analyse(text);
        let wants_quotes = resolve(text) != Scalar::Text || is_base_sixty(text);
        if context == Context::Value {
            self.blank();
        }
        if text.contains('\n') && allowed.block && context == Context::Value {
            self.literal(text, indent);
        } else if text.contains('\n') || wants_quotes {
            self.double_quoted(text, indent, context);
        } else if allowed.plain {
            self.folded(text, indent, context, Quotes::None);
        } else if allowed.single_quoted {
            self.put("'");
            self.folded(text, indent, context, Quotes::Single);
            self.put("'");
        } else {
            self.double_quoted(text, indent, context);
        }
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with(|first| first == ' ' || is_break(first)) {
            self.put("2");
        }
        let mut from_end = text.chars().rev();
        if !from_end.next().is_some_and(is_break) {
            self.put("-");
        } else if from_end.next().is_none_or(is_break) {
            self.put("+");
        }
        self.put_char('\n');
        let mut at_start = true;
        for character in text.chars() {
            let breaks = is_break(character);
            if at_start && !breaks {
                self.pad(indent);
            }
            self.put_char(character);
            at_start = breaks;
        }
    }

    fn folded(&mut self, text: &str, indent: usize, context: Context, quotes: Quotes) {
        let mut characters = text.chars().enumerate().peekable();
        let (mut after_blank, mut after_break) = (false, false);
        while let Some((at, character)) = characters.next() {
            let next = characters.peek().map(|(_, next)| *next);
            if character == ' ' {
                let inside = next.is_some_and(|next| next != ' ') && (at > 0 || quotes == Quotes::None);
                if context == Context::Value && !after_blank && self.column > WIDTH && inside {
                    self.fold(indent);
                } else {
                    self.put_char(' ');
                }
                after_blank = true;
            } else if is_break(character) {
                self.put_char(character);
                after_break = true;
            } else {
                if after_break {
                    self.pad(indent);
                }
                if character == '\'' && quotes == Quotes::Single {
                    self.put_char('\'');
                }
                self.put_char(character);
                (after_blank, after_break) = (false, false);
            }
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, context: Context) {
        self.put("\"");
        let escapes_all = text.starts_with('\u{feff}');
        let mut characters = text.chars().enumerate().peekable();
        let mut after_blank = false;
        while let Some((at, character)) = characters.next() {
            if escapes_all
                || !is_printable(character)
                || is_break(character)
                || matches!(character, '"' | '\\')
            {
                self.put(&escape(character));
                after_blank = false;
            } else if character == ' ' {
                let next = characters.peek().map(|(_, next)| *next);
                if context == Context::Value
                    && !after_blank
                    && self.column > WIDTH
                    && at > 0
                    && next.is_some()
                {
                    self.fold(indent);
                    if next == Some(' ') {
                        self.put_char('\\');
                    }
                } else {
                    self.put_char(' ');
                }
                after_blank = true;
            } else {
                self.put_char(character);
                after_blank = false;
            }
        }
        self.put("\"");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Key,
    Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Single,
}

/// Numbers that JSON wrote with a point or an exponent stay floating point numbers, in the spelling of YAML.
fn number(value: &Number) -> String {
    if value.is_i64() || value.is_u64() {
        value.to_string()
    } else {
        yaml_float(value.as_f64().unwrap_or_default())
    }
}

fn escape(character: char) -> String {
    let short = match character {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match u32::from(character) {
                code @ ..=0xff => format!("\\x{code:02X}"),
                code @ ..=0xffff => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}

/// Digits in groups of sixty, such as `1:30`: other parsers read them as numbers.
fn is_base_sixty(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut groups = unsigned.split(':');
    let first = groups.next().unwrap_or_default();
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !is_digits(first) {
        return false;
    }
    let mut groups = groups.peekable();
    if groups.peek().is_none() {
        return false;
    }
    while let Some(group) = groups.next() {
        let group = match (group.split_once('.'), groups.peek()) {
            (Some((whole, fraction)), None) if is_digits(fraction) => whole,
            _ => group,
        };
        let fits = match group.as_bytes() {
            [digit] => digit.is_ascii_digit(),
            [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
            _ => false,
        };
        if !fits {
            return false;
        }
    }
    true
}

fn is_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && character != '\u{feff}'
}

/// The styles in which a text can be written without changing it.
struct Allowed {
    plain: bool,
    single_quoted: bool,
    block: bool,
}

fn analyse(text: &str) -> Allowed {
    let mut allowed = Allowed {
        plain: true,
        single_quoted: true,
        block: !text.is_empty(),
    };
    if text.starts_with("---") || text.starts_with("...") {
        allowed.plain = false;
    }
    let mut before = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied();
        let ends_word = next.is_none_or(|next| matches!(next, ' ' | '\t'));
        let indicates = match (before, character) {
            (
                None,
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`',
            ) => true,
            (None, '?' | '-') | (_, ':') => ends_word,
            (Some(before), '#') => matches!(before, ' ' | '\t' | '\0') || is_break(before),
            _ => false,
        };
        if indicates {
            allowed.plain = false;
        }
        if !is_printable(character) {
            (allowed.plain, allowed.single_quoted, allowed.block) = (false, false, false);
        }
        let (at_edge, after_break) = (before.is_none() || next.is_none(), before.is_some_and(is_break));
        if character == ' ' {
            if at_edge {
                allowed.plain = false;
            }
            if next.is_none() {
                allowed.block = false;
            }
            if after_break {
                (allowed.plain, allowed.single_quoted) = (false, false);
            }
        } else if is_break(character) {
            allowed.plain = false;
            if before == Some(' ') {
                (allowed.single_quoted, allowed.block) = (false, false);
            }
        }
        before = Some(character);
    }
    allowed
}
