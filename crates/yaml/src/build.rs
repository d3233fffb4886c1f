//! Events of the parser to a JSON value, without recursion.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};
use crate::limits::{DuplicateKeys, Limits};
use crate::number::{float_value, key_float};
use crate::scalar::{Scalar, Tag, resolve, resolve_tagged};

/// The first document of a YAML (or JSON) text as a JSON value, keys sorted; null when the text is empty.
///
/// Read as Kubernetes tooling reads it, within the default [`Limits`].
pub fn to_json(text: impl AsRef<[u8]>) -> Result<Value, Error> {
    to_json_with(text, &Limits::default())
}

/// [`to_json`] within limits of the caller's choice.
pub fn to_json_with(text: impl AsRef<[u8]>, limits: &Limits) -> Result<Value, Error> {
    let bytes = text.as_ref();
    if bytes.len() > limits.bytes {
        return Err(Error::new(1, 1, ErrorKind::TooLarge(limits.bytes)));
    }
    let text = std::str::from_utf8(bytes).map_err(|fault| {
        let valid = bytes.get(..fault.valid_up_to()).unwrap_or_default();
        let line = 1 + valid.split(|byte| *byte == b'\n').count().saturating_sub(1);
        Error::new(line, 1, ErrorKind::Encoding)
    })?;
    read(text.strip_prefix('\u{feff}').unwrap_or(text), limits)
}

/// The content of a node while it may still become a key.
#[derive(Clone, Debug)]
enum Node {
    Scalar(Scalar, String),
    Collection(Value),
}

/// The size of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    height: usize,
}

#[derive(Debug)]
enum Key {
    Text(String),
    Merge,
}

#[derive(Debug)]
enum Items {
    Sequence {
        values: Vec<Value>,
        /// Whether every element is a mapping or an alias of one, so that `<<` may merge them.
        mergeable: bool,
    },
    Mapping {
        entries: Map<String, Value>,
        key: Option<Key>,
    },
}

#[derive(Debug)]
struct Frame {
    items: Items,
    anchor: usize,
    size: Size,
}

/// The origin of a node. It decides whether `<<` accepts the node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Written { mergeable: bool },
    Alias,
}

struct Builder<'a> {
    limits: &'a Limits,
    frames: Vec<Frame>,
    anchors: HashMap<usize, (Node, Size)>,
    /// The size of `anchors`: nested anchored nodes are stored several times.
    kept: Size,
    nodes: usize,
    alias_nodes: usize,
    alias_bytes: usize,
    result: Option<Value>,
}

/// The maximum of bytes that are read again because lines of quoted scalars begin further left than their neighbours.
const READ_AGAIN: usize = 16 << 20;

/// Reads a document. Blanks before a continuation line of a quoted scalar have no meaning. Kubernetes tooling accepts
/// such a line with any indentation, but the parser requires one, so it is added here.
fn read(text: &str, limits: &Limits) -> Result<Value, Error> {
    let mut text = Cow::Borrowed(text);
    let mut left = READ_AGAIN;
    let mut blanks = None;
    loop {
        let error = match read_once(&text, limits) {
            Ok(value) => return Ok(value),
            Err(ReadFailure::Other(error)) => return Err(error),
            Err(ReadFailure::Margin(error)) => error,
        };
        let blanks = blanks.get_or_insert_with(|| " ".repeat(1 + deepest_margin(&text)));
        let indented = indented(&text, error.position.line, blanks);
        let affordable = indented.and_then(|text| Some((left.checked_sub(text.len())?, text)));
        let Some((rest, indented)) = affordable else {
            return Err(error);
        };
        (left, text) = (rest, Cow::Owned(indented));
    }
}

/// The largest number of blanks that a line begins with.
fn deepest_margin(text: &str) -> usize {
    let margin = |line: &str| line.len() - line.trim_start_matches(' ').len();
    text.split('\n').map(margin).max().unwrap_or_default()
}

/// The text with `blanks` before a line, counted from 1; `None` if there is no such line.
fn indented(text: &str, line: usize, blanks: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + blanks.len());
    let mut found = false;
    for (number, line_text) in text.split_inclusive('\n').enumerate() {
        if number + 1 == line {
            out.push_str(blanks);
            found = true;
        }
        out.push_str(line_text);
    }
    found.then_some(out)
}

/// The reason why a text could not be read.
enum ReadFailure {
    /// A line of a quoted scalar begins too far left.
    Margin(Error),
    /// Any other error.
    Other(Error),
}

