//! The findings of the lint for authors of bundles.
#![expect(
    clippy::expect_used,
    reason = "outside of the test functions too, a test fails where it stands"
)]

use std::collections::{BTreeMap, BTreeSet};

use olm_author::lint::{Options, RuleSet, Severity, images, layout, load, load_object};
use olm_bundle::BundleFiles;

const CSV: &str = "apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: a.v1.0.0
  annotations: {alm-examples: '[]'}
spec:
  displayName: A
  version: 1.0.0
  minKubeVersion: 1.27.0
  provider: {name: P}
  install:
    strategy: deployment
    spec:
      deployments:
      - name: a
        spec:
          template:
            spec: {serviceAccountName: a, containers: [{name: c, image: i, resources: {requests: {cpu: 1m}}}]}
  installModes:
  - {type: AllNamespaces, supported: true}
  - {type: OwnNamespace, supported: false}
";

fn files(files: &[(&str, &str)]) -> BundleFiles {
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
        .collect()
}

/// Checks the findings of a validator in the sample with replacements made, and further manifests.
fn check(validator: RuleSet, replacements: &[(&str, &str)], more: &[(&str, &str)], expected: &[&str]) {
    let csv = replacements.iter().fold(CSV.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old} is not in the sample");
        text.replace(old, new)
    });
    let mut all = files(&[("manifests/csv.yaml", &csv)]);
    all.extend(files(more));
    let manifests = load(&all).expect("the bundle is loaded");
    let found: Vec<String> = validator
        .run(&manifests, &Options::default())
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expected, "{replacements:?}");
}

#[test]
fn a_good_bundle_has_no_faults() {
    for validator in RuleSet::DEFAULT {
        check(validator, &[], &[], &[]);
    }
}

#[test]
fn a_cluster_service_version_is_looked_at_from_all_sides() {
    let validator = RuleSet::ClusterServiceVersion;
    let error = |detail: &str| format!("Error: Value : (a.v1.0.0) {detail}");
    for (old, new, expected) in [
        ("type: OwnNamespace", "type: AllNamespaces", error("duplicate install modes present")),
        ("supported: true", "supported: false", error("none of InstallModeTypes are supported")),
        (
            "minKubeVersion: 1.27.0",
            "minKubeVersion: '1.27'",
            error("csv.Spec.MinKubeVersion has an invalid value: 1.27"),
        ),
        (
            "  displayName: A\n",
            "",
            "Error: Field Spec.DisplayName, Value field: required field missing".to_owned(),
        ),
        (
            "annotations: {",
            "annotations: {olm.skiprange: '<1.0.0', ",
            "Error: Value a.v1.0.0: provided annotation olm.skiprange uses wrong case and should be olm.skipRange instead"
                .to_owned(),
        ),
        (
            "'[]'",
            "'[{\"kind\":\"K\",\"apiVersion\":\"g/v1\"}]'",
            "Error: Value g/v1, Kind=K: example must have a provided API".to_owned(),
        ),
        ("'[]'", "'{}'", "Error: Value the examples are not a list: error decoding example CustomResource".to_owned()),
    ] {
        check(validator, &[(old, new)], &[], &[&expected]);
    }
}

#[test]
fn objects_of_a_bundle_fit_together() {
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ks.g.io}\nspec:\n  \
                      group: g.io\n  names: {kind: K, plural: ks}\n  scope: Cluster\n  versions: [{name: v1, storage: true}]\n";
    check(
        RuleSet::Bundle,
        &[],
        &[
            ("manifests/crd.yaml", definition),
            (
                "manifests/sa.yaml",
                "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n",
            ),
        ],
        &[
            "Error: Value g.io/v1, Kind=K: CRD \"g.io/v1, Kind=K\" is present in bundle \"a.v1.0.0\" but not defined in CSV",
            "Error: Value a: invalid service account found in bundle. This service account a in your bundle is not valid, \
             because a service account with the same name was already specified in your CSV. If this was unintentional, \
             please remove the service account manifest from your bundle. If it was intentional to specify a separate \
             service account, please rename the SA in either the bundle manifest or the CSV.",
        ],
    );
    check(
        RuleSet::Bundle,
        &[(
            "  provider:",
            "  customresourcedefinitions: {owned: [{name: ks.g.io, version: v2, kind: K}]}\n  relatedImages: [{name: a}, {name: b, image: 'A b'}]\n  provider:",
        )],
        &[],
        &[
            "Error: Value g.io/v2, Kind=K: owned CRD \"g.io/v2, Kind=K\" not found in bundle \"a.v1.0.0\"",
            "Error: Value spec.relatedImages[0].image: relatedImages[0] has an empty image field",
            "Error: Value spec.relatedImages[1].image: relatedImages[1] has an invalid image pullspec \"A b\": \
             invalid reference format: repository name must be lowercase",
        ],
    );
}

