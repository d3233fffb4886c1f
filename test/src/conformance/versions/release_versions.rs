//! `release-versions.json`: releases, and the version and release of a bundle as catalog tools see them.

use olm_fbc::{Bundle, Property};
use olm_version::Release;
use serde_json::{Value, json};

use crate::conformance::{Outcome, compare_version, expect};

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    match case.get("kind").and_then(Value::as_str) {
        Some("release_parse") => release_parse(case),
        Some("bundle_version_release") => bundle_version_release(case),
        other => Outcome::Fail(format!("unknown kind {other:?}")),
    }
}

fn release_parse(case: &Value) -> Outcome {
    let input = case.get("input").and_then(Value::as_str).unwrap_or_default();
    match Release::parse(input) {
        Ok(release) => Outcome::compare("ok", &expect(case, "ok"), &&json!(true))
            .and(|| Outcome::compare("canonical", &expect(case, "canonical"), &&json!(release.as_str())))
            .and(|| Outcome::compare("absent", &expect(case, "absent"), &&json!(release.is_empty()))),
        Err(fault) => Outcome::compare("error", &expect(case, "error"), &&json!(fault.to_string())),
    }
}

fn bundle_version_release(case: &Value) -> Outcome {
    let Some(object) = case.get("bundle") else {
        return Outcome::Fail("no bundle".to_owned());
    };
    let mut bundle = match Bundle::from_json(&object.to_string()) {
        Ok(bundle) => bundle,
        Err(fault) => return Outcome::Fail(fault.to_string()),
    };
    if let Some(csv) = case
        .get("csv_json")
        .and_then(Value::as_str)
        .filter(|csv| !csv.is_empty())
    {
        let mut properties = std::mem::take(&mut bundle.properties).into_vec();
        let data = base64(csv.as_bytes());
        properties.push(Property::new(
            "olm.bundle.object",
            json!({ "data": data }).to_string(),
        ));
        bundle.properties = properties.into();
    }
    match bundle.version_release() {
        Ok(found) => compare_version(case, &found),
        Err(fault) => match expect(case, "error").as_str() {
            Some(expected) => Outcome::compare("error", &expected, &fault.to_string().as_str()),
            None => Outcome::compare("ok", &expect(case, "ok"), &&json!(false)),
        },
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
