//! The image of a catalog by a template with the version of Kubernetes.

use jiff::Timestamp;
use olm_fbc::check::image_reference;
use serde_json::{Value, json};

use crate::cluster::{items, object_at, text};
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
            // The time moves with the status only.
            let mut before = items(source, "/status/conditions");
            let same = before.find(|before| before["type"] == kind && before["status"] == status);
            let since = same.map(|same| text(same, "/lastTransitionTime").to_owned());
            let since = since.filter(|since| !since.is_empty());
            conditions.push(json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": since.unwrap_or_else(|| format!("{now:.0}")),
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
    let version = server_version.trim_start_matches('v');
    let version = semver::Version::parse(version).ok();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_that_gives_the_same_image_changes_nothing() {
        let source = json!({
            "metadata": {"annotations": {names::IMAGE_TEMPLATE_ANNOTATION: "r.example/c:v{kube_minor_version}"}},
            "spec": {"sourceType": "grpc"},
        });
        let first = with_image(&source, "v1.36.2", Timestamp::UNIX_EPOCH);
        assert_eq!(first["spec"]["image"], "r.example/c:v36");
        let later = Timestamp::from_second(3600).unwrap();
        assert_eq!(with_image(&first, "v1.36.2", later), first);
        let failed = with_image(&first, "", later);
        let condition = &failed["status"]["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["lastTransitionTime"]),
            (&json!("False"), &json!("1970-01-01T01:00:00Z"))
        );
    }
}