/// The list of owned definitions matches the versions of the definition.
#[test]
fn the_owned_entry_names_a_version_that_its_definition_has() {
    let owned = "  customresourcedefinitions: {owned: [{name: cluster.example.com, version: v1beta1, kind: cluster, displayName: \
                 Cluster}]}\n  provider:";
    for (versions, expected) in [
        ("[{name: v1beta1, storage: true}]", &[][..]),
        ("[{name: v1alpha1}, {name: v1beta1, storage: true}]", &[]),
        (
            "[{name: v1, storage: true}]",
            &[
                "Error: Value example.com/v1beta1, Kind=cluster: owned CRD \"example.com/v1beta1, Kind=cluster\" not found in \
                 bundle \"a.v1.0.0\"",
                "Error: Value example.com/v1, Kind=cluster: CRD \"example.com/v1, Kind=cluster\" is present in bundle \
                 \"a.v1.0.0\" but not defined in CSV",
            ],
        ),
    ] {
        let definition = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: cluster.example.com}}\n\
             spec:\n  group: example.com\n  names: {{kind: cluster, plural: cluster}}\n  scope: Cluster\n  versions: {versions}\n"
        );
        let more = [("manifests/crd.yaml", definition.as_str())];
        check(RuleSet::Bundle, &[("  provider:", owned)], &more, expected);
    }
}

#[test]
fn rights_over_disruption_budgets_are_shown() {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}\nrules:\n\
                - {apiGroups: [policy], resources: [poddisruptionbudgets, x], verbs: [get, patch]}\n\
                - {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [get]}\n";
    check(
        RuleSet::Objects,
        &[],
        &[("manifests/role.yaml", role)],
        &[
            "Warning: Value {[get patch] [policy] [poddisruptionbudgets x] [] []}: RBAC includes permission to \
           create/update poddisruptionbudgets, which could impact cluster stability",
        ],
    );
}

#[test]
fn definitions_keep_to_the_rules_of_the_api_server() {
    let check = |spec: &str, expected: &[&str]| {
        let text = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: ks.g.io}}\nspec: {spec}\n"
        );
        let manifests = load_object(text.as_bytes()).expect("the definition is an object");
        let found: Vec<String> = RuleSet::Definitions
            .run(&manifests, &Options::default())
            .iter()
            .map(|problem| problem.detail.clone())
            .collect();
        assert_eq!(found, expected, "{spec}");
    };
    let versions = "versions: [{name: v1, storage: true}]";
    let names = "names: {kind: K, plural: ks}";
    check(
        &format!("{{group: g.io, scope: Cluster, {names}, {versions}}}"),
        &[],
    );
    for (version, expected) in [
        (
            "deprecationWarning: old",
            vec!["Invalid value: \"old\": can only be set for deprecated versions"],
        ),
        (
            "deprecated: true, deprecationWarning: ''",
            vec!["Invalid value: \"\": must not be an empty string"],
        ),
        ("deprecated: true, deprecationWarning: old", vec![]),
        ("deprecated: true", vec![]),
    ] {
        let expected: Vec<String> = expected
            .iter()
            .map(|fault| format!("spec.versions[0].deprecationWarning: {fault}"))
            .collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(
            &format!(
                "{{group: g.io, scope: Cluster, {names}, versions: [{{name: v1, storage: true, {version}}}]}}"
            ),
            &expected,
        );
    }
    check(
        &format!("{{group: g, scope: Global, {names}, {versions}}}"),
        &[
            "metadata.name: Invalid value: \"ks.g.io\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Invalid value: \"g\": should be a domain with at least one dot",
            "spec.scope: Unsupported value: \"Global\": supported values: \"Cluster\", \"Namespaced\"",
        ],
    );
    check(
        &format!("{{group: g.io, scope: Cluster, names: {{kind: K, listKind: K, plural: ks}}, {versions}}}"),
        &["spec.names.listKind: Invalid value: \"K\": kind and listKind may not be the same"],
    );
    check(
        &format!("{{group: g.io, scope: Cluster, {names}, {versions}, conversion: {{strategy: Webhook}}}}"),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
    let webhook = "{clientConfig: {service: {namespace: shed}}, conversionReviewVersions: [v1]}";
    check(
        &format!(
            "{{group: g.io, scope: Cluster, {names}, {versions}, conversion: {{strategy: Webhook, webhook: {webhook}}}}}"
        ),
        &["spec.conversion.webhookClientConfig.service.name: Required value"],
    );
    check(
        &format!("{{group: g.io, scope: Cluster, names: {{plural: ks}}, {versions}}}"),
        &[
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ],
    );
}

