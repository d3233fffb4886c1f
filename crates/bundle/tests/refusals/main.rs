//! Refusals and their reasons.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod configuration;
mod content;
mod generated;
mod reading;
#[path = "../support/mod.rs"]
mod support;
mod unsupported;

use std::collections::BTreeMap;

use olm_bundle::config::DeploymentConfiguration;
use olm_bundle::media_type::labels_of;
use olm_bundle::{BundleFiles, PrepareError, Request, Scopes, prepare};
use serde_json::{Value, json};
use support::{fixture, with};

const CSV: &str = "manifests/backup.clusterserviceversion.yaml";
const ANNOTATIONS: &str = "metadata/annotations.yaml";

fn check_request(files: &BundleFiles, request: &Request<'_>, kind: &str, message: &str) {
    let refusal = prepare(files, &BTreeMap::new(), request)
        .err()
        .map(|refusal| match &refusal {
            PrepareError::Config {
                advice: Some(advice), ..
            } => (refusal.kind(), format!("{refusal}\n{advice}")),
            _ => (refusal.kind(), refusal.to_string()),
        });
    assert_eq!(refusal, Some((kind, message.to_owned())));
}

fn check(files: &BundleFiles, kind: &str, message: &str) {
    check_request(files, &Request::new("samples"), kind, message);
}

fn plus(mut files: BundleFiles, path: &str, text: &str) -> BundleFiles {
    files.insert(path.to_owned(), text.as_bytes().to_vec());
    files
}

fn minus(mut files: BundleFiles, path: &str) -> BundleFiles {
    files.remove(path).expect("the file is there");
    files
}
