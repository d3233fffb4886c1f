//! The list of all catalogs.

use std::collections::BTreeMap;

use http::{HeaderMap, Response};
use jiff::Timestamp;
use olm_api::serving::CATALOGS_PATH;
use serde::Serialize;

use super::{App, document};
use crate::body::Body;
use crate::store::{Lookup, Snapshot};

#[derive(Serialize)]
struct List<'a> {
    catalogs: Vec<Catalog<'a>>,
}

/// A catalog in the list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Catalog<'a> {
    name: &'a str,
    priority: i32,
    /// Whether the content is present. If not, it is being fetched or is unavailable.
    ready: bool,
    /// The path of its endpoints.
    path: String,
    #[serde(flatten)]
    content: Option<ContentSummary<'a>>,
}

/// A summary of served content.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContentSummary<'a> {
    digest: String,
    source: &'a str,
    bytes: u64,
    blobs: u64,
    packages: u64,
    bundles: u64,
    schemas: &'a BTreeMap<String, u64>,
    findings: u64,
    modified: Timestamp,
    stored: Timestamp,
}

impl App {
    /// Answers with every catalog that is known, by name.
    pub(super) fn catalogs(&self, headers: &HeaderMap) -> Response<Body> {
        let mut known: BTreeMap<String, Lookup> = (self.names)()
            .into_iter()
            .map(|name| (name, Lookup::Unknown))
            .collect();
        known.extend(self.store.known());
        let catalogs = known.iter().map(|(name, lookup)| Catalog {
            name,
            priority: self.priority(name),
            ready: matches!(lookup, Lookup::Served(_)),
            path: format!("{CATALOGS_PATH}{name}"),
            content: match lookup {
                Lookup::Served(snapshot) => Some(content(snapshot)),
                Lookup::Expected | Lookup::Unknown => None,
            },
        });
        let list = List {
            catalogs: catalogs.collect(),
        };
        document::of(
            "application/json",
            serde_json::to_vec(&list).unwrap_or_default(),
            headers,
        )
    }

    /// The priority of a catalog; higher ones go first.
    pub(super) fn priority(&self, catalog: &str) -> i32 {
        (self.priorities)(catalog).unwrap_or(0)
    }
}

fn content(snapshot: &Snapshot) -> ContentSummary<'_> {
    let record = snapshot.record();
    let count = |schema: &str| record.schemas.get(schema).copied().unwrap_or(0);
    ContentSummary {
        digest: format!("sha256:{}", record.digest),
        source: &record.origin.resolved,
        bytes: record.bytes,
        blobs: record.blobs,
        packages: count(olm_fbc::SCHEMA_PACKAGE),
        bundles: count(olm_fbc::SCHEMA_BUNDLE),
        schemas: &record.schemas,
        findings: record.findings.total,
        modified: record.modified,
        stored: record.stored,
    }
}
