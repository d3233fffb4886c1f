//! The lenient walk: any object is a blob, and becomes one canonical line.

use std::fmt;
use std::io::BufRead;

use olm_yaml::{DocumentContent, Documents};
use serde_json::Value;

use crate::canonical::{self, Member};
use crate::decode::fold::fold;
use crate::decode::{Advice, decode, kind};

pub use olm_yaml::Limits;

/// One blob of a catalog in the stored form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The schema; empty when the blob has none.
    pub schema: String,
    /// The package; empty when the blob has none.
    pub package: String,
    /// The name; empty when the blob has none.
    pub name: String,
    /// The blob as canonical JSON and a line feed. Empty for a document that consists of comments.
    pub line: String,
    /// The line of the file at which the blob begins, counted from 1.
    pub position: usize,
    /// A key that occurs more than once in an object of the blob. The last value counts.
    pub repeated: Option<String>,
}

impl Meta {
    /// The blob without the line feed.
    pub fn json(&self) -> &str {
        self.line.trim_end_matches('\n')
    }
}

/// The reason why a file cannot be read as blobs, and the place.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct MetaError {
    /// The line of the file at which the document begins or the fault was found, counted from 1.
    pub line: usize,
    /// The fault.
    pub kind: MetaErrorKind,
}

impl MetaError {
    /// The message without the line.
    pub fn without_line(&self) -> String {
        match &self.kind {
            MetaErrorKind::Syntax(error) => format!("column {}: {}", error.position.column, error.kind),
            kind => kind.to_string(),
        }
    }
}

/// A fault of a document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaErrorKind {
    /// The document is neither JSON nor YAML, or larger than the limits.
    #[error("{0}")]
    Syntax(olm_yaml::Error),
    /// The document is a list or a plain value.
    #[error("expected an object, got {0}")]
    NotAnObject(&'static str),
    /// Two keys of the root differ in letter case only.
    #[error("duplicate keys for key {folded:?}: [{}]", .keys.join(" "))]
    DuplicateKeys {
        /// The keys in lower case.
        folded: String,
        /// The keys as written, sorted.
        keys: Vec<String>,
    },
    /// `schema`, `package` or `name` is longer than allowed.
    #[error("the value of key {key:?} is longer than {} bytes", MAX_NAME_BYTES)]
    NameTooLong {
        /// The key as written.
        key: String,
    },
    /// `schema`, `package` or `name` is not a string.
    #[error("expected value for key {key:?} to be a string, got {found}{advice}")]
    NotAString {
        /// The key as written.
        key: String,
        /// The value.
        found: NotText,
        /// Advice for the author.
        advice: Advice,
    },
}

/// A value that should have been a string.
#[derive(Debug)]
pub struct NotText {
    kind: &'static str,
    text: String,
}

impl fmt::Display for NotText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.kind, self.text)
    }
}

/// The most bytes of one blob: twelve times the largest known, a package with a picture.
pub const MAX_BLOB_BYTES: usize = 8 << 20;
/// The maximum number of values of one blob. As parsed values, each may need hundreds of bytes. The largest known blob
/// has a hundredth.
pub const MAX_BLOB_VALUES: usize = 100_000;
/// The most bytes of a schema, package or name.
const MAX_NAME_BYTES: usize = 4096;

/// The limits that catalogs are read with: blobs of 8 MiB and 100,000 values, nesting up to 1000 levels.
pub fn limits() -> Limits {
    Limits {
        bytes: MAX_BLOB_BYTES,
        depth: 1000,
        nodes: MAX_BLOB_VALUES,
        ..Limits::default()
    }
}

/// Whether a blob, as JSON text, has more than [`MAX_BLOB_VALUES`]. Clients of a server must check this before they
/// parse a blob.
pub fn has_too_many_values(text: &[u8]) -> bool {
    // Each value needs at least one byte.
    text.len() > MAX_BLOB_VALUES && olm_yaml::json_values(text) > MAX_BLOB_VALUES
}

/// The blobs of one file, in order; see [`metas`].
pub struct Metas<R> {
    documents: Documents<R>,
    failed: bool,
}

/// Reads the blobs of one file.
///
/// Files are streams of JSON objects or YAML documents. At most one document is held in memory; one larger than
/// `limits` is an error. After an error the iterator ends.
pub fn metas<R: BufRead>(reader: R, limits: &Limits) -> Metas<R> {
    Metas {
        documents: olm_yaml::documents(reader, limits),
        failed: false,
    }
}

