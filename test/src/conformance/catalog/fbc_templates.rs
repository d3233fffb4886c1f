//! `fbc-templates`: the catalogs that templates render.

use std::collections::{BTreeMap, BTreeSet};

use olm_author::template::semver::{Archetype, Stream, Versions, check_versions, generate};
use olm_author::template::{Bundles, Template};
use olm_author::write;
use olm_fbc::{Bundle, Catalog, Channel};
use olm_version::{Version, blang};
use serde_json::{Value, json};

use crate::conformance::Outcome;

/// Runs a case by its kind.
pub fn run(case: &Value) -> Outcome {
    let expect = case.get("expect").unwrap_or(&Value::Null);
    match case.get("kind").and_then(Value::as_str) {
        Some("semver_generate_channels") => channels(case, expect),
        Some("semver_read") => read(case, expect),
        Some("semver_validate_versions") => outcome(
            expect,
            versions(case.get("versions"))
                .and_then(|versions| check_versions(&versions).map_err(|error| error.to_string())),
        ),
        Some("substitutes_render") => substitutes(case, expect),
        kind => Outcome::Fail(format!("unknown kind {kind:?}")),
    }
}

/// Whether the result is the expected one, and the text of the error unless it comes from another parser.
fn outcome(expect: &Value, found: Result<(), String>) -> Outcome {
    let ok = expect.get("ok").and_then(Value::as_bool).unwrap_or_default();
    let text = |key: &str| expect.get(key).and_then(Value::as_str);
    Outcome::compare("ok", &ok, &found.is_ok()).and(|| match found {
        Ok(()) => Outcome::Pass,
        Err(error) => match (text("error"), text("error_contains")) {
            // The text after these prefixes comes from another parser or checker.
            (Some(expected), _) => match ["not valid FBC: ", "JSON: ", "entries: ", "yaml: "]
                .into_iter()
                .find_map(|head| expected.split_once(head).map(|(before, _)| (before, head)))
            {
                Some((before, "not valid FBC: ")) => {
                    Outcome::compare("the head of the error", &true, &error.starts_with(before))
                }
                Some(_) => Outcome::Pass,
                None => Outcome::compare("error", &expected, &error.as_str()),
            },
            (None, Some(part)) => Outcome::compare("the error has the part", &true, &error.contains(part)),
            (None, None) => Outcome::Pass,
        },
    })
}

fn versions(value: Option<&Value>) -> Result<BTreeMap<String, Version>, String> {
    let versions = value.and_then(Value::as_object).into_iter().flatten();
    versions
        .map(|(bundle, version)| {
            let version = version.as_str().unwrap_or_default();
            blang::parse_version(version)
                .map(|version| (bundle.clone(), version))
                .map_err(|error| error.to_string())
        })
        .collect()
}

