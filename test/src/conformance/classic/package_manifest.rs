//! The PackageManifest API.

use base64::Engine as _;
use olm_classic::package_manifest::{
    IconAnswer, PackageManifest, SVG, ServedCatalog, icon, label_selector, manifests, name_of_field_selector,
};
use serde_json::{Value, json};

use super::super::Outcome;
use super::{list, one_of, registry_grpc, significant, sort_keys, text};

/// Runs a case. Where several outcomes are recorded, one of them does.
pub fn run(case: &Value) -> Outcome {
    let mut sources = Vec::new();
    for source in list(case, "catalogSources") {
        match registry_grpc::read(source) {
            Ok(catalog) => sources.push((source, catalog)),
            Err(error) => return Outcome::Fail(error),
        }
    }
    let sources: Vec<ServedCatalog<'_>> = sources
        .iter()
        .map(|(object, catalog)| ServedCatalog { object, catalog })
        .collect();
    let request = case.get("request").unwrap_or(&Value::Null);
    let seen = manifests(
        &sources,
        text(request, "namespace"),
        text(case, "globalNamespace"),
    );
    let actual = answer(request, &seen);
    one_of(case, |expected| compare(expected, &actual))
}

fn compare(expected: &Value, actual: &Value) -> Outcome {
    let mut expected = expected.clone();
    if let Some(expected) = expected.as_object_mut() {
        // Texts of the libraries that answer HTTP.
        for key in ["code", "reason"] {
            if actual.get(key).is_none() {
                expected.remove(key);
            }
        }
    }
    Outcome::compare("the answer", &normal(&expected), &normal(actual))
}

/// An answer without noise, with sorted keys, items and images.
fn normal(answer: &Value) -> Value {
    fn sorted(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    sorted(value);
                    let is_set = key.ends_with("_unordered");
                    if let (true, Some(items)) = (is_set, value.as_array_mut()) {
                        items.sort_by_key(ToString::to_string);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(sorted),
            _ => {}
        }
    }
    let mut answer = sort_keys(&significant(answer));
    sorted(&mut answer);
    answer
}

fn answer(request: &Value, seen: &[PackageManifest]) -> Value {
    let name = text(request, "name");
    let found = seen.iter().find(|found| found.object["metadata"]["name"] == name);
    let bare = |manifest: &PackageManifest| {
        let mut object = manifest.object.clone();
        if let Some(object) = object.as_object_mut() {
            object.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
        }
        let channels = object["status"]["channels"].as_array_mut().into_iter().flatten();
        let described = channels.filter_map(|channel| channel["currentCSVDesc"].as_object_mut());
        for described in described {
            if let Some(images) = described.remove("relatedImages") {
                described.insert("relatedImages_unordered".to_owned(), images);
            }
        }
        object
    };
    match text(request, "verb") {
        "get" => match found {
            Some(found) => json!({"ok": true, "object": bare(found)}),
            None => json!({
                "ok": false, "code": 404, "reason": "NotFound",
                "error": format!("packagemanifests.packages.operators.coreos.com \"{name}\" not found"),
            }),
        },
        "icon" => of_icon(request, found),
        verb => match selected(request, seen) {
            Err(error) => json!({"ok": false, "error": error}),
            Ok(found) if verb == "table" => {
                let row = |manifest: &&PackageManifest| {
                    let object = &manifest.object;
                    json!([
                        object["metadata"]["name"],
                        object["status"]["catalogSourceDisplayName"],
                        "<age>"
                    ])
                };
                json!({
                    "ok": true, "columns": ["Name", "Catalog", "Age"],
                    "rows_unordered": found.iter().map(row).collect::<Vec<_>>(),
                })
            }
            Ok(found) => {
                json!({"ok": true, "items_unordered": found.into_iter().map(bare).collect::<Vec<_>>()})
            }
        },
    }
}

fn selected<'a>(request: &Value, seen: &'a [PackageManifest]) -> Result<Vec<&'a PackageManifest>, String> {
    let name = name_of_field_selector(text(request, "fieldSelector")).map_err(|error| error.to_string())?;
    let labels = label_selector(text(request, "labelSelector")).map_err(|error| error.to_string())?;
    let is_meant = |manifest: &&PackageManifest| {
        let metadata = &manifest.object["metadata"];
        name.as_ref().is_none_or(|name| metadata["name"] == **name)
            && labels.matches(&serde_json::from_value(metadata["labels"].clone()).unwrap_or_default())
    };
    Ok(seen.iter().filter(is_meant).collect())
}

fn of_icon(request: &Value, found: Option<&PackageManifest>) -> Value {
    let headers = request.get("headers").unwrap_or(&Value::Null);
    let has_tag = !text(headers, "If-None-Match").is_empty();
    let mut query = text(request, "query").split('&');
    let has_version = query.any(|part| part.starts_with("resourceVersion=") && !part.ends_with('='));
    let none = json!({"Content-Length": "", "Content-Type": "", "Etag": ""});
    let found = found.map(|found| found.picture.as_ref());
    let picture = |media_type: &str, tag: &str| {
        json!({
            "ok": true, "status": 200, "headers": {"Content-Type": media_type, "Etag": tag},
        })
    };
    match icon(found, has_tag, has_version) {
        IconAnswer::NotFound => json!({"ok": true, "status": 404, "headers": none, "body_base64": ""}),
        IconAnswer::NotModified => json!({"ok": true, "status": 304, "headers": none, "body_base64": ""}),
        IconAnswer::Default => {
            let mut answer = picture(SVG, "");
            answer["default_icon"] = json!(true);
            answer["headers"]["Content-Length"] = Value::Null;
            answer
        }
        IconAnswer::Icon(found) => {
            let mut answer = picture(&found.media_type, &found.tag);
            answer["headers"]["Content-Length"] = json!(found.body.len().to_string());
            answer["body_base64"] = json!(base64::engine::general_purpose::STANDARD.encode(&found.body));
            answer
        }
    }
}
