//! The search over all catalogs.

mod wanted;

use std::cmp::Reverse;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{Response, StatusCode};
use olm_fbc::SCHEMA_PACKAGE;

use super::problem::ErrorResponse;
use super::{App, document};
use crate::body::Body;
use crate::graphql::TIMEOUT;
use crate::package_summary::SearchPlace;
use crate::search_page::{Facets, SearchPage, SearchResult};
use crate::store::Snapshot;
pub(super) use wanted::PARAMETERS;
use wanted::{MAX_OFFSET, SearchQuery};

/// The default number of packages in an answer.
const ANSWER: usize = 50;
const SITE_PAGE: usize = 24;
/// The number of suggested packages if nothing is found.
const MAX_SUGGESTIONS: usize = 5;

impl App {
    /// Answers with the matching packages of all catalogs.
    pub(super) async fn search(&self, request: &Parts) -> Result<Response<Body>, ErrorResponse> {
        let wanted = SearchQuery::parse(request.uri.query(), ANSWER)?;
        let page = self.find(wanted, false).await?;
        let text = serde_json::to_vec(&page).unwrap_or_default();
        Ok(document::of("application/json", text, &request.headers))
    }

    /// The packages for a page for people, and the numbers of packages with other filters.
    pub(super) async fn find_for_people(&self, query: Option<&str>) -> Result<SearchPage, ErrorResponse> {
        let wanted = SearchQuery::parse(query, SITE_PAGE)?;
        self.find(wanted, true).await
    }

    /// Packages with a name like this one, and their catalogs; none if the search fails.
    pub(super) async fn near(&self, package: &str) -> Vec<(String, String)> {
        let wanted = SearchQuery::of_word(package, MAX_SUGGESTIONS);
        let Ok(found) = self.find(wanted, false).await else {
            return Vec::new();
        };
        let items = found
            .items
            .into_iter()
            .filter(|found| found.facts.name == package);
        found
            .near
            .into_iter()
            .chain(items.map(|found| (found.catalog, found.facts.name)))
            .collect()
    }

    /// Searches all catalogs; counts the values of filters if `counted`.
    async fn find(&self, wanted: SearchQuery, counted: bool) -> Result<SearchPage, ErrorResponse> {
        let catalogs: Vec<(i32, Arc<Snapshot>)> = self
            .store
            .snapshots()
            .into_iter()
            .filter(|s| {
                let mut name = wanted.catalog.iter();
                counted || name.all(|name| s.record().catalog == *name)
            })
            .map(|snapshot| (self.priority(&snapshot.record().catalog), snapshot))
            .collect();
        let found = self
            .workers
            .run(move || Ok(look(&wanted, &catalogs, counted, Instant::now() + TIMEOUT)));
        let found = found.await?.map_err(|error| super::failed("a search", &error))?;
        found.ok_or_else(|| {
            ErrorResponse::of(StatusCode::SERVICE_UNAVAILABLE)
                .because("the search takes too long; use more words, or search one catalog")
        })
    }
}

/// The order of results: by date, the youngest first, if that is wanted, and then by relevance.
fn place((rank, found): &(u32, SearchResult), is_by_date: bool) -> (Reverse<&str>, SearchPlace<'_>) {
    let created = if is_by_date {
        found.facts.created.as_str()
    } else {
        ""
    };
    let place = SearchPlace::new(*rank, &found.facts.name, &found.catalog, found.catalog_priority);
    (Reverse(created), place)
}

/// Searches these catalogs; `None` on a timeout. Only the results up to the requested page are kept. A catalog that
/// cannot be read is skipped and does not affect the others.
fn look(
    wanted: &SearchQuery,
    catalogs: &[(i32, Arc<Snapshot>)],
    counted: bool,
    until: Instant,
) -> Option<SearchPage> {
    let end = wanted.start + wanted.limit;
    let mut total = 0;
    let mut counts = Facets::default();
    let mut best: Vec<(u32, SearchResult)> = Vec::new();
    let mut near: Vec<(usize, String, String)> = Vec::new();
    let order = |best: &mut Vec<(u32, SearchResult)>| {
        let is_by_date = wanted.is_by_date;
        best.sort_by(|left, right| place(left, is_by_date).cmp(&place(right, is_by_date)));
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
            let missed = wanted.missed(catalog, &facts);
            if counted {
                counts.add(catalog, &facts, missed);
            }
            if missed != 0 {
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
        start: wanted.start,
        limit: wanted.limit,
        facets: counts,
        next: (total > end && end <= MAX_OFFSET).then(|| end.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // The directory is gone, so no package summaries can be written beside the content.
        std::fs::remove_dir_all(root.path().join("bad")).unwrap();
        let wanted = SearchQuery::parse(None, ANSWER).unwrap();
        let found = look(&wanted, &catalogs, false, Instant::now() + TIMEOUT);
        assert_eq!(names(found), Some(vec!["good".to_owned()]));
    }

    #[test]
    fn by_date_the_youngest_comes_first_and_packages_without_a_date_last() {
        let found = |name: &str, created: &str| {
            let facts = crate::package_summary::PackageSummary {
                name: name.to_owned(),
                created: created.to_owned(),
                ..Default::default()
            };
            let (catalog, catalog_priority) = (String::new(), 0);
            (
                0,
                SearchResult {
                    catalog,
                    catalog_priority,
                    facts,
                },
            )
        };
        let mut all = [
            found("a", ""),
            found("b", "2025-01-01"),
            found("c", "2026-01-01"),
            found("d", "2026-01-01"),
        ];
        for (is_by_date, expected) in [(true, "cdba"), (false, "abcd")] {
            all.sort_by(|left, right| place(left, is_by_date).cmp(&place(right, is_by_date)));
            let names: String = all.iter().map(|(_, found)| found.facts.name.as_str()).collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn a_search_ends_in_time() {
        let root = tempfile::tempdir().unwrap();
        let catalogs = served(root.path(), ["a", "b"]);
        let wanted = SearchQuery::parse(None, ANSWER).unwrap();
        assert_eq!(names(look(&wanted, &catalogs, false, Instant::now())), None);
        let found = look(&wanted, &catalogs, false, Instant::now() + TIMEOUT);
        assert_eq!(names(found), Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}
