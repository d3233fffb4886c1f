//! The parameters of requests.

use http::StatusCode;
use http::header::LINK;
use olm_api::serving::{OPENAPI_PATH, percent_encode};
use olm_fbc::similar::nearest;

use super::problem::ErrorResponse;

use crate::store::{Filter, Record};

/// A question to `metas`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MetasRequest {
    pub(crate) filter: Filter,
    /// The requested page; `None` for everything.
    pub(crate) page: Option<Page>,
}

/// A part of the blobs that a filter selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page {
    limit: Option<usize>,
    cursor: Option<Cursor>,
}

/// The start of a page: the content, by the first digits of its digest, and a byte offset.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor {
    content: String,
    start: u64,
}

/// Letters of the digest in a cursor.
const CONTENT_CHARS: usize = 16;

impl Page {
    /// The maximum number of blobs.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }

    /// The byte offset of the page; `None` if the cursor belongs to other content.
    pub(crate) fn start(&self, record: &Record) -> Option<u64> {
        match &self.cursor {
            None => Some(0),
            Some(cursor) => record.digest.starts_with(&cursor.content).then_some(cursor.start),
        }
    }
}

impl MetasRequest {
    /// The value of a `Link` header that leads to the next page.
    pub(crate) fn link(&self, record: &Record, next: u64) -> String {
        let content = record.digest.get(..CONTENT_CHARS).unwrap_or_default();
        let cursor = format!("{content}-{next:x}");
        let limit = self.page.as_ref().and_then(|page| page.limit);
        let limit = limit.map(|limit| limit.to_string());
        let Filter {
            schema,
            package,
            name,
        } = &self.filter;
        let parameters = [
            ("schema", schema.as_ref()),
            ("package", package.as_ref()),
            ("name", name.as_ref()),
            ("limit", limit.as_ref()),
            ("cursor", Some(&cursor)),
        ];
        let query: Vec<String> = parameters
            .into_iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", percent_encode(value?))))
            .collect();
        format!("<?{}>; rel=\"next\"", query.join("&"))
    }
}

/// The reason why a query is refused. The response contains it if the client requests problem details.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuery {
    #[error("{}", unknown(.given, .known))]
    Unknown { given: String, known: Vec<&'static str> },
    #[error("the query is not well encoded")]
    Encoding,
    #[error("`limit` must be a number from 1 to {0}")]
    Limit(usize),
    #[error("`{0}` must occur once and have a value")]
    Once(String),
    #[error("`{0}` must be `true` or `false`")]
    Boolean(&'static str),
    #[error("`sort` must be `relevance` or `created`")]
    Sort,
    #[error("`q` may hold {0} words")]
    Words(usize),
    #[error("invalid `cursor`: use the one of the previous page")]
    Cursor,
}

/// The number of shown letters of an unknown parameter.
const SHOWN: usize = 64;

fn unknown(given: &str, known: &[&'static str]) -> String {
    let shown: String = given.chars().take(SHOWN).collect();
    let meant = nearest(given, known.iter().copied())
        .map_or_else(|| ".".to_owned(), |meant| format!(", did you mean `{meant}`?"));
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "unknown parameter `{shown}`{meant} There are {}; {OPENAPI_PATH} describes them",
        names.join(", ")
    )
}

impl From<BadQuery> for ErrorResponse {
    /// The line of text is the one of the reference implementation. A header contains the link to the description (RFC
    /// 8631).
    fn from(error: BadQuery) -> Self {
        Self::of(StatusCode::BAD_REQUEST)
            .because(error.to_string())
            .with(LINK, &format!("<{OPENAPI_PATH}>; rel=\"service-desc\""))
    }
}

/// The most blobs of a page.
const MAX_PAGE: usize = 10_000;

/// Reads the query of a `metas` request. The first value of a parameter counts, an empty one is as good as none, and
/// any other parameter is refused.
pub(crate) fn parse(query: Option<&str>) -> Result<MetasRequest, BadQuery> {
    let [schema, package, name, limit, cursor] =
        parameters(query, ["schema", "package", "name", "limit", "cursor"])?;
    let limit = limit.map(|limit| parse_limit(&limit, MAX_PAGE)).transpose()?;
    let cursor = cursor
        .map(|cursor| {
            let (content, start) = cursor.split_once('-').ok_or(BadQuery::Cursor)?;
            let start = u64::from_str_radix(start, 16).map_err(|_| BadQuery::Cursor)?;
            let content = Some(content).filter(|content| content.len() == CONTENT_CHARS);
            Ok(Cursor {
                content: content.ok_or(BadQuery::Cursor)?.to_owned(),
                start,
            })
        })
        .transpose()?;
    let page = (limit.is_some() || cursor.is_some()).then_some(Page { limit, cursor });
    Ok(MetasRequest {
        filter: Filter {
            schema,
            package,
            name,
        },
        page,
    })
}

/// Parses the maximum number of results.
pub(crate) fn parse_limit(limit: &str, most: usize) -> Result<usize, BadQuery> {
    let number = limit.parse().ok();
    number
        .filter(|number| (1..=most).contains(number) && limit.bytes().all(|b| b.is_ascii_digit()))
        .ok_or(BadQuery::Limit(most))
}

/// The parameters that the reference lacks. Their values are checked more strictly.
const STRICT: [&str; 2] = ["limit", "cursor"];

/// The values of these parameters; others are refused. Of a repeated parameter the first value counts, and an empty
/// value counts as absent.
pub(crate) fn parameters<const N: usize>(
    query: Option<&str>,
    known: [&'static str; N],
) -> Result<[Option<String>; N], BadQuery> {
    let mut values = [const { None }; N];
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        if pair.contains(';') {
            return Err(BadQuery::Encoding);
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decode(key)?, decode(value)?);
        let slot = known.iter().zip(&mut values).find(|(name, _)| **name == key);
        match slot {
            Some((_, slot)) if STRICT.contains(&key.as_str()) && (slot.is_some() || value.is_empty()) => {
                return Err(BadQuery::Once(key));
            }
            Some((_, slot)) => slot.get_or_insert(value),
            None => {
                return Err(BadQuery::Unknown {
                    given: key,
                    known: known.to_vec(),
                });
            }
        };
    }
    Ok(values.map(|value| value.filter(|v| !v.is_empty())))
}

fn decode(text: &str) -> Result<String, BadQuery> {
    percent_decode(text, Plus::IsSpace).ok_or(BadQuery::Encoding)
}

/// The meaning of a `+`: itself in a path, a space in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plus {
    IsPlus,
    IsSpace,
}

