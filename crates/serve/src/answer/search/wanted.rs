//! The query of a search, and the rank of its results.

use olm_fbc::similar::distance;

use crate::answer::query::{BadQuery, parameters, parse_limit};
use crate::package_summary::{Api, PackageSummary};
use crate::search_page::Facet;

/// The most packages of a page.
const MAX_PAGE: usize = 200;
/// The greatest offset of a page.
pub(crate) const MAX_OFFSET: usize = 10_000;
/// The maximum number of words in a query.
const MAX_WORDS: usize = 16;
/// The number of words that are compared with names if nothing is found.
const COMPARED_WORDS: usize = 3;

/// The query of a search; all given parts must match. Letter case matters only in the catalog's name.
#[derive(Debug, Default)]
pub(crate) struct SearchQuery {
    /// Words that must each occur in the name, display name, summary, provider, a keyword, a category or a provided
    /// API.
    words: Vec<String>,
    /// A part of the package's name.
    name: String,
    /// A keyword, which must match as a whole.
    keyword: String,
    /// A provided API: its kind or group, or both as `KIND.GROUP` or `KIND.VERSION.GROUP`.
    api: String,
    /// A category, wholly.
    category: String,
    /// The catalog's name.
    pub(crate) catalog: Option<String>,
    /// An install mode that is supported.
    install_mode: String,
    /// The capability level.
    capability: String,
    /// Whether the package is deprecated.
    deprecated: Option<bool>,
    /// Whether packages whose newest bundle is younger come first, whatever their relevance.
    pub(crate) is_by_date: bool,
    pub(crate) start: usize,
    pub(crate) limit: usize,
}

/// The parameters of a search.
pub(crate) const PARAMETERS: [&str; 12] = [
    "q",
    "name",
    "keyword",
    "api",
    "category",
    "catalog",
    "installMode",
    "capability",
    "deprecated",
    "sort",
    "limit",
    "cursor",
];

/// The bit of the filters that have no counted values.
const OTHER: u8 = 128;

impl SearchQuery {
    /// Parses a query. A page contains `unasked` packages unless the query sets a limit.
    pub(crate) fn parse(query: Option<&str>, unasked: usize) -> Result<Self, BadQuery> {
        let [
            words,
            name,
            keyword,
            api,
            category,
            catalog,
            mode,
            capability,
            deprecated,
            sort,
            limit,
            cursor,
        ] = parameters(query, PARAMETERS)?;
        let lower = |text: Option<String>| text.unwrap_or_default().to_lowercase();
        let words = lower(words);
        let words: Vec<String> = words.split_whitespace().map(ToOwned::to_owned).collect();
        if words.len() > MAX_WORDS {
            return Err(BadQuery::Words(MAX_WORDS));
        }
        let start = cursor.map(|cursor| parse_limit(&cursor, MAX_OFFSET).map_err(|_| BadQuery::Cursor));
        Ok(Self {
            words,
            name: lower(name),
            keyword: lower(keyword),
            api: lower(api),
            category: lower(category),
            catalog,
            install_mode: lower(mode),
            capability: lower(capability),
            deprecated: match deprecated.as_deref() {
                None => None,
                Some("true") => Some(true),
                Some("false") => Some(false),
                Some(_) => return Err(BadQuery::Boolean("deprecated")),
            },
            is_by_date: match sort.as_deref() {
                None | Some("relevance") => false,
                Some("created") => true,
                Some(_) => return Err(BadQuery::Sort),
            },
            start: start.transpose()?.unwrap_or(0),
            limit: limit.map_or(Ok(unasked), |limit| parse_limit(&limit, MAX_PAGE))?,
        })
    }

    /// A search for one word, with at most so many results.
    pub(crate) fn of_word(word: &str, limit: usize) -> Self {
        Self {
            words: vec![word.to_lowercase()],
            limit,
            ..Self::default()
        }
    }

    /// The bits of the filters that keep a package out; 0 when it fits.
    pub(crate) fn missed(&self, catalog: &str, facts: &PackageSummary) -> u8 {
        let is = |wanted: &str, texts: &[String]| {
            wanted.is_empty() || texts.iter().any(|text| text.to_lowercase() == wanted)
        };
        let other = (self.name.is_empty() || facts.name.to_lowercase().contains(&self.name))
            && is(&self.keyword, &facts.keywords)
            && facts.relevance(self.words.iter().map(String::as_str)).is_some();
        let api = self.api.is_empty() || facts.provided_apis.iter().any(|api| is_called(api, &self.api));
        let deprecated = self
            .deprecated
            .is_none_or(|wanted| wanted != facts.deprecated.is_empty());
        [
            (OTHER, other),
            (
                Facet::Catalog.bit(),
                self.catalog.as_ref().is_none_or(|name| name == catalog),
            ),
            (Facet::Category.bit(), is(&self.category, &facts.categories)),
            (
                Facet::InstallMode.bit(),
                is(&self.install_mode, &facts.install_modes),
            ),
            (Facet::Api.bit(), api),
            (
                Facet::Capability.bit(),
                is(&self.capability, std::slice::from_ref(&facts.capability)),
            ),
            (Facet::Deprecated.bit(), deprecated),
        ]
        .into_iter()
        .filter(|(_, passes)| !passes)
        .fold(0, |missed, (bit, _)| missed | bit)
    }

