//! What is refused, and why.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeMap;

use olm_bundle::config::DeploymentConfiguration;
use olm_bundle::media_type::labels_of;
use olm_bundle::{BundleFiles, Request, Scopes, prepare};
use serde_json::{Value, json};
use support::{fixture, with};

const CSV: &str = "manifests/kettle.clusterserviceversion.yaml";
const ANNOTATIONS: &str = "metadata/annotations.yaml";

fn check_request(files: &BundleFiles, request: &Request<'_>, kind: &str, message: &str) {
    let refusal = prepare(files, &BTreeMap::new(), request)
        .err()
        .map(|refusal| (refusal.kind(), refusal.to_string()));
    assert_eq!(refusal, Some((kind, message.to_owned())));
}

fn check(files: &BundleFiles, kind: &str, message: &str) {
    check_request(files, &Request::new("kitchen"), kind, message);
}

fn plus(mut files: BundleFiles, path: &str, text: &str) -> BundleFiles {
    files.insert(path.to_owned(), text.as_bytes().to_vec());
    files
}

fn minus(mut files: BundleFiles, path: &str) -> BundleFiles {
    files.remove(path).expect("the file is there");
    files
}

/// No ClusterServiceVersion, two of them, an owned definition that is not there, no channel.
#[test]
fn each_fault_of_a_bundle_has_its_own_message() {
    let kettle = || fixture("kettle");
    check(
        &minus(kettle(), CSV),
        "no-csv",
        "no ClusterServiceVersion found in \"manifests\"",
    );
    let other =
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: other}\n";
    check(
        &plus(kettle(), "manifests/z.yaml", other),
        "several-csvs",
        "a bundle has exactly one ClusterServiceVersion, found 2: kettle.v1.2.0, other",
    );
    check(
        &minus(kettle(), "manifests/kettles.crd.yaml"),
        "invalid",
        "cluster service definition references owned custom resource definition 'kettles.kitchen.example.com' not \
         found in bundle",
    );
    // That a bundle names no channel matters to those who put it into a catalog: the lint reports it.
    let files = with(
        kettle(),
        ANNOTATIONS,
        "operators.operatorframework.io.bundle.channels.v1: beta, stable",
        "a: b",
    );
    assert!(prepare(&files, &BTreeMap::new(), &Request::new("kitchen")).is_ok());
}

/// A bundle of another format, whether its annotations or only its labels say so.
#[test]
fn another_media_type_is_refused() {
    for (media_type, name) in [
        ("helm+v0", "Helm charts"),
        ("application/vnd.cncf.helm.config.v1+json", "Helm charts"),
        ("plain+v0", "bundles of plain manifests"),
        ("registry+v2", "bundles of media type \"registry+v2\""),
    ] {
        let message = format!("{name} are not supported, only bundles of media type \"registry+v1\" are");
        check(
            &with(fixture("kettle"), ANNOTATIONS, "registry+v1", media_type),
            "media-type",
            &message,
        );
        let label = "operators.operatorframework.io.bundle.mediatype.v1".to_owned();
        let refusal = prepare(
            &BundleFiles::new(),
            &BTreeMap::from([(label, media_type.to_owned())]),
            &Request::new("kitchen"),
        );
        assert_eq!(refusal.err().map(|refusal| refusal.to_string()), Some(message));
    }
}

