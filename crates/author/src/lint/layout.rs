//! The form of a bundle directory: required files, and the required content of its metadata.

use std::collections::BTreeMap;

use olm_bundle::BundleFiles;
use olm_bundle::object::text;
use olm_bundle::{REGISTRY_V1, annotation_keys};
use olm_fbc::check::Severity;
use olm_version::blang;
use serde_json::Value;

use super::finding::{FORMAT, Finding};

/// Every fault of the layout.
#[must_use]
pub fn layout(files: &BundleFiles) -> Vec<Finding> {
    let mut faults = Vec::new();
    for directory in ["manifests", "metadata"] {
        let prefix = format!("{directory}/");
        if !files.keys().any(|path| path.starts_with(&prefix)) {
            faults.push(finding(None, format!("Unable to locate {directory} directory")));
        }
    }
    if !faults.is_empty() {
        return faults;
    }
    let mut annotations: Option<(&str, Value)> = None;
    let mut dependencies: Option<(&str, Value)> = None;
    for (path, content) in files.iter().filter(|(path, _)| path.starts_with("metadata/")) {
        let document = match olm_yaml::to_json(content) {
            Ok(document) => document,
            // Other files are for people or tools, for example a README or files of an editor.
            Err(_) if !is_data(path) => continue,
            Err(error) => {
                let fault = error.to_string();
                faults.push(finding(Some(path), format!("cannot be read: {fault}")).of_fault(path, fault));
                continue;
            }
        };
        if annotations.is_none() && document.get("annotations").is_some_and(Value::is_object) {
            annotations = Some((path, document));
        } else if dependencies.is_none() && document.get("dependencies").is_some_and(Value::is_array) {
            dependencies = Some((path, document));
        }
    }
    match &annotations {
        None => faults.push(finding(None, "Could not find annotations file")),
        Some((path, document)) => check_annotations(path, document, &mut faults),
    }
    if let Some((path, document)) = &dependencies {
        let entries = document.get("dependencies").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let messages = dependency(entry);
            faults.extend(messages.into_iter().map(|message| finding(Some(path), message)));
        }
    }
    substitutes_and_release(files, &mut faults);
    faults
}

fn finding(file: Option<&str>, message: impl Into<String>) -> Finding {
    Finding::new(Severity::Error, FORMAT, message).in_file(file)
}

/// Whether the file has the extension of a data file.
fn is_data(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["yaml", "yml", "json"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

fn check_annotations(path: &str, document: &Value, faults: &mut Vec<Finding>) {
    let annotations: BTreeMap<&str, &str> = document
        .get("annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    let mut find = |message: String| faults.push(finding(Some(path), message));
    for (key, wanted) in [
        (annotation_keys::MEDIA_TYPE, Some(REGISTRY_V1)),
        (annotation_keys::MANIFESTS, Some("manifests/")),
        (annotation_keys::METADATA, Some("metadata/")),
        (annotation_keys::PACKAGE, None),
        (annotation_keys::CHANNELS, None),
    ] {
        match (annotations.get(key), wanted) {
            (None, _) => find(format!("Missing annotation {key:?}")),
            // A directory is the same without the slash at its end.
            (Some(found), Some(wanted)) if *found != wanted && wanted.strip_suffix('/') != Some(found) => {
                find(format!(
                    "Expecting annotation {key:?} to have value {wanted:?} instead of {found:?}"
                ));
            }
            (Some(found), None) if found.trim().is_empty() => {
                find(format!("Expecting annotation {key:?} to have non-empty value"));
            }
            _ => {}
        }
    }
    let channels: Vec<&str> = annotations
        .get(annotation_keys::CHANNELS)
        .into_iter()
        .flat_map(|channels| channels.split(','))
        .map(str::trim)
        .collect();
    match annotations
        .get(annotation_keys::DEFAULT_CHANNEL)
        .map(|channel| channel.trim())
    {
        Some("") => find(format!(
            "Expecting annotation {:?} to have non-empty value",
            annotation_keys::DEFAULT_CHANNEL
        )),
        _ => {
            if channels.len() > 1 && channels.contains(&"") {
                find(format!(
                    "annotation {:?} has an empty channel name",
                    annotation_keys::CHANNELS
                ));
            }
        }
    }
}

/// The faults of one entry of `metadata/dependencies.yaml`.
fn dependency(entry: &Value) -> Vec<String> {
    let kind = text(entry, "/type");
    let Some(value) = entry.get("value").filter(|value| value.is_object()) else {
        return vec![format!("couldn't parse dependency of type {kind}")];
    };
    let empty = |pointer: &str, message: &str| text(value, pointer).is_empty().then(|| message.to_owned());
    let messages = match kind {
        "olm.gvk" => vec![
            empty("/group", "API Group is empty"),
            empty("/version", "API Version is empty"),
            empty("/kind", "API Kind is empty"),
        ],
        "olm.package" => {
            let range = text(value, "/version");
            let fault = (!range.is_empty() && blang::Range::parse(range).is_err())
                .then(|| "Invalid semver format version".to_owned());
            vec![
                empty("/packageName", "Package name is empty"),
                empty("/version", "Package version is empty"),
                fault,
            ]
        }
        "olm.label" => vec![empty("/label", "Label information is missing")],
        "olm.constraint" => {
            // Constraints may also be of another kind than a CEL expression.
            let other = ["gvk", "package", "all", "any", "not"]
                .iter()
                .any(|key| value.get(*key).is_some_and(|value| !value.is_null()));
            match value.get("cel").filter(|cel| !cel.is_null()) {
                None if other => vec![],
                None => vec![Some("The CEL field is missing".to_owned())],
                Some(_) => vec![empty("/cel/rule", "The CEL expression is missing")],
            }
        }
        other => vec![Some(format!("couldn't parse dependency of type {other}"))],
    };
    messages.into_iter().flatten().collect()
}

/// A bundle declares another release of a version in one of two ways, not in both.
fn substitutes_and_release(files: &BundleFiles, faults: &mut Vec<Finding>) {
    for (path, content) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
        let Ok(csv) = olm_yaml::to_json(content) else {
            continue;
        };
        if text(&csv, "/kind") == "ClusterServiceVersion"
            && !text(&csv, "/spec/release").is_empty()
            && !text(&csv, "/metadata/annotations/olm.substitutesFor").is_empty()
        {
            faults.push(finding(
                Some(path),
                "a bundle has either a release or the annotation olm.substitutesFor, not both",
            ));
        }
    }
}
