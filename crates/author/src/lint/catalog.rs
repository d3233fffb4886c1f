//! All checks of a catalog.

mod advisory;

use std::sync::Arc;

use olm_fbc::check::{BlobLocation, Object, Rule};
use olm_fbc::meta::{limits, metas};
use olm_fbc::{Catalog, CatalogFinding, CatalogReport, Checker, Meta, MetaError};

use crate::write;

/// The rules of a catalog in memory. Places are those of its rendered lines and have no meaning.
#[must_use]
pub fn catalog(catalog: &Catalog) -> CatalogReport {
    let mut checker = Checker::new();
    for meta in metas(write::json_lines(catalog).as_bytes(), &limits()) {
        match meta {
            Ok(meta) => checker.add("", &meta),
            Err(error) => checker.add_failure("", &error),
        }
    }
    checker.finish()
}

/// Lint of a catalog in progress: the rules that every catalog must keep, the constraints of its bundles, and warnings
/// about content without effect: misspelled fields and schemas, duplicate keys, a catalog without content.
#[derive(Debug)]
pub struct CatalogLint {
    checker: Checker,
    advisories: CatalogReport,
    file: Arc<str>,
    /// Whether the catalog has any content, readable or not.
    has_content: bool,
}

impl Default for CatalogLint {
    fn default() -> Self {
        Self::new()
    }
}

impl CatalogLint {
    /// A lint without blobs.
    #[must_use]
    pub fn new() -> Self {
        Self {
            checker: Checker::new().with_constraints(olm_constraint::fault),
            advisories: CatalogReport::default(),
            file: Arc::from(""),
            has_content: false,
        }
    }

    /// Adds the next blob, which is in `file`.
    pub fn add(&mut self, file: &str, meta: &Meta) {
        self.has_content = true;
        if *self.file != *file {
            self.file = Arc::from(file);
        }
        let object = Object::of(meta);
        for (rule, message) in advisory::advisories(meta) {
            self.advisories.add(CatalogFinding {
                rule,
                object: object.clone(),
                place: Some(BlobLocation {
                    file: Arc::clone(&self.file),
                    line: meta.position,
                }),
                message,
            });
        }
        self.checker.add(file, meta);
    }

    /// Takes note of a file that cannot be read to its end.
    pub fn add_failure(&mut self, file: &str, error: &MetaError) {
        self.has_content = true;
        self.checker.add_failure(file, error);
    }

    /// Applies the rules between blobs and returns all findings in the order of the catalog.
    #[must_use]
    pub fn finish(self) -> CatalogReport {
        let mut report = self.advisories;
        let CatalogReport {
            findings, omitted, ..
        } = self.checker.finish();
        report.omitted += omitted;
        for finding in findings {
            report.add(finding);
        }
        if !self.has_content {
            report.add(CatalogFinding {
                rule: Rule::CatalogEmpty,
                object: Object::default(),
                place: None,
                message: "the catalog is empty: no file has an object".to_owned(),
            });
        }
        report.sort();
        report
    }
}
