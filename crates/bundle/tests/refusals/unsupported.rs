//! Features that an installation does not support.

use super::*;

#[test]
fn webhooks_without_a_certificate_provider_are_named() {
    check(
        &fixture("router"),
        "webhooks",
        "unsupported bundle: webhookDefinitions are not supported: no certificate provider is configured for \
         ValidatingAdmissionWebhook \"vrouter.samples.example.com\", MutatingAdmissionWebhook \
         \"mrouter.samples.example.com\", ConversionWebhook \"crouter.samples.example.com\"",
    );
}

/// Dependencies are never ignored, wherever they are declared.
#[test]
fn dependencies_are_named_wherever_they_are_declared() {
    let refused = |declared: &str, needed: &str| {
        format!("bundle \"backup.v1.2.0\" has a dependency declared via {declared}: {needed}")
    };
    let in_file = "dependencies:\n- type: olm.package\n  value: {packageName: vault, version: '>0.27.0'}\n\
                   - type: olm.constraint\n  value: {failureMessage: needs gas, cel: {rule: 'true'}}\n";
    check(
        &plus(fixture("backup"), "metadata/dependencies.yaml", in_file),
        "dependency",
        &format!(
            "{}\n{}",
            refused(
                "\"olm.package\" in metadata/dependencies.yaml",
                "package vault (>0.27.0)"
            ),
            refused("\"olm.constraint\" in metadata/dependencies.yaml", "needs gas")
        ),
    );
    let property =
        "properties:\n- type: olm.package.required\n  value: {packageName: vault, versionRange: 1.x}\n";
    check(
        &plus(fixture("backup"), "metadata/properties.yaml", property),
        "dependency",
        &refused("property \"olm.package.required\"", "package vault (1.x)"),
    );
    let required = "customresourcedefinitions:\n    required:\n      \
                    - {name: vaults.samples.example.com, version: v1, kind: Vault}";
    check(
        &with(fixture("backup"), CSV, "customresourcedefinitions:", required),
        "dependency",
        &refused(
            "a required API of its ClusterServiceVersion",
            "API Vault samples.example.com/v1",
        ),
    );
    check(
        &plus(
            fixture("backup"),
            "metadata/dependencies.yaml",
            "dependencies: [{value: 1}]",
        ),
        "dependencies-unreadable",
        "metadata/dependencies.yaml cannot be read: dependency 1 has no type",
    );
    let none = plus(
        fixture("backup"),
        "metadata/dependencies.yaml",
        "dependencies: []",
    );
    assert!(prepare(&none, &BTreeMap::new(), &Request::new("samples")).is_ok());
}

#[test]
fn all_reasons_are_given_at_once() {
    let files = with(
        fixture("backup"),
        CSV,
        "customresourcedefinitions:",
        "webhookdefinitions: [{type: x}]\n  customresourcedefinitions:",
    );
    let files = with(files, CSV, "supported: true", "supported: false");
    let owned = "install:\n    strategy: deployment";
    let files = with(
        files,
        CSV,
        owned,
        &format!("apiservicedefinitions: {{owned: [{{name: a, version: v1, group: g}}]}}\n  {owned}"),
    );
    let refusal = prepare(&files, &BTreeMap::new(), &Request::new("samples")).expect_err("four reasons");
    let text = refusal.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].contains(
            "apiServiceDefintions are not supported: no certificate provider is configured for \"v1.g\""
        ),
        "{text}"
    );
    assert!(
        lines[1].contains("webhookDefinitions are not supported"),
        "{text}"
    );
    assert!(
        lines[2].contains("at least one of [AllNamespaces SingleNamespace OwnNamespace]"),
        "{text}"
    );
}

#[test]
fn operators_that_cannot_watch_everything_are_refused_where_nothing_else_is_allowed() {
    let files = with(
        fixture("backup"),
        CSV,
        "AllNamespaces, supported: true",
        "AllNamespaces, supported: false",
    );
    check_request(
        &files,
        &Request {
            scopes: Scopes::AllNamespacesOnly,
            ..Request::new("samples")
        },
        "not-all-namespaces",
        "unsupported bundle: bundle does not support AllNamespaces install mode",
    );
}