#[test]
fn places_that_list_operators_want_more() {
    check(
        RuleSet::OperatorHubV2,
        &[(
            "provider: {name: P}",
            "maintainers: [{name: M, email: nobody}]\n  links: [{name: L, url: nowhere}]\n  icon: [{base64data: eA==, mediatype: text/plain}]",
        )],
        &[],
        &[
            "Error: Value : (a.v1.0.0) csv.Spec.Provider.Name not specified",
            "Error: Value : (a.v1.0.0) csv.Spec.Maintainers email nobody is invalid: mail: missing '@' or angle-addr",
            "Error: Value : (a.v1.0.0) csv.Spec.Links url nowhere is invalid: parse \"nowhere\": invalid URI for request",
            "Error: Value : (a.v1.0.0) csv.Spec.Icon text/plain does not have a valid mediatype",
        ],
    );
}

#[test]
fn removed_apis_are_an_error_from_the_version_on_that_removes_them() {
    let budget = "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: b}\n";
    let mut all = files(&[(
        "manifests/csv.yaml",
        &CSV.replace("  minKubeVersion: 1.27.0\n", ""),
    )]);
    all.extend(files(&[("manifests/b.yaml", budget)]));
    let manifests = load(&all).expect("the bundle is loaded");
    for (version, severity) in [
        ("", Severity::Warning),
        ("1.24", Severity::Warning),
        ("1.25", Severity::Error),
    ] {
        let options = Options {
            kubernetes_version: version.to_owned(),
            ..Options::default()
        };
        let found = RuleSet::RemovedApis.run(&manifests, &options);
        let severities: Vec<Severity> = found.iter().map(|problem| problem.severity).collect();
        assert_eq!(severities, [severity], "{version}");
    }
}

#[test]
fn images_are_built_for_the_platforms_that_labels_promise() {
    let check = |labels: &str, image: Result<&[&str], &str>, expected: &[&str]| {
        let csv = CSV.replace("metadata:\n", &format!("metadata:\n  labels: {{{labels}}}\n"));
        let manifests = load(&files(&[("manifests/csv.yaml", &csv)])).expect("the bundle is loaded");
        assert_eq!(images(&manifests), BTreeSet::from(["i".to_owned()]));
        let built = image
            .map(|platforms| platforms.iter().map(|platform| (*platform).to_owned()).collect())
            .map_err(str::to_owned);
        let options = Options {
            platforms: BTreeMap::from([("i".to_owned(), built)]),
            ..Options::default()
        };
        let found = RuleSet::Platforms.run(&manifests, &options);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{labels}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{labels}: {found}");
        }
    };
    let arch = "operatorframework.io/arch.";
    check("", Ok(&["linux/amd64"]), &[]);
    check(
        "",
        Ok(&["linux/arm64"]),
        &[
            "Error: Value : (a.v1.0.0) the labels say that linux/amd64 is supported, for which image i is not built",
            "built for linux/arm64, too",
        ],
    );
    check(
        "",
        Ok(&["linux/amd64", "linux/s390x"]),
        &["Warning: Value : (a.v1.0.0) the operator's images are built for linux/s390x"],
    );
    check(&format!("{arch}arm64: supported"), Ok(&["linux/arm64"]), &[]);
    // A label with another value than `supported` has no effect.
    check(&format!("{arch}arm64: unsupported"), Ok(&["linux/amd64"]), &[]);
    check(
        &format!("{arch}arm64: supported, operatorframework.io/os.windows: supported"),
        Ok(&["linux/arm64"]),
        &["windows/arm64 is supported", "linux/arm64, too"],
    );
    check(
        "",
        Err("gone"),
        &["Warning: Value : (a.v1.0.0) cannot tell on which platforms image i runs: gone"],
    );
}

