//! The image of a catalog by a template with the version of Kubernetes.

use jiff::Timestamp;
use olm_fbc::check::image_reference;
use serde_json::{Value, json};

use crate::cluster::{items, object_at};
use crate::names;

const RESOLVED: &str = "TemplatesHaveResolved";
const IMAGE: &str = "ResolvedImage";
const FAILED: &str = "cannot construct catalog image reference";

/// The CatalogSource with the image that its template gives, and with conditions that say so; without a template, without
/// these conditions. `server_version` is like `v1.36.0`; empty where it is not known.
pub fn with_image(source: &Value, server_version: &str, now: Timestamp) -> Value {
    let mut object = source.clone();
    let annotations = source.pointer("/metadata/annotations");
    let template = annotations.and_then(|found| found.get(names::IMAGE_TEMPLATE_ANNOTATION));
    let template = template.and_then(Value::as_str).unwrap_or_default();
    let kept = items(source, "/status/conditions")
        .filter(|condition| condition["type"] != RESOLVED && condition["type"] != IMAGE);
    let mut conditions: Vec<Value> = kept.cloned().collect();
    if !template.is_empty() {
        let filled = fill(template, server_version);
        let is_good = filled.missing.is_empty() && !filled.is_malformed;
        let (status, reason) = if is_good {
            ("True", "AllTemplatesResolved")
        } else {
            ("False", "UnableToResolve")
        };
        for (kind, message) in [(RESOLVED, filled.message()), (IMAGE, filled.image.clone())] {
            conditions.push(json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": format!("{now:.0}"),
            }));
        }
        if let (true, Some(spec)) = (is_good, object_at(&mut object, &["spec"])) {
            spec.insert("image".to_owned(), filled.image.into());
        }
    }
    if let (true, Some(status)) = (
        !conditions.is_empty() || source.pointer("/status/conditions").is_some(),
        object_at(&mut object, &["status"]),
    ) {
        status.insert("conditions".to_owned(), json!(conditions));
    }
    object
}

struct Filled {
    image: String,
    /// Variables without a value.
    missing: Vec<&'static str>,
    is_malformed: bool,
}

impl Filled {
    fn message(&self) -> String {
        let missing: Vec<String> = self.missing.iter().map(|name| format!("\"{name}\"")).collect();
        match (missing.is_empty(), self.is_malformed) {
            (true, false) => "catalog image reference was successfully resolved".to_owned(),
            (true, true) => format!("{FAILED}, because one or more template(s) has improper syntax"),
            (false, is_malformed) => {
                let also = if is_malformed {
                    " and one or more template(s) has improper syntax"
                } else {
                    ""
                };
                let missing = missing.join(", ");
                format!("{FAILED}, because variable(s) {missing} could not be resolved{also}")
            }
        }
    }
}

fn fill(template: &str, server_version: &str) -> Filled {
    let text = server_version.trim_start_matches('v');
    let version = semver::Version::parse(text).ok();
    let values = [
        (
            "{kube_major_version}",
            version.as_ref().map(|version| version.major),
        ),
        (
            "{kube_minor_version}",
            version.as_ref().map(|version| version.minor),
        ),
        (
            "{kube_patch_version}",
            version.as_ref().map(|version| version.patch),
        ),
    ];
    let mut image = template.to_owned();
    let mut missing = Vec::new();
    for (name, value) in values {
        if image.contains(name) {
            let value = value.map_or_else(
                || {
                    missing.push(name);
                    "missing".to_owned()
                },
                |value| value.to_string(),
            );
            image = image.replace(name, &value);
        }
    }
    let is_malformed = image.contains(['{', '}']) || image_reference::check(&image).is_err();
    Filled {
        image,
        missing,
        is_malformed,
    }
}
