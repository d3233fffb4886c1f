//! The parameters of a `metas` request.

/// What a `metas` request asks for; a field that is absent admits everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The blob's `schema`, exactly.
    pub schema: Option<String>,
    /// The blob's `package` field, exactly. An `olm.package` blob has none.
    pub package: Option<String>,
    /// The blob's `name`, exactly.
    pub name: Option<String>,
}

impl Filter {
    pub(crate) fn as_index_filter(&self) -> olm_fbc::index::Filter<'_> {
        fn text(field: Option<&String>) -> &str {
            field.map(String::as_str).unwrap_or_default()
        }
        olm_fbc::index::Filter {
            schema: text(self.schema.as_ref()),
            package: text(self.package.as_ref()),
            name: text(self.name.as_ref()),
        }
    }
}

/// Why a query is refused; the client sees only that it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuery {
    #[error("unknown parameter {0:?}")]
    Unknown(String),
    #[error("malformed encoding")]
    Encoding,
}

/// Reads the query of a `metas` request. The first value of a parameter counts, an empty one is as good as none, and
/// any other parameter is refused.
pub(crate) fn parse(query: Option<&str>) -> Result<Filter, BadQuery> {
    let (mut schema, mut package, mut name) = (None, None, None);
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
        let slot = match key.as_str() {
            "schema" => &mut schema,
            "package" => &mut package,
            "name" => &mut name,
            _ => return Err(BadQuery::Unknown(key)),
        };
        slot.get_or_insert(value);
    }
    let given = |value: Option<String>| value.filter(|v| !v.is_empty());
    Ok(Filter {
        schema: given(schema),
        package: given(package),
        name: given(name),
    })
}

fn decode(text: &str) -> Result<String, BadQuery> {
    percent_decode(text, Plus::IsSpace).ok_or(BadQuery::Encoding)
}

/// How a `+` reads: as itself in a path, as a space in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plus {
    IsPlus,
    IsSpace,
}

/// Resolves percent escapes; nothing for a broken one. Bytes that are no UTF-8 become U+FFFD, which no name holds.
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
        let check = |query: &str, expected: Filter| assert_eq!(parse(Some(query)), Ok(expected), "{query}");
        assert_eq!(parse(None), Ok(Filter::default()));
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
    }

    #[test]
    fn what_is_unknown_or_malformed_is_refused() {
        for query in ["x=1", "Schema=olm.bundle", "=x", "schema=a&limit=1"] {
            assert!(matches!(parse(Some(query)), Err(BadQuery::Unknown(_))), "{query}");
        }
        for query in ["schema=a;name=b", "schema=%zz", "schema=%e", "%=a"] {
            assert_eq!(parse(Some(query)), Err(BadQuery::Encoding), "{query}");
        }
    }
}
