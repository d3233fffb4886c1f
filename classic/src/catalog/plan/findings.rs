//! Findings about CustomResourceDefinitions that a plan replaces. They stop no plan.

use olm_preflight::crd_upgrade::{Check, Policy, compare, definition_name, within};
use olm_text::escape;
use serde_json::Value;

/// Most bytes of the findings about one definition.
const MOST: usize = 800;

/// What may break when `wanted` replaces `found`; `None` if nothing. A stored version that is removed is left out: the
/// pass over the plan refuses it.
pub(super) fn findings(found: &Value, wanted: &Value) -> Option<String> {
    let name = definition_name(wanted)?;
    let mut findings = compare(found, wanted, &Policy::default());
    findings.retain(|finding| finding.check != Check::StoredVersionRemoval);
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
            "status": {"storedVersions": ["v1", "v1beta1"]},
        })
    }

    #[test]
    fn a_removed_field_is_a_finding_and_a_removed_stored_version_is_not() {
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
            text.contains("servedVersionRemoval") && !text.contains("storedVersionRemoval"),
            "{text}"
        );
    }
}
