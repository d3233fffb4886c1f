//! The strictness of the parser.

use super::*;

#[test]
fn an_unreadable_cluster_service_version_is_refused_with_all_places() {
    let check = |from: &str, to: &str, expected: &str| {
        let files = with(fixture("backup"), CSV, from, to);
        let found = prepare(&files, &BTreeMap::new(), &Request::new("samples"));
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
    spec("skips: backup.v1.0.0", "spec.skips must be a list, not a string");
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
        "spec.release: \"a..b\" is not a release, such as 1 or alpha.1",
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
        "spec.version: \"one\" is not a version, such as 1.2.3",
    );
    // As lenient as the reference implementation: null is absent, a version may be short, an integer may have a
    // fraction of zero.
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
        "spec.install.spec.deployments[0].spec.template.spec.containers[0].resources.limits.cpu: \"lots\" is not a quantity, \
         such as 500m, 2 or 128Mi",
    );
}

#[test]
fn metadata_are_read_as_the_reference_reads_them() {
    let text = |files: &BundleFiles| {
        let prepared =
            prepare(files, &BTreeMap::new(), &Request::new("samples")).expect("it can be installed");
        prepared.bundle.properties_text().unwrap_or_default().to_owned()
    };
    let annotation = "    olm.properties: '[{\"type\":\"first\",\"value\":{\"b\":1,\"a\":2}}]'\n";
    let of_file = |content: &str| {
        let bare = with(fixture("backup"), CSV, annotation, "");
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
        // The reference implementation writes that, too.
        ("properties: []", "null"),
        ("---", "null"),
        ("", ""),
    ] {
        assert_eq!(of_file(content), expected, "{content}");
    }
    // The annotation is unchanged byte for byte, unless there are more properties.
    let said = r#" [ {"value": {"b": 1, "a": 2}, "TYPE": "x", "more": 1} ] "#;
    let annotated = with(
        fixture("backup"),
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
        fixture("backup"),
        ANNOTATIONS,
        "Annotations:\n  OPERATORS.operatorframework.io.bundle.package.v1: backup\n",
    );
    assert!(prepare(&shouted, &BTreeMap::new(), &Request::new("samples")).is_ok());
}

#[test]
fn dependencies_are_read_however_they_are_written() {
    let text = "Dependencies:\n- Type: olm.package\n  Value: {packageName: vault, version: '>0.27.0'}\n";
    check(
        &plus(fixture("backup"), "metadata/dependencies.yaml", text),
        "dependency",
        "bundle \"backup.v1.2.0\" has a dependency declared via \"olm.package\" in metadata/dependencies.yaml: \
         package vault (>0.27.0)",
    );
}

/// The properties that a catalog would have, from the bundle alone.
#[test]
fn all_properties_include_provided_and_required_apis() {
    let in_file = "dependencies:\n- type: olm.package\n  value: {packageName: vault, version: '>0.27.0'}\n\
                   - type: olm.gvk\n  value: {group: g, kind: K, version: v1}\n";
    let files = plus(fixture("backup"), "metadata/dependencies.yaml", in_file);
    let bundle = olm_bundle::parse(&files, &BTreeMap::new()).unwrap();
    let all: Vec<String> = bundle
        .all_properties()
        .iter()
        .map(|property| format!("{} {}", property.kind, property.value))
        .collect();
    for expected in [
        r#"olm.package.required {"packageName":"vault","versionRange":">0.27.0"}"#,
        r#"olm.gvk.required {"group":"g","kind":"K","version":"v1"}"#,
    ] {
        assert!(all.iter().any(|found| found == expected), "{expected} in {all:?}");
    }
    assert!(all.iter().any(|found| found.starts_with("olm.gvk {")), "{all:?}");
}

/// Two lists of a revision: the properties of the files, unchanged, and further properties.
#[test]
fn further_properties_hold_the_properties_outside_the_files_and_the_own_maximum_counts() {
    let properties = |maximum: &str| {
        let property = |kind: &str, value| (kind.to_owned(), value);
        [
            property("olm.maxOpenShiftVersion", json!(maximum)),
            property(
                "olm.package.required",
                json!({"packageName": "vault", "versionRange": ">1.0.0"}),
            ),
        ]
    };
    let further = |bundle: &olm_bundle::Bundle, maximum: &str| -> Vec<String> {
        let text = bundle.further_properties(&properties(maximum)).unwrap();
        let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        list.iter()
            .map(|property| format!("{} {}", property["type"].as_str().unwrap(), property["value"]))
            .collect()
    };
    let in_file = "properties:\n- {type: x, value: 1}\n- {type: x, value: 1}\n";
    let files = |more: &str| {
        let text = format!("{in_file}{more}");
        plus(fixture("backup"), "metadata/properties.yaml", &text)
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