fn read_once(text: &str, limits: &Limits) -> Result<Value, ReadFailure> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: limits.depth + 1,
        block_nesting_limit: limits.depth + 1,
    };
    let mut builder = Builder {
        limits,
        frames: Vec::new(),
        anchors: HashMap::new(),
        kept: Size::default(),
        nodes: 0,
        alias_nodes: 0,
        alias_bytes: 0,
        result: None,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|fault| {
            let error = Error::new(
                fault.marker().line(),
                fault.marker().col() + 1,
                ErrorKind::Syntax(fault.info()),
            );
            match fault.kind() {
                granit_parser::ErrorKind::InvalidQuotedScalarIndent => ReadFailure::Margin(error),
                _ => ReadFailure::Other(error),
            }
        })?;
        if matches!(event, Event::DocumentEnd | Event::StreamEnd) {
            break;
        }
        if builder.is_outside() && is_indented_by_tab(text, span) {
            return Err(ReadFailure::Other(Error::new(
                span.start.line(),
                1,
                ErrorKind::Syntax("found a tab where a line begins".to_owned()),
            )));
        }
        builder
            .take(event, span, text)
            .map_err(|kind| ReadFailure::Other(Error::new(span.start.line(), span.start.col() + 1, kind)))?;
    }
    Ok(builder.result.unwrap_or(Value::Null))
}

/// Whether there is a tab between the beginning of the line and the place. The parser accepts it before the first node.
fn is_indented_by_tab(text: &str, span: Span) -> bool {
    let before = span.start.byte_offset().and_then(|at| text.get(..at));
    let line = before
        .and_then(|before| before.rsplit('\n').next())
        .unwrap_or_default();
    line.contains('\t') && line.trim_start_matches([' ', '\t']).is_empty()
}

impl Builder<'_> {
    /// Whether no node of the document was read.
    fn is_outside(&self) -> bool {
        self.frames.is_empty() && self.result.is_none()
    }

    fn take(&mut self, event: Event<'_>, span: Span, source: &str) -> Result<(), ErrorKind> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
                let text = written(text, style, span, source);
                let size = Size {
                    nodes: 1,
                    bytes: text.len(),
                    height: 0,
                };
                self.count(1)?;
                if text == "<<"
                    && self.expects_key()
                    && match tag.as_deref() {
                        None => style == ScalarStyle::Plain,
                        Some(tag) => tag == "!" || tag == "tag:yaml.org,2002:merge",
                    }
                {
                    return self.set_key(Key::Merge);
                }
                let node = scalar(text, style, tag.as_deref())?;
                self.keep(anchor, &node, size)?;
                self.place(node, size, Origin::Written { mergeable: false })
            }
            Event::SequenceStart(_, anchor, _) => self.open(
                Items::Sequence {
                    values: Vec::new(),
                    mergeable: true,
                },
                anchor,
            ),
            Event::MappingStart(_, anchor, _) => self.open(
                Items::Mapping {
                    entries: Map::new(),
                    key: None,
                },
                anchor,
            ),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor),
            _ => Ok(()),
        }
    }

    fn count(&mut self, nodes: usize) -> Result<(), ErrorKind> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.limits.nodes {
            Err(ErrorKind::TooManyNodes(self.limits.nodes))
        } else {
            Ok(())
        }
    }

    fn open(&mut self, items: Items, anchor: usize) -> Result<(), ErrorKind> {
        self.count(1)?;
        if self.frames.len() >= self.limits.depth {
            return Err(ErrorKind::TooDeep(self.limits.depth));
        }
        self.frames.push(Frame {
            items,
            anchor,
            size: Size {
                nodes: 1,
                bytes: 0,
                height: 1,
            },
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), ErrorKind> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        let (value, mergeable) = match frame.items {
            Items::Sequence { values, mergeable } => (Value::Array(values), mergeable),
            Items::Mapping { mut entries, .. } => {
                entries.sort_keys();
                (Value::Object(entries), true)
            }
        };
        let node = Node::Collection(value);
        self.keep(frame.anchor, &node, frame.size)?;
        self.place(node, frame.size, Origin::Written { mergeable })
    }

    /// Keeps an anchored node for its aliases.
    fn keep(&mut self, anchor: usize, node: &Node, size: Size) -> Result<(), ErrorKind> {
        if anchor == 0 {
            return Ok(());
        }
        self.kept.nodes = self.kept.nodes.saturating_add(size.nodes);
        self.kept.bytes = self.kept.bytes.saturating_add(size.bytes);
        if self.kept.bytes > self.limits.bytes {
            return Err(ErrorKind::ExcessiveAliasing);
        }
        if self.kept.nodes > self.limits.nodes {
            return Err(ErrorKind::TooManyNodes(self.limits.nodes));
        }
        self.anchors.insert(anchor, (node.clone(), size));
        Ok(())
    }

    fn alias(&mut self, anchor: usize) -> Result<(), ErrorKind> {
        let Some((node, size)) = self.anchors.get(&anchor) else {
            // The parser knows the anchor, so that its node must still be open.
            return Err(ErrorKind::SelfReference);
        };
        let size = *size;
        self.nodes = self.nodes.saturating_add(1).saturating_add(size.nodes);
        self.alias_nodes = self.alias_nodes.saturating_add(size.nodes);
        self.alias_bytes = self.alias_bytes.saturating_add(size.bytes);
        if self.alias_bytes > self.limits.bytes || is_excessive(self.alias_nodes, self.nodes) {
            return Err(ErrorKind::ExcessiveAliasing);
        }
        if self.nodes > self.limits.nodes {
            return Err(ErrorKind::TooManyNodes(self.limits.nodes));
        }
        if self.frames.len() + size.height > self.limits.depth {
            return Err(ErrorKind::TooDeep(self.limits.depth));
        }
        let node = node.clone();
        self.place(node, size, Origin::Alias)
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.frames.last(),
            Some(Frame {
                items: Items::Mapping { key: None, .. },
                ..
            })
        )
    }

    fn set_key(&mut self, new: Key) -> Result<(), ErrorKind> {
        if let Some(Frame {
            items: Items::Mapping { key, entries },
            ..
        }) = self.frames.last_mut()
        {
            if self.limits.duplicate_keys == DuplicateKeys::Refuse
                && let Key::Text(text) = &new
                && entries.contains_key(text)
            {
                return Err(ErrorKind::DuplicateKey(text.clone()));
            }
            *key = Some(new);
        }
        Ok(())
    }

    fn place(&mut self, node: Node, size: Size, origin: Origin) -> Result<(), ErrorKind> {
        let Some(frame) = self.frames.last_mut() else {
            self.result = Some(into_value(node)?);
            return Ok(());
        };
        frame.size.nodes = frame.size.nodes.saturating_add(size.nodes);
        frame.size.bytes = frame.size.bytes.saturating_add(size.bytes);
        frame.size.height = frame.size.height.max(size.height + 1);
        match &mut frame.items {
            Items::Sequence { values, mergeable } => {
                let value = into_value(node)?;
                *mergeable &= value.is_object();
                values.push(value);
                Ok(())
            }
            Items::Mapping { entries, key } => match key.take() {
                None => self.set_key(Key::Text(into_key(node)?)),
                Some(Key::Text(text)) => {
                    entries.insert(text, into_value(node)?);
                    Ok(())
                }
                Some(Key::Merge) => merge(entries, into_value(node)?, origin),
            },
        }
    }
}

