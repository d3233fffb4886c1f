//! `fbc-write`: rendered catalogs.

use olm_author::write;
use olm_fbc::Catalog;
use olm_fbc::meta::limits;
use serde_json::Value;

use super::fbc_load::{catalog_files, double_precision};
use crate::conformance::Outcome;

/// Loads the files of the case and compares the rendered texts.
pub fn run(case: &Value) -> Outcome {
    let expect = case.get("expect").unwrap_or(&Value::Null);
    let mut catalog = Catalog::default();
    let files = catalog_files::read(case.get("files"));
    let failure = files
        .iter()
        .find_map(|(_, text)| catalog.load(text.as_bytes(), &limits()).err());
    let expected_failure = expect.get("load_error").and_then(Value::as_str);
    let outcome = Outcome::compare("the load fails", &expected_failure.is_some(), &failure.is_some());
    if failure.is_some() {
        return outcome;
    }
    if expect.get("nameless").and_then(Value::as_str) == Some("kept") {
        // The reference loses blobs that name no package; without them the texts are equal.
        let all = write::json_lines(&catalog).lines().count();
        let read = [
            &catalog.packages.len(),
            &catalog.channels.len(),
            &catalog.bundles.len(),
        ];
        let read = read.into_iter().sum::<usize>() + catalog.deprecations.len() + catalog.others.len();
        if all != read {
            return Outcome::Fail(format!("{read} blobs were read and {all} written"));
        }
        catalog.packages.retain(|package| !package.name.is_empty());
        catalog.channels.retain(|channel| !channel.package.is_empty());
        catalog.bundles.retain(|bundle| !bundle.package.is_empty());
        catalog
            .deprecations
            .retain(|deprecations| !deprecations.package.is_empty());
    }
    let digits_kept = expect.get("digits").and_then(Value::as_str) == Some("kept");
    let comparable = |text: &str| {
        if digits_kept {
            double_precision(text)
        } else {
            text.to_owned()
        }
    };
    let text = |key: &str| expect.get(key).and_then(Value::as_str).map(comparable);
    outcome
        .and(|| {
            text("json").map_or(Outcome::Pass, |json| {
                Outcome::compare("JSON", &json, &comparable(&write::json(&catalog)))
            })
        })
        .and(|| {
            text("yaml").map_or(Outcome::Pass, |yaml| {
                Outcome::compare("YAML", &yaml, &comparable(&write::yaml(&catalog)))
            })
        })
}
