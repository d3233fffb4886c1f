//! The search over all catalogs.

use std::cmp::Reverse;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{Response, StatusCode};
use olm_fbc::SCHEMA_PACKAGE;
use olm_fbc::similar::distance;

use super::problem::ErrorResponse;
use super::query::{BadQuery, parameters, parse_limit};
use super::{App, document};
use crate::body::Body;
use crate::graphql::TIMEOUT;
use crate::package_summary::{Api, PackageSummary};
use crate::search_page::{SearchPage, SearchResult};
use crate::store::Snapshot;

/// Packages on a page, unasked and at the most.
const PAGE: usize = 50;
const MAX_PAGE: usize = 200;
/// How far pages go.
const MAX_OFFSET: usize = 10_000;
/// Words that are looked for at once.
const MAX_WORDS: usize = 16;
/// Packages that are offered when nothing is found, and words that are compared with their names.
const MAX_SUGGESTIONS: usize = 5;
const COMPARED_WORDS: usize = 3;

/// What is looked for; everything given has to hold. Letter case does not matter but in the catalog's name.
#[derive(Debug, Default)]
pub(super) struct SearchQuery {
    /// Words that each occur in the name, display name, summary, provider or a keyword.
    pub(super) words: Vec<String>,
    /// A part of the package's name.
    name: String,
    /// A keyword, wholly.
    keyword: String,
    /// A provided API: its kind or group, or both as `KIND.GROUP` or `KIND.VERSION.GROUP`.
    api: String,
    /// A category, wholly.
    category: String,
    /// The catalog's name.
    catalog: Option<String>,
    start: usize,
    limit: usize,
}

impl SearchQuery {
    /// Reads what is looked for out of a query.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, BadQuery> {
        let [words, name, keyword, api, category, catalog, limit, cursor] = parameters(
            query,
            [
                "q", "name", "keyword", "api", "category", "catalog", "limit", "cursor",
            ],
        )?;
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
            start: start.transpose()?.unwrap_or(0),
            limit: limit.map_or(Ok(PAGE), |limit| parse_limit(&limit, MAX_PAGE))?,
        })
    }

    fn fits(&self, facts: &PackageSummary) -> bool {
        let is = |wanted: &str, texts: &[String]| {
            wanted.is_empty() || texts.iter().any(|text| text.to_lowercase() == wanted)
        };
        (self.name.is_empty() || facts.name.to_lowercase().contains(&self.name))
            && is(&self.keyword, &facts.keywords)
            && is(&self.category, &facts.categories)
            && (self.api.is_empty() || facts.provided_apis.iter().any(|api| is_called(api, &self.api)))
            && self.holds_words(facts)
    }

    fn holds_words(&self, facts: &PackageSummary) -> bool {
        if self.words.is_empty() {
            return true;
        }
        let texts = [&facts.name, &facts.display_name, &facts.summary, &facts.provider];
        let texts: Vec<String> = texts
            .into_iter()
            .chain(&facts.keywords)
            .map(|text| text.to_lowercase())
            .collect();
        self.words
            .iter()
            .all(|word| texts.iter().any(|text| text.contains(word)))
    }

    /// How much a name is like a word that is looked for, if it is; less is better.
    fn distance(&self, facts: &PackageSummary) -> Option<usize> {
        let names = || std::iter::once(facts.name.as_str()).chain(facts.name.split('-'));
        let words = self.words.iter().take(COMPARED_WORDS);
        words
            .flat_map(|word| names().filter_map(|name| distance(word, name)))
            .min()
    }

    /// How good a find is; less is better.
    fn rank(&self, facts: &PackageSummary) -> u8 {
        let name = facts.name.to_lowercase();
        let asked = self
            .words
            .iter()
            .chain(Some(&self.name).filter(|name| !name.is_empty()));
        asked
            .map(|word| match () {
                () if name == *word => 0,
                () if name.starts_with(word.as_str()) => 1,
                () if name.contains(word.as_str()) => 2,
                () => 3,
            })
            .min()
            .unwrap_or(0)
    }
}