/// Decodes percent escapes; `None` for a malformed one. Bytes that are not UTF-8 become U+FFFD, which no name contains.
pub(crate) fn percent_decode(text: &str, plus: Plus) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus == Plus::IsSpace => b' ',
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(schema: &str, package: &str, name: &str) -> Filter {
        let given = |v: &str| (!v.is_empty()).then(|| v.to_owned());
        Filter {
            schema: given(schema),
            package: given(package),
            name: given(name),
        }
    }

    #[test]
    fn the_first_value_of_a_known_parameter_counts() {
        let check = |query: &str, expected: Filter| {
            assert_eq!(parse(Some(query)).map(|q| q.filter), Ok(expected), "{query}");
        };
        assert_eq!(parse(None), Ok(MetasRequest::default()));
        check("", Filter::default());
        check("&&", Filter::default());
        check("schema=&package=&name=", Filter::default());
        check("schema", Filter::default());
        check("schema=olm.bundle&&schema=x", filter("olm.bundle", "", ""));
        check("schema=&schema=x", Filter::default());
        check(
            "schema=olm%2Ebundle&name=a+b%2B",
            filter("olm.bundle", "", "a b+"),
        );
        check("package=a=b", filter("", "a=b", ""));
        check("limit=5&name=a", filter("", "", "a"));
    }

    #[test]
    fn an_unknown_parameter_is_refused_with_the_known_ones() {
        let check = |query: &str, expected: &str| {
            assert_eq!(
                parse(Some(query)).unwrap_err().to_string(),
                format!(
                    "unknown parameter {expected} There are `schema`, `package`, `name`, `limit`, `cursor`; \
                     /openapi.json describes them"
                )
            );
        };
        check("Schema=x", "`Schema`, did you mean `schema`?");
        check("packages=x", "`packages`, did you mean `package`?");
        check("version=1", "`version`.");
        check(&"x".repeat(1000), &format!("`{}`.", "x".repeat(SHOWN)));
    }

    #[test]
    fn what_is_unknown_or_malformed_is_refused() {
        for query in ["x=1", "Schema=olm.bundle", "=x", "schema=a&Limit=1"] {
            assert!(
                matches!(parse(Some(query)), Err(BadQuery::Unknown { .. })),
                "{query}"
            );
        }
        for query in ["schema=a;name=b", "schema=%zz", "schema=%e", "%=a"] {
            assert_eq!(parse(Some(query)), Err(BadQuery::Encoding), "{query}");
        }
        for query in [
            "limit=0",
            "limit=x",
            "limit=-1",
            "limit=%2B1",
            "limit=10001",
            "limit=99999999999999999999",
        ] {
            assert_eq!(parse(Some(query)), Err(BadQuery::Limit(MAX_PAGE)), "{query}");
        }
        for query in ["limit=", "cursor", "limit=1&limit=1", "name=a&limit=2&limit="] {
            assert!(matches!(parse(Some(query)), Err(BadQuery::Once(_))), "{query}");
        }
        for query in [
            "cursor=x",
            "cursor=0123456789abcdef",
            "cursor=0123456789abcdef-",
            "cursor=0-0",
        ] {
            assert_eq!(parse(Some(query)), Err(BadQuery::Cursor), "{query}");
        }
    }
}