/// Whether aliases contribute too much to a document: the limit is nearly all of a small one, and a tenth of a large
/// one.
fn is_excessive(from_aliases: usize, all: usize) -> bool {
    const SMALL: f64 = 400_000.0;
    const LARGE: f64 = 4_000_000.0;
    if from_aliases <= 100 || all <= 1000 {
        return false;
    }
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more")]
    let (from_aliases, all) = (from_aliases as f64, all as f64);
    let progress = ((all - SMALL) / (LARGE - SMALL)).clamp(0.0, 1.0);
    from_aliases / all > 0.99 - 0.89 * progress
}

/// Merges the entries of `<<`. They replace earlier entries, and later entries replace them.
fn merge(entries: &mut Map<String, Value>, value: Value, origin: Origin) -> Result<(), ErrorKind> {
    match (value, origin) {
        (Value::Object(source), _) => entries.extend(source),
        (Value::Array(sources), Origin::Written { mergeable: true }) => {
            for source in sources.into_iter().rev() {
                if let Value::Object(source) = source {
                    entries.extend(source);
                }
            }
        }
        _ => return Err(ErrorKind::Merge),
    }
    Ok(())
}

/// The text of a scalar as written. The parser returns `~` for an absent one, and adds a missing line break to a block
/// scalar at the end of the file.
fn written(text: Cow<'_, str>, style: ScalarStyle, span: Span, source: &str) -> String {
    let mut text = text.into_owned();
    match style {
        ScalarStyle::Plain if span.is_empty() => text.clear(),
        ScalarStyle::Literal | ScalarStyle::Folded if ends_in_missing_break(&text, span, source) => {
            text.pop();
        }
        _ => {}
    }
    text
}