/// Whether that is how the API is called, in small letters.
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

impl App {
    /// Answers with the packages of all catalogs that are looked for.
    pub(super) async fn search(&self, request: &Parts) -> Result<Response<Body>, ErrorResponse> {
        let page = self.find(request.uri.query()).await?;
        let text = serde_json::to_vec(&page).unwrap_or_default();
        Ok(document::of("application/json", text, &request.headers))
    }

    /// Looks through all catalogs.
    pub(super) async fn find(&self, query: Option<&str>) -> Result<SearchPage, ErrorResponse> {
        let wanted = SearchQuery::parse(query)?;
        let catalogs: Vec<(i32, Arc<Snapshot>)> = self
            .store
            .snapshots()
            .into_iter()
            .filter(|s| {
                wanted
                    .catalog
                    .as_ref()
                    .is_none_or(|name| s.record().catalog == *name)
            })
            .map(|snapshot| (self.priority(&snapshot.record().catalog), snapshot))
            .collect();
        let found = self
            .workers
            .run(move || Ok(look(&wanted, &catalogs, Instant::now() + TIMEOUT)));
        let found = found.await?.map_err(|error| super::failed("a search", &error))?;
        found.ok_or_else(|| {
            ErrorResponse::of(StatusCode::SERVICE_UNAVAILABLE)
                .because("the search takes too long; look for less, or in one catalog")
        })
    }
}