#[test]
fn fields_of_wrong_types_are_named() {
    let text = CSV.replace(
        "provider: {name: P}",
        "maintainers: nobody\n  links: [{name: []}]",
    );
    let faults = load_object(text.as_bytes()).expect_err("fields have wrong types");
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "unable to parse CSV : spec.maintainers must be a list, not a string",
            "unable to parse CSV : spec.links[0].name must be a string, not a list",
        ]
    );
}

#[test]
fn the_form_of_a_bundle_is_checked() {
    let annotations = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: helm\n  \
                       operators.operatorframework.io.bundle.manifests.v1: other/\n  \
                       operators.operatorframework.io.bundle.metadata.v1: metadata/\n  \
                       operators.operatorframework.io.bundle.package.v1: a\n  \
                       operators.operatorframework.io.bundle.channels.v1: ''\n";
    let dependencies = "dependencies:\n- {type: olm.package, value: {packageName: p, version: '^1'}}\n- {type: olm.gvk, value: \
                        {group: g, kind: K}}\n- {type: olm.constraint, value: {failureMessage: m}}\n- {type: other, value: {}}\n";
    let check = |given: &[(&str, &str)], expected: &[&str]| {
        let found: Vec<String> = layout(&files(given))
            .into_iter()
            .map(|fault| fault.message)
            .collect();
        assert_eq!(found, expected);
    };
    check(
        &[],
        &[
            "Unable to locate manifests directory",
            "Unable to locate metadata directory",
        ],
    );
    check(
        &[("manifests/csv.yaml", CSV), ("metadata/x.yaml", "a: 1\n")],
        &["Could not find annotations file"],
    );
    check(
        &[
            ("manifests/csv.yaml", CSV),
            ("metadata/annotations.yaml", annotations),
            ("metadata/dependencies.yaml", dependencies),
        ],
        &[
            "Expecting annotation \"operators.operatorframework.io.bundle.mediatype.v1\" to have value \"registry+v1\" instead of \"helm\"",
            "Expecting annotation \"operators.operatorframework.io.bundle.manifests.v1\" to have value \"manifests/\" instead of \"other/\"",
            "Expecting annotation \"operators.operatorframework.io.bundle.channels.v1\" to have non-empty value",
            "Invalid semver format version",
            "API Version is empty",
            "The CEL field is missing",
            "couldn't parse dependency of type other",
        ],
    );
}

#[test]
fn the_schema_is_as_strict_as_the_reader() {
    let annotations = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  \
                       operators.operatorframework.io.bundle.manifests.v1: manifests/\n  \
                       operators.operatorframework.io.bundle.metadata.v1: metadata/\n  \
                       operators.operatorframework.io.bundle.package.v1: a\n  \
                       operators.operatorframework.io.bundle.channels.v1: stable\n";
    let check = |from: &str, to: &str, more: &[(&str, &str)], expected: &[&str]| {
        let annotations = annotations.replace(from, to);
        let mut all = files(&[
            ("manifests/csv.yaml", CSV),
            ("metadata/annotations.yaml", &annotations),
        ]);
        all.extend(files(more));
        let found: Vec<(Option<String>, String)> = layout(&all)
            .into_iter()
            .map(|fault| (fault.file, fault.message))
            .collect();
        assert_eq!(found.len(), expected.len(), "{to} {more:?}: {found:?}");
        for ((file, message), expected) in found.iter().zip(expected) {
            let text = format!("{}: {message}", file.as_deref().unwrap_or_default());
            assert!(text.starts_with(expected), "{text}");
        }
    };
    check("", "", &[], &[]);
    check(": manifests/", ": manifests", &[], &[]);
    check(": metadata/", ": metadata", &[], &[]);
    let other = "metadata/annotations.yaml: Expecting annotation";
    check(": manifests/", ": manifest", &[], &[other]);
    check("registry+v1", "registry", &[], &[other]);
    // Not YAML: a colon in a plain text, control characters.
    let prose = "# Notes\n\nRead this: it is: no data\n\t- x";
    for name in ["README.md", ".DS_Store", "notes", "a.yaml.orig"] {
        let path = format!("metadata/{name}");
        check("", "", &[(&path, prose)], &[]);
    }
    for name in ["notes.yaml", "notes.yml", "notes.JSON"] {
        let path = format!("metadata/{name}");
        check("", "", &[(&path, prose)], &[&format!("{path}: cannot be read: ")]);
    }
}
