//! Messages about a bundle contain no control characters.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeMap;

use olm_bundle::{BundleFiles, CertificateProvider, Dependencies, Request, prepare};
use serde_json::Value;
use support::{fixture, with};

/// A text that ends a line of a message, begins a new object, and reverses the text after it.
const HOSTILE: &str = "x\n---\napiVersion: v1\u{1b}[2J\u{202e}";

/// The paths of all texts in a document.
fn texts(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(path.to_owned()),
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                texts(value, &format!("{path}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                texts(value, &format!("{path}/{key}"), found);
            }
        }
        _ => {}
    }
}

/// All bundles that differ from this one in one text, which is the hostile text, alone or before the original one.
fn hostile(files: &BundleFiles) -> Vec<(String, BundleFiles)> {
    let mut all = Vec::new();
    for (file, content) in files {
        let document: Value = olm_yaml::to_json(content).expect("YAML");
        let mut paths = Vec::new();
        texts(&document, "", &mut paths);
        for path in paths {
            for keeps in [true, false] {
                let mut changed = document.clone();
                if let Some(place) = changed.pointer_mut(&path) {
                    let before = place.as_str().unwrap_or_default().to_owned();
                    *place = Value::from(if keeps {
                        format!("{before}{HOSTILE}")
                    } else {
                        HOSTILE.to_owned()
                    });
                }
                let mut files = files.clone();
                files.insert(file.clone(), changed.to_string().into_bytes());
                all.push((format!("{file}{path}"), files));
            }
        }
    }
    all
}

/// The message does not contain the raw text.
fn check(place: &str, text: &str) {
    let raw = ["\n---", "\napiVersion", "\u{1b}", "\u{202e}"];
    assert!(!raw.iter().any(|raw| text.contains(raw)), "{place}: {text}");
}

#[test]
fn invalid_yaml_is_not_repeated_verbatim() {
    for broken in ["name: [\u{1b}[2J\u{202e}", "\u{1b}: {", "name: *\u{202e}"] {
        let files = with(
            fixture("backup"),
            "manifests/backup.clusterserviceversion.yaml",
            "metadata:",
            broken,
        );
        let refusal = prepare(&files, &BTreeMap::new(), &Request::new("samples"));
        check(broken, &refusal.expect_err("it is refused").to_string());
    }
}

#[test]
fn no_text_of_a_bundle_stands_in_a_refusal_as_it_is() {
    let mut refused = 0;
    for name in ["backup", "router"] {
        for (place, files) in hostile(&fixture(name)) {
            for certificates in [None, Some(CertificateProvider::SelfSigned)] {
                let request = Request {
                    certificates,
                    dependencies: Dependencies::Evaluated,
                    ..Request::new("samples")
                };
                let Err(refusal) = prepare(&files, &BTreeMap::new(), &request) else {
                    continue;
                };
                refused += 1;
                check(&place, &refusal.to_string());
            }
        }
    }
    assert!(refused > 50, "only {refused} were refused");
}
