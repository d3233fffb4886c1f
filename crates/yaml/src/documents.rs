//! A stream of YAML or JSON documents, one at a time.

use std::io::BufRead;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::build::to_json_with;
use crate::error::{Error, ErrorKind};
use crate::limits::Limits;

/// One document of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The line of the stream at which the document begins, counted from 1.
    pub line: usize,
    /// The content of the document.
    pub content: DocumentContent,
}

/// The content of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentContent {
    /// The text of a JSON value exactly as written. It is valid JSON.
    Json(String),
    /// The value of a YAML document, with sorted keys. [`Value::Null`] if the document contains only comments.
    Yaml(Value),
}

impl Document {
    /// The document as a value; null for a document of comments only.
    ///
    /// # Errors
    /// None in practice: JSON text is checked when it is read.
    pub fn into_value(self) -> Result<Value, Error> {
        match self.content {
            DocumentContent::Yaml(value) => Ok(value),
            DocumentContent::Json(text) => serde_json::from_str(&text).map_err(|fault| {
                let line = self.line + fault.line().saturating_sub(1);
                Error::new(line, fault.column(), ErrorKind::Json(message_of(&fault)))
            }),
        }
    }
}

/// The fault of JSON without its place, which is relative to the document instead of the file.
fn message_of(fault: &serde_json::Error) -> String {
    let text = fault.to_string();
    let place = format!(" at line {} column {}", fault.line(), fault.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

enum Mode {
    Unknown,
    /// A sequence of JSON values, and the number of values so far.
    Json(usize),
    Yaml,
    Ended,
}

/// The documents of a stream, read one at a time; see [`documents`].
pub struct Documents<R> {
    reader: R,
    limits: Limits,
    mode: Mode,
    /// Bytes read from the stream and not yet part of a document, from `start` on.
    pending: Vec<u8>,
    start: usize,
    /// Lines of the stream before `pending`.
    lines: usize,
}

/// The documents of a stream, separated as in Kubernetes tooling.
///
/// A stream whose first character is `{` is a sequence of JSON values; if the first or second of them is not valid
/// JSON, the rest is read as YAML. YAML documents are separated by lines that begin with `---` and contain nothing else
/// but a comment. An empty part is not a document; a part with only comments is the document null. After an error the
/// iterator ends. At most one document is in memory.
pub fn documents<R: BufRead>(reader: R, limits: &Limits) -> Documents<R> {
    Documents {
        reader,
        limits: *limits,
        mode: Mode::Unknown,
        pending: Vec::new(),
        start: 0,
        lines: 0,
    }
}

impl<R: BufRead> Iterator for Documents<R> {
    type Item = Result<Document, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        match next {
            Ok(Some(document)) => Some(Ok(document)),
            Ok(None) => {
                self.mode = Mode::Ended;
                None
            }
            Err(fault) => {
                self.mode = Mode::Ended;
                Some(Err(fault))
            }
        }
    }
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count().saturating_sub(1)
}

impl<R: BufRead> Documents<R> {
    fn advance(&mut self) -> Result<Option<Document>, Error> {
        if matches!(self.mode, Mode::Unknown) {
            self.mode = if self.begins_as_json()? {
                Mode::Json(0)
            } else {
                Mode::Yaml
            };
        }
        match self.mode {
            Mode::Json(read) => match self.json()? {
                Step::Document(document) => {
                    self.mode = Mode::Json(read + 1);
                    Ok(Some(document))
                }
                Step::End => Ok(None),
                Step::Invalid(fault) if read > 1 => Err(fault),
                Step::Invalid(json_fault) => {
                    self.mode = Mode::Yaml;
                    self.skip_line_end();
                    // A comment has a line of its own; behind a value it would be one of JSON, which has none.
                    if read > 0 && self.is_inside_line() && self.rest().first() == Some(&b'#') {
                        return Err(json_fault);
                    }
                    // Neither reading fits: the one the stream began with is named.
                    self.yaml().map_err(|_| json_fault)
                }
            },
            Mode::Yaml => self.yaml(),
            Mode::Unknown | Mode::Ended => Ok(None),
        }
    }

    fn rest(&self) -> &[u8] {
        self.pending.get(self.start..).unwrap_or_default()
    }

    fn fail(&self, kind: ErrorKind) -> Error {
        Error::new(self.lines + 1, 1, kind)
    }

    /// Reads the next line of the stream into `pending`; false at the end of the stream.
    fn fill(&mut self) -> Result<bool, Error> {
        let mut line = 0;
        loop {
            let before = self.pending.len() - self.start;
            let ended = self.fill_until(|available| memchr::memchr(b'\n', available).map(|at| at + 1))?;
            line += self.pending.len() - before;
            if ended {
                return Ok(line > 0);
            }
        }
    }

    /// Reads available data of the stream into `pending`, until `end` returns a position. Returns true if it did or the
    /// stream ended.
    fn fill_until(&mut self, end: impl FnOnce(&[u8]) -> Option<usize>) -> Result<bool, Error> {
        if self.start > 0 {
            self.pending.drain(..self.start);
            self.start = 0;
        }
        let available = loop {
            match self.reader.fill_buf() {
                Ok(_) => break self.reader.fill_buf(),
                Err(fault) if fault.kind() == std::io::ErrorKind::Interrupted => {}
                Err(fault) => break Err(fault),
            }
        };
        let (taken, ended) = match available {
            Ok(available) => {
                let end = end(available);
                let taken = end.unwrap_or(available.len());
                self.pending
                    .extend_from_slice(available.get(..taken).unwrap_or_default());
                (taken, end.is_some() || available.is_empty())
            }
            Err(fault) => return Err(self.fail(ErrorKind::Read(fault))),
        };
        self.reader.consume(taken);
        if self.pending.len() > self.limits.bytes.saturating_add(taken) {
            return Err(self.fail(ErrorKind::TooLarge(self.limits.bytes)));
        }
        Ok(ended)
    }

    fn consume(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.rest().get(..bytes).unwrap_or_default().to_vec();
        self.skip(bytes);
        taken
    }

    fn skip(&mut self, bytes: usize) {
        let skipped = self.rest().get(..bytes).unwrap_or_default();
        let (lines, length) = (newlines(skipped), skipped.len());
        self.lines += lines;
        self.start += length;
    }

    fn begins_as_json(&mut self) -> Result<bool, Error> {
        loop {
            if let Some(first) = self.rest().iter().find(|byte| !byte.is_ascii_whitespace()) {
                return Ok(*first == b'{');
            }
            if self.fill_until(|_| None)? {
                return Ok(false);
            }
        }
    }

    /// The next JSON value. `pending` keeps the data if it is not valid.
    fn json(&mut self) -> Result<Step, Error> {
        let mut scan = Scan::default();
        let mut at = 0;
        let end = loop {
            at += scan.advance(self.rest().get(at..).unwrap_or_default());
            if scan.nodes > self.limits.nodes {
                return Err(self.fail(ErrorKind::TooManyNodes(self.limits.nodes)));
            }
            if scan.done {
                break at;
            }
            // No line end is needed between values: available data is processed at once.
            if self.fill_until(|_| None)? {
                if self.rest().iter().all(u8::is_ascii_whitespace) {
                    return Ok(Step::End);
                }
                break self.rest().len();
            }
        };
        let leading = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        let line = self.lines + newlines(self.rest().get(..leading).unwrap_or_default()) + 1;
        let text = self.rest().get(leading..end).unwrap_or_default();
        let text = match serde_json::from_slice::<&RawValue>(text) {
            Ok(raw) => raw.get().to_owned(),
            Err(fault) => {
                let kind = ErrorKind::Json(message_of(&fault));
                return Ok(Step::Invalid(Error::new(
                    line + fault.line().saturating_sub(1),
                    fault.column(),
                    kind,
                )));
            }
        };
        if text.len() > self.limits.bytes {
            return Err(Error::new(line, 1, ErrorKind::TooLarge(self.limits.bytes)));
        }
        if scan.deepest > self.limits.depth {
            return Err(Error::new(line, 1, ErrorKind::TooDeep(self.limits.depth)));
        }
        self.skip(end);
        Ok(Step::Document(Document {
            line,
            content: DocumentContent::Json(text),
        }))
    }

    /// Skips blanks up to the end of the line after a JSON value.
    fn skip_line_end(&mut self) {
        let rest = self.rest();
        let blank = rest
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace() && **byte != b'\n')
            .count();
        let bytes = if rest.get(blank) == Some(&b'\n') {
            blank + 1
        } else {
            blank
        };
        self.skip(bytes);
    }

    /// Whether a part of the line was already consumed.
    fn is_inside_line(&self) -> bool {
        self.start
            .checked_sub(1)
            .and_then(|before| self.pending.get(before))
            .is_some_and(|before| *before != b'\n')
    }

    fn yaml(&mut self) -> Result<Option<Document>, Error> {
        let mut text = Vec::new();
        let mut first = self.lines;
        loop {
            let line_end = match memchr::memchr(b'\n', self.rest()) {
                Some(at) => at + 1,
                None if self.fill()? => continue,
                None => self.rest().len(),
            };
            let line = self.consume(line_end);
            if line.is_empty() {
                break;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(rest) = line.strip_prefix(b"---") {
                let rest = String::from_utf8_lossy(rest);
                let rest = rest.trim();
                if !rest.is_empty() && !rest.starts_with('#') {
                    let shown = rest.chars().take(80).collect();
                    return Err(Error::new(self.lines, 4, ErrorKind::Separator(shown)));
                }
                if !text.is_empty() {
                    break;
                }
                first = self.lines;
                continue;
            }
            text.extend(line);
            text.push(b'\n');
            if text.len() > self.limits.bytes {
                return Err(Error::new(first + 1, 1, ErrorKind::TooLarge(self.limits.bytes)));
            }
        }
        if text.is_empty() {
            return Ok(None);
        }
        let value = to_json_with(&text, &self.limits).map_err(|fault| fault.shifted(first))?;
        Ok(Some(Document {
            line: first + 1,
            content: DocumentContent::Yaml(value),
        }))
    }
}

enum Step {
    Document(Document),
    Invalid(Error),
    End,
}

/// The number of values in the JSON `text`: its commas and opening brackets, as [`Limits::nodes`] counts them.
pub fn json_values(text: &[u8]) -> usize {
    let mut scan = Scan::default();
    scan.advance(text);
    scan.nodes
}

/// Finds the end of a JSON value without understanding it.
#[derive(Default)]
struct Scan {
    depth: usize,
    deepest: usize,
    nodes: usize,
    in_word: bool,
    in_string: bool,
    escaped: bool,
    done: bool,
}

impl Scan {
    /// Consumes bytes up to the end of the value, or all of them; returns their number.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if self.in_string && !self.escaped && !matches!(byte, b'"' | b'\\') {
                // Strings make up most of a catalog.
                let rest = bytes.get(at..).unwrap_or_default();
                at += memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                continue;
            }
            at += 1;
            if self.ends_with(byte) {
                break;
            }
        }
        at
    }

    /// Takes one byte; true when the value ends with it.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.nodes += 1;
                self.depth += 1;
                self.deepest = self.deepest.max(self.depth);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.done = self.depth == 0;
            }
            b',' if self.depth > 0 => self.nodes += 1,
            _ if self.depth > 0 => {}
            _ if byte.is_ascii_whitespace() => self.done = self.in_word,
            _ => self.in_word = true,
        }
        self.done
    }
}
