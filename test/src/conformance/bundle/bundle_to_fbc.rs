//! `bundle-to-fbc`: bundles as catalogs show them.

use std::collections::BTreeMap;

use olm_author::catalog_entry;
use olm_fbc::property::TYPE_BUNDLE_OBJECT;
use serde_json::{Value, json};

use crate::conformance::{Outcome, files};

/// Reads the files of the case and compares name, package, channels and properties.
pub fn run(case: &Value) -> Outcome {
    let expect = case.get("expect").unwrap_or(&Value::Null);
    let files = files(case);
    let ok = expect.get("ok").and_then(Value::as_bool).unwrap_or_default();
    // The texts of errors are those of a file system or name types of another language.
    let entry = match catalog_entry::entry(&files, &BTreeMap::new(), "") {
        Ok(entry) => entry,
        Err(error) => {
            return match Outcome::compare("ok", &ok, &false) {
                Outcome::Fail(why) => Outcome::Fail(format!("{why}: {error}")),
                outcome => outcome,
            };
        }
    };
    let properties: Vec<Value> = entry
        .bundle
        .properties
        .iter()
        .filter(|property| property.kind != TYPE_BUNDLE_OBJECT)
        .map(|property| {
            let value: Value = serde_json::from_str(&property.value).unwrap_or_default();
            json!({"type": property.kind, "value": value})
        })
        .collect();
    let field = |key: &str| expect.get(key).cloned().unwrap_or_default();
    Outcome::compare("ok", &ok, &true)
        .and(|| Outcome::compare("name", &field("name"), &json!(entry.bundle.name)))
        .and(|| Outcome::compare("package", &field("package"), &json!(entry.bundle.package)))
        .and(|| match field("channels") {
            Value::Null => Outcome::compare("channels", &Vec::<String>::new(), &entry.channels),
            channels => Outcome::compare("channels", &channels, &json!(entry.channels)),
        })
        .and(|| {
            Outcome::compare(
                "properties",
                &field("fbc_properties_without_objects"),
                &Value::Array(properties),
            )
        })
}