#[test]
fn an_artifact_that_says_nothing_else_is_refused_by_its_type() {
    let refusal = |files: &BundleFiles, labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let labels = labels_of(&labels, Some("application/vnd.cncf.helm.config.v1+json"), files);
        let prepared = prepare(files, &labels, &Request::new("kitchen"));
        prepared
            .err()
            .map(|refusal| refusal.to_string())
            .unwrap_or_default()
    };
    let none = BundleFiles::new();
    assert!(refusal(&none, &[]).starts_with("Helm charts are not supported"));
    let label = ("operators.operatorframework.io.bundle.mediatype.v1", "plain+v0");
    assert!(refusal(&none, &[label]).starts_with("bundles of plain manifests are not supported"));
    // However it was pushed, a bundle is one.
    assert_eq!(refusal(&fixture("kettle"), &[]), "");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let kettle = || fixture("kettle");
    check(
        &minus(kettle(), ANNOTATIONS),
        "file-missing",
        "open metadata/annotations.yaml: file does not exist",
    );
    check(
        &kettle()
            .into_iter()
            .filter(|(path, _)| path == ANNOTATIONS)
            .collect(),
        "file-missing",
        "open manifests: file does not exist",
    );
    check(
        &plus(kettle(), ANNOTATIONS, "- a"),
        "annotations-unreadable",
        "metadata/annotations.yaml is not a mapping of annotations",
    );
    check(
        &plus(kettle(), "manifests/more/deep.yaml", "a: b"),
        "subdirectory",
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \
         \"manifests/more\"",
    );
    check(
        &plus(kettle(), "manifests/z.yaml", "---\na: b\n"),
        "manifest-unreadable",
        "error parsing objects in \"manifests/z.yaml\": the object of line 2 has no kind",
    );
    check(
        &plus(kettle(), "manifests/z.yaml", "kind: Role\nmetadata: {name: x}\n"),
        "manifest-unreadable",
        "error parsing objects in \"manifests/z.yaml\": the object of line 1 (Role \"x\") has no apiVersion",
    );
    check(
        &plus(
            kettle(),
            "metadata/properties.yaml",
            "properties: [{type: [a], value: 1}]",
        ),
        "properties-unreadable",
        "failed to unmarshal metadata/properties.yaml: the type of property 1 is not a text",
    );
    check(
        &plus(kettle(), "metadata/properties.yaml", "- {type: a, value: 1}"),
        "properties-unreadable",
        "failed to unmarshal metadata/properties.yaml: the properties are not a list",
    );
    check(
        &plus(
            kettle(),
            "metadata/dependencies.yaml",
            "- {type: olm.package, value: {packageName: a, version: 1.0.0}}",
        ),
        "dependencies-unreadable",
        "metadata/dependencies.yaml cannot be read: the dependencies are not a list",
    );
    for (from, to, fault) in [
        (
            "app: kettle\n          spec",
            "app: [kettle]\n          spec",
            "spec.install.spec.deployments[0].label.app must be a string, not a list",
        ),
        (
            "metadata:\n",
            "metadata:\n  labels: {a: b, team: 5}\n",
            "metadata.labels.team must be a string, not a number",
        ),
    ] {
        let text = String::from_utf8(kettle().remove(CSV).expect("it is there")).expect("it is text");
        let files = plus(kettle(), CSV, &text.replacen(from, to, 1));
        let message = format!("the ClusterServiceVersion cannot be read: {fault}");
        check(&files, "csv-unreadable", &message);
    }
}

#[test]
fn kinds_that_a_bundle_may_not_bring_are_named() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: boil}\n";
    check(
        &plus(fixture("kettle"), "manifests/z.yaml", job),
        "invalid",
        "unsupported resource \"boil\" with kind \"Job\"",
    );
}

#[test]
fn definitions_for_an_api_that_is_gone_are_named() {
    let path = "manifests/kettles.crd.yaml";
    check(
        &with(
            fixture("kettle"),
            path,
            "apiextensions.k8s.io/v1",
            "apiextensions.k8s.io/v1beta1",
        ),
        "definition-version",
        "unsupported bundle: custom resource definition \"kettles.kitchen.example.com\" is of \
         apiextensions.k8s.io/v1beta1, which Kubernetes serves no longer: only apiextensions.k8s.io/v1 can be applied",
    );
}

#[test]
fn webhooks_without_a_certificate_provider_are_named() {
    check(
        &fixture("sieve"),
        "webhooks",
        "unsupported bundle: webhookDefinitions are not supported: no certificate provider is configured for \
         ValidatingAdmissionWebhook \"vsieve.kitchen.example.com\", MutatingAdmissionWebhook \
         \"msieve.kitchen.example.com\", ConversionWebhook \"csieve.kitchen.example.com\"",
    );
}

