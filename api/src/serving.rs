//! The addresses at which catalogd serves a catalog: written by the server, read by its clients.

/// The prefix of the paths of all catalogs.
pub const CATALOGS_PATH: &str = "/catalogs/";
/// The media type of `all` and `metas`: one JSON object a line.
pub const JSON_LINES: &str = "application/jsonl";
/// The path that lists all catalogs.
pub const CATALOG_LIST_PATH: &str = "/catalogs";
/// The path of the search over all catalogs.
pub const SEARCH_PATH: &str = "/api/v1/search";
/// The path of the description of all this, in the format of OpenAPI.
pub const OPENAPI_PATH: &str = "/openapi.json";
/// The path of the JSON Schema of file-based catalogs.
pub const FBC_SCHEMA_PATH: &str = "/schemas/fbc.json";
/// The header that names the content of the catalog that an answer comes from: `sha256:` and the digest of `all`.
pub const DIGEST_HEADER: &str = "olm-catalog-digest";
/// The header that names the image that the content comes from, by its digest: replicas change over one after another,
/// and a client that waits for one image has to know which one answered.
pub const IMAGE_HEADER: &str = "olm-catalog-image";
/// The query parameters of `metas`; values are compared exactly and all must match.
pub const METAS_PARAMETERS: [&str; 3] = ["schema", "package", "name"];

/// The endpoints of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The whole catalog.
    All,
    /// The blobs that a query selects.
    Metas,
    /// GraphQL.
    Graphql,
}

impl Endpoint {
    /// Every endpoint.
    pub const EVERY: [Self; 3] = [Self::All, Self::Metas, Self::Graphql];

    /// The path below a catalog's base address.
    pub const fn path(self) -> &'static str {
        match self {
            Self::All => "/api/v1/all",
            Self::Metas => "/api/v1/metas",
            Self::Graphql => "/api/v1/graphql",
        }
    }

    /// The full address, given the base address from `status.urls.base`.
    pub fn url(self, base: &str) -> String {
        format!("{}{}", base.trim_end_matches('/'), self.path())
    }
}

/// The base address of a catalog, as in `status.urls.base`.
///
/// `origin` is scheme and authority, such as `https://catalogd-service.olmv1-system.svc`.
pub fn base_url(origin: &str, catalog: &str) -> String {
    format!("{}{CATALOGS_PATH}{catalog}", origin.trim_end_matches('/'))
}

/// The catalog's name and the endpoint in a request's path; `None` if there is no such endpoint.
pub fn parse_path(path: &str) -> Option<(&str, Endpoint)> {
    let (catalog, rest) = path.strip_prefix(CATALOGS_PATH)?.split_once('/')?;
    let endpoint = Endpoint::EVERY
        .into_iter()
        .find(|e| e.path().strip_prefix('/') == Some(rest))?;
    (!catalog.is_empty()).then_some((catalog, endpoint))
}

/// A query of `metas`. An absent member does not restrict the result; without members it is the whole catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MetasQuery<'a> {
    /// The blob's schema.
    pub schema: Option<&'a str>,
    /// The package of the blob. An `olm.package` blob has none: query it by schema and name.
    pub package: Option<&'a str>,
    /// The name.
    pub name: Option<&'a str>,
}

impl MetasQuery<'_> {
    /// The full address, given the base address from `status.urls.base`.
    pub fn url(&self, base: &str) -> String {
        let mut url = Endpoint::Metas.url(base);
        let values = [self.schema, self.package, self.name];
        let given = METAS_PARAMETERS
            .iter()
            .zip(values)
            .filter_map(|(key, value)| Some((key, value?)));
        for (i, (key, value)) in given.enumerate() {
            url.push(if i == 0 { '?' } else { '&' });
            url.push_str(key);
            url.push('=');
            url.push_str(&percent_encode(value));
        }
        url
    }
}

/// The text in the form for the query of an address.
pub fn percent_encode(text: &str) -> String {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.extend(HEX.get(usize::from(byte >> 4)));
            encoded.extend(HEX.get(usize::from(byte & 15)));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_back_as_it_was_built() {
        for endpoint in Endpoint::EVERY {
            let url = endpoint.url(&base_url("https://host:8443/", "cat"));
            assert_eq!(
                parse_path(url.strip_prefix("https://host:8443").unwrap()),
                Some(("cat", endpoint))
            );
        }
        for path in [
            "/",
            "/catalogs/",
            "/catalogs/cat",
            "/catalogs//api/v1/all",
            "/catalogs/cat/api/v1/all/",
        ] {
            assert_eq!(parse_path(path), None, "{path}");
        }
    }

    #[test]
    fn values_in_a_query_are_escaped() {
        let query = MetasQuery {
            schema: Some("olm.package"),
            package: None,
            name: Some("a b&c=é"),
        };
        assert_eq!(
            query.url("http://h/catalogs/c"),
            "http://h/catalogs/c/api/v1/metas?schema=olm.package&name=a%20b%26c%3D%C3%A9"
        );
        assert_eq!(
            MetasQuery::default().url("http://h/catalogs/c"),
            "http://h/catalogs/c/api/v1/metas"
        );
    }
}