/// Whether the line break that ends the block scalar at `span` is not in the source.
fn ends_in_missing_break(text: &str, span: Span, source: &str) -> bool {
    let Some(content) = text.strip_suffix('\n') else {
        return false;
    };
    if source.ends_with(['\n', '\r']) || span.end.byte_offset().is_some_and(|end| end < source.len()) {
        return false;
    }
    let last_line = source.rsplit(['\n', '\r']).next().unwrap_or_default();
    if last_line.trim_matches([' ', '\t']).is_empty() {
        // Blanks beyond the indentation are content; otherwise only a scalar that keeps its line breaks ends like this.
        return content.ends_with(['\n', ' ', '\t']) || content.is_empty();
    }
    content.ends_with(last_line.trim_start_matches([' ', '\t']))
}

fn scalar(text: String, style: ScalarStyle, tag: Option<&str>) -> Result<Node, ErrorKind> {
    let core = tag.and_then(|tag| tag.strip_prefix("tag:yaml.org,2002:"));
    let meaning = match (tag, core) {
        (None, _) if style != ScalarStyle::Plain => Scalar::Text,
        (None, _) => resolve(&text),
        (_, Some("bool")) => resolve_tagged(&text, Tag::Bool)?,
        (_, Some("int")) => resolve_tagged(&text, Tag::Int)?,
        (_, Some("float")) => resolve_tagged(&text, Tag::Float)?,
        (_, Some("null")) => resolve_tagged(&text, Tag::Null)?,
        (_, Some("timestamp")) => resolve_tagged(&text, Tag::Timestamp)?,
        (_, Some("binary")) => return decode(&text).map(|text| Node::Scalar(Scalar::Text, text)),
        _ => Scalar::Text,
    };
    Ok(Node::Scalar(meaning, text))
}

/// Base64 with padding; line breaks between the digits are skipped. Each byte that is not UTF-8 becomes U+FFFD.
fn decode(text: &str) -> Result<String, ErrorKind> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held, mut padding) = (0_u32, 0_u32, 0_u32);
    for character in text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')) {
        let digit = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' if held >= 2 && held + padding < 4 => {
                padding += 1;
                continue;
            }
            _ => return Err(ErrorKind::Binary),
        };
        if padding > 0 {
            return Err(ErrorKind::Binary);
        }
        bits = bits << 6 | u32::from(digit);
        held += 1;
        if held == 4 {
            bytes.extend(bits.to_be_bytes().iter().skip(1));
            (bits, held) = (0, 0);
        }
    }
    match (held, padding) {
        (0, 0) => {}
        (2, 2) => bytes.extend((bits << 12).to_be_bytes().iter().skip(1).take(1)),
        (3, 1) => bytes.extend((bits << 6).to_be_bytes().iter().skip(1).take(2)),
        _ => return Err(ErrorKind::Binary),
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Ok(text)
}

fn into_value(node: Node) -> Result<Value, ErrorKind> {
    Ok(match node {
        Node::Collection(value) => value,
        Node::Scalar(Scalar::Null, _) => Value::Null,
        Node::Scalar(Scalar::Bool(value), _) => Value::Bool(value),
        Node::Scalar(Scalar::Int(value), _) => Value::from(value),
        Node::Scalar(Scalar::Uint(value), _) => Value::from(value),
        Node::Scalar(Scalar::Float(value), _) => {
            float_value(value).ok_or(ErrorKind::NotFinite(match (value.is_nan(), value > 0.0) {
                (true, _) => "NaN",
                (false, true) => "+Inf",
                (false, false) => "-Inf",
            }))?
        }
        Node::Scalar(Scalar::Text | Scalar::Timestamp, text) => Value::String(text),
    })
}

fn into_key(node: Node) -> Result<String, ErrorKind> {
    match node {
        Node::Scalar(Scalar::Text | Scalar::Timestamp, text) => Ok(text),
        Node::Scalar(Scalar::Bool(value), _) => Ok(value.to_string()),
        Node::Scalar(Scalar::Int(value), _) => Ok(value.to_string()),
        Node::Scalar(Scalar::Float(value), _) => Ok(key_float(value)),
        Node::Scalar(Scalar::Null, _) => Err(ErrorKind::Key("null".to_owned())),
        Node::Scalar(Scalar::Uint(value), _) => Err(ErrorKind::Key(value.to_string())),
        Node::Collection(Value::Array(_)) => Err(ErrorKind::Key("a sequence".to_owned())),
        Node::Collection(_) => Err(ErrorKind::Key("a mapping".to_owned())),
    }
}