/// Dependencies are never ignored, wherever they are declared.
#[test]
fn dependencies_are_named_wherever_they_are_declared() {
    let refused = |declared: &str, needed: &str| {
        format!("bundle \"kettle.v1.2.0\" has a dependency declared via {declared}: {needed}")
    };
    let in_file = "dependencies:\n- type: olm.package\n  value: {packageName: stove, version: '>0.27.0'}\n\
                   - type: olm.constraint\n  value: {failureMessage: needs gas, cel: {rule: 'true'}}\n";
    check(
        &plus(fixture("kettle"), "metadata/dependencies.yaml", in_file),
        "dependency",
        &format!(
            "{}\n{}",
            refused(
                "\"olm.package\" in metadata/dependencies.yaml",
                "package stove (>0.27.0)"
            ),
            refused("\"olm.constraint\" in metadata/dependencies.yaml", "needs gas")
        ),
    );
    let property =
        "properties:\n- type: olm.package.required\n  value: {packageName: stove, versionRange: 1.x}\n";
    check(
        &plus(fixture("kettle"), "metadata/properties.yaml", property),
        "dependency",
        &refused("property \"olm.package.required\"", "package stove (1.x)"),
    );
    let required = "customresourcedefinitions:\n    required:\n      \
                    - {name: stoves.kitchen.example.com, version: v1, kind: Stove}";
    check(
        &with(fixture("kettle"), CSV, "customresourcedefinitions:", required),
        "dependency",
        &refused(
            "a required API of its ClusterServiceVersion",
            "API Stove kitchen.example.com/v1",
        ),
    );
    check(
        &plus(
            fixture("kettle"),
            "metadata/dependencies.yaml",
            "dependencies: [{value: 1}]",
        ),
        "dependencies-unreadable",
        "metadata/dependencies.yaml cannot be read: dependency 1 has no type",
    );
    let none = plus(
        fixture("kettle"),
        "metadata/dependencies.yaml",
        "dependencies: []",
    );
    assert!(prepare(&none, &BTreeMap::new(), &Request::new("kitchen")).is_ok());
}

#[test]
fn all_reasons_are_given_at_once() {
    let files = with(
        fixture("kettle"),
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
    let refusal = prepare(&files, &BTreeMap::new(), &Request::new("kitchen")).expect_err("four reasons");
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
        fixture("kettle"),
        CSV,
        "AllNamespaces, supported: true",
        "AllNamespaces, supported: false",
    );
    check_request(
        &files,
        &Request {
            scopes: Scopes::AllNamespacesOnly,
            ..Request::new("kitchen")
        },
        "not-all-namespaces",
        "unsupported bundle: bundle does not support AllNamespaces install mode",
    );
}

#[test]
fn configurations_that_do_not_fit_are_explained() {
    let check = |config: Value, deployment_configuration, message: &str| {
        let request = Request {
            config: Some(&config),
            deployment_configuration,
            ..Request::new("kitchen")
        };
        let message = format!("invalid ClusterExtension configuration: invalid configuration: {message}");
        check_request(&fixture("kettle"), &request, "config", &message);
    };
    let allowed = DeploymentConfiguration::Allowed;
    check(
        json!({"colour": "red"}),
        allowed,
        "unknown field \"colour\". There are: watchNamespace, deploymentConfig",
    );
    check(json!([]), allowed, "invalid type: got array, want object");
    check(
        json!({"deploymentConfig": {"env": [{"value": 1}]}}),
        allowed,
        "multiple errors found:\n  - required field \"name\" is missing\n  - invalid type for field \
         \"deploymentConfig.env.0.value\": got number, want string",
    );
    check(
        json!({"deploymentConfig": {"volumes": [{"name": "v", "hostPath": {}}]}}),
        allowed,
        "required field \"path\" is missing",
    );
    check(
        json!({"deploymentConfig": {"volumes": [{"name": "v", "secret": {"secretName": 5}}]}}),
        allowed,
        "invalid type for field \"deploymentConfig.volumes.0.secret.secretName\": got number, want string",
    );
    check(
        json!({"deploymentConfig": {"selector": {}}, "watchNamespace": "UP"}),
        allowed,
        "multiple errors found:\n  - unknown field \"selector\"\n  - invalid value for field \"watchNamespace\"\n  - \
         invalid type for field \"watchNamespace\": got string, want null\n  - field \"watchNamespace\" must match \
         pattern \"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$\"\nThere are: affinity, annotations, env, envFrom, nodeSelector, \
         resources, tolerations, volumeMounts, volumes",
    );
    check(
        json!({"deploymentConfig": {}}),
        DeploymentConfiguration::Unknown,
        "unknown field \"deploymentConfig\". There are: watchNamespace",
    );
    check(
        json!({"deploymentConfig": {"volumeMount": []}}),
        allowed,
        "unknown field \"volumeMount\". Did you mean \"volumeMounts\"?",
    );
    check(
        json!({"watchNamespaces": "a"}),
        allowed,
        "unknown field \"watchNamespaces\". Did you mean \"watchNamespace\"?",
    );
    let everywhere = ["OwnNamespace", "SingleNamespace"]
        .iter()
        .fold(fixture("kettle"), |files, mode| {
            let (from, to) = (
                format!("{mode}, supported: true"),
                format!("{mode}, supported: false"),
            );
            with(files, CSV, &from, &to)
        });
    let config = json!({"watchNamespace": "a"});
    let request = Request {
        config: Some(&config),
        ..Request::new("kitchen")
    };
    check_request(
        &everywhere,
        &request,
        "config",
        "invalid ClusterExtension configuration: invalid configuration: unknown field \"watchNamespace\". The bundle \
         supports AllNamespaces: there is no namespace to choose, remove the field",
    );
    let nowhere_else = with(
        fixture("kettle"),
        CSV,
        "AllNamespaces, supported: true",
        "AllNamespaces, supported: false",
    );
    check_request(
        &nowhere_else,
        &Request::new("kitchen"),
        "config",
        "invalid ClusterExtension configuration: invalid configuration: required field \"watchNamespace\" is missing. The \
         bundle supports OwnNamespace SingleNamespace: name the namespace to watch as watchNamespace, for a \
         ClusterExtension in spec.config.inline",
    );
}