impl<R: BufRead> Iterator for Metas<R> {
    type Item = Result<Meta, MetaError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.documents.next()?;
        let meta = match next {
            Ok(document) => {
                let line = document.line;
                let meta = match document.content {
                    DocumentContent::Json(text) => meta(&text, Advice::None),
                    DocumentContent::Yaml(value) => meta(&json_text(&value), Advice::Quote),
                };
                meta.map(|meta| Meta {
                    position: line,
                    ..meta
                })
                .map_err(|kind| MetaError { line, kind })
            }
            Err(error) => Err(MetaError {
                line: error.position.line,
                kind: MetaErrorKind::Syntax(error),
            }),
        };
        self.failed = meta.is_err();
        Some(meta)
    }
}

/// The blob in `text`, which is valid JSON.
fn meta(text: &str, advice: Advice) -> Result<Meta, MetaErrorKind> {
    if text.trim() == "null" {
        return Ok(Meta::default());
    }
    if !text.trim_start().starts_with('{') {
        return Err(MetaErrorKind::NotAnObject(kind(text)));
    }
    let order = canonical::order(text);
    let mut meta = Meta::default();
    let keys = unique_keys(text, &order.root)?;
    for (folded, field) in [
        ("schema", &mut meta.schema),
        ("package", &mut meta.package),
        ("name", &mut meta.name),
    ] {
        let Some((_, key, member)) = keys.iter().find(|(candidate, ..)| candidate == folded) else {
            continue;
        };
        let value = member.value(text);
        *field = Some(value)
            .filter(|value| value.starts_with('"'))
            .and_then(|value| decode(value).ok())
            .or_else(|| string(value))
            .ok_or_else(|| MetaErrorKind::NotAString {
                key: key.clone(),
                found: NotText {
                    kind: kind(value),
                    text: value.chars().take(80).collect(),
                },
                advice: if kind(value) == "a boolean" {
                    advice
                } else {
                    Advice::None
                },
            })?;
        if field.len() > MAX_NAME_BYTES {
            return Err(MetaErrorKind::NameTooLong { key: key.clone() });
        }
    }
    meta.line.reserve(text.len() + 1);
    canonical::write(text, &order, &mut meta.line);
    meta.line.push('\n');
    meta.repeated = order.repeated;
    Ok(meta)
}

/// The string in `value`, halves of surrogate pairs replaced.
fn string(value: &str) -> Option<String> {
    let inside = value.strip_prefix('"')?.strip_suffix('"')?;
    Some(canonical::unescape(inside).into_owned())
}

type Key = (String, String, Member);

/// The keys of the root: folded, as spelled, and the member. Refuses keys that differ in letter case only.
fn unique_keys(text: &str, root: &[Member]) -> Result<Vec<Key>, MetaErrorKind> {
    let mut keys: Vec<Key> = root
        .iter()
        .map(|member| {
            let key = member.key(text);
            (fold(&key).into_owned(), key.into_owned(), *member)
        })
        .collect();
    keys.sort_by(|left, right| (&left.0, &left.1).cmp(&(&right.0, &right.1)));
    let twice = keys.windows(2).find_map(|pair| match pair {
        [left, right] if left.0 == right.0 => Some(left.0.clone()),
        _ => None,
    });
    match twice {
        Some(folded) => Err(MetaErrorKind::DuplicateKeys {
            keys: keys
                .into_iter()
                .filter(|key| key.0 == folded)
                .map(|key| key.1)
                .collect(),
            folded,
        }),
        None => Ok(keys),
    }
}