    /// The distance between a name and a searched word, if they are similar; less is better.
    pub(crate) fn distance(&self, facts: &PackageSummary) -> Option<usize> {
        let names = || std::iter::once(facts.name.as_str()).chain(facts.name.split('-'));
        let words = self.words.iter().take(COMPARED_WORDS);
        words
            .flat_map(|word| names().filter_map(|name| distance(word, name)))
            .min()
    }

    /// The rank of a result; less is better.
    pub(crate) fn rank(&self, facts: &PackageSummary) -> u32 {
        let name = Some(self.name.as_str()).filter(|name| !name.is_empty());
        let asked = self.words.iter().map(String::as_str).chain(name);
        facts.relevance(asked).unwrap_or(u32::MAX)
    }
}

/// Whether the API has this name, in lower case.
fn is_called(api: &Api, wanted: &str) -> bool {
    let [group, version, kind] = [&api.group, &api.version, &api.kind].map(|text| text.to_lowercase());
    [
        kind.clone(),
        group.clone(),
        format!("{kind}.{group}"),
        format!("{kind}.{version}.{group}"),
        format!("{group}/{version}/{kind}"),
    ]
    .iter()
    .any(|called| called == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> PackageSummary {
        PackageSummary {
            name: "cert-manager".to_owned(),
            display_name: "Cert Manager".to_owned(),
            summary: "Issues certificates.".to_owned(),
            provider: "The Makers".to_owned(),
            keywords: vec!["TLS".to_owned()],
            categories: vec!["Security".to_owned()],
            provided_apis: [Api {
                group: "cert-manager.io".to_owned(),
                version: "v1".to_owned(),
                kind: "Issuer".to_owned(),
            }]
            .into(),
            install_modes: vec!["AllNamespaces".to_owned()],
            capability: "Deep Insights".to_owned(),
            ..PackageSummary::default()
        }
    }

    fn parse(query: Option<&str>) -> Result<SearchQuery, BadQuery> {
        SearchQuery::parse(query, 50)
    }

    #[test]
    fn everything_given_has_to_hold() {
        let check = |query: &str, expected: bool| {
            let wanted = parse(Some(query)).unwrap();
            assert_eq!(wanted.missed("cat", &facts()) == 0, expected, "{query}");
        };
        check("", true);
        check("q=CERT+makers", true);
        check("q=cert+nothing", false);
        check("q=tls", true);
        check("name=manager", true);
        check("name=tls", false);
        check("keyword=tls", true);
        check("keyword=tl", false);
        check("category=security&keyword=tls", true);
        check("category=security&keyword=x", false);
        check("catalog=cat", true);
        check("catalog=Cat", false);
        check("installMode=allnamespaces", true);
        check("installMode=OwnNamespace", false);
        check("capability=deep+insights", true);
        check("capability=deep", false);
        check("deprecated=false", true);
        check("deprecated=true", false);
        check("api=issuer", true);
        check("api=Issuer.cert-manager.io", true);
        check("api=Issuer.v1.cert-manager.io", true);
        check("api=cert-manager.io/v1/Issuer", true);
        check("api=cert-manager.io", true);
        check("api=Issuer.v2.cert-manager.io", false);
    }

    #[test]
    fn what_is_unknown_or_malformed_is_refused() {
        for query in [
            "x=1",
            "limit=0",
            "limit=201",
            "cursor=x",
            "q=%zz",
            "deprecated=yes",
            "sort=name",
        ] {
            assert!(parse(Some(query)).is_err(), "{query}");
        }
        let words = |count: usize| parse(Some(&format!("q={}", vec!["a"; count].join("+")))).err();
        assert_eq!(words(MAX_WORDS), None);
        assert_eq!(words(MAX_WORDS + 1), Some(BadQuery::Words(MAX_WORDS)));
    }

    #[test]
    fn names_go_before_other_finds() {
        let rank = |query: &str| parse(Some(query)).unwrap().rank(&facts());
        let ranks = ["q=cert-manager", "q=cert", "q=manager", "q=tls"].map(rank);
        assert_eq!(ranks, [0, 1, 3, 4]);
    }
}