#[test]
fn deployment_configurations_are_read_as_kubernetes_reads_them() {
    let prepared = |config: Value| {
        let config = json!({"deploymentConfig": config});
        let request = Request {
            config: Some(&config),
            ..Request::new("kitchen")
        };
        prepare(&fixture("kettle"), &BTreeMap::new(), &request)
    };
    let refusal = prepared(json!({"resources": {"limits": {"cpu": "lots", "memory": "1Gi"}}}));
    assert_eq!(
        refusal
            .err()
            .map(|refusal| refusal.to_string())
            .unwrap_or_default(),
        "invalid ClusterExtension configuration: invalid deploymentConfig: failed to unmarshal deploymentConfig: \
         resources.limits.cpu: \"lots\" is no quantity, such as 500m, 2 or 128Mi",
    );
    let prepared = prepared(json!({
        "env": [{"name": "A", "valeu": "b"}],
        "resources": {"limits": {"cpu": 1.5, "memory": " 1Gi"}},
        "affinity": {"nodeAffinity": {"odd": 1}},
    }));
    let prepared = prepared.expect("it can be installed");
    assert_eq!(prepared.ignored, ["env[0].valeu", "affinity.nodeAffinity.odd"]);
    let rendered = serde_json::to_string(prepared.rendered.objects()).expect("they are JSON");
    assert!(
        !rendered.contains("valeu") && !rendered.contains("odd"),
        "{rendered}"
    );
}

#[test]
fn what_the_reference_cannot_read_of_a_cluster_service_version_is_refused_with_all_places() {
    let check = |from: &str, to: &str, expected: &str| {
        let files = with(fixture("kettle"), CSV, from, to);
        let found = prepare(&files, &BTreeMap::new(), &Request::new("kitchen"));
        let found = found.err().map(|refusal| refusal.to_string());
        let expected = Some(format!("the ClusterServiceVersion cannot be read: {expected}"));
        assert_eq!(found, expected.filter(|_| !to.contains("# sound")), "{to}");
    };
    let spec = |line: &str, expected: &str| {
        check(
            "  installModes:\n",
            &format!("  {line}\n  installModes:\n"),
            expected,
        );
    };
    spec("skips: kettle.v1.0.0", "spec.skips must be a list, not a string");
    spec("replaces: [a]", "spec.replaces must be a string, not a list");
    spec(
        "maintainers: [{name: 5}]",
        "spec.maintainers[0].name must be a string, not a number",
    );
    spec(
        "cleanup: {enabled: 'no'}",
        "spec.cleanup.enabled must be true or false, not a string",
    );
    spec(
        "release: a..b",
        "spec.release: \"a..b\" is no release, such as 1 or alpha.1",
    );
    spec(
        "selector: []",
        "spec.selector: invalid type: sequence, expected LabelSelector",
    );
    spec(
        "skips: {a: b}\n  labels: {a: 1}",
        "spec.labels.a must be a string, not a number; spec.skips must be a list, not an object",
    );
    spec(
        "webhookdefinitions: [{containerPort: many, targetPort: 1.5, rules: [{operations: CREATE}]}]",
        "spec.webhookdefinitions[0].containerPort must be a whole number of 32 bits, not a string; \
         spec.webhookdefinitions[0].targetPort: invalid type: floating point `1.5`, expected IntOrString; \
         spec.webhookdefinitions[0].rules[0].operations: invalid type: string \"CREATE\", expected a sequence",
    );
    check(
        "  version: 1.2.0\n",
        "  version: one\n",
        "spec.version: \"one\" is no version, such as 1.2.3",
    );
    // As lenient as the reference: null is nothing, a version may be short, a whole number has a fraction of zero.
    for line in [
        "skips: null",
        "nativeAPIs: [null]",
        "keywords: [null, a]",
        "colour: red",
        "minKubeVersion: any",
        "webhookdefinitions: []",
    ] {
        spec(&format!("{line} # sound"), "");
    }
    check("  version: 1.2.0\n", "  version: v1.2 # sound\n", "");
    check("          replicas: 1\n", "          replicas: 1.0 # sound\n", "");
    check(
        "          replicas: 1\n",
        "          replicas: one\n",
        "spec.install.spec.deployments[0].spec.replicas: invalid type: string \"one\", expected a whole number",
    );
    check(
        "limits: {cpu: 500m, memory: 64Mi}",
        "limits: {cpu: lots}",
        "spec.install.spec.deployments[0].spec.template.spec.containers[0].resources.limits.cpu: \"lots\" is no quantity, \
         such as 500m, 2 or 128Mi",
    );
}