fn rendered(channels: &[Channel]) -> Vec<Value> {
    let catalog = Catalog {
        channels: channels.to_vec(),
        ..Catalog::default()
    };
    let lines = write::json_lines(&catalog);
    lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn sorted(expect: &Value) -> Vec<Value> {
    let mut channels = expect
        .get("channels")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    channels.sort_by_key(|channel| channel.get("name").map(Value::to_string));
    channels
}

fn channels(case: &Value, expect: &Value) -> Outcome {
    let flag = |key: &str| case.get(key).and_then(Value::as_bool).unwrap_or_default();
    let mut streams = BTreeSet::new();
    if flag("generateMajorChannels") {
        streams.insert(Stream::Major);
    }
    if flag("generateMinorChannels") {
        streams.insert(Stream::Minor);
    }
    let preference = match case.get("defaultChannelTypePreference").and_then(Value::as_str) {
        Some("major") => Stream::Major,
        _ => Stream::Minor,
    };
    let mut all = Versions::new();
    for archetype in Archetype::ALL {
        match versions(case.pointer(&format!("/versions/{}", archetype.name()))) {
            Ok(found) => all.insert(archetype, found),
            Err(error) => return Outcome::Fail(error),
        };
    }
    let package = case.get("package").and_then(Value::as_str).unwrap_or_default();
    let generated = generate(package, &streams, preference, &all);
    let default = expect.get("defaultChannel").and_then(Value::as_str);
    Outcome::compare("channels", &sorted(expect), &rendered(&generated.channels)).and(|| {
        Outcome::compare(
            "default channel",
            &default.unwrap_or_default(),
            &generated.default_channel.as_str(),
        )
    })
}

fn read(case: &Value, expect: &Value) -> Outcome {
    let text = case.get("text").and_then(Value::as_str).unwrap_or_default();
    let template = match Template::parse(text.as_bytes()) {
        Ok(Template::Semver(semver)) => semver,
        Ok(other) => return outcome(expect, Err(format!("a template of the kind {:?}", other.kind()))),
        Err(error) => {
            // The reference takes the schema for granted where it reads this kind only.
            let told_otherwise = expect
                .get("error")
                .and_then(Value::as_str)
                .is_some_and(|error| error.contains("unknown schema") || error.contains("unknown field"));
            let ok = expect.get("ok").and_then(Value::as_bool).unwrap_or_default();
            return if told_otherwise {
                Outcome::compare("ok", &ok, &false)
            } else {
                outcome(expect, Err(error.to_string()))
            };
        }
    };
    outcome(expect, Ok(())).and(|| {
        let expected = expect.get("template").unwrap_or(&Value::Null);
        let flag = |key: &str| expected.get(key).and_then(Value::as_bool).unwrap_or_default();
        let images = |archetype: Archetype| -> Value {
            let pointer = format!("/{}/bundles", archetype.name());
            let bundles = expected.pointer(&pointer).and_then(Value::as_array);
            bundles
                .into_iter()
                .flatten()
                .map(|bundle| bundle.get("image").cloned().unwrap_or_default())
                .collect()
        };
        let preference = expected.get("defaultChannelTypePreference").cloned();
        let wanted = json!({
            "major": flag("generateMajorChannels"),
            "minor": flag("generateMinorChannels"),
            "preference": preference,
            "images": Archetype::ALL.map(images),
        });
        let found = json!({
            "major": template.streams.contains(&Stream::Major),
            "minor": template.streams.contains(&Stream::Minor),
            "preference": template.preference.name(),
            "images": Archetype::ALL.map(|archetype| {
                template.images.get(&archetype).cloned().unwrap_or_default()
            }),
        });
        Outcome::compare("template", &wanted, &found)
    })
}

fn substitutes(case: &Value, expect: &Value) -> Outcome {
    let mut bundles = Bundles::new();
    let given = case.get("rendered_bundles").and_then(Value::as_object);
    for (image, holds) in given.into_iter().flatten() {
        let error = holds.get("err").and_then(Value::as_str);
        let blobs = holds.get("bundles").and_then(Value::as_array);
        let found: Result<Vec<Bundle>, String> = match error {
            Some(error) => Err(error.to_owned()),
            None => blobs
                .into_iter()
                .flatten()
                .map(|blob| Bundle::from_json(&blob.to_string()).map_err(|error| error.to_string()))
                .collect(),
        };
        bundles.insert(image.clone(), found);
    }
    let text = match case.get("template") {
        Some(Value::String(text)) => text.clone(),
        Some(template) => template.to_string(),
        None => String::new(),
    };
    match Template::parse(text.as_bytes()).and_then(|template| template.render(&bundles)) {
        Err(error) => {
            let parsing = expect
                .get("error")
                .and_then(Value::as_str)
                .is_some_and(|error| error.contains("unable to"));
            if parsing {
                let ok = expect.get("ok").and_then(Value::as_bool).unwrap_or_default();
                return Outcome::compare("ok", &ok, &false);
            }
            outcome(expect, Err(error.to_string()))
        }
        Ok(catalog) => outcome(expect, Ok(())).and(|| {
            let names: Vec<&str> = catalog
                .bundles
                .iter()
                .map(|bundle| bundle.name.as_str())
                .collect();
            let wanted: Vec<&str> = expect
                .get("bundle_names")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            Outcome::compare("bundles", &wanted, &names)
                .and(|| Outcome::compare("channels", &sorted(expect), &rendered(&catalog.channels)))
        }),
    }
}
