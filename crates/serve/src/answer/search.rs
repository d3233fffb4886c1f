//! The search over all catalogs.

use std::cmp::Reverse;
use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode};
use olm_fbc::SCHEMA_PACKAGE;
use serde::Serialize;

use super::graphql::Failure;
use super::problem::{Refusal, refuse};
use super::query::{BadQuery, parameters, parse_limit};
use super::{App, Body, document};
use crate::facts::{Api, PackageFacts};
use crate::store::Snapshot;

/// Packages on a page, unasked and at the most.
const PAGE: usize = 50;
const MOST: usize = 200;
/// How far pages go.
const FARTHEST: usize = 10_000;

/// What is looked for; everything given has to hold. Letter case does not matter but in the catalog's name.
#[derive(Debug, Default)]
pub(super) struct Wanted {
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

impl Wanted {
    /// Reads what is looked for out of a query.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, BadQuery> {
        let [words, name, keyword, api, category, catalog, limit, cursor] = parameters(
            query,
            [
                "q", "name", "keyword", "api", "category", "catalog", "limit", "cursor",
            ],
        )?;
        let lower = |text: Option<String>| text.unwrap_or_default().to_lowercase();
        let start = cursor.map(|cursor| parse_limit(&cursor, FARTHEST).map_err(|_| BadQuery::Cursor));
        Ok(Self {
            words: lower(words).split_whitespace().map(ToOwned::to_owned).collect(),
            name: lower(name),
            keyword: lower(keyword),
            api: lower(api),
            category: lower(category),
            catalog,
            start: start.transpose()?.unwrap_or(0),
            limit: limit.map_or(Ok(PAGE), |limit| parse_limit(&limit, MOST))?,
        })
    }

    fn fits(&self, facts: &PackageFacts) -> bool {
        let is = |wanted: &str, texts: &[String]| {
            wanted.is_empty() || texts.iter().any(|text| text.to_lowercase() == wanted)
        };
        (self.name.is_empty() || facts.name.to_lowercase().contains(&self.name))
            && is(&self.keyword, &facts.keywords)
            && is(&self.category, &facts.categories)
            && (self.api.is_empty() || facts.provided_apis.iter().any(|api| is_called(api, &self.api)))
            && self.holds_words(facts)
    }

    fn holds_words(&self, facts: &PackageFacts) -> bool {
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

    /// How good a find is; less is better.
    fn rank(&self, facts: &PackageFacts) -> u8 {
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

/// A package that was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Found {
    pub(crate) catalog: String,
    pub(crate) catalog_priority: i32,
    #[serde(flatten)]
    pub(crate) facts: PackageFacts,
}

/// A page of what was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Finds {
    pub(crate) items: Vec<Found>,
    /// How many there are on all pages.
    pub(crate) total: usize,
    /// What leads to the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl App {
    /// Answers with the packages of all catalogs that are looked for.
    pub(super) async fn search(&self, request: &Parts) -> Result<Response<Body>, Refusal> {
        let finds = self.find(request.uri.query()).await?;
        let text = serde_json::to_vec(&finds).unwrap_or_default();
        Ok(document::of("application/json", text, &request.headers))
    }

    /// Looks through all catalogs.
    pub(super) async fn find(&self, query: Option<&str>) -> Result<Finds, Refusal> {
        let wanted = Wanted::parse(query)
            .map_err(|error| refuse(StatusCode::BAD_REQUEST).because(error.to_string()))?;
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
        let found = self.turns.run(move || look(&wanted, &catalogs)).await?;
        found.map_err(|error| super::failed("a search", &error))
    }
}

/// Looks through these catalogs. No more is kept than the pages up to the one that is wanted hold.
fn look(wanted: &Wanted, catalogs: &[(i32, Arc<Snapshot>)]) -> Result<Finds, Failure> {
    let end = wanted.start + wanted.limit;
    let mut total = 0;
    let mut best: Vec<Found> = Vec::new();
    let order = |best: &mut Vec<Found>| {
        best.sort_by_cached_key(|found| {
            let rank = wanted.rank(&found.facts);
            let name = found.facts.name.clone();
            (rank, Reverse(found.catalog_priority), name, found.catalog.clone())
        });
        best.truncate(end);
    };
    for (priority, snapshot) in catalogs {
        if !snapshot.record().schemas.contains_key(SCHEMA_PACKAGE) {
            continue;
        }
        for facts in snapshot.packages()? {
            let facts = facts?;
            if !wanted.fits(&facts) {
                continue;
            }
            total += 1;
            best.push(Found {
                catalog: snapshot.record().catalog.clone(),
                catalog_priority: *priority,
                facts,
            });
            if best.len() > 2 * end {
                order(&mut best);
            }
        }
    }
    order(&mut best);
    Ok(Finds {
        items: best.into_iter().skip(wanted.start).collect(),
        total,
        next: (total > end && end <= FARTHEST).then(|| end.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> PackageFacts {
        PackageFacts {
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
            ..PackageFacts::default()
        }
    }

    #[test]
    fn everything_given_has_to_hold() {
        let check = |query: &str, expected: bool| {
            let wanted = Wanted::parse(Some(query)).unwrap();
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
            assert!(Wanted::parse(Some(query)).is_err(), "{query}");
        }
    }

    #[test]
    fn names_go_before_other_finds() {
        let rank = |query: &str| Wanted::parse(Some(query)).unwrap().rank(&facts());
        let ranks = ["q=cert-manager", "q=cert", "q=manager", "q=tls"].map(rank);
        assert_eq!(ranks, [0, 1, 2, 3]);
    }
}