#[test]
fn metadata_are_read_as_the_reference_reads_them() {
    let text = |files: &BundleFiles| {
        let prepared =
            prepare(files, &BTreeMap::new(), &Request::new("kitchen")).expect("it can be installed");
        prepared.bundle.properties_text().unwrap_or_default().to_owned()
    };
    let annotation = "    olm.properties: '[{\"type\":\"first\",\"value\":{\"b\":1,\"a\":2}}]'\n";
    let of_file = |content: &str| {
        let bare = with(fixture("kettle"), CSV, annotation, "");
        text(&plus(bare, "metadata/properties.yaml", content))
    };
    let a = r#"[{"type":"a","value":1}]"#;
    for (content, expected) in [
        ("properties: [{type: a, value: 1}]", a),
        ("Properties: [{TYPE: a, Value: 1, more: 2}]", a),
        ("properties: [{property: {type: a, value: 1}}]", a),
        ("properties: [{type: 5, value: 1}]", r#"[{"type":"5","value":1}]"#),
        ("properties: [{type: yes}]", r#"[{"type":"true","value":null}]"#),
        ("properties: [{value: 1}]", r#"[{"type":"","value":1}]"#),
        (
            "properties: [null, {type: a, value: 1}]",
            r#"[{"type":"","value":null},{"type":"a","value":1}]"#,
        ),
        // The reference writes that, too.
        ("properties: []", "null"),
        ("---", "null"),
        ("", ""),
    ] {
        assert_eq!(of_file(content), expected, "{content}");
    }
    // What the annotation says stays to the letter, unless there is more to say.
    let said = r#" [ {"value": {"b": 1, "a": 2}, "TYPE": "x", "more": 1} ] "#;
    let annotated = with(
        fixture("kettle"),
        CSV,
        annotation,
        &format!("    olm.properties: '{said}'\n"),
    );
    let annotated = minus(annotated, "metadata/properties.yaml");
    assert_eq!(text(&annotated), said);
    let both = plus(
        annotated,
        "metadata/properties.yaml",
        "properties: [{type: a, value: 1}]",
    );
    assert_eq!(
        text(&both),
        r#"[{"type":"x","value":{"b":1,"a":2}},{"type":"a","value":1}]"#
    );
    let shouted = plus(
        fixture("kettle"),
        ANNOTATIONS,
        "Annotations:\n  OPERATORS.operatorframework.io.bundle.package.v1: kettle\n",
    );
    assert!(prepare(&shouted, &BTreeMap::new(), &Request::new("kitchen")).is_ok());
}

#[test]
fn dependencies_are_read_however_they_are_written() {
    let text = "Dependencies:\n- Type: olm.package\n  Value: {packageName: stove, version: '>0.27.0'}\n";
    check(
        &plus(fixture("kettle"), "metadata/dependencies.yaml", text),
        "dependency",
        "bundle \"kettle.v1.2.0\" has a dependency declared via \"olm.package\" in metadata/dependencies.yaml: \
         package stove (>0.27.0)",
    );
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-zA-Z./'\" -]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            let key = prop_oneof![
                Just("watchNamespace".to_owned()),
                Just("deploymentConfig".to_owned()),
                Just("env".to_owned()),
                Just("affinity".to_owned()),
                Just("nodeAffinity".to_owned()),
                Just("volumes".to_owned()),
                "[a-z]{1,4}",
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..5).prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_configuration_is_refused_or_rendered_the_same_twice(config in json_value()) {
            let files = fixture("kettle");
            let request = Request { config: Some(&config), ..Request::new("kitchen") };
            let attempt = || prepare(&files, &BTreeMap::new(), &request)
                .map(|prepared| prepared.rendered.into_objects())
                .map_err(|refusal| refusal.to_string());
            prop_assert_eq!(attempt(), attempt());
        }

        #[test]
        fn any_text_in_a_manifest_is_refused_or_rendered(text in "[a-zA-Z0-9:{}\\[\\],'\"\n -]{0,80}") {
            let files = plus(fixture("kettle"), "manifests/z.yaml", &text);
            let attempt = || prepare(&files, &BTreeMap::new(), &Request::new("kitchen"))
                .map(|prepared| prepared.rendered.into_objects())
                .map_err(|refusal| refusal.to_string());
            prop_assert_eq!(attempt(), attempt());
        }
    }
}

/// What a catalog would show of the bundle, from the bundle alone.
#[test]
fn all_properties_hold_what_is_provided_and_required() {
    let in_file = "dependencies:\n- type: olm.package\n  value: {packageName: stove, version: '>0.27.0'}\n\
                   - type: olm.gvk\n  value: {group: g, kind: K, version: v1}\n";
    let files = plus(fixture("kettle"), "metadata/dependencies.yaml", in_file);
    let bundle = olm_bundle::parse(&files, &BTreeMap::new()).unwrap();
    let all: Vec<String> = bundle
        .all_properties()
        .iter()
        .map(|property| format!("{} {}", property.kind, property.value))
        .collect();
    for expected in [
        r#"olm.package.required {"packageName":"stove","versionRange":">0.27.0"}"#,
        r#"olm.gvk.required {"group":"g","kind":"K","version":"v1"}"#,
    ] {
        assert!(all.iter().any(|found| found == expected), "{expected} in {all:?}");
    }
    assert!(all.iter().any(|found| found.starts_with("olm.gvk {")), "{all:?}");
}

/// Two lists of a revision: that of the files to the letter, and what they do not list.
#[test]
fn further_properties_hold_what_the_files_do_not_list_and_the_own_maximum_counts() {
    let told = |maximum: &str| {
        let property = |kind: &str, value| (kind.to_owned(), value);
        [
            property("olm.maxOpenShiftVersion", json!(maximum)),
            property(
                "olm.package.required",
                json!({"packageName": "stove", "versionRange": ">1.0.0"}),
            ),
        ]
    };
    let further = |bundle: &olm_bundle::Bundle, maximum: &str| -> Vec<String> {
        let text = bundle.further_properties(&told(maximum)).unwrap();
        let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        list.iter()
            .map(|property| format!("{} {}", property["type"].as_str().unwrap(), property["value"]))
            .collect()
    };
    let in_file = "properties:\n- {type: x, value: 1}\n- {type: x, value: 1}\n";
    let files = |more: &str| {
        let text = format!("{in_file}{more}");
        plus(fixture("kettle"), "metadata/properties.yaml", &text)
    };
    let bundle = olm_bundle::parse(&files(""), &BTreeMap::new()).unwrap();
    let own = bundle.properties_text().unwrap();
    assert!(
        own.ends_with(r#"{"type":"x","value":1},{"type":"x","value":1}]"#),
        "{own}"
    );
    let found = further(&bundle, "4.18");
    assert!(
        found.contains(&r#"olm.maxOpenShiftVersion "4.18""#.to_owned()),
        "{found:?}"
    );
    assert!(
        found.iter().any(|one| one.starts_with("olm.package.required ")),
        "{found:?}"
    );
    assert!(found.iter().any(|one| one.starts_with("olm.gvk ")), "{found:?}");
    assert!(!found.iter().any(|one| one.starts_with("x ")), "{found:?}");
    let own = files("- {type: olm.maxOpenShiftVersion, value: '4.17'}\n");
    let bundle = olm_bundle::parse(&own, &BTreeMap::new()).unwrap();
    let found = further(&bundle, "4.18");
    assert!(
        !found.iter().any(|one| one.starts_with("olm.maxOpen")),
        "{found:?}"
    );
}
