//! The image of a catalog by a template with the version of Kubernetes.

use jiff::Timestamp;
use olm_fbc::check::image_reference::{self, ReferenceFault};
use serde_json::{Value, json};

use crate::cluster::{items, object_at};
use crate::names;

const RESOLVED: &str = "TemplatesHaveResolved";
const IMAGE: &str = "ResolvedImage";
const FAILED: &str = "cannot construct catalog image reference";

/// The CatalogSource with the image that its template gives, and with conditions that say so; without a template,
/// without these conditions. `server_version` is like `v1.36.0`; empty where it is not known.
pub fn with_image(source: &Value, server_version: &str, now: Timestamp) -> Value {
    let mut object = source.clone();
    let template = template(source).and_then(Value::as_str).unwrap_or_default();
    let mut conditions: Vec<Value> = items(source, "/status/conditions").cloned().collect();
    if template.is_empty() {
        conditions.retain(|condition| condition["type"] != RESOLVED && condition["type"] != IMAGE);
    } else {
        let filled = fill(template, server_version);
        let is_good = filled.missing.is_empty() && !filled.is_malformed;
        let (status, reason) = if is_good {
            ("True", "AllTemplatesResolved")
        } else {
            ("False", "UnableToResolve")
        };
        for (kind, message) in [(RESOLVED, filled.message()), (IMAGE, filled.image.clone())] {
            set(&mut conditions, kind, status, reason, &message, now);
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

fn template(source: &Value) -> Option<&Value> {
    let annotations = source.pointer("/metadata/annotations")?;
    annotations.get(names::IMAGE_TEMPLATE_ANNOTATION)
}

/// Whether a CatalogSource has a template for its image.
pub fn has_template(source: &Value) -> bool {
    template(source).is_some()
}

/// Sets a condition. Its time is kept while its status is.
fn set(conditions: &mut Vec<Value>, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let found = conditions.iter_mut().find(|condition| condition["type"] == kind);
    let since = found
        .as_ref()
        .filter(|found| found["status"] == status)
        .and_then(|found| found.get("lastTransitionTime"))
        .filter(|since| since.is_string())
        .cloned();
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| format!("{now:.0}").into()),
    });
    match found {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

struct ExpandedTemplate {
    image: String,
    /// Variables without a value, each as often as it comes.
    missing: Vec<&'static str>,
    is_malformed: bool,
}

impl ExpandedTemplate {
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

fn fill(template: &str, server_version: &str) -> ExpandedTemplate {
    let version = version(server_version);
    let mut image = String::new();
    let mut missing = Vec::new();
    let mut rest = template;
    while let Some((before, from)) = rest.find('{').and_then(|at| rest.split_at_checked(at)) {
        image.push_str(before);
        let found = VARIABLES.iter().position(|variable| from.starts_with(variable));
        let Some((index, variable)) = found.and_then(|index| Some((index, *VARIABLES.get(index)?))) else {
            image.push('{');
            rest = from.strip_prefix('{').unwrap_or_default();
            continue;
        };
        if let Some(number) = version.as_ref().and_then(|version| version.get(index)) {
            image.push_str(&number.to_string());
        } else {
            missing.push(variable);
            image.push_str("missing");
        }
        rest = from.strip_prefix(variable).unwrap_or_default();
    }
    image.push_str(rest);
    let is_malformed = !is_reference(&image);
    ExpandedTemplate {
        image,
        missing,
        is_malformed,
    }
}

const VARIABLES: [&str; 3] = [
    "{kube_major_version}",
    "{kube_minor_version}",
    "{kube_patch_version}",
];

/// The three numbers of a version; what follows them does not matter.
fn version(text: &str) -> Option<[u64; 3]> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let numbers = text.get(..end)?;
    let number = |part: &str| {
        let is_number =
            part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
        is_number.then(|| part.parse().ok()).flatten()
    };
    let mut parts = numbers.split('.').map(number);
    let version = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(version)
}

/// Whether a text is an image reference. Unlike elsewhere, what stands before the first slash may always be a registry.
fn is_reference(text: &str) -> bool {
    match image_reference::check(text) {
        Ok(()) | Err(ReferenceFault::Identifier) => true,
        Err(_) => {
            let is_plain = |domain: &str| !domain.contains([':', '.']);
            text.split_once('/')
                .filter(|(domain, _)| is_plain(domain))
                .is_some_and(|(domain, path)| image_reference::check(&format!("{domain}:0/{path}")).is_ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_from_the_version() {
        for (template, server, image, missing, is_malformed) in [
            (
                "reg/a:v{kube_major_version}.{kube_minor_version}",
                "v1.36.2-gke.01",
                "reg/a:v1.36",
                vec![],
                false,
            ),
            ("{{kube_patch_version}}", "v1.36.2", "{2}", vec![], true),
            (
                "reg/a:{kube_other}",
                "v1.36.2",
                "reg/a:{kube_other}",
                vec![],
                true,
            ),
            (
                "reg/a:{kube_minor_version}.{kube_major_version}.{kube_minor_version}",
                "v1.36",
                "reg/a:missing.missing.missing",
                vec![VARIABLES[1], VARIABLES[0], VARIABLES[1]],
                false,
            ),
            ("REG/a", "", "REG/a", vec![], false),
            ("reg.example/A", "", "reg.example/A", vec![], true),
        ] {
            let filled = fill(template, server);
            assert_eq!(filled.image, image, "{template}");
            assert_eq!(filled.missing, missing, "{template}");
            assert_eq!(filled.is_malformed, is_malformed, "{template}");
        }
    }

    #[test]
    fn conditions_keep_their_place_and_time() {
        let condition =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": "t"});
        let source = json!({
            "metadata": {"annotations": {"olm.catalogImageTemplate": "reg/a:v{kube_major_version}"}},
            "status": {"conditions": [condition(IMAGE, "True"), condition("Other", "True"), condition(RESOLVED, "False")]},
        });
        let found = with_image(&source, "v1.2.3", Timestamp::UNIX_EPOCH);
        assert_eq!(found["spec"]["image"], "reg/a:v1");
        let conditions = found["status"]["conditions"].as_array().unwrap();
        let of = |key: &str| {
            conditions
                .iter()
                .map(|one| one[key].as_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(of("type"), [IMAGE, "Other", RESOLVED]);
        assert_eq!(of("lastTransitionTime"), ["t", "t", "1970-01-01T00:00:00Z"]);
    }

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