/// The JSON text of `value`, without recursion.
pub fn json_text(value: &Value) -> String {
    enum Pending<'a> {
        Value(&'a Value),
        Key(&'a str, &'a Value),
        Text(&'static str),
    }
    let mut out = String::new();
    let mut stack = vec![Pending::Value(value)];
    while let Some(work) = stack.pop() {
        match work {
            Pending::Text(text) => out.push_str(text),
            Pending::Key(key, value) => {
                canonical::write_string(key, &mut out);
                out.push(':');
                stack.push(Pending::Value(value));
            }
            Pending::Value(Value::Null) => out.push_str("null"),
            Pending::Value(Value::Bool(true)) => out.push_str("true"),
            Pending::Value(Value::Bool(false)) => out.push_str("false"),
            Pending::Value(Value::Number(number)) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => out.push_str(&olm_yaml::json_float(float)),
                None => out.push_str(&number.to_string()),
            },
            Pending::Value(Value::String(text)) => canonical::write_string(text, &mut out),
            Pending::Value(Value::Array(elements)) => {
                out.push('[');
                stack.push(Pending::Text("]"));
                for (index, element) in elements.iter().enumerate().rev() {
                    stack.push(Pending::Value(element));
                    if index > 0 {
                        stack.push(Pending::Text(","));
                    }
                }
            }
            Pending::Value(Value::Object(members)) => {
                out.push('{');
                stack.push(Pending::Text("}"));
                for (index, (key, member)) in members.iter().enumerate().rev() {
                    stack.push(Pending::Key(key, member));
                    if index > 0 {
                        stack.push(Pending::Text(","));
                    }
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{limits, metas};

    fn read(text: &str) -> Result<Vec<String>, String> {
        metas(text.as_bytes(), &limits())
            .map(|meta| match meta {
                Ok(meta) => Ok(format!(
                    "{} {}/{}/{} {}",
                    meta.position,
                    meta.schema,
                    meta.package,
                    meta.name,
                    meta.json()
                )),
                Err(error) => Err(format!("{} {error}", error.line)),
            })
            .collect()
    }

    fn check(text: &str, expected: Result<&[&str], &str>) {
        let expected: Result<Vec<String>, String> = expected
            .map(|lines| lines.iter().map(|line| (*line).to_owned()).collect())
            .map_err(str::to_owned);
        assert_eq!(read(text), expected, "{text}");
    }

    #[test]
    fn every_document_is_a_blob_with_its_position() {
        check(
            "{\"schema\":\"a\"}\n{\n \"schema\": \"b\", \"name\": \"n\"}{\"schema\":\"c\",\"package\":\"p\"}",
            Ok(&[
                r#"1 a// {"schema":"a"}"#,
                r#"2 b//n {"name":"n","schema":"b"}"#,
                r#"3 c/p/ {"package":"p","schema":"c"}"#,
            ]),
        );
        check(
            "---\nschema: a\n---\n# words\nschema: b\nname: m\n",
            Ok(&[r#"2 a// {"schema":"a"}"#, r#"4 b//m {"name":"m","schema":"b"}"#]),
        );
    }

    #[test]
    fn keys_count_in_any_case_but_once() {
        check(
            r#"{"Schema":"a","NAME":"n"}"#,
            Ok(&[r#"1 a//n {"NAME":"n","Schema":"a"}"#]),
        );
        check(r#"{"schema":"a","schema":"b"}"#, Ok(&[r#"1 b// {"schema":"b"}"#]));
        check(
            r#"{"schema":"a","foo":1,"Foo":2}"#,
            Err(r#"1 duplicate keys for key "foo": [Foo foo]"#),
        );
        check(
            r#"{"schema":"a","v":{"foo":1,"Foo":2}}"#,
            Ok(&[r#"1 a// {"schema":"a","v":{"Foo":2,"foo":1}}"#]),
        );
    }

    #[test]
    fn schema_package_and_name_are_strings() {
        check(
            r#"{"schema":1}"#,
            Err(r#"1 expected value for key "schema" to be a string, got a number: 1"#),
        );
        check(
            "{\"name\":\"a\"}\n{\"name\":null}",
            Err(r#"2 expected value for key "name" to be a string, got null: null"#),
        );
        check(
            "schema: a\nname: no\n",
            Err(
                "1 expected value for key \"name\" to be a string, got a boolean: false \
                 (YAML reads words like yes, no, on, off, y and n as booleans: quote them)",
            ),
        );
    }

    #[test]
    fn a_blob_that_is_no_object_is_refused() {
        check("- a\n", Err("1 expected an object, got a list"));
        check("just words\n", Err("1 expected an object, got a string"));
    }

    #[test]
    fn a_document_of_comments_is_an_empty_blob() {
        check("# nothing\n", Ok(&["1 // "]));
        check("", Ok(&[]));
    }

    #[test]
    fn numbers_of_yaml_are_spelled_as_json() {
        check(
            "schema: a\nv: [010, 1e3, 1.50, 1e-7, 12345678901234567890]\n",
            Ok(&[r#"1 a// {"schema":"a","v":[8,1000,1.5,1e-7,12345678901234567890]}"#]),
        );
    }
}
