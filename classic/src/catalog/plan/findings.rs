//! Findings about CustomResourceDefinitions that a plan replaces. They stop no plan.

use std::collections::BTreeMap;

use olm_classic::cluster::annotation;
use olm_classic::names;
use olm_preflight::crd_upgrade::{Policy, compare, definition_name, within};
use olm_text::escape;
use serde_json::{Value, json};

/// Most bytes of the findings about one definition.
const MOST: usize = 800;
/// Most bytes of all findings in the annotation of a plan.
const MOST_NOTED: usize = 64 << 10;

/// Findings, by the names of CustomResourceDefinitions.
pub(super) type Findings = BTreeMap<String, String>;

/// The findings that a plan has noted.
pub(super) fn noted(plan: &Value) -> Findings {
    serde_json::from_str(annotation(plan, names::CRD_FINDINGS_ANNOTATION)).unwrap_or_default()
}

/// As many findings as the annotation of a plan may hold.
pub(super) fn bounded(findings: Findings) -> Findings {
    let mut left = MOST_NOTED;
    let fits = |(name, text): &(String, String)| {
        let size = name.len() + text.len();
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    };
    findings.into_iter().take_while(fits).collect()
}

/// The annotation of a plan with findings; null where there are none.
pub(super) fn note(findings: &Findings) -> Value {
    if findings.is_empty() {
        return Value::Null;
    }
    json!(findings).to_string().into()
}

/// What may break when `wanted` replaces `found`; `None` if nothing.
pub(super) fn findings(found: &Value, wanted: &Value) -> Option<String> {
    let name = definition_name(wanted)?;
    let findings = compare(found, wanted, &Policy::default());
    if findings.is_empty() {
        return None;
    }
    let lines = findings
        .iter()
        .map(|finding| escape(&finding.to_string()).into_owned());
    let lines = lines.collect::<Vec<_>>().join("\n");
    Some(format!(
        "the new CustomResourceDefinition {name} may not fit its objects and clients:\n{}",
        within(&lines, MOST)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(versions: &[&str], fields: &[&str]) -> Value {
        let properties: serde_json::Map<String, Value> = fields
            .iter()
            .map(|field| ((*field).to_owned(), json!({"type": "string"})))
            .collect();
        let schema =
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        let stored = json!(versions);
        let versions = versions.iter().map(|version| {
            json!({
                "name": version, "served": true, "storage": *version == "v1",
                "schema": {"openAPIV3Schema": schema},
            })
        });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "greetings.olm.example"},
            "spec": {
                "group": "olm.example", "scope": "Namespaced", "names": {"kind": "Greeting", "plural": "greetings"},
                "versions": versions.collect::<Vec<_>>(),
            },
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn removed_fields_and_versions_are_findings() {
        let found = definition(&["v1"], &["who", "how"]);
        let text = findings(&found, &definition(&["v1"], &["who"])).unwrap();
        assert!(
            text.starts_with(
                "the new CustomResourceDefinition greetings.olm.example may not fit its objects"
            ) && text.contains("existingFieldRemoval: removed field : v1.^.spec.how"),
            "{text}"
        );
        assert_eq!(
            findings(&found, &definition(&["v1"], &["who", "how", "why"])),
            None
        );
        let text = findings(
            &definition(&["v1", "v1beta1"], &["who"]),
            &definition(&["v1"], &["who"]),
        )
        .unwrap();
        assert!(
            text.contains("servedVersionRemoval") && text.contains("storedVersionRemoval"),
            "{text}"
        );
    }

    #[test]
    fn a_plan_notes_findings_within_the_size_of_an_annotation() {
        let plan = |note: &Value| {
            let annotations = json!({names::CRD_FINDINGS_ANNOTATION: note});
            json!({"metadata": {"annotations": annotations}})
        };
        let few = Findings::from([("as.g".to_owned(), "a field".to_owned())]);
        assert_eq!(noted(&plan(&note(&few))), few);
        assert_eq!(note(&Findings::new()), Value::Null);
        assert_eq!(noted(&json!({})), Findings::new());
        let many: Findings = (0..1000)
            .map(|number| (number.to_string(), "x".repeat(MOST)))
            .collect();
        let bounded = bounded(many);
        assert!((1..1000).contains(&bounded.len()), "{}", bounded.len());
        assert!(note(&bounded).to_string().len() < 2 * MOST_NOTED);
    }
}