/// Looks through these catalogs; nothing when it is not done in time. No more is kept than the pages up to the one that
/// is wanted hold. A catalog that cannot be read is as good as none: the others are no worse for it.
fn look(wanted: &SearchQuery, catalogs: &[(i32, Arc<Snapshot>)], until: Instant) -> Option<SearchPage> {
    let end = wanted.start + wanted.limit;
    let mut total = 0;
    let mut best: Vec<(u8, SearchResult)> = Vec::new();
    let mut near: Vec<(usize, String, String)> = Vec::new();
    let order = |best: &mut Vec<(u8, SearchResult)>| {
        let key = |(rank, found): &(u8, SearchResult)| (*rank, Reverse(found.catalog_priority));
        best.sort_by(|a, b| {
            let (first, second) = (&a.1, &b.1);
            key(a)
                .cmp(&key(b))
                .then_with(|| first.facts.name.cmp(&second.facts.name))
                .then_with(|| first.catalog.cmp(&second.catalog))
        });
        best.truncate(end);
    };
    for (priority, snapshot) in catalogs {
        let catalog = &snapshot.record().catalog;
        if !snapshot.record().schemas.contains_key(SCHEMA_PACKAGE) {
            continue;
        }
        let packages = match snapshot.packages() {
            Ok(packages) => packages,
            Err(error) => {
                tracing::error!(
                    catalog,
                    error = &error as &dyn Error,
                    "a catalog is left out of a search"
                );
                continue;
            }
        };
        for facts in packages {
            let facts = match facts {
                Ok(facts) => facts,
                Err(error) => {
                    tracing::error!(
                        catalog,
                        error = &error as &dyn Error,
                        "a catalog is left out of a search"
                    );
                    break;
                }
            };
            if Instant::now() >= until {
                return None;
            }
            if !wanted.fits(&facts) {
                if total == 0
                    && let Some(distance) = wanted.distance(&facts)
                {
                    near.push((distance, facts.name, catalog.clone()));
                    near.sort_unstable();
                    near.truncate(MAX_SUGGESTIONS);
                }
                continue;
            }
            total += 1;
            let found = SearchResult {
                catalog: catalog.clone(),
                catalog_priority: *priority,
                facts,
            };
            best.push((wanted.rank(&found.facts), found));
            if best.len() > 2 * end {
                order(&mut best);
            }
        }
    }
    order(&mut best);
    Some(SearchPage {
        items: best
            .into_iter()
            .skip(wanted.start)
            .map(|(_, found)| found)
            .collect(),
        near: if total == 0 {
            near.into_iter()
                .map(|(_, name, catalog)| (catalog, name))
                .collect()
        } else {
            Vec::new()
        },
        total,
        next: (total > end && end <= MAX_OFFSET).then(|| end.to_string()),
    })
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
            ..PackageSummary::default()
        }
    }

    #[test]
    fn everything_given_has_to_hold() {
        let check = |query: &str, expected: bool| {
            let wanted = SearchQuery::parse(Some(query)).unwrap();
            assert_eq!(wanted.fits(&facts()), expected, "{query}");
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
        check("api=issuer", true);
        check("api=Issuer.cert-manager.io", true);
        check("api=Issuer.v1.cert-manager.io", true);
        check("api=cert-manager.io/v1/Issuer", true);
        check("api=cert-manager.io", true);
        check("api=Issuer.v2.cert-manager.io", false);
    }

    #[test]
    fn what_is_unknown_or_malformed_is_refused() {
        for query in ["x=1", "limit=0", "limit=201", "cursor=x", "q=%zz"] {
            assert!(SearchQuery::parse(Some(query)).is_err(), "{query}");
        }
        let words =
            |count: usize| SearchQuery::parse(Some(&format!("q={}", vec!["a"; count].join("+")))).err();
        assert_eq!(words(MAX_WORDS), None);
        assert_eq!(words(MAX_WORDS + 1), Some(BadQuery::Words(MAX_WORDS)));
    }

    #[test]
    fn names_go_before_other_finds() {
        let rank = |query: &str| SearchQuery::parse(Some(query)).unwrap().rank(&facts());
        let ranks = ["q=cert-manager", "q=cert", "q=manager", "q=tls"].map(rank);
        assert_eq!(ranks, [0, 1, 2, 3]);
    }

    /// A store that serves these catalogs, each with one package of its name.
    fn served(root: &std::path::Path, catalogs: [&str; 2]) -> Vec<(i32, Arc<Snapshot>)> {
        use crate::store::{Commit, Findings, Origin, Store, StoreLimits};
        let store = Arc::new(Store::open(root, StoreLimits::default()).unwrap());
        let serve = |catalog: &str| {
            let line = format!(r#"{{"schema":"olm.package","name":"{catalog}"}}"#);
            let mut writer = store.begin(catalog).unwrap();
            writer.push(SCHEMA_PACKAGE, "", catalog, line.as_bytes()).unwrap();
            let now = jiff::Timestamp::UNIX_EPOCH;
            writer
                .commit(Commit {
                    origin: Origin::default(),
                    findings: Findings::default(),
                    modified: now,
                    now,
                })
                .unwrap()
        };
        catalogs.map(|catalog| (0, serve(catalog))).into()
    }

    fn names(page: Option<SearchPage>) -> Option<Vec<String>> {
        let names = |found: SearchPage| found.items.into_iter().map(|found| found.facts.name);
        page.map(|page| names(page).collect())
    }

    #[test]
    fn a_catalog_that_cannot_be_read_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let catalogs = served(root.path(), ["bad", "good"]);
        // Nothing can be written beside its content any more, so its packages cannot be noted down.
        std::fs::remove_dir_all(root.path().join("bad")).unwrap();
        let wanted = SearchQuery::parse(None).unwrap();
        let found = look(&wanted, &catalogs, Instant::now() + TIMEOUT);
        assert_eq!(names(found), Some(vec!["good".to_owned()]));
    }

    #[test]
    fn a_search_ends_in_time() {
        let root = tempfile::tempdir().unwrap();
        let catalogs = served(root.path(), ["a", "b"]);
        let wanted = SearchQuery::parse(None).unwrap();
        assert_eq!(names(look(&wanted, &catalogs, Instant::now())), None);
        let found = look(&wanted, &catalogs, Instant::now() + TIMEOUT);
        assert_eq!(names(found), Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}
